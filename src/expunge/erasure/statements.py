"""The statements of the saga that are the same for every collection of records.

Only names from the data map are put into the text; ids are always parameters (law 12).
"""

from __future__ import annotations

from functools import lru_cache

from expunge.authority.port import Statement
from expunge.datamap import RECORDS, Collection
from expunge.datamap.selector import Selector
from expunge.holds import not_held


@lru_cache
def find_in_scope(collection: Collection, selector: Selector) -> Statement:
    """Rows ``(collection, id, rid, position)`` of the records in scope, older than ``:seq`` and not held."""
    return Statement(
        f"{collection.name}.find_in_scope",
        f"""SELECT '{collection.name}', r.id, r.rid, json_extract(j.value, '$.t') FROM json_each(:targets) j
        CROSS JOIN {collection.name} r
        WHERE {selector.where(collection)} AND r.seq < :seq AND {not_held(collection.name)}""",
    )


@lru_cache
def find_everywhere(selector: Selector) -> Statement:
    """As ``find_in_scope`` for every collection."""
    texts = (find_in_scope(collection, selector).text for collection in RECORDS)
    return Statement("records.find_everywhere", " UNION ALL ".join(texts))


@lru_cache
def find_linked(selector: Selector) -> Statement:
    """As ``find_everywhere``, but only what has an edge or a child: what the closure and the census need by id."""
    return Statement("records.find_linked", " UNION ALL ".join(_linked(collection, selector) for collection in RECORDS))


def _linked(collection: Collection, selector: Selector) -> str:
    if collection.parent is not None:  # all of these are tied to their parent
        return find_in_scope(collection, selector).text
    ties = [f"SELECT 1 FROM lineage l WHERE l.{end} = r.id AND l.org = r.org" for end in ("source", "derived")]
    ties += [
        f"SELECT 1 FROM {child.name} c WHERE c.org = r.org AND c.{child.parent.column} = r.id"
        for child in RECORDS
        if child.parent is not None and child.parent.collection == collection.name
    ]
    return f"{find_in_scope(collection, selector).text} AND ({' OR '.join(f'EXISTS ({tie})' for tie in ties)})"


@lru_cache
def delete_in_scope(collection: Collection, selector: Selector) -> Statement:
    """Delete the records in scope that are older than ``:seq`` and not held (law 8)."""
    return Statement(
        f"{collection.name}.delete_in_scope",
        f"""DELETE FROM {collection.name} AS r
        WHERE {selector.within(collection)} AND r.seq < :seq AND {not_held(collection.name)}""",
    )


@lru_cache
def page_in_scope(collection: Collection, selector: Selector) -> Statement:
    """As ``find_in_scope`` for a single target, a page of ``:size`` after the row ``:after`` (law 11)."""
    return Statement(
        f"{collection.name}.page_in_scope",
        f"{find_in_scope(collection, selector).text} AND r.rid > :after ORDER BY r.rid LIMIT :size",
    )


@lru_cache
def find_rows(collection: Collection) -> Statement:
    """Rows ``(id, rid)`` of the records of ``:ids`` that are there."""
    return Statement(
        f"{collection.name}.find_rows",
        f"""SELECT r.id, r.rid FROM json_each(:ids) j CROSS JOIN {collection.name} r
        WHERE r.org = :org AND r.id = j.value""",
    )


@lru_cache
def hide(collection: Collection) -> Statement:
    """Mark the rows of ``:rids`` that are not held: from now on nothing serves them."""
    return Statement(
        f"{collection.name}.hide",
        f"""UPDATE {collection.name} AS r SET marked = 1
        WHERE r.rid IN (SELECT value FROM json_each(:rids)) AND {not_held(collection.name)}""",
    )


@lru_cache
def delete_marked(collection: Collection) -> Statement:
    """Delete the rows of ``:rids`` that are not held; the ids that went (law 8).

    ``:rids`` come from the marks of the request in the same transaction, and no row number is used twice. The org is
    compared as an expression, because the planner would otherwise rather walk the index by org than look rows up.
    """
    return Statement(
        f"{collection.name}.delete_marked",
        f"""DELETE FROM {collection.name} AS r WHERE r.rid IN (SELECT value FROM json_each(:rids))
        AND r.org || '' = :org AND {not_held(collection.name)} RETURNING id""",
    )


@lru_cache
def find_children(collection: Collection, column: str) -> Statement:
    """Rows ``(collection, id, position)`` of what belongs to a marked record of ``:ids`` and is not marked yet."""
    return Statement(
        f"{collection.name}.find_children",
        f"""SELECT '{collection.name}', r.id, m.position FROM json_each(:ids) j
        CROSS JOIN {collection.name} r ON r.org = :org AND r.{column} = j.value
        CROSS JOIN marks m ON m.request = :request AND m.collection = :parent AND m.id = j.value
        WHERE NOT EXISTS (SELECT 1 FROM marks d WHERE d.request = :request AND d.collection = '{collection.name}'
                          AND d.id = r.id)""",
    )


@lru_cache
def count_revived(collection: Collection) -> Statement:
    """Rows ``(position, count)``: marked versions that were current and leave an older one behind them."""
    same = " AND ".join(
        f"s.{column} = r.{column}"
        for column in ("org", "namespace", "user_id", "agent", "session_id", collection.versioned_by)
    )
    return Statement(
        f"{collection.name}.count_revived",
        f"""SELECT m.position, count(*) FROM marks m
        CROSS JOIN {collection.name} r ON r.org = :org AND r.id = m.id
        WHERE m.request = :request AND m.collection = '{collection.name}'
        AND EXISTS (SELECT 1 FROM {collection.name} s WHERE {same} AND s.marked = 0 AND NOT EXISTS (
            SELECT 1 FROM marks d WHERE d.request = :request AND d.collection = '{collection.name}' AND d.id = s.id))
        AND NOT EXISTS (SELECT 1 FROM {collection.name} s WHERE {same}
                        AND (s.updated_at, s.version) > (r.updated_at, r.version))
        GROUP BY m.position""",
    )


HAS_TIES = Statement(
    "records.has_ties",
    "SELECT EXISTS (SELECT 1 FROM lineage) OR "
    + " OR ".join(f"EXISTS (SELECT 1 FROM {kind.name})" for kind in RECORDS if kind.parent is not None),
)
"""Whether the store holds any edge or child at all: without one there is nothing to look for, record by record."""
ADD_MARK = Statement(
    "marks.add",
    """INSERT OR IGNORE INTO marks (request, org, collection, id, rid, position, direct)
    VALUES (?, ?, ?, ?, ?, ?, ?)""",
)
PAGE_OF_MARKS = Statement(
    "marks.page",
    """SELECT collection, id, rid, position FROM marks
    WHERE request = :request AND (collection, id) > (:collection, :id) ORDER BY collection, id LIMIT :size""",
)
DROP_MARKS = Statement("marks.drop", "DELETE FROM marks WHERE request = :request")
COUNT_MARKS = Statement(
    "marks.count",
    "SELECT collection, direct, position, count(*) FROM marks WHERE request = :request GROUP BY 1, 2, 3",
)
_MARKED = """EXISTS (
    SELECT 1 FROM marks g WHERE g.id = {end} AND g.org = :org AND g.collection = {end}_collection)"""
"""Whether some request of the org, this one or another that runs, is about to remove the end of an edge.

Every request commits its marks before its closure, so of two that take the last two sources of a record the later
one sees the earlier one's (law 6).
"""
DERIVED_OF = Statement(
    "lineage.derived_of",
    f"""SELECT l.derived_collection, l.derived, min(m.position) FROM json_each(:ids) j
    CROSS JOIN lineage l ON l.org = :org AND l.source = j.value
    CROSS JOIN marks m ON m.request = :request AND m.collection = l.source_collection AND m.id = l.source
    WHERE NOT EXISTS (SELECT 1 FROM marks d WHERE d.request = :request AND d.collection = l.derived_collection
                      AND d.id = l.derived)
      AND (l.rule = 'retire' OR NOT EXISTS (
          SELECT 1 FROM lineage o
          WHERE o.org = :org AND o.derived = l.derived AND NOT {_MARKED.format(end="o.source")}))
    GROUP BY l.derived_collection, l.derived""",
)
"""What goes because a marked source of ``:ids`` goes: ``retire`` with any, ``detach`` with the last (law 6)."""
DETACHED = Statement(
    "lineage.detached",
    f"""SELECT position, count(*) FROM (
        SELECT l.derived, min(m.position) AS position FROM marks m
        CROSS JOIN lineage l ON l.org = :org AND l.source = m.id
        WHERE m.request = :request AND NOT {_MARKED.format(end="l.derived")}
        GROUP BY l.derived)
    GROUP BY position""",
)
"""Records that stay and lose a source."""
SETTLE_BY_EDGE = Statement(
    "marks.settle_by_edge",
    """UPDATE marks AS d SET position = f.position FROM (
        SELECT l.derived_collection AS collection, l.derived AS id, min(m.position) AS position FROM marks m
        CROSS JOIN lineage l ON l.org = :org AND l.source = m.id AND l.source_collection = m.collection
        WHERE m.request = :request GROUP BY 1, 2) AS f
    WHERE d.request = :request AND d.collection = f.collection AND d.id = f.id AND d.direct = 0
      AND d.position > f.position""",
)
"""A derived record is accounted to the first of the subjects it was made from, in whichever order it was found."""


@lru_cache
def settle_by_parent(collection: Collection, column: str) -> Statement:
    """The same for what goes with its parent."""
    return Statement(
        f"{collection.name}.settle_by_parent",
        f"""UPDATE marks AS d SET position = f.position FROM (
            SELECT r.id AS id, m.position AS position FROM marks m
            CROSS JOIN {collection.name} r ON r.org = :org AND r.{column} = m.id
            WHERE m.request = :request AND m.collection = :parent) AS f
        WHERE d.request = :request AND d.collection = '{collection.name}' AND d.id = f.id AND d.direct = 0
          AND d.position > f.position""",
    )


def _cut_from(end: str) -> Statement:
    """Cut the edges whose ``end`` is one of ``:ids``; on whose account: its derived end's, if that goes."""
    position = (
        "(SELECT m.position FROM marks m WHERE m.request = :request AND m.collection = {0}_collection AND m.id = {0})"
    )
    return Statement(
        f"lineage.cut_from_{end}",
        f"""DELETE FROM lineage WHERE org = :org AND {end} IN (SELECT value FROM json_each(:ids))
        RETURNING coalesce({position.format("derived")}, {position.format("source")})""",
    )


CUT_FROM_DERIVED, CUT_FROM_SOURCE = _cut_from("derived"), _cut_from("source")
