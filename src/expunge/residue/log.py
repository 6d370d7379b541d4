"""The write-ahead log of a database: which of its frames count, and which page each of them is a version of.

A frame counts when it carries the salts of the header, the checksums from the header to it are right, and a commit
comes with it or after it ("WAL File Format" of SQLite's documentation). Whatever else stands in the log is left over.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from expunge.authority.port import KeptFile

HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682
"""With its last bit set where the checksums take the words as big-endian."""
_STEP = ((1, 1), (1, 2))
"""What two words less to come make of the two sums: each step is s0 += x0 + s1, s1 += x1 + s0, modulo 2^32."""
_WRAP = 0xFFFFFFFF
_Words = NDArray[np.uint32]


@dataclass(slots=True)
class Log:
    """A log that was read: of each page the frame that counts, and how many pages the database has with it."""

    file: KeptFile
    page_bytes: int
    newest: dict[int, int] = field(default_factory=dict)
    """Frame by page, frames counted from 0, as of the last commit."""
    pages: int = 0
    """How many pages the database has since the last commit; 0 when nothing is committed here."""

    @property
    def frame_bytes(self) -> int:
        """A frame with its header."""
        return FRAME_HEADER_BYTES + self.page_bytes

    @property
    def frames(self) -> int:
        """How many frames the file has room for, whatever they are worth."""
        return max(self.file.size - HEADER_BYTES, 0) // self.frame_bytes

    def page_at(self, frame: int) -> int:
        """Which page a frame says that it is a version of."""
        return int(_FRAME.unpack(self.file.read(self._offset(frame), FRAME_HEADER_BYTES))[0])

    def read(self, frame: int) -> bytes:
        """The page in a frame."""
        return self.file.read(self._offset(frame) + FRAME_HEADER_BYTES, self.page_bytes)

    def counts(self, frame: int, page: int) -> bool:
        """Whether a frame is the version of a page that stands."""
        return self.newest.get(page) == frame

    def where(self, offset: int) -> tuple[int, int] | None:
        """The frame at an offset of the file, and the offset in its page; ``None`` in a header or a broken frame."""
        frame, at = divmod(offset - HEADER_BYTES, self.frame_bytes)
        return (frame, at - FRAME_HEADER_BYTES) if 0 <= frame < self.frames and at >= FRAME_HEADER_BYTES else None

    def _offset(self, frame: int) -> int:
        return HEADER_BYTES + frame * self.frame_bytes


def read_log(file: KeptFile, page_bytes: int) -> Log:
    """Read which frames of a log count; of what is no log of such pages, none does."""
    log = Log(file, page_bytes)
    header = file.read(0, HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return log
    magic, _, size, _, *salts, first, second = _HEADER.unpack(header)
    order = ">" if magic & 1 else "<"
    if magic & ~1 != _MAGIC or size != page_bytes:
        return log
    sums = _Sums(order, (first, second), HEADER_BYTES - 8, page_bytes + 8)
    if not sums.begin(header[:-8]):
        return log
    uncommitted: dict[int, int] = {}
    for frame in range(log.frames):
        data = file.read(HEADER_BYTES + frame * log.frame_bytes, log.frame_bytes)
        if len(data) < log.frame_bytes:
            break
        page, commits, *rest = _FRAME.unpack_from(data)
        if rest[:2] != salts or sums.add(data[:8] + data[FRAME_HEADER_BYTES:]) != (rest[2], rest[3]):
            break
        uncommitted[page] = frame
        if commits:
            log.newest |= uncommitted
            log.pages = commits
            uncommitted.clear()
    return log


class _Sums:
    """The running checksum. It is linear in the words, so that of a whole frame is a product with fixed factors."""

    def __init__(self, order: str, header: tuple[int, int], header_bytes: int, frame_bytes: int) -> None:
        self._words = f"{order}u4"
        self._expected = header
        self._of_header, self._of_frame = _Factors(header_bytes // 8), _Factors(frame_bytes // 8)
        self._sums = (0, 0)

    def begin(self, data: bytes) -> bool:
        """Take the header in; whether its checksum is the one that it carries."""
        self._sums = self._of_header.apply(np.frombuffer(data, self._words), (0, 0))
        return self._sums == self._expected

    def add(self, data: bytes) -> tuple[int, int]:
        """Take a frame in; the two sums as they are now."""
        self._sums = self._of_frame.apply(np.frombuffer(data, self._words), self._sums)
        return self._sums


class _Factors:
    def __init__(self, steps: int) -> None:
        power = ((1, 0), (0, 1))
        factors = []
        for _ in range(steps):  # from the last pair of words to the first: x0 adds (1, 1) to the sums, x1 adds (0, 1)
            (a, b), (c, d) = power
            factors.append((a + b, b, c + d, d))
            power = _times(power)
        self._start = power
        wrapped = [[value & _WRAP for value in four] for four in reversed(factors)]
        self._first: _Words = np.array([pair for four in wrapped for pair in four[:2]], np.uint32)
        self._second: _Words = np.array([pair for four in wrapped for pair in four[2:]], np.uint32)

    def apply(self, words: _Words, sums: tuple[int, int]) -> tuple[int, int]:
        words = words.astype(np.uint32)
        (a, b), (c, d) = self._start
        first = int(np.dot(words, self._first)) + a * sums[0] + b * sums[1]
        second = int(np.dot(words, self._second)) + c * sums[0] + d * sums[1]
        return first & _WRAP, second & _WRAP


def _times(power: tuple[tuple[int, int], tuple[int, int]]) -> tuple[tuple[int, int], tuple[int, int]]:
    (a, b), (c, d) = power
    (e, f), (g, h) = _STEP
    return (
        ((a * e + b * g) & _WRAP, (a * f + b * h) & _WRAP),
        ((c * e + d * g) & _WRAP, (c * f + d * h) & _WRAP),
    )
