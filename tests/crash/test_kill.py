"""Killed at every commit: what a resume ends with is what an undisturbed erasure ends with."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.crash.kit import Child, Flag, copied, everything, forked, in_child, kill_at, opened, watched
from tests.crash.story import Prepared, Story, between, large, outcome, prepare, small

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

Point = tuple[str, int, str]


def erase_watched(prepared: Prepared, folder: Path, point: Point | None = None) -> list[tuple[str, int]]:
    """Erase in a folder, and be killed at a point; the commits and reclaims that there were."""

    async def job() -> list[tuple[str, int]]:
        settings = prepared.story.settings(folder)
        authority = await watched(settings, watch=kill_at(point) if point else None)
        async with opened(settings, authority) as expunge:
            await expunge.erase(*prepared.story.erased, purge=True)
            return authority.passed

    ended = forked(lambda: asyncio.run(job()))
    assert ended.error == ""
    assert ended.signal == (signal.SIGKILL if point else 0), point
    passed: list[tuple[str, int]] = ended.value or []
    return passed


def end_and_tell(prepared: Prepared, folder: Path) -> tuple[dict[str, Any], str]:
    """Open what a kill left, go on (or begin anew), and tell the outcome and what there was to go on from."""

    async def job() -> tuple[dict[str, Any], str]:
        async with opened(prepared.story.settings(folder)) as expunge:
            listed = (await expunge.call("erasure.list")).erasures
            if listed:
                assert len(listed) == 1
                answer, found = await expunge.resume(listed[0].request_id), listed[0].status
            else:
                assert await everything(expunge) == prepared.was, "killed before the first commit, and yet it wrote"
                answer, found = await expunge.erase(*prepared.story.erased, purge=True), "nothing"
            assert answer.status == "completed"
            told = await outcome(expunge, answer.request_id, prepared)
            ended = await everything(expunge)
            again = await expunge.resume(answer.request_id)
            assert again.receipt == answer.receipt
            assert await everything(expunge) == ended, "a second resume changed something"
            return told, found

    return in_child(job)


def undisturbed(prepared: Prepared, folder: Path) -> tuple[dict[str, Any], list[Point]]:
    """The outcome of an erasure that nothing disturbs, and the points at which one can be killed."""
    passed = erase_watched(prepared, copied(prepared.folder, folder))
    told, found = end_and_tell(prepared, folder)
    assert found == "completed"
    assert told["fences_up"] == [] == told["marks"]
    assert told["bytes"] == {}
    assert not any(told["counted_again"].values())
    assert told["audit"][-2:] == ["intent", "completed"]
    return told, [(*what, when) for what in passed for when in ("before", "after")]


def assert_killed_everywhere(story: Story, folder: Path, *, commits: int) -> None:
    prepared = prepare(story, folder / "prepared")
    expected, points = undisturbed(prepared, folder / "undisturbed")
    assert sum(kind == "run" for kind, _, when in points if when == "before") >= commits
    states: dict[str, int] = {}
    wrong: dict[Point, list[str]] = {}
    for point in points:
        erase_watched(prepared, copied(prepared.folder, folder / "killed"), point)
        told, found = end_and_tell(prepared, folder / "killed")
        states[found] = states.get(found, 0) + 1
        if told != expected:
            wrong[point] = [f"{key}: {told[key]} != {expected[key]}" for key in told if told[key] != expected[key]]
    print(f"killed at {len(points)} points and resumed; what was found: {states}")
    first = next(iter(wrong.items()), None)
    assert not wrong, f"{len(wrong)} of {len(points)} kill points end otherwise: {list(wrong)}; the first: {first}"
    assert states["nothing"] == 1
    assert states["in_progress"] >= len(points) - 6


def test_one_person_killed_at_every_commit(tmp_path):
    """Law 2 and 16, small path: killed before and after each commit and reclaim, a resume ends as undisturbed."""
    assert_killed_everywhere(small(), tmp_path, commits=3)


def test_several_people_killed_at_every_commit_of_many_batches(tmp_path):
    """Law 2 and 16, batched path: dozens of commits, and killed at each a resume ends as undisturbed."""
    assert_killed_everywhere(large(), tmp_path, commits=25)


def test_killed_at_any_moment(tmp_path):
    """Law 2 and 16: killed between, in and after commits, census and reclaim, a resume ends as undisturbed."""
    prepared = prepare(large(), tmp_path / "prepared")
    expected, _ = undisturbed(prepared, tmp_path / "undisturbed")
    settings = prepared.story.settings(tmp_path / "killed")
    chance = random.Random(5)

    def killed_after(seconds: float) -> bool:
        ready = Flag()

        async def job() -> None:
            async with opened(settings) as expunge:
                ready.set()
                await expunge.erase(*prepared.story.erased, purge=True)

        with contextlib.closing(ready):
            child = Child(lambda: asyncio.run(job()))
            assert ready.wait()
            time.sleep(seconds)
            os.kill(child.pid, signal.SIGKILL)
            return child.end().signal == signal.SIGKILL

    copied(prepared.folder, tmp_path / "killed")
    began = time.monotonic()
    erase_watched(prepared, tmp_path / "killed")
    longest = time.monotonic() - began
    found: Counter[str] = Counter()
    for _ in range(60):
        copied(prepared.folder, tmp_path / "killed")
        if killed_after(chance.uniform(0, longest)):
            told, state = end_and_tell(prepared, tmp_path / "killed")
            assert told == expected
            found[state] += 1
    print(f"killed at {found.total()} moments; what was found: {dict(found)}")
    assert found["in_progress"] > 20


def test_killed_in_the_closure_of_a_memory_made_from_two_people(tmp_path):
    """Law 16: whose receipt counts a record made from two subjects' does not depend on where a runner was killed."""
    assert_killed_everywhere(between(), tmp_path, commits=10)


def test_receipts_do_not_depend_on_the_size_of_batches(tmp_path):
    """Law 16: whose receipt counts a record made from two subjects' does not depend on ``batch_rows``."""
    prepared = prepare(between(), tmp_path / "prepared")
    told = {
        rows: undisturbed(replace(prepared, story=replace(prepared.story, batch_rows=rows)), tmp_path / "run")[0]
        for rows in (1, 2, 3, 4, 1000)
    }
    removed = {rows: [receipt["removed"] for receipt in of["receipts"]] for rows, of in told.items()}
    assert all(told[rows] == told[1000] for rows in told), removed
