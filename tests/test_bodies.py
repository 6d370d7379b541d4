"""Which bodies go with an erasure: those that no row names, that are derived, held, hidden or restored."""

from __future__ import annotations

import asyncio

import pytest

from expunge import Expunge
from expunge.model.instant import ManualClock
from expunge.stores.contract import pieces
from expunge.stores.faulty import Fault, Faulty
from expunge.stores.folder import FolderStore
from expunge.stores.recording import Recording
from tests.crash.kit import forked, kill_at, watched
from tests.house import (
    ANN,
    CAT,
    FILES_EACH,
    NEW,
    OLD,
    PLAY,
    SCOPES,
    USER,
    WINDOW_S,
    WORK,
    House,
    attachment_ids,
    file_under,
    files_for,
    hold,
    of,
    refs,
    release_holds,
    seq_now,
    told,
    without,
    write_files,
)
from tests.support import dump, ids

pytestmark = pytest.mark.authorities("sqlite", "postgres", every=2)

# --- bodies that no row names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["user", "users", "namespace", "org", "before"])
async def test_a_body_without_a_row_goes_too(house: House, scope: str) -> None:
    """Laws 4, 7 and 10: what a refused or killed unit left behind in scope is removed and counted; no other is."""
    case = SCOPES[scope]
    async with house.open() as expunge:
        bodies, going = house.bodies(), of(await refs(expunge), case.goes)
        orphan = await file_under(expunge, ANN, seq=await seq_now(expunge), dated=OLD)
        others = {await file_under(expunge, "ann<10>", seq=0, dated=NEW, namespace=PLAY)} if scope != "org" else set()
        answer = await case.purge(expunge)
        assert (answer.status, answer.removed["objects.attachments"]) == ("completed", len(going) + 1)
        assert answer.receipts[0]["removed"]["objects.attachments"] >= FILES_EACH + 1
        left = house.bodies()
        assert orphan not in left
        assert without(left, others) == without(bodies, going)
        assert others <= left.keys()


async def test_a_body_without_any_row_of_its_owner(house: House) -> None:
    """Laws 4 and 16: somebody of whom only a body is left is found and erased."""
    async with house.open() as expunge:
        bodies = house.bodies()
        await file_under(expunge, "dora<1>", seq=0)
        answer = await expunge.erase("dora<1>", purge=True)
        assert (answer.status, answer.removed["objects.attachments"]) == ("completed", 1)
        assert house.bodies() == bodies


@pytest.mark.parametrize("scope", ["user", "namespace"])
async def test_a_body_of_a_unit_that_began_during_the_erasure(house: House, scope: str) -> None:
    """Law 4: a unit that began while the fence stood is refused, so the body that it left behind goes as well."""
    case, store = SCOPES[scope], Faulty(FolderStore(house.objects), Fault.RAISES)
    async with house.open(store) as expunge:
        bodies, going = house.bodies(), of(await refs(expunge), case.goes)
        answer = await case.purge(expunge)
        fence_seq = 1
        assert await seq_now(expunge) == (2 if scope == "user" else fence_seq)
        await file_under(expunge, ANN, seq=fence_seq)
        store.heal()
        done = await expunge.resume(answer.request_id)
        assert (done.status, done.removed["objects.attachments"]) == ("completed", len(going) + 1)
        assert house.bodies() == without(bodies, going)
        assert (await expunge.call("erasure.census", request_id=done.request_id)).residue_count == 0


async def test_a_body_that_came_after_the_erasure(house: House) -> None:
    """Laws 4 and 10: what a unit wrote that began after it is neither removed nor counted, with a row or without."""
    store = Faulty(FolderStore(house.objects), Fault.RAISES)
    async with house.open(store) as expunge:
        bodies, going = house.bodies(), of(await refs(expunge), USER.goes)
        answer = await USER.purge(expunge)
        store.heal()
        await house.put(expunge, told("back", ANN, created_at=OLD))  # the fence is down, and the person is here again
        later = {await file_under(expunge, ANN, seq=await seq_now(expunge)), *(await refs(expunge))["back"]}
        done = await expunge.resume(answer.request_id)
        assert (done.status, done.removed["objects.attachments"]) == ("completed", len(going))
        assert done.census is not None
        assert set(done.census.values()) == {0}
        left = house.bodies()
        assert later <= left.keys()
        assert without(left, later) == without(bodies, going)
        assert {"back"} <= ids(await dump(expunge))
        assert (await expunge.call("erasure.census", request_id=done.request_id)).residue_count == 0


def test_what_a_killed_put_left_behind(house: House) -> None:
    """Law 4: a put that is killed between storing and commit leaves a body, which the erasure of its owner removes."""
    write_files(house.given, "late")
    before = house.bodies()

    async def put() -> None:
        authority = await watched(house.settings(), watch=kill_at(("run", 1, "before")))
        async with Expunge(settings=house.settings(), clock=ManualClock(), authority=authority) as expunge:
            await expunge.put([told("late", ANN)], attachments_from=house.given)

    assert forked(lambda: asyncio.run(put())).signal != 0
    left = house.bodies()
    assert len(left) == len(before) + FILES_EACH

    async def erase() -> None:
        async with house.open() as expunge:
            going = of(await refs(expunge), USER.goes)
            assert "late" not in ids(await dump(expunge))
            answer = await USER.purge(expunge)
            assert (answer.status, answer.removed["objects.attachments"]) == ("completed", len(going) + FILES_EACH)
            assert house.bodies() == without(before, going)

    asyncio.run(erase())


async def test_a_body_that_comes_back_later_is_counted(house: House) -> None:
    """Law 7: a count long after the erasure finds a body of it that somebody has brought back."""
    store = FolderStore(house.objects)
    async with house.open(store) as expunge:
        going = sorted(of(await refs(expunge), USER.goes))
        answer = await USER.purge(expunge)
        await store.restore(going[0], pieces(b"from a backup"))
        counted = await expunge.call("erasure.census", request_id=answer.request_id)
        assert (counted.residue_count, counted.census["objects.attachments"]) == (1, 1)
        again = await USER.purge(expunge)
        assert (again.status, again.removed["objects.attachments"]) == ("completed", 1)
        assert (await expunge.call("erasure.census", request_id=answer.request_id)).residue_count == 0


async def test_bodies_that_were_filed_under_an_older_key(house: House) -> None:
    """Design 4: old keys stay for matching, so what was filed under one is found after a rotation."""
    async with house.open() as expunge:
        bodies, going = house.bodies(), of(await refs(expunge), USER.goes)
        await file_under(expunge, ANN, seq=0)
        await expunge.call("keys.rotate")
        await file_under(expunge, ANN, seq=0)
        answer = await USER.purge(expunge)
        assert (answer.status, answer.removed["objects.attachments"]) == ("completed", len(going) + 2)
        assert house.bodies() == without(bodies, going)


# --- derived, held, hidden ------------------------------------------------------------------------------------------


async def test_bodies_of_what_was_derived_go_too(house: House) -> None:
    """Laws 5, 6 and 10: an episode of somebody else that was made from what goes takes its bodies along; others stay."""
    async with house.open() as expunge:
        await house.put(expunge, told("reply", CAT, sources=["a1"]), told("deep", "dora<1>", sources=["reply"]))
        await house.put(expunge, told("own", CAT, sources=["c1"]))
        named, bodies = await refs(expunge), house.bodies()
        answer = await USER.purge(expunge)
        assert answer.status == "completed"
        assert answer.removed["objects.attachments"] == answer.removed["attachments"] == 10
        assert answer.effects["derived"] == 6
        assert house.bodies() == without(bodies, of(named, (*USER.goes, "reply", "deep")))
        assert {"own", "c1"} <= ids(await dump(expunge))


async def test_a_derived_body_that_comes_back_is_counted(house: House) -> None:
    """Laws 5 and 7: a body outside the scope, which no listing by scope shows, is counted by the row that named it."""
    store = Faulty(FolderStore(house.objects), Fault.COMES_BACK)
    async with house.open(store) as expunge:
        await house.put(expunge, told("reply", CAT, sources=["a1"]))
        named, bodies = await refs(expunge), house.bodies()
        answer = await USER.purge(expunge)
        assert (answer.status, answer.residue) == ("failed", {"objects.attachments": 8})
        assert house.bodies() == bodies
        store.heal()
        assert (await expunge.resume(answer.request_id)).status == "completed"
        assert house.bodies() == without(bodies, of(named, (*USER.goes, "reply")))


async def test_bodies_are_accounted_to_whom_they_were_made_from(house: House) -> None:
    """Design 4: a derived body stands in the receipt of the subject that it was made from."""
    async with house.open() as expunge:
        await house.put(expunge, told("reply", CAT, sources=["b1"]))
        answer = await SCOPES["users"].purge(expunge)
        assert [receipt["removed"]["objects.attachments"] for receipt in answer.receipts] == [6, 6]


async def test_a_held_episode_keeps_its_bodies(house: House) -> None:
    """Law 8: a hold on part of a scope keeps rows and bodies; the rest goes; after the release a resume ends it."""
    async with house.open() as expunge:
        named, bodies = await refs(expunge), house.bodies()
        await hold(expunge, namespace=WORK)
        answer = await USER.purge(expunge)
        assert (answer.status, answer.residue) == ("failed", {"episodes": 1, "attachments": 2})
        assert answer.removed["objects.attachments"] == 4
        assert house.bodies() == without(bodies, of(named, ("a1", "a2")))
        await release_holds(expunge)
        done = await expunge.resume(answer.request_id)
        assert (done.status, done.removed["attachments"], done.removed["objects.attachments"]) == ("completed", 6, 6)
        assert house.bodies() == without(bodies, of(named, USER.goes))


async def test_a_held_derived_episode_keeps_its_bodies(house: House) -> None:
    """Laws 5 and 8: what was made from the erased and is held stays whole, row and bodies."""
    async with house.open() as expunge:
        await house.put(expunge, told("reply", CAT, sources=["a1"], namespace=PLAY))
        named, bodies = await refs(expunge), house.bodies()
        await hold(expunge, namespace=PLAY)
        answer = await USER.purge(expunge)
        assert (answer.status, answer.residue) == ("failed", {"episodes": 1, "attachments": 2})
        assert house.bodies() == without(bodies, of(named, USER.goes))
        await release_holds(expunge)
        assert (await expunge.resume(answer.request_id)).status == "completed"
        assert house.bodies() == without(bodies, of(named, (*USER.goes, "reply")))


async def test_a_hold_that_comes_when_all_is_marked(house: House) -> None:
    """Law 8: a hold that was placed after the marking keeps the bodies as it keeps the rows."""
    store = Faulty(FolderStore(house.objects), Fault.RAISES)
    async with house.open(store) as expunge:
        named, bodies = await refs(expunge), house.bodies()
        answer = await USER.purge(expunge)
        assert answer.status == "failed"
        await hold(expunge, namespace=WORK)
        store.heal()
        again = await expunge.resume(answer.request_id)
        assert again.status == "failed"
        assert {"a3"} <= ids(await dump(expunge))
        assert house.bodies() == without(bodies, of(named, ("a1", "a2")))
        await release_holds(expunge)
        assert (await expunge.resume(answer.request_id)).status == "completed"
        assert house.bodies() == without(bodies, of(named, USER.goes))


async def test_a_scope_that_is_wholly_held_is_not_asked_for(house: House) -> None:
    """Law 8: a blocked erasure leaves the stores alone."""
    store = Recording(FolderStore(house.objects))
    async with house.open(store) as expunge:
        await hold(expunge, user_id=ANN)
        assert (await USER.purge(expunge)).status == "blocked"
        assert store.calls == []


@pytest.mark.parametrize("scope", SCOPES)
async def test_hiding_keeps_bodies_until_the_window_ends(house: House, scope: str) -> None:
    """Design 4: hidden is not gone: rows and bodies stay for 14 days, and then both go."""
    case, clock, store = SCOPES[scope], ManualClock(), Recording(FolderStore(house.objects))
    async with house.open(store, clock) as expunge:
        records, bodies, going = await dump(expunge), house.bodies(), of(await refs(expunge), case.goes)
        answer = await case.hide(expunge)
        assert (answer.status, answer.purge, answer.hidden["attachments"]) == ("completed", False, len(going))
        assert store.calls == []
        assert house.bodies() == bodies
        assert ids(await dump(expunge)) == ids(records)
        clock.advance(WINDOW_S - 1)
        assert (await expunge.call("erasure.resume_due")).erasures == []
        clock.advance(1)
        (done,) = (await expunge.call("erasure.resume_due")).erasures
        assert (done.status, done.purge, done.removed["objects.attachments"]) == ("completed", True, len(going))
        assert done.census["objects.attachments"] == 0
        assert house.bodies() == without(bodies, going)
        assert (
            ids(await dump(expunge)) == ids(records) - {*case.goes} - attachment_ids(records, case.goes) - case.others
        )


async def test_restoring_keeps_bodies(house: House) -> None:
    """Design 4: what is restored is whole, byte for byte, and the end of the window does not touch it."""
    clock = ManualClock()
    async with house.open(clock=clock) as expunge:
        named, bodies = await refs(expunge), house.bodies()
        answer = await USER.hide(expunge)
        restored = await expunge.restore(answer.request_id, "a1")
        assert restored.restored == {"episodes": 1, "attachments": 2}
        assert house.bodies() == bodies
        clock.advance(WINDOW_S)
        (done,) = (await expunge.call("erasure.resume_due")).erasures
        assert (done.status, done.removed["attachments"], done.removed["objects.attachments"]) == ("completed", 4, 4)
        assert house.bodies() == without(bodies, of(named, ("a2", "a3")))
        left = await dump(expunge)
        assert "a1" in left["episodes"]
        assert attachment_ids(left, ["a1"])
        counted = await expunge.call("erasure.census", request_id=answer.request_id)
        assert counted.residue_count == 0
        again = await USER.purge(expunge)
        assert (again.status, again.removed["objects.attachments"]) == ("completed", 2)
        assert house.bodies() == without(bodies, of(named, USER.goes))


async def test_what_was_restored_and_hidden_again_keeps_its_bodies(house: House) -> None:
    """Laws 10 and 16: the end of one window leaves the bodies of what another erasure hides and can give back."""
    clock = ManualClock()
    async with house.open(clock=clock) as expunge:
        named, bodies = await refs(expunge), house.bodies()
        first = await USER.hide(expunge)
        await expunge.restore(first.request_id, "a1")
        clock.advance(86_400)
        second = await expunge.erase(purge=False, session_id="s1<1>")
        assert second.hidden["attachments"] == 2 * FILES_EACH  # a2 is hidden by both
        clock.advance(WINDOW_S - 86_400)
        (done,) = (await expunge.call("erasure.resume_due")).erasures
        assert (done.request_id, done.status) == (first.request_id, "completed")
        assert house.bodies() == without(bodies, of(named, ("a2", "a3")))
        assert (await expunge.call("erasure.census", request_id=first.request_id)).residue_count == 0
        await expunge.restore(second.request_id, "a1")
        assert (await refs(expunge))["a1"] == named["a1"]
        assert {bodies[ref] for ref in named["a1"]} == {f"bytes of {name}".encode() for name in files_for("a1")}


@pytest.mark.parametrize("fault", [Fault.RAISES, Fault.COMES_BACK, Fault.FIND_RAISES])
async def test_a_fault_at_the_end_of_the_window(house: House, fault: Fault) -> None:
    """Laws 7 and 16: what was hidden is not said to be gone while a store keeps its bodies; a resume ends it."""
    clock, store = ManualClock(), Faulty(FolderStore(house.objects), None)
    async with house.open(store, clock) as expunge:
        bodies, going = house.bodies(), of(await refs(expunge), USER.goes)
        answer = await USER.hide(expunge)
        clock.advance(WINDOW_S)
        store.fault = fault
        (failed,) = (await expunge.call("erasure.resume_due")).erasures
        assert (failed.status, failed.purge) == ("failed", True)
        assert house.bodies() == bodies
        store.heal()
        done = await expunge.resume(answer.request_id)
        assert (done.status, done.census["objects.attachments"] if done.census else None) == ("completed", 0)
        assert house.bodies() == without(bodies, going)


async def test_a_fault_at_the_end_of_a_window_whose_scope_is_forgotten(house: House) -> None:
    """Laws 14 and 16: an erasure that goes on by marks and pseudonyms, because its subject has gone, heals as well."""
    clock, store = ManualClock(), Faulty(FolderStore(house.objects), None)
    async with house.open(store, clock) as expunge:
        bodies, going = house.bodies(), of(await refs(expunge), SCOPES["users"].goes)
        hidden = await SCOPES["users"].hide(expunge)
        assert (await USER.purge(expunge)).status == "completed"
        clock.advance(WINDOW_S)
        store.fault = Fault.RAISES
        (failed,) = (await expunge.call("erasure.resume_due")).erasures
        assert (failed.request_id, failed.status) == (hidden.request_id, "failed")
        store.heal()
        done = await expunge.resume(hidden.request_id)
        assert done.status == "completed"
        assert house.bodies() == without(bodies, going)
