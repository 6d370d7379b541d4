"""Finding texts in the files of a PostgreSQL server: as they stand, compressed, and in values cut in chunks."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from expunge.authority.port import KeptFile
from expunge.residue.compressed import Decoded, compressed_in, decode_stored
from expunge.residue.needles import Sought
from expunge.residue.postgres_file import Chunk, chunks_in, rows_of
from expunge.residue.postgres_log import Image, Segment
from expunge.residue.scan import BLOCK_BYTES, Patterns, scan

_HEX = re.compile(rb"[0-9a-f]+")
_FARTHEST = 64
"""So far on both sides hexadecimal digits are counted."""
_LONGEST_VALUE = 1 << 28
"""A longer value is not joined from its chunks: each of these is looked through by itself."""
_KEPT_SEGMENTS = 2
_LONGEST_REST = 1 << 20
"""So much of the following segment is read for the rest of a record; one that is longer is cut there."""


@dataclass(frozen=True, slots=True)
class Found:
    """Bytes that were found: of which pattern, and where.

    ``start`` and ``end`` are those of what stands in the file: the bytes themselves, or what they are compressed in.
    ``stream`` names what they were found in, and ``at`` is their place in it. ``digits`` is how many hexadecimal digits
    stand there in a row, when the bytes are such digits.
    """

    pattern: int
    file: KeptFile
    start: int
    end: int
    stream: str
    at: int
    within: str | None = None
    digits: int = 0
    value: int | None = None
    """The number of the long value that it is in a chunk of."""


class Finder:
    """Finds some bytes in any of the files."""

    def __init__(self, sought: Sought) -> None:
        self._patterns = Patterns(sought.patterns)
        self._sizes = [len(pattern) for pattern in sought.patterns]
        self._of_digits = {number for number, bytes_ in enumerate(sought.patterns) if _HEX.fullmatch(bytes_)}

    def in_pages(self, file: KeptFile) -> Iterator[Found]:
        """In pages, of which a block has a whole number."""
        for start in range(0, file.size, BLOCK_BYTES):
            block = file.read(start, BLOCK_BYTES)
            yield from self._in(block, file, lambda at, start=start: start + at)  # type: ignore[misc]
            for packed in compressed_in(block, 4):
                yield from self.in_packed(file, start + packed.at, packed)

    def in_other(self, file: KeptFile) -> Iterator[Found]:
        """In a file of any form."""
        for at, number in scan(file.read, file.size, self._patterns):
            yield Found(number, file, at, at + self._sizes[number], str(file.path), at)
        for start in range(0, file.size, BLOCK_BYTES):
            for packed in compressed_in(file.read(start, BLOCK_BYTES), 4):
                yield from self.in_packed(file, start + packed.at, packed)

    def in_segment(self, file: KeptFile, segment: Segment) -> Iterator[Found]:
        """In a segment of the log, where nothing has a place that is a multiple of anything."""
        if not segment.own:
            return
        end = segment.offset(segment.own - 1)
        for found in self._in(segment.records, file, segment.offset):
            if found.start <= end:
                yield found
        for packed in compressed_in(segment.records, 1):
            if packed.at < segment.own:
                yield from self.in_packed(file, segment.offset(packed.at), packed)

    def in_images(self, file: KeptFile, segment: Segment, images: Iterable[Image]) -> Iterator[Found]:
        """In the images of pages that a segment has compressed, and in what is compressed in these."""
        for image in images:
            start = segment.offset(image.at)
            yield from self.in_packed(file, start, Decoded(0, image.size, image.data, image.method or ""))
            for packed in compressed_in(image.data, 1):
                within = f"compressed ({packed.method}) in what is compressed ({image.method})"
                for found in self.in_packed(file, start, packed):
                    yield replace(found, end=start + image.size, stream=f"{found.stream}#{packed.at}", within=within)

    def in_packed(self, file: KeptFile, start: int, packed: Decoded, value: int | None = None) -> Iterator[Found]:
        """In what was compressed, by where it begins in the file."""
        stream = f"{file.path}#{start}"
        for at, number in self.find(packed.data):
            digits = self._digits(packed.data, at, number)
            end = start + packed.size
            yield Found(number, file, start, end, stream, at, f"compressed ({packed.method})", digits, value)

    def find(self, data: bytes) -> list[tuple[int, int]]:
        """Where patterns stand in some bytes, in order."""
        return sorted(self._patterns.find(data))

    def size(self, number: int) -> int:
        """How long a pattern is."""
        return self._sizes[number]

    def _in(self, data: bytes, file: KeptFile, offset: Callable[[int], int]) -> Iterator[Found]:
        for at, number in self.find(data):
            start = offset(at)
            digits = self._digits(data, at, number)
            yield Found(number, file, start, start + self._sizes[number], str(file.path), start, digits=digits)

    def _digits(self, data: bytes, at: int, number: int) -> int:
        if number not in self._of_digits:
            return 0
        first = max(at - _FARTHEST, 0)
        around = data[first : at + self._sizes[number] + _FARTHEST]
        runs = (run for run in _HEX.finditer(around) if run.start() <= at - first < run.end())
        return max((len(run[0]) for run in runs), default=0)


@dataclass(frozen=True, slots=True)
class _Held:
    file: KeptFile
    start: int
    end: int
    stands: bool
    image: bytes | None = None
    """Its bytes, where they stand in what is compressed at ``start``."""

    def place(self, at: int) -> int:
        """Where a byte of it is in the file."""
        return self.start + at if self.image is None else self.start


class Values:
    """Long values that are cut in chunks: those of a table, or those that the log has.

    Of a chunk that stands in several places one that a line pointer leads to is taken.
    """

    def __init__(self, read: Callable[[KeptFile, int, int], bytes]) -> None:
        self._read = read
        self._chunks: dict[int, dict[int, _Held]] = defaultdict(dict)
        self._places: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        self.decoded: set[int] = set()
        """The numbers of the values that were compressed and could be decoded to their end."""

    def add(self, file: KeptFile, chunk: Chunk, *, stands: bool) -> None:
        """Take a chunk in. Those of a file come in order."""
        self._places[str(file.path)].append((chunk.start, chunk.end, chunk.value))
        of_value = self._chunks[chunk.value]
        if stands or chunk.order not in of_value or not of_value[chunk.order].stands:
            of_value[chunk.order] = _Held(file, chunk.start, chunk.end, stands)

    def add_image(self, file: KeptFile, image: Image) -> None:
        """Take in the chunks of a page that the log has compressed."""
        for chunk in chunks_in(image.data):
            data = image.data[chunk.start : chunk.end]
            held = _Held(file, image.at, image.at + len(data), stands=False, image=data)
            self._chunks[chunk.value].setdefault(chunk.order, held)

    def value_at(self, file: KeptFile, start: int) -> int | None:
        """Of which value some byte of a file is."""
        places = self._places[str(file.path)]
        at = bisect_right(places, (start, 1 << 62, 0)) - 1
        return places[at][2] if at >= 0 and start < places[at][1] else None

    def size_of(self, value: int) -> int:
        """How many bytes of a value there are from its beginning on."""
        first = next(self._runs(value), []) if 0 in self._chunks.get(value, ()) else []
        return sum(held.end - held.start for held in first)

    def find(self, finder: Finder) -> Iterator[Found]:
        """What stands in the values, joined; ``Found.start`` is counted as the chunks are."""
        for value in sorted(self._chunks):
            for number, run in enumerate(self._runs(value)):
                if sum(held.end - held.start for held in run) <= _LONGEST_VALUE:
                    is_begin = number == 0 and 0 in self._chunks[value]
                    yield from self._in_run(finder, value, run, is_begin=is_begin)

    def _in_run(self, finder: Finder, value: int, run: list[_Held], *, is_begin: bool) -> Iterator[Found]:
        pieces, starts, size = [], [], 0
        for held in run:
            pieces.append(self._read(held.file, held.start, held.end) if held.image is None else held.image)
            starts.append(size)
            size += len(pieces[-1])
        data = b"".join(pieces)
        for at, number in finder.find(data):
            held = run[part := bisect_right(starts, at) - 1]
            start = held.place(at - starts[part])
            yield Found(number, held.file, start, start + finder.size(number), str(held.file.path), start, value=value)
        if is_begin and (stored := decode_stored(data)) is not None:
            packed, is_whole = stored
            if is_whole:
                self.decoded.add(value)
            yield from finder.in_packed(run[0].file, run[0].start, packed, value)

    def _runs(self, value: int) -> Iterator[list[_Held]]:
        """The chunks of a value that follow each other."""
        run: list[_Held] = []
        last = -1
        for order, held in sorted(self._chunks.get(value, {}).items()):
            if order != last + 1 and run:
                yield run
                run = []
            run.append(held)
            last = order
        if run:
            yield run


def read_chunks(values: Values, file: KeptFile, page_bytes: int) -> None:
    """Take in the chunks that stand in the pages of a TOAST table, and those that have stood there."""
    for start in range(0, file.size, page_bytes):
        page = file.read(start, page_bytes)
        found = list(chunks_in(page))
        rows = rows_of(page) if found else []
        for chunk in found:
            stands = any(row.start < chunk.start and chunk.end <= row.end for row in rows)
            moved = Chunk(chunk.value, chunk.order, start + chunk.start, start + chunk.end)
            values.add(file, moved, stands=stands)


class Segments:
    """The segments of the log in the order of their names, each read when it is asked for."""

    def __init__(self, files: Sequence[KeptFile], page_bytes: int) -> None:
        self._page_bytes = page_bytes
        self._follows = dict(pairwise(files))
        self.of = lru_cache(_KEPT_SEGMENTS)(self._read)

    def _read(self, file: KeptFile) -> Segment:
        follows = self._follows.get(file)
        after = b"" if follows is None else follows.read(0, _LONGEST_REST)
        return Segment(file.read(0, file.size), self._page_bytes, after)

    def bytes_of(self, file: KeptFile, start: int, end: int) -> bytes:
        """Some bytes, counted as in the records."""
        return self.of(file).records[start:end]
