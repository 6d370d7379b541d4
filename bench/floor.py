"""The floor: the same work as a developer would write it by hand, with the same driver and durability.

Plain connections without the product's file layer, opened once, with the pragmas that decide what a delete costs:
WAL, synchronous FULL, secure_delete, the product's cache size. Each erasure ends with the WAL truncated. Hiding and
restoring end with the commit: nothing has to leave the file.

Whoever hides so that it can be restored has to remember which rows went out of sight. A restore by ``(org, user_id)``
alone would also bring back what another hiding of an overlapping scope (a session, a namespace) keeps hidden, and
what an erasure that runs is about to remove. So the floor keeps a table of the rows that each hiding hid.
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

COLLECTIONS = ("sessions", "events", "attachments", "memories", *HELD)
INDEXED = ("lineage", "search_docsize", "vectors")
_PRAGMAS = (("journal_mode", "wal"), ("synchronous", 2), ("secure_delete", 1), ("mmap_size", 0),
            ("temp_store", 2), ("cache_size", -16 * 1024))  # fmt: skip

_DELETE = "DELETE FROM {} WHERE org = ?1 AND user_id = ?2"
_CUT = "DELETE FROM lineage WHERE org = ?1 AND {end} IN ({ids})"
_IDS = " UNION ALL ".join(f"SELECT id FROM {name} WHERE org = ?1 AND user_id = ?2" for name in COLLECTIONS)
_DELETE_LIST = "DELETE FROM {} WHERE org = ?1 AND user_id IN (SELECT value FROM json_each(?2))"
# The indexes by namespace leave out the rows of nobody, and SQLite takes one only where that is said.
_OF_NAMESPACE = "org = ?1 AND namespace = ?2 AND namespace <> '-'"
_IDS_OF_NAMESPACE = " UNION ALL ".join(f"SELECT id FROM {name} WHERE {_OF_NAMESPACE}" for name in COLLECTIONS)

BARE = tuple(_DELETE.format(name) for name in HELD)
"""The toughest floor: whoever wrote it knows that only three tables hold rows, and that nothing is linked."""

THOROUGH = (
    *(_CUT.format(end=end, ids=_IDS) for end in ("derived", "source")),
    *(_DELETE.format(name) for name in COLLECTIONS),
)
"""The floor of somebody who does not know: every table with people's records, and the edges of what goes."""

BARE_LIST = tuple(_DELETE_LIST.format(name) for name in HELD)

BARE_NAMESPACE = tuple(f"DELETE FROM {name} WHERE {_OF_NAMESPACE}" for name in HELD)
THOROUGH_NAMESPACE = (
    *(_CUT.format(end=end, ids=_IDS_OF_NAMESPACE) for end in ("derived", "source")),
    *(f"DELETE FROM {name} WHERE {_OF_NAMESPACE}" for name in COLLECTIONS),
)
"""The same two for a namespace."""

_HIDDEN = """CREATE TABLE hidden (
    org TEXT NOT NULL, user_id TEXT NOT NULL, collection TEXT NOT NULL, rid INTEGER NOT NULL,
    PRIMARY KEY (org, user_id, collection, rid)) STRICT, WITHOUT ROWID"""
_REMEMBER = tuple(
    f"INSERT INTO hidden SELECT org, user_id, '{name}', rid FROM {name} WHERE org = ?1 AND user_id = ?2 AND marked = 0"
    for name in HELD
)
_HIDE, _SERVE = (
    tuple(f"UPDATE {name} SET marked = {marked} WHERE org = ?1 AND user_id = ?2" for name in HELD) for marked in (1, 0)
)
_SERVE_REMEMBERED = tuple(
    f"""UPDATE {name} SET marked = 0
    WHERE rid IN (SELECT rid FROM hidden WHERE org = ?1 AND user_id = ?2 AND collection = '{name}')"""
    for name in HELD
)
_FORGET = "DELETE FROM hidden WHERE org = ?1 AND user_id = ?2"


class Floor:
    """One connection that erases by hand."""

    def __init__(self, folder: Path, *, vfs: str | None = None) -> None:
        self.connection = apsw.Connection(str(folder / DATABASE), vfs=vfs)
        for name, value in _PRAGMAS:
            self.connection.execute(f"PRAGMA {name} = {value}").fetchall()
            if self.connection.pragma(name) != value:
                raise RuntimeError(f"pragma {name} did not take")

    def erase(self, statements: Sequence[str], about: str) -> None:
        """One user, or one namespace, in one transaction."""
        self._in_one(lambda: self._run(statements, about))

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

    def _in_one(self, work: Callable[[], None], *, truncate: bool = True) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        work()
        self.connection.execute("COMMIT")
        if truncate:
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


class HidingFloor(Floor):
    """One connection that hides users and restores them by hand, and remembers which rows it hid, or does not."""

    def __init__(self, folder: Path, *, remembers: bool) -> None:
        super().__init__(folder)
        self._to_hide = (*_REMEMBER, *_HIDE) if remembers else _HIDE
        self._to_restore = (*_SERVE_REMEMBERED, _FORGET) if remembers else _SERVE
        if remembers and not self.connection.table_exists(None, "hidden"):
            self.connection.execute(_HIDDEN)

    def hide(self, user: str) -> None:
        """One user, in one transaction."""
        self._in_one(lambda: self._run(self._to_hide, user), truncate=False)

    def restore(self, user: str) -> None:
        """The same user back, in one transaction."""
        self._in_one(lambda: self._run(self._to_restore, user), truncate=False)


def left(folder: Path) -> dict[str, int]:
    """How many rows each table of records still holds, and how many entries and vectors the index."""
    tables = (*COLLECTIONS, *INDEXED)
    return {name: rows[0][0] for name, rows in _ask(folder, "SELECT count(*) FROM {}", tables)}


def written(folder: Path) -> dict[str, int]:
    """As ``left``, and how many entries the audit has."""
    return left(folder) | {"audit": _ask(folder, "SELECT count(*) FROM {}", ("audit",))[0][1][0][0]}


def hidden(folder: Path) -> dict[str, list[Any]]:
    """The ids of the rows in each table of records that are hidden."""
    return dict(_ask(folder, "SELECT id FROM {} WHERE marked <> 0 ORDER BY rid", COLLECTIONS))


def _ask(folder: Path, question: str, tables: Sequence[str]) -> list[tuple[str, list[Any]]]:
    connection = apsw.Connection(str(folder / DATABASE), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [(name, connection.execute(question.format(name)).fetchall()) for name in tables]
    finally:
        connection.close()
