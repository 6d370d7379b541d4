"""Exports beside the same rows read and written by hand, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

from bench.build import BLOCKS, DATABASE, EPISODES, FACTS, Shape, build, settings
from bench.erasure import Sizes
from bench.export_child import hand
from bench.harness import Report, Samples, Turn, ms, take_turns
from expunge import Expunge

OURS, HAND = "ours", "hand"
_COLUMNS = ("contender", "rows of the table", "rows of the user", "n", "median ms", "MiB at most")
_LIMIT, _MEMORY_MIB, _GROWTH = 2.0, 200.0, 1.2
_WARM_UP = 5


async def export_all(folder: Path, sizes: Sizes) -> Report:
    """An export of one user who has every row of a large table: time and memory."""
    report = Report("Export of one user who has all of it", _COLUMNS)
    shape = Shape(sizes.exported, each=sizes.exported, more=False)
    built = await build(shape, folder / f"{shape.name}-export")
    samples, memory = await _take_turns(built, shape.users[:1] * sizes.exports, folder)
    _tell(report, shape, sizes.exported, samples, memory)
    report.hold(f"time, {sizes.exported:,} rows", samples.ratio(OURS, HAND), _LIMIT)
    report.hold(f"MiB at most, {sizes.exported:,} rows", max(memory[OURS]), _MEMORY_MIB)
    shutil.rmtree(built)
    return report


async def export_one(folder: Path, sizes: Sizes) -> Report:
    """An export of one user of many: flat in the size of the table."""
    report = Report("Export of one user among many", _COLUMNS[:-1])
    medians: dict[str, list[float]] = {OURS: [], HAND: []}
    for episodes in sizes.one:
        shape = Shape(episodes, linked=True)
        built = await build(shape, folder / f"{shape.name}-export")
        samples = Samples()
        async with Expunge(settings=settings(built)) as expunge:
            for number, user in enumerate(shape.users[: sizes.exported_users], start=-_WARM_UP):
                turns: dict[str, Turn] = {
                    OURS: partial(expunge.export_to, folder / "export.jsonl", user, format="jsonl"),
                    HAND: partial(_by_hand, built, user, folder),
                }
                await take_turns(turns, number, samples if number >= 0 else None)
        for who in (OURS, HAND):
            values = (f"{shape.episodes:,}", f"{EPISODES + FACTS + BLOCKS:,}", str(samples.count(who)))
            report.rows.append([who, *values, ms(samples.median(who))])
            medians[who].append(samples.median(who))
        shutil.rmtree(built)
    growth = {who: found[-1] / found[0] for who, found in medians.items()}
    title = f"growth from {sizes.one[0]:,} to {sizes.one[-1]:,} rows"
    report.hold(
        f"{title}, ours / by hand (a larger file is read more slowly by both)", growth[OURS] / growth[HAND], _GROWTH
    )
    report.note(f"{title}, ours", growth[OURS])
    return report


def _by_hand(built: Path, user: str, folder: Path) -> None:
    hand(built / DATABASE, user, folder / "export.jsonl")


async def _take_turns(built: Path, users: list[str], folder: Path) -> tuple[Samples, dict[str, list[float]]]:
    samples = Samples()
    memory: dict[str, list[float]] = {OURS: [], HAND: []}
    for number, user in enumerate(users):
        for who in (OURS, HAND) if number % 2 else (HAND, OURS):
            done = await _child(who, built / DATABASE, user, folder / "export.jsonl")
            samples.by_name[who].append(done["seconds"])
            memory[who].append(done["memory_mib"])
    return samples, memory


async def _child(who: str, database: Path, user: str, out: Path) -> dict[str, Any]:
    words = (sys.executable, "-m", "bench.export_child", who, str(database), user, str(out))
    child = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    said, _ = await child.communicate()
    if child.returncode:
        raise RuntimeError(f"the export by {who} failed")
    found: dict[str, Any] = json.loads(said)
    return found


def _tell(report: Report, shape: Shape, each: int, samples: Samples, memory: dict[str, list[float]]) -> None:
    for who in (OURS, HAND):
        values = (f"{shape.episodes:,}", f"{each:,}", str(samples.count(who)), ms(samples.median(who)))
        report.rows.append([who, *values, f"{max(memory[who]):.0f}"])
