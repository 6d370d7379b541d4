"""Law 7 over the whole data map: in each scope and mode, every way of sparing a collection turns the census red.

The mutants are made from the data map: for each collection, each sort of scope that reaches it and both modes, what
removes or hides does nothing, the selector looks at a wrong column (in both of its spellings), or only a part is taken.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from expunge import Expunge
from expunge.authority.port import Statement
from expunge.datamap import RECORDS, Collection, collection
from expunge.datamap import selector as selector_statements
from expunge.datamap.selector import Selector
from expunge.erasure import marking, purging
from expunge.erasure import statements as saga_statements
from tests.scopes_support import KINDS, OUTLIVE_A_SESSION, TIMES, Places, at, ids_served, opened
from tests.support import answer, block, document, dump, episode, event, fact, ids, job, memory, session

Mutant = tuple[Any, str, Any]

MINE = {"user_id": "ann", "namespace": "n", "agent": "a", "session_id": "s"}
THEIRS = {"user_id": "bob", "namespace": "m", "agent": "z", "session_id": "t"}
SCOPES: dict[str, dict[str, Any]] = {
    "user": {"scope_type": "user_id", "scope_value": "ann"},
    "namespaces": {"scope_type": "namespace_list", "scope_value": ["x", "n"]},
    "agent": {"scope_type": "agent", "scope_value": "a"},
    "session": {"scope_type": "session", "scope_value": "s"},
    "org": {"scope_type": "org"},
    "dated": {"scope_type": "namespace", "scope_value": "n", "user_id": "ann", "before": at(5)},
}
WRONG = {"user_id": "agent", "namespace": "user_id", "agent": "namespace", "session_id": "user_id", "org": "agent"}
"""For each column that a selector may compare another one, which holds nothing that it could match."""
BOTH_MODES = ("purge", "hide")


def each(*scopes: str, reached: bool = False, several: bool = False, modes: tuple[str, ...] = BOTH_MODES) -> Any:
    """The cases: collection, scope and mode; only where it is found by whose it is, or has more than one record.

    All of them in memory; on PostgreSQL one for each collection, over all the scopes and modes in turn.
    """
    cases = []
    for number, kind in enumerate(RECORDS):
        of_kind = []
        for scope in scopes or SCOPES:
            by_lineage = scope == "session" and kind.name in OUTLIVE_A_SESSION
            is_only_one = scope == "session" and kind.name == "sessions"
            if not (reached and by_lineage) and not (several and is_only_one):
                of_kind += [(kind.name, scope, mode) for mode in modes]
        cases += [("memory", *case) for case in of_kind]
        cases += [("postgres", *of_kind[number % len(of_kind)])] if of_kind else []
    return pytest.mark.parametrize(("authority", "name", "scope", "mode"), cases, indirect=["authority"])


def records_of(scope: str, name: str) -> list[dict[str, Any]]:
    """Two records of every collection in a scope, each found by its own identity alone, and one of somebody else."""
    made: list[dict[str, Any]] = []
    parts = MINE
    if scope == "org":
        parts = {"user_id": "ann"}
    for n in (1, 2):
        sources = [f"e{n}"] if scope == "session" else []
        files = ["a.txt"] if name == "attachments" else []
        made += [
            episode(f"e{n}", **parts, attachments=files), event(f"v{n}", "e1" if scope == "org" else "their-e", **parts),
            memory(f"m{n}", f"k{n}", **parts), fact(f"f{n}", **parts, sources=sources),
            block(f"b{n}", f"x{n}", **parts, sources=sources), answer(f"a{n}", **parts),
            job(f"j{n}", **parts, sources=sources),
        ]  # fmt: skip
        if name in {"documents", "chunks"}:
            made.append(document(f"d{n}", f"t{n}", **parts))
        if scope != "session":
            made.append(session(f"s{n}", **{part: value for part, value in parts.items() if part != "session_id"}))
    if scope == "session":
        made.append(session("s", **{part: value for part, value in parts.items() if part != "session_id"}))
    decoy = dict.fromkeys(("created_at", "recorded_at", "updated_at"), at(9))  # which no dated scope would take
    return [record | decoy | {TIMES[record["collection"]]: at(1)} for record in made]


def theirs() -> list[dict[str, Any]]:
    """A record of every collection that no scope takes, but for the org; there they are another org's."""
    parts = {part: value for part, value in THEIRS.items() if part != "session_id"}
    return [
        episode("their-e", **THEIRS, attachments=["a.txt"]), event("their-v", "their-e", **THEIRS), session("t", **parts),
        memory("their-m", "k1", **THEIRS), fact("their-f", **THEIRS), block("their-b", "x1", **THEIRS),
        answer("their-a", **THEIRS), job("their-j", **THEIRS), document("their-d", "t1", **THEIRS),
    ]  # fmt: skip


@asynccontextmanager
async def filled(
    places: Places, scope: str, name: str, batch_rows: int
) -> AsyncIterator[tuple[Expunge, set[str], set[str]]]:
    """A store with what a scope takes and what it does not, and the ids of both."""
    async with opened(places, batch_rows=batch_rows) as (expunge, folder):
        mine, strangers = records_of(scope, name), theirs()
        if scope == "org":
            await expunge.put(strangers, org="other", attachments_from=folder)
            strangers = []
        stay = set(ids(await dump(expunge)))
        await expunge.put([*mine, *strangers], attachments_from=folder)
        whole = ids(await dump(expunge))
        named = {record["id"] for record in mine}
        attached = await files_of(expunge, named)
        stay |= whole - named - attached
        yield expunge, named | attached, stay


async def files_of(expunge: Expunge, episodes: set[str]) -> set[str]:
    """The attachments of some episodes of the org, and the chunks of some documents."""

    def unit(tx: Any) -> set[str]:
        text = """SELECT id, episode FROM attachments WHERE org = 'default'
            UNION ALL SELECT id, document FROM chunks WHERE org = 'default'"""
        rows = tx.rows(Statement("test.files", text))
        return {record_id for record_id, owner in rows if owner in episodes}

    return await expunge.system.authority.read(unit)


def forget_statements() -> None:
    """Statements are made once: a mutant of what they are made from needs them made again, and so does what follows."""
    for module in (saga_statements, selector_statements):
        for made in vars(module).values():
            if hasattr(made, "cache_clear"):
                made.cache_clear()


@pytest.fixture(autouse=True)
def fresh_statements() -> Iterator[None]:
    forget_statements()
    yield
    forget_statements()


async def turns_red_and_heals(
    places: Places,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, str, str],
    mutants: list[Mutant],
    *,
    batch_rows: int = 20_000,
) -> None:
    """Erase with a mutant: it fails and names the collection; without it a resume ends it, and the others are left."""
    name, scope, mode = case
    async with filled(places, scope, name, batch_rows) as (expunge, go, stay):
        before = await dump(expunge)
        with monkeypatch.context() as patched:
            for module, attribute, mutant in mutants:
                patched.setattr(module, attribute, mutant)
            answer = await expunge.call("erasure.request", purge=mode == "purge", **SCOPES[scope])
        forget_statements()
        assert (answer.status, answer.receipt) == ("failed", None)
        assert set(answer.residue) - {"lineage"} == {name}
        assert name in answer.failure_reason
        assert stay <= ids_served(await dump(expunge))
        healed = await expunge.resume(answer.request_id)
        assert (healed.status, healed.residue_count) == ("completed", 0)
        after = await dump(expunge)
        assert ids_served(after) == stay
        assert ids(after) == (stay if mode == "purge" else stay | go)
        counted = healed.removed if mode == "purge" else healed.hidden
        assert sum(counted[kind] for kind in KINDS) == len(go)
        for kind in KINDS:
            assert all(row == before[kind][key] for key, row in after[kind].items() if key in stay)
        assert (await expunge.call("erasure.census", request_id=answer.request_id)).residue_count == 0


def changed(statement: Statement, change: Callable[[str], str]) -> Statement:
    """A statement with its text changed, on each authority."""
    return replace(statement, text=change(statement.text), postgres=statement.postgres and change(statement.postgres))


def instead(name: str, change: Callable[[str], str], real: Callable[..., Statement]) -> Callable[..., Statement]:
    """What makes a statement, with its text changed for one collection."""

    def made(kind: Collection, *more: Any) -> Statement:
        statement = real(kind, *more)
        return changed(statement, change) if kind.name == name else statement

    return made


def in_effect(name: str, mode: str, change: Callable[[str], str]) -> list[Mutant]:
    """Mutants of what removes (by scope and by mark) or hides."""
    places = {
        "purge": (purging, ("delete_in_scope", "delete_marked")),
        "hide": (marking, ("hide", "hide_marked", "hide_again")),
    }
    module, attributes = places[mode]
    return [(module, attribute, instead(name, change, getattr(saga_statements, attribute))) for attribute in attributes]


def in_selector(name: str, change: Callable[[str], str], *spellings: str) -> list[Mutant]:
    """Mutants of the selector; what is also found through its episode would not show it, so that way is closed."""

    def mutant(real: Callable[[Selector, Collection], str]) -> Callable[[Selector, Collection], str]:
        return lambda selector, kind: change(real(selector, kind)) if kind.name == name else real(selector, kind)

    mutants: list[Mutant] = [(Selector, spelling, mutant(getattr(Selector, spelling))) for spelling in spellings]
    if collection(name).parent is not None:
        mutants.append((marking, "find_children", instead(name, nothing, saga_statements.find_children)))
    return mutants


def nothing(text: str) -> str:
    """The statement that says nothing and does nothing."""
    return text.replace("WHERE", "WHERE FALSE AND", 1)


def the_first(text: str) -> str:
    """The statement that takes the first row of a table and no other."""
    return text.replace("WHERE", "WHERE r.rid <= 1 AND", 1)


def wrong_column(name: str, scope: str) -> Callable[[str], str]:
    """Every column that is compared becomes another; of a dated scope it is the time."""

    def change(text: str) -> str:
        if scope == "dated" and collection(name).written_by is None:  # an attachment has the time of its episode
            other = "recorded_at" if TIMES[name] != "recorded_at" else "updated_at"
            return re.sub(rf"\br\.{TIMES[name]}\b", f"r.{other}", text)
        columns = "org" if scope == "org" else "user_id|namespace|agent|session_id"
        return re.sub(rf"\br\.({columns})\b", lambda found: f"r.{WRONG[found[1]]}", text)

    return change


@each()
async def test_what_does_nothing(
    places: Places, monkeypatch: pytest.MonkeyPatch, name: str, scope: str, mode: str
) -> None:
    """Law 7: mutation `no-op` of what removes or hides."""
    await turns_red_and_heals(places, monkeypatch, (name, scope, mode), in_effect(name, mode, nothing))


@each("user", "session", "org", several=True)
async def test_what_takes_a_part(
    places: Places, monkeypatch: pytest.MonkeyPatch, name: str, scope: str, mode: str
) -> None:
    """Law 7, law 11: mutation `cap` of what removes or hides, which is done in batches."""
    await turns_red_and_heals(places, monkeypatch, (name, scope, mode), in_effect(name, mode, the_first), batch_rows=3)


@each(reached=True)
async def test_a_wrong_column(
    places: Places, monkeypatch: pytest.MonkeyPatch, name: str, scope: str, mode: str
) -> None:
    """Law 7: mutation `wrong column`, in the spelling that finds."""
    mutants = in_selector(name, wrong_column(name, scope), "where")
    await turns_red_and_heals(places, monkeypatch, (name, scope, mode), mutants)


@each("user", "session", "org", "dated", reached=True, modes=("purge",))
async def test_a_wrong_column_in_the_delete(
    places: Places, monkeypatch: pytest.MonkeyPatch, name: str, scope: str, mode: str
) -> None:
    """Law 7: mutation `wrong column`, in the spelling that deletes without finding first.

    What has ties is deleted by its mark as well, so that way is closed; with attachments it is the only way.
    """
    mutants = in_selector(name, wrong_column(name, scope), "within")
    mutants.append((purging, "delete_marked", instead(name, nothing, saga_statements.delete_marked)))
    await turns_red_and_heals(places, monkeypatch, (name, scope, mode), mutants)


@each("namespaces", "session", "dated", reached=True, several=True)
async def test_a_selector_with_a_cap(
    places: Places, monkeypatch: pytest.MonkeyPatch, name: str, scope: str, mode: str
) -> None:
    """Law 7, law 11: mutation `cap`, in both spellings at once, where all is done in one commit."""
    mutants = in_selector(name, lambda text: f"{text} AND r.rid <= 1", "where", "within")
    await turns_red_and_heals(places, monkeypatch, (name, scope, mode), mutants)


def test_every_collection_is_mutated() -> None:
    """Law 3: a new collection of records joins these tests by being declared."""
    assert {kind.name for kind in RECORDS} == set(KINDS) == set(TIMES)
    made = {record["collection"] for record in records_of("user", "documents")}
    assert made | {kind.name for kind in RECORDS if kind.written_by} == set(KINDS)
