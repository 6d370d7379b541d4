"""The statements of the saga that are the same for every collection of records.

Only names from the data map are put into the text; ids are always parameters (law 12).
"""

from __future__ import annotations

from functools import lru_cache

from expunge.authority.port import Statement
from expunge.datamap import RECORDS, Collection
from expunge.datamap.marks import beside_row, is_marked, marked_by
from expunge.datamap.selector import Selector
from expunge.holds import not_held
from expunge.model.identity import PARTS
from expunge.search.served import EVER, begins, contradicts


def _ref(collection: Collection) -> str:
    return f"r.{collection.body_in}" if collection.body_in else "NULL"


def _in_scope(collection: Collection, selector: Selector) -> str:
    return f"""FROM {selector.joined(collection)}
        WHERE {selector.where(collection)} AND r.seq < :seq AND {not_held(collection.name)}"""


@lru_cache
def find_in_scope(collection: Collection, selector: Selector) -> Statement:
    """Rows ``(collection, id, rid, position, ref)`` of the records in scope, older than ``:seq`` and not held."""
    return Statement(
        f"{collection.name}.find_in_scope",
        f"""SELECT '{collection.name}', r.id, r.rid, {selector.field("t")}, {_ref(collection)}
        {_in_scope(collection, selector)}""",
    )


@lru_cache
def mark_in_scope(collection: Collection, selector: Selector) -> Statement:
    """Mark what ``find_in_scope`` finds: a scope of one batch is not taken out of the store and back, row by row.

    With ``:beside`` the rows will not tell of these marks; otherwise those that another marks do not.
    """
    position = 0 if selector.one else selector.field("t")
    return Statement(
        f"{collection.name}.mark_in_scope",
        f"""INSERT INTO marks (request, org, collection, id, rid, position, ref, direct, beside)
        SELECT :request, :org, '{collection.name}', r.id, r.rid, {position}, {_ref(collection)}, 1,
            CASE WHEN :beside = 1 OR r.marked <> 0 THEN 1 ELSE 0 END
        {_in_scope(collection, selector)} ON CONFLICT DO NOTHING""",
    )


@lru_cache
def hold_in_scope(collection: Collection, selector: Selector) -> Statement:
    """Lock what ``find_in_scope`` finds. Where one unit writes at a time there is nothing to lock, and no row."""
    locking = f"SELECT 1 {_in_scope(collection, selector)} ORDER BY r.rid FOR NO KEY UPDATE OF r"
    nothing = "SELECT 1 WHERE :org = '' AND :seq = 0 AND :targets = ''"
    return Statement(f"{collection.name}.hold_in_scope", nothing, postgres=locking)


@lru_cache
def find_linked(selector: Selector) -> Statement:
    """As ``find_in_scope`` everywhere, but only what has an edge or a child: what closure and census need by id."""
    return Statement("records.find_linked", " UNION ALL ".join(_linked(kind, selector) for kind in selector.reached))


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
def count_by_identity(collection: Collection, selector: Selector) -> Statement:
    """How many records belong to the scope and are not marked: what stays where a scope goes by lineage alone."""
    return Statement(
        f"{collection.name}.count_by_identity",
        f"""SELECT count(*) FROM {selector.joined(collection)}
        WHERE {selector.where(collection)} AND NOT EXISTS (
            SELECT 1 FROM marks m WHERE m.request = :request AND m.collection = '{collection.name}' AND m.id = r.id)""",
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
    """Rows ``(id, rid, ref)`` of the records of ``:ids`` that are there."""
    return Statement(
        f"{collection.name}.find_rows",
        f"""SELECT r.id, r.rid, {_ref(collection)} FROM each_text(:ids) j CROSS JOIN {collection.name} r
        WHERE r.org = :org AND r.id = j.value""",
    )


@lru_cache
def hide(collection: Collection) -> Statement:
    """Let the rows of ``:rids`` name a request, those that name none and are not held: from now on nothing serves them.

    Rows ``(rid)`` of those that do.
    """
    return Statement(
        f"{collection.name}.hide",
        f"""UPDATE {collection.name} AS r SET marked = :request
        WHERE r.rid IN (SELECT value FROM each_number(:rids)) AND r.marked = 0 AND {not_held(collection.name)}
        RETURNING rid""",
    )


@lru_cache
def hide_marked(collection: Collection) -> Statement:
    """As ``hide`` for all that a request marks, where that is one batch."""
    return Statement(
        f"{collection.name}.hide_marked",
        f"""UPDATE {collection.name} AS r SET marked = :request
        WHERE r.rid IN (SELECT rid FROM marks WHERE request = :request AND collection = '{collection.name}')
        AND r.marked = 0 AND {not_held(collection.name)}""",
    )


@lru_cache
def hide_again(collection: Collection) -> Statement:
    """As ``hide`` for what a request has marked as derived and is still served: it was held when it was marked."""
    return Statement(
        f"{collection.name}.hide_again",
        f"""UPDATE {collection.name} AS r SET marked = :request
        WHERE r.rid IN (SELECT rid FROM marks
                        WHERE request = :request AND collection = '{collection.name}' AND direct = 0)
        AND r.marked = 0 AND {not_held(collection.name)}""",
    )


@lru_cache
def unhide(collection: Collection) -> Statement:
    """Serve the rows of ``:rids`` again that no other request marks; with a ``:seq``, all are as written then.

    A row that named this request names another one that marks it. Rows ``(rid, marked)``.
    """
    return Statement(
        f"{collection.name}.unhide",
        f"""UPDATE {collection.name} AS r SET seq = coalesce(:seq, seq), marked = CASE
            WHEN marked <> :request THEN marked
            ELSE (SELECT coalesce(min(request), 0) FROM ({beside_row("r.id", f"'{collection.name}'", "r.org")}
                AND g.request <> :request AND g.rid = r.rid) g) END
        WHERE r.rid IN (SELECT value FROM each_number(:rids))
        RETURNING rid, marked""",
    )


@lru_cache
def delete_marked(collection: Collection) -> Statement:
    """Delete the rows of ``:rids`` that are not held; rows ``(id, marked)`` of those that went (law 8).

    ``:rids`` come from the marks of the request in the same transaction, and no row number is used twice. The org is
    compared as an expression, because the planner would otherwise rather walk the index by org than look rows up.
    """
    return Statement(
        f"{collection.name}.delete_marked",
        f"""DELETE FROM {collection.name} AS r WHERE r.rid IN (SELECT value FROM each_number(:rids))
        AND r.org || '' = :org AND {not_held(collection.name)} RETURNING id, marked""",
    )


@lru_cache
def find_children(collection: Collection, column: str) -> Statement:
    """Rows ``(collection, id, position)`` of what belongs to a marked record of ``:ids`` and is not marked yet."""
    return Statement(
        f"{collection.name}.find_children",
        f"""SELECT '{collection.name}', r.id, m.position FROM each_text(:ids) j
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


@lru_cache
def count_held(collection: Collection, selector: Selector) -> Statement:
    """One row ``(derived, outside)``: how many records are marked as derived and held, and not in scope themselves."""
    outside = f"NOT ({selector.within(collection)})" if collection in selector.reached else "TRUE"
    return Statement(
        f"{collection.name}.count_held",
        f"""SELECT count(*), coalesce(sum(CASE WHEN {outside} THEN 1 ELSE 0 END), 0) FROM marks m
        CROSS JOIN {collection.name} r ON r.rid = m.rid
        WHERE m.request = :request AND m.collection = '{collection.name}' AND m.direct = 0
        AND NOT {not_held(collection.name)}""",
    )


_NOT_MINE = """{0}.marked = 0 AND NOT EXISTS (
            SELECT 1 FROM marks d WHERE d.request = :request AND d.collection = 'facts' AND d.id = {0}.id)"""
FACTS_REVIVED = Statement(
    "facts.count_revived",
    f"""SELECT grouped.position, count(*) FROM (
        SELECT o.rid, min(m.position) AS position FROM marks m CROSS JOIN facts r ON r.rid = m.rid
        CROSS JOIN facts o ON {contradicts("r", "o")}
        WHERE m.request = :request AND m.collection = 'facts' AND r.org = :org AND {_NOT_MINE.format("o")}
        AND {begins("r")} < least(coalesce(o.valid_to, {EVER}), coalesce((
            SELECT min({begins("k")}) FROM facts k WHERE {contradicts("k", "o")} AND {_NOT_MINE.format("k")}
        ), {EVER}))
        GROUP BY o.rid) grouped
    GROUP BY grouped.position""",
)
"""Facts that stay and that a marked one had ended: they hold for longer when it goes (design 4, lineage rule)."""
FENCE_STANDS = Statement(
    "fences.stands", "SELECT EXISTS (SELECT 1 FROM fences WHERE org = :org AND lowered_seq IS NULL)"
)
"""Whether any fence of the org is up."""
HAS_TIES = Statement(
    "records.has_ties",
    "SELECT EXISTS (SELECT 1 FROM lineage) OR "
    + " OR ".join(f"EXISTS (SELECT 1 FROM {kind.name})" for kind in RECORDS if kind.parent is not None),
)
"""Whether the store holds any edge or child at all: without one there is nothing to look for, record by record."""
ADD_MARK = Statement(
    "marks.add",
    """INSERT INTO marks (request, org, collection, id, rid, position, ref, direct, beside)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
)
PAGE_OF_MARKS = Statement(
    "marks.page",
    """SELECT collection, id, rid, position, ref FROM marks
    WHERE request = :request AND (collection, id) > (:collection, :id) ORDER BY collection, id LIMIT :size""",
)
MARKED_BODIES = {
    kind.name: Statement(
        f"{kind.name}.marked_bodies",
        f"""SELECT m.ref, m.position FROM marks m
        WHERE m.request = :request AND m.collection = '{kind.name}' AND m.ref IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM {kind.name} r WHERE r.rid = m.rid AND NOT {not_held(kind.name)})""",
    )
    for kind in RECORDS
    if kind.body_in
}
"""Rows ``(ref, position)`` of the bodies that marked rows name, also those that are gone, and not held ones (law 8)."""
ANY_BODY = Statement(
    "marks.any_body",
    "SELECT EXISTS (SELECT 1 FROM marks WHERE request = :request AND ref IS NOT NULL)",
)
NAMED_BODIES = {
    kind.name: Statement(
        f"{kind.name}.named_bodies",
        f"""SELECT r.{kind.body_in} FROM each_text(:refs) j CROSS JOIN {kind.name} r
        WHERE r.{kind.body_in} = j.value AND r.org = :org
        AND (r.marked = 0 OR r.seq >= :seq OR NOT {not_held(kind.name)})""",
    )
    for kind in RECORDS
    if kind.body_in
}
"""Of the bodies ``:refs`` those that a row names which stays: held, or restored, though another may have hidden it."""
OTHERS_OPEN = Statement(
    "requests.open",
    """SELECT EXISTS (SELECT 1 FROM requests WHERE org = :org AND rid <> :request
    AND (status <> 'completed' OR purge = 0))""",
)
"""Whether another request of the org may mark anything: one that hides, or has not come to its end."""
PUT_BESIDE = Statement(
    "marks.put_beside",
    """UPDATE marks SET beside = 1 WHERE request = :request AND collection = :collection AND beside = 0
    AND id IN (SELECT value FROM each_text(:ids))""",
)
"""The rows that told of these marks are gone."""
DROP_OTHERS = Statement(
    "marks.drop_others",
    """DELETE FROM marks WHERE org = :org AND request <> :request AND collection = :collection AND beside = 1
    AND id IN (SELECT value FROM each_text(:ids))""",
)
"""What is gone cannot be restored, nor removed again: what stood beside its row for other requests goes as well."""
DROP_SOME_MARKS = Statement(
    "marks.drop_some",
    """DELETE FROM marks WHERE request = :request AND collection = :collection
    AND id IN (SELECT value FROM each_text(:ids))""",
)
MARKED_THERE = Statement(
    "marks.there",
    "SELECT "
    + " OR ".join(
        f"""EXISTS (SELECT 1 FROM marks m CROSS JOIN {kind.name} r ON r.rid = m.rid
        WHERE m.request = :request AND m.collection = '{kind.name}')"""
        for kind in RECORDS
    ),
)
"""Whether anything that a request marks is still there."""
SOME_MARKS = Statement("marks.some", "SELECT EXISTS (SELECT 1 FROM marks WHERE request = :request)")
MARKS_LEFT = Statement("marks.left", "SELECT count(*) FROM marks WHERE request = :request")
DROP_MARKS = Statement("marks.drop", "DELETE FROM marks WHERE request = :request")
COUNT_MARKS = Statement(
    "marks.count",
    "SELECT collection, direct, position, count(*) FROM marks WHERE request = :request GROUP BY 1, 2, 3",
)


def _marked(end: str) -> str:
    """Whether some request of the org, this one or another that runs, is about to remove the end of an edge.

    Every request commits its marks before its closure, so of two that take the last two sources of a record the later
    one sees the earlier one's (law 6).
    """
    return is_marked(end, f"{end}_collection")


UNFOUNDED = Statement(
    "marks.unfounded",
    f"""SELECT m.collection, m.id, m.rid, m.position, m.ref FROM marks m
    WHERE m.request = :request AND m.direct = 0 AND EXISTS (
        SELECT 1 FROM lineage l WHERE l.org = :org AND l.derived = m.id AND l.derived_collection = m.collection
        AND l.rule = 'detach' AND NOT {_marked("l.source")})""",
)
"""What was marked as having lost its last source and has one again, since a restore or a refusal gave it back."""
DERIVED_OF = Statement(
    "lineage.derived_of",
    f"""SELECT grouped.collection, grouped.id, grouped.position FROM (
        SELECT l.derived_collection AS collection, l.derived AS id, min(m.position) AS position,
               max(CASE WHEN l.rule <> 'detach' THEN 1 ELSE 0 END) AS outright
        FROM each_text(:ids) j CROSS JOIN lineage l ON l.org = :org AND l.source = j.value
        CROSS JOIN marks m ON m.request = :request AND m.collection = l.source_collection AND m.id = l.source
        GROUP BY 1, 2) grouped
    WHERE NOT EXISTS (SELECT 1 FROM marks d WHERE d.request = :request AND d.collection = grouped.collection
                      AND d.id = grouped.id)
      AND (grouped.outright = 1 OR NOT EXISTS (
          SELECT 1 FROM lineage o
          WHERE o.org = :org AND o.derived = grouped.id AND NOT {_marked("o.source")}))""",
)
"""What goes because a marked source of ``:ids`` goes: ``retire`` with any, ``detach`` with the last (law 6).

Each is looked at once, however many of its sources go: all of its edges for each of them would be their square.
"""
DETACHED = Statement(
    "lineage.detached",
    f"""SELECT grouped.position, count(*) FROM (
        SELECT l.derived, min(m.position) AS position FROM marks m
        CROSS JOIN lineage l ON l.org = :org AND l.source = m.id
        WHERE m.request = :request AND NOT {_marked("l.derived")}
        GROUP BY l.derived) grouped
    GROUP BY grouped.position""",
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
        f"""DELETE FROM lineage WHERE org = :org AND {end} IN (SELECT value FROM each_text(:ids))
        RETURNING coalesce({position.format("derived")}, {position.format("source")})""",
    )


CUT_FROM_DERIVED, CUT_FROM_SOURCE = _cut_from("derived"), _cut_from("source")

DIRECT_MARKS = Statement("marks.direct", "SELECT collection, id FROM marks WHERE request = :request AND direct = 1")
_KINDS = ", ".join(f"'{kind.name}'" for kind in RECORDS)
_NAMED_BY = " UNION ALL ".join(
    f"""SELECT r.{kind.versioned_by}, m.collection, m.id FROM marks m CROSS JOIN {kind.name} r ON r.rid = m.rid
    WHERE m.request = :request AND m.collection = '{kind.name}' AND r.org = :org
    AND r.{kind.versioned_by} IN (SELECT value FROM each_text(:keys))"""
    for kind in RECORDS
    if kind.versioned_by
)
MARKS_NAMED = Statement(
    "marks.named",
    f"""SELECT m.id, m.collection, m.id FROM each_text(:keys) j
    CROSS JOIN marks m ON m.request = :request AND m.collection IN ({_KINDS}) AND m.id = j.value
    UNION ALL {_NAMED_BY}""",
)
"""Rows ``(key, collection, id)`` of the marks that ``:keys`` name: an id, the key of a memory, the name of a block.

One pass for all keys: each for itself would walk through the marks as often as there are keys.
"""
RESTORABLE_FROM = Statement(
    "lineage.restorable_from",
    f"""SELECT m.collection, m.id FROM (
        SELECT l.derived_collection AS collection, l.derived AS id,
               max(CASE WHEN l.rule = 'detach' AND NOT {_marked("l.source")} THEN 1 ELSE 0 END) AS founded
        FROM each_text(:ids) j CROSS JOIN lineage l ON l.org = :org AND l.source = j.value
        GROUP BY 1, 2) grouped
    CROSS JOIN marks m ON m.request = :request AND m.collection = grouped.collection AND m.id = grouped.id
    WHERE m.direct = 0 AND (grouped.founded = 1 OR NOT EXISTS (
        SELECT 1 FROM lineage o CROSS JOIN marks g
        ON g.request = :request AND g.collection = o.source_collection AND g.id = o.source
        WHERE o.org = :org AND o.derived = grouped.id))""",
)
"""What a request has no reason to hide any more, now that it does not hide ``:ids``: it hides no source of it.

Whoever still hides one hides it, too. ``detach`` comes back with the first source that is served.
"""
FREED = Statement(
    "lineage.freed",
    f"""SELECT m.request, m.collection, m.id, m.rid, m.position, m.ref FROM each_text(:ids) j
    CROSS JOIN lineage l ON l.org = :org AND l.source = j.value AND l.rule = 'detach'
    CROSS JOIN marks m ON m.id = l.derived AND m.collection = l.derived_collection AND m.direct = 0
    AND m.request IN ({marked_by("l.derived", "l.derived_collection")})
    CROSS JOIN requests q ON q.rid = m.request AND q.purge = 0 AND q.status = 'completed'
    WHERE NOT {_marked("l.source")}""",
)
"""The same for what any request hides because the last source of it was hidden, and that one of ``:ids`` is again."""
RESTS_ON_HIDDEN = Statement(
    "lineage.rests_on_hidden",
    f"""SELECT 1 FROM lineage l
    WHERE l.org = :org AND l.derived = :id AND l.derived_collection = :collection AND {_marked("l.source")}
      AND (l.rule <> 'detach' OR NOT EXISTS (
          SELECT 1 FROM lineage o
          WHERE o.org = :org AND o.derived = l.derived AND NOT {_marked("o.source")})) LIMIT 1""",
)
"""A row when a record would have to go for its sources: ``retire`` rests on each of them, ``detach`` on any."""
HIDDEN_PARENT = {
    kind.name: Statement(
        f"{kind.name}.hidden_parent",
        f"""SELECT 1 FROM {kind.name} r
        WHERE r.rid = :rid AND {is_marked(f"r.{kind.parent.column}", f"'{kind.parent.collection}'", "r.org")}""",
    )
    for kind in RECORDS
    if kind.parent is not None
}
"""A row when the record that a record belongs to is marked."""
MARKED_CHILDREN = {
    kind.name: Statement(
        f"{kind.name}.marked_children",
        f"""SELECT r.id FROM each_text(:ids) j
        CROSS JOIN {kind.name} r ON r.org = :org AND r.{kind.parent.column} = j.value
        CROSS JOIN marks m ON m.request = :request AND m.collection = '{kind.name}' AND m.id = r.id""",
    )
    for kind in RECORDS
    if kind.parent is not None
}
"""The marked records that belong to a record of ``:ids``."""


@lru_cache
def identities(collection: Collection) -> Statement:
    """Rows of whose the records ``:rids`` are, each identity once, and the earliest time of its records."""
    parts = ", ".join(f"r.{part}" for part in PARTS)
    return Statement(
        f"{collection.name}.identities",
        f"""SELECT {parts}, min(r.{collection.time}) FROM each_number(:rids) j CROSS JOIN {collection.name} r
        ON r.rid = j.value GROUP BY {parts}""",
    )
