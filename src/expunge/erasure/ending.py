"""The end of an erasure: failed with its residue named, or forgotten, reclaimed and signed (law 7, step 12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from expunge.authority.orgs import LedgerHead, ask_ledger_head
from expunge.authority.port import Reclaimed, Tx, Unit
from expunge.erasure.fence import lower_fence
from expunge.erasure.marking import tally_of_marks
from expunge.erasure.naming import drop_requester, drop_requesters
from expunge.erasure.opening import audit_request
from expunge.erasure.request import (
    COUNTED,
    REMOVED,
    Counts,
    Request,
    Status,
    Step,
    find_request,
    in_store,
    list_clear,
    save,
)
from expunge.erasure.statements import DROP_MARKS, MARKED_THERE, MARKS_LEFT, SOME_MARKS
from expunge.errors import EnvironmentFault, ErasureInterrupted
from expunge.model.instant import DAY, Instant
from expunge.model.scope import Target, type_of
from expunge.proof import Occasion, Subject, append_follow_ups, append_receipts
from expunge.system import System

T = TypeVar("T")
RESTORABLE_FOR: Instant = 14 * DAY
"""How long what is hidden can be restored (seed page Loom, "Tombstone or purge")."""


def interrupted(request: Request, fault: EnvironmentFault) -> ErasureInterrupted:
    """The machine gave out: the request stays ``in_progress`` and can be resumed."""
    return ErasureInterrupted(
        f"erasure {request.id} is still {request.status}: {fault.message}",
        hint=f"{fault.next_step or 'mend it'}, then: expunge resume {request.id}",
        request_id=request.id,
    )


def one_commit(system: System, was: Request, work: Callable[[Tx, Request], T]) -> Unit[tuple[Request, T]]:
    """A commit of an attempt: the request is worked on, and written back if it is still ours (``save``)."""

    def unit(tx: Tx) -> tuple[Request, T]:
        tx.lead(was.org)
        request = was.copy()
        result = work(tx, request)
        save(tx, request, was=was, now=system.clock.now())
        return request, result

    return unit


def fail(tx: Tx, request: Request, system: System, *, role: str, step: Step, reason: str) -> None:
    """Say why the erasure stopped short; the scope and the marks stay for a resume."""
    request.current_step = step
    request.status, request.failure_reason = Status.FAILED, reason
    audit_request(tx, request, system, role=role, outcome=Status.FAILED, now=system.clock.now())


def what_is_left(request: Request) -> str | None:
    """What the census found, in words, or ``None`` when it counted everything and found nothing (law 7)."""
    if request.residue:
        return "the census found " + ", ".join(f"{n} of {name}" for name, n in request.residue.items()) + " left"
    return f"the census did not count {', '.join(request.uncounted)}" if request.uncounted else None


def end_counted(
    tx: Tx, request: Request, *, system: System, role: str, counts: Counts, now: Instant
) -> list[dict[str, Any]] | None:
    """Go on after the census of ``now``: the scope is forgotten, or hidden and signed for, or it has failed (law 7)."""
    request.census, request.verified_at = counts, now
    request.done(Step.CENSUS)
    known = Known.ask(tx, request)
    if (reason := what_is_left(request)) is not None:
        fail(tx, request, system, role=role, step=Step.CENSUS, reason=reason)
    elif request.purge:
        forget(tx, request)
        if (answer := system.authority.waits) is not None:  # nothing to wait for before it is signed
            note_reclaim(request, system, answer)
            return complete(tx, request, system, role=role, known=known)
    else:
        end_hiding(tx, request)
        return complete(tx, request, system, role=role, known=known)
    return None


def note_reclaim(request: Request, system: System, answer: Reclaimed) -> None:
    """Keep what a reclaim has answered: the receipt says which bytes wait, why, and until when."""
    request.deferred = [*request.deferred, *deferral(system, answer)]
    request.done(Step.RECLAIM)


def deferral(system: System, answer: Reclaimed) -> list[dict[str, str]]:
    """What is deferred in the authority, with its own reason."""
    if answer.deferred is None:
        return []
    return [{"store": system.authority.name, "reason": answer.deferred, "until": answer.until}]


def refuse_plan(tx: Tx, request: Request, system: System, *, role: str, reason: str) -> None:
    """End an erasure whose plan has changed: nothing was removed, the fence comes down, nobody is known any more."""
    lower_fence(tx, request)
    drop_requester(tx, request)
    request.scope, request.current_step = None, Step.PLAN
    request.status, request.failure_reason = Status.ABANDONED, f"the plan has changed: {reason}"
    audit_request(tx, request, system, role=role, outcome=Status.ABANDONED, now=system.clock.now())


def forget(tx: Tx, request: Request) -> None:
    """Empty the clear scope and the marks: from here on the request knows its subjects by pseudonym alone."""
    tx.send(DROP_MARKS, request=request.rid)
    drop_requester(tx, request)
    drop_requesters(tx, request)
    gone = () if request.scope is None else request.scope.targets
    request.scope, request.current_step = None, Step.FORGET
    request.done(Step.FORGET)
    for other in list_clear(tx, request.org):
        theirs = () if other.rid == request.rid else other.clear_scope.targets
        if other.hides:
            if _share_a_name(theirs, gone) or not tx.rows(SOME_MARKS, request=other.rid)[0][0]:
                _forget_scope(tx, other, request)
        elif theirs and all(any(_covers(mine, target) for mine in gone) for target in theirs):
            _give_way(tx, other, request)


def _covers(mine: Target, theirs: Target) -> bool:
    """Whether all that the second selects is selected by the first."""
    return mine.before in (None, theirs.before) and mine.named().items() <= theirs.named().items()


def _share_a_name(theirs: Sequence[Target], mine: Sequence[Target]) -> bool:
    """By clear ids: the keys may have been rotated in between."""
    names = {atom for target in mine for atom in target.named().items()}
    return any(atom in names for target in theirs for atom in target.named().items())


def _forget_scope(tx: Tx, other: Request, request: Request) -> None:
    """A request that hides records of somebody who has now gone: it goes on by its marks and pseudonyms."""
    drop_requester(tx, other)
    was, other.scope = other.copy(), None
    save(tx, other, was=was, now=request.updated_at)


def _give_way(tx: Tx, other: Request, request: Request) -> None:
    """An erasure that stopped short and whose subjects have now gone by another: its clear ids and fence go too.

    Where a hold keeps something that it marks, a resume goes on by its marks; otherwise it has ended.
    """
    was = other.copy()
    if other.fence_seq is not None:
        lower_fence(tx, other)
    drop_requester(tx, other)
    other.scope = None
    if not tx.rows(MARKED_THERE, request=other.rid)[0][0]:
        tx.send(DROP_MARKS, request=other.rid)
        other.status, other.failure_reason = Status.ABANDONED, f"its subjects went by {request.id}"
    save(tx, other, was=was, now=request.updated_at)


def end_hiding(tx: Tx, request: Request) -> None:
    """Note how many records are hidden now: some may have gone by another erasure, and nobody is known for nothing."""
    known = sum(counts.total() for counts in request.hidden.values())
    if tx.rows(MARKS_LEFT, request=request.rid)[0][0] != known:  # none is added once the fence has come down
        request.hidden = tally_of_marks(tx, request)
    if not any(counts.total() for counts in request.hidden.values()):
        request.scope = None


@dataclass(frozen=True, slots=True)
class Known:
    """What a receipt wants to know, asked for early."""

    head: Callable[[], LedgerHead]
    uncovered: Callable[[], list[str]]

    @classmethod
    def ask(cls, tx: Tx, request: Request) -> Known:
        """Ask where the ledger of the org ends, and what the store's settings let others keep."""
        return cls(ask_ledger_head(tx, request.org), tx.ask_uncovered())


def complete(tx: Tx, request: Request, system: System, *, role: str, known: Known) -> list[dict[str, Any]]:
    """Lower what is still up, and sign a receipt per subject into the org's chain; the receipts.

    Of an erasure that hides, the restore window begins.
    """
    now = system.clock.now()
    if request.fence_seq is not None:
        lower_fence(tx, request)
    if not request.purge:
        request.restore_until = now + RESTORABLE_FOR
    occasion = _occasion(request, system, known.uncovered())
    signed = append_receipts(tx, occasion, _subjects(request, system), system.keys.signer, known.head())
    request.status, request.current_step = Status.COMPLETED, None
    request.done(Step.FINISH)
    audit_request(tx, request, system, role=role, outcome=Status.COMPLETED if request.purge else "hidden", now=now)
    return signed


def follow_up(tx: Tx, *, request: Request, system: System, deferred: list[dict[str, str]]) -> Request:
    """Sign the receipts of a completed request again with what is deferred now, once (design 4)."""
    tx.lead(request.org)
    found = find_request(tx, request.org, request.id, system.clock.now())
    if found.deferred == deferred:
        return found  # another runner has said so already
    append_follow_ups(tx, found.org, found.id, deferred=deferred, key=system.keys.signer)
    was, found.deferred = found.copy(), deferred
    save(tx, found, was=was, now=system.clock.now())
    return found


def _occasion(request: Request, system: System, uncovered: list[str]) -> Occasion:
    return Occasion(
        request_id=request.id,
        batch_id=request.batch_id,
        org=request.org,
        pseudonym_key_id=request.key_id,
        before=request.before,
        purge=request.purge,
        restore_until=None if request.purge else request.restore_until,
        plan_hash=str(request.plan_hash),
        requested_at=request.requested_at,
        verified_at=request.verified_at or 0,
        deferred=request.deferred,
        unfenced=[store.name for store in system.stores if store.capabilities.fence == "none"],
        uncovered=uncovered,
        external=request.external,
    )


def _subjects(request: Request, system: System) -> Iterator[Subject]:
    nothing: Counter[int] = Counter()
    names = list(dict.fromkeys((*REMOVED, *(name for name in (request.census or [{}])[0] if name not in COUNTED))))
    hidden, removed = (
        {name: tally.get(name, nothing) for name in names} for tally in (request.hidden, request.removed)
    )
    for position, (pseudonyms, counted) in enumerate(zip(request.subjects, request.census or (), strict=True)):
        yield Subject(
            scope_type=type_of(pseudonyms),
            pseudonyms=pseudonyms,
            hidden={name: counts[position] for name, counts in hidden.items()},
            reversals=request.reversals[position],
            removed={name: counts[position] for name, counts in removed.items()},
            effects={name: counts[position] for name, counts in request.effects.items()},
            census=in_store(counted, system.authority.name),
        )
