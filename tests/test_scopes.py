"""Scopes: every way of asking one agrees, what its fence refuses, and what is refused as no scope (laws 1, 4, 12)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge import Expunge
from expunge.authority.port import Tx
from expunge.census import Question, count_left
from expunge.datamap.selector import count_scope
from expunge.erasure import Order, open_erasure, preview
from expunge.errors import (
    ErasedSince,
    ErasureInProgress,
    HiddenByErasure,
)
from expunge.model.instant import ManualClock
from expunge.model.scope import Scope
from expunge.operations.scopes import RequestInput
from expunge.subject import read_profile
from tests.scopes_support import (
    KINDS,
    NOW,
    Expected,
    Places,
    ask,
    at,
    examples,
    expect,
    instant,
    opened,
    record_lists,
    scopes_over,
    served_episodes,
    state,
    with_attachments,
    words_for,
)
from tests.support import block, dump, episode, event, fact, ids, memory, session

pytestmark = pytest.mark.authorities("memory", "postgres", every=4)
HERE = {f"authority.{name}" for name in (*KINDS, "lineage", "search", "vectors", "audit_clear")}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


# --- the selector ------------------------------------------------------------------------------------------------


@pytest.mark.timeout(400)  # many stores are made; a busy machine takes its time
@pytest.mark.authorities("memory")
@examples(20)
@given(st.data(), record_lists())
def test_profile_selector_preview_and_census_agree(
    places: Places, data: st.DataObject, made: list[dict[str, Any]]
) -> None:
    """Law 1: the ways of asking a scope agree with each other and with plain Python, and change nothing."""
    asking_agrees(places, data, made)


@pytest.mark.timeout(400)
@pytest.mark.authorities("postgres")
@examples(6)
@given(st.data(), record_lists())
def test_they_agree_on_a_server(places: Places, data: st.DataObject, made: list[dict[str, Any]]) -> None:
    """Law 1: the same with fewer examples, where each costs a database."""
    asking_agrees(places, data, made)


def asking_agrees(places: Places, data: st.DataObject, made: list[dict[str, Any]]) -> None:
    """Ask for what some scopes hold in every way."""
    scopes = [data.draw(scopes_over(made)) for _ in range(6)]

    async def work() -> None:
        async with opened(places) as (expunge, folder):
            whole = await written(expunge, made, folder)
            before = await state(expunge)
            for scope in scopes:
                told = expect(whole, scope)
                profile, selected, counted = await expunge.system.authority.read(
                    asked(scope, expunge.system.words.owned_by)
                )
                direct = told.count(told.direct)
                assert profile == direct
                assert selected == [told.count(told.direct, place) for place in range(len(scope.targets))]
                named = int(scope.type == "org" and scope.before is None)  # the operator, who has written them
                beside = {"lineage": 0, "search": 0, "vectors": 0, "audit_clear": named}
                assert counted == [counts | beside for counts in selected]
                for purge in (True, False):
                    seen = await preview(expunge.system, Order(scope, scope.type, purge=purge))
                    assert {name: counts["direct"] for name, counts in seen.goes.items()} == direct
                    assert {name: counts["derived"] for name, counts in seen.goes.items()} == told.count(told.derived)
                    assert seen.effects == told.effects()
                    assert seen.found == bool(told.gone)
                    staying = {item.collection: item.count for item in seen.stays if item.count is not None}
                    assert staying == {name: count for name, count in told.outliving.items() if count}
            assert await state(expunge) == before

    def asked(scope: Scope, owned: Any):
        def unit(tx: Tx) -> tuple[dict[str, int], list[dict[str, int]], list[dict[str, int]]]:
            by_kind = count_scope(tx, scope)
            selected = [
                {name: counts[place] for name, counts in by_kind.items()} for place in range(len(scope.targets))
            ]
            return (
                read_profile(tx, scope).counts,
                selected,
                count_left(tx, Question("default", 0, 1, owned), scope.targets),
            )

        return unit

    asyncio.run(work())


async def written(expunge: Expunge, made: list[dict[str, Any]], folder: Any) -> list[dict[str, Any]]:
    """Write records; all that are there then."""
    await expunge.put(made, attachments_from=folder)
    return with_attachments(made, dict(await ask(expunge, "SELECT episode, id FROM attachments")))


ERASURES = given(st.data(), record_lists(), st.booleans(), st.sampled_from((20_000, 1, 2, 3, 5, 7)))


@pytest.mark.timeout(400)
@pytest.mark.authorities("memory")
@examples(40)
@ERASURES
def test_an_erasure_does_what_the_rules_say(
    places: Places, data: st.DataObject, made: list[dict[str, Any]], purge: bool, batch_rows: int
) -> None:
    """Laws 1, 5, 6, 7, 10, 11: what goes, what stays and every number, in any scope, mode and size of batch.

    Also while another erasure keeps something hidden, and bound to its plan: both go by ids where they need not.
    """
    erases_by_the_rules(places, data, made, purge=purge, batch_rows=batch_rows)


@pytest.mark.timeout(400)
@pytest.mark.authorities("postgres")
@examples(15)
@ERASURES
def test_it_does_so_on_a_server(
    places: Places, data: st.DataObject, made: list[dict[str, Any]], purge: bool, batch_rows: int
) -> None:
    """Laws 1, 5, 6, 7, 10, 11: the same with fewer examples, where each costs a database."""
    erases_by_the_rules(places, data, made, purge=purge, batch_rows=batch_rows)


def erases_by_the_rules(
    places: Places, data: st.DataObject, made: list[dict[str, Any]], *, purge: bool, batch_rows: int
) -> None:
    """Erase a scope and compare with the rules."""
    scope = data.draw(scopes_over(made))
    words = data.draw(words_for(scope))
    assert RequestInput(org="default", **words).order().scope == scope
    exact, is_bound, something_hidden = (data.draw(st.booleans()) for _ in range(3))

    async def work() -> None:
        async with opened(places, batch_rows=batch_rows) as (expunge, folder):
            others = [episode("other", "other", occurred_at=at(9))] if something_hidden else []
            whole = await written(expunge, [*others, *made], folder)
            if others:
                await expunge.erase("other", purge=False)
            told = expect(whole, scope)
            before = await dump(expunge)
            seen = await expunge.call("erasure.request", dry_run=True, purge=purge, exact=exact, **words)
            bound = {"plan_hash": seen.plan_hash, "exact": exact} if is_bound else {}
            answer = await expunge.call("erasure.request", purge=purge, **words, **bound)
            after = await dump(expunge)
            assert (answer.status, answer.scope_type, answer.failure_reason) == ("completed", words["scope_type"], None)
            assert answer.found == bool(told.gone)
            assert answer.effects == seen.effects == told.effects()
            assert (answer.plan_hash == seen.plan_hash) == (is_bound or not exact)
            goes = {name: sum(counts.values()) for name, counts in seen.goes.items()}
            assert goes == told.count(told.gone)
            check_numbers(answer, told, scope, purge=purge)
            check_rows(before, after, told, purge=purge)
            await check_counted_again(expunge, answer, scope)
            again = await expunge.call("erasure.request", purge=purge, **words)
            assert (again.status, again.residue_count, await dump(expunge)) == ("completed", 0, after)
            if purge:
                assert (again.found, sum(again.removed.values()), sum(again.effects.values())) == (False, 0, 0)

    asyncio.run(work())


def check_numbers(answer: Any, told: Expected, scope: Scope, *, purge: bool) -> None:
    """The answer and each receipt count what the rules count."""
    nothing = dict.fromkeys((*KINDS, "lineage"), 0)
    hidden = {name: 0 if purge else count for name, count in told.count(told.gone).items()} | {"lineage": 0}
    removed = told.removed() if purge else nothing
    objects = told.count(told.gone)["attachments"] if purge else 0
    assert answer.removed == removed | ({"objects.attachments": objects} if objects else {})
    assert answer.hidden == hidden
    assert answer.census == dict.fromkeys(
        HERE | ({"objects.attachments", "originals.documents"} if purge else set()), 0
    )
    assert len(answer.receipts) == len(scope.targets)
    for place, receipt in enumerate(answer.receipts):
        counted = {name: count for name, count in receipt["removed"].items() if "." not in name}
        assert counted == (told.removed(place) if purge else nothing)
        if not purge:
            assert {name: receipt["hidden"][name] for name in KINDS} == told.count(told.gone, place)
        assert receipt["effects"] == told.effects(place)
        assert receipt["census"] == answer.census
        assert set(receipt["scope"]["pseudonyms"]) == set(scope.targets[place].named())


def check_rows(before: Any, after: Any, told: Expected, *, purge: bool) -> None:
    """What goes is gone, or not served and otherwise as it was; all others are byte-equal (law 10)."""
    assert ids(before) == told.kinds.keys()
    for name in KINDS:
        kept = {key: row for key, row in before[name].items() if key not in told.gone}
        if not purge:
            kept |= {key: (1, *row[1:]) for key, row in before[name].items() if key in told.gone}
        assert after[name] == kept
    assert after["lineage"].keys() == (told.kept_edges if purge else before["lineage"].keys())
    assert all(before["lineage"][key] == row for key, row in after["lineage"].items())


async def check_counted_again(expunge: Expunge, answer: Any, scope: Scope) -> None:
    """The scope is empty however it is asked: by recount and by profile (law 1)."""
    counted = await expunge.call("erasure.census", request_id=answer.request_id)
    assert (counted.residue_count, counted.census) == (0, answer.census)
    profile = await expunge.system.authority.read(lambda tx: read_profile(tx, scope))
    assert not any(profile.counts.values())


async def test_a_version_in_scope_is_not_revived(expunge: Expunge) -> None:
    """Law 10: of two versions in scope one has an edge and one has none; both go, and nothing is current again."""
    await expunge.put([episode("b", "bob"), memory("v1", "k", "ann"), memory("v2", "k", "ann", sources=["b"])])
    await expunge.put([block("x1", "x", updated_at=at(1)), block("x2", "x", updated_at=at(3), sources=["v2"])])
    seen = await expunge.preview("ann")
    answer = await expunge.erase("ann", purge=True)
    assert seen.effects == answer.effects == {"derived": 1, "detached": 0, "revived": 1, "rebuilt": 0}
    assert ids(await dump(expunge)) == {"b", "x1"}


@pytest.mark.parametrize("purge", [True, False])
@pytest.mark.parametrize("batch_rows", [1, 20_000])
@pytest.mark.parametrize("users", [("ann", "bob"), ("bob", "ann")])
async def test_what_was_made_from_two_subjects_is_counted_for_the_first(
    places: Places, users: tuple[str, str], batch_rows: int, purge: bool
) -> None:
    """Design 4: over however many steps it was made, and whatever way it was found first; with what belongs to it."""
    async with opened(places, batch_rows=batch_rows) as (expunge, _):
        await expunge.put([episode("of-ann", "ann"), episode("of-bob", "bob"), memory("step", "k", sources=["of-ann"])])
        await expunge.put(
            [memory("both", "l", sources=["of-bob", "step"]), episode("made", sources=["of-bob", "step"])]
        )
        await expunge.put([event("part", "made"), fact("f", sources=["both"])])
        answer = await expunge.erase(*users, purge=purge)
        counted = [receipt["removed" if purge else "hidden"] for receipt in answer.receipts]
        shown = [{name: counts[name] for name in ("episodes", "memories", "events", "facts")} for counts in counted]
        both = {"episodes": 2, "memories": 1, "events": 1, "facts": 1}
        alone = {"episodes": 1, "memories": 0, "events": 0, "facts": 0}
        step = 1  # which is of ann alone
        expected = {
            "ann": (both if users[0] == "ann" else alone) | {"memories": (1 if users[0] == "ann" else 0) + step},
            "bob": alone if users[0] == "ann" else both,
        }
        assert shown == [expected[user] for user in users]


# --- fences ------------------------------------------------------------------------------------------------------

IN = {"user_id": "ann", "namespace": "n", "agent": "a", "session_id": "s"}
SCOPES: dict[str, dict[str, Any]] = {
    "user_id": {"scope_type": "user_id", "scope_value": "ann"},
    "user_list": {"scope_type": "user_list", "scope_value": ["zoe", "ann"]},
    "namespace": {"scope_type": "namespace", "scope_value": "n"},
    "namespace_list": {"scope_type": "namespace_list", "scope_value": ["m", "n"]},
    "agent": {"scope_type": "agent", "scope_value": "a"},
    "session": {"scope_type": "session", "scope_value": "s"},
    "conjunction": {"scope_type": "agent", "scope_value": "a", "user_id": "ann", "namespace": "n", "session_id": "s"},
    "dated": {"scope_type": "namespace", "scope_value": "n", "before": at(5)},
    "dated list": {"scope_type": "namespace_list", "scope_value": ["m", "n"], "before": at(5)},
    "org": {"scope_type": "org"},
}
LOWERED_EARLY = ("user_id", "user_list", "session", "conjunction")
"""Those whose fence comes down once all is marked (design 4, step 6)."""


def other_than(name: str) -> list[dict[str, Any]]:
    """For each part that a scope names, whose records would be in scope but for that part alone; or in another org."""
    words = SCOPES[name]
    parts = {"user": "user_id", "namesp": "namespace", "agent": "agent", "sessio": "session_id"}
    named = [part for start, part in parts.items() if words["scope_type"].startswith(start)]
    named += [part for part in IN if part in words]
    strangers: list[dict[str, Any]] = [IN | {part: IN[part] + "2"} for part in named] + [
        {**IN, part: None} for part in named
    ]
    return strangers or [IN | {"org": "other"}]


@pytest.mark.parametrize("purge", [True, False])
@pytest.mark.parametrize("batch_rows", [1, 20_000])
@pytest.mark.parametrize("name", SCOPES)
async def test_what_began_before_is_refused_and_bystanders_are_not(
    places: Places, name: str, batch_rows: int, purge: bool
) -> None:
    """Law 4: by every sort of scope, while all is marked and afterwards; the same parts but for one go through."""
    tried: list[str] = []

    async def gate(what: str, _number: int) -> None:
        if what != "count" or tried:  # all is marked and hidden or purged, and the census has not counted
            return
        tried.append(what)
        for as_of in (stale, during):
            with pytest.raises((ErasureInProgress, ErasedSince)) as refused:
                await expunge.put([episode("late", **IN)], as_of=as_of)
            expected = ErasedSince if name in LOWERED_EARLY else ErasureInProgress
            assert refused.type is expected
        if name in LOWERED_EARLY:
            await expunge.put([episode("new", **IN)])
        else:
            with pytest.raises(ErasureInProgress):
                await expunge.put([episode("new", **IN)])
        for number, stranger in enumerate(other_than(name)):
            await expunge.put([episode(f"meanwhile-{number}", **stranger)], as_of=stale)

    async with opened(places, batch_rows=batch_rows, gate=gate) as (expunge, _):
        strangers = other_than(name)
        await expunge.put([episode("old", **IN), memory("m", "k", **IN)])
        await expunge.put([episode(f"stays-{number}", **stranger) for number, stranger in enumerate(strangers)])
        stale = await expunge.as_of()
        order = RequestInput(org="default", purge=purge, **SCOPES[name]).order()
        request = await open_erasure(expunge.system, order, actor="t", role="operator")
        during = await expunge.as_of()
        with pytest.raises(ErasureInProgress):
            await expunge.put([episode("late", **IN)])
        answer = await expunge.resume(request.id)
        assert (answer.status, tried) == ("completed", ["count"])
        counts = answer.removed if purge else answer.hidden
        assert (counts["episodes"], counts["memories"]) == (1, 1)
        for as_of in (stale, during):
            with pytest.raises(ErasedSince):
                await expunge.put([episode("late", **IN)], as_of=as_of)
        await expunge.put([episode("back", **IN)])
        await expunge.put(
            [episode(f"after-{number}", **stranger) for number, stranger in enumerate(strangers)], as_of=stale
        )
        served = await served_episodes(expunge)
        kept = {f"{when}-{n}" for when in ("stays", "meanwhile", "after") for n in range(len(strangers))}
        assert served == kept | {"back"} | ({"new"} if name in LOWERED_EARLY else set())


@pytest.mark.parametrize("purge", [True, False])
@pytest.mark.parametrize("words", [{"user_id": "ann"}, {"namespace": "n"}, {}], ids=["user", "namespace", "org"])
async def test_a_dated_fence_refuses_what_is_dated_before(expunge: Expunge, words: dict[str, str], purge: bool) -> None:
    """Law 4, design 4: by the time of each collection, strictly; what is dated at the moment or later goes through."""
    mine = {"user_id": "ann", "namespace": "n"}
    early, late = at(4), at(5)
    decoy = dict.fromkeys(("created_at", "recorded_at", "updated_at"), early)
    young = {
        "e": episode("e", **mine, **decoy, occurred_at=late),
        "f": fact("f", **mine, **decoy | {"recorded_at": late}),
        "m": memory("m", "k", **mine, **decoy | {"updated_at": late}),
        "b": block("b", "x", **mine, **decoy | {"updated_at": late}),
        "s": session("s", **mine, **decoy | {"created_at": late}),
        "v": event("v", "other", **mine, **decoy | {"created_at": late}),
    }
    old = {
        "e": episode("e0", **mine, occurred_at=early),
        "f": fact("f0", **mine, recorded_at=early),
        "m": memory("m0", "k", **mine, updated_at=early),
        "b": block("b0", "x", **mine, updated_at=early),
        "s": session("s0", **mine, created_at=early),
        "v": event("v0", "other", **mine, created_at=early),
    }
    await expunge.put([episode("other", "bob", created_at=late), episode("gone", **mine, created_at=early)])
    stale = await expunge.as_of()
    users, namespaces = (tuple(words[part] for part in (name,) if part in words) for name in ("user_id", "namespace"))
    scope = Scope("default", users, namespaces, before=instant(5))
    request = await open_erasure(expunge.system, Order(scope, scope.type, purge=purge), actor="t", role="operator")
    for name in ("e", "f", "m"):
        with pytest.raises(ErasureInProgress):
            await expunge.put([old[name]])
        await expunge.put([young[name]])
    answer = await expunge.resume(request.id)
    assert (answer.status, sum((answer.removed if purge else answer.hidden).values())) == ("completed", 1)
    for name in ("b", "s", "v"):
        with pytest.raises(ErasedSince):
            await expunge.put([old[name]], as_of=stale)
        await expunge.put([young[name]], as_of=stale)
    for name, record in old.items():
        with pytest.raises(ErasedSince):
            await expunge.put([record], as_of=stale)
        assert (await expunge.put([record])).loaded == 1, name
    left = {record["id"] for record in (*young.values(), *old.values())} | {"other"}
    assert ids(await dump(expunge)) == left | (set() if purge else {"gone"})
    assert await served_episodes(expunge) == {"other", "e", "e0"}
    assert (await expunge.call("erasure.census", request_id=answer.request_id)).residue_count == 0


@pytest.mark.parametrize("purge", [True, False])
async def test_a_date_narrows_every_value_of_a_list(expunge: Expunge, purge: bool) -> None:
    """Law 1: of each namespace what is older goes, and what is younger and what is in another one stays."""
    for name in ("m", "n", "x"):
        for day, when in (("old", 1), ("new", 9)):
            parts = {"user_id": "ann", "namespace": name, "occurred_at": at(when)}
            await expunge.put([episode(f"{name}-{day}", **parts)])
    words: dict[str, Any] = {"scope_type": "namespace_list", "scope_value": ["m", "n"], "before": at(5)}
    answer = await expunge.call("erasure.request", purge=purge, **words)
    assert (answer.status, answer.found) == ("completed", True)
    assert await served_episodes(expunge) == {"m-new", "n-new", "x-old", "x-new"}
    assert (await expunge.call("erasure.request", purge=purge, **words)).found is not purge


async def test_a_derived_write_is_fenced_by_what_it_was_made_from(expunge: Expunge) -> None:
    """Laws 4 and 5: under nobody's name, from a source in scope; in every scope that names its source."""
    for number, words in enumerate(({"namespaces": ["n"]}, {"agent": "a"}, {"session_id": "s"})):
        await expunge.put([episode(f"e{number}", **IN), episode(f"b{number}", "bob")])
        stale = await expunge.as_of()
        await expunge.erase(purge=False, **words)  # type: ignore[arg-type]
        late = memory(f"m{number}", f"k{number}", sources=[f"e{number}"])
        with pytest.raises(HiddenByErasure):
            await expunge.put([late])
        with pytest.raises((ErasedSince, HiddenByErasure)):
            await expunge.put([late], as_of=stale)
        await expunge.put([memory(f"n{number}", f"k{number}", sources=[f"b{number}"])], as_of=stale)
    assert set((await dump(expunge))["memories"]) == {"n0", "n1", "n2"}
