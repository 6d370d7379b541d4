"""A file layer that leaves no stale copies in the pages it writes.

With ``secure_delete`` SQLite overwrites what a DELETE frees. It does not overwrite the copy that stays behind in
the unused middle of a page when b-tree balancing moves a cell to a neighbour: when the moved row is erased later,
that copy still stands in the file (measured: after 150 erasures among 20,000 rows the ids of 3 to 4 % of the erased
users were still in index pages). So every b-tree page that is written to the database file gets its unused middle
zeroed on the way. A checkpoint is what writes there, and WAL frames, whose checksums cover the middle, go when the
WAL is truncated.
"""

from __future__ import annotations

import struct
import time

import apsw

VFS_NAME = "expunge"
MOST_PAGES = (1 << 25) - 1
"""A page that is no b-tree page starts with a page number. Below 2^25 pages (128 GiB) its first byte is 0 or 1, so
it cannot be taken for a b-tree page; the engine caps the file there."""

_FILE_HEADER_BYTES = 100
_HEADER_BYTES = {2: 12, 5: 12, 10: 8, 13: 8}
"""Of a b-tree page, by its type: interior ones of an index and a table, then leaves."""
_COUNT_AND_FIRST = struct.Struct(">HH").unpack_from
_LARGEST_PAGE = 65536


def without_stale_middle(page: bytes, *, is_first: bool) -> bytes:
    """A page with the bytes between its cell pointers and its cells zeroed; any other page as it is.

    The layout is the one that "Database File Format" of the SQLite documentation fixes.
    """
    start = _FILE_HEADER_BYTES if is_first else 0
    header = _HEADER_BYTES.get(page[start])
    if header is None:
        return page
    cells, first_cell = _COUNT_AND_FIRST(page, start + 3)
    first_cell = first_cell or _LARGEST_PAGE
    unused = start + header + 2 * cells
    if not unused < first_cell <= len(page):
        return page
    return page[:unused] + bytes(first_cell - unused) + page[first_cell:]


class _DatabaseFile(apsw.VFSFile):
    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 (the name is SQLite's)
        if offset % len(data) == 0:
            data = without_stale_middle(data, is_first=offset == 0)
        super().xWrite(data, offset)


class _Files(apsw.VFS):
    def __init__(self) -> None:
        super().__init__(VFS_NAME, "")

    def xSleep(self, microseconds: int) -> int:  # noqa: N802
        """Wait for a lock. The inherited way waits with the interpreter locked, so that no other thread could go on."""
        time.sleep(microseconds / 1_000_000)
        return microseconds

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        is_database = flags[0] & apsw.SQLITE_OPEN_MAIN_DB
        return (_DatabaseFile if is_database else apsw.VFSFile)("", name, flags)


_registered = _Files()
"""Registered for as long as the process lives; SQLite finds it by its name."""
