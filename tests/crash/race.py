"""Writers and erasers that race, on whichever authority: what they write, what they erase, and what is counted."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import threading
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from expunge import Expunge, MemoryDraft, Source
from expunge.authority.port import Statement, Tx
from expunge.authority.postgres import engine as postgres
from expunge.errors import (
    DatabaseBusy,
    ErasedSince,
    ErasureInProgress,
    ErasureInterrupted,
    HiddenByErasure,
    IdempotencyConflict,
    InvalidRecords,
    NotRestorable,
)
from expunge.model.scope import Target
from tests.support import block, episode, event, fact, memory, session

USERS = [f"user<{number:05}>" for number in range(10)]
NAMESPACES = ["space<1>", "space<2>", "space<3>"]
SESSIONS = {user: [f"session<{user}-{number}>" for number in range(2)] for user in USERS}
OLD, LIMIT = "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"
"""When what is dated happened, and the date before which some erasures take all; the rest is dated later."""
REFUSALS = (ErasureInProgress, ErasedSince, HiddenByErasure, IdempotencyConflict, InvalidRecords, DatabaseBusy)
LONGEST_PAUSE_S = 0.08
KINDS = (
    "direct", "bulk", "dated", "own words", "derived", "derived fact", "derived from derived", "replayed",
    "set again", "extracted", "imported",
)  # fmt: skip
Identity = dict[str, Any]

_EPISODES = Statement(
    "test.episodes",
    """SELECT id, namespace, session_id FROM episodes WHERE user_id = :user AND marked = 0
    AND (:any = 1 OR occurred_at > 1609459200000000) ORDER BY random() LIMIT :most""",
)
_SUMMARIES = Statement(
    "test.summaries",
    """SELECT m.id, m.value FROM memories m WHERE m.marked = 0 AND m.user_id <> :user AND :any = 1
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
    written: list[list[Any]] = field(default_factory=list)
    """What nothing but an erasure may remove: id, user, namespace, session, seq."""
    broken: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.accepted += other.accepted
        self.refused += other.refused
        self.late += other.late
        self.written += other.written
        self.broken += other.broken


_POSTGRES = "/authority/postgres/"
repeated: Counter[str] = Counter()
"""In this process: how often a unit on PostgreSQL began anew, by why."""


class _CountedRepeat(postgres._Repeat):
    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        frames = [frame.name for frame in traceback.extract_tb(cause.__traceback__) if _POSTGRES in frame.filename]
        repeated[f"{type(cause).__name__} in {[name for name in frames if name[0] != '_'][-1:]}"] += 1


def count_repeats() -> None:
    """Count in this process how often units begin anew."""
    postgres._Repeat = _CountedRepeat  # type: ignore[misc]


def names_of(expunge: Expunge) -> dict[str, str]:
    """What each pseudonym stands for."""
    keys = expunge.system.keys
    targets = [Target("default", user_id=user) for user in USERS]
    targets += [Target("default", namespace=namespace) for namespace in NAMESPACES]
    targets += [Target("default", session_id=name) for user in USERS for name in SESSIONS[user]]
    return {keys.pseudonyms(target)[part]: value for target in targets for part, value in target.named().items()}


class Writer:
    """Random units of work: what it writes holds the ids of the records whose words it repeats."""

    def __init__(self, expunge: Expunge, name: str, seed: int) -> None:
        self._expunge, self._name = expunge, name
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self._again: list[tuple[list[dict[str, Any]], dict[str, int]]] = []
        self._set: list[tuple[dict[str, Any], dict[str, int]]] = []
        self._exports: list[bytes] = []
        self.tally = Tally()
        expunge.system.derivers["words"] = self._derive

    async def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            kind = self._chance.choice(KINDS)
            try:
                await self._unit(kind)
                self.tally.accepted[kind] += 1
            except REFUSALS as refusal:
                self.tally.refused[refusal.code] += 1
            await self._pause()  # leave some of the two cores to the erasers

    async def _pause(self) -> None:
        await asyncio.sleep(self._chance.uniform(0, LONGEST_PAUSE_S))

    async def _unit(self, kind: str) -> None:
        user, other = self._chance.sample(USERS, 2)
        as_of = await self._expunge.as_of()
        if kind == "set again":
            await self._set_again(user, as_of)
        elif kind == "extracted":
            await self._extract(user, other, as_of)
        elif kind == "imported":
            await self._import(user)
        else:
            records = await self._made(kind, user, other)
            if kind == "replayed" and self._again:
                records, as_of = self._chance.choice(self._again)
            await self._put(kind, records, as_of)
        self.tally.late += as_of.get("default", 0) > 0

    async def _put(self, kind: str, records: list[dict[str, Any]], as_of: dict[str, int]) -> None:
        if self._chance.random() < 0.7:
            await self._pause()
        await self._expunge.put(records, as_of=as_of)
        self._again = [*self._again[-20:], (records, as_of)]
        if kind in ("direct", "bulk"):
            self.tally.written += [
                [row["id"], row["user_id"], row["namespace"], row["session_id"], as_of.get("default", 0)]
                for row in records
                if row["collection"] == "episodes"
            ]

    def _id(self, letter: str) -> str:
        return f"{letter}<{self._name}-{next(self._numbers)}>"

    def _who(self, user: str) -> Identity:
        return {"namespace": self._chance.choice(NAMESPACES), "session_id": self._chance.choice(SESSIONS[user])}

    async def _rows(self, statement: Statement, user: str, most: int, *, dated: bool = True) -> list[Any]:
        def unit(tx: Tx) -> list[Any]:
            return tx.rows(statement, user=user, most=most, any=int(dated))

        return await self._expunge.system.authority.read(unit)

    async def _made(self, kind: str, user: str, other: str) -> list[dict[str, Any]]:
        if kind == "direct":
            return self._of_episode(user)
        if kind == "bulk":
            people = [user, other, self._chance.choice(USERS)]
            return [record for person in people for _ in range(3) for record in self._of_episode(person)]
        if kind == "dated":
            return [episode(self._id("e"), user, occurred_at=OLD, **self._who(user))]
        if kind in ("own words", "replayed"):
            # It repeats what it has read and names no source: its own identity alone has to refuse it.
            return [self._memory("likes", *await self._own(user))]
        read = [row[0] for row in await self._rows(_EPISODES, user, 2)]
        read += [row[0] for row in await self._rows(_EPISODES, other, self._chance.randint(0, 1))]
        if kind == "derived":
            owner = {} if self._chance.random() < 0.5 else {"user_id": USERS[0]}
            return [self._memory(self._id("k"), read, owner, sources=read)]
        if kind == "derived fact":
            return [fact(self._id("f"), sources=read, object=json.dumps(read))]
        found = await self._rows(_SUMMARIES, user, 2)
        words = sorted({root for _, value in found for root in json.loads(value)["words_of"]})
        sources = [row[0] for row in found]
        return [self._memory(self._id("k"), [*words, *sources], {}, sources=sources)]

    def _of_episode(self, user: str) -> list[dict[str, Any]]:
        first, who = self._id("e"), self._who(user)
        return [
            episode(first, user, **who),
            event(self._id("v"), first, user, **who),
            session(self._id("s"), user, namespace=who["namespace"]),
            block(self._id("b"), "persona", user, **who),
            fact(self._id("f"), user, object=json.dumps([]), **who),
        ]

    async def _own(self, user: str) -> tuple[list[str], Identity]:
        """Words of one session of a user, and whose they are: what erases the one erases the other, but by a date."""
        read = await self._rows(_EPISODES, user, 1, dated=False)
        ((record_id, namespace, name),) = read or [(None, NAMESPACES[0], SESSIONS[user][0])]
        identity = {"user_id": user}
        identity |= {part: value for part, value in (("namespace", namespace), ("session_id", name)) if value != "-"}
        return [] if record_id is None else [record_id], identity

    def _memory(self, key: str, words: list[str], identity: Identity, **fields: Any) -> dict[str, Any]:
        return memory(self._id("m"), key, value={"words_of": words}, **identity, **fields)

    async def _set_again(self, user: str, as_of: dict[str, int]) -> None:
        """Write a value under an idempotency key, or repeat one of the last ones as the unit that it was."""
        if self._set and self._chance.random() < 0.5:
            values, as_of = self._chance.choice(self._set)
        else:
            words, who = await self._own(user)
            values = {"key": "set", "value": {"words_of": words}, "idempotency_key": self._id("i")} | who
            self._set = [*self._set[-20:], (values, as_of)]
            await self._pause()
        await self._expunge.call("memory.set", as_of=as_of, **values)

    async def _extract(self, user: str, other: str, as_of: dict[str, int]) -> None:
        """Queue what is to be derived, and run what waits longest: it is read, thought about, and only then written."""
        read = [row[0] for row in await self._rows(_EPISODES, user, 2)]
        read += [row[0] for row in await self._rows(_EPISODES, other, 1)]
        if read:
            who: dict[str, Any] = {"user_id": user, "deriver": "words", "key": self._id("k"), "sources": read}
            await self._expunge.call("jobs.add", as_of=as_of, **who)
        await self._expunge.call("jobs.run", limit=2)

    async def _derive(self, sources: Sequence[Source]) -> list[Any]:
        await self._pause()
        return [MemoryDraft({"words_of": [source.id for source in sources]})]

    async def _import(self, user: str) -> None:
        """Bring back an export that was made a while ago."""
        if len(self._exports) < 5 or self._chance.random() < 0.3:
            made = await self._expunge.call("subject.export", user_id=user, format="jsonl")
            self._exports = [*self._exports[-9:], b"".join([piece async for piece in made.pieces()])]
            await self._pause()
        await self._expunge.import_export(self._chance.choice(self._exports))


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


class Eraser:
    """Erasures of overlapping scopes, one after the other; some only hide, and some of those are restored."""

    def __init__(self, runners: list[Expunge], seed: int, *, pause_s: float = 0.0) -> None:
        self._runners, self._chance, self._pause_s = runners, random.Random(seed), pause_s
        self._hidden: list[str] = []
        self.met: Counter[str] = Counter()

    async def run(self, count: int, look: Callable[[int], Awaitable[None]]) -> Counter[str]:
        """So many erasures; what they ended as, or met on the way."""
        for number in range(1, count + 1):
            expunge = self._chance.choice(self._runners)
            kind, users, scope = self._scope()
            answer = await self._erase(expunge, users, scope)
            self.met[str(answer.status)] += 1
            self.met[f"of {kind}{'' if scope['purge'] else ', hidden'}"] += 1
            self.met["removed"] += sum(answer.removed.values())
            self.met["derived"] += answer.effects.get("derived", 0)
            self.met["detached"] += answer.effects.get("detached", 0)
            if not scope["purge"]:
                self._hidden.append(answer.request_id)
            if self._hidden and self._chance.random() < 0.2:
                await self._restore(expunge)
            await look(number)
            await asyncio.sleep(self._chance.uniform(0, self._pause_s))  # or nobody would have anything to lose
        return self.met

    def _scope(self) -> tuple[str, list[str], dict[str, Any]]:
        users = self._chance.sample(USERS, self._chance.choice([1, 1, 1, 2, 3]))
        kinds = {"user": 60, "session": 12, "namespace": 10, "user in a namespace": 6, "date": 10, "org": 2}
        kind = self._chance.choices(list(kinds), list(kinds.values()))[0]
        scope: dict[str, Any] = {"purge": self._chance.random() < 0.8}
        if kind == "session":
            return kind, [], scope | {"session_id": self._chance.choice(SESSIONS[users[0]])}
        if kind == "namespace":
            return kind, [], scope | {"namespaces": [self._chance.choice(NAMESPACES)]}
        if kind == "user in a namespace":
            return kind, users[:1], scope | {"namespaces": [self._chance.choice(NAMESPACES)]}
        if kind == "date":
            return kind, users, scope | {"before": LIMIT}
        return (kind, [], {"purge": True, "whole_org": True}) if kind == "org" else (kind, users, scope)

    async def _erase(self, expunge: Expunge, users: list[str], scope: dict[str, Any]) -> Any:
        while True:
            try:
                return await expunge.erase(*users, **scope)
            except DatabaseBusy:
                self.met["busy"] += 1
            except ErasureInterrupted as fault:
                self.met["interrupted"] += 1
                return await expunge.resume(fault.data["request_id"])

    async def _restore(self, expunge: Expunge) -> None:
        request = self._hidden.pop(self._chance.randrange(len(self._hidden)))
        try:
            answer = await expunge.restore(request)
            self.met["restored"] += sum(answer.restored.values())
            self.met["restores"] += 1
        except (NotRestorable, ErasureInProgress, DatabaseBusy) as refusal:
            self.met[f"restore refused: {refusal.code}"] += 1
