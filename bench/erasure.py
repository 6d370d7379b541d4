"""The two figures of an erasure: one user, and 500 in one request, against the same deletes by hand."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.build import Shape, build, copy, settings
from bench.floor import BARE, BARE_LIST, THOROUGH, Floor, left
from bench.harness import Report, Samples, Turn, ms, take_turns
from expunge import Expunge
from expunge.authority.sqlite.pages import VFS_NAME

OURS = "ours"
LAYERED = "bare floor, our file layer"
COLUMNS = ("contender", "episodes", "n", "median ms", "p95 ms", "ratio of medians", "median of ratios")
MOST_ONE, MOST_GROWTH, MOST_MANY = 3.0, 1.2, 2.0
SUBJECTS = 500


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    one: tuple[int, int] = (10_000, 1_000_000)
    rounds: int = 3
    users: int = 50
    warm_up: int = 5
    round_s: float = 120.0  # what is so slow is measured on fewer users, and `n` says so
    many: tuple[int, ...] = (20_000, 200_000)
    pairs: int = 7
    spaces: tuple[int, ...] = (10_000, 200_000)
    namespaces: int = 10
    lines: int = 30_000
    loads: int = 3
    openings: int = 30
    writes: int = 200
    batches: int = 7
    rows: int = 100_000
    queries: int = 300
    beside: int = 200
    peers: tuple[int, ...] = (1_000, 10_000)
    asked: int = 60
    exported: int = 1_000_000
    exports: int = 3
    exported_users: int = 55


QUICK = Sizes(one=(2_000, 20_000), rounds=1, users=20, warm_up=2, many=(20_000,), pairs=2,
              spaces=(2_000, 20_000), namespaces=6, lines=3_000,
              loads=1, openings=5, writes=20, batches=1, rows=2_000, queries=20, beside=20,
              peers=(50,), asked=10, exported=20_000, exports=1, exported_users=20)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hand:
    """How a floor is written, and whether it goes through the product's file layer (which zeroes stale bytes)."""

    statements: tuple[str, ...]
    vfs: str | None = None


Floors = dict[str, Hand]
Ask = Callable[[Expunge, str], Awaitable[object]]
"""How ours is asked to erase a subject."""


async def one_user(folder: Path, sizes: Sizes) -> Report:
    """One user: ours, and the floors, where nothing is linked."""
    floors = {"bare floor": Hand(BARE), "thorough floor": Hand(THOROUGH), LAYERED: Hand(BARE, VFS_NAME)}
    return await _one_user(folder, sizes, linked=False, floors=floors)


async def one_linked_user(folder: Path, sizes: Sizes) -> Report:
    """One user whose facts name an episode each: ours and the thorough floor."""
    return await _one_user(folder, sizes, linked=True, floors={"thorough floor": Hand(THOROUGH)})


def _erase_user(product: Expunge, user: str) -> Awaitable[object]:
    return product.erase(user, purge=True)


async def _one_user(folder: Path, sizes: Sizes, *, linked: bool, floors: Floors) -> Report:
    samples = {size: Samples() for size in sizes.one}
    built = {size: await build(Shape(size, linked), folder / Shape(size, linked).name) for size in sizes.one}
    for number in range(sizes.rounds):
        for size in sizes.one:
            contest = Contest(built[size], Shape(size, linked).users, floors, sizes, sizes.users, _erase_user)
            await contest.run(number, samples[size])
    for path in built.values():
        shutil.rmtree(path)
    what = "20 episodes, 10 facts, 3 blocks" + (", each fact linked to an episode" if linked else "")
    report = Report(f"Erase one user ({what})", COLUMNS)
    main = next(iter(floors))
    for size in sizes.one:
        tell(report, f"{size:,}", samples[size], main)
        report.hold(f"one user, {size:,} episodes, x {main}", samples[size].ratio(OURS, main), MOST_ONE)
    small, large = (samples[size] for size in sizes.one)
    growth = {name: large.median(name) / small.median(name) for name in (OURS, main)}
    report.values |= {f"growth of {name}": value for name, value in growth.items()}
    title = f"growth {growth[OURS]:.2f} / growth of the {main} {growth[main]:.2f}"
    report.hold(title, growth[OURS] / growth[main], MOST_GROWTH)
    return report


@dataclass(frozen=True, slots=True)
class Contest:
    """Ours against floors, in copies of one database: each erases the same users, or namespaces, one by one."""

    built: Path
    subjects: Sequence[str]
    floors: Floors
    sizes: Sizes
    count: int
    ours: Ask

    async def run(self, number: int, samples: Samples) -> None:
        """A fresh copy for each contender; then the same subjects, in turn."""
        work = self.built.parent / "round"
        copies = {name: copy(self.built, work / name.replace(" ", "-")) for name in (OURS, *self.floors)}
        subjects = random.Random(number).sample(self.subjects, self.sizes.warm_up + self.count)
        async with AsyncExitStack() as stack:
            product = await stack.enter_async_context(Expunge(settings=settings(copies[OURS])))
            hands = {name: Floor(copies[name], vfs=floor.vfs) for name, floor in self.floors.items()}
            for hand in hands.values():
                stack.callback(hand.close)
            begun = time.monotonic()
            for turn, subject in enumerate(subjects):
                turns: dict[str, Turn] = {OURS: partial(self.ours, product, subject)}
                turns |= {
                    name: partial(hands[name].erase, floor.statements, subject) for name, floor in self.floors.items()
                }
                await take_turns(turns, turn, samples if turn >= self.sizes.warm_up else None)
                if time.monotonic() > begun + self.sizes.round_s:
                    break
        check_same(list(copies.values()), left)
        shutil.rmtree(work)


async def many_users(folder: Path, sizes: Sizes) -> Report:
    """500 users in one request, against the same deletes in one transaction, one by one and as a list."""
    report = Report(f"Erase {SUBJECTS} users in one request", COLUMNS)
    for size in sizes.many:
        shape, samples = Shape(size), Samples()
        built = await build(shape, folder / shape.name)
        for number in range(-1, sizes.pairs):
            await _many_round(built, shape, number, samples if number >= 0 else None)
        shutil.rmtree(built)
        floors = (name for name in samples.by_name if name not in (OURS, LAYERED))
        main = min(floors, key=samples.median)
        tell(report, f"{size:,}", samples, main)
        report.hold(f"{SUBJECTS} users, {size:,} episodes, x {main}", samples.ratio(OURS, main), MOST_MANY)
    return report


async def _many_round(built: Path, shape: Shape, number: int, samples: Samples | None) -> None:
    work = built.parent / "round"
    users = random.Random(number).sample(shape.users, SUBJECTS)
    names = (OURS, "floor, one by one", "floor, as a list", LAYERED)
    copies = {name: copy(built, work / name.replace(" ", "-").replace(",", "")) for name in names}
    async with AsyncExitStack() as stack:
        product = await stack.enter_async_context(Expunge(settings=settings(copies[OURS])))
        each, listed, layered = (Floor(copies[name], vfs=VFS_NAME if name == LAYERED else None) for name in names[1:])
        for floor in (each, listed, layered):
            stack.callback(floor.close)
        turns: dict[str, Turn] = {
            OURS: partial(product.erase, *users, purge=True),
            names[1]: partial(each.erase_each, BARE, users),
            names[2]: partial(listed.erase_list, BARE_LIST, users),
            LAYERED: partial(layered.erase_list, BARE_LIST, users),
        }
        await take_turns(turns, number, samples)
    check_same(list(copies.values()), left)
    shutil.rmtree(work)


def check_same(folders: list[Path], look: Callable[[Path], dict[str, Any]]) -> None:
    """The contenders did the same: a ratio of different work would say nothing."""
    found = [look(folder) for folder in folders]
    if any(one != found[0] for one in found):
        raise RuntimeError(f"the contenders left different rows: {found}")


def tell(report: Report, size: str, samples: Samples, main: str, doing: str = "") -> None:
    """Add the rows of what was done among so many episodes; ``main`` is the floor that ratios are to."""
    for name in sorted(samples.by_name, key=lambda name: name != OURS):
        ratios = [f"{samples.ratio(name, main):.2f}", f"{samples.paired(name, main):.2f}"]
        times = [ms(samples.median(name)), ms(samples.p95(name))]
        report.rows.append([f"{doing}{name}", size, str(samples.count(name)), *times, *ratios])
        report.values[f"{size} {doing}{name} ms"] = samples.median(name) * 1e3
