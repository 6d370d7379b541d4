"""Opening and resuming: how a runner comes by a request and its attempt."""

from __future__ import annotations

import secrets
from contextlib import suppress

from expunge import audit
from expunge.authority.orgs import ask_ledger_head
from expunge.authority.port import Tx, Unit
from expunge.erasure.fence import lower_fence, raise_fence, scope_keys
from expunge.erasure.marking import outcome_of, take_back_unfounded
from expunge.erasure.naming import names_a_subject
from expunge.erasure.order import Order
from expunge.erasure.planning import NotAtOnce, plan_to_hide
from expunge.erasure.request import Request, Status, Step, find_request, insert, next_rid, save
from expunge.errors import Abandoned, Refused, RunnerSuperseded
from expunge.holds import is_wholly_held
from expunge.model.instant import Instant
from expunge.proof import Intent, append_intent
from expunge.system import System

OPERATION = "erasure.request"
_OPENING = frozenset({"intent", "blocked"})
_REOPENED = (Step.MARK, Step.STORES, Step.PURGE, Step.CENSUS)
"""The steps that own residue: a resume after a failed census does them again."""
_REOPENED_BY_MARKS = (Step.STORES, Step.PURGE, Step.CENSUS)
"""The same where the clear scope is forgotten: at the end of a restore window all is found by its mark."""


async def open_erasure(system: System, order: Order, *, actor: str, role: str) -> Request:
    """Open an erasure, and do no more.

    Raises:
        InvalidScope: ``before`` lies in the future.

    """
    return await system.authority.run(opening(system, order, actor=actor, role=role))


def opening(system: System, order: Order, *, actor: str, role: str, at_once: bool = False) -> Unit[Request]:
    """Steps 1 and 2 in one commit: ledger intent, request, audit intent, and the fence (law 2).

    A scope that is wholly held opens as ``blocked``, with no fence. With ``at_once``, what is only hidden, and fits
    into one commit, is hidden in this one: its intent is durable as soon as its marks are, and those can be taken
    back. What is removed cannot, so there the intent is durable first.

    Raises:
        InvalidScope: ``before`` lies in the future.

    """
    scope = order.scope
    order.check_dates(system.clock.now())
    subjects = [system.keys.pseudonyms(target) for target in scope.targets]

    def unit(tx: Tx) -> Request:
        system.check_keys(tx)
        tx.lead(scope.org, sealing=scope_keys(system.keys, scope))
        now = system.clock.now()
        held = [is_wholly_held(tx, target) for target in scope.targets]
        head = ask_ledger_head(tx, scope.org)
        request = Request(
            rid=next_rid(tx),
            id="er-" + secrets.token_hex(12),
            org=scope.org,
            scope_type=order.scope_type,
            scope=scope,
            before=scope.before,
            subjects=subjects,
            key_id=system.keys.current.id,
            actor=system.keys.current.pseudonym(scope.org, "actor", actor),
            acting=actor,
            requester=order.requester,
            urgency=order.urgency,
            external=order.external,
            bound_plan=order.plan_hash,
            exact=order.exact,
            purge=order.purge,
            requested_at=now,
            updated_at=now,
        )
        intent = Intent(request.id, scope.org, request.scope_type, subjects, request.key_id, request.purge, now)
        append_intent(tx, intent, head())
        request.done(Step.OPEN)
        if all(wholly() for wholly in held):
            request.status, request.failure_reason = Status.BLOCKED, "a hold covers the whole scope"
        else:
            raise_fence(tx, request, system.keys)
            request.done(Step.FENCE)
        outcome = "blocked" if request.status is Status.BLOCKED else "intent"
        audit_request(tx, request, system, role=role, outcome=outcome, now=now)
        if at_once and not order.purge and order.plan_hash is None and request.status is Status.IN_PROGRESS:
            _hide_at_once(tx, system, request)
        insert(tx, request)
        return request

    return unit


def _hide_at_once(tx: Tx, system: System, request: Request) -> None:
    """What does not fit into one commit goes on in batches."""
    with suppress(NotAtOnce):
        plan_to_hide(tx, request, system=system)


async def resume_erasure(system: System, org: str, request_id: str, *, role: str, actor: str | None = None) -> Request:
    """Take an erasure over with the next attempt, which fences its old runner out.

    A completed one is answered as it is, unless a reclaim was deferred: then its reclaim is tried again.

    Raises:
        UnknownRequest: the org has no such request.
        Abandoned: it has had ``max_attempts`` attempts.

    """

    def unit(tx: Tx) -> Request:
        tx.lead(org)
        now = system.clock.now()
        request = find_request(tx, org, request_id, now)
        request.acting = actor
        was = request.copy()
        if request.status is Status.COMPLETED or request.status is Status.ABANDONED:
            return request
        if request.status is Status.BLOCKED and not _unblock(tx, request, system):
            return request
        outcome = _take_over(request, system.settings.max_attempts)
        save(tx, request, was=was, now=now)
        audit_request(tx, request, system, role=role, outcome=outcome, now=now)
        return request

    request = await system.authority.run(unit)
    if request.status is Status.ABANDONED:
        raise Abandoned(f"erasure {request.id} was abandoned after {request.attempt} attempts")
    return request


async def release_fence(system: System, org: str, request_id: str, *, role: str, actor: str | None = None) -> Request:
    """Lower the fence of an erasure that did not end, so that its scope can be written to again.

    One that was running has failed by it, and its runner is fenced out; what is hidden stays hidden until a resume.

    Raises:
        UnknownRequest: the org has no such request.
        Refused: no fence of it stands.

    """

    def unit(tx: Tx) -> Request:
        tx.lead(org)
        now = system.clock.now()
        request = find_request(tx, org, request_id, now)
        request.acting = actor
        if request.fence_seq is None or request.lowered_seq is not None:
            raise Refused(f"no fence of erasure {request.id} stands", hint="see: expunge erasure ID")
        was = request.copy()
        lower_fence(tx, request)
        if request.status is Status.IN_PROGRESS:
            request.status, request.attempt = Status.FAILED, request.attempt + 1
            request.failure_reason = "its fence was released"
        save(tx, request, was=was, now=now)
        audit_request(tx, request, system, role=role, outcome="released", now=now)
        return request

    return await system.authority.run(unit)


async def take_due(system: System, due: Request, *, role: str, actor: str | None = None) -> Request:
    """Turn an erasure whose restore window has ended into a purge of what was not restored, with the next attempt.

    Raises:
        UnknownRequest, RunnerSuperseded: another runner has taken it.

    """

    def unit(tx: Tx) -> Request:
        tx.lead(due.org)
        now = system.clock.now()
        request = find_request(tx, due.org, due.id, now)
        request.acting = actor
        if not request.hides or request.restore_until is None or request.restore_until > now:
            raise RunnerSuperseded(f"the restore window of erasure {request.id} was ended by another runner")
        was = request.copy()
        request.purge, request.status, request.attempt = True, Status.IN_PROGRESS, request.attempt + 1
        request.hidden, request.census, request.verified_at = {}, None, None
        take_back_unfounded(tx, request)
        request.effects = outcome_of(tx, request.org, request.rid).effects
        request.steps_completed = [step for step in request.steps_completed if step not in (Step.CENSUS, Step.FINISH)]
        save(tx, request, was=was, now=now)
        audit_request(tx, request, system, role=role, outcome="window ended", now=now)
        return request

    return await system.authority.run(unit)


def _unblock(tx: Tx, request: Request, system: System) -> bool:
    """Raise the fence of a blocked request when its hold has been released; whether it was."""
    if all(is_wholly_held(tx, target)() for target in request.clear_scope.targets):
        return False
    raise_fence(tx, request, system.keys)
    request.done(Step.FENCE)
    return True


def _take_over(request: Request, max_attempts: int) -> str:
    """Give the request to the next attempt, or give it up; the outcome for the audit."""
    if request.attempt >= max_attempts and request.status is not Status.BLOCKED:  # that one has not been tried
        request.status = Status.ABANDONED
        return "abandoned"
    if request.status is Status.FAILED:
        again = _REOPENED if request.scope is not None else _REOPENED_BY_MARKS
        request.steps_completed = [step for step in request.steps_completed if step not in again]
    request.status, request.attempt, request.failure_reason = Status.IN_PROGRESS, request.attempt + 1, None
    return "resumed"


def audit_request(tx: Tx, request: Request, system: System, *, role: str, outcome: str, now: Instant) -> None:
    """Say in the audit what became of a request, in the same transaction (law 2).

    Who had asked is said when it opens, and filed in clear unless the text names a subject of the erasure.
    """
    requester = request.requester if outcome in _OPENING and not names_a_subject(request) else None
    audit.record(
        tx,
        system.keys,
        audit.Entry(
            org=request.org,
            at=now,
            actor=request.acting or "",
            known_as=request.actor,
            role=role,
            operation=OPERATION,
            outcome=outcome,
            request_id=request.id,
            subjects=request.subjects,
            subjects_key=request.key_id,
            requester=requester,
            detail={"attempt": request.attempt, "purge": request.purge, "scope_type": request.scope_type},
            as_of=request.fence_seq,
        ),
    )
