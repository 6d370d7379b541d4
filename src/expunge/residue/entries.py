"""The entries of the search index, read from its own blocks: which of them hold all the words of a text.

No word stands there, only a keyed hash of it, once for all records that have it, with a list of their numbers. So what
can be told is that an entry has every word of a text, and not that it had them in this order. Asking the index instead
would answer only for entries that it still finds: what left it stays in its blocks until they are merged ("FTS5",
"contentless-delete tables").
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from expunge.authority.port import Statement, Tx
from expunge.residue.sqlite_file import varint

FEWEST_WORDS = 3
"""A text of fewer different words than that is not looked for in the index: they stand in too many entries by right."""
_BLOCKS = Statement(
    "search.blocks", "SELECT id, block FROM search_data WHERE id > :after AND id < :before ORDER BY id LIMIT :size"
)
_A_TIME = 500
_SEGMENT_BITS, _PAGE_BITS = 37, 31
_TOMBSTONES_FROM = 1 << 16
"""Segments from this number on are lists of what has left the index."""
_ONE_BYTE = 0x80
_MAIN = b"0"
"""How each term of the main index begins."""
_Doclist = tuple[bytes, int, int]


@dataclass(slots=True)
class Entries:
    """Collects, from blocks in any order, which numbers stand with which of some words."""

    words_of: Mapping[int, frozenset[bytes]]
    """By needle the hashes of its different words."""
    _numbers: dict[bytes, array[int]] = field(init=False)
    _last: tuple[int, bytes] = field(default=(0, b""), init=False)

    def __post_init__(self) -> None:
        """Begin with no number for any word."""
        self._numbers = {word: array("q") for words in self.words_of.values() for word in words}

    def read_index(self, tx: Tx) -> None:
        """Take in every block of the index as it stands."""
        after = 1 << _SEGMENT_BITS
        while self._numbers:
            rows = tx.rows(_BLOCKS, after=after - 1, before=_TOMBSTONES_FROM << _SEGMENT_BITS, size=_A_TIME)
            for number, block in rows:
                self.take(number, block)
            if len(rows) < _A_TIME:
                return
            after = rows[-1][0] + 1

    def take(self, block_id: int, block: bytes) -> None:
        """Take in a block, of an older version of a page too. What is no leaf of a segment, or broken, adds nothing."""
        is_leaf = not block_id >> _PAGE_BITS & (1 << _SEGMENT_BITS - _PAGE_BITS) - 1
        if not is_leaf or block_id >> _SEGMENT_BITS >= _TOMBSTONES_FROM:
            return
        before = self._last[1] if block_id == self._last[0] + 1 else b""
        last = before
        try:
            for term, start, end in _doclists(block, before):
                last = term
                found = self._numbers.get(term.removeprefix(_MAIN))
                if found is not None:
                    found.extend(_numbers(block, start, end))
        except (IndexError, OverflowError):
            pass
        self._last = (block_id, last)

    def complete(self) -> Iterator[tuple[int, int]]:
        """Needle and number of each entry that has every word of the needle."""
        sets = {word: np.unique(np.frombuffer(found, np.int64)) for word, found in self._numbers.items()}
        for needle, words in self.words_of.items():
            with_each = sorted((sets[word] for word in words), key=len)
            for number in _common(with_each).tolist():
                yield needle, number


_Set = NDArray[np.int64]


def _common(sets: list[_Set]) -> _Set:
    """What stands in all of some sets, each sorted, and the shortest first."""
    left, *others = sets or [np.empty(0, np.int64)]
    for other in others:
        if not len(left):
            break
        at = np.minimum(np.searchsorted(other, left), len(other) - 1)
        left = left[other[at] == left]
    return left


def _doclists(block: bytes, before: bytes) -> Iterator[_Doclist]:
    """The terms of a leaf, each with where its list of numbers begins and ends; first the rest of the one before."""
    first_number, size = int.from_bytes(block[:2], "big"), int.from_bytes(block[2:4], "big")
    starts = list(_starts(block, size))
    ends = [*starts[1:], size]
    if first_number and before and (not starts or first_number < starts[0]):
        yield before, first_number, starts[0] if starts else size
    term = b""
    for order, (start, end) in enumerate(zip(starts, ends, strict=False)):
        kept, at = varint(block, start) if order else (0, start)
        fresh, at = varint(block, at)
        term = term[:kept] + block[at : at + fresh]
        yield term, at + fresh, end


def _starts(block: bytes, size: int) -> Iterable[int]:
    at, start = size, 0
    while at < len(block):
        step, at = varint(block, at)
        start += step
        yield start


def _numbers(block: bytes, at: int, end: int) -> list[int]:
    """The numbers of a list. Nearly all steps and sizes have one byte, and there are millions of them."""
    found, number = [], 0
    while at < end:
        step, at = (block[at], at + 1) if block[at] < _ONE_BYTE else varint(block, at)
        number += step
        found.append(number)
        size, at = (block[at], at + 1) if block[at] < _ONE_BYTE else varint(block, at)
        at += size >> 1  # the last bit says that an entry was deleted
    return found
