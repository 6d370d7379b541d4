"""Killed at every commit and every call of the object store, over each scope and mode: the end is as undisturbed."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.model.instant import ManualClock
from expunge.stores.folder import FolderStore
from tests.crash.kit import WatchedStore, copied, everything, forked, in_child, kill_at, opened, watched
from tests.crash.story import (
    ANN,
    BETWEEN,
    BOB,
    FILES,
    NOTES,
    SESSION,
    WRITER,
    Prepared,
    Story,
    outcome,
    scoped,
)
from tests.support import files_of

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

Point = tuple[str, int, str]
Do = Callable[[Expunge], Awaitable[Any]]
WINDOW_S = 14 * 86_400


@dataclass(frozen=True, slots=True)
class Play:
    """What is done to a store, and what had been done before; ``later_s`` is how much later, in seconds.

    ``gone`` are the words that may stand in no file when it has ended.
    """

    act: Do
    gone: tuple[str, ...] = ()
    first: Do | None = None
    later_s: float = 0
    attached: bool = False
    restores: bool = False

    def clock(self) -> ManualClock:
        clock = ManualClock()
        clock.advance(self.later_s)
        return clock


def erase(*users: str, purge: bool, **scope: Any) -> Do:
    return lambda expunge: expunge.erase(*users, purge=purge, **scope)


async def hide_and_restore_some(expunge: Expunge) -> None:
    answer = await expunge.erase(ANN, purge=False)
    await expunge.restore(answer.request_id, "e<ann-2>", SESSION)


async def restore_all(expunge: Expunge) -> None:
    (listed,) = (await expunge.call("erasure.list")).erasures
    await expunge.restore(listed.request_id)


async def only_open(_expunge: Expunge) -> None:
    """Nothing: what is due is purged by whoever opens the store."""


PLAYS = {
    "namespace": Play(erase(purge=True, namespaces=[NOTES]), (NOTES, ANN, BOB)),
    "session": Play(erase(purge=True, session_id=SESSION), (SESSION,)),
    "agent before a date": Play(erase(purge=True, agent=WRITER, before=BETWEEN)),
    "org": Play(erase(purge=True, whole_org=True), (NOTES, ANN, BOB, WRITER)),
    "user with files": Play(erase(ANN, purge=True), (ANN, "of a<ann"), attached=True),
    "hide a user": Play(erase(ANN, purge=False), attached=True),
    "hide a namespace": Play(erase(purge=False, namespaces=[NOTES])),
    "end of a window": Play(only_open, (), hide_and_restore_some, WINDOW_S),
    "end of a window with files": Play(only_open, ("of a<",), erase(purge=False, namespaces=[NOTES]), WINDOW_S, attached=True),
    "restore": Play(restore_all, (), erase(ANN, purge=False), 60, attached=True, restores=True),
}  # fmt: skip
ONE_COMMIT = 1000
"""A size of batches into which all of it fits; 2 makes each step commit apart."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A prepared store, what is played on it, and where."""

    play: Play
    prepared: Prepared
    folder: Path = field(repr=False)

    def settings(self, folder: Path) -> Settings:
        return self.prepared.story.settings(folder)

    def fresh(self, name: str) -> Path:
        return copied(self.prepared.folder, self.folder / name)


def prepare(play: Play, batch_rows: int, folder: Path) -> Stage:
    """Write the records one after the other, and do what was done before."""
    story = Story(play.gone, scoped(attached=play.attached), batch_rows)
    place, given = folder / "prepared", folder / "given"
    place.mkdir()
    given.mkdir()
    for name in FILES:
        (given / name).write_text(f"bytes of {name}", encoding="utf-8")

    async def job() -> dict[str, Any]:
        async with opened(story.settings(place)) as expunge:
            for record in story.records:
                await expunge.put([record], attachments_from=given)
            if play.first is not None:
                await play.first(expunge)
            return await everything(expunge)

    return Stage(play, Prepared(story, place, in_child(job)), folder)


def play_watched(stage: Stage, folder: Path, point: Point | None = None) -> list[tuple[str, int]]:
    """Play in a folder, and be killed at a point; the commits, reclaims and calls that there were."""

    async def job() -> list[tuple[str, int]]:
        settings = stage.settings(folder)
        authority = await watched(settings, watch=kill_at(point) if point else None)
        store = WatchedStore(FolderStore(folder / "expunge.objects"), authority)
        async with opened(settings, authority, stage.play.clock(), store) as expunge:
            await stage.play.act(expunge)
            return authority.passed

    ended = forked(lambda: asyncio.run(job()))
    assert ended.error == ""
    assert ended.signal == (signal.SIGKILL if point else 0), point
    passed: list[tuple[str, int]] = ended.value or []
    return passed


def end_and_tell(stage: Stage, folder: Path) -> tuple[dict[str, Any], str]:
    """Open what a kill left, go on (or begin anew), and tell the outcome and what there was to go on from."""

    async def job() -> tuple[dict[str, Any], str]:
        async with opened(stage.settings(folder), clock=stage.play.clock()) as expunge:
            listed = (await expunge.call("erasure.list")).erasures
            found = listed[0].status if listed else "nothing"
            if not listed:
                assert await everything(expunge) == stage.prepared.was, "killed before the first commit, yet it wrote"
            if not listed or stage.play.restores:
                await stage.play.act(expunge)
            elif found == "in_progress":
                await expunge.resume(listed[0].request_id)
            (listed_now,) = (await expunge.call("erasure.list")).erasures
            assert listed_now.status == "completed"
            told = await outcome(expunge, listed_now.request_id, stage.prepared)
            told["bodies"] = {
                name: data for name, data in files_of(folder / "expunge.objects").items() if name != ".lock"
            }
            ended = await everything(expunge)
            again = await expunge.resume(listed_now.request_id)
            assert (await expunge.call("erasure.resume_due")).erasures == []
            assert await everything(expunge) == ended, "a second resume changed something"
            assert again.status == "completed"
            return told, found

    told, found = in_child(job)
    if stage.play.restores:  # each restore has an entry, also the one that finds nothing to do
        told["audit"] = sorted(set(told["audit"]))
    return told, found


def assert_killed_everywhere(play: Play, batch_rows: int, folder: Path) -> tuple[dict[str, Any], Counter[str]]:
    """Kill at each point; the outcome of an undisturbed run, and how often what was killed."""
    stage = prepare(play, batch_rows, folder)
    passed = play_watched(stage, stage.fresh("undisturbed"))
    expected, _ = end_and_tell(stage, folder / "undisturbed")
    assert expected["fences_up"] == []
    assert expected["bytes"] == {}
    assert not any(expected["counted_again"].values())
    points: list[Point] = [(*what, when) for what in passed for when in ("before", "after")]
    states: Counter[str] = Counter()
    wrong: dict[Point, list[str]] = {}
    for point in points:
        play_watched(stage, stage.fresh("killed"), point)
        told, found = end_and_tell(stage, folder / "killed")
        states[found] += 1
        if told != expected:
            wrong[point] = [f"{key}: {told[key]} != {expected[key]}" for key in told if told[key] != expected[key]]
    print(f"killed at {len(points)} points and gone on from; what was found: {dict(states)}")
    first = next(iter(wrong.items()), None)
    assert not wrong, f"{len(wrong)} of {len(points)} kill points end otherwise: {list(wrong)}; the first: {first}"
    return expected, Counter(what for what, _ in passed)


@pytest.mark.parametrize("name", ["namespace", "session", "agent before a date", "hide a user", "end of a window"])
def test_in_batches_killed_at_every_commit(tmp_path, name):
    """Laws 2 and 16, batched path: rows, counts, effects and receipts are those of a run that nothing disturbed."""
    _, killed = assert_killed_everywhere(PLAYS[name], 2, tmp_path)
    assert killed["run"] >= 8


@pytest.mark.parametrize(
    "name", ["namespace", "session", "agent before a date", "org", "hide a user", "hide a namespace"]
)
def test_at_once_killed_at_every_commit(tmp_path, name):
    """Laws 2 and 16, small path: the same when plan, marks and purge are one commit, or all up to the marks."""
    told, killed = assert_killed_everywhere(PLAYS[name], ONE_COMMIT, tmp_path)
    assert killed["run"] == (4 if told["answer"]["purge"] else 2)


@pytest.mark.parametrize(
    ("name", "batch_rows", "goes", "left"),
    [
        ("user with files", 3, 2, 1),
        ("end of a window with files", ONE_COMMIT, 3, 0),
    ],
)
def test_with_files_killed_at_every_commit_and_call_of_the_store(tmp_path, name, batch_rows, goes, left):
    """Laws 7, 10 and 16: no body of what went is left, no other is gone, and the receipt counts those that went."""
    told, killed = assert_killed_everywhere(PLAYS[name], batch_rows, tmp_path)
    assert min(killed["store"], killed["run"]) >= 5
    assert len(told["bodies"]) == left
    assert told["answer"]["removed"]["attachments"] == told["answer"]["removed"]["objects.attachments"] == goes
    assert sum(receipt["removed"]["objects.attachments"] for receipt in told["receipts"]) == goes


def test_a_restore_killed_before_and_after_its_commit(tmp_path):
    """Law 16: it is one commit: all of it has come back or nothing, and a second restore ends it or finds it done."""
    told, killed = assert_killed_everywhere(PLAYS["restore"], 3, tmp_path)
    assert killed == {"run": 1}
    assert told["marks"] == []
    assert len(told["bodies"]) == 3
    assert told["answer"]["reversals_count"] == 7
