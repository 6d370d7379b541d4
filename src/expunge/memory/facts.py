"""Facts: what is said of somebody, for when it holds, and when it was learned (bi-temporal).

Nothing of a fact is changed when another contradicts it: when it ends is worked out by whoever asks (``ENDS``), from
what was known at the time that is asked about. So facts may come in any order, what was believed when stays to be
asked, and a fact that an erasure takes away gives back what it had ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from expunge.authority.port import Statement, Tx
from expunge.datamap import FACTS
from expunge.memory.statements import stored_columns
from expunge.memory.versions import Row
from expunge.model.instant import Instant
from expunge.search.served import ENDS, EVER, narrowed, served


@dataclass(frozen=True, slots=True)
class Asked:
    """Which facts: of whom, about what, holding at a time (``None``: at any), and as known at a time."""

    org: str
    parts: Mapping[str, str]
    subject: str | None
    predicate: str | None
    valid_at: Instant | None
    known_at: Instant
    limit: int


def facts_of(tx: Tx, asked: Asked) -> list[Row]:
    """Facts by what they are about, the latest beginning first; each with ``ends``, when it stops to hold."""
    shape = tuple((part, value == "-") for part, value in asked.parts.items())
    statement = _list(shape, of_now=asked.valid_at is not None)
    values: dict[str, Any] = {"org": asked.org, "subject": asked.subject, "predicate": asked.predicate}
    values |= {"known_at": asked.known_at, "limit": asked.limit} | dict(asked.parts)
    rows = tx.rows(statement, valid_at=asked.valid_at, now=asked.known_at, **values)
    columns = ("rid", *stored_columns(FACTS), "ends")
    return [_with_end(dict(zip(columns, row, strict=True))) for row in rows]


def ends_of(tx: Tx, rids: str, known_at: Instant) -> dict[int, Instant | None]:
    """When the facts of some row numbers, given as a JSON array, stop to hold."""
    return {rid: None if ends == EVER else ends for rid, ends in tx.rows(_ENDS_OF, rids=rids, known_at=known_at)}


def _with_end(row: Row) -> Row:
    return row | {"ends": None if row["ends"] == EVER else row["ends"]}


@lru_cache
def _list(parts: tuple[tuple[str, bool], ...], *, of_now: bool) -> Statement:
    columns = ", ".join(f"r.{column}" for column in ("rid", *stored_columns(FACTS)))
    own = narrowed({part: "-" if nobody else "" for part, nobody in parts})
    holding = served(FACTS) if of_now else "r.marked = 0 AND r.recorded_at <= :known_at"
    return Statement(
        "facts.list",
        f"""SELECT {columns}, {ENDS} FROM facts r WHERE {own} AND {holding}
        AND (CAST(:subject AS TEXT) IS NULL OR r.subject = :subject)
        AND (CAST(:predicate AS TEXT) IS NULL OR r.predicate_key = :predicate)
        ORDER BY r.valid_from DESC, r.recorded_at DESC, r.rid DESC LIMIT :limit""",
    )


_ENDS_OF = Statement(
    "facts.ends",
    f"SELECT r.rid, {ENDS} FROM each_number(:rids) j CROSS JOIN facts r WHERE r.rid = j.value",
)
