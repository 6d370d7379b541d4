"""Values as PostgreSQL compresses them, from streams that were made by hand. The server's own are in test_postgres."""

from __future__ import annotations

import random
import struct

import pytest

from expunge.residue.compressed import Decoded, compressed_in, decode, decode_stored

PGLZ, LZ4 = 0, 1
SAID = b"Ilse Ilse Ilse Ilse Ilse!"
LONG = b"ab" * 150


def pglz(*items: bytes | tuple[int, int]) -> bytes:
    """A stream of literal bytes and of copies (how far back, how long)."""
    out = b""
    for start in range(0, len(items), 8):
        some = items[start : start + 8]
        control = sum(1 << bit for bit, item in enumerate(some) if isinstance(item, tuple))
        out += bytes([control])
        for item in some:
            if isinstance(item, bytes):
                out += item
                continue
            back, length = item
            low = min(length - 3, 15)
            out += bytes([back >> 8 << 4 | low, back & 255])
            out += bytes([length - 18]) if low == 15 else b""
    return out


def letters(text: bytes) -> list[bytes]:
    return [bytes([one]) for one in text]


STREAMS = [
    (PGLZ, pglz(*letters(b"Ilse "), (5, 19), b"!"), SAID),
    (PGLZ, pglz(*letters(b"ab"), (2, 273), (2, 25)), LONG),
    (PGLZ, pglz(*letters(bytes(range(200)) * 3), (600, 30)), bytes(range(200)) * 3 + bytes(range(30))),
    (LZ4, b"\x5fIlse \x05\x00\x00\x10!", SAID),
    (LZ4, b"\x2fab\x02\x00\xff\x18\x00", LONG),
    (LZ4, b"\xf0\x0a" + SAID, SAID),
]


@pytest.mark.parametrize(("method", "packed", "text"), STREAMS)
def test_literal_bytes_and_copies_are_decoded(method, packed, text):
    """Residue: a copy may reach into what it writes, have a long length, or lie far back."""
    assert decode(packed, len(text), method) == (text, True)


@pytest.mark.parametrize(("method", "packed", "text"), STREAMS)
def test_what_is_cut_or_of_another_length_is_not_whole(method, packed, text):
    """Law 16: the beginning is decoded as far as it goes, and never said to be all."""
    for end in range(len(packed)):
        found, whole = decode(packed[:end], len(text), method)
        assert not whole
        assert text.startswith(found)
    assert not decode(packed, len(text) - 1, method)[1]
    assert not decode(packed, len(text) + 1, method)[1]
    assert not decode(packed + b"\0", len(text), method)[1]


def test_what_points_before_the_beginning_is_refused():
    assert decode(pglz(b"a", (2, 5)), 6, PGLZ) == (b"a", False)
    assert decode(pglz(b"a", (0, 5)), 6, PGLZ) == (b"a", False)
    assert decode(b"\x1fa\x02\x00\x00\x00", 20, LZ4) == (b"a", False)


def test_noise_decodes_to_nothing_whole():
    noise = random.Random(1)
    for method in (PGLZ, LZ4):
        assert not any(decode(noise.randbytes(noise.randint(0, 80)), 60, method)[1] for _ in range(3000))


@pytest.mark.parametrize("at", [0, 4, 8188, 3])
@pytest.mark.parametrize(("method", "packed", "text"), [STREAMS[1], STREAMS[4]])
def test_values_are_found_where_they_stand(at, method, packed, text):
    """Residue: in pages at multiples of four, in the log anywhere."""
    header = struct.pack("<II", len(packed) + 8 << 2 | 2, len(text) | method << 30)
    block = b"\xff" * at + header + packed + b"\xff" * 50
    for step in (1, 4):
        found = [(one.at, one.size, one.data) for one in compressed_in(block, step)]
        assert found == ([(at, len(packed) + 8, text)] if at % step == 0 else [])
    assert list(compressed_in(block[: at + len(header + packed) - 1], 1)) == []
    assert not any(list(compressed_in(bytes(size), 1)) for size in range(20))


def test_a_value_in_chunks_says_what_it_was():
    method, packed, text = STREAMS[1]
    whole = struct.pack("<I", len(text) | method << 30) + packed
    assert decode_stored(whole) == (Decoded(0, len(whole), text, "pglz"), True)
    cut = decode_stored(whole[:-1])
    assert cut is not None
    assert (text.startswith(cut[0].data), cut[1]) == (True, False)
    plain = decode_stored(b"plain text of no compression")
    assert plain is None or not plain[1]
    assert decode_stored(b"ab") is None
