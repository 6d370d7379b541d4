"""The PostgreSQL authority: a pool of connections, each used by one thread at a time, and retries."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from expunge.authority.here import Here
from expunge.authority.port import ONE_ORG, AtHand, Examined, Inspected, KeptFile, Reclaimed, Tx, Unit
from expunge.authority.postgres.compacting import DEFERRED, compact
from expunge.authority.postgres.connection import CUT_OFF, REPEATED, faults, options, prepare, what_it_was
from expunge.authority.postgres.examine import examine
from expunge.authority.postgres.files import SNAPSHOT, checkpoint, opened_files
from expunge.authority.postgres.locks import Again
from expunge.authority.postgres.migrate import migrate
from expunge.authority.postgres.place import PostgresPlace
from expunge.authority.postgres.schema import Schema
from expunge.authority.postgres.sending import Sending
from expunge.authority.postgres.transaction import PostgresTx
from expunge.errors import DatabaseAway, ExpungeError

T = TypeVar("T")

_BEGIN_WRITING = "BEGIN"
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_KEPT_TO_ONE = "SELECT set_config('expunge.org', %s, true)"
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.2
_RECONNECT_S = 1.0
"""How long the pool tries to connect before it is asked again: left alone it pauses for longer and longer, also when
the server is back."""
_FEWEST_ATTEMPTS = 3
"""A unit may take longer than anybody waits for a lock; that others were in its way once does not end it."""

# What the pool has to say of a connection that it did not get is said by our error; the driver's words name the user.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class PostgresAuthority:
    """An opened database. Every public coroutine makes one hop to a thread, which takes a connection of the pool."""

    name = "authority"
    waits: Reclaimed | None = DEFERRED

    def __init__(self, place: PostgresPlace, *, busy_timeout_s: float, connections: int) -> None:
        self.place = place
        self._busy_timeout_s = busy_timeout_s
        self._asked = options(place, lock_timeout_s=busy_timeout_s)
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="expunge-postgres")
        self._pool = self._a_pool(connections, "units")
        self._apart = self._a_pool(1, "census")
        self._schema = Schema()

    def _a_pool(self, connections: int, name: str) -> ConnectionPool:
        return ConnectionPool(
            kwargs=self._asked,
            min_size=0,
            max_size=connections,
            timeout=self._busy_timeout_s,
            reconnect_timeout=_RECONNECT_S,
            configure=self._prepare,
            name=name,
            open=False,
        )

    def _prepare(self, connection: psycopg.Connection) -> None:
        prepare(connection, self._schema)

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
        """Read a row or two, without a transaction around the statement."""
        return await self._hop(lambda: self._glance(unit))

    async def read_apart(self, unit: Unit[T]) -> T:
        """Run a unit that only reads, on a connection that serves nothing else."""
        return await self._hop(lambda: self._read(self._apart, unit))

    async def in_one_hop(self, work: Callable[[AtHand], T]) -> T:
        """Do several units in turn on one thread."""
        return await self._hop(lambda: work(Here(run=self._write, read_apart=self._count)))

    async def reclaim(self) -> Reclaimed:
        """Say that the bytes are not gone yet, and what makes them go."""
        return DEFERRED

    async def compact(self) -> Reclaimed:
        """Vacuum every table and build its indexes anew; what is left in the server's log is said."""
        return await self._hop(self._compact)

    async def examine(self) -> Examined:
        """Look at the server and its settings."""
        return await self._hop(self._examine)

    async def inspect(self, work: Callable[[Tx, Sequence[KeptFile]], T]) -> Inspected[T]:
        """Run a unit that reads on a snapshot, with the files of the server that hold our schema open beside it."""
        return await self._hop(lambda: self._inspect(work))

    async def close(self) -> None:
        """Wait for what runs and close the connections."""
        await asyncio.to_thread(self._threads.shutdown)
        for pool in (self._pool, self._apart):
            await asyncio.to_thread(pool.close)

    async def _hop(self, job: Callable[[], T]) -> T:
        here = copy_context()  # the thread has to know which org the operation is about
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: here.run(job))

    def _open(self, *, create: bool) -> None:
        with faults(self.place), psycopg.connect(**self._asked) as connection:
            migrate(connection, self.place, create=create)
            self._schema = Schema.read(connection)
        self._pool.open()
        self._apart.open()

    def _write(self, unit: Unit[T], *, keep: bool = True) -> T:
        return self._repeated(self._pool, lambda connection: self._attempt(connection, unit, keep=keep))

    def _repeated(self, pool: ConnectionPool, attempt: Callable[[psycopg.Connection], T]) -> T:
        """Repeat a unit while nothing of it was committed; when the connection breaks in the commit, nobody knows."""
        give_up = time.monotonic() + self._busy_timeout_s
        attempts, pause = 0, _FIRST_PAUSE_S
        while True:
            try:
                with faults(self.place), self._connected(pool) as connection:
                    return attempt(connection)
            except _Repeat as fault:
                attempts += 1
                if attempts >= _FEWEST_ATTEMPTS and time.monotonic() >= give_up:
                    with faults(self.place):
                        raise fault.cause from None
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (spreads waiters; not a secret)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    @contextmanager
    def _connected(self, pool: ConnectionPool) -> Iterator[psycopg.Connection]:
        connection = self._taken(pool)
        try:
            yield connection
        finally:
            pool.putconn(connection)

    def _taken(self, pool: ConnectionPool) -> psycopg.Connection:
        """A connection of a pool. When there is none in time, the server is asked why, since the pool does not say."""
        give_up = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                return pool.getconn(max(0.001, min(2 * _RECONNECT_S, give_up - time.monotonic())))
            except PoolTimeout:
                if time.monotonic() >= give_up:
                    psycopg.connect(**self._asked).close()
                    raise

    def _attempt(self, connection: psycopg.Connection, unit: Unit[T], *, keep: bool) -> T:
        sending, ending = Sending(connection), False
        try:
            self._begin(sending, _BEGIN_WRITING)
            result = _held_to(unit, PostgresTx(sending, self._schema, holds=keep))
            ending = keep
            sending.end("COMMIT" if keep else "ROLLBACK")
        except BaseException as fault:
            sending.give_up()
            if ending and connection.closed and not isinstance(what_it_was(connection, fault), CUT_OFF):
                raise DatabaseAway(
                    f"the connection to {self.place.shown} broke while it committed",
                    hint="look whether it was written, and repeat it with its idempotency key if not",
                ) from fault
            _repeat_if(connection, fault)
            raise
        return result

    def _begin(self, sending: Sending, text: str) -> None:
        """Begin, and keep the transaction to one org where row-level security binds this role."""
        sending.send(text)
        if self._schema.walled and (org := ONE_ORG.get()) is not None:
            sending.send(_KEPT_TO_ONE, (org,))

    def _compact(self) -> Reclaimed:
        with faults(self.place), self._connected(self._apart) as connection:
            return compact(connection)

    def _examine(self) -> Examined:
        with faults(self.place), self._connected(self._pool) as connection:
            return examine(connection)

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
        return self._repeated(pool, lambda connection: self._look(connection, unit))

    def _look(self, connection: psycopg.Connection, unit: Unit[T]) -> T:
        sending = Sending(connection)
        try:
            self._begin(sending, _BEGIN_READING)
            answer = _held_to(unit, PostgresTx(sending, self._schema, holds=False))
            sending.end("ROLLBACK")
        except BaseException as fault:
            sending.give_up()
            _repeat_if(connection, fault)
            raise
        return answer

    def _glance(self, unit: Unit[T]) -> T:
        if self._schema.walled and ONE_ORG.get() is not None:
            return self._read(self._pool, unit)  # what keeps it to one org lasts as long as a transaction
        return self._repeated(self._pool, lambda connection: self._peek(connection, unit))

    def _peek(self, connection: psycopg.Connection, unit: Unit[T]) -> T:
        try:
            return _held_to(unit, PostgresTx(Sending(connection, along=False), self._schema, holds=False))
        except BaseException as fault:
            _repeat_if(connection, fault)
            raise

    def _count(self, unit: Unit[T]) -> T:
        return self._read(self._apart, unit)


def _held_to(unit: Unit[T], tx: PostgresTx) -> T:
    """Run a unit, and check what it expected: an error of ours may come of what is not so."""
    try:
        result = unit(tx)
    except ExpungeError:
        tx.see()
        raise
    tx.see()
    return result


class _Repeat(Exception):
    """The unit is to be run again."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__()
        self.cause = cause


def _repeat_if(connection: psycopg.Connection, fault: BaseException) -> None:
    """Begin anew after what is repeated; also when the connection broke before anything was committed."""
    if isinstance(fault, (*REPEATED, *CUT_OFF, Again)) or connection.closed:
        raise _Repeat(what_it_was(connection, fault)) from fault
