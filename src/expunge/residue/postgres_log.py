"""Segments of a PostgreSQL server's write-ahead log: their records without the headers between, and whose each one is.

A record goes on over pages, each with a header of its own; these are left out, so that a text which a page breaks is
found whole. Which record some bytes lie in is looked for from the page backwards: its header tells where the first
record begins in it. A segment that was recycled still has the pages of before, and is read in the same way.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from expunge.residue.compressed import METHODS, decode
from expunge.residue.postgres_file import row_at

_PAGE = struct.Struct("<HHIQI").unpack_from
_SHORT_HEADER, _LONG_HEADER = 24, 40
_GOES_ON, _IS_LONG = 0x0001, 0x0002
_MAGIC, _MAGIC_BITS = 0xD000, 0xF000
_RECORD_HEADER_BYTES = 24
_MOST_PAGES_BACK = 1 << 17
"""A record has at most 1 GiB."""
_MAIN_SHORT, _MAIN_LONG, _ORIGIN, _TRANSACTION = 255, 254, 253, 252
_LAST_BLOCK = 32
_WITH_IMAGE, _SAME_RELATION = 0x10, 0x80
_WITH_HOLE, _COMPRESSED = 0x01, 0x1C
_METHODS = {0x04: 0, 0x08: 1}
"""pglz and LZ4, by the bit of an image; a third is Zstandard."""
_INSERT, _UPDATES, _MANY = (10, 0x00), ((10, 0x20), (10, 0x40)), (9, 0x50)
"""The changes that have rows, by who keeps them (the heap, and its second list of changes) and what they do."""
_OPERATION = 0x70
_FLAGS_AT, _PARTLY = 7, 0x60
"""An update that leaves out what the row begins or ends with, because it was so before, says so after the rows."""
_LEFT_OUT, _MANY_HEADER_BYTES = 18, 7
_IMAGE = struct.Struct("<HHB").unpack_from
_LOCATOR = struct.Struct("<III").unpack_from


@dataclass(frozen=True, slots=True)
class Relation:
    """What a record speaks of: a file of a database, by the numbers of both."""

    database: int
    file: int


@dataclass(frozen=True, slots=True)
class Block:
    """A page that a record names: of what, where its image stands if it has one, and how that is compressed."""

    relation: Relation
    at: int
    size: int
    how: int
    """0 where it is not."""
    hole_at: int
    hole: int
    """How many bytes a compressed image leaves out; another leaves out what it lacks of the size of a page."""
    data_bytes: int
    """What the record has for the page stands after the image."""

    @property
    def data_at(self) -> int:
        """Where it begins."""
        return self.at + self.size

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.data_at + self.data_bytes


@dataclass(frozen=True, slots=True)
class Image:
    """The image of a page, decoded if its method is known; ``at`` is where it stands in the records."""

    at: int
    size: int
    method: str | None
    data: bytes


class Segment:
    """A segment of the log that was read, and what its last record has in the segment that follows."""

    def __init__(self, data: bytes, page_bytes: int, follows: bytes = b"") -> None:
        self._starts: list[int] = []
        """Of each page where it begins in the records."""
        self._headers: list[tuple[int, int]] = []
        """Of each page the size of its header, and how much of a record before goes on after it."""
        parts, size = [], 0
        written = len(data.rstrip(b"\0"))
        for at in range(0, min(written, len(data) - _LONG_HEADER), page_bytes):
            header, rest = _header(data, at)
            part = data[at + header : at + page_bytes]
            self._starts.append(size)
            self._headers.append((header, rest))
            parts.append(part)
            size += len(part)
        self.records = b"".join(parts) + _rest_in(follows, data, page_bytes)
        self.own = size
        """How much of the records is in this segment."""
        self._page_bytes = page_bytes

    def offset(self, at: int) -> int:
        """Where in the file some byte of the records stands."""
        page = bisect_right(self._starts, at) - 1
        return page * self._page_bytes + self._headers[page][0] + at - self._starts[page]

    def place(self, offset: int) -> int:
        """Where in the records a byte of the file stands."""
        page, at = divmod(offset, self._page_bytes)
        return self._starts[page] + at - self._headers[page][0]

    def relations_at(self, at: int) -> list[Relation] | None:
        """What the record speaks of that some byte lies in; ``None`` where no record can be made out."""
        found = self._record(at)
        if found is None:
            return None
        return list(dict.fromkeys(block.relation for block in self._blocks(*found)))

    def row_at(self, at: int, page_bytes: int) -> tuple[Relation, bytes] | None:
        """The row that some byte of a record is in, as it stands in a page, and of what it is.

        ``None`` where it is in no row, or in one of which the record has a part alone.
        """
        found = self._record(at)
        blocks = [] if found is None else self._blocks(*found)
        for block in blocks:
            if block.at <= at < block.data_at and not block.how:
                row = _in_image(self.records[block.at : block.data_at], at - block.at, block.hole_at, page_bytes)
            elif found is not None and block.data_at <= at < block.end:
                kind, info = self.records[found[0] + 17], self.records[found[0] + 16]
                flags_at = blocks[-1].end + _FLAGS_AT
                flags = int.from_bytes(self.records[flags_at : flags_at + 1], "little")
                data = self.records[block.data_at : block.end]
                row = _in_data(data, at - block.data_at, (kind, info & _OPERATION), flags)
            else:
                continue
            return None if row is None else (block.relation, row)
        return None

    def images(self, page_bytes: int) -> Iterator[Image]:
        """The images of pages that are compressed, of every record that can be made out."""
        for start, end in self._all_records():
            for block in self._blocks(start, end):
                if block.how:
                    method = _METHODS.get(block.how)
                    packed = self.records[block.at : block.at + block.size]
                    data = b"" if method is None else decode(packed, page_bytes - block.hole, method)[0]
                    yield Image(block.at, block.size, None if method is None else METHODS[method], data)

    def _all_records(self) -> Iterator[tuple[int, int]]:
        """Every record from its beginning to its end; after what is none it goes on in the next page that has one."""
        done = 0
        for page, (header, rest) in enumerate(self._headers):
            at = self._starts[page] + _aligned(rest)
            if not header or at < done:
                continue
            while at < self.own:
                length = int.from_bytes(self.records[at : at + 4], "little")
                if length < _RECORD_HEADER_BYTES or at + length > len(self.records):
                    break
                yield at, at + length
                at += _aligned(length)
            done = max(at, done)

    def _blocks(self, start: int, end: int) -> list[Block]:
        try:
            return _blocks(self.records, start, end)
        except (IndexError, struct.error):
            return []

    def _record(self, at: int) -> tuple[int, int] | None:
        page = bisect_right(self._starts, at) - 1
        for back in range(page, max(page - _MOST_PAGES_BACK, -1), -1):
            header, rest = self._headers[back]
            if not header:
                return None
            start = self._starts[back] + _aligned(rest)
            end = self._starts[back + 1] if back + 1 < len(self._starts) else self.own
            if start <= at and start < end:
                return self._walk(start, at)
        return None

    def _walk(self, start: int, at: int) -> tuple[int, int] | None:
        while start <= at:
            size = int.from_bytes(self.records[start : start + 4], "little")
            if size < _RECORD_HEADER_BYTES:
                return None
            if at < start + size:
                return start, start + size
            start += _aligned(size)
        return None


def _header(data: bytes, at: int) -> tuple[int, int]:
    magic, flags, _, _, rest = _PAGE(data, at)
    if magic & _MAGIC_BITS != _MAGIC:
        return 0, 0
    return _LONG_HEADER if flags & _IS_LONG else _SHORT_HEADER, rest if flags & _GOES_ON else 0


def _in_image(image: bytes, at: int, hole_at: int, page_bytes: int) -> bytes | None:
    """The row at some byte of the image of a page, which leaves out what is not in use."""
    hole = max(page_bytes - len(image), 0)
    page = image[:hole_at] + bytes(hole) + image[hole_at:]
    at += hole if at >= hole_at else 0
    row = row_at(page, at, at + 1)
    return None if row is None else page[row.start : row.end]


def _in_data(data: bytes, at: int, change: tuple[int, int], flags: int) -> bytes | None:
    """The row at some byte of what a record has for a page: it leaves out the first bytes of the header of a row."""
    if change == _INSERT or (change in _UPDATES and not flags & _PARTLY):
        return bytes(_LEFT_OUT) + data
    start = 0
    while change == _MANY and start + _MANY_HEADER_BYTES < len(data):
        end = start + _MANY_HEADER_BYTES + int.from_bytes(data[start : start + 2], "little")
        if start <= at < end:
            return bytes(_LEFT_OUT) + data[start + 2 : end]
        start = end + end % 2
    return None


def _rest_in(follows: bytes, data: bytes, page_bytes: int) -> bytes:
    """What the last record of a segment has in the first pages of another, if that is the one that follows it."""
    if len(follows) < _LONG_HEADER or _PAGE(follows, 0)[3] != _PAGE(data, 0)[3] + len(data):
        return b""
    parts, wanted = [], _header(follows, 0)[1]
    for at in range(0, len(follows) - _LONG_HEADER, page_bytes):
        header, rest = _header(follows, at)
        parts.append(follows[at + header : at + page_bytes][:rest])
        if not header or rest <= page_bytes - header:
            break
    return b"".join(parts)[:wanted]


def _aligned(size: int) -> int:
    return -(-size // 8) * 8


def _blocks(data: bytes, start: int, end: int) -> list[Block]:
    """The pages that a record names. Each header tells how much of what follows all headers is its own."""
    at, left, relation = start + _RECORD_HEADER_BYTES, 0, None
    found: list[tuple[Relation, int, int, int, int, int]] = []
    while at + left < end:
        kind = data[at]
        if kind in (_MAIN_SHORT, _MAIN_LONG):
            at += 2 if kind == _MAIN_SHORT else 5
            break
        if kind in (_ORIGIN, _TRANSACTION):
            at += 3 if kind == _ORIGIN else 5
            continue
        if kind > _LAST_BLOCK:
            break
        flags, size = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "little")
        at, image, how, hole_at, hole = at + 4, 0, 0, 0, 0
        if flags & _WITH_IMAGE:
            image, hole_at, how = _IMAGE(data, at)
            at += 5
            if how & _WITH_HOLE and how & _COMPRESSED:
                hole = int.from_bytes(data[at : at + 2], "little")
                at += 2
        if not flags & _SAME_RELATION:
            _, database, file = _LOCATOR(data, at)
            relation = Relation(database, file)
            at += 12
        at += 4
        left += image + size
        if relation is None:
            break
        found.append((relation, image, how & _COMPRESSED, hole_at, hole, size))
    blocks: list[Block] = []
    for relation, image, *rest in found:
        blocks.append(Block(relation, at, image, *rest))
        at = blocks[-1].end
    return blocks
