"""The fence: raised before anything is planned, lowered when all is marked, or when the erasure ends (law 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from expunge.authority.orgs import next_seq
from expunge.authority.port import GuardKey, Statement, Tx
from expunge.erasure.request import Request
from expunge.keys import KeyRing
from expunge.model.identity import PARTS
from expunge.model.scope import Scope, Target

_RAISE = Statement(
    "fences.raise",
    """INSERT INTO fences (org, request_id, position, user_pn, namespace_pn, session_pn, agent_pn, before, key_id, seq)
    VALUES (:org, :request_id, :position, :user_pn, :namespace_pn, :session_pn, :agent_pn, :before, :key_id, :seq)""",
)
_LOWER = Statement(
    "fences.lower",
    "UPDATE fences SET lowered_seq = :seq WHERE request_id = :request_id AND lowered_seq IS NULL",
)


def raise_fence(tx: Tx, request: Request, keys: KeyRing) -> None:
    """Put up one fence per subject, all with the next ``seq`` of the org. From this commit on writes are refused.

    The units that write into the scope are waited for first: what they write is there to be found.
    """
    tx.seal(scope_keys(keys, request.clear_scope))
    request.fence_seq = next_seq(tx, request.org)
    tx.change_many(
        _RAISE,
        [_row(request, position, subject) for position, subject in enumerate(request.subjects)],
    )


def scope_keys(keys: KeyRing, scope: Scope) -> Iterator[GuardKey]:
    """What the units that write into a scope are told by: a part that it does not narrow has no pseudonyms."""
    return (_scope_key(keys, target) for target in scope.targets)


def _scope_key(keys: KeyRing, target: Target) -> GuardKey:
    named = target.named()
    parts = tuple(keys.pseudonyms_of(target.org, part, named[part]) if part in named else () for part in PARTS)
    return GuardKey(target.org, parts, 0)


def lower_fence(tx: Tx, request: Request) -> None:
    """Take the fences down with another ``seq``: what began before it stays refused, what begins now is new.

    One that was released stays down as of then.
    """
    if request.lowered_seq is not None:
        return
    request.lowered_seq = next_seq(tx, request.org)
    tx.send(_LOWER, request_id=request.id, seq=request.lowered_seq)


def _row(request: Request, position: int, pseudonyms: dict[str, str]) -> dict[str, Any]:
    return {
        "org": request.org,
        "request_id": request.id,
        "position": position,
        "user_pn": pseudonyms.get("user_id", ""),
        "namespace_pn": pseudonyms.get("namespace", ""),
        "session_pn": pseudonyms.get("session_id", ""),
        "agent_pn": pseudonyms.get("agent", ""),
        "before": request.before,
        "key_id": request.key_id,
        "seq": request.fence_seq,
    }
