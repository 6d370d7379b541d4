"""Law 7: the census is independent, and every way of not erasing a collection turns it red."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.authority.port import Statement, Tx
from expunge.census import COUNTED, count
from expunge.census.sql import BY_IDENTITY, LIVE_SUBJECTS
from expunge.datamap import RECORDS, Collection
from expunge.datamap import selector as selector_statements
from expunge.datamap.selector import Selector
from expunge.erasure import purging
from expunge.erasure import statements as saga_statements
from expunge.model.instant import ManualClock
from tests.eye import behind, changed, is_served
from tests.support import document, dump, episode, event, fact, ids, memory, of_agents, one_of_each

pytestmark = pytest.mark.authorities("sqlite", "postgres", every=3)

NAMES = [kind.name for kind in RECORDS if kind.body_in is None and kind.written_by is None]
"""What has bodies, or comes with it, is removed with them, and is mutated in test_census_scopes.py."""


def no_op(text: str) -> str:
    """The delete that says nothing and does nothing."""
    return text.replace("WHERE", "WHERE FALSE AND", 1)


@pytest.fixture
def fresh_statements() -> Iterator[None]:
    """Statements are made once: a mutant of what they are made from needs them made again, and so does what follows."""
    forget_statements()
    yield
    forget_statements()


def forget_statements() -> None:
    for module in (saga_statements, selector_statements):
        for made in vars(module).values():
            if hasattr(made, "cache_clear"):
                made.cache_clear()


async def erase_with(expunge: Expunge, monkeypatch: pytest.MonkeyPatch, *mutants: tuple[Any, str, Any]) -> Any:
    with monkeypatch.context() as patched:
        for module, name, mutant in mutants:
            patched.setattr(module, name, mutant)
        return await expunge.erase("ann", purge=True)


@pytest.fixture
async def filled(expunge: Expunge) -> Expunge:
    await expunge.put([*whole("ann", "a"), *whole("bob", "b")])
    return expunge


def whole(user_id: str, prefix: str) -> list[dict[str, Any]]:
    """A record of every collection that has no bodies."""
    return [*one_of_each(user_id, prefix), *of_agents(user_id, prefix)]


async def heals(expunge: Expunge, request_id: str) -> None:
    """A failed erasure completes when the fault is gone, and the other user has lost nothing (laws 7, 10, 16)."""
    answer = await expunge.resume(request_id)
    assert (answer.status, answer.residue_count) == ("completed", 0)
    assert ids(await dump(expunge)) == {record["id"] for record in whole("bob", "b")}


@pytest.mark.parametrize("name", NAMES)
async def test_a_delete_that_does_nothing_turns_it_red(
    filled: Expunge, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Law 7: mutation `no-op`, in each collection."""

    def mutant_of(real: Any) -> Any:
        def mutant(kind: Collection, *more: Any) -> Statement:
            statement = real(kind, *more)
            return Statement(statement.name, no_op(statement.text)) if kind.name == name else statement

        return mutant

    mutants = [
        (purging, made, mutant_of(getattr(saga_statements, made))) for made in ("delete_in_scope", "delete_marked")
    ]
    answer = await erase_with(filled, monkeypatch, *mutants)
    assert answer.status == "failed"
    assert set(answer.residue) - {"lineage"} == {name}
    assert name in answer.failure_reason
    assert answer.receipt is None
    await heals(filled, answer.request_id)


@pytest.mark.parametrize("name", NAMES)
async def test_a_wrong_column_turns_it_red(
    filled: Expunge, monkeypatch: pytest.MonkeyPatch, fresh_statements: None, name: str
) -> None:
    """Law 7: mutation `wrong column`, in each collection: the selector looks at the agent instead of the user."""

    def mutant(real: Callable[[Selector, Collection], str]) -> Callable[[Selector, Collection], str]:
        def made(selector: Selector, kind: Collection) -> str:
            text = real(selector, kind)
            return text.replace("r.user_id", "r.agent") if kind.name == name else text

        return made

    mutants = [(Selector, spelling, mutant(getattr(Selector, spelling))) for spelling in ("where", "within")]

    # What is also found through its episode does not show the fault: these are found by their own user alone.
    await filled.put([event("a-x", "b-e", "ann"), fact("a-y", "ann")])
    answer = await erase_with(filled, monkeypatch, *mutants)
    forget_statements()
    assert answer.status == "failed"
    assert name in answer.residue
    await heals(filled, answer.request_id)


@pytest.mark.parametrize("name", ["CUT_FROM_DERIVED", "CUT_FROM_SOURCE"])
async def test_edges_that_stay_turn_it_red(filled: Expunge, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Law 7: lineage is a collection like the others."""
    # An edge of which only one end goes: each cut is the only one to find one of these.
    await filled.put([memory("x1", "x", sources=["a-e", "b-e"]), fact("x2", "bob", sources=["a-e", "b-e"])])
    real: Statement = getattr(saga_statements, name)
    answer = await erase_with(filled, monkeypatch, (purging, name, Statement(real.name, no_op(real.text))))
    assert answer.status == "failed"
    assert set(answer.residue) == {"lineage"}
    assert answer.residue["lineage"] > 0


async def test_a_page_that_is_skipped_turns_it_red(settings: Settings, clock: ManualClock, monkeypatch: Any) -> None:
    """Law 7 and law 11: mutation `skipped page`; with pages of 5, the second page of 12 episodes is not purged."""
    settings = changed(settings, batch_rows=5)
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put([episode(f"e{n:02}", "ann") for n in range(12)])
        real, calls = purging.purge_marked, []

        def mutant(tx: Tx, request: Any, marks: Any) -> None:
            calls.append(len(marks))
            if len(calls) != 2:
                real(tx, request, marks)

        with monkeypatch.context() as patched:
            patched.setattr("expunge.erasure.saga.purge_marked", mutant)
            answer = await expunge.erase("ann", purge=True)
        assert (answer.status, answer.residue) == ("failed", {"episodes": 5})
        healed = await expunge.resume(answer.request_id)
        assert (healed.status, healed.removed["episodes"]) == ("completed", 12)


async def test_derived_records_that_name_nobody_are_counted(filled: Expunge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design 5: by marked ids, since a summary of nobody is not found by identity."""
    real = saga_statements.delete_marked

    def mutant(kind: Collection) -> Statement:
        statement = real(kind)
        kept = statement.text.replace("WHERE r.rid", "WHERE r.user_id <> '-' AND r.rid")
        return Statement(statement.name, kept)

    answer = await erase_with(filled, monkeypatch, (purging, "delete_marked", mutant))
    assert answer.status == "failed"
    assert answer.residue["memories"] == 2
    assert answer.residue["events"] == 1
    await heals(filled, answer.request_id)


async def test_counting_again_leaves_who_came_back_alone(filled: Expunge) -> None:
    """Design 5: a re-count judges only what is older than the erasure."""
    answer = await filled.erase("ann", purge=True)
    await filled.put([episode("a-new", "ann"), memory("a-mem", "likes", "ann")])
    again = await filled.call("erasure.census", request_id=answer.request_id)
    assert again.residue_count == 0
    assert (await filled.profile("ann")).counts["episodes"] == 1


async def test_counting_again_sees_what_was_put_back_behind_our_back(filled: Expunge) -> None:
    """Design 5: a row that is older than the erasure and there again is found, by hashing live subjects."""
    answer = await filled.erase("ann", purge=True)
    back = Statement(
        "test.back",
        """INSERT INTO facts (org, id, namespace, agent, user_id, session_id, created_at, recorded_at, updated_at,
        seq, subject, predicate, object) VALUES ('default', 'f', '-', '-', 'ann', '-', 0, 0, 0, 0, 's', 'p', 'o')""",
    )
    await filled.system.authority.run(lambda tx: tx.change(back))
    again = await filled.call("erasure.census", request_id=answer.request_id)
    assert again.residue_count == 1
    assert again.census["authority.facts"] == 1


DERIVED: dict[str, dict[str, Any]] = {
    "sessions": {},
    "episodes": {},
    "events": {"episode": "b-e"},
    "memories": {"key": "k", "value": 1},
    "facts": {"subject": "s", "predicate": "p", "object": "o"},
    "blocks": {"name": "n"},
    "answers": {"question": "q", "answer": "a"},
    "jobs": {"deriver": "d"},
}


@pytest.mark.parametrize("name", NAMES)
async def test_what_was_derived_is_counted_in_each_collection(
    filled: Expunge, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Law 7: a derived record that names nobody and is not deleted is found by the mark, in every collection."""
    await filled.put([{"collection": name, "id": "of-ann", "sources": ["a-e"]} | DERIVED[name]])

    def mutant(kind: Collection) -> Statement:
        statement = saga_statements.delete_marked(kind)
        return Statement(statement.name, no_op(statement.text)) if kind.name == name else statement

    answer = await erase_with(filled, monkeypatch, (purging, "delete_marked", mutant))
    assert answer.status == "failed"
    assert name in answer.residue
    await heals(filled, answer.request_id)


@pytest.mark.parametrize("name", NAMES)
async def test_counting_again_finds_a_subject_by_each_collection(filled: Expunge, name: str) -> None:
    """Design 5: live subjects are looked for in every collection, by every identity part."""
    answer = await filled.erase("ann", purge=True)
    await filled.put([{"collection": name, "id": "back", "user_id": "ann"} | DERIVED[name]])
    old = Statement("test.old", f"UPDATE {name} SET seq = 0 WHERE id = 'back'")
    await filled.system.authority.run(lambda tx: tx.change(old))
    again = await filled.call("erasure.census", request_id=answer.request_id)
    assert {key for key, count in again.census.items() if count} == {f"authority.{name}"}
    for part, text in LIVE_SUBJECTS.items():
        beside = {"vectors", "audit_clear"} if part == "user_id" else {"vectors"}
        assert set(re.findall(r"FROM (\w+)", text)) == {*beside, *(kind.name for kind in RECORDS)}, part
        assert set(re.findall(r"SELECT (\w+)", text)) - {"name"} == {part}


def without(name: str, real: Any, *given: Any) -> list[Any]:
    """What stands in the index, but for one of its parts."""
    rows = [row for answer in real(*given) for row in answer()]
    return [lambda: [row for row in rows if row[1] != name]]


LEFT_BEHIND = {"episodes": 1, "memories": 3, "facts": 1, "chunks": 1}
"""How many records of a searched collection go with ann; two of the memories name nobody, and are only made from hers."""


@pytest.mark.parametrize("collection", LEFT_BEHIND)
@pytest.mark.parametrize("name", ["search", "vectors"])
async def test_what_outlives_its_record_turns_it_red(filled: Expunge, name: str, collection: str) -> None:
    """Law 7: mutation `no-op` of the trigger that takes the entries and the vectors of what goes."""
    if collection == "chunks":
        await filled.put([document("a-d", "t", "ann"), document("b-d", "t", "bob")])
    of_others, staying = await found_of_bob(filled), of_bob(await dump(filled))
    assert "b-e" in of_others
    async with without_trigger(filled, name, collection):
        answer = await filled.erase("ann", purge=True)
        assert (answer.status, answer.residue) == ("failed", {name: LEFT_BEHIND[collection]})
        assert answer.receipt is None
    healed = await filled.resume(answer.request_id)
    assert (healed.status, healed.residue_count) == ("completed", 0)
    left = await dump(filled)
    assert of_bob(left) == staying
    assert ids(left) == set(staying)
    assert await found_of_bob(filled) == of_others


@pytest.mark.parametrize("name", ["search", "vectors"])
async def test_what_outlives_a_derived_record_turns_it_red(filled: Expunge, name: str) -> None:
    """Law 7: the entry of what names nobody belongs to nobody, and is found by the mark of its record."""
    await filled.put([episode("z-e", "zoe"), memory("z-sum", "summary/z", sources=["z-e"])])
    async with without_trigger(filled, name, "memories"):
        answer = await filled.erase("zoe", purge=True)
        assert (answer.status, answer.residue) == ("failed", {name: 1})
    assert (await filled.resume(answer.request_id)).status == "completed"


@asynccontextmanager
async def without_trigger(expunge: Expunge, name: str, collection: str) -> AsyncIterator[None]:
    """Let the entries, or the vectors, of a collection outlive its records; at the end what did is taken out by hand."""
    trigger, code = f"{collection}_leave", {"episodes": 1, "memories": 2, "facts": 3, "chunks": 4}[collection]
    drop, made, of_trigger = trigger_of(expunge, trigger, collection)
    mutant = "\n".join(line for line in made.splitlines() if f"FROM {name} " not in line)
    assert mutant != made
    behind(expunge, drop, mutant, *of_trigger)
    yield
    key = "rowid" if name == "search" and not is_served(expunge.settings.db) else "record"
    there = f"SELECT rid * 8 + {code} FROM {collection}"
    behind(expunge, drop, made, *of_trigger)
    behind(expunge, f"DELETE FROM {name} WHERE {key} % 8 = {code} AND {key} NOT IN ({there})")


def trigger_of(expunge: Expunge, name: str, collection: str) -> tuple[str, str, list[str]]:
    """What takes a trigger away, the text that says what it does, and what is to be said after that text."""
    if not is_served(expunge.settings.db):
        ((made,),) = behind(expunge, f"SELECT sql FROM sqlite_schema WHERE name = '{name}'")
        return f"DROP TRIGGER {name}", made, []
    text = "SELECT pg_get_functiondef(tgfoid), pg_get_triggerdef(oid) FROM pg_trigger"
    ((made, trigger),) = behind(expunge, f"{text} WHERE tgname = '{name}'")
    # The function is that of all collections: this one gets one of its own.
    made, trigger = (said.replace("leave_search(", f"leave_{collection}(") for said in (made, trigger))
    return f"DROP TRIGGER {name} ON {collection}", made, [trigger]


def of_bob(dumped: dict[str, dict[str, tuple[Any, ...]]]) -> dict[str, tuple[Any, ...]]:
    """The records of the one who stays, with what was made from them."""
    mine = set(whole_ids("b")) | {key for key, row in dumped["chunks"].items() if "b-d" in row}
    return {key: row for name, rows in dumped.items() if name != "lineage" for key, row in rows.items() if key in mine}


def whole_ids(prefix: str) -> list[str]:
    """The ids that records of a prefix may have."""
    return [*(record["id"] for record in whole("bob", prefix)), f"{prefix}-d"]


async def found_of_bob(expunge: Expunge) -> set[str]:
    """What search finds of the one who stays."""
    hits = (await expunge.call("search.find", query="words of b-e", limit=50)).hits
    return {hit.id for hit in hits if hit.id.startswith("b-")}


async def rows_of(expunge: Expunge, text: str) -> list[tuple[Any, ...]]:
    """Rows of a statement."""
    return await expunge.system.authority.read(lambda tx: tx.rows(Statement("test.rows", text)))


@pytest.mark.parametrize("name", COUNTED)
async def test_what_was_not_counted_is_not_completed(
    filled: Expunge, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Law 7: a census that leaves a collection out fails the erasure, and says which."""
    with monkeypatch.context() as patched:
        patched.setattr("expunge.census.count.COUNTED", tuple(other for other in COUNTED if other != name))
        fewer = {other: text for other, text in BY_IDENTITY.items() if other != name}
        patched.setattr("expunge.census.count.BY_IDENTITY", fewer)
        count._identity_statement.cache_clear()
        patched.setattr("expunge.census.count._asked_by_mark", lambda *_: list)
        of_index = partial(without, name, count._asked_of_index)
        patched.setattr("expunge.census.count._asked_of_index", of_index)
        answer = await filled.erase("ann", purge=True)
    count._identity_statement.cache_clear()
    assert (answer.status, answer.receipt) == ("failed", None)
    assert name in str(answer.failure_reason)
    assert (await filled.resume(answer.request_id)).status == "completed"
