"""The tables of our schema on a PostgreSQL server, as its catalog has them, and which of their rows stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from expunge.authority.port import Row, Statement, Tx
from expunge.residue.postgres_file import Column

STATISTICS = "pg_statistic"
"""Where the server keeps some values of each column for its planner, until it looks at the table again."""
_CLASSES = Statement(
    "catalog.classes",
    """SELECT c.oid::bigint, c.relname::text, c.relkind::text, c.reltoastrelid::bigint, i.indrelid::bigint,
    pg_relation_filenode(c.oid)::bigint,
    c.relnamespace = to_regnamespace(current_schema()::text) OR c.oid = 'pg_catalog.pg_statistic'::regclass
    FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid""",
)
_COLUMNS = Statement(
    "catalog.columns",
    """SELECT attname::text, attlen, attalign::text, atttypid IN (20, 21, 23, 26), attisdropped FROM pg_attribute
    WHERE attrelid = CAST(:table AS oid) AND attnum > 0 ORDER BY attnum""",
)
_KEY = Statement(
    "catalog.key",
    """SELECT a.attname::text FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
    WHERE i.indrelid = CAST(:table AS oid) AND i.indisprimary ORDER BY k.place""",
)
_DATABASE = Statement(
    "catalog.database",
    """SELECT oid::bigint, current_setting('block_size')::int, current_setting('wal_block_size')::int
    FROM pg_database WHERE datname = current_database()""",
)
_AT_ONCE = 1000
Place = tuple[int, int]
"""Where a version of a row stands in its table: the page, and the line pointer in it."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, or what the planner keeps of the values of all."""

    number: int
    name: str
    toast: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]


@dataclass(slots=True)
class Catalog:
    """What the files of the server belong to."""

    database: int
    page_bytes: int
    log_page_bytes: int
    tables: dict[int, Table]
    """By its number, and so the others: of what belongs to a table, the table."""
    names: dict[int, str]
    by_file: dict[int, Table | None]
    """By the number of a file: ``None`` for what is not ours."""
    heaps: dict[int, Table]
    """By the number of a file, of those that have the rows."""


def read_catalog(tx: Tx) -> Catalog:
    """Read what our schema consists of."""
    ((database, page, log_page),) = tx.rows(_DATABASE)
    classes = tx.rows(_CLASSES)
    tables: dict[int, Table] = {}
    for number, name, kind, toast, _, _, ours in classes:
        if ours and kind in ("r", "m"):
            tables[number] = table = _table(tx, number, name, toast)
            if toast:
                tables[toast] = table
    for number, _, _, _, of_table, _, _ in classes:
        if of_table in tables:
            tables[number] = tables[of_table]
    names = {number: name for number, name, *_ in classes}
    by_file = {file: tables.get(number) for number, _, _, _, _, file, _ in classes if file is not None}
    heaps = {file: tables[number] for number, _, kind, _, _, file, _ in classes if kind in "rm" and number in tables}
    return Catalog(database, page, log_page, tables, names, by_file, heaps)


def _table(tx: Tx, number: int, name: str, toast: int) -> Table:
    columns = tuple(Column(*row) for row in tx.rows(_COLUMNS, table=number))
    return Table(number, name, toast, columns, tuple(name for (name,) in tx.rows(_KEY, table=number)))


def standing(tx: Tx, table: Table, places: Iterable[Place]) -> dict[Place, Row]:
    """Of some versions of rows those that the snapshot sees, with the key of the row."""
    if table.name == STATISTICS or not table.key:
        return {}
    found: dict[Place, Row] = {}
    text = f"SELECT ctid::text, {', '.join(table.key)} FROM {table.name} WHERE ctid = ANY(CAST(:places AS tid[]))"
    statement = Statement("residue.standing", text)
    for some in _batches(sorted(set(places))):
        for place, *key in tx.rows(statement, places=[f"({page},{line})" for page, line in some]):
            page, _, line = place.strip("()").partition(",")
            found[int(page), int(line)] = tuple(key)
    return found


def _batches(places: Sequence[Place]) -> Iterable[Sequence[Place]]:
    return (places[start : start + _AT_ONCE] for start in range(0, len(places), _AT_ONCE))


def key_in(values: dict[str, Any], table: Table) -> tuple[Any, ...] | None:
    """The key of a row from its own bytes; ``None`` where some of it cannot be read."""
    key = tuple(_as_text(values.get(name)) for name in table.key)
    return None if not key or None in key else key


def _as_text(value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None
