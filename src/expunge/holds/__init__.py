"""Holds: what refuses removal in a scope until it is released (law 8). Their operations come later."""

from __future__ import annotations

from expunge.authority.port import Statement, Tx
from expunge.model.identity import PARTS
from expunge.model.scope import Target

NOT_HELD = """NOT EXISTS (
    SELECT 1 FROM holds h WHERE h.org = r.org AND h.released_at IS NULL
      AND (h.user_id IS NULL OR h.user_id = r.user_id) AND (h.namespace IS NULL OR h.namespace = r.namespace)
      AND (h.agent IS NULL OR h.agent = r.agent) AND (h.session_id IS NULL OR h.session_id = r.session_id))"""
"""The re-check that stands in every delete of a record ``r`` (law 8)."""

_COVERING = Statement(
    "holds.covering",
    """SELECT count(*) FROM holds h WHERE h.org = :org AND h.released_at IS NULL
       AND (h.user_id IS NULL OR h.user_id = :user_id) AND (h.namespace IS NULL OR h.namespace = :namespace)
       AND (h.agent IS NULL OR h.agent = :agent) AND (h.session_id IS NULL OR h.session_id = :session_id)""",
)


def is_wholly_held(tx: Tx, target: Target) -> bool:
    """Whether some hold covers all that a target can select."""
    values = {part: getattr(target, part) for part in PARTS}
    return bool(tx.rows(_COVERING, org=target.org, **values)[0][0])
