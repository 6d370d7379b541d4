"""Values as PostgreSQL compresses them: pglz and blocks of LZ4, decoded, and found in any bytes.

Both are lists of literal bytes and of copies of what was decoded before. A value says how long it is and how long it
was, so that bytes which only look like one hardly ever decode to just these lengths.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_HEADER = struct.Struct("<II").unpack_from
HEADER_BYTES = 8
SIZE_BITS = 30
_SIZE = (1 << SIZE_BITS) - 1
METHODS = {0: "pglz", 1: "LZ4"}
_MOST_TIMES = 256
"""How many times as long as itself a value may have been: a copy of 2 to 3 bytes stands for 273 at most in pglz, and a
byte for 255 in LZ4."""
_NIBBLE, _BYTE = 15, 255
_LONGEST_IN_PLACE = 1 << 16
"""A longer value does not stand in a page: it goes into chunks of the TOAST table."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A value that was compressed: where it stands, how long it is there, and what it was."""

    at: int
    size: int
    data: bytes
    method: str


def decode(packed: bytes, size: int, method: int) -> tuple[bytes, bool]:
    """What a compressed value was, as far as it decodes, and whether that is all and of just the size that was told."""
    out = bytearray()
    try:
        is_whole = (_pglz if method == 0 else _lz4)(packed, size, out)
    except IndexError:
        is_whole = False
    return bytes(out), is_whole and len(out) == size


def decode_stored(data: bytes) -> tuple[Decoded, bool] | None:
    """A value as it stands in chunks: how long it was and by which method, then the value compressed.

    Of one whose end is lost the beginning is decoded, and whether it is whole is said. ``None`` where it cannot be one.
    """
    told = int.from_bytes(data[:4], "little")
    size, method = told & _SIZE, told >> SIZE_BITS
    if len(data) <= HEADER_BYTES // 2 or method not in METHODS or size <= len(data) - 4:
        return None
    found, is_whole = decode(data[4:], size, method)
    return Decoded(0, len(data), found, METHODS[method]), is_whole


def compressed_in(block: bytes, step: int) -> Iterator[Decoded]:
    """The compressed values that stand whole in some bytes; ``step`` is what their places are multiples of.

    Of the header the first word is the length times 4 plus 2, the second the length before and the method.
    """
    for start in range(0, 4 if len(block) > HEADER_BYTES + 4 else 0, step):
        words = np.frombuffer(block, np.dtype("<u4"), (len(block) - start) // 4, start)
        sizes, told = words[:-1] >> 2, words[1:]
        was = told & np.uint32(_SIZE)
        fits = (words[:-1] & 3 == 2) & (sizes > HEADER_BYTES) & (sizes <= _LONGEST_IN_PLACE)  # noqa: PLR2004
        fits &= (was > sizes - HEADER_BYTES) & (was // _MOST_TIMES <= sizes) & (told >> SIZE_BITS < len(METHODS))
        for place in np.flatnonzero(fits).tolist():
            at, size = start + 4 * place, int(sizes[place])
            method = int(told[place]) >> SIZE_BITS
            if at + size > len(block) or not _begins(block[at + HEADER_BYTES], method):
                continue
            found, is_whole = decode(block[at + HEADER_BYTES : at + size], int(was[place]), method)
            if is_whole:
                yield Decoded(at, size, found, METHODS[method])


def _begins(first: int, method: int) -> bool:
    """Whether a value can begin so: with a literal byte, because there is nothing yet to be copied."""
    return not first & 1 if method == 0 else first > _NIBBLE


def _pglz(packed: bytes, size: int, out: bytearray) -> bool:
    """A control byte tells of the next eight items, from its lowest bit on, which are copies.

    A copy has its length less 3 in the low four bits of its first byte, and how far back it begins in the high four
    and the second byte; a length of 18 goes on in a third.
    """
    at, end = 0, len(packed)
    while at < end and len(out) < size:
        control = packed[at]
        at += 1
        for bit in range(8):
            if at >= end or len(out) >= size:
                break
            if not control >> bit & 1:
                out.append(packed[at])
                at += 1
                continue
            first, second = packed[at], packed[at + 1]
            length, back = (first & _NIBBLE) + 3, (first & 0xF0) << 4 | second
            at += 2
            if length == _NIBBLE + 3:
                length += packed[at]
                at += 1
            _copy(out, back, length)
    return at == end


def _lz4(packed: bytes, size: int, out: bytearray) -> bool:
    """Each sequence: a byte with two lengths, literal bytes, and a copy. The last one has literal bytes alone.

    A length of 15 goes on in further bytes, up to the first that is not 255. A copy is 4 bytes longer than it says.
    """
    at, end = 0, len(packed)
    while at < end and len(out) <= size:
        token = packed[at]
        literal, at = _length(packed, at + 1, token >> 4)
        out += packed[at : at + literal]
        at += literal
        if at >= end:
            return at == end
        back = packed[at] | packed[at + 1] << 8
        length, at = _length(packed, at + 2, token & _NIBBLE)
        _copy(out, back, length + 4)
    return False


def _length(packed: bytes, at: int, length: int) -> tuple[int, int]:
    more = _BYTE if length == _NIBBLE else 0
    while more == _BYTE:
        more = packed[at]
        length += more
        at += 1
    return length, at


def _copy(out: bytearray, back: int, length: int) -> None:
    """Repeat what stands so far back; it may reach into what it has just written."""
    if not 0 < back <= len(out):
        raise IndexError
    piece = bytes(out[-back:][:length])
    times, rest = divmod(length, len(piece))
    out += piece * times + piece[:rest]
