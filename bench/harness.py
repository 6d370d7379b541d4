"""Taking turns, timing and telling: what every benchmark shares."""

from __future__ import annotations

import inspect
import math
import os
import platform
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import apsw
from rich import box
from rich.console import Console
from rich.table import Table

Turn = Callable[[], Awaitable[object] | None]


class Samples:
    """Seconds by contender, in the order in which they were taken: the n-th of each belong together."""

    def __init__(self) -> None:
        self.by_name: defaultdict[str, list[float]] = defaultdict(list)

    def median(self, name: str) -> float:
        """The middle one."""
        return statistics.median(self.by_name[name])

    def p95(self, name: str) -> float:
        """What 95 of 100 do not exceed."""
        ordered = sorted(self.by_name[name])
        return ordered[math.ceil(0.95 * len(ordered)) - 1]

    def ratio(self, name: str, floor: str) -> float:
        """The ratio of the medians."""
        return self.median(name) / self.median(floor)

    def paired(self, name: str, floor: str) -> float:
        """The median of the ratios of those that belong together."""
        pairs = zip(self.by_name[name], self.by_name[floor], strict=True)
        return statistics.median(mine / its for mine, its in pairs)

    def count(self, name: str) -> int:
        """How many there are."""
        return len(self.by_name[name])


async def take_turns(turns: dict[str, Turn], number: int, samples: Samples | None) -> None:
    """Let each contender do its turn once; who begins changes with the number. Without samples it is a warm-up."""
    names = list(turns)
    start = number % len(names)
    for name in (*names[start:], *names[:start]):
        begun = time.perf_counter()
        done = turns[name]()
        if inspect.isawaitable(done):
            await done
        taken = time.perf_counter() - begun
        if samples is not None:
            samples.by_name[name].append(taken)


@dataclass(slots=True)
class Report:
    """The result of one benchmark: a table, what it is held to, and the same as plain values."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)

    def hold(self, name: str, value: float, limit: float) -> None:
        """Compare a figure with its limit; the verdict is told, nothing fails by it."""
        self.values[name] = value
        met = "met" if value <= limit else "MISSED"
        self.verdicts.append(f"{name}: {value:.2f} (at most {limit:g}): {met}")

    def note(self, name: str, value: float) -> None:
        """Tell a figure that has no limit."""
        self.values[name] = value
        self.verdicts.append(f"{name}: {value:.2f} (no limit)")


def show(console: Console, report: Report) -> None:
    """A table for the eye."""
    table = Table(title=report.title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(report.columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in report.rows:
        table.add_row(*row)
    console.print(table)
    for verdict in report.verdicts:
        console.print(verdict, highlight=False)


def as_markdown(report: Report) -> str:
    """The same as rows that README.md holds; without details, which begin with a blank."""
    lines = [f"### {report.title}", "", "| " + " | ".join(report.columns) + " |"]
    lines.append("|" + "---|" + "---:|" * (len(report.columns) - 1))
    lines += ["| " + " | ".join(row) + " |" for row in report.rows if not row[0].startswith(" ")]
    lines += ["", *(f"- {verdict}" for verdict in report.verdicts)] if report.verdicts else []
    return "\n".join(lines) + "\n"


def ms(seconds: float) -> str:
    """Seconds as milliseconds."""
    return f"{seconds * 1e3:.2f}"


def us(seconds: float) -> str:
    """Seconds as microseconds."""
    return f"{seconds * 1e6:.0f}"


def machine(folder: Path) -> dict[str, str]:
    """What the figures depend on."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": f"{_cpu()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})",
        "load average at the start": f"{os.getloadavg()[0]:.1f}",
        "fsync of 4 KiB": f"{fsync_cost(folder) * 1e3:.2f} ms",
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def fsync_cost(folder: Path, times: int = 200) -> float:
    """The median of writing a page at the end of a file and syncing it."""
    taken: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(times):
            begun = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken)
