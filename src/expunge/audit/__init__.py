"""Audit: who did what, to which pseudonyms, with which outcome (laws 2 and 14).

The actor and the subjects are different fields; an entry holds pseudonyms and counts, never clear ids of subjects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from expunge.authority.port import Statement, Tx
from expunge.model.canonical import to_json
from expunge.model.instant import Instant

_APPEND = Statement(
    "audit.append",
    """INSERT INTO audit (org, n, at, actor, role, operation, outcome, request_id, subjects, detail)
    VALUES (:org, :n, :at, :actor, :role, :operation, :outcome, :request_id, :subjects, :detail)""",
)
_LAST = Statement("audit.last", "SELECT n FROM audit WHERE org = :org ORDER BY n DESC LIMIT 1")
"""Asked for apart: an insert that looks into its own table takes twice as long as the two together."""
_LATEST = Statement("audit.latest", "SELECT at FROM audit WHERE org = :org ORDER BY n DESC LIMIT 1")


def latest(tx: Tx, org: str) -> Instant | None:
    """When the last thing happened in an org."""
    rows = tx.rows(_LATEST, org=org)
    return rows[0][0] if rows else None


@dataclass(frozen=True, slots=True)
class Entry:
    """One happening. ``outcome`` is ``intent``, ``done``, or what the operation ended as."""

    org: str
    at: Instant
    actor: str
    role: str
    operation: str
    outcome: str
    request_id: str | None = None
    subjects: Sequence[dict[str, str]] = ()
    detail: dict[str, Any] = field(default_factory=dict)


def record(tx: Tx, entry: Entry) -> None:
    """Append an entry, in the transaction of what it speaks of: neither is there without the other (law 2)."""
    last = tx.rows(_LAST, org=entry.org)
    tx.change(
        _APPEND,
        org=entry.org,
        n=last[0][0] + 1 if last else 1,
        at=entry.at,
        actor=entry.actor,
        role=entry.role,
        operation=entry.operation,
        outcome=entry.outcome,
        request_id=entry.request_id,
        subjects=to_json(list(entry.subjects)),
        detail=to_json(entry.detail),
    )
