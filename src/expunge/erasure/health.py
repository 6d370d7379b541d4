"""What of the erasures wants attention: fences that stand, erasures that stopped, windows that ended."""

from __future__ import annotations

from dataclasses import dataclass

from expunge.authority.port import Statement, Tx
from expunge.erasure.request import list_due
from expunge.model.instant import Instant

_STANDING = Statement(
    "fences.standing",
    """SELECT DISTINCT f.org, f.request_id FROM fences f JOIN requests q ON q.id = f.request_id
    WHERE f.lowered_seq IS NULL AND q.status <> 'in_progress'""",
)
_STOPPED = Statement(
    "requests.unfinished",
    """SELECT org, id, status FROM requests WHERE status IN ('in_progress', 'failed', 'blocked')
    OR (status = 'abandoned' AND (scope IS NOT NULL OR EXISTS (SELECT 1 FROM marks m WHERE m.request = requests.rid)))
    ORDER BY rid""",
)
"""One that was abandoned and still knows its scope, or marks something, has not been cleared by another."""
_DEFERRED = Statement("requests.deferred", "SELECT org, id FROM requests WHERE deferred <> '[]' ORDER BY rid")
_LATEST = Statement("requests.latest", "SELECT max(requested_at) FROM requests")

Named = tuple[str, str]
"""An org and the id of an erasure in it."""


@dataclass(frozen=True, slots=True)
class Health:
    """Over all orgs: what wants a hand, by org and id; ``latest`` is when the newest erasure was asked for."""

    standing: list[Named]
    unfinished: list[tuple[str, str, str]]
    due: list[Named]
    deferred: list[Named]
    latest: Instant | None


def read_deferred(tx: Tx) -> list[Named]:
    """The erasures some of whose bytes were not reclaimed yet."""
    return [(org, request_id) for org, request_id in tx.rows(_DEFERRED)]


def read_health(tx: Tx, now: Instant) -> Health:
    """Look over the erasures of every org."""
    return Health(
        standing=[(org, request_id) for org, request_id in tx.rows(_STANDING)],
        unfinished=[(org, request_id, status) for org, request_id, status in tx.rows(_STOPPED)],
        due=[(request.org, request.id) for request in list_due(tx, now)],
        deferred=read_deferred(tx),
        latest=tx.rows(_LATEST)[0][0],
    )
