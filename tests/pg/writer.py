"""A unit that writes on PostgreSQL and stands still where a test wants it to, on a connection and thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal

import psycopg

from expunge.authority.port import GuardKey
from expunge.authority.postgres.connection import options, prepare
from expunge.authority.postgres.place import PostgresPlace
from expunge.authority.postgres.schema import Schema
from expunge.authority.postgres.sending import Sending
from expunge.authority.postgres.transaction import PostgresTx
from expunge.errors import ExpungeError
from expunge.memory.batch import Batch
from expunge.memory.prepare import prepare as prepare_entries
from expunge.memory.put import Unit, put_records
from expunge.operations.records import reading_of
from expunge.system import System

PATIENCE_S = 20.0
Point = Literal["guarded", "sources guarded", "rows held"]


class Standing(PostgresTx):
    """A unit that stands still at a point until it is told to go on; after that it does not stand again."""

    begin = "BEGIN"

    def __init__(self, connection: psycopg.Connection, at: Point) -> None:
        super().__init__(Sending(connection, along=False), Schema.read(connection))
        self._at, self._guards = at, 0
        self.stands, self.goes_on = threading.Event(), threading.Event()

    def guard(self, keys: Iterable[GuardKey], as_of: int) -> None:
        self.check(list(keys), as_of)
        self._guards += 1
        self._reached("guarded" if self._guards == 1 else "sources guarded")

    def check(self, keys: list[GuardKey], as_of: int) -> None:
        """The guard itself."""
        super().guard(keys, as_of)

    def hold_rows(self, collection: str, org: str, ids: Sequence[str], *, alone: bool) -> bool:
        held = super().hold_rows(collection, org, ids, alone=alone)
        self._reached("rows held")
        return held

    def _reached(self, point: Point) -> None:
        if point == self._at:
            self.stands.set()
            assert self.goes_on.wait(PATIENCE_S)


class Writer:
    """Writes what it is given, and can be asked how it stands."""

    def __init__(self, url: str, kind: type[Standing] = Standing, *, at: Point = "guarded") -> None:
        self._connection = psycopg.connect(**options(PostgresPlace.parse(url), lock_timeout_s=PATIENCE_S))
        self._looking = psycopg.connect(url, autocommit=True)
        prepare(self._connection, Schema.read(self._connection))
        self.tx = kind(self._connection, at)
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None]

    def start(self, batch: Batch, unit: Unit) -> None:
        """Begin to write, up to where it stands, waits for a lock, or is refused."""
        self._writing = self._thread.submit(self._write, batch, unit)
        until = time.monotonic() + PATIENCE_S
        while not (self.tx.stands.is_set() or self.waits() or self._writing.done()):
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
            await asyncio.wrap_future(self._writing)
        except ExpungeError as fault:
            return fault
        return None

    def close(self) -> None:
        self.tx.goes_on.set()
        self._thread.shutdown()
        self._connection.close()
        self._looking.close()


async def begun(system: System, *records: dict[str, Any]) -> tuple[Batch, Unit]:
    """Records to be written by a unit that begins now."""
    batch = Batch(records, reading_of(system, "default"))
    await prepare_entries(system, batch.records.values())
    return batch, Unit(system.keys, await system.as_of())
