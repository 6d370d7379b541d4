"""Writers and an eraser that race: what they write, and what is counted."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from expunge import Expunge
from expunge.authority.port import Statement, Tx
from expunge.errors import (
    DatabaseBusy,
    ErasedSince,
    ErasureInProgress,
    ErasureInterrupted,
    InvalidRecords,
)
from tests.support import block, episode, event, fact, memory, session

USERS = [f"user<{number:05}>" for number in range(10)]
REFUSALS = (ErasureInProgress, ErasedSince, InvalidRecords, DatabaseBusy)
LONGEST_PAUSE_S = 0.08

_EPISODES = Statement(
    "test.episodes", "SELECT id FROM episodes WHERE user_id = :user AND marked = 0 ORDER BY random() LIMIT :most"
)
_SUMMARIES = Statement(
    "test.summaries",
    """SELECT m.id, m.value FROM memories m WHERE m.marked = 0 AND m.user_id <> :user
    AND EXISTS (SELECT 1 FROM lineage l WHERE l.derived = m.id) ORDER BY random() LIMIT :most""",
)

Open = Callable[[], Awaitable[Expunge]]


@dataclass(slots=True)
class Tally:
    """What became of the units of one process: by kind how many were accepted, by error how many were refused."""

    pid: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    late: int = 0
    """Accepted for somebody whose erasure had ended before the unit began."""
    broken: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.accepted += other.accepted
        self.refused += other.refused
        self.late += other.late
        self.broken += other.broken


class Writer:
    """Random units of work: what it writes holds the ids of the records whose words it repeats."""

    def __init__(self, expunge: Expunge, name: str, seed: int) -> None:
        self._expunge, self._name = expunge, name
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self.tally = Tally()

    async def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            kind = self._chance.choice(["direct", "own words", "derived", "derived fact", "derived from derived"])
            try:
                await self._unit(kind)
                self.tally.accepted[kind] += 1
            except REFUSALS as refusal:
                self.tally.refused[refusal.code] += 1
            await asyncio.sleep(self._chance.uniform(0, LONGEST_PAUSE_S))  # leave some of the two cores to the eraser

    async def _unit(self, kind: str) -> None:
        user, other = self._chance.sample(USERS, 2)
        as_of = await self._expunge.as_of()
        records = await self._made(kind, user, other)
        if self._chance.random() < 0.7:
            await asyncio.sleep(self._chance.uniform(0, LONGEST_PAUSE_S))
        await self._expunge.put(records, as_of=as_of)
        self.tally.late += as_of.get("default", 0) > 0

    def _id(self, letter: str) -> str:
        return f"{letter}<{self._name}-{next(self._numbers)}>"

    async def _rows(self, statement: Statement, user: str, most: int) -> list[Any]:
        def unit(tx: Tx) -> list[Any]:
            return tx.rows(statement, user=user, most=most)

        return await self._expunge.system.authority.read(unit)

    async def _made(self, kind: str, user: str, other: str) -> list[dict[str, Any]]:
        if kind == "direct":
            first = self._id("e")
            return [
                episode(first, user),
                event(self._id("v"), first),
                session(self._id("s"), user),
                block(self._id("b"), "persona", user),
                fact(self._id("f"), user, object=json.dumps([])),
            ]
        read = [row[0] for row in await self._rows(_EPISODES, user, 2)]
        if kind == "own words":
            # It repeats what it has read and names no source: its own key alone has to refuse it.
            return [self._memory("likes", read, user)]
        read += [row[0] for row in await self._rows(_EPISODES, other, self._chance.randint(0, 1))]
        if kind == "derived":
            return [self._memory(self._id("k"), read, self._chance.choice([None, USERS[0]]), sources=read)]
        if kind == "derived fact":
            return [fact(self._id("f"), sources=read, object=json.dumps(read))]
        found = await self._rows(_SUMMARIES, user, 2)
        words = sorted({root for _, value in found for root in json.loads(value)["words_of"]})
        sources = [row[0] for row in found]
        return [self._memory(self._id("k"), [*words, *sources], sources=sources)]

    def _memory(self, key: str, words: list[str], user: str | None = None, **fields: Any) -> dict[str, Any]:
        return memory(self._id("m"), key, user, value={"words_of": words}, **fields)


def write_in_threads(open_one: Open, threads: int, is_over: Callable[[], bool]) -> Callable[[], Tally]:
    """Start writers in threads, each with a system and an event loop of its own; what waits for them and sums up."""
    total = Tally(os.getpid())
    lock = threading.Lock()

    def work(number: int) -> None:
        async def main() -> Tally:
            async with await open_one() as expunge:
                writer = Writer(expunge, f"{os.getpid()}-{number}", 100 * os.getpid() + number)
                await writer.run(is_over)
                return writer.tally

        try:
            tally = asyncio.run(main())
        except BaseException:  # noqa: BLE001 (the test is told, whatever it was)
            tally = Tally(broken=[traceback.format_exc()])
        with lock:
            total.add(tally)

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()

    def wait() -> Tally:
        for thread in running:
            thread.join()
        return total

    return wait


async def erase_many(
    runners: list[Expunge], count: int, seed: int, look: Callable[[int], Awaitable[None]]
) -> Counter[str]:
    """So many erasures one after the other, of one user or a few; what they ended as, or met on the way."""
    chance = random.Random(seed)
    met: Counter[str] = Counter()
    for number in range(1, count + 1):
        expunge = chance.choice(runners)
        users = chance.sample(USERS, chance.choice([1, 1, 1, 2, 3]))
        answer = None
        while answer is None:
            try:
                answer = await expunge.erase(*users, purge=True)
            except DatabaseBusy:
                met["busy"] += 1
            except ErasureInterrupted as fault:
                met["interrupted"] += 1
                answer = await expunge.resume(fault.data["request_id"])
        met[str(answer.status)] += 1
        met["removed"] += sum(answer.removed.values())
        met["deferred"] += bool(answer.deferred)
        met["derived"] += answer.effects.get("derived", 0)
        met["detached"] += answer.effects.get("detached", 0)
        await look(number)
    return met


def wait_for(seconds: float) -> Callable[[], bool]:
    """Whether so many seconds have passed since now."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
