"""What has no floor by hand: loading lines, and opening."""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.build import Shape, build, make, settings, synthetic
from bench.erasure import Sizes
from bench.harness import Report, Samples, ms, take_turns
from expunge import Expunge


async def load(folder: Path, sizes: Sizes) -> Report:
    """Records per second into a new database: lines of JSON, all in one call, and a thousand a call."""
    report = Report(f"Load {sizes.lines:,} lines of JSON", ("lines a call", "n", "median ms", "records per second"))
    lines = list(_lines(sizes.lines))
    for size in (len(lines), 1000):
        taken = [await _load(folder / "load", lines, size) for _ in range(sizes.loads)]
        rate = len(lines) / statistics.median(taken)
        report.rows.append([f"{size:,}", str(sizes.loads), ms(statistics.median(taken)), f"{rate:,.0f}"])
        report.values[f"records per second, {size} a call"] = rate
    return report


async def _load(folder: Path, lines: list[bytes], size: int) -> float:
    make(folder)
    async with Expunge(settings=settings(folder)) as product:
        begun = time.perf_counter()
        for start in range(0, len(lines), size):
            await product.put(lines[start : start + size])
        taken = time.perf_counter() - begun
    shutil.rmtree(folder)
    return taken


def _lines(count: int) -> Iterator[bytes]:
    """Two in three are episodes, one in three a fact made from the episode before it."""
    chance = random.Random(count)
    text = synthetic(chance)
    for number in range(count):
        user = f"user-{chance.randrange(count // 30 + 1):06d}"
        record: dict[str, object] = {"id": f"record-{number}", "user_id": user}
        if number % 3 < 2:
            record |= {"collection": "episodes", "session_id": f"{user}-s"}
            record |= {"input": chance.choice(text), "output": chance.choice(text)}
        else:
            record |= {"collection": "facts", "sources": [f"record-{number - 1}"]}
            record |= {"subject": user, "predicate": "said", "object": chance.choice(text)}
        yield json.dumps(record).encode()


async def opening(folder: Path, sizes: Sizes) -> Report:
    """Opening and closing a database of each size, and starting a process that imports the library."""
    report = Report("Open", ("what", "n", "median ms", "p95 ms"))
    for size in sizes.one:
        samples = Samples()
        built = await build(Shape(size), folder / f"{size}-opening")
        for _ in range(sizes.openings):
            await take_turns({"open": partial(_open, built)}, 0, samples)
        shutil.rmtree(built)
        _tell(report, f"open and close {size:,} episodes", samples)
    samples = Samples()
    for _ in range(sizes.openings):
        await take_turns({"open": _import}, 0, samples)
    _tell(report, "process that imports expunge", samples)
    return report


def _tell(report: Report, what: str, samples: Samples) -> None:
    report.rows.append([what, str(samples.count("open")), ms(samples.median("open")), ms(samples.p95("open"))])
    report.values[f"{what} ms"] = samples.median("open") * 1e3


async def _open(folder: Path) -> None:
    async with Expunge(settings=settings(folder), create=False):
        pass


def _import() -> None:
    subprocess.run([sys.executable, "-c", "import expunge"], check=True)
