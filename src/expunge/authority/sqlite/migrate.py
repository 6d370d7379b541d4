"""Migrations: numbered SQL files, applied in order through the driver in one transaction."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import apsw

from expunge.authority.sqlite.place import Place
from expunge.errors import DatabaseForeign, DatabaseNewer

APPLICATION_ID = 0x45585047
"""'EXPG' in the header of the file: what tells an Expunge database from another one."""


@cache
def migrations() -> list[tuple[int, str]]:
    """The numbered files, in order."""
    folder = files("expunge.authority.sqlite") / "migrations"
    found = [item for item in folder.iterdir() if item.name.endswith(".sql")]
    return sorted((int(item.name.split("_")[0]), item.read_text(encoding="utf-8")) for item in found)


def migrate(connection: apsw.Connection, place: Place) -> None:
    """Bring a new or older database to the newest version; one that is there already is only read.

    Raises:
        DatabaseForeign: the file holds something else.
        DatabaseNewer: a newer version has written it.

    """
    steps = migrations()
    newest = steps[-1][0]
    if schema_version(connection, place) == newest:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = schema_version(connection, place)  # again, now that no other process can be migrating
        for number, text in steps:
            if number > version:
                connection.execute(text).fetchall()
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").fetchall()
        connection.execute(f"PRAGMA user_version = {newest}").fetchall()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def schema_version(connection: apsw.Connection, place: Place) -> int:
    """The schema version of a file, 0 for an empty one.

    Raises:
        DatabaseForeign: the file holds something else.
        DatabaseNewer: a newer version has written it.

    """
    newest = migrations()[-1][0]
    owner, version, tables = _read_header(connection)
    if owner != APPLICATION_ID:
        if owner != 0 or version != 0 or tables != 0:
            raise DatabaseForeign(f"{place.shown} belongs to another program")
        return 0
    if version > newest:
        raise DatabaseNewer(f"{place.shown} has schema {version}, and this version knows {newest}")
    return version


def _read_header(connection: apsw.Connection) -> tuple[object, int, int]:
    """Owner, version and number of tables, of one moment: another process may be making the file just now."""
    begin = not connection.in_transaction
    if begin:
        connection.execute("BEGIN")
    try:
        owner, version = connection.pragma("application_id"), connection.pragma("user_version")
        tables = len(connection.execute("SELECT name FROM sqlite_schema").fetchall())
        return owner, int(str(version)), tables
    finally:
        if begin and connection.in_transaction:  # on a full disk SQLite has rolled back itself
            connection.execute("ROLLBACK")
