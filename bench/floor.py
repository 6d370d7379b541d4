"""The floor: the same deletes as a developer would write them by hand, with the same driver and durability.

Plain connections without the product's file layer, opened once, with the pragmas that decide what a delete costs:
WAL, synchronous FULL, secure_delete, the product's cache size. Each erasure ends with the WAL truncated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from bench.build import DATABASE, ORG

HELD = ("episodes", "facts", "blocks")
"""The tables that hold rows."""

COLLECTIONS = ("sessions", "events", "memories", *HELD)
_PRAGMAS = (("journal_mode", "wal"), ("synchronous", 2), ("secure_delete", 1), ("mmap_size", 0),
            ("temp_store", 2), ("cache_size", -16 * 1024))  # fmt: skip

_DELETE = "DELETE FROM {} WHERE org = ?1 AND user_id = ?2"
_CUT = "DELETE FROM lineage WHERE org = ?1 AND {end} IN ({ids})"
_IDS = " UNION ALL ".join(f"SELECT id FROM {name} WHERE org = ?1 AND user_id = ?2" for name in COLLECTIONS)
_DELETE_LIST = "DELETE FROM {} WHERE org = ?1 AND user_id IN (SELECT value FROM json_each(?2))"

BARE = tuple(_DELETE.format(name) for name in HELD)
"""The toughest floor: whoever wrote it knows that only three tables hold rows, and that nothing is linked."""

THOROUGH = (
    *(_CUT.format(end=end, ids=_IDS) for end in ("derived", "source")),
    *(_DELETE.format(name) for name in COLLECTIONS),
)
"""The floor of somebody who does not know: every table with people's records, and the edges of what goes."""

BARE_LIST = tuple(_DELETE_LIST.format(name) for name in HELD)


class Floor:
    """One connection that erases users by hand."""

    def __init__(self, folder: Path, *, vfs: str | None = None) -> None:
        self.connection = apsw.Connection(str(folder / DATABASE), vfs=vfs)
        for name, value in _PRAGMAS:
            self.connection.execute(f"PRAGMA {name} = {value}").fetchall()
            if self.connection.pragma(name) != value:
                raise RuntimeError(f"pragma {name} did not take")

    def erase(self, statements: Sequence[str], user: str) -> None:
        """One user, in one transaction."""
        self._in_one(lambda: self._run(statements, user))

    def erase_each(self, statements: Sequence[str], users: Sequence[str]) -> None:
        """Many users in one transaction, one after the other."""

        def work() -> None:
            for user in users:
                self._run(statements, user)

        self._in_one(work)

    def erase_list(self, statements: Sequence[str], users: Sequence[str]) -> None:
        """Many users in one transaction, all of them in each statement."""
        self._in_one(lambda: self._run(statements, json.dumps(users)))

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()

    def _run(self, statements: Sequence[str], about: str) -> None:
        for statement in statements:
            self.connection.execute(statement, (ORG, about))

    def _in_one(self, work: Callable[[], None]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        work()
        self.connection.execute("COMMIT")
        self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def left(folder: Path) -> dict[str, int]:
    """How many rows each table of records still holds."""
    connection = apsw.Connection(str(folder / DATABASE), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        counts: dict[str, int] = {}
        for name in (*COLLECTIONS, "lineage"):
            row: Any = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
            counts[name] = row[0]
        return counts
    finally:
        connection.close()
