"""An eye from outside: a database as another program sees it and changes it, on each authority.

Of SQLite a process of its own opens the file, with the standard library's SQLite (``tests/raw``); of PostgreSQL a
connection of its own is enough. Neither knows anything of Expunge but its tables.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from expunge import Expunge, Settings
from tests.support import files_of

RAW = Path(__file__).parent / "raw"
SCHEMA = "expunge"
OF_SQLITE = {"sqlite_sequence", "search_data", "search_idx", "search_docsize", "search_config"}
"""SQLite's own: the numbers of rows, and what the search index is kept in (its words are keyed hashes)."""
OF_POSTGRES = {"schema_version", "search.record"}
"""What a table of a server says in a column, and SQLite without one: by a pragma, and as the number of a row."""

_SPELLINGS = (
    (re.compile(r"\bzeroblob\((\d+)\)"), r"decode(repeat('00', \1), 'hex')"),
    (re.compile(r"\bsearch_docsize\b"), "search"),
    (re.compile(r"\bjson_extract\((\w+), '\$'\)"), r"\1::jsonb #>> '{}'"),
)
"""What SQLite writes in statements of tests, as PostgreSQL has it."""

Schema = dict[str, list[str]]


def is_served(db: str) -> bool:
    """Whether a database is on a server."""
    return db.startswith("postgresql://")


def home(settings: Settings) -> Path:
    """The folder of a test's keys and bodies, and of its database where that is a file."""
    return Path(settings.db).parent if settings.keys_file is None else settings.keys_file.parent


def reclaims(settings: Settings) -> bool:
    """Whether the bytes are gone when an erasure ends; a server says in the receipt that they wait for a vacuum."""
    return not is_served(settings.db)


def changed(settings: Settings, **fields: Any) -> Settings:
    """Settings that differ in some fields."""
    return settings.model_copy(update=fields)


def tamper(db: str, *statements: str) -> None:
    """Change a database as another program does that knows nothing of the keys: all of it or nothing.

    :raises Refused: the database does not take it.
    """
    if is_served(db):
        try:
            with connected(db) as connection, connection.transaction():
                for text in statements:
                    connection.execute(_spelled(text))
        except psycopg.Error as fault:
            raise Refused(type(fault).__name__) from fault
        return
    done = subprocess.run(
        [sys.executable, str(RAW / "tamper.py"), db],
        input=json.dumps(statements), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Refused(done.stderr)


class Refused(Exception):
    """The database does not take a change."""


def behind(expunge: Expunge, *statements: str) -> list[tuple[Any, ...]]:
    """Change a database that is open behind everybody's back, also in what another SQLite could not; the last rows."""
    rows: list[tuple[Any, ...]] = []
    if is_served(expunge.settings.db):
        with connected(expunge.settings.db) as connection:
            for text in statements:
                cursor = connection.execute(_spelled(text))
                rows = cursor.fetchall() if cursor.description else []
        return rows
    store: Any = expunge.system.authority
    for text in statements:
        rows = store._writer.execute(text).fetchall()
    return rows


def told(db: str, *statements: str) -> list[list[list[Any]]]:
    """What another program reads: the rows of each statement."""
    if is_served(db):
        with connected(db) as connection:
            return [[list(row) for row in connection.execute(_spelled(text)).fetchall()] for text in statements]
    done = subprocess.run(
        [sys.executable, str(RAW / "views.py"), db],
        input=json.dumps(statements), capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[list[list[Any]]] = json.loads(done.stdout)
    return found


def schema_of(expunge: Expunge) -> Schema:
    """Every table and view with its columns, but for what is the database's own."""
    if is_served(expunge.settings.db):
        text = f"""SELECT c.relname, a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            WHERE n.nspname = '{SCHEMA}' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY c.relname, a.attnum"""
        own = OF_POSTGRES
    else:
        text = """SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
            WHERE t.type IN ('table', 'view') ORDER BY t.name, c.cid"""
        own = OF_SQLITE
    found: Schema = {}
    for table, column in behind(expunge, text):
        if not {table, f"{table}.{column}"} & own:
            found.setdefault(table, []).append(column)
    return found


def bytes_of(settings: Settings) -> dict[str, bytes]:
    """All bytes of a test's folder, and of every row that a server would give: dead ones wait there for a vacuum."""
    files = files_of(home(settings))
    return files | rows_of(settings.db) if is_served(settings.db) else files


def rows_of(db: str) -> dict[str, bytes]:
    """The rows of every table of a server, as the bytes that its values are."""
    found = {}
    with connected(db) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (SCHEMA,)).fetchall()
        for (name,) in tables:
            with connection.cursor().copy(_spelled(f"COPY {name} TO STDOUT (FORMAT binary)")) as copying:
                found[f"table {name}"] = b"".join(bytes(piece) for piece in copying)
    return found


def columns_of(db: str) -> Iterator[tuple[str, bytes]]:
    """Every text and every bytes of a server, with the column that it stands in."""
    with connected(db) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (SCHEMA,)).fetchall()
        for (table,) in tables:
            cursor = connection.execute(f"SELECT * FROM {table}")
            names = [column.name for column in cursor.description or ()]
            for row in cursor:
                for name, value in zip(names, row, strict=True):
                    for part in value if isinstance(value, list) else [value]:
                        if isinstance(part, (str, bytes)):
                            yield f"{table}.{name}", part.encode() if isinstance(part, str) else part


def holding(settings: Settings, words: list[str]) -> dict[str, list[str]]:
    """Which of some words stand in the raw bytes of which files, or of which tables of a server."""
    found = {name: [word for word in words if word.encode() in data] for name, data in bytes_of(settings).items()}
    return {name: words for name, words in found.items() if words}


@contextlib.contextmanager
def connected(db: str) -> Iterator[psycopg.Connection]:
    """A connection to a server that finds our tables by their names, and commits each statement."""
    with psycopg.connect(db, autocommit=True, options=f"-c search_path={SCHEMA}") as connection:
        yield connection


def spelled(db: str, text: str) -> str:
    """A statement as a database has it. What is written is SQLite's."""
    return _spelled(text) if is_served(db) else text


def _spelled(text: str) -> str:
    for written, spelling in _SPELLINGS:
        text = written.sub(spelling, text)
    return text
