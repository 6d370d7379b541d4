"""Holds: what refuses removal in a scope until it is released (law 8). Their operations come later."""

from __future__ import annotations

from collections.abc import Callable

from expunge.authority.port import Statement, Tx
from expunge.model.identity import PARTS
from expunge.model.scope import Target

_STANDS = "h.released_at IS NULL"
_COVERS = " AND ".join(f"(h.{part} IS NULL OR h.{part} = {{0}}{part})" for part in PARTS)


def not_held(collection: str) -> str:
    """The re-check that stands in every delete of a record ``r`` of a collection (law 8).

    Its first half speaks of no row, so it is looked at once a statement, and where nothing is held a row costs nothing.
    The second finds the row by its number, so that a statement which needs no more than an index reads no more.
    """
    covers = _COVERS.format("x.")
    return f"""(NOT EXISTS (SELECT 1 FROM holds h WHERE {_STANDS}) OR NOT EXISTS (
        SELECT 1 FROM {collection} x CROSS JOIN holds h
        WHERE x.rid = r.rid AND h.org = x.org AND {_STANDS} AND {covers}))"""


_COVERING = Statement(
    "holds.covering",
    f"SELECT count(*) FROM holds h WHERE h.org = :org AND {_STANDS} AND {_COVERS.format(':')}",
)


def is_wholly_held(tx: Tx, target: Target) -> Callable[[], bool]:
    """Whether some hold covers all that a target can select."""
    values = {part: getattr(target, part) for part in PARTS}
    answer = tx.ask(_COVERING, org=target.org, **values)
    return lambda: bool(answer()[0][0])
