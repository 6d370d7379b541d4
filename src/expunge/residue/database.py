"""Looking into the files of a database: each hit is led back to its page, its b-tree, its cell and so its row.

A page has several versions: one in the file, and one in each frame of the log that names it. One of them stands. What
is found in another is an older copy; it goes with its record, because an erasure empties the log. So it is accounted
for exactly when the same row of the same table still holds the same bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from expunge.authority.port import KeptFile, Tx
from expunge.residue.accounts import DIGITS, Account, Accounts, nothing
from expunge.residue.entries import Entries
from expunge.residue.log import read_log
from expunge.residue.needles import Form, Meaning, Sought
from expunge.residue.scan import Patterns, scan
from expunge.residue.sqlite_file import FILE_HEADER_BYTES, Layout
from expunge.residue.tally import Place, Tally, Unknown
from expunge.residue.trees import Key, Owners, Pages, Spot, blocks_in, read_trees

_HEX = re.compile(rb"[0-9a-f]+")
_LONG_RUN = 24
"""So many hexadecimal digits in a row are a hash, also where nobody knows what the page was."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Bytes that were found: of which pattern, in which version of which page, and where in it."""

    pattern: int
    file: KeptFile
    offset: int
    page: int
    frame: int | None
    at: int


@dataclass(slots=True)
class Files:
    """The files of a database on a snapshot, looked into for some bytes."""

    tx: Tx
    files: Sequence[KeptFile]
    accounts: Accounts
    sought: Sought
    tally: Tally

    def look(self, entries: Entries) -> None:
        """Look into every file, and into the search index in them."""
        patterns = Patterns(self.sought.patterns)
        database = next((file for file in self.files if file.form == "database"), None)
        layout = None if database is None else Layout.of(database.read(0, FILE_HEADER_BYTES))
        log_file = next((file for file in self.files if file.form == "log"), None)
        if layout is None and log_file is not None:
            layout = _layout_in(log_file)
        paged: list[KeptFile] = []
        if database is not None and layout is None and database.size:
            self.tally.unknown.append(Unknown(str(database.path), "it is no SQLite file that can be read"))
        if database is not None and layout is not None:
            log = read_log(log_file, layout.page_bytes) if log_file is not None else None
            pages = Pages(database, log, layout)
            _Paged(self, pages, Owners(pages, read_trees(self.tx)), patterns).look(entries)
            paged = [file for file in (database, log_file) if file is not None]
        for file in self.files:
            if file not in paged:
                self._look_raw(file, patterns)

    def _look_raw(self, file: KeptFile, patterns: Patterns) -> None:
        once = Once()
        for offset, number in scan(file.read, file.size, patterns):
            place = Place(str(file.path), offset, None, "a file beside the database")
            meanings, size = self.sought.meanings[number], len(self.sought.patterns[number])
            for meaning in once.new(meanings, place.file, offset, size):
                self.tally.add(meaning, place, nothing("nothing is known of it"))


def _layout_in(log: KeptFile) -> Layout | None:
    """The layout of a database whose first page stands in its log alone."""
    size = int.from_bytes(log.read(8, 4), "big")
    read = read_log(log, size) if 512 <= size <= 65536 else None  # noqa: PLR2004 (the sizes that a page may have)
    return Layout.of(read.read(read.newest[1])) if read is not None and 1 in read.newest else None


class Once:
    """Leaves out the pieces of a text where the whole of it was found. Of each file it is told in order."""

    def __init__(self) -> None:
        self._whole: dict[tuple[str, int, Form], tuple[int, int]] = {}

    def new(self, meanings: Iterable[Meaning], file: str, offset: int, size: int) -> Iterator[Meaning]:
        """What the bytes found at an offset mean that was not said yet."""
        for meaning in meanings:
            key = (file, meaning.needle, meaning.form)
            start, end = self._whole.get(key, (0, 0))
            if not meaning.is_part:
                self._whole[key] = (offset, offset + size)
            elif start <= offset and offset + size <= end:
                continue
            yield meaning


class _Paged:
    """The database file and its log."""

    def __init__(self, files: Files, pages: Pages, owners: Owners, patterns: Patterns) -> None:
        self._files, self._pages, self._owners, self._patterns = files, pages, owners, patterns
        self._layout, self._log = pages.layout, pages.log
        self._holders: set[tuple[int, str, Key | None]] = set()
        """Pattern and row, of what was found in pages that stand."""
        self._continued: dict[bytes, Spot] = {}
        """By the digest of an overflow page that stands, the spot that it continues."""
        self._once = Once()

    def look(self, entries: Entries) -> None:
        """Look into both files: first for what stands, because it tells whose the older copies are."""
        overflowing: list[_Found] = []
        older: list[_Found] = []
        for found in self._found():
            if not self._stands(found):
                older.append(found)
            elif not self._settle(found):
                overflowing.append(found)
        spots = self._owners.overflowing({found.page for found in overflowing})
        for found in overflowing:
            self._settle_overflow(found, spots.get(found.page))
        for found in older:
            self._settle_older(found)
        self._look_for_words(entries)

    def _found(self) -> Iterator[_Found]:
        file, size = self._pages.file, self._layout.page_bytes
        for offset, number in scan(file.read, file.size, self._patterns):
            yield _Found(number, file, offset, offset // size + 1, None, offset % size)
        if self._log is not None:
            file = self._log.file
            for offset, number in scan(file.read, file.size, self._patterns):
                frame, at = self._log.where(offset) or (-1, 0)
                yield _Found(number, file, offset, self._log.page_at(frame) if frame >= 0 else 0, frame, at)

    def _stands(self, found: _Found) -> bool:
        if found.frame is None:
            return self._pages.in_file(found.page)
        return self._log is not None and self._log.counts(found.frame, found.page)

    def _page(self, found: _Found) -> bytes:
        if found.frame is None:
            return self._pages.of_file(found.page)
        return b"" if self._log is None or found.frame < 0 else self._log.read(found.frame)

    def _settle(self, found: _Found) -> bool:
        """Say whose a hit is in a page that stands; whether it could be said without the overflow pages."""
        tree = self._owners.tree_of(found.page)
        if tree is None:
            if not self._owners.is_free(found.page):
                return False
            self._add(found, "a free page", nothing("the page is free"))
            return True
        end = found.at + len(self._files.sought.patterns[found.pattern])
        spot = self._owners.spot(tree, found.page, (found.at, end))
        if spot is None:
            self._add(found, f"the unused space of a page of {tree.name}", nothing("no cell has it", tree.table))
        else:
            self._settle_spot(found, spot)
        return True

    def _settle_spot(self, found: _Found, spot: Spot, words: str = "") -> None:
        self._holders.add((found.pattern, *spot.row))
        account = self._files.accounts.of(spot, in_hash=self._in_hash(found, 0))
        self._add(found, _place_of(spot) + words, account)

    def _settle_overflow(self, found: _Found, spot: Spot | None) -> None:
        if spot is None:
            self._add(found, "a page that belongs to nothing", nothing("no row goes on in it"))
            return
        self._continued[self._content(self._page(found))] = spot
        self._settle_spot(found, spot, ", in an overflow page")

    def _settle_older(self, found: _Found) -> None:
        """Say whose an older copy is: of the row that holds the same bytes in the page that stands, or nobody's."""
        spot = self._spot_of_older(found)
        is_page = 0 < found.page <= self._pages.count
        where = "an older copy of a page" if is_page else "what nobody uses any more of the file"
        if spot is None:
            self._add(found, where, nothing("no row that stands has it"))
            return
        self._add(found, f"{where}, {_place_of(spot)}", self._files.accounts.of(spot, in_hash=self._in_hash(found, 0)))

    def _spot_of_older(self, found: _Found) -> Spot | None:
        page = self._page(found)
        tree = self._owners.tree_of(found.page)
        if tree is not None:
            end = found.at + len(self._files.sought.patterns[found.pattern])
            spot = self._owners.spot(tree, found.page, (found.at, end), of=page)
            if spot is not None and (found.pattern, *spot.row) in self._holders:
                return spot
        return self._continued.get(self._content(page)) if page else None

    def _content(self, page: bytes) -> bytes:
        return hashlib.sha256(page[4 : self._layout.usable]).digest()

    def _in_hash(self, found: _Found, least: int) -> bool:
        """Whether the bytes are hexadecimal digits in a longer run of them."""
        bytes_found = self._files.sought.patterns[found.pattern]
        if not _HEX.fullmatch(bytes_found):
            return False
        page, start, end = self._page(found), found.at, found.at + len(bytes_found)
        run = next((run for run in _HEX.finditer(page) if run.start() <= start and end <= run.end()), None)
        return run is not None and len(run[0]) > max(len(bytes_found), least - 1)

    def _add(self, found: _Found, words: str, account: Account) -> None:
        sought = self._files.sought
        place = Place(str(found.file.path), found.offset, None, words)
        if not account.accounts and self._in_hash(found, _LONG_RUN):
            account = DIGITS
        meanings, size = sought.meanings[found.pattern], len(sought.patterns[found.pattern])
        for meaning in self._once.new(meanings, place.file, found.offset, size):
            self._files.tally.add(meaning, place, account)

    def _look_for_words(self, entries: Entries) -> None:
        entries.read_index(self._files.tx)
        for number, page in self._older_pages():
            for block_id, block in blocks_in(page, number, self._layout):
                entries.take(block_id, block)
        file = str(self._pages.file.path)
        for needle, number in entries.complete():
            place = Place(file, None, None, "an entry of the search index")
            self._files.tally.add(Meaning(needle, Form.WORDS), place, self._files.accounts.of_entry(number))

    def _older_pages(self) -> Iterator[tuple[int, bytes]]:
        """Every version of a page that does not stand, and the pages of no tree."""
        for number in range(1, self._pages.file.size // self._layout.page_bytes + 1):
            if not self._pages.in_file(number) or self._owners.tree_of(number) is None:
                yield number, self._pages.of_file(number)
        for frame in range(self._log.frames if self._log is not None else 0):
            log = self._log
            if log is not None and not log.counts(frame, page := log.page_at(frame)):
                yield page, log.read(frame)


def _place_of(spot: Spot) -> str:
    column = f".{spot.column}" if spot.column else ""
    where = f"{spot.tree.table}{column}"
    return where if spot.tree.name == spot.tree.table else f"{where}, in the index {spot.tree.name}"
