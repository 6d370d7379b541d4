"""Finding many pieces of bytes in a long file at once, in blocks.

Of each pattern one window of 16 (8, 4) bytes is hashed, the one that fewest others have, and the same hash is taken at
every byte of a block. Only where it is the hash of a pattern the bytes are compared. It is our own code because the
automaton of a well-kept library (ahocorasick_rs 1.0) took 10 s to be built for 70,000 patterns and then looked through
5 MB of text a second, each byte being a miss of the processor's cache; this takes 0.3 s and 30 MB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Hashes = NDArray[np.uint32]
_Bytes = NDArray[np.uint8]

_WIDTHS = (16, 8, 4)
_MIX_1, _MIX_2, _MIX_3 = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77), np.uint32(0xC2B2AE3D)
_CHOICES, _DIFFERENT = 7, 6
_FEWEST_BITS, _MOST_BITS = 14, 22
BLOCK_BYTES = 1 << 20
"""How much of a file is looked at at once, besides what a pattern may reach beyond it."""


@dataclass(slots=True)
class _Group:
    """The patterns whose windows have one width: where these lie in them, and the patterns by the hash."""

    width: int
    offsets: dict[int, int]
    by_hash: dict[int, list[int]]
    keys: _Hashes
    bits: int
    table: NDArray[np.bool_]


class Patterns:
    """Some different pieces of bytes, each of 4 and more, made ready to be found."""

    def __init__(self, patterns: Sequence[bytes]) -> None:
        """Raises ValueError when one is shorter than 4 bytes."""
        if any(len(pattern) < _WIDTHS[-1] for pattern in patterns):
            raise ValueError("a pattern is shorter than 4 bytes")
        self._patterns = patterns
        self.longest = max(map(len, patterns), default=1)
        self._groups = [group for width in _WIDTHS if (group := self._group(width)) is not None]

    def find(self, block: bytes) -> Iterator[tuple[int, int]]:
        """Where patterns stand whole in a block: the offset, and the number of the pattern. In no order."""
        data = np.frombuffer(block, np.uint8)
        hashes: dict[int, _Hashes] = dict(_hashed(data, self._groups[-1].width)) if self._groups else {}
        for group in self._groups:
            values = hashes.get(group.width)
            if values is None or not len(values):
                continue
            at = np.flatnonzero(group.table[values >> np.uint32(32 - group.bits)])
            found = values[at]
            keys = group.keys[np.minimum(np.searchsorted(group.keys, found), len(group.keys) - 1)]
            exact = keys == found
            for start, value in zip(at[exact].tolist(), found[exact].tolist(), strict=True):
                for number in group.by_hash[value]:
                    begin = start - group.offsets[number]
                    if begin >= 0 and block.startswith(self._patterns[number], begin):
                        yield begin, number

    def length_of(self, number: int) -> int:
        """How many bytes a pattern has."""
        return len(self._patterns[number])

    def _group(self, width: int) -> _Group | None:
        wider = min((one for one in _WIDTHS if one > width), default=1 << 62)
        numbers = [number for number, pattern in enumerate(self._patterns) if width <= len(pattern) < wider]
        if not numbers:
            return None
        offsets = self._rarest(numbers, width)
        windows = b"".join(self._patterns[number][at : at + width] for number, at in offsets.items())
        rows = np.frombuffer(windows, np.uint8)
        values = dict(_hashed(rows, width))[width][::width]
        by_hash: dict[int, list[int]] = {}
        for number, value in zip(offsets, values.tolist(), strict=True):
            by_hash.setdefault(value, []).append(number)
        bits = min(max(_FEWEST_BITS, len(numbers).bit_length() + 5), _MOST_BITS)
        table = np.zeros(1 << bits, np.bool_)
        table[values >> np.uint32(32 - bits)] = True
        return _Group(width, offsets, by_hash, np.unique(values), bits, table)

    def _rarest(self, numbers: Sequence[int], width: int) -> dict[int, int]:
        """For each pattern the window that fewest others have. Few different bytes stand in too many places."""
        choices = {number: _choices(self._patterns[number], width) for number in numbers}
        seen = Counter(window for windows in choices.values() for _, window in windows)

        def worth(one: tuple[int, bytes]) -> tuple[bool, int, int]:
            different = len(set(one[1]))
            return different < _DIFFERENT and different < width // 2, seen[one[1]], -different

        return {number: min(windows, key=worth)[0] for number, windows in choices.items()}


def _choices(pattern: bytes, width: int) -> list[tuple[int, bytes]]:
    last = len(pattern) - width
    places = sorted({last * step // _CHOICES for step in range(_CHOICES + 1)})
    return [(at, pattern[at : at + width]) for at in places]


def _hashed(data: _Bytes, narrowest: int) -> Iterator[tuple[int, _Hashes]]:
    """For each width the hashes of the windows that begin at each byte."""
    if len(data) < _WIDTHS[-1]:
        return
    signs = data.astype(np.uint32)
    four = signs[:-3] | signs[1:-2] << np.uint32(8) | signs[2:-1] << np.uint32(16) | signs[3:] << np.uint32(24)
    four *= _MIX_1
    four ^= four >> np.uint32(15)
    if narrowest == _WIDTHS[-1]:
        yield 4, four * _MIX_3
    eight = four[:-4] * _MIX_2 + four[4:] * _MIX_3
    yield 8, eight
    eight = eight ^ (eight >> np.uint32(13))
    yield 16, eight[:-8] * _MIX_1 + eight[8:] * _MIX_2


def scan(read: Callable[[int, int], bytes], size: int, patterns: Patterns) -> Iterator[tuple[int, int]]:
    """Where patterns stand in what can be read by offset and length: the offset, and the number, both in order."""
    step = max(BLOCK_BYTES, 4 * patterns.longest)
    for start in range(0, size, step):
        block = read(start, min(step + patterns.longest - 1, size - start))
        for at, number in sorted(patterns.find(block)):
            if at < step:
                yield start + at, number


def scan_stream(read: Callable[[int], bytes], patterns: Patterns) -> Iterator[tuple[int, int]]:
    """The same for what can only be read from its beginning to its end."""
    step = max(BLOCK_BYTES, 4 * patterns.longest)
    start, kept = 0, b""
    while piece := read(step):
        block = kept + piece
        for at, number in sorted(patterns.find(block)):
            if at + patterns.length_of(number) > len(kept):  # what ends before was told with the block before
                yield start - len(kept) + at, number
        start += len(piece)
        kept = block[-(patterns.longest - 1) :] if patterns.longest > 1 else b""
