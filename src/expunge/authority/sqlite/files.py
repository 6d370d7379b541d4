"""The files of a database, opened to be read byte for byte beside the connections that use them.

The database file is opened through SQLite's own file layer. A process that opens a file once more and closes it loses
every lock that it holds on it ("How To Corrupt An SQLite Database File", 2.2), and SQLite alone knows when it may let
go. For the same reason the shared memory of the log is not opened at all; it holds numbers of pages.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import apsw

from expunge.authority.port import KeptFile
from expunge.authority.sqlite.place import Place

_DATABASE = [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0]


@contextlib.contextmanager
def opened_files(place: Place) -> Iterator[list[KeptFile]]:
    """The database file, its log, and a rollback journal that somebody has left; those that are there.

    Raises:
        apsw.Error, OSError: one of them cannot be opened.

    """
    with contextlib.ExitStack() as stack:
        files: list[KeptFile] = []
        if place.path is not None:
            path = place.path.resolve()
            opened = apsw.VFSFile("", str(path), list(_DATABASE))
            stack.callback(opened.xClose)
            files.append(KeptFile(place.path, "database", opened.xFileSize(), partial(_from_database, opened)))
            for end, form in (("-wal", "log"), ("-journal", "other")):
                with contextlib.suppress(FileNotFoundError):
                    handle = os.open(path.with_name(path.name + end), os.O_RDONLY | os.O_CLOEXEC)
                    stack.callback(os.close, handle)
                    beside = place.path.with_name(place.path.name + end)
                    files.append(_beside(beside, form, handle))
        yield files


def _beside(path: Path, form: str, handle: int) -> KeptFile:
    read = partial(_from_handle, handle)
    return KeptFile(path, "log" if form == "log" else "other", os.fstat(handle).st_size, read)


def _from_database(file: apsw.VFSFile, offset: int, length: int) -> bytes:
    length = min(length, file.xFileSize() - offset)
    return file.xRead(length, offset) if length > 0 else b""


def _from_handle(handle: int, offset: int, length: int) -> bytes:
    return os.pread(handle, length, offset)
