"""Migrations: numbered SQL files, applied in order under a lock, so that replicas may start at once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import psycopg
from psycopg import errors

from expunge.authority.postgres.connection import OLDEST
from expunge.authority.postgres.place import SCHEMA, PostgresPlace
from expunge.errors import DatabaseFault, DatabaseForeign, DatabaseMissing, DatabaseNewer, DatabaseUnreadable

APPLICATION = "expunge"
_LOCK = 0x45585047
_VERSION = "SELECT version, application FROM schema_version"
_TABLES = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s"
_IS_THERE = f"SELECT to_regclass('{SCHEMA}.schema_version') IS NOT NULL"
_SCHEMA_IS_THERE = f"SELECT to_regnamespace('{SCHEMA}') IS NOT NULL"
_ENCODING = "UTF8"


@cache
def migrations() -> list[tuple[int, str]]:
    """The numbered files, in order."""
    folder = files("expunge.authority.postgres") / "migrations"
    found = [item for item in folder.iterdir() if item.name.endswith(".sql")]
    return sorted((int(item.name.split("_")[0]), item.read_text(encoding="utf-8")) for item in found)


def migrate(connection: psycopg.Connection, place: PostgresPlace, *, create: bool) -> None:
    """Bring a new or older database to the newest version; one that is there already is only read.

    Raises:
        DatabaseFault: the server is too old, or the database cannot hold every text.
        DatabaseForeign: the schema holds something else.
        DatabaseMissing: there is nothing, and ``create`` is false.
        DatabaseNewer: a newer version has written it.
        DatabaseUnreadable: there is something to do, and the role may not do it.

    """
    _check_server(connection, place)
    newest = migrations()[-1][0]
    version = schema_version(connection, place)
    if version == newest:
        return
    if version == 0 and not create:
        raise DatabaseMissing(f"{place.shown} holds no schema {SCHEMA}")
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (_LOCK,))
            version = schema_version(connection, place)  # again, now that no other process can be migrating
            _apply(connection, version)
    except errors.InsufficientPrivilege as fault:
        raise DatabaseUnreadable(
            f"{place.shown} has schema {version}, and this role may not bring it to {newest}",
            hint="open it once with the role that owns the schema",
        ) from fault


def _check_server(connection: psycopg.Connection, place: PostgresPlace) -> None:
    if connection.info.server_version < OLDEST * 10000:
        raise DatabaseFault(f"{place.shown} runs on a server older than {OLDEST}", hint="use a newer server")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != _ENCODING:
        raise DatabaseFault(
            f"{place.shown} is encoded in {encoding}", hint=f"make a database with ENCODING '{_ENCODING}'"
        )


def _apply(connection: psycopg.Connection, version: int) -> None:
    """Apply what is newer than a version."""
    ((is_there,),) = connection.execute(_SCHEMA_IS_THERE).fetchall()
    if not is_there:  # who may not make a schema may fill one that was made for it
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
    newer = [(number, text) for number, text in migrations() if number > version]
    for _, text in newer:
        connection.execute(text.encode())
    if newer:
        connection.execute("UPDATE schema_version SET version = %s", (newer[-1][0],))


def schema_version(connection: psycopg.Connection, place: PostgresPlace) -> int:
    """The schema version of a database, 0 where our schema is empty or missing.

    Raises:
        DatabaseForeign: the schema holds something else.
        DatabaseNewer: a newer version has written it.

    """
    newest = migrations()[-1][0]
    ((is_there,),) = connection.execute(_IS_THERE).fetchall()
    if not is_there:
        ((tables,),) = connection.execute(_TABLES, (SCHEMA,)).fetchall()
        if tables:
            raise DatabaseForeign(f"schema {SCHEMA} of {place.shown} belongs to another program")
        return 0
    try:
        rows = connection.execute(_VERSION).fetchall()
    except errors.UndefinedColumn:
        rows = []
    if len(rows) != 1 or rows[0][1] != APPLICATION:
        raise DatabaseForeign(f"schema {SCHEMA} of {place.shown} belongs to another program")
    if rows[0][0] > newest:
        raise DatabaseNewer(f"{place.shown} has schema {rows[0][0]}, and this version knows {newest}")
    return int(rows[0][0])
