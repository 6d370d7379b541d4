"""What a unit of work sees of SQLite: named statements, and the guard."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import apsw

from expunge.authority.port import GuardKey, Row, Statement
from expunge.authority.sqlite.spelling import spelled
from expunge.errors import ErasedSince, ErasureInProgress

_LAST_NUMBER = "SELECT seq FROM sqlite_sequence WHERE name = ?"


class SqliteTx:
    """A transaction that is already open. SQLite has one writer, so BEGIN IMMEDIATE is the lock of the guard."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def lead(self, org: str) -> None:
        """Nothing: no other unit writes."""

    def seal(self, keys: Iterable[GuardKey]) -> None:
        """Nothing: the units that wrote have ended."""

    def enter(self, keys: Iterable[GuardKey]) -> None:
        """Nothing: whoever seals writes, and so waits for this unit."""

    def hold_names(self, org: str, names: Iterable[str]) -> None:
        """Nothing: no other unit writes."""

    def guard(self, keys: Iterable[GuardKey], as_of: int) -> None:
        """Refuse the unit when a fence matches (law 4); the erasure raises it in a writing transaction too."""
        for key in keys:
            values: dict[str, Any] = {"org": key.org, "as_of": as_of, "dated": key.dated}
            for letter, pseudonyms in zip("naus", key.parts, strict=True):
                values |= {f"{letter}{index}": value for index, value in enumerate(pseudonyms)}
            found = self._connection.execute(_guard_text(len(key.parts[0])), values).fetchall()
            if not found:
                continue
            request_id, lowered = min(found, key=lambda row: row[1] is not None)  # one that is up before all others
            if lowered is None:
                raise ErasureInProgress(f"erasure {request_id} of this scope is running", request_id=request_id)
            raise ErasedSince(f"erasure {request_id} of this scope ended after the work began", request_id=request_id)

    def numbers(self, collection: str, count: int) -> Sequence[int]:
        """The numbers that the next rows would be given; no other unit can take them."""
        last: list[Row] = self._connection.execute(_LAST_NUMBER, (collection,)).fetchall()
        first = 1 + int(last[0][0] if last else 0)
        return range(first, first + count)

    def hold_rows(self, collection: str, org: str, ids: Sequence[str]) -> list[Row]:
        """The rows as they are: no other unit writes."""
        text = f"SELECT r.id, r.marked FROM json_each(?) j CROSS JOIN {collection} r WHERE r.org = ? AND r.id = j.value"
        return self._connection.execute(text, (json.dumps(ids, ensure_ascii=False), org)).fetchall()

    def rows(self, statement: Statement, /, **values: Any) -> list[Row]:
        """All rows of a statement."""
        return self._connection.execute(spelled(statement.text), values).fetchall()

    def change(self, statement: Statement, /, **values: Any) -> int:
        """Run a statement that changes rows; how many it changed."""
        self._connection.execute(spelled(statement.text), values).fetchall()
        return self._connection.changes()

    def change_many(self, statement: Statement, values: Iterable[Mapping[str, Any] | Sequence[Any]], /) -> None:
        """Run a statement once for each set of values."""
        self._connection.executemany(spelled(statement.text), values).fetchall()


@lru_cache
def _guard_text(keys: int) -> str:
    """The fence check for a ring of so many keys: a part matches by any of its pseudonyms, or '' matches all."""

    def matches(column: str, letter: str) -> str:
        return f"{column} IN ('', {', '.join(f':{letter}{index}' for index in range(keys))})"

    return f"""
        SELECT request_id, lowered_seq FROM fences
        WHERE org = :org AND {matches("user_pn", "u")} AND {matches("namespace_pn", "n")}
          AND {matches("session_pn", "s")} AND {matches("agent_pn", "a")}
          AND (lowered_seq IS NULL OR lowered_seq > :as_of)
          AND (before IS NULL OR before > :dated)
    """
