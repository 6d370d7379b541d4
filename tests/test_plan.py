"""The preview and its hash: what a run is bound to, what it puts up with, and what a refusal leaves (laws 4, 10, 16)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from expunge import Expunge
from expunge.authority.port import Statement
from expunge.datamap import RECORDS
from expunge.erasure import Order, Request, Saga, open_erasure, preview
from expunge.errors import ErasureInProgress, InputError, PlanChanged
from expunge.model.instant import ManualClock
from expunge.model.scope import Scope
from expunge.operations.scopes import RequestInput
from tests.scopes_support import KINDS, NOW, Places, ask, at, hold, ids_served, instant, opened, release, state
from tests.support import audited, block, dump, episode, event, fact, ids, memory, one_of_each

pytestmark = pytest.mark.authorities("memory", "postgres", every=6)
MODES = pytest.mark.parametrize("purge", [True, False], ids=["purge", "hide"])
BATCHES = pytest.mark.parametrize("batch_rows", [3, 20_000], ids=["in batches", "at once"])
EXACT = pytest.mark.parametrize("exact", [False, True], ids=["counts", "exact"])


def episodes(start: int, stop: int, user: str = "ann") -> list[dict[str, Any]]:
    """Episodes of a user, numbered."""
    return [episode(f"e{number}", user) for number in range(start, stop)]


async def take_out(expunge: Expunge, kind: str, *names: str) -> None:
    """Remove records behind the engine's back: the store goes on living in its own way."""
    gone = Statement("test.gone", f"DELETE FROM {kind} WHERE id = ?")
    await expunge.system.authority.run(lambda tx: tx.change_many(gone, [(name,) for name in names]))


def order(words: dict[str, Any], *, purge: bool, plan_hash: str | None = None, exact: bool = False) -> Order:
    return RequestInput(org="default", purge=purge, plan_hash=plan_hash, exact=exact, **words).order()


ANN: dict[str, Any] = {"scope_type": "user_id", "scope_value": "ann"}

# --- a bound run that passes -------------------------------------------------------------------------------------


@BATCHES
@MODES
@pytest.mark.parametrize(
    ("words", "exact"),
    [
        (ANN, False),
        ({"scope_type": "user_list", "scope_value": ["bob", "ann"]}, True),
        ({"scope_type": "session", "scope_value": "a-s"}, True),
        ({"scope_type": "org", "before": at(2)}, False),
    ],
    ids=["user", "users exactly", "session exactly", "org"],
)
async def test_a_plan_that_has_not_changed_is_carried_out(
    places: Places, words: dict[str, Any], batch_rows: int, purge: bool, exact: bool
) -> None:
    """Design 4: the hash of the preview is the hash of the run and of every receipt, in batches or at once."""
    async with opened(places, batch_rows=batch_rows) as (expunge, folder):
        await expunge.put([*one_of_each("ann", "a"), *one_of_each("bob", "b")])
        await expunge.put([episode("files", "ann", attachments=["a.txt"], session_id="a-s")], attachments_from=folder)
        await expunge.put([episode("late", "cat", created_at=at(3))])
        seen = await expunge.call("erasure.request", dry_run=True, purge=purge, exact=exact, **words)
        assert seen.plan_hash.count(".") == len(KINDS) - 1
        bound = {"plan_hash": seen.plan_hash, "exact": exact}
        again = await expunge.call("erasure.request", dry_run=True, purge=purge, **words, **bound)
        assert again == seen
        answer = await expunge.call("erasure.request", purge=purge, **words, **bound)
        assert (answer.status, answer.plan_hash) == ("completed", seen.plan_hash)
        assert {receipt["plan_hash"] for receipt in answer.receipts} == {seen.plan_hash}
        goes = {name: sum(counts.values()) for name, counts in seen.goes.items()}
        counted = answer.removed if purge else answer.hidden
        assert {name: counted[name] for name in KINDS} == goes
        assert sum(goes.values()) >= 3
        left = await dump(expunge)
        assert "late" in ids(left)
        with_hash = await expunge.call("erasure.request", dry_run=True, purge=purge, **words)
        if purge:  # nothing is left of it, so it is another plan
            assert with_hash.found is False
            with pytest.raises(PlanChanged):
                await expunge.call(
                    "erasure.request", dry_run=True, purge=True, **words, plan_hash=bumped(seen.plan_hash)
                )
        assert await dump(expunge) == left


def bumped(plan_hash: str) -> str:
    """A plan of 100 episodes more."""
    digits, counts = plan_hash.rsplit(":", 1)
    numbers = [int(number) for number in counts.split(".")]
    numbers[KINDS.index("episodes")] += 100
    return f"{digits}:{'.'.join(map(str, numbers))}"


@MODES
@pytest.mark.parametrize(
    ("before", "after", "passes"),
    [
        (0, 10, True), (0, 11, False), (5, 15, True), (5, 16, False), (12, 2, True), (12, 1, False),
        (50, 60, True), (50, 61, False), (60, 72, True), (60, 73, False), (60, 48, True), (60, 47, False),
        (11, 0, False), (100, 120, True), (100, 121, False), (100, 80, True), (100, 79, False),
    ],
)  # fmt: skip
async def test_counts_may_change_by_a_fifth_or_by_ten(
    expunge: Expunge, before: int, after: int, passes: bool, purge: bool
) -> None:
    """Design 4: per collection, 20 % of what was planned and 10 records at least; and not one more."""
    await expunge.put([*episodes(0, before), memory("m", "k", "ann"), episode("b", "bob")])
    seen = await expunge.preview("ann", purge=purge)
    if after > before:
        await expunge.put(episodes(before, after))
    await take_out(expunge, "episodes", *(f"e{number}" for number in range(after, before)))
    stored = await state(expunge)
    if passes:
        answer = await expunge.erase("ann", purge=purge, plan_hash=seen.plan_hash)
        assert (answer.status, (answer.removed if purge else answer.hidden)["episodes"]) == ("completed", after)
        assert answer.plan_hash != seen.plan_hash or before == after
    else:
        with pytest.raises(PlanChanged, match=f"{before} episodes were to go, and now it is {after}") as refused:
            await expunge.erase("ann", purge=purge, plan_hash=seen.plan_hash)
        assert (refused.value.code, refused.value.exit_code) == ("PLAN_CHANGED", 3)
        assert await state(expunge) == stored


async def test_each_collection_is_tolerated_by_itself(expunge: Expunge) -> None:
    """Design 4: much of one collection does not excuse another, and what was derived counts as well."""
    await expunge.put([*episodes(0, 100), fact("f", "ann")])
    seen = await expunge.preview("ann")
    more = [memory(f"m{number}", f"k{number}", sources=["e0"]) for number in range(11)]
    await expunge.put(more)
    stored = await state(expunge)
    with pytest.raises(PlanChanged, match="0 memories were to go, and now it is 11"):
        await expunge.erase("ann", purge=True, plan_hash=seen.plan_hash)
    assert await state(expunge) == stored
    await take_out(expunge, "memories", *(record["id"] for record in more[5:]))
    answer = await expunge.erase("ann", purge=True, plan_hash=seen.plan_hash)
    assert (answer.status, answer.removed["memories"]) == ("completed", 5)
    assert ids(await dump(expunge)) == set()


# --- a hash of something else ------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
async def filled(expunge: Expunge) -> Expunge:
    await expunge.put([*one_of_each("ann", "a"), *one_of_each("bob", "b")])
    await expunge.put([episode("a2", "ann", namespace="n", agent="g", session_id="a-s", created_at=at(4))])
    return expunge


OTHERS: dict[str, dict[str, Any]] = {
    "another user": {"scope_type": "user_id", "scope_value": "bob"},
    "a user more": {"scope_type": "user_list", "scope_value": ["ann", "bob"]},
    "a namespace of the same name": {"scope_type": "namespace", "scope_value": "ann"},
    "a narrower scope": ANN | {"namespace": "n"},
    "a date": ANN | {"before": at(3)},
    "the org": {"scope_type": "org"},
    "an org of the same name": ANN | {"org": "other"},
    "the other mode": ANN | {"purge": False},
}


@pytest.mark.parametrize("name", OTHERS)
@EXACT
async def test_a_hash_of_another_erasure_is_refused(filled: Expunge, name: str, exact: bool) -> None:
    """Bad input: scope, mode, cutoff and org are bound, whatever the counts; both ways, and nothing is written."""
    other = {"purge": True} | OTHERS[name]
    await filled.put(one_of_each("ann", "o"), org="other")
    seen = await filled.call("erasure.request", dry_run=True, purge=True, exact=exact, **ANN)
    other_seen = await filled.call("erasure.request", dry_run=True, exact=exact, **other)
    stored = await state(filled)
    for words, found in ((other, seen), ({"purge": True} | ANN, other_seen)):
        for dry_run in (True, False):
            with pytest.raises(PlanChanged) as refused:
                await filled.call(
                    "erasure.request", **words, plan_hash=digits_of(found, other_seen), exact=exact, dry_run=dry_run
                )
            assert "another scope, mode, key or set of rules" in refused.value.message
            assert await state(filled) == stored


async def test_a_hash_of_another_whole_org_is_refused(expunge: Expunge) -> None:
    """Bad input: two orgs that hold the same are told apart, though a whole org has no pseudonym of its own."""
    for org in ("default", "other"):
        await expunge.put(one_of_each("ann", "a"), org=org)
    seen = await expunge.preview(whole_org=True)
    stored = await state(expunge)
    with pytest.raises(PlanChanged):
        await expunge.erase(whole_org=True, org="other", purge=True, plan_hash=seen.plan_hash)
    assert await state(expunge) == stored
    assert (await expunge.erase(whole_org=True, purge=True, plan_hash=seen.plan_hash)).status == "completed"
    assert len(ids(await dump(expunge))) == 8


def digits_of(found: Any, counted: Any) -> str:
    """The digits of one preview with the counts of another: so that only the digits can be what is refused."""
    return f"{found.plan_hash.rsplit(':', 1)[0]}:{counted.plan_hash.rsplit(':', 1)[1]}"


async def test_a_dated_plan_is_bound_to_its_moment(filled: Expunge) -> None:
    """Design 4: the cutoff is in the hash to the microsecond, and the same moment in another zone is the same plan."""
    moment = "2026-01-03T00:00:00Z"
    seen = await filled.preview("ann", before=moment)
    stored = await state(filled)
    with pytest.raises(PlanChanged):
        await filled.erase("ann", purge=True, before="2026-01-03T00:00:00.000001Z", plan_hash=seen.plan_hash)
    assert await state(filled) == stored
    answer = await filled.erase("ann", purge=True, before="2026-01-03T02:00:00+02:00", plan_hash=seen.plan_hash)
    assert answer.status == "completed"
    assert ids(await dump(filled)) == {"a2"} | {record["id"] for record in one_of_each("bob", "b")}


@pytest.mark.authorities("sqlite", "postgres")  # keys in memory are not rotated
@pytest.mark.parametrize("words", [ANN, {"scope_type": "org"}], ids=["user", "org"])
async def test_a_hash_from_before_a_rotation_is_refused(expunge: Expunge, words: dict[str, Any]) -> None:
    """Design 4: the pseudonyms of a plan are those of one key; a fresh preview is bound to the fresh one."""
    await expunge.put([*one_of_each("ann", "a"), *one_of_each("bob", "b")])
    seen = await expunge.call("erasure.request", dry_run=True, purge=True, **words)
    await expunge.call("keys.rotate")
    stored = await state(expunge)
    with pytest.raises(PlanChanged):
        await expunge.call("erasure.request", purge=True, plan_hash=seen.plan_hash, **words)
    assert await state(expunge) == stored
    fresh = await expunge.call("erasure.request", dry_run=True, purge=True, **words)
    answer = await expunge.call("erasure.request", purge=True, plan_hash=fresh.plan_hash, **words)
    assert answer.status == "completed"
    assert len(ids(await dump(expunge))) == (0 if words["scope_type"] == "org" else 8)


async def test_a_hash_of_another_store_is_refused(places: Places, filled: Expunge) -> None:
    """Law 14: the hash is made from pseudonyms, so the same records in a store with other keys have another."""
    seen = await filled.preview("ann")
    assert "ann" not in seen.plan_hash
    async with opened(places) as (other, _):
        await other.put([*one_of_each("ann", "a"), *one_of_each("bob", "b")])
        with pytest.raises(PlanChanged):
            await other.erase("ann", purge=True, plan_hash=seen.plan_hash)
        assert len(ids(await dump(other))) == 16


async def test_how_a_scope_is_said_is_not_in_its_hash(filled: Expunge) -> None:
    """Law 1: a list of one is that one, and the order of a list is nothing."""
    seen = await filled.call("erasure.request", dry_run=True, purge=True, **ANN)
    alone = await filled.call(
        "erasure.request", dry_run=True, purge=True, scope_type="user_list", scope_value='["ann"]'
    )
    assert alone.plan_hash == seen.plan_hash
    both = [await filled.preview(*users) for users in (("ann", "bob"), ("bob", "ann"))]
    assert both[0].plan_hash == both[1].plan_hash != seen.plan_hash


@pytest.mark.parametrize(
    "bad",
    [
        "", " ", "sha256:", "0" * 64, "sha256:" + "0" * 64, "sha256:" + "0" * 64 + ":", "sha256:" + "0" * 64 + ":1",
        "sha256:" + "0" * 64 + ":0.0.0.0.0.0", "sha256:" + "0" * 64 + ":0.0.0.0.0.0.0.0",
        "sha256:" + "0" * 63 + ":" + ".".join("0" * len(RECORDS)), "sha256:" + "A" * 64 + ":" + ".".join("0" * len(RECORDS)),
        "sha256:" + "g" * 64 + ":" + ".".join("0" * len(RECORDS)), "sha512:" + "0" * 64 + ":" + ".".join("0" * len(RECORDS)),
        " sha256:" + "0" * 64 + ":" + ".".join("0" * len(RECORDS)), "sha256:" + "0" * 64 + ":0.0.0.0.0.0.0\n",
        "sha256:" + "0" * 64 + ":0.0.0.0.0.0.-1", "sha256:" + "0" * 64 + ":0.0.0.0.0.0.+1",
        "sha256:" + "0" * 64 + ":0.0.0.0.0.0.1e3", "sha256:" + "0" * 64 + ":0.0.0.0.0.0.\u0663",
        "sha256:" + "0" * 64 + ":0.0.0.0.0.0." + "9" * 5000, "sha256:" + "\uff10" * 64 + ":" + ".".join("0" * len(RECORDS)),
        "sha256:" + "0" * 64 + ":0..0.0.0.0.0", "sha256:" + "0" * 64 + ":0.0.0.0.0.0.0.", "\ud800", 7, ["x"], b"x",
    ],
)  # fmt: skip
async def test_what_is_no_plan_hash_is_an_input_error(filled: Expunge, bad: Any) -> None:
    """Bad input: it is told from a plan that has changed, and nothing is written."""
    stored = await state(filled)
    for dry_run in (True, False):
        with pytest.raises(InputError) as refused:
            await filled.call("erasure.request", purge=True, plan_hash=bad, dry_run=dry_run, **ANN)
        assert len(refused.value.message) < 200
    assert await state(filled) == stored


# --- exact -------------------------------------------------------------------------------------------------------


@MODES
async def test_exact_refuses_another_record_in_the_place_of_one(filled: Expunge, purge: bool) -> None:
    """Design 4: `exact` binds the ids: as many of everything, but one of them another, is another plan."""
    counted = await filled.preview("ann", purge=purge)
    exact = await filled.preview("ann", purge=purge, exact=True)
    assert exact.goes == counted.goes
    assert exact.plan_hash != counted.plan_hash
    await take_out(filled, "episodes", "a2")
    await filled.put([episode("a3", "ann")])
    stored = await state(filled)
    with pytest.raises(PlanChanged, match="or names other records"):
        await filled.erase("ann", purge=purge, plan_hash=exact.plan_hash, exact=True)
    assert await state(filled) == stored
    answer = await filled.erase("ann", purge=purge, plan_hash=counted.plan_hash)
    assert answer.status == "completed"
    served = [record_id for (record_id,) in await ask(filled, "SELECT id FROM episodes WHERE marked = 0")]
    assert served == ["b-e"]


async def test_an_exact_hash_is_no_other_and_the_other_way_round(filled: Expunge) -> None:
    """Law 16: a hash that binds the records does not pass where only their number is looked at."""
    counted, exact = await filled.preview("ann"), await filled.preview("ann", exact=True)
    stored = await state(filled)
    for plan_hash, is_exact in ((counted.plan_hash, True), (exact.plan_hash, False)):
        with pytest.raises(PlanChanged):
            await filled.erase("ann", purge=True, plan_hash=plan_hash, exact=is_exact)
    assert await state(filled) == stored


async def test_exact_binds_what_is_derived_too(filled: Expunge) -> None:
    """Law 5: the summary that goes is one of the records that were shown."""
    exact = await filled.preview("ann", exact=True)
    await filled.put([memory("echo", "k", sources=["a-sum"])])
    stored = await state(filled)
    with pytest.raises(PlanChanged):
        await filled.erase("ann", purge=True, plan_hash=exact.plan_hash, exact=True)
    assert await state(filled) == stored


# --- the race ----------------------------------------------------------------------------------------------------


RACED: dict[str, dict[str, Any]] = {
    "user": ANN,
    "users": {"scope_type": "user_list", "scope_value": ["bob", "ann"]},
    "namespace": {"scope_type": "namespace", "scope_value": "n"},
    "org": {"scope_type": "org"},
}


async def raced(expunge: Expunge, request: Request) -> PlanChanged:
    """Run an erasure that was opened with a hash of what has changed since."""
    with pytest.raises(PlanChanged) as refused:
        await Saga(expunge.system, request, role="operator").run()
    assert refused.value.data == {"request_id": request.id}
    return refused.value


@BATCHES
@MODES
@pytest.mark.parametrize(("name", "exact"), [("user", True), ("users", False), ("namespace", False), ("org", True)])
async def test_a_plan_that_changes_before_the_fence_is_refused(
    places: Places, name: str, batch_rows: int, purge: bool, exact: bool
) -> None:
    """Design 4, step 4: the fence comes down, nothing is hidden or gone, nobody is known any more, writes go through."""
    words = RACED[name]
    async with opened(places, batch_rows=batch_rows) as (expunge, folder):
        await expunge.put([record | {"namespace": "n"} for record in one_of_each("ann", "a")])
        await expunge.put([episode("f", "ann", namespace="n", attachments=["a.txt"])], attachments_from=folder)
        await expunge.put([*one_of_each("bob", "b"), event("late-v", "b-e", "ann", namespace="n")])
        found = await preview(expunge.system, replace(order(words, purge=purge), exact=exact))
        await expunge.put([episode(f"more{number}", "ann", namespace="n") for number in range(1 if exact else 11)])
        before, objects = await dump(expunge), files_in(folder)
        stale = await expunge.as_of()
        request = await open_erasure(
            expunge.system,
            order(words, purge=purge, plan_hash=found.plan_hash, exact=exact),
            actor="t",
            role="operator",
        )
        with pytest.raises(ErasureInProgress):
            await expunge.put([episode("new", "ann", namespace="n")])
        fault = await raced(expunge, request)
        assert ("other records" if exact else "were to go, and now it is") in fault.message
        assert (await dump(expunge), files_in(folder)) == (before, objects)
        answer = await expunge.call("erasure.status", request_id=request.id)
        assert (answer.status, answer.current_step, answer.receipt, answer.census) == ("abandoned", "plan", None, None)
        assert "the plan has changed" in answer.failure_reason
        assert sum(answer.removed.values()) + sum(answer.hidden.values()) == 0
        assert await ask(expunge, "SELECT count(*) FROM requests WHERE scope IS NOT NULL") == [(0,)]
        assert await ask(expunge, "SELECT count(*) FROM marks") == [(0,)]
        assert await ask(expunge, "SELECT count(*) FROM fences WHERE lowered_seq IS NULL") == [(0,)]
        outcomes = [body["outcome"] for body in await audited(expunge, request_id=request.id)]
        assert outcomes == ["intent", "abandoned"]
        assert await ask(expunge, "SELECT kind FROM ledger") == [("intent",)]
        await expunge.put([episode("new", "ann", namespace="n"), memory("new-m", "k", sources=["a-e"])])
        with pytest.raises(Exception, match="ended after the work began"):
            await expunge.put([episode("stale", "ann", namespace="n")], as_of=stale)
        done = await expunge.call("erasure.request", purge=purge, **words)
        assert done.status == "completed"
        served = ids_served(await dump(expunge))
        assert served == (set() if name in {"users", "org"} else {record["id"] for record in one_of_each("bob", "b")})


def files_in(folder: Any) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.is_file()}


@BATCHES
@MODES
async def test_what_changes_within_bounds_before_the_fence_goes(places: Places, batch_rows: int, purge: bool) -> None:
    """Design 4: ten records more, written between the preview and the fence, go with the others."""
    async with opened(places, batch_rows=batch_rows) as (expunge, _):
        await expunge.put([*one_of_each("ann", "a"), *one_of_each("bob", "b")])
        seen = await expunge.preview("ann", purge=purge)
        await expunge.put(episodes(0, 10))
        bound = order(ANN, purge=purge, plan_hash=seen.plan_hash)
        request = await open_erasure(expunge.system, bound, actor="t", role="operator")
        ended = await Saga(expunge.system, request, role="operator").run()
        assert ended.status == "completed"
        assert (ended.removed if purge else ended.hidden)["episodes"].total() == 11
        assert ids_served(await dump(expunge)) == {record["id"] for record in one_of_each("bob", "b")}


@BATCHES
async def test_a_refusal_leaves_hidden_what_another_hides(places: Places, batch_rows: int) -> None:
    """Law 10: what an earlier erasure keeps hidden stays hidden when a later one takes its marks back."""
    async with opened(places, batch_rows=batch_rows) as (expunge, _):
        await expunge.put([*one_of_each("ann", "a"), *one_of_each("bob", "b")])
        first = await expunge.erase("ann", purge=False)
        before = await dump(expunge)
        seen = await expunge.preview("bob", "ann", purge=False)
        await expunge.put(episodes(0, 20, "bob"))
        bound = order(RACED["users"], purge=False, plan_hash=seen.plan_hash)
        await raced(expunge, await open_erasure(expunge.system, bound, actor="t", role="operator"))
        after = await dump(expunge)
        assert ids_served(after) == ids_served(before) | {f"e{number}" for number in range(20)}
        await expunge.restore(first.request_id)
        assert len(ids_served(await dump(expunge))) == 16 + 20


@BATCHES
async def test_a_refused_run_that_was_killed_refuses_again(
    places: Places, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 16: a runner that dies between the marks and the refusal leaves a request that ends the same way."""
    async with opened(places, batch_rows=batch_rows) as (expunge, _):
        await expunge.put(one_of_each("ann", "a"))
        seen = await expunge.preview("ann", purge=False)
        await expunge.put(episodes(0, 20))
        before = await dump(expunge)
        bound = order(ANN, purge=False, plan_hash=seen.plan_hash)
        request = await open_erasure(expunge.system, bound, actor="t", role="operator")
        with monkeypatch.context() as patched:
            patched.setattr("expunge.erasure.saga.refuse_plan", killed)
            with pytest.raises(ZeroDivisionError):
                await Saga(expunge.system, request, role="operator").run()
        assert (await expunge.call("erasure.status", request_id=request.id)).status == "in_progress"
        with pytest.raises(PlanChanged):
            await expunge.resume(request.id)
        assert await dump(expunge) == before
        assert (await expunge.call("erasure.status", request_id=request.id)).status == "abandoned"


def killed(*_: object, **__: object) -> None:
    raise ZeroDivisionError


# --- the preview -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [*RACED.values(), {"scope_type": "session", "scope_value": "a-s", "before": at(3)}])
@EXACT
@MODES
async def test_a_preview_changes_nothing(filled: Expunge, words: dict[str, Any], purge: bool, exact: bool) -> None:
    """Law 16: not a row of any table, and asking again gives the same answer."""
    await filled.erase("zoe", purge=False)
    stored = await state(filled)
    seen = await filled.call("erasure.request", dry_run=True, purge=purge, exact=exact, **words)
    assert await filled.call("erasure.request", dry_run=True, purge=purge, exact=exact, **words) == seen
    assert seen.purge == purge
    assert await state(filled) == stored


async def test_a_preview_of_nobody_finds_nothing(filled: Expunge) -> None:
    """Law 16: zeros, a hash, and `found` is false."""
    seen = await filled.preview("nobody")
    assert (seen.found, seen.subjects, set(seen.effects.values())) == (False, 1, {0})
    assert all(counts == {"direct": 0, "derived": 0} for counts in seen.goes.values())
    assert seen.goes.keys() == set(KINDS)
    assert seen.plan_hash.endswith(":" + ".".join("0" * len(RECORDS)))
    assert (await filled.erase("nobody", purge=True, plan_hash=seen.plan_hash)).found is False


def staying(seen: Any) -> dict[str, tuple[int, str]]:
    """What stays by collection, how many and why, of records."""
    told: dict[str, tuple[int, str]] = {}
    for item in seen.stays:
        if item.count is not None:
            assert item.collection not in told
            told[item.collection] = (item.count, item.why)
    return told


async def test_a_preview_says_what_of_the_control_plane_stays_and_why(filled: Expunge) -> None:
    """Issue 3, preview: every collection that an erasure keeps is named with its reason."""
    kept = {item.collection: item.why for item in (await filled.preview("ann")).stays}
    assert kept.keys() == {"requests", "fences", "marks", "holds", "ledger", "audit", "orgs", "store", "keys"}
    assert all(kept.values())


@BATCHES
@MODES
async def test_a_preview_says_what_a_hold_keeps(places: Places, batch_rows: int, purge: bool) -> None:
    """Laws 8 and 16: held records of the scope stay, so do held ones made from it; the run does what was said.

    When the hold is released a resume takes them all, also those that had been marked while they were held.
    """
    async with opened(places, batch_rows=batch_rows) as (expunge, _):
        await expunge.put([episode("goes", "ann"), *(episode(f"kept{n}", "ann", namespace="legal") for n in range(3))])
        await expunge.put([event("v", "goes", namespace="legal")])
        await expunge.put([memory(f"m{n}", f"k{n}", "bob", namespace="legal", sources=["goes"]) for n in range(12)])
        await expunge.put([memory("free", "k", "bob", sources=["goes"]), fact("f", sources=["goes", "kept0"])])
        await hold(expunge, namespace="legal")
        stored = await state(expunge)
        seen = await expunge.preview("ann", purge=purge)
        assert await state(expunge) == stored
        why = "a hold keeps it"
        assert staying(seen) == {"episodes": (3, why), "events": (1, why), "memories": (12, why)}
        goes = {name: counts for name, counts in seen.goes.items() if any(counts.values())}
        assert goes == {"episodes": {"direct": 1, "derived": 0}, "memories": {"direct": 0, "derived": 1}}
        assert seen.effects == {"derived": 1, "detached": 1, "revived": 0, "rebuilt": 0}
        answer = await expunge.erase("ann", purge=purge, plan_hash=seen.plan_hash)
        assert (answer.status, answer.plan_hash) == ("failed", seen.plan_hash)
        assert answer.residue == {"episodes": 3, "events": 1, "memories": 12}
        everybody = ids(stored["records"])
        assert ids_served(await dump(expunge)) == everybody - {"goes", "free"}
        await release(expunge)
        done = await expunge.resume(answer.request_id)
        assert (done.status, done.plan_hash) == ("completed", seen.plan_hash)
        counted = done.removed if purge else done.hidden
        assert {name: count for name, count in counted.items() if count and name != "lineage"} == {
            "episodes": 4,
            "events": 1,
            "memories": 13,
            "facts": 1,
        }
        after = await dump(expunge)
        assert (ids_served(after), ids(after)) == (set(), set() if purge else everybody)


@BATCHES
async def test_what_a_hold_keeps_is_said_once(places: Places, batch_rows: int) -> None:
    """Law 16: a held event that is in scope and belongs to an episode that goes is one record that stays."""
    async with opened(places, batch_rows=batch_rows) as (expunge, _):
        await expunge.put([episode("goes", "ann"), event("v", "goes", "ann", namespace="legal")])
        await hold(expunge, namespace="legal")
        seen = await expunge.preview("ann")
        assert staying(seen) == {"events": (1, "a hold keeps it")}
        assert seen.goes["events"] == {"direct": 0, "derived": 0}
        answer = await expunge.erase("ann", purge=True, plan_hash=seen.plan_hash, exact=False)
        assert (answer.status, set(answer.residue), answer.plan_hash) == ("failed", {"events"}, seen.plan_hash)
        assert ids(await dump(expunge)) == {"v"}


@pytest.mark.parametrize("narrowed", [{}, {"agent": "g"}, {"before": at(5)}], ids=["session", "agent", "dated"])
async def test_a_preview_says_what_outlives_a_session(expunge: Expunge, narrowed: dict[str, Any]) -> None:
    """Design 4, lineage rule: facts and blocks of the session stay unless they were made from what was said there."""
    here: dict[str, Any] = {"session_id": "s", "agent": "g"}
    await expunge.put(
        [
            episode("e", **here), memory("m", "k", **here), episode("other", "bob"),
            fact("f-none", **here), fact("f-other", **here, sources=["other"]), fact("f-half", **here, sources=["e", "other"]),
            fact("f-goes", **here, sources=["e"]), fact("f-elsewhere", "bob", sources=["m"]),
            block("b-none", "x", **here), block("b-goes", "y", **here, sources=["e", "other"]),
            fact("f-mine", session_id="t", agent="g"),
        ]
    )  # fmt: skip
    seen = await expunge.preview(session_id="s", **narrowed)
    told = staying(seen)
    assert {name: count for name, (count, _) in told.items()} == {"facts": 3, "blocks": 1}
    assert all("outlives" in why for _, why in told.values())
    assert {name: counts["derived"] for name, counts in seen.goes.items() if counts["derived"]} == {
        "facts": 2,
        "blocks": 1,
    }
    answer = await expunge.erase(session_id="s", purge=True, plan_hash=seen.plan_hash, **narrowed)
    assert answer.status == "completed"
    assert ids(await dump(expunge)) == {"other", "f-none", "f-other", "f-half", "b-none", "f-mine"}


async def test_what_goes_by_a_date_is_what_a_preview_says(expunge: Expunge) -> None:
    """Design 4: dated by each collection's own time; a younger event goes with its episode, and a younger summary."""
    young = {"created_at": at(9)}
    await expunge.put([episode("e", "ann", occurred_at=at(1), **young), episode("late", "ann", occurred_at=at(5))])
    await expunge.put([event("v", "e", "ann", **young), event("w", "late", "ann", created_at=at(1))])
    await expunge.put([memory("sum", "k", "ann", updated_at=at(9), sources=["e"]), fact("f", "ann", recorded_at=at(5))])
    scope = Scope("default", ("ann",), before=instant(5))
    seen = await preview(expunge.system, Order(scope, scope.type, purge=True))
    assert {name: tuple(counts.values()) for name, counts in seen.goes.items() if any(counts.values())} == {
        "episodes": (1, 0),
        "events": (1, 1),
        "memories": (0, 1),
    }
    answer = await expunge.erase("ann", purge=True, before=at(5), plan_hash=seen.plan_hash)
    assert (answer.status, ids(await dump(expunge))) == ("completed", {"late", "f"})
