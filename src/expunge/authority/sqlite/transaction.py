"""What a unit of work sees of SQLite: named statements, and the guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import apsw

from expunge.authority.fences import fences_of, refuse, values_of
from expunge.authority.port import GuardKey, Row, Statement
from expunge.authority.sqlite.spelling import spelled

_LAST_NUMBER = "SELECT seq FROM sqlite_sequence WHERE name = ?"


class SqliteTx:
    """A transaction that is already open. SQLite has one writer, so BEGIN IMMEDIATE is the lock of the guard."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def lead(self, org: str, sealing: Iterable[GuardKey] = ()) -> None:
        """Nothing: no other unit writes."""

    def seal(self, keys: Iterable[GuardKey]) -> None:
        """Nothing: the units that wrote have ended."""

    def enter(self, keys: Iterable[GuardKey]) -> None:
        """Nothing: whoever seals writes, and so waits for this unit."""

    def hold_names(self, org: str, names: Iterable[str]) -> None:
        """Nothing: no other unit writes."""

    def settle(self, org: str) -> None:
        """Nothing: no other unit writes."""

    def guard(self, keys: Iterable[GuardKey], as_of: int) -> None:
        """Refuse the unit when a fence matches (law 4); the erasure raises it in a writing transaction too."""
        for key in keys:
            text = spelled(fences_of(len(key.parts[0])).text)
            refuse(self._connection.execute(text, values_of(key, as_of)).fetchall())

    def ask_numbers(self, collection: str, count: int) -> Callable[[], Sequence[int]]:
        """The numbers that the next rows would be given; no other unit can take them."""
        last: list[Row] = self._connection.execute(_LAST_NUMBER, (collection,)).fetchall()
        first = 1 + int(last[0][0] if last else 0)
        return lambda: range(first, first + count)

    def hold_rows(self, collection: str, org: str, ids: Sequence[str], *, alone: bool) -> bool:  # noqa: ARG002 (the port's)
        """Nothing: no other unit writes, so what was read is as it was."""
        return False

    def ask_uncovered(self) -> Callable[[], list[str]]:
        """Nothing: the files are what there is."""
        return list

    @property
    def compares(self) -> bool:
        """It does not."""
        return False

    def rows(self, statement: Statement, /, **values: Any) -> list[Row]:
        """All rows of a statement."""
        return self._connection.execute(spelled(statement.text), values).fetchall()

    def ask(self, statement: Statement, /, **values: Any) -> Callable[[], list[Row]]:
        """All rows of a statement, which is run now: there is no way to wait for."""
        found = self.rows(statement, **values)
        return lambda: found

    def expect(self, check: Callable[[list[Row]], None], statement: Statement, /, **values: Any) -> None:
        """Check what a statement answers."""
        check(self.rows(statement, **values))

    def change(self, statement: Statement, /, **values: Any) -> int:
        """Run a statement that changes rows; how many it changed."""
        self._connection.execute(spelled(statement.text), values).fetchall()
        return self._connection.changes()

    def ask_change(self, statement: Statement, /, **values: Any) -> Callable[[], int]:
        """Run a statement that changes rows; how many it changed."""
        changed = self.change(statement, **values)
        return lambda: changed

    def send(self, statement: Statement, /, **values: Any) -> None:
        """Run a statement that changes rows."""
        self._connection.execute(spelled(statement.text), values).fetchall()

    def change_many(self, statement: Statement, values: Iterable[Mapping[str, Any] | Sequence[Any]], /) -> None:
        """Run a statement once for each set of values."""
        self._connection.executemany(spelled(statement.text), values).fetchall()
