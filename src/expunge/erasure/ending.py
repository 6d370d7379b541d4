"""The end of an erasure: failed with its residue named, or forgotten, reclaimed and signed (law 7, step 12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from expunge.authority.port import Tx
from expunge.erasure.fence import lower_fence
from expunge.erasure.opening import audit_request
from expunge.erasure.request import COUNTED, Request, Status, Step, find_request, list_stopped, save
from expunge.erasure.statements import DROP_MARKS
from expunge.model.scope import type_of
from expunge.proof import Occasion, Subject, append_follow_ups, append_receipts
from expunge.system import System


def fail(tx: Tx, request: Request, system: System, *, role: str) -> None:
    """Say what the census found; the scope and the marks stay for a resume."""
    left = ", ".join(f"{count} of {name}" for name, count in request.residue.items())
    reason = f"the census found {left} left" if left else f"the census did not count {', '.join(request.uncounted)}"
    request.current_step = Step.CENSUS
    request.status, request.failure_reason = Status.FAILED, reason
    audit_request(tx, request, role, Status.FAILED, system.clock.now())


def forget(tx: Tx, request: Request) -> None:
    """Empty the clear scope and the marks: from here on the request knows its subjects by pseudonym alone."""
    tx.change(DROP_MARKS, request=request.rid)
    request.scope, request.current_step = None, Step.FORGET
    request.done(Step.FORGET)
    for other in list_stopped(tx, request.org):
        if _is_covered(other, request):
            _give_way(tx, other, request)


def _is_covered(other: Request, request: Request) -> bool:
    return other.before == request.before and all(subject in request.subjects for subject in other.subjects)


def _give_way(tx: Tx, other: Request, request: Request) -> None:
    """An erasure that stopped short and whose subjects have now gone by another: its clear ids and fence go too."""
    was = other.copy()
    tx.change(DROP_MARKS, request=other.rid)
    if other.fence_seq is not None and other.lowered_seq is None:
        lower_fence(tx, other)
    other.scope, other.status, other.failure_reason = None, Status.ABANDONED, f"its subjects went by {request.id}"
    save(tx, other, was=was, now=request.updated_at)


def complete(tx: Tx, request: Request, system: System, *, role: str) -> list[dict[str, Any]]:
    """Sign a receipt per subject into the org's chain; the receipts."""
    signed = append_receipts(tx, _occasion(request), _subjects(request, system.authority.name), system.keys.signer)
    request.status, request.current_step = Status.COMPLETED, None
    request.done(Step.FINISH)
    audit_request(tx, request, role, Status.COMPLETED, system.clock.now())
    return signed


def follow_up(tx: Tx, *, request: Request, system: System, deferred: list[dict[str, str]]) -> Request:
    """Sign the receipts of a completed request again with what is deferred now, once (design 4)."""
    found = find_request(tx, request.org, request.id)
    if found.deferred == deferred:
        return found  # another runner has said so already
    append_follow_ups(tx, found.org, found.id, deferred=deferred, key=system.keys.signer)
    was, found.deferred = found.copy(), deferred
    save(tx, found, was=was, now=system.clock.now())
    return found


def _occasion(request: Request) -> Occasion:
    return Occasion(
        request_id=request.id,
        batch_id=request.batch_id,
        org=request.org,
        pseudonym_key_id=request.key_id,
        before=request.before,
        purge=request.purge,
        plan_hash=str(request.plan_hash),
        requested_at=request.requested_at,
        verified_at=request.verified_at or 0,
        deferred=request.deferred,
    )


def _subjects(request: Request, store: str) -> Iterator[Subject]:
    nothing: Counter[int] = Counter()
    removed = {name: request.removed.get(name, nothing) for name in COUNTED}
    for position, (pseudonyms, counted) in enumerate(zip(request.subjects, request.census or (), strict=True)):
        yield Subject(
            scope_type=type_of(pseudonyms),
            pseudonyms=pseudonyms,
            removed={name: counts[position] for name, counts in removed.items()},
            effects={name: counts[position] for name, counts in request.effects.items()},
            census={f"{store}.{name}": count for name, count in counted.items()},
        )
