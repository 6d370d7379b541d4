"""The PostgreSQL authority: a pool of connections, each used by one thread at a time, and retries."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

import psycopg
from psycopg_pool import ConnectionPool

from expunge.authority.port import AtHand, Examined, Inspected, KeptFile, Reclaimed, Tx, Unit
from expunge.authority.postgres.connection import REPEATED, faults, options, prepare
from expunge.authority.postgres.examine import examine
from expunge.authority.postgres.files import SNAPSHOT, checkpoint, opened_files
from expunge.authority.postgres.locks import Again
from expunge.authority.postgres.migrate import migrate
from expunge.authority.postgres.place import SCHEMA, PostgresPlace
from expunge.authority.postgres.transaction import PostgresTx
from expunge.errors import DatabaseAway

T = TypeVar("T")

_BEGIN = "BEGIN"
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.2
_FEWEST_ATTEMPTS = 3
"""A unit may take longer than anybody waits for a lock; that others were in its way once does not end it."""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY tablename"
_LOGGED = "the server's write-ahead log keeps what was written until it recycles its files"
_DEFERRED = "dead rows wait for a vacuum, index pages for their rebuilding, and the log for its recycling"


class _Units(Protocol):
    def __call__(self, unit: Unit[T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class _Here:
    """The authority at hand, for work on a thread that may use it."""

    run: _Units
    read_apart: _Units


class PostgresAuthority:
    """An opened database. Every public coroutine makes one hop to a thread, which takes a connection of the pool."""

    name = "authority"

    def __init__(self, place: PostgresPlace, *, busy_timeout_s: float, connections: int) -> None:
        self.place = place
        self._busy_timeout_s = busy_timeout_s
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="expunge-postgres")
        self._pool = self._a_pool(connections, "units")
        self._apart = self._a_pool(1, "census")

    def _a_pool(self, connections: int, name: str) -> ConnectionPool:
        asked = options(self.place, lock_timeout_s=self._busy_timeout_s)
        return ConnectionPool(
            asked.pop("conninfo"),
            kwargs=asked,
            min_size=0,
            max_size=connections,
            timeout=self._busy_timeout_s,
            configure=prepare,
            name=name,
            open=False,
        )

    @classmethod
    async def open(
        cls, place: PostgresPlace, *, create: bool, busy_timeout_s: float = 10.0, connections: int = 10
    ) -> PostgresAuthority:
        """Open a database, and bring a new or older one to this version's schema.

        Raises:
            DatabaseAway: there is no server, or it does not let us in.
            DatabaseMissing: there is no schema and ``create`` is false.
            DatabaseForeign, DatabaseNewer: the schema is not ours, or too new; it is left as it is.

        """
        authority = cls(place, busy_timeout_s=busy_timeout_s, connections=connections)
        try:
            await authority._hop(lambda: authority._open(create=create))
        except BaseException:
            await authority.close()
            raise
        return authority

    async def run(self, unit: Unit[T]) -> T:
        """Run a unit and commit it durably; deadlocks and the like are retried."""
        return await self._hop(lambda: self._write(unit))

    async def rehearse(self, unit: Unit[T]) -> T:
        """Run a unit and take it back."""
        return await self._hop(lambda: self._write(unit, keep=False))

    async def read(self, unit: Unit[T]) -> T:
        """Run a unit that only reads, on a snapshot."""
        return await self._hop(lambda: self._read(self._pool, unit))

    async def glance(self, unit: Unit[T]) -> T:
        """As ``read``: the data is not at hand."""
        return await self.read(unit)

    async def read_apart(self, unit: Unit[T]) -> T:
        """Run a unit that only reads, on a connection that serves nothing else."""
        return await self._hop(lambda: self._read(self._apart, unit))

    async def in_one_hop(self, work: Callable[[AtHand], T]) -> T:
        """Do several units in turn on one thread."""
        return await self._hop(lambda: work(_Here(run=self._write, read_apart=self._count)))

    async def reclaim(self) -> Reclaimed:
        """Say that the bytes are not gone yet: a vacuum costs the whole table, whatever an erasure removed of it."""
        return Reclaimed(deferred=_DEFERRED)

    async def compact(self) -> Reclaimed:
        """Vacuum every table and rebuild its indexes; the write-ahead log is the server's to recycle."""
        await self._hop(self._compact)
        return Reclaimed(deferred=_LOGGED)

    async def examine(self) -> Examined:
        """Look at the server and its settings."""
        return await self._hop(lambda: self._read(self._pool, examine))

    async def inspect(self, work: Callable[[Tx, Sequence[KeptFile]], T]) -> Inspected[T]:
        """Run a unit that reads on a snapshot, with the files of the server that hold our schema open beside it."""
        return await self._hop(lambda: self._inspect(work))

    async def close(self) -> None:
        """Wait for what runs and close the connections."""
        await asyncio.to_thread(self._threads.shutdown)
        for pool in (self._pool, self._apart):
            await asyncio.to_thread(pool.close)

    async def _hop(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, job)

    def _open(self, *, create: bool) -> None:
        asked = options(self.place, lock_timeout_s=self._busy_timeout_s)
        with faults(self.place), psycopg.connect(**asked) as connection:
            migrate(connection, self.place, create=create)
        self._pool.open()
        self._apart.open()

    def _write(self, unit: Unit[T], *, keep: bool = True) -> T:
        """Repeat a unit while nothing of it was committed; when the connection breaks in the commit, nobody knows."""
        give_up = time.monotonic() + self._busy_timeout_s
        attempts, pause = 0, _FIRST_PAUSE_S
        while True:
            try:
                with faults(self.place), self._pool.connection() as connection:
                    return self._attempt(connection, unit, keep=keep)
            except _Repeat as fault:
                attempts += 1
                if attempts >= _FEWEST_ATTEMPTS and time.monotonic() >= give_up:
                    with faults(self.place):
                        raise fault.cause from None
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (spreads waiters; not a secret)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _attempt(self, connection: psycopg.Connection, unit: Unit[T], *, keep: bool) -> T:
        try:
            connection.execute(_BEGIN)
            result = unit(PostgresTx(connection, holds=keep))
        except BaseException as fault:
            _take_back(connection)
            if isinstance(fault, (*REPEATED, Again)) or connection.broken:
                raise _Repeat(fault) from fault
            raise
        try:
            connection.execute("COMMIT" if keep else "ROLLBACK")
        except REPEATED as fault:
            raise _Repeat(fault) from fault
        except psycopg.OperationalError as fault:
            raise DatabaseAway(
                f"the connection to {self.place.shown} broke while it committed",
                hint="look whether it was written, and repeat it with its idempotency key if not",
            ) from fault
        return result

    def _compact(self) -> None:
        with faults(self.place), self._apart.connection() as connection:
            tables = [name for (name,) in connection.execute(_TABLES, (SCHEMA,)).fetchall()]
            for name in tables:
                connection.execute(f"VACUUM (INDEX_CLEANUP ON) {SCHEMA}.{name}")
                connection.execute(f"REINDEX TABLE CONCURRENTLY {SCHEMA}.{name}")
            connection.execute("CHECKPOINT")

    def _inspect(self, work: Callable[[Tx, Sequence[KeptFile]], T]) -> Inspected[T]:
        """Have the server write its pages out, and look; ``changed`` when anybody on it has committed meanwhile."""
        ((before,),) = self._count(lambda tx: tx.rows(SNAPSHOT))
        with faults(self.place), self._apart.connection() as connection:
            wrote = checkpoint(connection)

        def unit(tx: Tx) -> tuple[T, tuple[str, ...]]:
            with opened_files(tx, self.place, wrote=wrote) as opened:
                return work(tx, opened.files), tuple(opened.left_out)

        answer, left_out = self._count(unit)
        ((after,),) = self._count(lambda tx: tx.rows(SNAPSHOT))
        return Inspected(answer, before != after, left_out)

    def _read(self, pool: ConnectionPool, unit: Unit[T]) -> T:
        with faults(self.place), pool.connection() as connection:
            connection.execute(_BEGIN_READING)
            try:
                return unit(PostgresTx(connection, holds=False))
            finally:
                _take_back(connection)

    def _count(self, unit: Unit[T]) -> T:
        return self._read(self._apart, unit)


class _Repeat(Exception):
    """The unit is to be run again."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__()
        self.cause = cause


def _take_back(connection: psycopg.Connection) -> None:
    if not connection.closed and connection.info.transaction_status:
        connection.rollback()
