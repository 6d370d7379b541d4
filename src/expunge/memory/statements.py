"""The statements that records come in by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any

from expunge.authority.port import Statement
from expunge.datamap import RECORDS, Collection, Role

_OWN = frozenset({"rid", "marked"})


@lru_cache
def stored_columns(collection: Collection) -> tuple[str, ...]:
    """The columns that a record is written with."""
    return tuple(column.name for column in collection.columns if column.name not in _OWN)


@lru_cache
def insert(collection: Collection) -> Statement:
    """Insert one record, under the number that it was given. Takes what ``inserted`` takes out of it, by position."""
    columns = ("rid", *stored_columns(collection))
    return Statement(
        f"{collection.name}.insert",
        f"INSERT INTO {collection.name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
    )


@lru_cache
def inserted(collection: Collection) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """What takes the values for ``insert`` out of a row: by position they are bound in half of the time."""
    return itemgetter("rid", *stored_columns(collection))


@lru_cache
def newest_versions(collection: Collection) -> Statement:
    """Rows ``(name, version)`` for each of ``:names``: the highest version of a key within one identity, or NULL."""
    return Statement(
        f"{collection.name}.newest_versions",
        f"""SELECT j.value, (SELECT max(version) FROM {collection.name}
            WHERE org = :org AND namespace = :namespace AND user_id = :user_id AND agent = :agent
            AND session_id = :session_id AND {collection.versioned_by} = j.value) FROM each_text(:names) j""",
    )


@lru_cache
def fetch(collection: Collection) -> Statement:
    """The records of ``:ids``, with the columns of ``stored_columns``."""
    columns = ", ".join(f"r.{column}" for column in stored_columns(collection))
    return Statement(
        f"{collection.name}.fetch",
        f"""SELECT {columns} FROM each_text(:ids) j CROSS JOIN {collection.name} r
        WHERE r.org = :org AND r.id = j.value""",
    )


def _located(collection: Collection) -> str:
    role = collection.column(Role.USER)
    return f"""SELECT '{collection.name}', r.id, r.marked, r.seq, r.namespace, r.agent, r.{role}, r.session_id, r.rid
        FROM each_text(:ids) j CROSS JOIN {collection.name} r WHERE r.org = :org AND r.id = j.value"""


LOCATE = Statement("records.locate", " UNION ALL ".join(_located(collection) for collection in RECORDS))
"""Rows ``(collection, id, marked, seq, namespace, agent, user_id, session_id, rid)`` of the ids that are anywhere."""

RESTS_ON = Statement(
    "lineage.rests_on",
    """WITH RECURSIVE up (id) AS (
        SELECT l.source FROM lineage l WHERE l.org = :org AND l.derived = :id
        UNION SELECT l.source FROM up CROSS JOIN lineage l ON l.derived = up.id AND l.org = :org)
    SELECT 1 FROM up WHERE id = :on UNION ALL SELECT 1 WHERE :id = :on""",
)
"""A row when ``:id`` was made, over any number of steps, from ``:on``."""


MARKED = Statement(
    "marks.of",
    """SELECT record, min(CASE WHEN q.status = 'completed' THEN 1 ELSE 0 END), max(q.id) FROM (
        SELECT g.id AS record, g.request FROM each_text(:ids) j CROSS JOIN marks g
        ON g.id = j.value AND g.org = :org AND g.beside = 1
        UNION ALL SELECT t.key, t.value FROM each_entry(:told) t
    ) grouped CROSS JOIN requests q ON q.rid = grouped.request GROUP BY record""",
)
"""Rows ``(id, hidden, request)`` of what a running erasure is about to remove, or has removed and not counted yet, or
keeps hidden. Hidden is what no running one marks. ``:told`` is the request that the row of an id names, by id."""

ADD_EDGE = Statement(
    "lineage.add",
    """INSERT INTO lineage (org, derived, source, derived_collection, source_collection, rule, seq)
    VALUES (:org, :derived, :source, :derived_collection, :source_collection, :rule, :seq) ON CONFLICT DO NOTHING""",
)
EDGES_OF = Statement(
    "lineage.of",
    """SELECT l.derived, l.source FROM each_text(:ids) j CROSS JOIN lineage l
    WHERE l.org = :org AND l.derived = j.value""",
)
