"""The rows of erasures: listed, shown for 89 days, given up after so many attempts, their fences released (design 4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.authority.port import Statement
from expunge.datamap import collection
from expunge.erasure import Order, Saga, find_request, open_erasure
from expunge.errors import (
    Abandoned,
    ErasedSince,
    ErasureInProgress,
    HiddenByErasure,
    Refused,
    RunnerSuperseded,
    UnknownRequest,
)
from expunge.model.instant import ManualClock
from expunge.model.scope import Scope
from expunge.operations.erasure import Listed
from tests import support
from tests.crash.kit import everything, watched
from tests.eye import changed, holding
from tests.support import dump, episode, event, fact, ids, memory, one_of_each, purge_order
from tests.test_erasure import hold, release
from tests.test_restore import ANN, BOB, CEM, DAY_S, DORA, NOTES, OTHER, WINDOW_S, count, hide, marked

pytestmark = pytest.mark.authorities("sqlite", "postgres", every=3)

SCOPES: dict[str, dict[str, Any]] = {
    "user": {"user_ids": (ANN,)},
    "session": {"session_id": "<s>"},
    "namespace": {"namespaces": (NOTES,)},
    "agent": {"agent": "writer<00001>"},
    "org": {},
}
EARLY = ("user", "session")
"""Whose fences come down when all is marked; the others stand until the end."""


async def listed(expunge: Expunge, **asked: Any) -> list[Listed]:
    found: list[Listed] = (await expunge.call("erasure.list", **asked)).erasures
    return found


async def audited(expunge: Expunge, request_id: str) -> list[str]:
    """What the audit says of an erasure, in order."""
    return [body["outcome"] for body in await support.audited(expunge, request_id=request_id)]


async def start(expunge: Expunge, scope: str, *, purge: bool = True) -> str:
    """Open an erasure and leave it, as a killed runner does; its id."""
    whole = Scope("default", **SCOPES[scope])
    opened = await open_erasure(expunge.system, Order(whole, whole.type, purge=purge), actor="t", role="operator")
    return opened.id


def mine(name: str, user: str = ANN) -> dict[str, Any]:
    """An episode that is in each of ``SCOPES``, unless it is another user's."""
    return episode(name, user, namespace=NOTES, agent="writer<00001>", session_id="<s>")


# --- list and status ---------------------------------------------------------------------------------------------------


async def test_the_list_says_how_each_stands(expunge: Expunge, clock: ManualClock) -> None:
    """Design 4: newest first, by status or by user, with steps, reversals and residue; the same as status says."""
    await expunge.put([*one_of_each(ANN, "<ann>"), *one_of_each(BOB, "<bob>"), episode("<cem>", CEM, namespace=NOTES)])
    await hold(expunge, namespace=NOTES)
    assert await listed(expunge) == []
    purged = await expunge.erase(ANN, purge=True, urgency="urgent")
    clock.advance(1)
    hidden = await hide(expunge, BOB)
    await expunge.restore(hidden.request_id, "<bob>-e")
    failed = await expunge.erase(CEM, purge=True)
    blocked = await expunge.erase(purge=True, namespaces=[NOTES])
    running = await start(expunge, "user")
    found = await listed(expunge)
    assert [item.request_id for item in found] == [
        running, blocked.request_id, failed.request_id, hidden.request_id, purged.request_id,
    ]  # fmt: skip
    assert [item.status for item in found] == ["in_progress", "blocked", "failed", "completed", "completed"]
    assert [item.steps_completed_count for item in found] == [2, 1, 8, 7, 11]
    assert [item.reversals_count for item in found] == [0, 0, 0, 1, 0]
    assert [item.residue_count for item in found] == [None, None, 1, 0, 0]
    assert [item.purge for item in found] == [True, True, True, False, True]
    assert [item.urgency for item in found] == ["normal"] * 4 + ["urgent"]
    assert [item.scope_type for item in found] == ["user_id", "namespace", "user_id", "user_id", "user_id"]
    assert [item.restore_until for item in found] == [None, None, None, "2026-01-15T00:00:01Z", None]
    for item in found:
        status = await expunge.call("erasure.status", request_id=item.request_id)
        assert item.steps_completed_count == len(status.steps_completed)
        shared = item.model_dump(exclude={"steps_completed_count", "subjects"})
        assert {name: getattr(status, name) for name in shared} == shared
    assert await listed(expunge, org="elsewhere") == []
    for name in ("in_progress", "completed", "failed", "abandoned", "blocked"):
        assert await listed(expunge, status=name) == [item for item in found if item.status == name]


@pytest.mark.parametrize("rotated", [False, True])
async def test_the_list_by_user(expunge: Expunge, rotated: bool) -> None:
    """Law 12: by pseudonym, under every key there has been: alone, in a list, or narrowed; and nobody like them."""
    await expunge.put([*one_of_each(ANN, "<ann>"), *one_of_each(BOB, "<bob>")])
    alone = await expunge.erase(ANN, purge=True)
    if rotated:
        await expunge.call("keys.rotate")
    together = await hide(expunge, BOB, ANN)
    narrowed = await hide(expunge, ANN, namespaces=[NOTES])
    other = await hide(expunge, BOB)
    await hide(expunge, namespaces=[NOTES])
    assert [item.request_id for item in await listed(expunge, user_id=ANN)] == [
        narrowed.request_id, together.request_id, alone.request_id,
    ]  # fmt: skip
    assert [item.request_id for item in await listed(expunge, user_id=BOB)] == [other.request_id, together.request_id]
    assert [item.subjects for item in await listed(expunge, user_id=BOB)] == [1, 2]
    for like in (ANN.upper(), ANN + " ", ANN[:-1], "%", NOTES):
        assert await listed(expunge, user_id=like) == []
    assert len(await listed(expunge)) == 5
    assert await listed(expunge, user_id=ANN, status="failed") == []


@pytest.mark.authorities("memory", "postgres")
async def test_the_list_goes_to_the_end(expunge: Expunge) -> None:
    """Law 11: every erasure of the org, over more than one page."""

    def many(tx: Any) -> None:
        others = ", ".join(column.name for column in collection("requests").columns if column.name not in ("rid", "id"))
        text = (
            f"INSERT INTO requests (id, {others}) SELECT 'er-' || value, {others} FROM requests, each_number(:numbers)"
        )
        tx.change(Statement("test.many", text), numbers=str(list(range(1100))))

    first = await expunge.erase(ANN, purge=True)
    await expunge.system.authority.run(many)
    found = [item.request_id for item in await listed(expunge)]
    assert found == [*(f"er-{number}" for number in reversed(range(1100))), first.request_id]


# --- 89 and 90 days ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("purge", [True, False])
async def test_shown_for_89_days_and_gone_at_90(settings: Settings, purge: bool) -> None:
    """Design 4: a second before 89 days it is shown, at 89 it is not, at 90 its row goes; receipts stay for ever."""
    clock = ManualClock()
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put(one_of_each(ANN, "<ann>"))
        answer = await expunge.erase(ANN, purge=purge)
        ledger = await expunge.call("ledger.export")
        clock.advance(WINDOW_S)
        await expunge.call("erasure.resume_due")
        receipts = await expunge.call("erasure.receipts", request_id=answer.request_id)
        clock.advance(75 * DAY_S - 1)
        assert len(await listed(expunge)) == 1
        status = await expunge.call("erasure.status", request_id=answer.request_id)
        assert (status.status, status.purge) == ("completed", True)
        assert await expunge.resume(answer.request_id) == status
        clock.advance(1)
        assert await listed(expunge) == []
        for name in ("erasure.status", "erasure.resume", "erasure.census", "erasure.release", "erasure.restore"):
            with pytest.raises(UnknownRequest):
                await expunge.call(name, request_id=answer.request_id)
        assert await expunge.call("erasure.receipts", request_id=answer.request_id) == receipts
    clock.advance(DAY_S - 1)
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert await count(expunge, "SELECT count(*) FROM requests") == 1
        before = await everything(expunge)
    clock.advance(1)
    async with Expunge(settings=settings, clock=clock) as expunge:
        after = await everything(expunge)
        assert after["control"].pop("requests") == []
        del before["control"]["requests"]
        assert after == before
        assert await expunge.call("erasure.receipts", request_id=answer.request_id) == receipts
        assert len((await expunge.call("ledger.export")).lines) >= len(ledger.lines)
        with pytest.raises(UnknownRequest):
            await expunge.call("erasure.receipts", request_id="er-nobody")
        await expunge.put([episode("<back>", ANN)])


async def test_what_has_not_ended_is_shown_for_ever(settings: Settings) -> None:
    """Law 16: what runs, failed, is blocked or waits for a person is neither hidden from the list nor removed."""
    clock = ManualClock()
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put([episode("<a>", ANN, namespace=NOTES), episode("<b>", BOB), episode("<c>", CEM)])
        await hold(expunge, namespace=NOTES)
        failed = await expunge.erase(ANN, purge=True)
        blocked = await expunge.erase(purge=True, namespaces=[NOTES])
        given_up = await open_erasure(expunge.system, purge_order(BOB), actor="t", role="operator")
        async with Expunge(settings=settings.model_copy(update={"max_attempts": 1}), clock=clock) as impatient:
            with pytest.raises(Abandoned):
                await impatient.resume(given_up.id)
        running = await open_erasure(expunge.system, purge_order(CEM), actor="t", role="operator")
        wanted = [running.id, given_up.id, blocked.request_id, failed.request_id]
    clock.advance(400 * DAY_S)
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert [item.request_id for item in await listed(expunge)] == wanted
        assert [item.status for item in await listed(expunge)] == ["in_progress", "abandoned", "blocked", "failed"]
        await release(expunge)
        assert (await expunge.resume(blocked.request_id)).status == "completed"
        assert ids(await dump(expunge)) == {"<b>", "<c>"}


# --- attempts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "purge"), [(1, True), (2, True), (5, True), (3, False)])
async def test_so_many_attempts_and_then_a_person(settings: Settings, most: int, purge: bool) -> None:
    """Design 4: after ``max_attempts`` it is abandoned, the audit says so, and only its fence can still be released."""
    async with Expunge(settings=changed(settings, max_attempts=most)) as expunge:
        await expunge.put([episode("<kept>", ANN, namespace=NOTES), episode("<goes>", ANN, namespace=OTHER)])
        await hold(expunge, namespace=NOTES)
        answer = await expunge.erase(whole_org=True, purge=purge)
        for attempt in range(2, most + 1):
            answer = await expunge.resume(answer.request_id)
            assert (answer.status, answer.attempts, answer.residue) == ("failed", attempt, {"episodes": 1})
        before = await dump(expunge)
        for _ in range(2):
            with pytest.raises(Abandoned):
                await expunge.resume(answer.request_id)
        assert await dump(expunge) == before
        status = await expunge.call("erasure.status", request_id=answer.request_id)
        assert (status.status, status.attempts, status.receipt) == ("abandoned", most, None)
        tries = ["intent", "failed", *["resumed", "failed"] * (most - 1), "abandoned"]
        assert await audited(expunge, answer.request_id) == tries
        assert [item.status for item in await listed(expunge, status="abandoned")] == ["abandoned"]
        with pytest.raises(ErasureInProgress):
            await expunge.put([episode("<new>", BOB)])
        released = await expunge.call("erasure.release", request_id=answer.request_id)
        assert (released.status, released.attempts) == ("abandoned", most)
        await expunge.put([episode("<new>", BOB)])
        assert await audited(expunge, answer.request_id) == [*tries, "released"]
        with pytest.raises(Abandoned):
            await expunge.resume(answer.request_id)
        assert ids(await dump(expunge)) - {"<goes>"} == {"<kept>", "<new>"}


async def test_a_blocked_one_has_not_been_tried(settings: Settings) -> None:
    """Design 4: to wait for a hold is no attempt, however few there may be; and its fence does not stay up."""
    async with Expunge(settings=changed(settings, max_attempts=1)) as expunge:
        await expunge.put([episode("<a>", ANN, namespace=NOTES), episode("<b>", BOB)])
        await hold(expunge, namespace=NOTES)
        answer = await expunge.erase(purge=True, namespaces=[NOTES])
        for _ in range(3):
            answer = await expunge.resume(answer.request_id)
            assert (answer.status, answer.attempts) == ("blocked", 1)
        await release(expunge)
        assert (await expunge.resume(answer.request_id)).status == "completed"
        await expunge.put([episode("<back>", ANN, namespace=NOTES)])
        assert ids(await dump(expunge)) == {"<b>", "<back>"}


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("wider", ["user", "agent", "org"])
async def test_a_wider_erasure_clears_what_a_stopped_one_left(settings: Settings, wider: str, rotated: bool) -> None:
    """Law 14: its clear id goes when all that it was to remove has gone by another, also under another key."""
    async with Expunge(settings=settings) as expunge:
        await expunge.put([mine("<a>"), memory("<m>", "s", sources=["<a>"]), episode("<b>", BOB)])
        whole = Scope("default", user_ids=(ANN,), agent="writer<00001>")
        opened = await open_erasure(expunge.system, Order(whole, whole.type, purge=True), actor="t", role="operator")
        await expunge.call("erasure.release", request_id=opened.id)
        other = await start(expunge, "session")
        await expunge.call("erasure.release", request_id=other)
        if rotated:
            await expunge.call("keys.rotate")
        named: dict[str, Any] = {"agent": {"agent": "writer<00001>"}, "org": {"whole_org": True}}
        words = named.get(wider, {})
        purged = await expunge.erase(*([] if words else [ANN]), purge=True, **words)
        assert purged.status == "completed"
        stopped = await expunge.call("erasure.status", request_id=opened.id)
        assert (stopped.status, stopped.failure_reason) == ("abandoned", f"its subjects went by {purged.request_id}")
        left = await expunge.call("erasure.status", request_id=other)
        assert left.status == ("abandoned" if wider == "org" else "failed")  # the session may have been others', too
        assert holding(settings, [ANN]) == {}


# --- release -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_rows", [1, 1000])
@pytest.mark.parametrize("scope", ["namespace", "agent", "org"])
async def test_a_fence_that_stayed_is_released(settings: Settings, scope: str, batch_rows: int) -> None:
    """Laws 4 and 8: it goes down, new work goes through, stale work does not; a resume takes only what is older."""
    async with Expunge(settings=changed(settings, batch_rows=batch_rows)) as expunge:
        await expunge.put([mine("<held>", BOB), mine("<goes>"), memory("<sum>", "s", sources=["<goes>"])])
        await hold(expunge, user_id=BOB)
        words: dict[str, Any] = SCOPES[scope] or {"whole_org": True}
        failed = await expunge.erase(purge=True, **words)
        assert (failed.status, failed.residue) == ("failed", {"episodes": 1})
        during = await expunge.as_of()
        with pytest.raises(ErasureInProgress):
            await expunge.put([mine("<new>")])
        released = await expunge.call("erasure.release", request_id=failed.request_id)
        assert (released.status, released.attempts, released.failure_reason) == ("failed", 1, failed.failure_reason)
        with pytest.raises(ErasedSince):
            await expunge.put([mine("<stale>")], as_of=during)
        await expunge.put([mine("<new>"), event("<new-v>", "<new>"), memory("<new-m>", "s", DORA, sources=["<new>"])])
        still = await expunge.resume(failed.request_id)
        assert (still.status, still.residue) == ("failed", {"episodes": 1})
        assert ids(await dump(expunge)) == {"<held>", "<new>", "<new-v>", "<new-m>"}
        await release(expunge)
        done = await expunge.resume(failed.request_id)
        assert (done.status, done.residue_count, done.removed["episodes"]) == ("completed", 0, 2)
        assert ids(await dump(expunge)) == {"<new>", "<new-v>", "<new-m>"}
        counted = await expunge.call("erasure.census", request_id=failed.request_id)
        assert counted.residue_count == 0
        assert await count(expunge, "SELECT count(*) FROM fences WHERE lowered_seq IS NULL") == 0
        assert await count(expunge, "SELECT count(*) FROM marks") == 0
        assert await audited(expunge, failed.request_id) == [
            "intent", "failed", "released", "resumed", "failed", "resumed", "completed",
        ]  # fmt: skip


@pytest.mark.parametrize(("batch_rows", "purge"), [(1, True), (1, False), (1000, True)])
@pytest.mark.parametrize("scope", SCOPES)
async def test_a_killed_erasure_is_released(settings: Settings, scope: str, batch_rows: int, purge: bool) -> None:
    """Laws 4 and 5: it has failed by it; resumed it takes what is older, and what was made of that since."""
    async with Expunge(settings=changed(settings, batch_rows=batch_rows)) as expunge:
        await expunge.put(
            [mine("<old>"), mine("<old-2>"), memory("<sum>", "s", sources=["<old>"]), episode("<bob>", BOB)]
        )
        request_id = await start(expunge, scope, purge=purge)
        with pytest.raises(ErasureInProgress):
            await expunge.put([mine("<new>")])
        released = await expunge.call("erasure.release", request_id=request_id)
        assert (released.status, released.attempts, released.failure_reason) == ("failed", 2, "its fence was released")
        await expunge.put(
            [mine("<new>"), fact("<f>", DORA, sources=["<old-2>"]), memory("<own>", "s", sources=["<new>"])]
        )
        done = await expunge.resume(request_id)
        assert (done.status, done.attempts, done.residue_count) == ("completed", 3, 0)
        gone = {"<old>", "<old-2>", "<sum>", "<f>"} | ({"<bob>"} if scope == "org" else set())
        after = await dump(expunge)
        assert ids(after) - marked(after) == {"<bob>", "<new>", "<own>"} - gone
        assert marked(after) == (set() if purge else gone)
        ended = "completed" if purge else "hidden"
        assert await audited(expunge, request_id) == ["intent", "released", "resumed", ended]
        if not purge:
            with pytest.raises(HiddenByErasure):
                await expunge.put([memory("<late>", "s", sources=["<old>"])])
            assert (await expunge.restore(request_id)).still_hidden == 0


async def test_only_a_fence_that_stands_is_released(expunge: Expunge) -> None:
    """Bad input: nothing to release of what is blocked, has ended, lowered its fence, or is not there."""
    await expunge.put([mine("<a>"), episode("<b>", BOB, namespace=OTHER), episode("<b2>", BOB), episode("<d>", DORA)])
    await hold(expunge, namespace=OTHER)
    blocked = await expunge.erase(purge=True, namespaces=[OTHER])
    lowered = await expunge.erase(BOB, purge=True)
    assert (blocked.status, lowered.status) == ("blocked", "failed")
    purged = await expunge.erase(ANN, purge=True)
    hidden = await hide(expunge, DORA)
    running = await start(expunge, "org")
    await expunge.call("erasure.release", request_id=running)
    before = await everything(expunge)
    for request_id in (blocked.request_id, lowered.request_id, purged.request_id, hidden.request_id, running):
        with pytest.raises(Refused) as refused:
            await expunge.call("erasure.release", request_id=request_id)
        assert (refused.value.code, refused.value.exit_code) == ("REFUSED", 3)
    for request_id, org in (("er-nobody", "default"), (running, "elsewhere")):
        with pytest.raises(UnknownRequest):
            await expunge.call("erasure.release", request_id=request_id, org=org)
    assert await everything(expunge) == before


@pytest.mark.parametrize("purge", [True, False])
@pytest.mark.parametrize(("scope", "batch_rows"), [("user", 1000), ("namespace", 1), ("namespace", 1000)])
async def test_a_runner_is_fenced_out_by_a_release(
    settings: Settings, scope: str, batch_rows: int, purge: bool
) -> None:
    """Design 4: before whichever commit it is, it changes nothing any more, and a resume ends what it had begun."""
    settings = changed(settings, batch_rows=batch_rows)
    became: dict[int, str] = {}
    async with Expunge(settings=settings) as expunge:
        number = 2
        while (end := await _released_before(expunge, number, scope, purge=purge)) is not None:
            became[number] = end
            number += 1
    assert became[2] == "fenced out"
    if scope in EARLY:  # its fence comes down when all is marked
        assert len(became) == 2 if not purge and batch_rows == 1000 else "not released" in became.values()
    else:
        assert set(became.values()) == {"fenced out"}
        assert len(became) >= (2 if batch_rows == 1000 else 6)


async def _released_before(expunge: Expunge, number: int, scope: str, *, purge: bool) -> str | None:
    """Release the fence of an erasure that is about to do a commit, and let it go on; ``None`` when it has fewer."""
    stop, go_on = asyncio.Event(), asyncio.Event()

    async def gate(what: str, at: int) -> None:
        if (what, at) == ("run", number):
            stop.set()
            await go_on.wait()

    await expunge.put([mine("<a>"), mine("<b>"), memory("<m>", "s", sources=["<a>"])])
    async with Expunge(settings=expunge.settings, authority=await watched(expunge.settings, gate=gate)) as runner:
        request_id = await start(runner, scope, purge=purge)
        found = await runner.system.authority.read(
            lambda tx: find_request(tx, "default", request_id, runner.system.clock.now())
        )
        running = asyncio.create_task(Saga(runner.system, found, role="operator").run())
        reached = asyncio.create_task(stop.wait())
        await asyncio.wait({running, reached}, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        end: str | None = None
        if stop.is_set():
            try:
                await expunge.call("erasure.release", request_id=request_id)
                end = "fenced out"
            except Refused:
                end = "not released"
        before = await everything(expunge)
        go_on.set()
        if end == "fenced out":
            with pytest.raises(RunnerSuperseded):
                await running
            assert await everything(expunge) == before
            await expunge.put([mine("<new>")])
            assert (await expunge.resume(request_id)).status == "completed"
        else:
            assert (await running).status == "completed"
    after = await dump(expunge)
    assert ids(after) - marked(after) == ({"<new>"} if end == "fenced out" else set())
    assert marked(after) == (set() if purge else {"<a>", "<b>", "<m>"})
    await expunge.erase(whole_org=True, purge=True)
    return end
