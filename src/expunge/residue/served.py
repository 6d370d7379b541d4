"""Looking into the files of a PostgreSQL server: each hit is led back to its page, its line pointer, and so its row.

A version of a row stands when the snapshot sees it at its place (``ctid``). Whatever else the files hold is a copy: a
version of before, an entry of an index, the unused space of a page, the log, what the planner has noted. A version
whose key can be read is accounted for by that row, if it still holds the same bytes. The others do not say whose they
are, so they are accounted for by any row of the same table that holds the same bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from expunge.authority.port import KeptFile, Row, Statement, Tx
from expunge.residue.accounts import DIGITS, FOREIGN, Account, Accounts, Standing, nothing
from expunge.residue.database import Once
from expunge.residue.needles import Form, Meaning, Sought
from expunge.residue.postgres_file import Piece, Pointer, chunks_in, pieces_of, pointers_in, row_at, rows_of
from expunge.residue.postgres_log import Relation
from expunge.residue.postgres_scan import Finder, Found, Segments, Values, read_chunks
from expunge.residue.postgres_tables import STATISTICS, Place, Table, key_in, read_catalog, standing
from expunge.residue.tally import Place as Shown
from expunge.residue.tally import Tally, Unknown

_LONG_RUN = 24
"""So many hexadecimal digits in a row are a hash wherever they stand."""
_WITH_ALL = Statement("residue.entries", "SELECT record FROM search WHERE words @> CAST(:words AS text[])")
_STALE = Statement(
    "residue.stale_words",
    """SELECT w.word FROM unnest(CAST(:words AS text[])) AS w (word)
    WHERE NOT EXISTS (SELECT 1 FROM search s WHERE s.words @> ARRAY[w.word])""",
)
_KEPT_PAGES = 64
_NONE = "no row that stands has it"


@dataclass(slots=True)
class _Settled:
    """A hit with what accounts for it."""

    found: Found
    words: str
    account: Account


@dataclass(frozen=True, slots=True)
class _Owner:
    """A version of a row that has a long value: where it stands, and its pointer."""

    file: KeptFile
    place: Place
    pointer: Pointer


@dataclass(slots=True)
class ServedFiles:
    """The files of a server on a snapshot, looked into for some bytes."""

    tx: Tx
    files: Sequence[KeptFile]
    accounts: Accounts
    sought: Sought
    tally: Tally

    def look(self, words_of: Mapping[int, frozenset[bytes]]) -> None:
        """Look into every file; ``words_of`` has by needle the hashes of its different words.

        A hash of a word that no entry of the search index has is looked for in the bytes, as texts are.
        """
        for file in self.files:
            if file.fault is not None:
                self.tally.unknown.append(Unknown(str(file.path), file.fault))
        opened = [file for file in self.files if file.fault is None]
        if not any(file.form == "heap" for file in opened):
            return
        self._add_stale_words(words_of)
        _Look(self, opened).look()
        self._count_entries(words_of, opened)

    def _add_stale_words(self, words_of: Mapping[int, frozenset[bytes]]) -> None:
        words = sorted({word.decode() for words in words_of.values() for word in words})
        stale = {str(word).encode() for (word,) in self.tx.rows(_STALE, words=words)} if words else set()
        for needle, of_needle in words_of.items():
            for word in sorted(stale & of_needle):
                self.sought.add(word, Meaning(needle, Form.WORDS))

    def _count_entries(self, words_of: Mapping[int, frozenset[bytes]], opened: Iterable[KeptFile]) -> None:
        folder = str(next(file.path.parent for file in opened if file.form == "heap"))
        for needle, words in words_of.items():
            for (number,) in self.tx.rows(_WITH_ALL, words=sorted(word.decode() for word in words)):
                place = Shown(folder, None, None, "an entry of the search index")
                self.tally.add(Meaning(needle, Form.WORDS), place, self.accounts.of_entry(number))


class _Look:
    """One look into the files."""

    def __init__(self, asked: ServedFiles, opened: Sequence[KeptFile]) -> None:
        self._asked, self._tx, self._files = asked, asked.tx, opened
        self._finder = Finder(asked.sought)
        self._catalog = read_catalog(asked.tx)
        self._logs = [file for file in opened if file.form == "wal"]
        self._segments = Segments(self._logs, self._catalog.log_page_bytes)
        self._page = lru_cache(_KEPT_PAGES)(self._read_page)
        self._holders: dict[int, dict[tuple[str, Row], Account]] = defaultdict(dict)
        """By pattern the rows that stand and hold it."""
        self._holder_of: dict[int, Account] = {}
        """By needle one of those that account for it."""
        self._waiting: list[tuple[Found, Callable[[Found], _Settled]]] = []
        self._settled: list[_Settled] = []

    def look(self) -> None:
        """First what stands, because it tells whose the copies are."""
        for table in {table.number: table for table in self._catalog.tables.values()}.values():
            self._look_into(table)
        for file in self._files:
            if file.form == "index":
                self._wait(self._finder.in_pages(file), self._settle_entry)
            elif file.form == "other":
                self._wait(self._finder.in_other(file), self._settle_other)
        self._look_into_log()
        self._settled += [settle(found) for found, settle in self._waiting]
        self._read_holders()
        self._tell()

    def _wait(self, found: Iterable[Found], settle: Callable[[Found], _Settled]) -> None:
        self._waiting += [(one, settle) for one in found]

    # --- tables ---

    def _look_into(self, table: Table) -> None:
        heaps = [file for file in self._files if file.form == "heap" and file.relation == table.number]
        toasts = [file for file in self._files if file.form == "toast" and file.relation == table.toast]
        found = [one for file in heaps for one in self._finder.in_pages(file)]
        values = Values(lambda file, start, end: file.read(start, end - start))
        for file in toasts:
            read_chunks(values, file, self._catalog.page_bytes)
        in_values = self._in_toast(toasts, values)
        pointers = [one for file in heaps for one in self._pointers(file, table)] if toasts else []
        places = {place for one in found if (place := self._place(one.file, one.start, one.end)) is not None}
        wanted = {one.value for one in in_values}
        for owner in pointers:
            if owner.pointer.value in wanted or not _is_there(owner.pointer, values):
                places.add(owner.place)
        rows = standing(self._tx, table, places)
        for one in found:
            self._settle_row(one, table, rows)
        noted = table.name == STATISTICS
        owners = {owner.pointer.value: owner for owner in pointers if noted or owner.place in rows}
        for one in in_values:
            self._settle_value(one, table, owners, rows)
        for value, owner in owners.items():
            if not noted and not _is_there(owner.pointer, values):
                why = f"long value {value} of {table.name} is not there whole, or cannot be decoded"
                self._asked.tally.unknown.append(Unknown(str(owner.file.path), why))

    def _in_toast(self, toasts: Iterable[KeptFile], values: Values) -> list[Found]:
        """What stands in the values of a table, and in the bytes of the chunks that are not in use for them."""
        found = {(one.pattern, str(one.file.path), one.start, one.within): one for one in values.find(self._finder)}
        for file in toasts:
            for one in self._finder.in_pages(file):
                of_value = replace(one, value=values.value_at(file, one.start))
                found.setdefault((one.pattern, str(file.path), one.start, one.within), of_value)
        return list(found.values())

    def _pointers(self, file: KeptFile, table: Table) -> Iterator[_Owner]:
        size = self._catalog.page_bytes
        for start in range(0, file.size, size):
            page = file.read(start, size)
            for pointer in pointers_in(page, table.toast):
                row = row_at(page, pointer.at, pointer.at + 1)
                if row is not None:
                    yield _Owner(file, (file.first_page + start // size, row.line), pointer)

    def _settle_row(self, found: Found, table: Table, rows: Mapping[Place, Row]) -> None:
        place = self._place(found.file, found.start, found.end)
        if place is None:
            words = f"the unused space of a page of {table.name}"
            self._wait([found], lambda one: self._by_value(one, words, table))
            return
        pieces = self._pieces(found.file, place, table)
        column = _column_at(pieces, found.start % self._catalog.page_bytes)
        key = key_in({piece.name: piece.value for piece in pieces}, table)
        where = f"{table.name}.{column}" if column else table.name
        if table.name == STATISTICS:
            self._wait([found], lambda one: self._settle_noted(one, pieces))
        elif place in rows and key in (None, rows[place]):
            self._settle_standing(found, where, table, rows[place], column)
        else:
            words = f"a version of a row that no longer stands, {where}"
            self._wait([found], lambda one: self._settle_before(one, words, table, key))

    def _settle_value(
        self, found: Found, table: Table, owners: Mapping[int, _Owner], rows: Mapping[Place, Row]
    ) -> None:
        owner, noted = owners.get(found.value or 0), table.name == STATISTICS
        words = f"a long value of {table.name} that no row has"
        if found.value is None:
            words = f"the unused space of a page of long values of {table.name}"
        if owner is not None:
            pieces = self._pieces(owner.file, owner.place, table)
            column = _column_at(pieces, owner.pointer.at)
            if noted:
                self._wait([found], lambda one: self._settle_noted(one, pieces))
            else:
                self._settle_standing(found, f"{table.name}.{column}, a long value", table, rows[owner.place], column)
        elif noted or found.value is None:
            self._wait([found], lambda one: self._by_value(one, words, table))
        else:
            self._settled.append(_of_nobody(found, words, table))

    def _settle_standing(self, found: Found, where: str, table: Table, key: Row, column: str | None) -> None:
        in_hash = found.digits > self._finder.size(found.pattern)
        account = self._asked.accounts.of_row(table.name, key, column, in_hash=in_hash)
        if account.standing is not Standing.DIGITS:
            self._holders[found.pattern].setdefault((table.name, key), account)
        self._settled.append(_Settled(found, where, account))

    def _settle_before(self, found: Found, words: str, table: Table, key: Row | None) -> _Settled:
        if key is None:
            return self._by_value(found, words, table)
        holder = self._holders.get(found.pattern, {}).get((table.name, key))
        return _of_nobody(found, words, table) if holder is None else _Settled(found, words, holder)

    def _settle_noted(self, found: Found, pieces: Sequence[Piece], where: str = "") -> _Settled:
        number = next((piece.value for piece in pieces if piece.name == "starelid"), None)
        table = self._catalog.tables.get(number or 0)
        if table is None:
            return _Settled(found, f"what the planner has noted{where}", FOREIGN)
        return self._by_value(found, f"what the planner has noted of {table.name}{where}", table)

    # --- copies ---

    def _settle_entry(self, found: Found) -> _Settled:
        number = found.file.relation or 0
        table = self._catalog.tables.get(number)
        words = f"{table.name if table else 'a table'}, in the index {self._catalog.names.get(number)}"
        return self._by_value(found, words, table)

    def _settle_other(self, found: Found) -> _Settled:
        return _Settled(found, "a file beside the tables", nothing("nothing is known of it"))

    def _look_into_log(self) -> None:
        values = Values(self._segments.bytes_of)
        seen: set[tuple[int, str, int, str | None]] = set()
        for file in self._logs:
            segment = self._segments.of(file)
            for one in self._finder.in_segment(file, segment):
                seen.add((one.pattern, str(file.path), one.start, one.within))
                self._wait([one], self._settle_logged)
            images = list(segment.images(self._catalog.page_bytes))
            self._wait(self._finder.in_images(file, segment, images), self._settle_logged)
            if any(image.method is None for image in images):
                why = "the server has compressed pages in it by Zstandard, which is not decoded here (wal_compression)"
                self._asked.tally.unknown.append(Unknown(str(file.path), why))
            for image in images:
                values.add_image(file, image)
            for chunk in chunks_in(segment.records):
                values.add(file, chunk, stands=False)
        for one in values.find(self._finder):
            start = self._segments.of(one.file).offset(one.start)
            stream = one.stream if one.within is None else f"{one.file.path}#{start}"
            at = start if one.within is None else one.at
            moved = replace(one, start=start, end=start + 1, stream=stream, at=at)
            if (one.pattern, str(one.file.path), start, one.within) not in seen:
                self._wait([moved], self._settle_logged)

    def _settle_logged(self, found: Found) -> _Settled:
        segment = self._segments.of(found.file)
        at = segment.place(found.start)
        relations = segment.relations_at(at) or []
        words = "the write-ahead log"
        if relations and all(self._is_foreign(relation) for relation in relations):
            return _Settled(found, words, FOREIGN)
        relation, row = segment.row_at(at, self._catalog.page_bytes) or (None, b"")
        of_rows = None if relation is None else self._catalog.heaps.get(relation.file)
        if of_rows is not None:
            return self._settle_logged_row(found, of_rows, pieces_of(row, of_rows.columns))
        tables = {self._catalog.by_file.get(relation.file) for relation in relations} - {None}
        table = tables.pop() if len(tables) == 1 else None
        return self._by_value(found, f"{words}, a change of {table.name}" if table else words, table)

    def _settle_logged_row(self, found: Found, table: Table, pieces: Sequence[Piece]) -> _Settled:
        if table.name == STATISTICS:
            return self._settle_noted(found, pieces, " in the write-ahead log")
        key = key_in({piece.name: piece.value for piece in pieces}, table)
        return self._settle_before(found, f"the write-ahead log, a row of {table.name}", table, key)

    def _is_foreign(self, relation: Relation) -> bool:
        if relation.database != self._catalog.database:
            return True
        return self._catalog.by_file.get(relation.file, ...) is None

    def _by_value(self, found: Found, words: str, table: Table | None) -> _Settled:
        """Whose a copy is that does not say it: of a row with the same, of the table if that is known."""
        name = None if table is None or table.name == STATISTICS else table.name
        holders = self._holders.get(found.pattern, {}).items()
        accounts = [account for (of_table, _), account in holders if name in (None, of_table)]
        best = next((account for account in accounts if account.accounts), next(iter(accounts), None))
        return _Settled(found, words, best or nothing(_NONE, name))

    # --- pages ---

    def _read_page(self, file: KeptFile, number: int) -> bytes:
        return file.read(number * self._catalog.page_bytes, self._catalog.page_bytes)

    def _place(self, file: KeptFile, start: int, end: int) -> Place | None:
        number, at = divmod(start, self._catalog.page_bytes)
        row = row_at(self._page(file, number), at, at + end - start)
        return None if row is None else (file.first_page + number, row.line)

    def _pieces(self, file: KeptFile, place: Place, table: Table) -> list[Piece]:
        """The columns of a row, where they stand in its page."""
        page = self._page(file, place[0] - file.first_page)
        row = next((row for row in rows_of(page) if row.line == place[1]), None)
        if row is None:
            return []
        pieces = pieces_of(page[row.start : row.end], table.columns)
        return [Piece(piece.name, row.start + piece.start, row.start + piece.end, piece.value) for piece in pieces]

    # --- telling ---

    def _tell(self) -> None:
        once, sought, told = Once(), self._asked.sought, set[tuple[int, str, int]]()
        order = {str(file.path): number for number, file in enumerate(self._files)}

        def place(one: _Settled) -> tuple[int, str, int, int]:
            return order[str(one.found.file.path)], one.found.stream, one.found.at, one.found.pattern

        for one in sorted(self._settled, key=place):
            found, size = one.found, self._finder.size(one.found.pattern)
            shown = Shown(str(found.file.path), found.start, found.within, one.words)
            account = one.account
            if not account.accounts and found.digits >= _LONG_RUN and found.digits > size:
                account = DIGITS
            for meaning in once.new(sought.meanings[found.pattern], found.stream, found.at, size):
                if meaning.form is Form.WORDS:
                    where = found.start // self._catalog.page_bytes
                    if (meaning.needle, shown.file, where) in told:
                        continue  # they are told once a page, or nothing else could be seen
                    told.add((meaning.needle, shown.file, where))
                self._asked.tally.add(meaning, shown, self._of_word(meaning, account))

    def _of_word(self, meaning: Meaning, account: Account) -> Account:
        """Whose a hash of a word is that no entry has: of a record that holds the text and is hidden, or nobody's."""
        if meaning.form is not Form.WORDS or account.accounts:
            return account
        return self._holder_of.get(meaning.needle, account)

    def _read_holders(self) -> None:
        for pattern, holders in self._holders.items():
            accounts = [holder for holder in holders.values() if holder.accounts]
            for meaning in self._asked.sought.meanings[pattern]:
                if accounts and not meaning.is_part:
                    self._holder_of.setdefault(meaning.needle, accounts[0])


def _of_nobody(found: Found, words: str, table: Table) -> _Settled:
    return _Settled(found, words, nothing(_NONE, table.name))


def _column_at(pieces: Iterable[Piece], at: int) -> str | None:
    return next((piece.name for piece in pieces if piece.start <= at < piece.end), None)


def _is_there(pointer: Pointer, values: Values) -> bool:
    """Whether a long value could be looked into."""
    if values.size_of(pointer.value) != pointer.stored_bytes:
        return False
    return not pointer.is_compressed or pointer.value in values.decoded
