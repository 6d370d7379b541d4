"""Where the time of an erasure goes: every hop to the authority, and every named statement inside it."""

from __future__ import annotations

import inspect
import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from bench.build import Shape, build, settings
from bench.erasure import SUBJECTS, Sizes
from bench.harness import Report, us
from expunge import Expunge
from expunge.authority.port import Authority, GuardKey, Row, Statement, Tx, Unit
from expunge.authority.sqlite import Place, SqliteAuthority

T = TypeVar("T")
_SHOWN = 25


@dataclass(slots=True)
class Hop:
    """One call of the authority: its whole time, the time inside the unit, and that of each statement."""

    name: str
    whole: float = 0.0
    inside: float = 0.0
    statements: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class TimedAuthority:
    """An authority that notes what each hop through it took, whatever hops the port offers."""

    def __init__(self, inner: Authority) -> None:
        self._inner = inner
        self.hops: list[Hop] = []

    @property
    def authority(self) -> Authority:
        """Itself, as what it stands in for."""
        return cast("Authority", self)

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._inner, name)
        if name in {"close", "in_one_hop"} or not inspect.iscoroutinefunction(asked):
            return asked

        async def timed(*units: Unit[Any]) -> Any:
            with _Timed(self.hops, units[0] if units else None, name) as hop:
                return await asked(*(_timed(unit, hop) for unit in units))

        return timed


class _Timed:
    """Times a hop, and names it by its unit."""

    def __init__(self, hops: list[Hop], unit: Unit[Any] | None, what: str) -> None:
        self._hop = Hop(f"{what} {_name(unit)}".strip())
        hops.append(self._hop)
        self._begun = time.perf_counter()

    def __enter__(self) -> Hop:
        return self._hop

    def __exit__(self, *_: object) -> None:
        self._hop.whole = time.perf_counter() - self._begun


def _name(unit: Any) -> str:
    """What a unit is for: its function's name, and that of the work which it was closed over."""
    unit = getattr(unit, "func", unit)
    name = str(getattr(unit, "__qualname__", "")).replace(".<locals>", "")
    name = name.removesuffix(".unit").removesuffix(".<lambda>")
    for cell in getattr(unit, "__closure__", None) or ():
        work = getattr(cell.cell_contents, "func", cell.cell_contents)
        if callable(work) and hasattr(work, "__qualname__"):
            name += f"({work.__qualname__.rsplit('.', 1)[-1]})"
    return name


def _timed(unit: Unit[T], hop: Hop) -> Unit[T]:
    def work(tx: Tx) -> T:
        begun = time.perf_counter()
        try:
            return unit(_TimedTx(tx, hop))
        finally:
            hop.inside += time.perf_counter() - begun

    return work


class _TimedTx:
    """A transaction that notes what each statement took."""

    def __init__(self, inner: Tx, hop: Hop) -> None:
        self._inner, self._hop = inner, hop

    def lead(self, org: str, sealing: Iterable[GuardKey] = ()) -> None:
        self._inner.lead(org, sealing)

    def seal(self, keys: Iterable[GuardKey]) -> None:
        self._inner.seal(keys)

    def enter(self, keys: Iterable[GuardKey]) -> None:
        self._inner.enter(keys)

    def hold_names(self, org: str, names: Iterable[str]) -> None:
        self._inner.hold_names(org, names)

    def settle(self, org: str) -> None:
        self._inner.settle(org)

    @property
    def compares(self) -> bool:
        return self._inner.compares

    def ask_numbers(self, collection: str, count: int) -> Callable[[], Sequence[int]]:
        return self._inner.ask_numbers(collection, count)

    def send(self, statement: Statement, /, **values: Any) -> None:
        self.change(statement, **values)

    def ask_uncovered(self) -> Callable[[], list[str]]:
        return self._inner.ask_uncovered()

    def hold_rows(self, collection: str, org: str, ids: Sequence[str], *, alone: bool) -> bool:
        return self._inner.hold_rows(collection, org, ids, alone=alone)

    def guard(self, keys: Iterable[GuardKey], as_of: int) -> None:
        begun = time.perf_counter()
        self._inner.guard(keys, as_of)
        self._hop.statements["guard"] += time.perf_counter() - begun

    def rows(self, statement: Statement, /, **values: Any) -> list[Row]:
        begun = time.perf_counter()
        found = self._inner.rows(statement, **values)
        self._hop.statements[statement.name] += time.perf_counter() - begun
        return found

    def ask(self, statement: Statement, /, **values: Any) -> Callable[[], list[Row]]:
        found = self.rows(statement, **values)
        return lambda: found

    def ask_change(self, statement: Statement, /, **values: Any) -> Callable[[], int]:
        changed = self.change(statement, **values)
        return lambda: changed

    def expect(self, check: Callable[[list[Row]], None], statement: Statement, /, **values: Any) -> None:
        check(self.rows(statement, **values))

    def change(self, statement: Statement, /, **values: Any) -> int:
        begun = time.perf_counter()
        changed = self._inner.change(statement, **values)
        self._hop.statements[statement.name] += time.perf_counter() - begun
        return changed

    def change_many(self, statement: Statement, values: Iterable[Mapping[str, Any] | Sequence[Any]], /) -> None:
        begun = time.perf_counter()
        self._inner.change_many(statement, values)
        self._hop.statements[statement.name] += time.perf_counter() - begun


async def breakdown_one(folder: Path, sizes: Sizes) -> Report:
    """Where the time of erasing one user goes."""
    shape = Shape(sizes.one[0])
    users = shape.users[: sizes.warm_up + sizes.users]
    return await _breakdown(folder, shape, [[user] for user in users], sizes.warm_up)


async def breakdown_many(folder: Path, sizes: Sizes) -> Report:
    """Where the time of one request for 500 users goes."""
    shape = Shape(sizes.many[0])
    half = shape.users[:SUBJECTS], shape.users[SUBJECTS : 2 * SUBJECTS]
    return await _breakdown(folder, shape, [list(users) for users in half], 1)


async def _breakdown(folder: Path, shape: Shape, requests: Sequence[list[str]], warm_up: int) -> Report:
    built = await build(shape, folder / f"{shape.name}-breakdown")
    place = Place.parse(settings(built).db)
    authority = TimedAuthority(await SqliteAuthority.open(place, create=False))
    erasures: list[tuple[float, list[Hop]]] = []
    async with Expunge(settings=settings(built), authority=authority.authority) as product:
        for users in requests:
            authority.hops.clear()
            begun = time.perf_counter()
            await product.erase(*users, purge=True)
            erasures.append((time.perf_counter() - begun, list(authority.hops)))
    shutil.rmtree(built)
    whose = "one user" if len(requests[0]) == 1 else f"{len(requests[0])} users"
    return _tell(f"Where erasing {whose} among {shape.episodes:,} episodes spends its time", erasures[warm_up:])


def _tell(title: str, erasures: Sequence[tuple[float, list[Hop]]]) -> Report:
    report = Report(title, ("hop or statement", "times", "whole µs", "in the unit µs", "in statements µs"))
    hops = _by_name([hops for _, hops in erasures])
    for name, columns in hops.items():
        times, rest = columns[0], columns[1:]
        report.rows.append([name, f"{times:g}", *(us(value) for value in rest)])
        report.values[name] = columns[1] * 1e6
    spent = sum(columns[1] for columns in hops.values())
    whole = statistics.median(whole for whole, _ in erasures)
    report.rows.append(["between the hops", "", us(whole - spent), "", ""])
    report.rows.append(["whole", "", us(whole), "", ""])
    report.values["whole"] = whole * 1e6
    for name, seconds in _statements([hops for _, hops in erasures])[:_SHOWN]:
        report.rows.append([f"  {name}", "", us(seconds), "", ""])
        report.values[f"statement {name}"] = seconds * 1e6
    return report


def _by_name(erasures: Sequence[list[Hop]]) -> dict[str, list[float]]:
    """For each sort of hop the medians, over the erasures, of how many, whole, inside and in statements."""
    names = dict.fromkeys(hop.name for hops in erasures for hop in hops)
    found: dict[str, list[float]] = {}
    for name in names:
        sums = [
            (
                float(len(mine)),
                sum(hop.whole for hop in mine),
                sum(hop.inside for hop in mine),
                sum(sum(hop.statements.values()) for hop in mine),
            )
            for mine in ([hop for hop in hops if hop.name == name] for hops in erasures)
        ]
        found[name] = [statistics.median(column) for column in zip(*sums, strict=True)]
    return found


def _statements(erasures: Sequence[list[Hop]]) -> list[tuple[str, float]]:
    """The medians, over the erasures, of the time of each statement, the dearest first."""
    sums: defaultdict[str, list[float]] = defaultdict(list)
    for hops in erasures:
        mine: defaultdict[str, float] = defaultdict(float)
        for hop in hops:
            for name, seconds in hop.statements.items():
                mine[name] += seconds
        for name, seconds in mine.items():
            sums[name].append(seconds)
    return sorted(((name, statistics.median(taken)) for name, taken in sums.items()), key=lambda pair: -pair[1])
