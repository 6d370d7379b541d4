"""Two runners of one erasure, and two erasures at once: who has been taken over changes nothing any more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge
from expunge.errors import Abandoned, ErasureInProgress, RunnerSuperseded
from tests.crash.kit import Child, Flag, Gate, copied, everything, in_child, opened, outcomes, watched
from tests.crash.story import ANN, BOB, DORA, Prepared, large, prepare, small
from tests.support import dump, episode, fact, ids, memory, one_of_each

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

Point = tuple[str, int]


def stop_before(point: Point, reached: Flag, goes_on: Flag) -> Gate:
    """A gate that stops its process before a commit or reclaim until it is told to go on."""

    async def gate(*here: object) -> None:
        if here == point:
            reached.set()
            assert goes_on.wait()

    return gate


async def resume_the_only(expunge: Expunge) -> Any:
    """Resume the one request that there is."""
    (listed,) = (await expunge.call("erasure.list")).erasures
    return await expunge.resume(listed.request_id)


def overtaken(prepared: Prepared, folder: Path, point: Point) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
    """A process stops before a commit, another one resumes and completes, the first goes on.

    What became of the first, and everything in the database before and after it went on.
    """
    settings = prepared.story.settings(folder)
    reached, goes_on = Flag(), Flag()

    async def first() -> str:
        authority = await watched(settings, gate=stop_before(point, reached, goes_on))
        async with opened(settings, authority) as expunge:
            try:
                answer = await expunge.erase(*prepared.story.erased, purge=True)
            except RunnerSuperseded:
                return "superseded"
            return str(answer.status)

    async def second() -> dict[str, Any]:
        async with opened(settings) as expunge:
            answer = await resume_the_only(expunge)
            assert answer.status == "completed"
            return await everything(expunge)

    async def look() -> dict[str, Any]:
        async with opened(settings) as expunge:
            return await everything(expunge)

    with contextlib.closing(reached), contextlib.closing(goes_on):
        child = Child(lambda: asyncio.run(first()))
        if not reached.wait(child.answer):
            assert child.end().value == "completed"
            return None
        before = in_child(second)
        goes_on.set()
        ended = child.end()
        assert (ended.signal, ended.error) == (0, "")
        return ended.value, before, in_child(look)


def every_commit(prepared: Prepared, folder: Path) -> Iterator[tuple[int, str]]:
    """Each commit after the first, before which nobody could take anything over, and what became of the runner."""
    number = 2
    while (told := overtaken(prepared, copied(prepared.folder, folder), ("run", number))) is not None:
        became, before, after = told
        assert before == after, f"the first runner changed something when it went on before commit {number}"
        yield number, became
        number += 1


def test_overtaken_before_every_commit(tmp_path):
    """Design 4, small path: the attempt of a second runner fences the first one out, and it changes nothing."""
    ends = dict(every_commit(prepare(small(), tmp_path / "prepared"), tmp_path / "run"))
    assert ends == {2: "superseded", 3: "superseded", 4: "superseded"}


def test_overtaken_before_every_commit_of_many_batches(tmp_path):
    """Design 4, batched path: the attempt of a second runner fences the first one out, and it changes nothing."""
    ends = dict(every_commit(prepare(large(), tmp_path / "prepared"), tmp_path / "run"))
    print(f"the first runner was overtaken before {len(ends)} commits")
    assert len(ends) >= 25
    assert set(ends.values()) == {"superseded"}, ends


@pytest.mark.parametrize("what", ["count", "reclaim"])
def test_overtaken_before_the_census_and_before_the_reclaim(tmp_path, what):
    """Design 4: who is overtaken between two commits is fenced out as well."""
    prepared = prepare(small(), tmp_path / "prepared")
    told = overtaken(prepared, copied(prepared.folder, tmp_path / "run"), (what, 1))
    assert told is not None
    assert told[0] == "superseded"
    assert told[1] == told[2]


async def break_off(expunge: Expunge) -> str:
    """Open an erasure and stop before its second commit; the id of the request."""

    class BrokenOff(Exception):
        """Nothing is wrong but that the runner is gone."""

    async def gate(what: str, number: int) -> None:
        if (what, number) == ("run", 2):
            raise BrokenOff

    authority = await watched(expunge.settings, gate=gate)
    async with opened(expunge.settings, authority) as other:
        with pytest.raises(BrokenOff):
            await other.erase(ANN, purge=True)
    listed = (await expunge.call("erasure.list")).erasures
    return str(listed[0].request_id)


async def test_five_attempts_then_abandoned(settings, clock):
    """Design 4: five attempts, then abandoned and a person; the fence stays up and nothing is removed."""
    async with opened(settings, clock=clock) as expunge:
        await expunge.put([*one_of_each(ANN, "<ann>"), *one_of_each(DORA, "<dora>")])
        records = await dump(expunge)
        request_id = await break_off(expunge)
        for attempt in range(2, 6):
            taken_over_only = await watched(settings, gate=_no_second_commit)
            async with opened(settings, taken_over_only, clock) as runner:
                with pytest.raises(_Gone):
                    await runner.resume(request_id)
            status = await expunge.call("erasure.status", request_id=request_id)
            assert (status.status, status.attempts) == ("in_progress", attempt)
        with pytest.raises(Abandoned):
            await expunge.resume(request_id)
        status = await expunge.call("erasure.status", request_id=request_id)
        assert (status.status, status.attempts, status.receipt) == ("abandoned", 5, None)
        assert await dump(expunge) == records
        with pytest.raises(ErasureInProgress):
            await expunge.put([episode("e<late>", ANN)])
        before = await everything(expunge)
        with pytest.raises(Abandoned):
            await expunge.resume(request_id)
        assert await everything(expunge) == before
        assert outcomes(before)[-6:] == ["intent", *["resumed"] * 4, "abandoned"]


class _Gone(Exception):
    """The runner is gone."""


async def _no_second_commit(what: str, number: int) -> None:
    if (what, number) == ("run", 2):
        raise _Gone


async def test_the_fourth_resume_may_still_complete(settings, clock):
    """Design 4: the fifth attempt is an attempt like the others."""
    async with opened(settings, clock=clock) as expunge:
        await expunge.put(one_of_each(ANN, "<ann>"))
        request_id = await break_off(expunge)
        for _ in range(3):
            async with opened(settings, await watched(settings, gate=_no_second_commit), clock) as runner:
                with pytest.raises(_Gone):
                    await runner.resume(request_id)
        answer = await expunge.resume(request_id)
        assert (answer.status, answer.attempts, answer.residue_count) == ("completed", 5, 0)
        assert ids(await dump(expunge)) == set()


@pytest.mark.parametrize("batch_rows", [1, 1000])
@pytest.mark.parametrize("number", range(2, 18))
async def test_two_erasures_at_once_take_the_last_sources_of_a_fact(settings, clock, number, batch_rows):
    """Law 6: a fact made from two people's episodes goes when both are erased at the same time, however they mix."""
    settings = settings.model_copy(update={"batch_rows": batch_rows})
    stop = asyncio.Event(), asyncio.Event()

    async def gate(what: str, at: int) -> None:
        if (what, at) == ("run", number):
            stop[0].set()
            await stop[1].wait()

    async with opened(settings, clock=clock) as expunge:
        await expunge.put(
            [
                episode("e<ann>", ANN),
                episode("e<ann2>", ANN),
                episode("e<bob>", BOB),
                episode("e<bob2>", BOB),
                episode("e<dora>", DORA),
                fact("f<both>", sources=["e<ann>", "e<bob>"]),
                fact("f<stays>", sources=["e<ann>", "e<bob>", "e<dora>"]),
            ]
        )
        async with opened(settings, await watched(settings, gate=gate), clock) as other:
            running = asyncio.create_task(other.erase(ANN, purge=True))
            reached = asyncio.create_task(stop[0].wait())
            await asyncio.wait({running, reached}, return_when=asyncio.FIRST_COMPLETED)
            bob = await expunge.erase(BOB, purge=True)
            stop[1].set()
            ann = await running
            reached.cancel()
        assert (ann.status, bob.status) == ("completed", "completed")
        assert ids(await dump(expunge)) == {"e<dora>", "f<stays>"}


async def test_a_record_written_anew_under_the_id_of_one_that_went(settings, clock):
    """Law 7 and 10: what a unit that began earlier writes under a freed id is no residue of the erasure."""
    stop = asyncio.Event(), asyncio.Event()

    async def gate(what: str, at: int) -> None:
        if (what, at) == ("count", 1):
            stop[0].set()
            await stop[1].wait()

    async with opened(settings, clock=clock) as expunge:
        await expunge.put([episode("e<ann>", ANN), memory("m<sum>", "summary", sources=["e<ann>"])])
        as_of = await expunge.as_of()
        async with opened(settings, await watched(settings, gate=gate), clock) as other:
            running = asyncio.create_task(other.erase(ANN, purge=True))
            await stop[0].wait()
            try:
                # It was purged and not yet counted; a bystander's unit that began earlier takes the same name.
                await expunge.put([memory("m<sum>", "summary", DORA, value="of Dora alone")], as_of=as_of)
                expected = {"m<sum>"}
            except ErasureInProgress:
                expected = set()  # refusing it for the moment is as good
            stop[1].set()
            answer = await running
        if answer.status == "failed":
            answer = await expunge.resume(answer.request_id)
        assert answer.status == "completed", f"also when it is resumed: {answer.failure_reason}"
        assert ids(await dump(expunge)) == expected
