"""A PostgreSQL server to measure on, and databases there with the rows of those that SQLite is measured in.

It is durable as servers are by default: ``fsync`` and ``full_page_writes`` are on. Ours and the floor have each a copy
of one database on it.
"""

from __future__ import annotations

import itertools
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import psycopg
from psycopg import sql

from bench.build import DATABASE, KEYS, ORG, Index, Shape, build
from expunge.authority.port import Halves
from expunge.authority.postgres import PostgresAuthority, PostgresPlace
from expunge.authority.postgres.connection import prepare
from expunge.authority.postgres.schema import Schema
from expunge.settings import Settings
from tests.pg.keeper import Server
from tests.pg.server import drop_database, fresh_database

_ROOM = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "512MB", "max_wal_size": "4GB"}
_OWN = {"search_data", "search_idx", "search_docsize", "search_config", "sqlite_sequence", "search"}
_INVERTED = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'search' AND indexdef LIKE '%gin%'"
_TEXTS = {1: ("episodes", "r.input, r.output"), 3: ("facts", "r.subject, r.predicate, r.object")}
"""What the index knows of the built databases: SQLite keeps no text in it, so it is made anew from the rows."""
_PAGE = 2000


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A server of its own for as long as this is open; its URL."""
    place = folder / "server"
    place.mkdir(mode=0o711)
    for parent in (place, *place.parents):
        if parent.stat().st_uid == folder.stat().st_uid and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)  # ours; the server runs as somebody else and has to get through
    started = Server(place, None, **_ROOM)
    started.start()
    try:
        yield started.url
    finally:
        started.stop()
        shutil.rmtree(place, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Built:
    """A filled database on a server, and the key file that it names."""

    server: str
    url: str
    keys: Path

    @contextmanager
    def copies(self, *names: str) -> Iterator[dict[str, str]]:
        """A copy for each contender, by name; they go at the end."""
        made = {name: fresh_database(self.server, self.url) for name in names}
        try:
            yield made
        finally:
            for url in made.values():
                drop_database(url)

    def settings(self, url: str, **others: Any) -> Settings:
        """The settings of ours on a copy."""
        folder = self.keys.parent / f"objects-{secrets.token_hex(4)}"
        return Settings(db=url, keys_file=self.keys, objects=folder, org=ORG, actor="bench", **others)


async def built_on(url: str, shape: Shape, folder: Path) -> Built:
    """A database of a shape on a server, filled from the one that SQLite is measured in."""
    source = await build(shape, folder / f"{shape.name}-source")
    built = await filled_from(source, url, folder / f"{shape.name}.keys")
    shutil.rmtree(source)
    return built


async def filled_from(source: Path, url: str, keys: Path) -> Built:
    """A database on a server with the rows of a built one; its key file is copied to ``keys``."""
    made = fresh_database(url)
    await (await PostgresAuthority.open(PostgresPlace.parse(made), create=True)).close()
    _fill(made, source / DATABASE)
    shutil.copy(source / KEYS, keys)
    return Built(url, made, keys)


def analyse(*urls: str) -> None:
    """Let the server look at the tables, as it does by itself within a minute: until then it takes them to be empty."""
    for url in urls:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ANALYZE")


def _fill(url: str, database: Path) -> None:
    source = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [name for (name,) in source.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    with psycopg.connect(url, autocommit=True, options="-c search_path=expunge") as target:
        schema = Schema.read(target)
        prepare(target, schema)
        target.execute("DELETE FROM store")
        indexes = target.execute(_INVERTED).fetchall()
        for name, _ in indexes:
            target.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
        with target.transaction():
            target.execute("SET LOCAL session_replication_role = replica")
            for name in tables:
                if name not in _OWN:
                    _copy(source, target, name, schema.types[name])
            with target.cursor().copy("COPY search (record, owner, words) FROM STDIN") as copying:
                for number, owner, words in _entries(source, Index(database.parent, noise=True)):
                    copying.write_row((number, owner.split(" "), words.split(" ")))
        for _, definition in indexes:
            target.execute(definition.encode())
        target.execute("VACUUM ANALYZE")


def _entries(source: apsw.Connection, index: Index) -> Iterator[tuple[Any, ...]]:
    for code, (table, texts) in _TEXTS.items():
        rows = source.execute(
            f"SELECT rid, org, namespace, agent, user_id, session_id, {texts} FROM {table} r"
            f" WHERE rid * 8 + {code} IN (SELECT id FROM search_docsize)"
        )
        while page := list(itertools.islice(rows, _PAGE)):
            yield from index.entries([(row[0] * 8 + code, row[1:6], row[6:]) for row in page])[0]


def _copy(source: apsw.Connection, target: psycopg.Connection, table: str, types: Mapping[str, int]) -> None:
    listed, vector = ", ".join(types), list(types).index("vector") if "vector" in types else None
    with target.cursor().copy(f"COPY {table} ({listed}) FROM STDIN (FORMAT binary)".encode()) as copying:
        copying.set_types(list(types.values()))
        for row in source.execute(f"SELECT {listed} FROM {table}"):
            copying.write_row(row if vector is None else (*row[:vector], Halves(row[vector]), *row[vector + 1 :]))
    if target.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{table}_rid_seq",)).fetchall()[0][0]:
        target.execute(f"SELECT setval('{table}_rid_seq', (SELECT coalesce(max(rid), 0) + 1 FROM {table}))".encode())
