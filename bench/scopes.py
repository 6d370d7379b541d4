"""Three figures more: hiding a user, restoring it, and purging a namespace, against the same by hand.

Ours hides by ``Expunge.erase(user, purge=False)``: intent, fence, plan, marks, census, signed receipt, audit, answer.
The floor hides in one transaction and remembers which rows it hid (``floor.py`` says why). The bare update remembers
nothing: what it hid cannot be told from what others hide. It says what hiding alone costs, and nothing is held to it.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from bench.build import EPISODES, Shape, build, copy, settings
from bench.erasure import COLUMNS, LAYERED, OURS, Contest, Floors, Hand, Sizes, check_same, tell
from bench.floor import BARE_NAMESPACE, THOROUGH_NAMESPACE, HidingFloor, hidden, left
from bench.harness import Report, Samples, Turn, take_turns
from expunge import Expunge
from expunge.authority.sqlite.pages import VFS_NAME

FLOOR, UPDATE = "floor, remembering", "bare update"
MOST = 3.0
TOGETHER = 10
"""The users of one namespace."""

Turns = Callable[[str], dict[str, Turn]]
"""What each contender does with a user."""


async def hide_and_restore(folder: Path, sizes: Sizes) -> Report:
    """One user hidden, and restored: ours, the floor that remembers what it hid, and the bare update."""
    report = Report("Hide one user (20 episodes, 10 facts, 3 blocks), and restore it", COLUMNS)
    for size in sizes.one:
        hiding, restoring = Samples(), Samples()
        built = await build(Shape(size), folder / f"{Shape(size).name}-hide")
        for number in range(sizes.rounds):
            await _Round(built, sizes, number).run(Shape(size).users, hiding, restoring)
        shutil.rmtree(built)
        for doing, samples in (("hide", hiding), ("restore", restoring)):
            tell(report, f"{size:,}", samples, FLOOR, f"{doing}: ")
            report.hold(f"{doing}, {size:,} episodes, x {FLOOR}", samples.ratio(OURS, FLOOR), MOST)
            report.note(f"{doing}, {size:,} episodes, x {UPDATE}", samples.ratio(OURS, UPDATE))
    return report


class _Round:
    """Fresh copies of one database, in which the same users are hidden in turn, and then restored in turn.

    In between all copies are closed: a restore comes days after, and finds no page of the user in any cache but the
    system's.
    """

    def __init__(self, built: Path, sizes: Sizes, number: int) -> None:
        self._sizes, self._number = sizes, number
        self._work = built.parent / "round"
        self._copies = {name: copy(built, self._work / name.replace(" ", "-")) for name in (OURS, FLOOR, UPDATE)}
        self._asked: dict[str, str] = {}
        """The id of the erasure that hid each user."""

    async def run(self, users: Sequence[str], hiding: Samples, restoring: Samples) -> None:
        chance = random.Random(self._number)
        folders = list(self._copies.values())
        chosen = chance.sample(users, self._sizes.warm_up + self._sizes.users)
        async with self._opened() as (product, floors):
            done = await self._take(chosen, partial(self._hide, product, floors), hiding)
        check_same(folders, hidden)
        if len(hidden(folders[0])["episodes"]) != EPISODES * len(done):
            raise RuntimeError("not all that was to be hidden is")
        chance.shuffle(done)
        async with self._opened() as (product, floors):
            back = await self._take(done, partial(self._restore, product, floors), restoring)
        check_same(folders, hidden)
        check_same(folders, left)
        if len(hidden(folders[0])["episodes"]) != EPISODES * (len(done) - len(back)):
            raise RuntimeError("not all that was to be restored is")
        shutil.rmtree(self._work)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[Expunge, dict[str, HidingFloor]]]:
        async with AsyncExitStack() as stack:
            product = await stack.enter_async_context(Expunge(settings=settings(self._copies[OURS])))
            floors = {name: HidingFloor(self._copies[name], remembers=name == FLOOR) for name in (FLOOR, UPDATE)}
            for floor in floors.values():
                stack.callback(floor.close)
            yield product, floors

    async def _take(self, users: Sequence[str], turns: Turns, samples: Samples) -> list[str]:
        """Take turns user by user, for as long as a round may last; the users whose turn came."""
        done: list[str] = []
        end = time.monotonic() + self._sizes.round_s
        for number, user in enumerate(users):
            await take_turns(turns(user), number, samples if number >= self._sizes.warm_up else None)
            done.append(user)
            if time.monotonic() > end:
                break
        return done

    def _hide(self, product: Expunge, floors: dict[str, HidingFloor], user: str) -> dict[str, Turn]:
        async def ours() -> None:
            self._asked[user] = (await product.erase(user, purge=False)).request_id

        turns: dict[str, Turn] = {OURS: ours}
        return turns | {name: partial(floor.hide, user) for name, floor in floors.items()}

    def _restore(self, product: Expunge, floors: dict[str, HidingFloor], user: str) -> dict[str, Turn]:
        turns: dict[str, Turn] = {OURS: partial(product.restore, self._asked[user])}
        return turns | {name: partial(floor.restore, user) for name, floor in floors.items()}


async def one_namespace(folder: Path, sizes: Sizes) -> Report:
    """One namespace of ten users: ours, and the floors."""
    floors: Floors = {
        "bare floor": Hand(BARE_NAMESPACE),
        "thorough floor": Hand(THOROUGH_NAMESPACE),
        LAYERED: Hand(BARE_NAMESPACE, VFS_NAME),
    }
    main = next(iter(floors))
    report = Report("Erase one namespace (200 episodes, 100 facts, 30 blocks of 10 users)", COLUMNS)
    for size in sizes.spaces:
        shape, samples = Shape(size, together=TOGETHER), Samples()
        built = await build(shape, folder / shape.name)
        for number in range(sizes.rounds):
            contest = Contest(built, shape.namespaces, floors, sizes, sizes.namespaces, _erase_namespace)
            await contest.run(number, samples)
        shutil.rmtree(built)
        tell(report, f"{size:,}", samples, main)
        report.hold(f"one namespace, {size:,} episodes, x {main}", samples.ratio(OURS, main), MOST)
    return report


def _erase_namespace(product: Expunge, namespace: str) -> Awaitable[object]:
    return product.erase(namespaces=[namespace], purge=True)
