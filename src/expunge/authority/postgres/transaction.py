"""What a unit of work sees of PostgreSQL: named statements, the locks that it waits for, and the guard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import psycopg
from psycopg import errors

from expunge.authority.fences import fences_of, refuse, values_of
from expunge.authority.port import GuardKey, Row, Statement
from expunge.authority.postgres.examine import COPYING, uncovered
from expunge.authority.postgres.locks import Again, Locks
from expunge.authority.postgres.schema import Schema
from expunge.authority.postgres.sending import Sending
from expunge.authority.postgres.spelling import spelled

_SOME_FENCE = Statement(
    "fences.some",
    """SELECT EXISTS (SELECT 1 FROM fences WHERE org = :org AND lowered_seq IS NULL)
    OR EXISTS (SELECT 1 FROM fences WHERE org = :org AND lowered_seq > :as_of)""",
)
_BY_COPY = 20
"""From so many rows on they are copied in; fewer are inserted one by one, in one go to the server."""
_HOLD_ROWS, _OF_ORGS = ("UPDATE", "DELETE"), "orgs."
_INSERT = re.compile(r"INSERT INTO (\w+) \(([\w, ]+)\) VALUES \((?:\?, )*\?\)")


class PostgresTx:
    """A transaction that is already open, at READ COMMITTED: each statement sees what was committed before it."""

    def __init__(self, sending: Sending, schema: Schema, *, holds: bool = True) -> None:
        """Open for a unit; one of which nothing is kept need not hold anything."""
        self._sending = sending
        self._schema = schema
        self._holds = holds
        self._locks = Locks(sending)
        self._has_rows = False
        self._expected: list[tuple[Callable[[list[Row]], None], Callable[[], list[Row]]]] = []

    def lead(self, org: str, sealing: Iterable[GuardKey] = ()) -> None:
        """Be the only unit of the org that works at an erasure."""
        self._locks.lead(org, sealing)

    def seal(self, keys: Iterable[GuardKey]) -> None:
        """Wait for the units that write into these scopes, and let no other begin."""
        self._locks.seal(keys)

    def enter(self, keys: Iterable[GuardKey]) -> None:
        """Be among the units that ``seal`` waits for."""
        if self._holds:
            self._locks.enter(keys)

    def hold_names(self, org: str, names: Iterable[str]) -> None:
        """Be the only unit that writes under these names."""
        self._locks.hold_names(org, names)

    def settle(self, org: str) -> None:
        """Come to the row of the org."""
        self._locks.settle(org, has_rows=self._has_rows)

    def guard(self, keys: Iterable[GuardKey], as_of: int) -> None:
        """Refuse the unit when a fence matches (law 4).

        The locks are taken by one statement, and the fences are read by the **next**. In one statement both would see
        what was committed before it began, which is before it waited: a fence that an erasure raised meanwhile would
        not be seen. So it would be at REPEATABLE READ, where the whole transaction sees what its first statement saw.
        """
        keys = list(keys)
        self.enter(keys)
        for org in dict.fromkeys(key.org for key in keys):
            if not self.rows(_SOME_FENCE, org=org, as_of=as_of)[0][0]:
                continue  # of most orgs none is up, and none came down since
            for key in keys:
                if key.org == org:
                    refuse(self.rows(fences_of(len(key.parts[0])), **values_of(key, as_of)))

    def ask_numbers(self, collection: str, count: int) -> Callable[[], Sequence[int]]:
        """Numbers of the sequence of a collection; those of a unit that is taken back are not given again."""
        text = f"SELECT nextval('{collection}_rid_seq') FROM generate_series(1, %s)"
        sent = self._sending.send(text, (count,))
        return lambda: [number for (number,) in sent.fetchall()]

    def hold_rows(self, collection: str, org: str, ids: Sequence[str], *, alone: bool) -> bool:
        """Lock rows, in the order of their numbers. Only who works at an erasure waits for them.

        Others hold scopes and names that one may wait for, so they begin anew where a row is taken.
        """
        if not ids or not self._holds:
            return False
        strength = ("NO KEY UPDATE" if alone else "SHARE") + ("" if self._locks.leads else " NOWAIT")
        text = f"""SELECT 1 FROM {collection} r WHERE r.org = %s AND r.id = ANY(%s) ORDER BY r.rid FOR {strength}"""
        try:
            self._sending.rows(text, (org, list(ids)))
        except errors.LockNotAvailable:
            if self._locks.leads:
                raise
            raise Again from None
        self._has_rows = True
        return True

    def ask_uncovered(self) -> Callable[[], list[str]]:
        """Logs, archives and standbys, as the server's settings have them."""
        sent = self._sending.send(COPYING)
        return lambda: uncovered(sent.fetchall())

    @property
    def compares(self) -> bool:
        """Whether pgvector is there."""
        return self._schema.halves is not None

    def rows(self, statement: Statement, /, **values: Any) -> list[Row]:
        """All rows of a statement."""
        return self._sending.rows(self._noted(statement), values)

    def ask(self, statement: Statement, /, **values: Any) -> Callable[[], list[Row]]:
        """All rows of a statement, which is sent; waited for when they are taken."""
        return self._sending.send(self._noted(statement), values).fetchall

    def expect(self, check: Callable[[list[Row]], None], statement: Statement, /, **values: Any) -> None:
        """Send a statement; ``see`` checks what it has answered."""
        self._expected.append((check, self.ask(statement, **values)))

    def see(self) -> None:
        """Check what was expected of statements that were sent."""
        for check, answer in self._expected:
            check(answer())
        self._expected.clear()

    def change(self, statement: Statement, /, **values: Any) -> int:
        """Run a statement that changes rows; how many it changed."""
        return self._sending.count(self._noted(statement), values)

    def ask_change(self, statement: Statement, /, **values: Any) -> Callable[[], int]:
        """Send a statement that changes rows; how many it changed is waited for when that is taken."""
        sent = self._sending.send(self._noted(statement), values)
        return lambda: self._sending.changed(sent)

    def send(self, statement: Statement, /, **values: Any) -> None:
        """Send a statement along with what comes next."""
        self._sending.send(self._noted(statement), values)

    def _noted(self, statement: Statement) -> str:
        text = spelled(statement)
        if text.startswith(_HOLD_ROWS) and not statement.name.startswith(_OF_ORGS):
            self._has_rows = True
        return text

    def change_many(self, statement: Statement, values: Iterable[Mapping[str, Any] | Sequence[Any]], /) -> None:
        """Run a statement once for each set of values; many plain inserts are copied in."""
        rows = iter(values)
        first = list(islice(rows, _BY_COPY))
        if not first:
            return
        plain = _INSERT.fullmatch(statement.postgres or statement.text)
        if plain is None or self._schema.walled or len(first) < _BY_COPY:
            self._sending.send_many(spelled(statement), list(chain(first, rows)))
            return
        types = self._schema.types[plain[1]]
        with self._sending.apart() as cursor:
            _copy(cursor, plain, [types[name] for name in plain[2].split(", ")], chain(first, rows))
        self._sending.on()


def _copy(cursor: psycopg.Cursor, insert: re.Match[str], types: Sequence[int], rows: Iterator[Any]) -> None:
    with cursor.copy(f"COPY {insert[1]} ({insert[2]}) FROM STDIN (FORMAT binary)") as copying:
        copying.set_types(types)
        for row in rows:
            copying.write_row(row)
