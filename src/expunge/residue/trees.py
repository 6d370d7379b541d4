"""Which b-tree each page of a database belongs to, as it stands, and which row each cell of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from expunge.authority.port import KeptFile, Statement, Tx
from expunge.residue.log import Log
from expunge.residue.sqlite_file import (
    LEAF_TABLE,
    Cell,
    Layout,
    cells,
    chain,
    children,
    columns_of,
    free_pages,
    page_type,
    payload_of,
    values_of,
)

_TREES = Statement("schema.trees", "SELECT type, name, tbl_name, rootpage FROM sqlite_schema WHERE rootpage > 0")
_KEYED = Statement("schema.keyed", "SELECT name FROM pragma_table_list WHERE schema = 'main' AND wr = 1")
_COLUMNS = Statement("schema.columns", "SELECT name, pk FROM pragma_table_info(:name) ORDER BY cid")
_IN_INDEX = Statement("schema.in_index", "SELECT name FROM pragma_index_xinfo(:name) ORDER BY seqno")
_PRIMARY = Statement("schema.primary", "SELECT name FROM pragma_index_list(:name) WHERE origin = 'pk'")
_SCHEMA = "sqlite_schema"
_NOBODYS, _FREE = -1, -2
_KEPT_PAGES = 64
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A b-tree: of a table, or of an index on one. ``columns`` are those of its records, in their order.

    ``key_at`` says where in a record the key of the row stands; ``None`` where the rowid of the cell is the key.
    """

    name: str
    table: str
    root: int
    columns: tuple[str | None, ...]
    key_at: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Spot:
    """Where in the rows of a table some bytes stand: in a column of a row, or of the entry of an index on it."""

    tree: Tree
    key: Key | None
    column: str | None

    @property
    def row(self) -> tuple[str, Key | None]:
        """The row, whichever of its trees the bytes stand in."""
        return self.tree.table, self.key


def read_trees(tx: Tx) -> list[Tree]:
    """The trees of a database, that of its schema first."""
    keyed = {str(name) for (name,) in tx.rows(_KEYED)}
    found = [Tree(_SCHEMA, _SCHEMA, 1, ("type", "name", "tbl_name", "rootpage", "sql"), None)]
    for kind, name, table, root in tx.rows(_TREES):
        of_table = tx.rows(_COLUMNS, name=table)
        key = tuple(column for column, at in sorted(of_table, key=lambda row: row[1]) if at)
        if kind == "index":
            columns = _in_index(tx, name)
        elif table in keyed:
            columns = _in_index(tx, tx.rows(_PRIMARY, name=table)[0][0])
        else:
            found.append(Tree(name, table, root, tuple(column for column, _ in of_table), None))
            continue
        at = tuple(columns.index(column) for column in key) if table in keyed else (len(columns) - 1,)
        found.append(Tree(name, table, root, columns, at))
    return found


def _in_index(tx: Tx, name: str) -> tuple[str | None, ...]:
    return tuple(column for (column,) in tx.rows(_IN_INDEX, name=name))


class Pages:
    """The pages of a database as they stand: of each its newest committed version, from the log or from the file."""

    def __init__(self, file: KeptFile, log: Log | None, layout: Layout) -> None:
        self.file, self.log, self.layout = file, log, layout
        self.count = (log.pages if log is not None else 0) or file.size // layout.page_bytes
        self.read = lru_cache(_KEPT_PAGES)(self._read)
        self.cells = lru_cache(_KEPT_PAGES)(self._cells)

    def in_file(self, number: int) -> bool:
        """Whether the version that stands is the one in the file."""
        return 0 < number <= self.count and (self.log is None or number not in self.log.newest)

    def _read(self, number: int) -> bytes:
        if self.log is not None and number in self.log.newest:
            return self.log.read(self.log.newest[number])
        return self.of_file(number)

    def of_file(self, number: int) -> bytes:
        """The version of a page in the file; empty beyond its end."""
        size = self.layout.page_bytes
        return self.file.read((number - 1) * size, size) if number > 0 else b""

    def _cells(self, number: int) -> list[Cell]:
        return cells(self.read(number), number, self.layout)


class Owners:
    """Whose each page is: of a tree, of the free list, or neither, which is how overflow pages begin."""

    def __init__(self, pages: Pages, trees: Iterable[Tree]) -> None:
        self._pages, self.trees = pages, list(trees)
        self._of = np.full(pages.count + 1, _NOBODYS, np.int32)
        for index, tree in enumerate(self.trees):
            self._walk(index, tree.root)
        for number in free_pages(pages.read(1), pages.read, pages.layout):
            if 0 < number <= pages.count:
                self._of[number] = _FREE

    def tree_of(self, number: int) -> Tree | None:
        """The tree that a page belongs to now."""
        index = int(self._of[number]) if 0 < number <= self._pages.count else _NOBODYS
        return self.trees[index] if index >= 0 else None

    def is_free(self, number: int) -> bool:
        """Whether a page is on the free list."""
        return 0 < number <= self._pages.count and int(self._of[number]) == _FREE

    def outside(self) -> list[int]:
        """The pages that no tree has: free ones, overflow pages, and what nobody knows."""
        return [int(number) for number in np.flatnonzero(self._of < 0) if number]

    def overflowing(self, wanted: set[int]) -> dict[int, Spot]:
        """Of some overflow pages the spot that each continues. It reads every leaf, so it is asked once."""
        found: dict[int, Spot] = {}
        for number in np.flatnonzero(self._of >= 0) if wanted else ():
            tree = self.trees[int(self._of[number])]
            for cell in self._pages.cells(int(number)):
                most = cell.payload_bytes // self._pages.layout.overflow_bytes + 1
                links = chain(cell.overflow, self._pages.read, most) if cell.overflow else ()
                for order, (link, _) in enumerate(links):
                    if link in wanted:
                        at = cell.local + order * self._pages.layout.overflow_bytes
                        found[link] = self._spot(tree, int(number), cell, at)
        return found

    def spot(self, tree: Tree, number: int, piece: tuple[int, int], of: bytes | None = None) -> Spot | None:
        """The spot of a piece (from, to) of a page, as it stands or ``of`` an older version of it.

        ``None`` when the piece lies in no cell. Of an older version only what stands in the page itself is read.
        """
        start, end = piece
        for cell in self._pages.cells(number) if of is None else cells(of, number, self._pages.layout):
            if cell.start <= start and end <= cell.end:
                at = max(start - cell.payload_at, 0)
                if of is None:
                    return self._spot(tree, number, cell, at)
                return spot_in(tree, cell, of[cell.payload_at : cell.payload_at + cell.local], at)
        return None

    def _spot(self, tree: Tree, number: int, cell: Cell, at: int) -> Spot:
        payload = payload_of(self._pages.read(number), cell, self._pages.layout, self._pages.read)
        return spot_in(tree, cell, payload, at)

    def _walk(self, index: int, root: int) -> None:
        waiting, is_leaf = [root], False
        while waiting:
            number = waiting.pop()
            if not 0 < number <= self._pages.count or int(self._of[number]) != _NOBODYS:
                continue
            self._of[number] = index
            below = [] if is_leaf else children(self._pages.read(number), number)
            if below and not children(self._pages.read(below[0]), below[0]):
                self._of[[leaf for leaf in below if 0 < leaf <= self._pages.count]] = index  # all leaves are as deep
                continue
            waiting += below


def spot_in(tree: Tree, cell: Cell, payload: bytes, at: int) -> Spot:
    """The spot of a byte of a payload, whole or its beginning; what cannot be read of it is ``None``."""
    column, key = None, None
    try:
        for name, (_, start, end) in zip(tree.columns, columns_of(payload), strict=False):
            if start <= at < end:
                column = name
        if tree.key_at is None:
            key = (cell.rowid,)
        else:
            values = values_of(payload)
            key = tuple(_as_text(values[position]) for position in tree.key_at)
    except (IndexError, ValueError):
        pass
    return Spot(tree, key, column)


def _as_text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


_SEGMENTS_FROM = 1 << 37
"""The ids of a full-text index below it are of its own bookkeeping."""


def blocks_in(page: bytes, number: int, layout: Layout) -> Iterator[tuple[int, bytes]]:
    """The blocks of a full-text index that stand whole in a page of any version, with their ids."""
    if page_type(page, number) == LEAF_TABLE:
        for cell in cells(page, number, layout):
            if cell.rowid is not None and cell.rowid >= _SEGMENTS_FROM and not cell.overflow:
                try:
                    values = values_of(page[cell.payload_at : cell.payload_at + cell.local])
                except IndexError:
                    continue
                if len(values) > 1 and isinstance(values[1], bytes):
                    yield cell.rowid, values[1]
