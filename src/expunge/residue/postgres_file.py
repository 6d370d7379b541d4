"""Reading pages, rows and chunks of a PostgreSQL server's files by hand, after "Database Physical Storage" of its docs.

Nothing here trusts what it reads: a stale page may hold anything, so what makes no sense is left out. Numbers stand in
the byte order of the server's machine, which is taken to be little-endian: that of all it is built for but two.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

PAGE_HEADER_BYTES = 24
_BOUNDS = struct.Struct("<HHH").unpack_from
_LINE = struct.Struct("<I").unpack_from
_NORMAL = 1
_ROW_HEADER_BYTES = 23
_HAS_NULLS = 0x0001
_MOST_COLUMNS = 0x07FF
_ALIGNS = {"c": 1, "s": 2, "i": 4, "d": 8}
_ON_DISK = b"\x01\x12"
"""How the pointer to a value begins that lies in the TOAST table: an external value, and one that is on disk."""
POINTER_BYTES = 18
_CHUNK = re.compile(rb"\x03[\x00\x20\x40\x60\x80\xa0\xc0\xe0]..\x18.(.{4})(.{3}\x00)(..\x00\x00)", re.DOTALL)
"""A chunk from the number of its columns in the header on, which are three, to its length; so in a page and in the log:
flags, where the data begins, a byte of padding; then the number of the value, that of the chunk, and the length."""
_CHUNK_HEADER_BYTES = 18


@dataclass(frozen=True, slots=True)
class Column:
    """A column as it is laid out: ``size`` is -1 where each value has a length of its own."""

    name: str
    size: int
    align: str
    is_number: bool
    is_dropped: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A version of a row in a page: its line pointer, counted from 1, and where it stands."""

    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A column of a row: where it stands, and its value if it is a number or a plain text."""

    name: str
    start: int
    end: int
    value: Any


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a long value: of which value, its place in it, and where its bytes stand."""

    value: int
    order: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a row says that a long value lies: its number, how long it was, and how long it is there."""

    at: int
    value: int
    raw_bytes: int
    stored_bytes: int

    @property
    def is_compressed(self) -> bool:
        """Whether what lies there is compressed."""
        return self.stored_bytes < self.raw_bytes


def rows_of(page: bytes) -> list[Row]:
    """The rows that the line pointers of a page lead to."""
    if len(page) < PAGE_HEADER_BYTES:
        return []
    lower, upper, special = _BOUNDS(page, 12)
    if not PAGE_HEADER_BYTES <= lower <= upper <= special <= len(page):
        return []
    found = []
    for line, at in enumerate(range(PAGE_HEADER_BYTES, lower - 3, 4), start=1):
        (word,) = _LINE(page, at)
        start, flags, size = word & 0x7FFF, word >> 15 & 3, word >> 17
        if flags == _NORMAL and size and upper <= start and start + size <= special:
            found.append(Row(line, start, start + size))
    return found


def row_at(page: bytes, start: int, end: int) -> Row | None:
    """The row that some bytes of a page lie in."""
    return next((row for row in rows_of(page) if row.start <= start and end <= row.end), None)


def pieces_of(row: bytes, columns: Sequence[Column]) -> list[Piece]:
    """The columns of a row, as far as they can be told apart."""
    found: list[Piece] = []
    if len(row) <= _ROW_HEADER_BYTES:
        return found
    count, flags, at = int.from_bytes(row[18:20], "little") & _MOST_COLUMNS, row[20], row[22]
    for number, column in enumerate(columns[:count]):
        if flags & _HAS_NULLS and not row[_ROW_HEADER_BYTES + number // 8] >> number % 8 & 1:
            continue
        try:
            start, end, value = _piece(row, at, column)
        except IndexError:
            break
        if end > len(row):
            break
        if not column.is_dropped:
            found.append(Piece(column.name, start, end, value))
        at = end
    return found


def _piece(row: bytes, at: int, column: Column) -> tuple[int, int, Any]:
    """Where a value begins and ends, and itself. One whose length has a single byte is not aligned."""
    aligned = _aligned(at, _ALIGNS[column.align])
    if column.size > 0:
        data = row[aligned : aligned + column.size]
        return aligned, aligned + column.size, int.from_bytes(data, "little", signed=True) if column.is_number else None
    first = row[at]
    if first == _ON_DISK[0]:
        return at, at + POINTER_BYTES, None
    if first & 1:
        return at, at + (first >> 1), row[at + 1 : at + (first >> 1)]
    (word,) = _LINE(row.ljust(aligned + 4, b"\0"), aligned)
    size = max(word >> 2, 4)
    return aligned, aligned + size, row[aligned + 4 : aligned + size] if not word & 3 else None


def _aligned(at: int, to: int) -> int:
    return -(-at // to) * to


def chunks_in(data: bytes) -> Iterator[Chunk]:
    """What has the form of a chunk, wherever it stands: rows of today, of before, and records of the log."""
    at = 0
    while (found := _CHUNK.search(data, at)) is not None:
        at = found.start() + 1
        value, order, word = (int.from_bytes(part, "little") for part in found.groups())
        start, size = found.end(), (word >> 2) - 4
        if not word & 3 and 0 < size <= len(data) - start:
            yield Chunk(value, order, start, start + size)
            at = start


def pointers_in(data: bytes, toast: int) -> Iterator[Pointer]:
    """The pointers into a TOAST table, by its number."""
    for found in re.finditer(
        re.escape(_ON_DISK) + b"(.{12})" + re.escape(toast.to_bytes(4, "little")), data, re.DOTALL
    ):
        raw, stored, value = struct.unpack("<III", found[1])
        yield Pointer(found.start(), value, raw - 4, stored & 0x3FFFFFFF)
