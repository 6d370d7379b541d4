"""The statements of an export: each section in pages, in an order that an import brings back."""

from __future__ import annotations

from functools import lru_cache

from expunge.authority.port import Statement
from expunge.datamap import CODES, RECORDS, Collection
from expunge.datamap.selector import Selector
from expunge.subject.export.encode import line

LAST_RIDS = Statement(
    "export.last_rids",
    " UNION ALL ".join(f"SELECT '{kind.name}', coalesce(max(rid), 0) FROM {kind.name}" for kind in RECORDS),
)
"""The number of the newest record of each collection: an export holds what was there when it began."""

RAISED_SINCE = Statement(
    "fences.raised_since",
    """SELECT request_id, user_pn, namespace_pn, session_pn, agent_pn, lowered_seq FROM fences
    WHERE org = :org AND (lowered_seq IS NULL OR lowered_seq > :as_of)""",
)
"""The fences that are up, or came down since: what may take records away while they are read."""


def by_seq(selector: Selector) -> bool:
    """Whether pages follow the index of a user, which is in the order of ``seq``, and of the number within one."""
    return "user_id" in selector.parts


def _behind(selector: Selector) -> str:
    """The records behind a place, as an index reaches them: with one value of ``seq``, the others follow in turn."""
    return "r.seq = :seq AND r.rid > :rid" if by_seq(selector) else "r.rid > :rid"


@lru_cache
def next_seq(kind: Collection, selector: Selector) -> Statement:
    """The next value of ``seq`` that a record in scope has, or NULL."""
    return Statement(
        f"{kind.name}.export_next_seq",
        f"SELECT min(r.seq) FROM {selector.joined(kind)} WHERE {selector.where(kind)} AND r.seq > :seq",
    )


def _seen(kind: Collection, *, hidden: bool, tombstoned: bool) -> str:
    terms = "" if hidden else " AND r.marked = 0"
    has_state = any(column.name == "state" for column in kind.columns)
    return terms + (" AND r.state <> 'tombstoned'" if has_state and not tombstoned else "")


@lru_cache
def page(kind: Collection, selector: Selector, *, hidden: bool, tombstoned: bool) -> Statement:
    """A page of a section: ``seq``, number, and the line as bytes."""
    rest = f"""FROM {selector.joined(kind)}
        WHERE {selector.where(kind)} AND {_behind(selector)} AND r.rid <= :until
        {_seen(kind, hidden=hidden, tombstoned=tombstoned)} ORDER BY r.rid LIMIT :size"""
    return Statement(
        f"{kind.name}.export",
        f"SELECT r.seq, r.rid, CAST({line(kind)} AS BLOB) {rest}",
        postgres=f"SELECT r.seq, r.rid, convert_to({line(kind)}, 'UTF8') {rest}",
    )


@lru_cache
def bodies(kind: Collection, selector: Selector, *, hidden: bool, tombstoned: bool) -> Statement:
    """A page of the bodies that records of a collection name: ``seq``, number, id, size, SHA-256, and where it lies."""
    return Statement(
        f"{kind.name}.export_bodies",
        f"""SELECT r.seq, r.rid, r.id, r.bytes, r.sha256, r.{kind.body_in} FROM {selector.joined(kind)}
        WHERE {selector.where(kind)} AND {_behind(selector)} AND r.rid <= :until AND r.{kind.body_in} IS NOT NULL
        {_seen(kind, hidden=hidden, tombstoned=tombstoned)} ORDER BY r.rid LIMIT :size""",
    )


@lru_cache
def vectors(kind: Collection, selector: Selector, *, hidden: bool, tombstoned: bool) -> Statement:
    """A page of the vectors of a section's records: ``seq``, number, id, model, and the vector as it is stored."""
    return Statement(
        f"{kind.name}.export_vectors",
        f"""SELECT r.seq, r.rid, r.id, v.model, v.vector FROM {selector.joined(kind)}
        CROSS JOIN vectors v ON v.record = r.rid * {CODES} + {kind.search_code}
        WHERE {selector.where(kind)} AND {_behind(selector)} AND r.rid <= :until
        {_seen(kind, hidden=hidden, tombstoned=tombstoned)} ORDER BY r.rid LIMIT :size""",
    )


@lru_cache
def window_end(kind: Collection, selector: Selector) -> Statement:
    """The number of the record that stands ``:size`` records behind a place, or of the last one, or NULL."""
    return Statement(
        f"{kind.name}.export_window",
        f"""SELECT max(rid) FROM (SELECT r.rid FROM {selector.joined(kind)}
        WHERE {selector.where(kind)} AND {_behind(selector)} AND r.rid <= :until ORDER BY r.rid LIMIT :size) r""",
    )


@lru_cache
def derived(kind: Collection, selector: Selector) -> Statement:
    """The edges that lead out of the scope, up to a place: the source's id, what was made of it, and its id."""
    inside = " ".join(
        f"""WHEN '{other.name}' THEN (SELECT r.marked <> 0 OR ({_inside(other, selector)}) FROM {other.name} r
        WHERE r.org = l.org AND r.id = l.derived)"""
        for other in RECORDS
    )
    return Statement(
        f"{kind.name}.export_derived",
        f"""SELECT s.id, l.derived_collection, l.derived FROM (
            SELECT r.rid, r.id, r.org FROM {selector.joined(kind)}
            WHERE {selector.where(kind)} AND {_behind(selector)} AND r.rid <= :until AND r.marked = 0) s
        CROSS JOIN lineage l ON l.source = s.id AND l.org = s.org
        WHERE NOT CASE l.derived_collection {inside} END ORDER BY s.rid, l.derived""",
    )


def _inside(kind: Collection, selector: Selector) -> str:
    return selector.where(kind) if kind in selector.reached else "FALSE"


HIDES = Statement(
    "requests.hides",
    "SELECT 1 FROM requests WHERE org = :org AND (status <> 'completed' OR purge = 0) LIMIT 1",
)
"""A row when an erasure of the org may have marked records: else nobody has to look for any."""


@lru_cache
def count_hidden(kind: Collection, selector: Selector) -> Statement:
    """How many records of a section an erasure keeps hidden, or is about to remove."""
    return Statement(
        f"{kind.name}.export_hidden",
        f"SELECT count(*) FROM {selector.joined(kind)} WHERE {selector.where(kind)} AND r.marked <> 0",
    )
