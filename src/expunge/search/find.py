"""Finding: what the words say, what the vectors say, and the two ranks fused (reciprocal ranks)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from expunge.authority.port import Statement, Tx
from expunge.datamap import CODES, Collection
from expunge.search.nearest import by_nearness
from expunge.search.query import FIRST_LOOK, Query, Searched, let_through, shape_of
from expunge.search.words import Match, Words

_COUNTED_HERE = 1000
"""Up to so many records that match are counted here; of more the whole index says how rare a word is, in less time."""
_SATURATION, _LENGTH = 1.2, 0.75
"""The constants of BM25: how soon a word that stands there again counts no more, and how much the length matters."""
_SMOOTHING = 60
"""The constant of reciprocal rank fusion: how much less a rank below the first counts."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A record that was found, and its rank by words and by vector (from 1; ``None`` where it was not among those)."""

    kind: Collection
    rid: int
    score: float
    by_words: int | None
    by_vector: int | None


@dataclass(slots=True)
class Found:
    """What was found, best first, and what the vectors were compared with."""

    hits: list[Hit] = field(default_factory=list)
    compared: Searched = "none"


def find(tx: Tx, query: Query, words: Words) -> Found:
    """The records that fit a query best, at most ``limit``.

    Raises:
        InputError: the query has too many different words.

    """
    match = words.query(query.org, query.text, query.parts)
    by_words = [] if match is None else _by_words(tx, query, match)
    by_vector, compared = by_nearness(tx, query, by_words)
    scores: dict[int, float] = {}
    for numbers, weight in ((by_words, query.weight), (by_vector, 1 - query.weight)):
        for rank, number in enumerate(numbers, start=1):
            scores[number] = scores.get(number, 0.0) + weight / (_SMOOTHING + rank)
    ranks = [{number: rank for rank, number in enumerate(numbers, start=1)} for numbers in (by_words, by_vector)]
    best = sorted(scores, key=lambda number: (-scores[number], -number))[: query.limit]
    kinds = {kind.search_code: kind for kind in query.kinds}
    hits = [
        Hit(kinds[number % CODES], number // CODES, scores[number], ranks[0].get(number), ranks[1].get(number))
        for number in best
    ]
    return Found(hits, compared)


def newest(tx: Tx, query: Query) -> Found:
    """The newest records that the filter lets through: what an empty query finds."""
    rows: list[tuple[int, int, Collection]] = []
    for kind in query.kinds:
        rows += [
            (dated, rid, kind)
            for rid, dated in tx.rows(_newest(kind, *shape_of(query)), limit=query.limit, **query.values())
        ]
    rows.sort(key=lambda row: row[:2], reverse=True)
    return Found([Hit(kind, rid, 0.0, None, None) for _, rid, kind in rows[: query.limit]])


def _by_words(tx: Tx, query: Query, match: Match) -> list[int]:
    """The records that have any of the words, best first (BM25)."""
    wanted = max(FIRST_LOOK, query.limit)
    counted = tx.rows(_counted(_owned(query, match)), size=_COUNTED_HERE + 1, **_values(query, match))
    if len(counted) > _COUNTED_HERE:
        return _by_words_of_all(tx, query, match, wanted)
    left = _let_through(tx, query, [number for number, _ in counted])
    return _ranked([(number, counts) for number, counts in counted if number in left])[:wanted]


def _values(query: Query, match: Match) -> dict[str, Any]:
    """The match, in the words of either authority."""
    codes = json.dumps([kind.search_code for kind in query.kinds])
    return {"match": match.phrase, "owner": match.owner, "words": json.dumps(match.words), "codes": codes}


def _ranked(counted: Sequence[Sequence[Any]]) -> list[int]:
    """Records by BM25, best first, and of equal ones the newest. How rare a word is, is counted among them alone.

    So neither other people's words, nor what is hidden, say anything about the order.
    """
    if not counted:
        return []
    table = _counts_of(counted)
    often, sizes = table[:, :-1].astype(np.float64), table[:, -1].astype(np.float64)
    having = np.count_nonzero(often, axis=0)
    rare = np.log1p((len(counted) - having + 0.5) / (having + 0.5))
    damped = _SATURATION * (1 - _LENGTH + _LENGTH * sizes / max(sizes.mean(), 1.0))
    scores = (often * (_SATURATION + 1) / (often + damped[:, None])) @ rare
    ordered = sorted(zip(scores.tolist(), (number for number, _ in counted), strict=True), reverse=True)
    return [number for _, number in ordered]


def _counts_of(counted: Sequence[Sequence[Any]]) -> Any:
    """A row for each record: how often each word stands in it, and how many it has. SQLite gives them as bytes."""
    if isinstance(counted[0][1], bytes):
        return np.frombuffer(b"".join(counts for _, counts in counted), np.uint16).reshape(len(counted), -1)
    return np.array([counts for _, counts in counted])


def _by_words_of_all(tx: Tx, query: Query, match: Match, wanted: int) -> list[int]:
    """As ``_by_words``, by what the whole index says. Looks further while too few are served (law 11)."""
    size, values = max(FIRST_LOOK, 4 * query.limit), _values(query, match)
    while True:
        numbers = [number for (number,) in tx.rows(_matching(_owned(query, match)), size=size, **values)]
        left = _let_through(tx, query, numbers)
        if len(left) >= wanted or len(numbers) < size:
            return [number for number in numbers if number in left][:wanted]
        size *= 8


def _let_through(tx: Tx, query: Query, numbers: Sequence[int]) -> set[int]:
    left: set[int] = set()
    for kind in query.kinds:
        rids = [number // CODES for number in numbers if number % CODES == kind.search_code]
        if rids:
            rows = tx.rows(_of_rows(kind, *shape_of(query)), rids=json.dumps(rids), **query.values())
            left.update(rid * CODES + kind.search_code for (rid,) in rows)
    return left


Owned = Literal["by one", "by many", "by nobody"]
"""Whose records are searched: of a user or a session, which has few; of a namespace or an agent; of the whole org."""


def _owned(query: Query, match: Match) -> Owned:
    if match.owner is None:
        return "by nobody"
    return "by one" if any(query.parts.get(part, "-") != "-" for part in ("user_id", "session_id")) else "by many"


_MATCHES: dict[Owned, str] = {
    "by one": "s.owner @> ARRAY[:owner] AND (s.words && ARRAY(SELECT value FROM each_text(:words))) IS TRUE",
    "by many": "s.owner @> ARRAY[:owner] AND s.words && ARRAY(SELECT value FROM each_text(:words))",
    "by nobody": "s.words && ARRAY(SELECT value FROM each_text(:words))",
}
"""On PostgreSQL. A word may stand in most of the records of everybody, so those of one are found by whose they are."""
_OF_KINDS = f"% {CODES} IN (SELECT value FROM each_number(:codes))"


@lru_cache
def _matching(owned: Owned) -> Statement:
    """Of very many, those with the most of the words: PostgreSQL does not count how rare they are among all."""
    return Statement(
        "search.matching",
        f"""SELECT rowid FROM search WHERE search MATCH :match AND rank MATCH 'bm25(0.0, 1.0)'
        AND rowid {_OF_KINDS} ORDER BY rank LIMIT :size""",
        postgres=f"""SELECT s.record FROM search s WHERE {_MATCHES[owned]} AND s.record {_OF_KINDS}
        ORDER BY (SELECT count(*) FROM each_text(:words) w WHERE w.value = ANY (s.words)) DESC, s.record DESC
        LIMIT :size""",
    )


@lru_cache
def _counted(owned: Owned) -> Statement:
    """Rows ``(number, counts)``, see ``authority/sqlite/counting.py``."""
    return Statement(
        "search.counted",
        f"SELECT rowid, counted(search) FROM search WHERE search MATCH :match AND rowid {_OF_KINDS} LIMIT :size",
        postgres=f"""SELECT s.record, array_append(ARRAY(
            SELECT cardinality(array_positions(s.words, w.value)) FROM each_text(:words) w ORDER BY w.key
        ), cardinality(s.words)) FROM search s WHERE {_MATCHES[owned]} AND s.record {_OF_KINDS} LIMIT :size""",
    )


@lru_cache
def _of_rows(kind: Collection, *shape: Any) -> Statement:
    return Statement(
        f"{kind.name}.found",
        f"""SELECT r.rid FROM each_number(:rids) j CROSS JOIN {kind.name} r
        WHERE r.rid = j.value AND {let_through(kind, shape).replace("r.org =", "unindexed(r.org) =", 1)}""",
    )


@lru_cache
def _newest(kind: Collection, *shape: Any) -> Statement:
    return Statement(
        f"{kind.name}.newest",
        f"""SELECT r.rid, r.{kind.time} FROM {kind.name} r WHERE {let_through(kind, shape)}
        ORDER BY r.{kind.time} DESC, r.rid DESC LIMIT :limit""",
    )
