"""What the crash tests share: children that are forked and may be killed, and an authority that is watched."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from expunge import Expunge, Settings
from expunge.authority.places import open_authority, place_of
from expunge.authority.port import AtHand, Authority, Examined, Inspected, KeptFile, Reclaimed, Statement, Tx, Unit
from expunge.model.instant import Clock, ManualClock
from expunge.stores import Asked, BodyStore, Capabilities, Filing, Found, Permit, Removal
from tests.support import dump, files_of

T = TypeVar("T")
RAW = Path(__file__).parent.parent / "raw"
CHILD_SECONDS = 60
_CONTROL = ("orgs", "fences", "marks", "requests", "ledger", "audit")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: by which signal (0 for none), and what it gave back or the text of what it raised."""

    signal: int
    value: Any = None
    error: str = ""


class Child:
    """A job in a forked child, which has so many seconds at most."""

    def __init__(self, job: Callable[[], Any], *, seconds: int = CHILD_SECONDS) -> None:
        self._give_up = time.monotonic() + seconds + 10
        self.answer, writing = os.pipe()
        with warnings.catch_warnings():
            # From Python 3.12 a fork beside threads warns. The only other thread here is that of xdist, which
            # holds nothing that a child needs; the child never comes back to pytest.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _be_child(job, writing, seconds)
        os.close(writing)

    def end(self) -> Ended:
        """Wait for its end."""
        data = b""
        while part := self._part():
            data += part
        os.close(self.answer)
        _, status = os.waitpid(self.pid, 0)
        value, error = pickle.loads(data) if data else (None, "")
        return Ended(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, value, error)

    def _part(self) -> bytes:
        if select.select([self.answer], [], [], max(0.0, self._give_up - time.monotonic()))[0]:
            return os.read(self.answer, 1 << 16)
        os.kill(self.pid, signal.SIGKILL)
        return b""


def _be_child(job: Callable[[], Any], writing: int, seconds: int) -> None:
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        try:
            answer = pickle.dumps((job(), ""))
        except BaseException:  # noqa: BLE001 (the parent is told, whatever it was)
            answer = pickle.dumps((None, traceback.format_exc()))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)
    finally:
        os._exit(0)


def forked(job: Callable[[], Any], *, seconds: int = CHILD_SECONDS) -> Ended:
    """Run a job in a forked child to its end."""
    return Child(job, seconds=seconds).end()


class Flag:
    """What one process tells another once, through a pipe that was there before the fork."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def fileno(self) -> int:
        return self._reading

    def set(self) -> None:
        os.write(self._writing, b"!")

    def wait(self, *others: int, seconds: float = CHILD_SECONDS) -> bool:
        """Whether it was set, before anything came through the others and before the time was over."""
        ready, _, _ = select.select([self._reading, *others], [], [], seconds)
        return self._reading in ready

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


def in_child(job: Callable[[], Awaitable[T]], *, seconds: int = CHILD_SECONDS) -> T:
    """What a coroutine answers that runs in a forked child of its own."""

    async def main() -> T:
        return await job()

    ended = forked(lambda: asyncio.run(main()), seconds=seconds)
    assert (ended.signal, ended.error) == (0, ""), ended.error or f"the child ended by signal {ended.signal}"
    value: T = ended.value
    return value


def raw(script: str, *arguments: object, seconds: float = 120) -> str:
    """What a program of tests/raw says about a database file; it opens the file with Python's own SQLite."""
    done = subprocess.run(
        [sys.executable, str(RAW / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


Watch = Callable[[str, int, str], None]
"""Called with what runs (``run``, ``reclaim`` or ``store``), its number from 1, and ``before`` or ``after``."""
Gate = Callable[[str, int], Awaitable[None]]
"""Awaited before something begins (``count`` for the census), outside of any transaction."""


class Watched:
    """An authority whose commits and reclaims are numbered, and watched from the inside of the transaction.

    ``before`` a commit means that the unit has run and COMMIT has not.
    """

    def __init__(self, inner: Authority, *, watch: Watch | None = None, gate: Gate | None = None) -> None:
        self.inner, self.name = inner, inner.name
        self.watch, self.gate = watch, gate
        self.passed: list[tuple[str, int]] = []
        """What was about to be done: of the commits only those whose unit ran to its end."""
        self._begun: Counter[str] = Counter()

    async def run(self, unit: Unit[T]) -> T:
        number = await self.begin("run")

        def watched(tx: Tx) -> T:
            result = unit(tx)
            self.say("run", number, "before")
            return result

        result = await self.inner.run(watched)
        self.say("run", number, "after")
        return result

    async def reclaim(self) -> Reclaimed:
        number = await self.begin("reclaim")
        self.say("reclaim", number, "before")
        result = await self.inner.reclaim()
        self.say("reclaim", number, "after")
        return result

    async def compact(self) -> Reclaimed:
        return await self.inner.compact()

    @property
    def waits(self) -> Reclaimed | None:
        return self.inner.waits

    async def rehearse(self, unit: Unit[T]) -> T:
        return await self.inner.rehearse(unit)

    async def read(self, unit: Unit[T]) -> T:
        return await self.inner.read(unit)

    async def glance(self, unit: Unit[T]) -> T:
        return await self.inner.glance(unit)

    async def read_apart(self, unit: Unit[T]) -> T:
        await self.begin("count")
        return await self.inner.read_apart(unit)

    async def in_one_hop(self, work: Callable[[AtHand], T]) -> T:
        """On a thread of its own, from which each unit takes a hop: so a gate can be awaited before it."""
        return await asyncio.to_thread(work, _FromThread(self, asyncio.get_running_loop()))

    async def examine(self) -> Examined:
        return await self.inner.examine()

    async def inspect(self, work: Callable[[Tx, Sequence[KeptFile]], T]) -> Inspected[T]:
        return await self.inner.inspect(work)

    async def close(self) -> None:
        await self.inner.close()

    def begun(self, what: str) -> int:
        """How many there have been of what is numbered."""
        return self._begun[what]

    async def begin(self, what: str) -> int:
        self._begun[what] += 1
        number = self._begun[what]
        if self.gate is not None:
            await self.gate(what, number)
        return number

    def say(self, what: str, number: int, when: str) -> None:
        if (what, number) not in self.passed:
            self.passed.append((what, number))
        if self.watch is not None:
            self.watch(what, number, when)


class _FromThread:
    """A watched authority for work on another thread than its loop's."""

    def __init__(self, authority: Watched, loop: asyncio.AbstractEventLoop) -> None:
        self._authority, self._loop = authority, loop

    def run(self, unit: Unit[T]) -> T:
        return asyncio.run_coroutine_threadsafe(self._authority.run(unit), self._loop).result()

    def read_apart(self, unit: Unit[T]) -> T:
        return asyncio.run_coroutine_threadsafe(self._authority.read_apart(unit), self._loop).result()


class WatchedStore:
    """A store of bodies whose calls are numbered and watched together with the commits of an authority."""

    def __init__(self, inner: BodyStore, authority: Watched) -> None:
        self.inner, self.name, self.collections = inner, inner.name, inner.collections
        self._authority = authority

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    async def put(self, filing: Filing, body: AsyncIterator[bytes]) -> str:
        return await self._watched(self.inner.put(filing, body))

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        return await self._watched(self.inner.find(collection, asked))

    async def present(self, refs: Iterable[str]) -> frozenset[str]:
        return await self._watched(self.inner.present(refs))

    def read(self, ref: str) -> AsyncIterator[bytes]:
        return self.inner.read(ref)

    async def remove(self, refs: Sequence[str], permit: Permit) -> Removal:
        return await self._watched(self.inner.remove(refs, permit))

    async def reclaim(self) -> Reclaimed:
        return await self._watched(self.inner.reclaim())

    async def _watched(self, call: Awaitable[T]) -> T:
        number = await self._authority.begin("store")
        self._authority.say("store", number, "before")
        result = await call
        self._authority.say("store", number, "after")
        return result


async def watched(settings: Settings, *, watch: Watch | None = None, gate: Gate | None = None) -> Watched:
    """A watched authority on the database of some settings."""
    inner = await open_authority(place_of(settings.db), settings, create=False)
    return Watched(inner, watch=watch, gate=gate)


def opened(
    settings: Settings,
    authority: Watched | None = None,
    clock: Clock | None = None,
    bodies: BodyStore | None = None,
) -> Expunge:
    """A system whose clock stands still, so that two runs write the same times."""
    return Expunge(settings=settings, clock=clock or ManualClock(), authority=authority, bodies=bodies)


def kill_at(point: tuple[str, int, str]) -> Watch:
    """A watch that kills this process at one point, in a way that nothing can catch."""

    def watch(*here: object) -> None:
        if here == point:
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def copied(folder: Path, to: Path) -> Path:
    """A fresh copy of a folder, in the place of an older one."""
    if to.exists():
        shutil.rmtree(to)
    return Path(shutil.copytree(folder, to))


_COUNTERS = 4
"""Of a row of ``orgs``, what stands before the head of the audit, which moves with every entry."""
_ASIDE = ("refused", "read")


async def control(expunge: Expunge) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of the control plane, but for the entries of the audit on refusals and reads: they change nothing."""

    def unit(tx: Tx) -> dict[str, list[tuple[Any, ...]]]:
        return {name: tx.rows(Statement("test.control", f"SELECT * FROM {name} ORDER BY 1, 2, 3")) for name in _CONTROL}

    rows = await expunge.system.authority.read(unit)
    rows["audit"] = [row for row in rows["audit"] if json.loads(row[3])["outcome"] not in _ASIDE]
    rows["orgs"] = [row[:_COUNTERS] for row in rows["orgs"] if any(row[1:_COUNTERS])]
    return rows


async def everything(expunge: Expunge) -> dict[str, Any]:
    """Every row of the database."""
    return {"records": await dump(expunge), "control": await control(expunge)}


def outcomes(state: dict[str, Any]) -> list[str]:
    """What the entries of the audit say became of what they speak of, in order."""
    return [json.loads(row[3])["outcome"] for row in state["control"]["audit"]]


def holding(folder: Path, words: list[str]) -> dict[str, list[str]]:
    """Which of some words stand in the raw bytes of which files of a folder."""
    found = {name: [word for word in words if word.encode() in data] for name, data in files_of(folder).items()}
    return {name: words for name, words in found.items() if words}
