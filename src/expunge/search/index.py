"""The entries of the search index: written with their record, in its commit; they leave with it by a trigger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from expunge.authority.port import Halves, Statement, Tx
from expunge.datamap import CODES, Collection
from expunge.search.embedder import Vectors

_ADD = Statement(
    "search.add",
    "INSERT INTO search (rowid, owner, words) VALUES (?, ?, ?)",
    postgres="INSERT INTO search (record, owner, words) VALUES (?, string_to_array(?, ' '), string_to_array(?, ' '))",
)
_ADD_VECTOR = Statement(
    "vectors.add",
    """INSERT INTO vectors (record, org, namespace, agent, user_id, session_id, model, vector)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
)
_DROP = Statement(
    "search.drop",
    "DELETE FROM search WHERE rowid IN (SELECT value FROM each_number(:records))",
    postgres="DELETE FROM search WHERE record IN (SELECT value FROM each_number(:records))",
)
_DROP_VECTORS = Statement(
    "vectors.drop", "DELETE FROM vectors WHERE record IN (SELECT value FROM each_number(:records))"
)


class Entry(NamedTuple):
    """What the index will know of a record: hashes of whose it is and of its words, and its vector if it has one."""

    owner: str
    words: str
    model: str
    vector: Halves | None


def packed(vectors: Vectors) -> list[Halves | None]:
    """Vectors as they are stored: half-precision numbers, which rank as the full ones do in half of the space.

    A vector of nothing but zeros is not stored.
    """
    halves = vectors.astype(np.float16)
    data, size = halves.tobytes(), halves.shape[1] * halves.itemsize
    says: list[bool] = np.any(vectors, axis=1).tolist()
    return [Halves(data[row * size : (row + 1) * size]) if says[row] else None for row in range(len(says))]


def record_number(kind: Collection, rid: int) -> int:
    """What the index knows a row by."""
    return rid * CODES + kind.search_code


Placed = tuple[int, tuple[str, ...], Entry]
"""The number of a record, its stored identity, and its entry."""


def add_entries(tx: Tx, placed: Iterable[Placed]) -> None:
    """Write the entries of records that are written in the same transaction."""
    items = list(placed)
    tx.change_many(_ADD, [(number, entry.owner, entry.words) for number, _, entry in items])
    tx.change_many(_ADD_VECTOR, _vector_rows(items))


def drop_entries(tx: Tx, numbers: str) -> None:
    """Take out the entries of records that stay, given as a JSON array of numbers."""
    tx.send(_DROP, records=numbers)
    tx.send(_DROP_VECTORS, records=numbers)


def _vector_rows(items: Iterable[Placed]) -> Iterator[tuple[Any, ...]]:
    for number, identity, entry in items:
        if entry.vector is not None:
            yield (number, *identity, entry.model, entry.vector)
