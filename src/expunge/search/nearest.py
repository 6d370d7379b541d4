"""What the vectors say: exactly compared, where the call is, or by the database where it can (pgvector).

There is no approximate index: it would leave out what an exact comparison finds, and its pages keep numbers of what
was erased. What is compared is bound by the filter, and by ``vector_scan_rows``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from expunge.authority.port import Row, Statement, Tx
from expunge.datamap import CODES, Collection
from expunge.search.embedder import Vectors
from expunge.search.query import FIRST_LOOK, Query, Searched, let_through, shape_of

_NEAR = 0.1
"""How near a vector has to be to count as found: below it there is no more than chance."""
_Near = Iterable[tuple[int, float]]
"""Records, and how near their vectors are."""


def by_nearness(tx: Tx, query: Query, also: Sequence[int]) -> tuple[list[int], Searched]:
    """The records whose vectors are nearest, nearest first, of equal ones the newest; and what was compared.

    Of each collection the newest are compared; where it has more, also those ``also`` that the words have found.
    """
    vector, count = query.vector, max(FIRST_LOOK, query.limit)
    if vector is None or not vector.any():
        return [], "none"
    near: dict[int, float] = {}
    compared: Searched = "all"
    for kind in query.kinds:
        found, whole = (_asked if tx.compares else _compared)(tx, query, vector, kind, count)
        near.update(found)
        compared = compared if whole else "newest"
    if compared == "newest":
        near.update(_of(tx, query, vector, json.dumps(also)))
    ordered = sorted(((nearness, number) for number, nearness in near.items() if nearness >= _NEAR), reverse=True)
    return [number for _, number in ordered[:count]], compared


def _compared(tx: Tx, query: Query, vector: Vectors, kind: Collection, count: int) -> tuple[_Near, bool]:
    """The nearest of a collection, compared here; and whether all of it was."""
    values = {"model": query.model, "size": query.scan + 1} | query.values()
    rows = tx.rows(_vectors(kind, *shape_of(query)), **values)
    stored = [row for row in rows[: query.scan] if row[1] is not None]
    return _nearest(vector, stored, count), len(rows) <= query.scan


def _asked(tx: Tx, query: Query, vector: Vectors, kind: Collection, count: int) -> tuple[_Near, bool]:
    """The same, by the database: what comes back is the nearest alone."""
    values = {"model": query.model, "size": query.scan + 1, "scan": query.scan} | query.values()
    values |= {"sought": vector.tolist(), "least": _NEAR, "count": count}
    rows = tx.rows(_nearest_there(kind, *shape_of(query)), **values)
    seen = next(many for record, many in rows if record is None)
    return [row for row in rows if row[0] is not None], seen <= query.scan


def _of(tx: Tx, query: Query, vector: Vectors, records: str) -> _Near:
    """How near some records are."""
    if tx.compares:
        return tx.rows(_NEARNESS_OF, records=records, model=query.model, sought=vector.tolist())
    rows = tx.rows(_VECTORS_OF, records=records, model=query.model)
    return _nearest(vector, rows, len(rows))


def _nearest(vector: Vectors, stored: Sequence[Row], count: int) -> _Near:
    """The nearest of stored vectors, and those that are as near as the last of them."""
    if not stored:
        return ()
    table = np.frombuffer(b"".join(blob for _, blob in stored), np.float16).reshape(len(stored), -1)
    nearness = table.astype(np.float32) @ vector
    last = np.partition(nearness, -count)[-count] if len(stored) > count else _NEAR
    chosen = np.flatnonzero(nearness >= last)
    return zip((stored[index][0] for index in chosen.tolist()), nearness[chosen].tolist(), strict=True)


_OF = """each_number(:records) j CROSS JOIN vectors v
    WHERE v.record = j.value AND v.model = :model"""
_VECTORS_OF = Statement("vectors.of", f"SELECT v.record, v.vector FROM {_OF}")
_NEARNESS_OF = Statement(
    "vectors.nearness_of", f"SELECT v.record, nearness(v.vector, CAST(:sought AS real[])) FROM {_OF}"
)


def _candidates(kind: Collection, shape: Any) -> str:
    return f"""SELECT r.rid * {CODES} + {kind.search_code} AS record FROM {kind.name} r
            WHERE {let_through(kind, shape)} ORDER BY r.rid DESC LIMIT :size"""


@lru_cache
def _vectors(kind: Collection, *shape: Any) -> Statement:
    return Statement(
        f"{kind.name}.vectors",
        f"""SELECT c.record, v.vector FROM ({_candidates(kind, shape)}) c
        LEFT JOIN vectors v ON v.record = c.record AND v.model = :model""",
    )


@lru_cache
def _nearest_there(kind: Collection, *shape: Any) -> Statement:
    """How many candidates there are, in a row that names none; and the nearest of them."""
    return Statement(
        f"{kind.name}.nearest",
        f"""WITH c AS MATERIALIZED ({_candidates(kind, shape)}),
        near AS (SELECT n.record, nearness(v.vector, CAST(:sought AS real[])) AS nearness
            FROM (SELECT record FROM c ORDER BY record DESC LIMIT :scan) n
            JOIN vectors v ON v.record = n.record AND v.model = :model)
        SELECT NULL, count(*) FROM c
        UNION ALL (SELECT record, nearness FROM near WHERE nearness >= :least
            ORDER BY nearness DESC, record DESC LIMIT :count)""",
    )
