"""Restores that race with purges, ends of windows, other hides and writers, in threads of two processes."""

from __future__ import annotations

import asyncio
import itertools
import json
import mmap
import os
import random
import struct
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.authority.port import Statement, Tx
from expunge.datamap import RECORDS
from expunge.errors import (
    DatabaseBusy,
    ErasedSince,
    ErasureInProgress,
    ErasureInterrupted,
    HiddenByErasure,
    InputError,
    NotRestorable,
    RunnerSuperseded,
    UnknownRequest,
)
from expunge.model.instant import DAY, Instant, SystemClock
from expunge.model.scope import Target
from tests.crash.kit import Child, in_child, raw
from tests.support import episode, event, fact, files_of, memory

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

USERS = [f"user<{number:05}>" for number in range(6)]
SPACES = ["space<1>", "space<2>", None, None]
SECONDS = 15.0
DAYS_A_SECOND = 10
"""How fast days pass: a window ends after 1.4 seconds, and rows of erasures go after 9."""
_READ = Statement(
    "test.read",
    """SELECT id FROM (SELECT id FROM episodes WHERE user_id = :user AND marked = 0 ORDER BY random() LIMIT 2)
    UNION ALL SELECT id FROM (SELECT id FROM facts WHERE marked = 0 ORDER BY random() LIMIT 1)
    UNION ALL SELECT id FROM (SELECT id FROM memories WHERE marked = 0 ORDER BY random() LIMIT 1)""",
)
_MARKED = Statement("test.marked", "SELECT m.id FROM marks m JOIN requests q ON q.rid = m.request WHERE q.id = :id")
_HIDDEN = """EXISTS (SELECT 1 FROM marks g JOIN requests q ON q.rid = g.request
    WHERE g.id = {0} AND g.collection = {0}_collection AND q.status = 'completed' AND q.purge = 0)"""
_SERVED = f"l.derived IN ({' UNION ALL '.join(f'SELECT id FROM {kind.name} WHERE marked = 0' for kind in RECORDS)})"
_UNFOUNDED = Statement(
    "test.unfounded",
    f"""SELECT l.derived, l.source, l.rule FROM lineage l WHERE {_SERVED} AND (
        (l.rule = 'retire' AND {_HIDDEN.format("l.source")}) OR
        (l.rule = 'detach' AND NOT EXISTS (
            SELECT 1 FROM lineage o WHERE o.derived = l.derived AND NOT {_HIDDEN.format("o.source")})))""",
)
"""Edges of what is served though it rests on what a completed erasure hides."""
_ORPHANS = Statement(
    "test.orphans",
    " UNION ALL ".join(
        f"""SELECT r.id FROM {kind.name} r WHERE r.marked <> 0
        AND NOT EXISTS (SELECT 1 FROM marks g WHERE g.id = r.id AND g.collection = '{kind.name}' AND g.rid = r.rid)"""
        for kind in RECORDS
    ),
)
"""What is hidden, and by nobody."""


class SharedClock:
    """A clock that all processes share and that runs fast; it was made before they were forked."""

    def __init__(self) -> None:
        self._real, self._start = SystemClock(), SystemClock().now()
        self._more = mmap.mmap(-1, 8)

    def now(self) -> Instant:
        real = self._real.now()
        passed: int = struct.unpack("q", self._more[:])[0]
        return real + (real - self._start) * DAYS_A_SECOND * 86_400 + passed

    def advance(self, days: int) -> None:
        self._more[:] = struct.pack("q", struct.unpack("q", self._more[:])[0] + days * DAY)


@dataclass(slots=True)
class Tally:
    """What was done, and how it ended: what was written, hidden, purged, restored, and what was refused."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)


REFUSALS = (
    DatabaseBusy,
    ErasedSince,
    ErasureInProgress,
    ErasureInterrupted,
    HiddenByErasure,
    InputError,
    NotRestorable,
    RunnerSuperseded,
    UnknownRequest,
)


class Worker:
    """Somebody who does one kind of thing until the time is over, on a system of its own."""

    def __init__(self, expunge: Expunge, name: str, files: Path) -> None:
        self._expunge, self._name, self._files = expunge, name, files
        self._chance = random.Random(name)
        self._numbers = itertools.count()
        self._known: deque[str] = deque(maxlen=20)
        self.tally: Counter[str] = Counter()

    async def run(self, what: str, is_over: Callable[[], bool]) -> None:
        does: dict[str, Callable[[], Awaitable[None]]] = {
            "write": self._write, "erase": self._erase, "restore": self._restore, "end": self._end, "look": self._look,
        }  # fmt: skip
        while not is_over():
            try:
                await does[what]()
            except REFUSALS as refusal:
                self.tally[f"{what} refused: {refusal.code}"] += 1
            await asyncio.sleep(self._chance.uniform(0, 0.05))

    def _id(self, letter: str) -> str:
        return f"{letter}<{self._name}-{next(self._numbers)}>"

    async def _rows(self, statement: Statement, **values: Any) -> list[str]:
        rows = await self._expunge.system.authority.read(lambda tx: tx.rows(statement, **values))
        return [row[0] for row in rows]

    async def _write(self) -> None:
        """Something new, or something made of what is served: each value names all that it was made from."""
        user, space = self._chance.choice(USERS), self._chance.choice(SPACES)
        at = {} if space is None else {"namespace": space}
        if self._chance.random() < 0.4:
            first, files = self._id("e"), [["a.txt"], []][self._chance.randrange(2)]
            records = [episode(first, user, attachments=files, **at), event(self._id("v"), first)]
            await self._expunge.put(records, attachments_from=self._files)
            self._known.append(first)
            self.tally["written"] += 1
            return
        as_of = await self._expunge.as_of()
        # Now and then somebody goes by what it remembers, and it may be hidden or gone.
        from_memory = self._known and self._chance.random() < 0.4
        read = list(self._known) if from_memory else await self._rows(_READ, user=user)
        some = self._chance.sample(read, min(len(read), self._chance.randint(1, 3)))
        owner = self._chance.choice([None, *USERS])
        made = [
            memory(self._id("m"), self._id("k"), owner, value=some, sources=some, **at),
            fact(self._id("f"), owner, object=json.dumps(some), sources=some, **at),
        ][self._chance.randrange(2)]
        await asyncio.sleep(self._chance.uniform(0, 0.05))
        await self._expunge.put([made], as_of=as_of)
        self.tally["derived"] += bool(some)

    async def _erase(self) -> None:
        purge = self._chance.random() < 0.3
        space = self._chance.choice(SPACES) if not purge else None
        users = self._chance.sample(USERS, self._chance.choice([1, 1, 2]))
        if space is None:
            answer = await self._expunge.erase(*users, purge=purge)
        else:
            answer = await self._expunge.erase(purge=False, namespaces=[space])
        assert answer.status in {"completed", "failed"}, answer
        self.tally[f"{'purged' if purge else 'hidden'} {answer.status}"] += 1

    async def _restore(self) -> None:
        listed = (await self._expunge.call("erasure.list", status="completed")).erasures
        hides = [item.request_id for item in listed if not item.purge]
        if not hides:
            return
        request_id = self._chance.choice(hides)
        marked = await self._rows(_MARKED, id=request_id)
        keys = self._chance.sample(marked, min(len(marked), self._chance.choice([0, 1, 1, 2])))
        restored = await self._expunge.restore(request_id, *keys)
        self.tally["restored by key" if keys else "restored whole"] += bool(restored.reversals_count)

    async def _end(self) -> None:
        for answer in (await self._expunge.call("erasure.resume_due")).erasures:
            self.tally[f"windows ended {answer.status}"] += 1

    async def _look(self) -> None:
        """At any moment nothing is served that rests on what is hidden, and nothing is hidden by nobody."""

        def unit(tx: Tx) -> tuple[list[Any], list[Any]]:
            return tx.rows(_UNFOUNDED), tx.rows(_ORPHANS)

        unfounded, orphans = await self._expunge.system.authority.read(unit)
        assert (unfounded, orphans) == ([], [])
        self.tally["looked"] += 1


def work(settings: Settings, clock: SharedClock, files: Path, jobs: list[str]) -> Tally:
    """Do all of these at once, each in a thread with a system and an event loop of its own."""
    total, lock, end = Tally(), threading.Lock(), time.monotonic() + SECONDS

    def one(number: int, what: str) -> None:
        worker: Worker | None = None

        async def main() -> None:
            nonlocal worker
            batch_rows = [3, 1000][number % 2]
            mine = settings.model_copy(update={"batch_rows": batch_rows})
            async with Expunge(settings=mine, clock=clock) as expunge:
                worker = Worker(expunge, f"{os.getpid()}-{number}", files)
                await worker.run(what, lambda: bool(total.broken) or time.monotonic() >= end)

        broken = ""
        try:
            asyncio.run(main())
        except BaseException:  # noqa: BLE001 (the test is told, whatever it was)
            broken = traceback.format_exc()
        with lock:
            total.counts += worker.tally if worker else Counter()
            total.broken += [broken] if broken else []

    threads = [threading.Thread(target=one, args=item) for item in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total


def test_restores_against_purges_ends_of_windows_and_writers(tmp_path):
    """Laws 4 to 7 and 10: in the end each record is there and served, resting on others that are, or it is gone."""
    settings, files, clock = Settings(db=str(tmp_path / "x.db")), tmp_path / "given", SharedClock()
    files.mkdir()
    (files / "a.txt").write_bytes(b"attached")

    async def make() -> dict[str, tuple[str, str]]:
        async with Expunge(settings=settings, clock=clock) as expunge:
            await expunge.put([episode(f"e<first-{n}>", user) for n, user in enumerate(USERS)])
            keys = expunge.system.keys
            whose = {keys.pseudonyms(Target("default", user_id=user))["user_id"]: ("user_id", user) for user in USERS}
            named = [space for space in SPACES if space]
            return whose | {
                keys.pseudonyms(Target("default", namespace=space))["namespace"]: ("namespace", space)
                for space in named
            }

    whose = in_child(make)
    teams = [
        ["write", "write", "erase", "restore", "end", "look"],
        ["write", "write", "erase", "restore", "restore", "end"],
    ]
    children = [Child(partial(work, settings, clock, files, team)) for team in teams]
    ended = [child.end() for child in children]
    for child in ended:
        assert (child.signal, child.error) == (0, ""), child.error
        assert child.value.broken == []
    counts: Counter[str] = sum((child.value.counts for child in ended), Counter())
    print(dict(sorted(counts.items())))
    for name in ("written", "derived", "purged completed", "hidden completed", "restored whole", "restored by key"):
        assert counts[name] > 0, name
    assert counts["windows ended completed"] > 0
    for refused in ("write refused: HIDDEN", "write refused: ERASED_SINCE", "restore refused: NOT_RESTORABLE"):
        assert counts[refused] > 0, refused
    in_child(lambda: settle(settings, clock, whose))
    assert raw("integrity.py", tmp_path / "x.db").strip() == "ok"


async def settle(settings: Settings, clock: SharedClock, whose: dict[str, tuple[str, str]]) -> None:
    """End all that stopped short and every window, and look at what is left."""
    clock.advance(30)
    async with Expunge(settings=settings, clock=clock) as expunge:
        for item in (await expunge.call("erasure.list")).erasures:
            if item.status in {"in_progress", "failed"}:
                assert (await expunge.resume(item.request_id)).status == "completed"
        clock.advance(30)
        await expunge.call("erasure.resume_due")
        found = {item.status for item in (await expunge.call("erasure.list")).erasures}
        assert found <= {"completed"}, found
        await expunge.system.authority.read(lambda tx: look_at(tx, whose, settings))


def look_at(tx: Tx, whose: dict[str, tuple[str, str]], settings: Settings) -> None:
    """Nothing is hidden or marked, no fence is up, nothing older than a fence is left, nothing rests on what is gone."""

    def rows(text: str, **values: Any) -> list[tuple[Any, ...]]:
        return tx.rows(Statement("test.look", text), **values)

    assert rows("SELECT * FROM marks") == []
    assert rows("SELECT id FROM requests WHERE purge = 0 OR scope IS NOT NULL") == []
    assert rows("SELECT * FROM fences WHERE lowered_seq IS NULL") == []
    there = {kind.name: {row[0] for row in rows(f"SELECT id FROM {kind.name}")} for kind in RECORDS}
    everything = set().union(*there.values())
    for kind in RECORDS:
        assert rows(f"SELECT id FROM {kind.name} WHERE marked <> 0") == [], kind.name
    for derived, source in rows("SELECT derived, source FROM lineage"):
        assert {derived, source} <= everything
    for child in ("events", "attachments"):
        assert rows(f"SELECT id FROM {child} WHERE episode NOT IN (SELECT id FROM episodes)") == []
    # By what it says itself: a memory needs all that it was made from, a fact one of it.
    for record_id, value in rows("SELECT id, value FROM memories"):
        assert set(json.loads(value)) <= everything, record_id
    for record_id, text in rows("SELECT id, object FROM facts"):
        made_from = set(json.loads(text))
        assert not made_from or made_from & everything, record_id
    for user_pn, space_pn, seq in rows(
        "SELECT user_pn, namespace_pn, max(lowered_seq) FROM fences GROUP BY user_pn, namespace_pn"
    ):
        part, value = whose[user_pn or space_pn]
        for kind in RECORDS:
            text = f"SELECT id FROM {kind.name} WHERE {part} = :value AND seq < :seq"
            assert rows(text, value=value, seq=seq) == [], (kind.name, value)
    bodies = {name for name in files_of(Path(settings.db).parent / "x.objects") if name != ".lock"}
    assert {row[0] for row in rows("SELECT ref FROM attachments")} == bodies
    print(f"left in the end: {', '.join(f'{len(found)} {name}' for name, found in there.items())}")
