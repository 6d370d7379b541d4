"""One connection: opened, its pragmas set one by one and each read back (feasibility: apsw stops at the first)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from expunge.authority.sqlite.counting import teach
from expunge.authority.sqlite.migrate import schema_version
from expunge.authority.sqlite.pages import MOST_PAGES, VFS_NAME
from expunge.authority.sqlite.place import Place
from expunge.errors import (
    DatabaseBusy,
    DatabaseFault,
    DatabaseForeign,
    DatabaseMissing,
    DatabaseUnreadable,
    DiskFull,
)

_CACHE_KIB = 16 * 1024
_STATEMENTS_KEPT = 400

_PRAGMAS: tuple[tuple[str, int | str], ...] = (
    ("synchronous", 2),  # FULL: what a commit of the saga says is on disk, is
    ("foreign_keys", 1),
    ("secure_delete", 1),
    ("temp_store", 2),  # memory: a temporary file would hold erased text outside of what we reclaim
    ("trusted_schema", 0),
    ("cache_size", -_CACHE_KIB),
)
_FILE_PRAGMAS: tuple[tuple[str, int | str], ...] = (
    ("journal_mode", "wal"),
    ("mmap_size", 0),  # a mapped file would be written past the file layer of pages.py
    ("max_page_count", MOST_PAGES),
    ("auto_vacuum", 0),  # its pointer-map pages could be taken for b-tree pages
)
_MEMORY_PRAGMAS: tuple[tuple[str, int | str], ...] = (("journal_mode", "memory"),)


def open_connection(place: Place, *, create: bool, busy_ms: int, query_only: bool = False) -> apsw.Connection:
    """Open a connection with every pragma set and read back.

    Raises:
        DatabaseMissing: there is no file and ``create`` is false.
        DatabaseUnreadable: the file or its folder cannot be written.
        DatabaseForeign: the file is not a database.
        DatabaseFault: a pragma did not take.

    """
    with faults(place):
        connection = _open(place, create=create)
        try:
            connection.set_busy_timeout(busy_ms)
            # Otherwise a parameter that is compared with a column of a partial index is planned by its value, and so
            # the statement is compiled anew whenever that is bound: 50 µs of the 60 that a read by key takes.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            _refuse_read_only(connection, place)
            schema_version(connection, place)  # before anything is set: a file that is not ours stays as it is
            for name, value in _pragmas(place, query_only=query_only):
                _set(connection, name, value, place)
            teach(connection)
        except BaseException:
            connection.close(force=True)
            raise
    return connection


def _open(place: Place, *, create: bool) -> apsw.Connection:
    if place.path is None:
        uri = f"file:/{place.memory_name}?vfs=memdb"
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        return apsw.Connection(uri, flags=flags, statementcachesize=_STATEMENTS_KEPT)
    if place.path.is_dir():
        raise DatabaseForeign(f"{place.shown} is a folder")
    if not place.path.exists():
        if not create:
            raise DatabaseMissing(f"there is no database at {place.shown}")
        # People's words lie in it: the file is its owner's alone from its first byte.
        os.close(os.open(place.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    flags = apsw.SQLITE_OPEN_READWRITE
    return apsw.Connection(str(place.path.resolve()), flags=flags, vfs=VFS_NAME, statementcachesize=_STATEMENTS_KEPT)


def _refuse_read_only(connection: apsw.Connection, place: Place) -> None:
    """SQLite opens what it may not write for reading, and would say so only at the first write."""
    if connection.readonly("main"):
        raise DatabaseUnreadable(f"{place.shown} is read-only")


def _pragmas(place: Place, *, query_only: bool) -> Iterator[tuple[str, int | str]]:
    yield from _FILE_PRAGMAS if place.path else _MEMORY_PRAGMAS
    yield from _PRAGMAS
    if query_only:
        yield ("query_only", 1)


def read_back(connection: apsw.Connection, place: Place, *, query_only: bool) -> Iterator[tuple[str, str, str]]:
    """Each pragma with the value that it has to have, and the one that it has."""
    for name, value in _pragmas(place, query_only=query_only):
        yield name, str(value), str(connection.pragma(name))


def _set(connection: apsw.Connection, name: str, value: int | str, place: Place) -> None:
    connection.execute(f"PRAGMA {name} = {value}").fetchall()
    found = connection.pragma(name)
    if found != value:
        raise DatabaseFault(f"{place.shown}: pragma {name} is {found!r} instead of {value!r}")


_KINDS: tuple[tuple[type[Exception], Callable[[str], Exception]], ...] = (
    (apsw.BusyError, lambda place: DatabaseBusy(f"{place} is held by another process")),
    (apsw.LockedError, lambda place: DatabaseBusy(f"{place} is held by another connection")),
    (apsw.FullError, lambda place: DiskFull(f"the disk is full, so {place} was not changed")),
    (apsw.NotADBError, lambda place: DatabaseForeign(f"{place} is not a database")),
    (apsw.ReadOnlyError, lambda place: DatabaseUnreadable(f"{place} is read-only")),
    (apsw.CantOpenError, lambda place: DatabaseUnreadable(f"{place} cannot be opened for writing")),
    (apsw.AuthError, lambda place: DatabaseUnreadable(f"{place} cannot be opened for writing")),
    (apsw.PermissionsError, lambda place: DatabaseUnreadable(f"{place} cannot be opened for writing")),
    (PermissionError, lambda place: DatabaseUnreadable(f"{place} cannot be opened for writing")),
    (FileNotFoundError, lambda place: DatabaseMissing(f"there is no folder for {place}")),
)


@contextmanager
def faults(place: Place) -> Iterator[None]:
    """Turn what the driver raises into errors of the tree, which name the place and what to do."""
    try:
        yield
    except (apsw.Error, OSError) as fault:
        for kind, error in _KINDS:
            if isinstance(fault, kind):
                raise error(place.shown) from fault
        if isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"the disk is full, so {place.shown} was not made") from fault
        if getattr(fault, "extendedresult", None) == apsw.SQLITE_IOERR_SHMSIZE:  # also who only reads needs 32 KiB
            raise DiskFull(f"the disk is full, so {place.shown} cannot be opened") from fault
        if isinstance(fault, _OURS):
            raise  # a mistake of ours, to be seen as one
        name = type(fault).__name__
        raise DatabaseFault(f"{place.shown} failed: {name}", hint="check the disk and the file") from fault


_OURS = (apsw.SQLError, apsw.ConstraintError, apsw.MisuseError, apsw.MismatchError, apsw.RangeError)
