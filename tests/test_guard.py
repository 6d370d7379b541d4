"""The guard on PostgreSQL: what each weaker one would let through, shown with a real server, and that ours does not.

Two orders of two connections are made to happen, none is hoped for: the writer asks while an erasure has raised its
fence and has not committed it, or the writer has asked and is about to write when an erasure comes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from expunge import Settings
from expunge.authority.fences import fences_of, refuse, values_of
from expunge.authority.port import GuardKey
from expunge.authority.postgres.connection import options, prepare
from expunge.authority.postgres.locks import _by_org, _hash
from expunge.authority.postgres.place import PostgresPlace
from expunge.authority.postgres.spelling import spelled
from expunge.authority.postgres.transaction import PostgresTx
from expunge.errors import ErasureInProgress, ExpungeError
from expunge.memory.batch import Batch
from expunge.memory.prepare import prepare as prepare_entries
from expunge.memory.put import Unit, put_records
from expunge.operations.records import reading_of
from expunge.system import System
from tests.agents.kit import read
from tests.crash.kit import opened, watched
from tests.support import memory

pytestmark = pytest.mark.timeout(60)

ANN = "user<ann>"
PATIENCE_S = 20.0


class Ours(PostgresTx):
    """The guard as it is; when it has let the unit through, the unit stands until it is told to go on."""

    begin = "BEGIN"

    def __init__(self, connection: psycopg.Connection) -> None:
        super().__init__(connection)
        self.passed, self.goes_on = threading.Event(), threading.Event()

    def guard(self, keys: Iterable[GuardKey], as_of: int) -> None:
        self.check(list(keys), as_of)
        self.passed.set()
        assert self.goes_on.wait(PATIENCE_S)

    def check(self, keys: list[GuardKey], as_of: int) -> None:
        super().guard(keys, as_of)


class AtRepeatableRead(Ours):
    """All that the transaction sees is of its first statement, which was before it waited for the lock."""

    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ"


class WithoutLock(Ours):
    """The fences are read, and no erasure waits for the unit that has read them."""

    def check(self, keys: list[GuardKey], as_of: int) -> None:
        for key in keys:
            refuse(self.rows(fences_of(len(key.parts[0])), **values_of(key, as_of)))


class InOneStatement(Ours):
    """The lock is taken and the fences are read by one statement, which sees what was there before it waited."""

    def check(self, keys: list[GuardKey], as_of: int) -> None:
        for key in keys:
            ((org, stripes),) = _by_org([key]).items()
            text = f"""WITH locks AS MATERIALIZED (
                SELECT count(pg_advisory_xact_lock_shared(%(org_hash)s::int, k)) AS taken
                FROM unnest(%(stripes)s::int[]) AS k)
            SELECT f.* FROM locks CROSS JOIN LATERAL ({spelled(fences_of(len(key.parts[0])))} OFFSET 0) f
            WHERE locks.taken > 0"""
            values = values_of(key, as_of) | {"org_hash": _hash(org) - (1 << 31), "stripes": sorted(stripes)}
            refuse(self._connection.execute(text, values).fetchall())


class Writer:
    """A unit on a connection and a thread of its own that writes a memory of Ann."""

    def __init__(self, url: str, kind: type[Ours]) -> None:
        self._connection = psycopg.connect(**options(PostgresPlace.parse(url), lock_timeout_s=PATIENCE_S))
        self._looking = psycopg.connect(url, autocommit=True)
        prepare(self._connection)
        self.tx = kind(self._connection)
        self._thread = ThreadPoolExecutor(1)
        self.writing: Future[None]

    def start(self, batch: Batch, unit: Unit) -> None:
        """Begin to write, up to where the guard has let it through, it waits, or it is refused."""
        self.writing = self._thread.submit(self._write, batch, unit)
        until = time.monotonic() + PATIENCE_S
        while not (self.tx.passed.is_set() or self.waits() or self.writing.done()):
            assert time.monotonic() < until

    def _write(self, batch: Batch, unit: Unit) -> None:
        self._connection.execute(self.tx.begin)
        put_records(self.tx, batch, unit, skip_bad=False)
        self._connection.commit()

    def waits(self) -> bool:
        """Whether the server says that it waits for a lock."""
        return self._looks("pid = %s", self._connection.info.backend_pid)

    def stand_in_the_way(self, has_ended: Callable[[], bool]) -> None:
        """Until somebody waits for a lock of it, as the server says, or has ended without."""
        while not (has_ended() or self._looks("%s = ANY(pg_blocking_pids(pid))", self._connection.info.backend_pid)):
            time.sleep(0.005)

    def _looks(self, condition: str, pid: int) -> bool:
        text = f"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND {condition}"
        return bool(self._looking.execute(text, (pid,)).fetchall()[0][0])

    async def go_on(self) -> ExpungeError | None:
        """Let it write; what it was refused by."""
        self.tx.goes_on.set()
        try:
            await asyncio.wrap_future(self.writing)
        except ExpungeError as fault:
            return fault
        return None

    def close(self) -> None:
        self.tx.goes_on.set()
        self._thread.shutdown()
        self._connection.close()
        self._looking.close()


async def written(system: System) -> tuple[Batch, Unit]:
    """A memory of Ann, by a unit that begins now."""
    batch = Batch([memory("m<late>", "likes", ANN, value="late words")], reading_of(system, "default"))
    await prepare_entries(system, batch.records.values())
    return batch, Unit(system.keys, await system.as_of())


async def past_the_fence(expunge: Any) -> list[Any]:
    """What is there of Ann and older than her fence."""
    text = "SELECT id FROM memories WHERE user_id = :user AND seq < (SELECT max(lowered_seq) FROM fences)"
    return [name for (name,) in await read(expunge, text, user=ANN)]


@pytest.fixture
def served(postgres_place: str, tmp_path: Path) -> Settings:
    return Settings(db=postgres_place, keys_file=tmp_path / "expunge.keys")


@pytest.mark.parametrize(
    ("kind", "leaks"), [(InOneStatement, True), (AtRepeatableRead, True), (WithoutLock, True), (Ours, False)]
)
async def test_who_asks_while_a_fence_is_raised(served: Settings, kind: type[Ours], leaks: bool) -> None:
    """Law 4: the fence that a writer has waited for is seen by its guard, and by none that read before it waited."""
    authority = await watched(served)
    async with opened(served, authority) as expunge:
        await expunge.put([memory("m<early>", "likes", ANN)])
        batch, unit = await written(expunge.system)
        writer = Writer(served.db, kind)
        waited: list[bool] = []

        def raised(what: str, number: int, when: str) -> None:
            if (what, number, when) == ("run", 1, "before"):  # the fence is up, and not committed
                writer.start(batch, unit)
                waited.append(writer.waits())

        authority._begun.clear()
        authority.watch = raised
        try:
            answer = await expunge.erase(ANN, purge=True)
            refusal = await writer.go_on()
        finally:
            writer.close()
        assert waited == [kind is not WithoutLock]
        assert (answer.status, answer.residue_count) == ("completed", 0)
        assert await past_the_fence(expunge) == (["m<late>"] if leaks else [])
        assert isinstance(refusal, ErasureInProgress) is not leaks, refusal


@pytest.mark.parametrize(
    ("kind", "leaks"), [(InOneStatement, False), (AtRepeatableRead, False), (WithoutLock, True), (Ours, False)]
)
async def test_who_has_asked_before_a_fence_is_raised(served: Settings, kind: type[Ours], leaks: bool) -> None:
    """Law 4: an erasure waits for who was let through, and then finds what they wrote; where nothing holds it, not."""
    authority = await watched(served)
    async with opened(served, authority) as expunge:
        await expunge.put([memory("m<early>", "likes", ANN)])
        writer = Writer(served.db, kind)
        try:
            writer.start(*await written(expunge.system))
            assert writer.tx.passed.is_set()
            erasing = asyncio.create_task(expunge.erase(ANN, purge=True))
            await asyncio.to_thread(writer.stand_in_the_way, erasing.done)
            assert erasing.done() is (kind is WithoutLock)
            assert await writer.go_on() is None
            answer = await asyncio.wait_for(erasing, PATIENCE_S)
        finally:
            writer.close()
        assert (answer.status, answer.residue_count) == ("completed", 0)
        assert answer.removed["memories"] == (1 if leaks else 2)
        assert await past_the_fence(expunge) == (["m<late>"] if leaks else [])
