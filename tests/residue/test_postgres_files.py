"""What reads a PostgreSQL server's files makes nothing up, and raises nothing, whatever stands in them."""

from __future__ import annotations

import random
import struct

import pytest

from expunge.residue.postgres_file import Column, chunks_in, pieces_of, pointers_in, row_at, rows_of
from expunge.residue.postgres_log import Segment

PAGE = 8192
COLUMNS = [
    Column("rid", 8, "d", is_number=True, is_dropped=False),
    Column("gone", 4, "i", is_number=False, is_dropped=True),
    Column("org", -1, "i", is_number=False, is_dropped=False),
    Column("note", -1, "i", is_number=False, is_dropped=False),
    Column("seq", 8, "d", is_number=True, is_dropped=False),
]


def row(*, nulls: int = 0, data: bytes = b"") -> bytes:
    """A row of five columns with its header."""
    flags = 1 if nulls else 0
    return bytes(18) + struct.pack("<HHB", 5, flags, 24) + bytes([~nulls & 0x1F]) + data


def page_of(*rows: bytes) -> bytes:
    """A page with some rows, the first of them at its end."""
    lines, body, upper = b"", b"", PAGE
    for one in rows:
        padded = one.ljust(-(-len(one) // 8) * 8, b"\0")
        upper -= len(padded)
        lines += struct.pack("<I", upper | 1 << 15 | len(one) << 17)
        body = padded + body
    header = bytes(12) + struct.pack("<HHHHI", 24 + len(lines), upper, PAGE, PAGE | 4, 0)
    return header + lines + bytes(upper - 24 - len(lines)) + body


def test_columns_are_told_apart_by_their_lengths_and_alignments():
    """Residue: short and long lengths, columns that are gone, and those that are NULL."""
    data = struct.pack("<q", 7) + b"\0\0\0\0" + b"\x09abc" + struct.pack("<I", (4 + 200) << 2) + b"n" * 200
    data += bytes(-len(data) % 8) + struct.pack("<q", -5)
    found = {piece.name: piece.value for piece in pieces_of(row(data=data), COLUMNS)}
    assert found == {"rid": 7, "org": b"abc", "note": b"n" * 200, "seq": -5}
    data = struct.pack("<q", 7) + b"\x09abc" + bytes(4) + struct.pack("<q", 3)
    found = {piece.name: piece.value for piece in pieces_of(row(nulls=0b01010, data=data), COLUMNS)}
    assert found == {"rid": 7, "org": b"abc", "seq": 3}
    assert [piece.name for piece in pieces_of(row(data=data[:10]), COLUMNS)] == ["rid"]


def test_bytes_belong_to_the_row_that_has_all_of_them():
    first, second = row(data=b"a" * 40), row(data=b"b" * 50)
    page = page_of(first, second)
    assert [one.line for one in rows_of(page)] == [1, 2]
    at = page.index(b"aaa")
    assert (row_at(page, at, at + 40), row_at(page, at, at + 60)) == (rows_of(page)[0], None)
    assert row_at(page, 200, 210) is None


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_error(seed):
    """Residue: a page that is torn, or of something else, is read without an error and never beyond its end."""
    noise = random.Random(seed)
    torn = bytearray(page_of(row(data=b"a" * 40), row(data=b"b" * 50), row(data=noise.randbytes(60))))
    for _ in range(60):
        torn[noise.choice([noise.randrange(40), noise.randrange(PAGE)])] = noise.randrange(256)
    for page in (bytes(torn), noise.randbytes(PAGE), b"", bytes(PAGE)):
        for one in rows_of(page):
            assert 24 <= one.start < one.end <= PAGE
            for piece in pieces_of(page[one.start : one.end], COLUMNS):
                assert piece.start <= piece.end <= one.end - one.start
        assert all(chunk.end <= len(page) for chunk in chunks_in(page))
        assert all(pointer.stored_bytes >= 0 for pointer in pointers_in(page, 1))


@pytest.mark.parametrize("seed", range(20))
def test_noise_in_the_log_is_no_error(seed):
    """Residue: whatever the log holds, what stands in it has a place in the file, and its record is looked for."""
    noise = random.Random(seed)
    pages = []
    for number in range(8):
        header = struct.pack("<HHIQI", 0xD118, noise.choice([0, 1, 2, 3]), 1, number * PAGE, noise.randrange(3 * PAGE))
        size = noise.choice([0, 24, 26, 100, 70_000])
        body = (struct.pack("<IIQBB", size, 0, 0, 0, noise.choice([9, 10])) + noise.randbytes(60)) * 120
        pages.append((header + bytes(4) + body)[:PAGE].ljust(PAGE, b"\0") if number % 5 else noise.randbytes(PAGE))
    data = b"".join(pages)
    segment = Segment(data, PAGE, noise.randbytes(PAGE))
    for at in (noise.randrange(segment.own) for _ in range(200)):
        offset = segment.offset(at)
        assert data[offset] == segment.records[at]
        assert segment.place(offset) == at
        segment.relations_at(at)
        segment.row_at(at, PAGE)
    assert all(image.at < len(segment.records) for image in segment.images(PAGE))


def test_a_segment_that_is_not_written_yet_is_empty():
    segment = Segment(bytes(4 * PAGE), PAGE)
    assert (segment.own, segment.records, list(segment.images(PAGE))) == (0, b"", [])
