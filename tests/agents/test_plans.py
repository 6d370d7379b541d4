"""Design 6: what an agent asks is bound by what belongs to it, and never walks through a table."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from expunge import Agent, Episode, Expunge, Message, NewFact
from expunge.authority.port import Statement, Tx
from expunge.authority.sqlite.transaction import SqliteTx
from tests.agents.kit import as_user

WALKS = {
    "jobs.count": "asked by operators",
    "requests.open": "an index of those that are open alone",
    "requests.clear": "an index of those that hold clear ids alone",
    "requests.some_expired": "requests of 90 days",
    "requests.expire": "requests of 90 days",
    "keys.named": "a row for each key",
    "keys.name": "a row for each key",
    "records.next_rid": "a row for each table",
    "records.has_ties": "ends at the first",
}
"""Statements that need no index, and why."""
NEEDLESS = (
    "SCAN CONSTANT ROW", "SCAN (subquery", "SCAN j", "SCAN t VIRTUAL", "SCAN json_each", "SCAN h USING", "SCAN c", "SCAN grouped",
    "SCAN search VIRTUAL TABLE INDEX 0:=", "SCAN search VIRTUAL TABLE INDEX 32:rM",
    "SCAN search VIRTUAL TABLE INDEX 0:M",
)  # fmt: skip
"""What is walked and is small: a parameter, holds, a page that a sub-select has cut, a match of words."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Statement, dict[str, Any]]]:
    """Every statement that was run, by its name, with the last values."""
    found: dict[str, tuple[Statement, dict[str, Any]]] = {}
    for name in ("rows", "change"):
        real = getattr(SqliteTx, name)

        def noting(self: SqliteTx, statement: Statement, /, real: Any = real, **values: Any) -> Any:
            found[statement.name + str(hash(statement.text))] = (statement, values)
            return real(self, statement, **values)

        monkeypatch.setattr(SqliteTx, name, noting)
    return found


async def do_everything(agent: Agent) -> None:
    """Whatever an agent does, once."""
    memory = agent.memory
    memory.auto_extract()
    await memory.set("k", "tea", ttl_seconds=1)
    await memory.set_many({"a": 1, "b": 2})
    await memory.set("b", 3, idempotency_key="i")
    await memory.get("k")
    await memory.history("k")
    await memory.touch("k", clear_expiry=True)
    await memory.delete("k")
    await memory.restore("k")
    await memory.sweep_expired()
    said = await memory.remember(Episode(session_id="s", input="My name is Ann.", transcript=[Message(role="tool")]))
    async with memory.run("hello", session_id="s") as run:
        await run.finish("bye")
    await memory.recall("name")
    await memory.recall("", since=datetime(2020, 1, 1, tzinfo=UTC))
    await memory.session_messages("s")
    await memory.sessions()
    await memory.end_session("s")
    await memory.add_fact(NewFact(subject="u", predicate="lives in", object="Porto", sources=[said]))
    await memory.facts(predicate="lives in")
    await memory.facts(at_any_time=True)
    await memory.recall_facts("Porto")
    await memory.update_block("persona", "kind")
    await memory.append_block("persona", "er")
    await memory.working()
    await memory.delete_block("persona")
    await memory.add_document("d", text="Some words.")
    await memory.document("d")
    await memory.document("d", version=1)
    await memory.documents()
    await memory.pin_document("d")
    await memory.search("words", kinds=["memories", "chunks", "facts", "episodes"])
    await memory.consolidate()
    await agent.drain()

    async def answerer(_question: str, _hits: Any) -> str:
        return "Ann"

    await memory.ask("who?", answerer)
    await memory.ask("who?", answerer)
    await memory.profile()
    await memory.forget(session_id="s")
    await memory.forget(user_id="ann")


async def test_nothing_that_an_agent_asks_walks_through_a_table(
    in_memory: Expunge, seen: dict[str, tuple[Statement, dict[str, Any]]]
) -> None:
    """Design 6: the plan of every statement that was run, as it was run."""
    async with as_user(in_memory) as agent:
        await do_everything(agent)
    run = dict(seen)
    assert len(run) > 150
    walking: dict[str, list[str]] = {}

    def explain(tx: Tx) -> None:
        for statement, values in run.values():
            steps = [
                row[3] for row in tx.rows(Statement("test.plan", "EXPLAIN QUERY PLAN " + statement.text), **values)
            ]
            scans = [step for step in steps if step.startswith("SCAN") and not step.startswith(NEEDLESS)]
            scans += [step for step in steps if step.endswith("(org=?)") and re.search(r" h | orgs ", step) is None]
            if scans and statement.name not in WALKS:
                walking[statement.name] = scans

    await in_memory.system.authority.run(explain)
    assert walking == {}


async def test_a_user_in_a_namespace_is_found_by_the_user(
    in_memory: Expunge, seen: dict[str, tuple[Statement, dict[str, Any]]]
) -> None:
    """Design 6: a namespace holds everybody; where a user is named no other index is taken."""
    async with as_user(in_memory) as agent:
        await agent.memory.remember(Episode(session_id="s", input="hello"))
        seen.clear()
        await agent.memory.profile()
        await agent.memory.recall("hello")
        assert await agent.memory.forget(user_id="ann") == 2
    run = dict(seen)
    taken: list[str] = []

    def explain(tx: Tx) -> None:
        for statement, values in run.values():
            plan = tx.rows(Statement("test.plan", "EXPLAIN QUERY PLAN " + statement.text), **values)
            taken.extend(row[3] for row in plan if re.search(r"_(namespace|agent)\b", row[3]))

    await in_memory.system.authority.run(explain)
    assert taken == []
    assert len(run) > 30
