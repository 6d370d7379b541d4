"""Who marks a record: its row names one request, and the marks that no row tells of are found by an index of their own.

Every mark is told by its row (``marked`` is the ``rid`` of its request) or stands ``beside`` it. Texts for statements;
only names from the data map are put into them (law 12).
"""

from __future__ import annotations

from expunge.datamap.collections import RECORDS


def told_by_row(record: str, kind: str, org: str = ":org") -> str:
    """The request that the row of ``record`` names, 0 where none, NULL without a row; ``kind`` is its collection."""
    rows = (
        f"WHEN '{name}' THEN (SELECT x.marked FROM {name} x WHERE x.org = {org} AND x.id = {record})"
        for name in (one.name for one in RECORDS)
    )
    return f"CASE {kind} {' '.join(rows)} END"


def beside_row(record: str, kind: str, org: str = ":org") -> str:
    """Rows of the requests whose marks of ``record`` its row does not tell of."""
    return f"""SELECT g.request FROM marks g
        WHERE g.id = {record} AND g.org = {org} AND g.collection = {kind} AND g.beside = 1"""


def is_marked(record: str, kind: str, org: str = ":org") -> str:
    """Whether some request is about to remove ``record``, or keeps it hidden."""
    return f"(coalesce({told_by_row(record, kind, org)}, 0) <> 0 OR EXISTS ({beside_row(record, kind, org)}))"


def marked_by(record: str, kind: str, org: str = ":org") -> str:
    """Rows of all requests that mark ``record``."""
    return f"{beside_row(record, kind, org)} UNION ALL SELECT {told_by_row(record, kind, org)}"
