"""Reading pages, cells and records of a SQLite file by hand, after "Database File Format" of its documentation.

Nothing here trusts what it reads: a stale page may hold anything, so what makes no sense is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

FILE_HEADER_BYTES = 100
LEAF_TABLE, LEAF_INDEX, INNER_TABLE, INNER_INDEX = 13, 10, 5, 2
_HEADER_BYTES = {INNER_INDEX: 12, INNER_TABLE: 12, LEAF_INDEX: 8, LEAF_TABLE: 8}
_WITH_PAYLOAD = (LEAF_TABLE, LEAF_INDEX, INNER_INDEX)
_U16, _U32 = struct.Struct(">H").unpack_from, struct.Struct(">I").unpack_from
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_FLOAT, _ZERO, _ONE, _FIRST_BLOB, _FIRST_TEXT = 7, 8, 9, 12, 13
_LONGEST_VARINT = 9
_GOES_ON = 0x80
"""The bit of a byte that says that the number goes on."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The size of a page, and how much of it is used."""

    page_bytes: int
    usable: int

    @classmethod
    def of(cls, header: bytes) -> Layout | None:
        """What the header of a file says; ``None`` when it is none of SQLite's."""
        if len(header) < FILE_HEADER_BYTES or not header.startswith(b"SQLite format 3\0"):
            return None
        size = _U16(header, 16)[0]
        size = 65536 if size == 1 else size
        if size < 512 or size & (size - 1):  # noqa: PLR2004 (the smallest page there is)
            return None
        return cls(size, size - header[20])

    @property
    def overflow_bytes(self) -> int:
        """How much of a payload an overflow page holds."""
        return self.usable - 4

    def local(self, size: int, *, in_table: bool) -> int:
        """How much of a payload stands in its cell."""
        most = self.usable - 35 if in_table else (self.usable - 12) * 64 // 255 - 23
        if size <= most:
            return size
        least = (self.usable - 12) * 32 // 255 - 23
        kept = least + (size - least) % self.overflow_bytes
        return kept if kept <= most else least


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a page: where it stands, its rowid if it has one, and its payload, which may go on in a chain."""

    start: int
    end: int
    rowid: int | None
    payload_at: int
    payload_bytes: int
    local: int
    overflow: int


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where what follows it begins. Raises IndexError beyond the end."""
    value = 0
    for _ in range(_LONGEST_VARINT - 1):
        byte = data[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < _GOES_ON:
            return value, at
    return value << 8 | data[at], at + 1


def header_at(number: int) -> int:
    """Where the header of a page stands: the first page begins with that of the file."""
    return FILE_HEADER_BYTES if number == 1 else 0


def page_type(page: bytes, number: int) -> int | None:
    """Of which of the four types a b-tree page is; ``None`` for what is none."""
    at = header_at(number)
    kind = page[at] if at < len(page) else 0
    return kind if kind in _HEADER_BYTES else None


def children(page: bytes, number: int) -> list[int]:
    """The pages below an inner page, as they are numbered."""
    at, kind = header_at(number), page_type(page, number)
    if kind not in (INNER_INDEX, INNER_TABLE):
        return []
    return [*(_U32(page, pointer)[0] for pointer in _pointers(page, at, kind)), _U32(page, at + 8)[0]]


def _pointers(page: bytes, at: int, kind: int) -> list[int]:
    first = at + _HEADER_BYTES[kind]
    count = min(_U16(page, at + 3)[0], (len(page) - first) // 2)
    return [pointer for (pointer,) in struct.iter_unpack(">H", page[first : first + 2 * count])
            if first + 2 * count <= pointer < len(page) - 3]  # fmt: skip


def cells(page: bytes, number: int, layout: Layout) -> list[Cell]:
    """The cells of a b-tree page that have a payload, in no order; what makes no sense is left out."""
    at, kind = header_at(number), page_type(page, number)
    if kind not in _WITH_PAYLOAD:
        return []
    found = []
    for start in _pointers(page, at, kind):
        try:
            cell = _cell(page, start, kind, layout)
        except (IndexError, struct.error):
            continue
        if cell.end <= layout.usable:
            found.append(cell)
    return found


def _cell(page: bytes, start: int, kind: int, layout: Layout) -> Cell:
    size, at = varint(page, start + (4 if kind == INNER_INDEX else 0))
    rowid = None
    if kind == LEAF_TABLE:
        rowid, at = varint(page, at)
        rowid -= 1 << 64 if rowid >= 1 << 63 else 0
    local = layout.local(size, in_table=kind == LEAF_TABLE)
    end = at + local
    overflow = 0
    if local < size:
        overflow = _U32(page, end)[0]
        end += 4
    return Cell(start, max(end, start + 4), rowid, at, size, local, overflow)


def columns_of(payload: bytes) -> list[tuple[int, int, int]]:
    """The columns of a record: serial type, and where each begins and ends in the payload, whole or its beginning.

    Raises:
        IndexError: the header is not there whole.

    """
    header_bytes, at = varint(payload, 0)
    if header_bytes > len(payload):
        raise IndexError
    begin, found = header_bytes, []
    while at < header_bytes:
        kind, at = varint(payload, at)
        size = _INTEGER_BYTES.get(kind, 0)
        if kind == _FLOAT:
            size = 8
        elif kind >= _FIRST_BLOB:
            size = (kind - _FIRST_BLOB) // 2
        found.append((kind, begin, begin + size))
        begin += size
    return found


def values_of(payload: bytes) -> list[Any]:
    """The values of a whole record; a text as its bytes.

    Raises:
        IndexError: the record is not there whole.

    """
    found: list[Any] = []
    for kind, start, end in columns_of(payload):
        if end > len(payload):
            raise IndexError
        data = payload[start:end]
        if kind in _INTEGER_BYTES:
            found.append(int.from_bytes(data, "big", signed=True))
        elif kind in (_ZERO, _ONE):
            found.append(kind - _ZERO)
        elif kind == _FLOAT:
            found.append(struct.unpack(">d", data)[0])
        else:
            found.append(data if kind >= _FIRST_BLOB else None)
    return found


def chain(first: int, read: Callable[[int], bytes], most: int) -> Iterator[tuple[int, bytes]]:
    """The overflow pages from the first one on, each with its bytes; it ends where the chain does, or turns round."""
    seen: set[int] = set()
    while first and first not in seen and len(seen) < most:
        page = read(first)
        if len(page) < 4:  # noqa: PLR2004 (the number of the next page)
            return
        yield first, page
        seen.add(first)
        (first,) = _U32(page, 0)


def payload_of(page: bytes, cell: Cell, layout: Layout, read: Callable[[int], bytes]) -> bytes:
    """The whole payload of a cell, with what stands in other pages."""
    pieces = [page[cell.payload_at : cell.payload_at + cell.local]]
    left = cell.payload_bytes - cell.local
    for _, further in chain(cell.overflow, read, left // layout.overflow_bytes + 1):
        pieces.append(further[4 : 4 + min(left, layout.overflow_bytes)])
        left -= layout.overflow_bytes
    return b"".join(pieces)


def free_pages(header: bytes, read: Callable[[int], bytes], layout: Layout) -> Iterator[int]:
    """The pages of the free list: its trunks, and the leaves that they name."""
    (first,) = _U32(header, 32)
    for number, page in chain(first, read, 1 << 32):
        yield number
        count = min(_U32(page, 4)[0], layout.usable // 4 - 2)
        yield from (leaf for (leaf,) in struct.iter_unpack(">I", page[8 : 8 + 4 * count]))
