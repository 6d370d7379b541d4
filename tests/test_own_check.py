"""The views for an operator's own check: what they hold, and what they say after an erasure."""

from __future__ import annotations

from typing import Any

import pytest

from expunge import Agent, Expunge
from expunge.datamap.views import VIEWS
from expunge.model.instant import ManualClock
from tests.eye import told
from tests.support import block, episode, event, memory

pytestmark = pytest.mark.authorities("sqlite", "postgres")


def ask(expunge: Expunge, *statements: str) -> list[list[list[Any]]]:
    """What another program reads."""
    return told(expunge.settings.db, *statements)


def counts(expunge: Expunge, user: str, at: str, org: str = "default") -> dict[str, int]:
    """The counts of docs/own-check.md."""
    texts = [
        f"SELECT count(*) FROM {view.name} WHERE org = '{org}' AND user_id = '{user}' AND recorded_at <= rtrim('{at}', 'Z')"
        for view in VIEWS
    ]
    return {
        view.name.removeprefix("sql_v1_"): rows[0][0] for view, rows in zip(VIEWS, ask(expunge, *texts), strict=True)
    }


async def test_memories_are_what_reads_serve(expunge: Expunge, clock: ManualClock) -> None:
    """Deliver: current live versions alone; the history has every one, and says which are hidden."""
    async with Agent(expunge, org="default", user_id="ann") as agent:
        for value in ("one", "two"):
            await agent.memory.set("likes", value)
            clock.advance(1)
        await agent.memory.set("gone", "x")
        await agent.memory.delete("gone")
        await agent.memory.set("soon", "x", ttl_seconds=60)
        await agent.memory.set("kept", "y")
        served = {key: await agent.memory.get(key) for key in ("likes", "gone", "soon", "kept")}
        now, history = ask(
            expunge,
            "SELECT key, json_extract(value, '$'), expires_at FROM sql_v1_memories WHERE user_id = 'ann' ORDER BY key",
            "SELECT key, version, state, hidden FROM sql_v1_memory_history WHERE user_id = 'ann' ORDER BY key, version",
        )
        stand = {key: item.value for key, item in served.items() if item.value is not None}
        assert {key: value for key, value, _ in now} == stand == {"likes": "two", "soon": "x", "kept": "y"}
        assert [row[2] for row in now] == [None, None, "2026-01-01T00:01:02"]
        assert history == [
            ["gone", 1, "live", 0], ["gone", 2, "tombstoned", 0], ["kept", 1, "live", 0],
            ["likes", 1, "live", 0], ["likes", 2, "live", 0], ["soon", 1, "live", 0],
        ]  # fmt: skip
    await expunge.erase("ann", purge=False)
    now, history = ask(
        expunge, "SELECT count(*) FROM sql_v1_memories", "SELECT count(*), sum(hidden) FROM sql_v1_memory_history"
    )
    assert (now, history) == ([[0]], [[6, 6]])


async def test_conversations_are_in_their_order(expunge: Expunge) -> None:
    """Deliver: each episode and the entries of its transcript, in order, with whose they are."""
    whose = {"session_id": "s", "namespace": "n", "agent": "a"}
    first, second = "2026-01-01T00:00:00.000001Z", "1969-12-31T23:59:59.999999Z"
    await expunge.put([
        episode("e1", "ann", occurred_at=first, output="out", **whose),
        episode("e0", "ann", occurred_at=second, **whose),
        event("v2", "e1", position=1, content="b"), event("v1", "e1", position=0, content="a", kind="tool"),
        episode("other", "bob"),
    ])  # fmt: skip
    (rows,) = ask(
        expunge,
        """SELECT namespace, agent, session_id, episode, id, kind, position, input, output, content, occurred_at
        FROM sql_v1_conversations WHERE org = 'default' AND user_id = 'ann' ORDER BY occurred_at, episode, position""",
    )
    assert [row[:3] for row in rows] == [["n", "a", "s"]] * 4
    assert [row[3:] for row in rows] == [
        ["e0", "e0", "episode", 0, "words of e0", None, None, "1969-12-31T23:59:59.999999"],
        ["e1", "e1", "episode", 0, "words of e1", "out", None, "2026-01-01T00:00:00.000001"],
        ["e1", "v1", "tool", 1, None, None, "a", "2026-01-01T00:00:00.000001"],
        ["e1", "v2", "tool", 2, None, None, "b", "2026-01-01T00:00:00.000001"],
    ]


async def test_the_counts_are_zero_as_of_the_census(expunge: Expunge, clock: ManualClock) -> None:
    """Law 7, by another program: nothing of before `verified_at`; what is written later is a person who came back."""

    def all_of(user: str, prefix: str) -> list[dict[str, Any]]:
        made = [episode(f"{prefix}e", user), event(f"{prefix}v", f"{prefix}e"), memory(f"{prefix}m", "likes", user)]
        return [*made, memory(f"{prefix}n", "likes", user), block(f"{prefix}b", "persona", user)]

    await expunge.put([*all_of("ann", "a"), *all_of("bob", "b")])
    clock.advance(60)
    before = {"memories": 1, "memory_history": 2, "conversations": 2}
    assert counts(expunge, "ann", "2026-01-01T00:00:00Z") == before
    answer = await expunge.erase("ann", purge=True)
    assert answer.verified_at == "2026-01-01T00:01:00Z"
    assert counts(expunge, "ann", answer.verified_at) == dict.fromkeys(before, 0)
    assert counts(expunge, "bob", answer.verified_at) == before
    clock.advance(1)
    await expunge.put([memory("again", "likes", "ann", created_at="2026-01-01T00:01:00.5Z")])
    assert counts(expunge, "ann", answer.verified_at) == dict.fromkeys(before, 0)
    assert counts(expunge, "ann", "2026-01-01T00:01:00.500000Z") == {
        "memories": 1,
        "memory_history": 1,
        "conversations": 0,
    }


@pytest.mark.authorities("sqlite")  # of PostgreSQL: tests/pg/test_query_plans.py
async def test_a_count_is_a_search_and_no_walk(expunge: Expunge) -> None:
    """Design 6: what a count of one user reads is bound by the user's rows, by the indexes that there are."""
    for view in VIEWS:
        (plan,) = ask(expunge, f"EXPLAIN QUERY PLAN SELECT count(*) FROM {view.name} WHERE org = 'o' AND user_id = 'u'")
        steps = [step for *_, step in plan]
        walks = [step for step in steps if step.startswith("SCAN") and not step.endswith(view.name)]
        assert walks == [], view.name
        assert all("=?" in step.split("(", 1)[1].split("AND")[1] for step in steps if step.startswith("SEARCH")), steps
