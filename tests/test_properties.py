"""Property-based: scopes (law 1), lineage (laws 5, 6), time (law 13), ids (law 12)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge import Expunge
from expunge.authority.port import Tx
from expunge.census import Question, count_left
from expunge.datamap import RECORDS
from expunge.datamap.selector import count_scope
from expunge.erasure import Order, preview
from expunge.errors import InvalidId
from expunge.model.canonical import canonical, canonical_plain
from expunge.model.ids import check_id
from expunge.model.instant import parse_instant, to_text
from expunge.model.scope import Scope
from expunge.subject import read_profile
from tests.scopes_support import Places, examples, opened
from tests.support import dump, ids

users = st.sampled_from(["u1", "u10", "U1", "%", "é", "e\u0301"])
parts = {
    "user_id": users,
    "namespace": st.sampled_from(["n", "n2", "*"]),
    "agent": st.sampled_from(["a", "a_"]),
    "session_id": st.sampled_from(["s", "s/../s"]),
}
days = st.integers(min_value=1, max_value=9)


def at(day: int) -> str:
    return f"2026-01-0{day}T00:00:00Z"


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Records of every collection under any mix of identity parts, each resting on up to three earlier ones."""
    made: list[dict[str, Any]] = []
    for n in range(draw(st.integers(min_value=1, max_value=14))):
        kind = draw(st.sampled_from(["episodes", "memories", "facts", "blocks", "events", "sessions"]))
        record: dict[str, Any] = {"collection": kind, "id": f"r{n}", "created_at": at(draw(days))}
        for part, values in parts.items():
            if kind == "sessions" and part == "session_id":
                continue
            if (value := draw(st.none() | values)) is not None:
                record[part] = value
        episodes = [item["id"] for item in made if item["collection"] == "episodes"]
        if kind == "events":
            if not episodes:
                continue
            record["episode"] = draw(st.sampled_from(episodes))
        own: dict[str, dict[str, Any]] = {
            "memories": {"key": draw(st.sampled_from(["k", "l"])), "value": n},
            "facts": {"subject": "s", "predicate": "p", "object": str(n)},
            "blocks": {"name": draw(st.sampled_from(["x", "y"]))},
        }
        record |= own.get(kind, {})
        if made and (sources := draw(st.sets(st.sampled_from([item["id"] for item in made]), max_size=3))):
            record["sources"] = sorted(sources)
        made.append(record)
    return made


@st.composite
def scopes(draw: st.DrawFn) -> Scope:
    """Any conjunction that a scope can say."""
    chosen = draw(st.lists(users, max_size=3, unique=True))
    namespaces = draw(st.lists(parts["namespace"], max_size=1 if len(chosen) > 1 else 2, unique=True))
    before = draw(st.none() | days)
    return Scope(
        org="default",
        user_ids=tuple(chosen),
        namespaces=tuple(namespaces),
        agent=draw(st.none() | parts["agent"]),
        session_id=draw(st.none() | parts["session_id"]),
        before=None if before is None else parse_instant(at(before), "before"),
    )


TIME = {"episodes": "created_at", "facts": "created_at", "memories": "created_at", "blocks": "created_at"}


def in_scope(record: dict[str, Any], scope: Scope) -> bool:
    """The scope's meaning, said once more in plain Python."""
    session = record["id"] if record["collection"] == "sessions" else record.get("session_id")
    if scope.session_id is not None and record["collection"] in {"facts", "blocks"}:
        return False  # they outlive a session, and go with what was said in it by lineage alone
    return (
        (not scope.user_ids or record.get("user_id") in scope.user_ids)
        and (not scope.namespaces or record.get("namespace") in scope.namespaces)
        and (scope.agent is None or record.get("agent") == scope.agent)
        and (scope.session_id is None or session == scope.session_id)
        and (scope.before is None or parse_instant(record["created_at"], "at") < scope.before)
    )


def closure(made: list[dict[str, Any]], start: set[str]) -> set[str]:
    """The lineage rule, said once more: what goes when these go. Sources always stand earlier in the list."""
    gone = set(start)
    for record in made:
        sources = set(record.get("sources", ()))
        if record["collection"] == "facts":
            goes = bool(sources) and sources <= gone
        else:
            goes = bool(sources & gone) or record.get("episode") in gone
        if goes:
            gone.add(record["id"])
    return gone


async def with_records(places: Places, made: list[dict[str, Any]], work: Any) -> Any:
    async with opened(places) as (expunge, _):
        await expunge.put(made)
        return await work(expunge)


@pytest.mark.authorities("memory")
@examples(100)
@given(records(), scopes())
def test_profile_selector_preview_and_census_agree(places: Places, made: list[dict[str, Any]], scope: Scope) -> None:
    """Law 1: the four ways of asking a scope, and plain Python, give the same counts for any conjunction."""
    asking_agrees(places, made, scope)


@pytest.mark.authorities("postgres")
@examples(15)
@given(records(), scopes())
def test_they_agree_on_a_server(places: Places, made: list[dict[str, Any]], scope: Scope) -> None:
    """Law 1: the same with fewer examples, where each costs a database."""
    asking_agrees(places, made, scope)


def asking_agrees(places: Places, made: list[dict[str, Any]], scope: Scope) -> None:
    """Ask for what a scope holds in every way."""
    expected = {kind.name: 0 for kind in RECORDS}
    for record in made:
        expected[record["collection"]] += in_scope(record, scope)

    async def work(expunge: Expunge) -> None:
        def unit(tx: Tx) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
            selected = {name: counts.total() for name, counts in count_scope(tx, scope).items()}
            counted = count_left(tx, Question("default", 0, 1, expunge.system.words.owned_by), scope.targets)
            census = {kind.name: sum(count[kind.name] for count in counted) for kind in RECORDS}
            return read_profile(tx, scope).counts, selected, census

        profile, selected, census = await expunge.system.authority.read(unit)
        previewed = await preview(expunge.system, Order(scope, scope.type, purge=True))
        assert profile == selected == census == expected
        assert {name: counts["direct"] for name, counts in previewed.goes.items()} == expected

    asyncio.run(with_records(places, made, work))


CLOSURES = given(records(), st.lists(users, min_size=1, max_size=3, unique=True), st.sampled_from([2, 1000]))


@pytest.mark.authorities("memory")
@examples(100)
@CLOSURES
def test_the_closure_is_the_lineage_rule(
    places: Places, made: list[dict[str, Any]], subjects: list[str], batch_rows: int
) -> None:
    """Laws 5, 6, 10: exactly what the rule says goes, the rest is byte-equal; again nothing; in any batch size."""
    goes_by_the_lineage_rule(places, made, subjects, batch_rows)


@pytest.mark.authorities("postgres")
@examples(12)
@CLOSURES
def test_it_is_so_on_a_server(places: Places, made: list[dict[str, Any]], subjects: list[str], batch_rows: int) -> None:
    """Laws 5, 6, 10: the same with fewer examples, where each costs a database."""
    goes_by_the_lineage_rule(places, made, subjects, batch_rows)


def goes_by_the_lineage_rule(places: Places, made: list[dict[str, Any]], subjects: list[str], batch_rows: int) -> None:
    """Erase some users and compare with the rule."""
    gone = closure(made, {record["id"] for record in made if record.get("user_id") in subjects})

    async def work() -> None:
        async with opened(places, batch_rows=batch_rows) as (expunge, _):
            await expunge.put(made)
            before = await dump(expunge)
            previewed = await expunge.preview(*subjects)
            answer = await expunge.erase(*subjects, purge=True)
            assert (answer.effects, answer.found) == (previewed.effects, previewed.found)
            goes = {name: sum(counts.values()) for name, counts in previewed.goes.items()}
            assert goes == {name: count for name, count in answer.removed.items() if name != "lineage"}
            after = await dump(expunge)
            assert (answer.status, answer.residue_count) == ("completed", 0)
            assert ids(before) - ids(after) == gone
            for name, rows in after.items():
                assert {key: before[name][key] for key in rows} == rows
            edges = {key for key, row in before["lineage"].items() if row[0] not in gone and row[1] not in gone}
            assert set(after["lineage"]) == edges
            assert sum(answer.removed.values()) == len(gone) + len(before["lineage"]) - len(edges)
            again = await expunge.erase(*subjects, purge=True)
            assert (again.found, await dump(expunge)) == (False, after)

    asyncio.run(work())


@given(
    st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),  # noqa: DTZ001
    st.integers(min_value=-23 * 60, max_value=23 * 60),
)
def test_times_keep_their_instant(naive: datetime, offset: int) -> None:
    """Law 13: any zone, any microsecond; read, written and read again is the same instant."""
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=offset)))
    instant = parse_instant(moment.isoformat(), "at")
    assert parse_instant(to_text(instant), "at") == instant
    assert datetime.fromisoformat(to_text(instant)) == moment.astimezone(UTC)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(min_value=-(2**53) + 1, max_value=2**53 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abz_.AZ09", min_size=1), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_what_we_write_ourselves_is_canonical(value: Any) -> None:
    """Design 4: the fast way of writing RFC 8785 gives what the library gives."""
    assert canonical_plain(value) == canonical(value)


@given(st.text(max_size=300))
def test_an_id_is_refused_or_kept_as_it_is(text: str) -> None:
    """Law 12: no trimming, folding or normalising."""
    fine = bool(text) and not text.isspace() and "\0" not in text and text != "-" and len(text.encode()) <= 256
    try:
        assert check_id(text, "id") is text
    except InvalidId:
        assert not fine
    else:
        assert fine
