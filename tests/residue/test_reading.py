"""Finding bytes in blocks, and reading the log: each against something simpler that does the same."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path

import pytest

from expunge.authority.port import KeptFile
from expunge.residue import scan as scanning
from expunge.residue.log import FRAME_HEADER_BYTES, HEADER_BYTES, read_log
from expunge.residue.scan import Patterns, scan, scan_stream
from expunge.residue.sqlite_file import LEAF_TABLE, Layout, cells, page_type, varint


@pytest.mark.parametrize("seed", range(20))
def test_every_place_of_every_pattern_is_found(monkeypatch, seed):
    """Law 11: in blocks of any size and as a stream, each place of each pattern is told once, and no other."""
    monkeypatch.setattr(scanning, "BLOCK_BYTES", 100)
    chance = random.Random(seed)
    data = bytes(chance.choices(b"abc" if seed % 2 else b"abcdefghijk \0", k=chance.randint(0, 3000)))
    cut = [data[at : at + size] for at in range(0, max(len(data) - 60, 0), 97) for size in (4, 7, 8, 15, 16, 40)]
    drawn = [bytes(chance.choices(b"abc", k=chance.randint(4, 30))) for _ in range(50)]
    patterns = list(dict.fromkeys([*cut, *drawn]))
    found = Patterns(patterns)
    places = [
        (at, number)
        for at in range(len(data))
        for number, pattern in enumerate(patterns)
        if data.startswith(pattern, at)
    ]
    assert list(scan(lambda at, size: data[at : at + size], len(data), found)) == places
    assert sorted(scan_stream(io.BytesIO(data).read, found)) == places


def test_nothing_is_sought_in_vain():
    """Residue: no pattern finds nothing, and one that is too short is refused."""
    assert list(scan(lambda at, size: bytes(size), 5000, Patterns([]))) == []
    with pytest.raises(ValueError, match="4 bytes"):
        Patterns([b"abcd", b"abc"])


def checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """As the documentation of the format writes it down."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


def log_of(order: str, frames: list[tuple[int, int]], page_bytes: int = 512) -> bytes:
    """A log of frames of pages (number, pages after a commit or 0)."""
    chance = random.Random(3)
    header = struct.pack(">6I", 0x377F0682 | (order == ">"), 3007000, page_bytes, 0, 11, 12)
    sums = checksum(order, header, (0, 0))
    data = header + struct.pack(">2I", *sums)
    for page, commits in frames:
        content, start = chance.randbytes(page_bytes), struct.pack(">2I", page, commits)
        sums = checksum(order, start + content, sums)
        data += start + struct.pack(">4I", 11, 12, *sums) + content
    return data


def kept(data: bytes) -> KeptFile:
    return KeptFile(Path("a-wal"), "log", len(data), lambda at, size: data[at : at + size])


@pytest.mark.parametrize("order", ["<", ">"])
def test_only_committed_frames_of_the_log_count(order):
    """Residue: of each page the last frame up to the last commit counts; what follows, or is broken, does not."""
    frames = [(1, 0), (2, 0), (1, 3), (3, 0), (2, 4), (2, 0)]
    data = log_of(order, frames)
    log = read_log(kept(data), 512)
    assert (log.newest, log.pages, log.frames) == ({1: 2, 3: 3, 2: 4}, 4, 6)
    assert log.counts(4, 2)
    assert not log.counts(1, 2)
    broken = bytearray(data)
    broken[HEADER_BYTES + 3 * (FRAME_HEADER_BYTES + 512) + 100] ^= 1
    log = read_log(kept(bytes(broken)), 512)
    assert (log.newest, log.pages, log.frames) == ({1: 2, 2: 1}, 3, 6)
    salted = bytearray(data)
    salted[HEADER_BYTES + 8] ^= 1
    assert read_log(kept(bytes(salted)), 512).newest == {}
    assert read_log(kept(data), 1024).newest == read_log(kept(b""), 512).newest == {}
    assert log.where(HEADER_BYTES + FRAME_HEADER_BYTES + 5) == (0, 5)
    assert log.where(HEADER_BYTES + 5) is log.where(5) is None


@pytest.mark.parametrize("seed", range(30))
def test_pages_of_noise_are_read_without_a_fault(seed):
    """Residue: a stale page may hold anything; what makes no sense in it is left out."""
    chance = random.Random(seed)
    page = bytes([chance.choice([2, 10, 13])]) + chance.randbytes(1023)
    layout = Layout(1024, 1024)
    assert page_type(page, 2) in (2, 10, LEAF_TABLE)
    assert all(0 <= cell.start < cell.end <= 1024 for cell in cells(page, 2, layout))


def test_numbers_of_variable_length_are_read():
    """Residue: one to nine bytes, the ninth whole."""
    assert varint(b"\x05", 0) == (5, 1)
    assert varint(b"\x81\x00", 0) == (128, 2)
    assert varint(b"\xff" * 9, 0) == ((1 << 64) - 1, 9)
    with pytest.raises(IndexError):
        varint(b"\x81", 0)
