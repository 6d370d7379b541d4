"""The SQLite authority: one writer thread, a few readers, WAL, and a reclaim that reads its answer."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import apsw

from expunge.authority.here import Here
from expunge.authority.port import AtHand, Examined, Inspected, KeptFile, Reclaimed, Setting, Statement, Tx, Unit
from expunge.authority.sqlite.connection import faults, open_connection, read_back
from expunge.authority.sqlite.files import opened_files
from expunge.authority.sqlite.migrate import migrate
from expunge.authority.sqlite.place import Place
from expunge.authority.sqlite.transaction import SqliteTx
from expunge.errors import DatabaseBusy

T = TypeVar("T")

_READERS = 2
_LONG_WAL = 1000
"""Pages after which the WAL is moved into the file: SQLite's own default."""
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.1
_MERGE = Statement("search.merge", "INSERT INTO search (search) VALUES ('optimize')")
_DATA_VERSION = Statement("data_version", "PRAGMA data_version")
_BEGIN_READING = Statement("begin_reading", "SELECT count(*) FROM sqlite_schema")


class SqliteAuthority:
    """An opened database. Every public coroutine makes one hop to a thread that owns a connection."""

    name = "authority"
    waits: Reclaimed | None = None

    def __init__(self, place: Place, *, busy_timeout_s: float, reclaim_wait_s: float) -> None:
        self.place = place
        self._busy_timeout_s = busy_timeout_s
        self._reclaim_wait_s = reclaim_wait_s
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="expunge-writer")
        self._reading = ThreadPoolExecutor(_READERS, thread_name_prefix="expunge-reader")
        self._counting = ThreadPoolExecutor(1, thread_name_prefix="expunge-census")
        self._mine = threading.local()
        self._opened: list[apsw.Connection] = []
        self._writer: apsw.Connection
        self._glancing: apsw.Connection | None = None
        self._wal_pages = 0

    @classmethod
    async def open(
        cls, place: Place, *, create: bool, busy_timeout_s: float = 10.0, reclaim_wait_s: float = 5.0
    ) -> SqliteAuthority:
        """Open a database, and bring a new or older one to this version's schema.

        Raises:
            DatabaseMissing: there is no file and ``create`` is false.
            DatabaseForeign, DatabaseNewer: the file is not ours, or too new; it is left as it is.
            DatabaseUnreadable, DiskFull, DatabaseBusy: the machine does not let us.

        """
        authority = cls(place, busy_timeout_s=busy_timeout_s, reclaim_wait_s=reclaim_wait_s)
        try:
            await authority._hop(authority._writing, lambda: authority._open_writer(create=create))
        except BaseException:
            await authority.close()
            raise
        return authority

    async def run(self, unit: Unit[T]) -> T:
        """Run a unit and commit it durably; busy is retried."""
        return await self._hop(self._writing, lambda: self._write(unit))

    async def rehearse(self, unit: Unit[T]) -> T:
        """Run a unit and take it back."""
        return await self._hop(self._writing, lambda: self._write(unit, keep=False))

    async def read(self, unit: Unit[T]) -> T:
        """Run a unit that only reads."""
        return await self._hop(self._reading, lambda: self._read(unit))

    async def glance(self, unit: Unit[T]) -> T:
        """Read a row or two on the event loop: in WAL nobody makes a reader wait. Memory has none, and takes a hop."""
        if self.place.path is None:
            return await self.read(unit)
        with faults(self.place):
            if self._glancing is None:
                self._glancing = open_connection(self.place, create=False, busy_ms=1, query_only=True)
                self._opened.append(self._glancing)
            try:
                return self._glance(self._glancing, unit)
            except (apsw.BusyError, apsw.LockedError):  # somebody recovers or closes the file just now
                pass
        return await self.read(unit)

    async def read_apart(self, unit: Unit[T]) -> T:
        """Run a unit that only reads, on the connection of a thread that does nothing else."""
        return await self._hop(self._counting, lambda: self._read(unit))

    async def in_one_hop(self, work: Callable[[AtHand], T]) -> T:
        """Do several units in turn on the thread that writes."""
        return await self._hop(self._writing, lambda: work(Here(run=self._write, read_apart=self._read)))

    async def reclaim(self) -> Reclaimed:
        """Empty the WAL into the file; ``deferred`` when somebody still reads what was removed."""
        return await self._hop(self._writing, self._truncate)

    async def compact(self) -> Reclaimed:
        """Write the search index anew from the entries that are left: only so do the hashes of those that went go."""
        await self.run(lambda tx: tx.change(_MERGE))
        return await self.reclaim()

    async def examine(self) -> Examined:
        """Look at the connection that writes, and at the files."""
        return await self._hop(self._writing, self._examine)

    async def inspect(self, work: Callable[[Tx, Sequence[KeptFile]], T]) -> Inspected[T]:
        """Run a unit that reads on a snapshot, with the files of the database open beside it."""
        return await self._hop(self._counting, lambda: self._inspect(work))

    async def close(self) -> None:
        """Wait for what runs and close the connections; the last one out empties the WAL, if there is room."""
        for threads in (self._reading, self._counting, self._writing):
            await asyncio.to_thread(threads.shutdown)
        for connection in reversed(self._opened):
            with contextlib.suppress(apsw.Error):  # the WAL stays, and is moved when the file is opened again
                connection.close()
        self._opened.clear()

    async def _hop(self, threads: ThreadPoolExecutor, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, job)

    def _open_writer(self, *, create: bool) -> None:
        def job() -> apsw.Connection:
            return open_connection(self.place, create=create, busy_ms=self._busy_ms)

        with faults(self.place):
            self._writer = self._until_free(job)
            self._opened.append(self._writer)
            self._writer.set_wal_hook(self._note_wal)
            self._until_free(lambda: migrate(self._writer, self.place))

    def _note_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """Called within a commit; it takes the place of SQLite's own checkpoint, see ``_checkpoint``."""
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _open_reader(self) -> apsw.Connection:
        def job() -> apsw.Connection:
            return open_connection(self.place, create=False, busy_ms=self._busy_ms, query_only=True)

        return self._until_free(job)

    def _reader(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self._open_reader()
            self._opened.append(connection)
        return connection

    @property
    def _busy_ms(self) -> int:
        return max(1, round(self._busy_timeout_s * 1000))

    def _write(self, unit: Unit[T], *, keep: bool = True) -> T:
        def job() -> T:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                result = unit(SqliteTx(self._writer))
                self._writer.execute("COMMIT" if keep else "ROLLBACK")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
            return result

        with faults(self.place):
            result = self._until_free(job)
        self._checkpoint()
        return result

    def _checkpoint(self) -> None:
        """Move a long WAL into the file, after the commit and apart from it.

        It is no fault of the unit when the disk is full or somebody reads: what was committed is committed.
        """
        if self._wal_pages >= _LONG_WAL:
            self._wal_pages = 0
            with contextlib.suppress(apsw.Error):
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _read(self, unit: Unit[T]) -> T:
        """Read on this thread's own connection; the thread that writes has another one for that."""
        with faults(self.place):
            connection = self._reader()
            return self._until_free(lambda: self._glance(connection, unit))

    @staticmethod
    def _glance(connection: apsw.Connection, unit: Unit[T]) -> T:
        connection.execute("BEGIN")
        try:
            return unit(SqliteTx(connection))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _until_free(self, job: Callable[[], T]) -> T:
        """Repeat a job while others hold the database: memory has no busy handler, and WAL can answer at once."""
        give_up = time.monotonic() + self._busy_timeout_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return job()
            except (apsw.BusyError, apsw.LockedError, DatabaseBusy):
                if time.monotonic() >= give_up:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (spreads waiters; not a secret)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _examine(self) -> Examined:
        with faults(self.place):
            schema = str(self._writer.pragma("user_version"))
            pragmas = [Setting(*item) for item in read_back(self._writer, self.place, query_only=False)]
        files = [file for file in self.place.files() if file.exists() or file == self.place.path]
        wal = self.place.files()[1] if self.place.path else None
        return Examined(
            versions={"sqlite": apsw.sqlite_lib_version(), "apsw": apsw.apsw_version(), "schema": schema},
            settings=pragmas,
            files=files,
            waiting_bytes=wal.stat().st_size if wal is not None and wal.exists() else 0,
        )

    def _inspect(self, work: Callable[[Tx, Sequence[KeptFile]], T]) -> Inspected[T]:
        def unit(tx: Tx) -> tuple[int, T]:
            tx.rows(_BEGIN_READING)  # only the first read takes the snapshot
            ((version,),) = tx.rows(_DATA_VERSION)
            with opened_files(self.place) as files:
                return version, work(tx, files)

        before, answer = self._read(unit)
        ((after,),) = self._read(lambda tx: tx.rows(_DATA_VERSION))
        return Inspected(answer, changed=before != after)

    def _truncate(self) -> Reclaimed:
        if self.place.path is None:
            return Reclaimed()
        with faults(self.place):
            self._writer.set_busy_timeout(max(1, round(self._reclaim_wait_s * 1000)))
            try:
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except (apsw.BusyError, apsw.LockedError):
                return Reclaimed(deferred="an open reader keeps removed pages in the WAL")
            finally:
                self._writer.set_busy_timeout(self._busy_ms)
            # The page cache still has the stale middles that pages.py kept out of the file (see there);
            # a later write of such a page would bring them back into the WAL.
            self._writer.execute("PRAGMA shrink_memory").fetchall()
        return Reclaimed()
