"""The plan of one commit: what is marked is noted, held to what the request is bound to, and the fence comes down."""

from __future__ import annotations

from collections.abc import Mapping

from expunge.authority.port import Tx
from expunge.datamap.selector import count_scope
from expunge.erasure.fence import lower_fence
from expunge.erasure.marking import Marking, Outcome
from expunge.erasure.plan import Binding, difference, plan_hash
from expunge.erasure.rebuild import queue_rebuilds
from expunge.erasure.request import Request, Step
from expunge.system import System


class NotAtOnce(Exception):
    """The scope does not fit into one commit: it is too large, or some of it lies outside the authority."""


class PlanDiffers(Exception):
    """What would go is not what the request was bound to."""


def marking_of(tx: Tx, request: Request, *, hiding: bool) -> Marking:
    """The marking of a request whose fence is up."""
    return Marking(tx, request.rid, request.clear_scope, request.fence_seq or 0, hiding=hiding)


def plan_to_hide(tx: Tx, request: Request, *, system: System) -> None:
    """Plan, mark, hide and lower in one commit.

    Raises:
        NotAtOnce: there is more in scope than one batch; nothing was changed.
        PlanDiffers: it is bound to another plan.

    """
    counts = count_scope(tx, request.clear_scope)
    if sum(count.total() for count in counts.values()) > system.settings.batch_rows:
        raise NotAtOnce
    marking = marking_of(tx, request, hiding=True)
    note_outcome(request, marking, marking.mark_counted(counts), system)
    queue_rebuilds(tx, request, system)
    request.done(Step.MARK)
    lower(tx, request)


def note_marks(request: Request, marking: Marking, system: System) -> None:
    """Note what is marked. A resume of a purge finds only what is left: there the first answer stands."""
    marking.settle()
    if not (request.purge and request.found):
        note_outcome(request, marking, marking.outcome(), system)
    request.done(Step.MARK)


def note_outcome(request: Request, marking: Marking, outcome: Outcome, system: System) -> None:
    """Write into the request what is marked, and bind it to that plan."""
    request.effects = outcome.effects
    request.found = any(outcome.totals.values())
    request.hidden = {} if request.purge else outcome.tally
    bind(request, outcome.totals, marking, system)


def bind(request: Request, totals: Mapping[str, int], marking: Marking, system: System) -> None:
    """Give the request its plan hash, and hold it to the one that it is bound to. A resume keeps it.

    Raises:
        PlanDiffers: it is bound to another plan.

    """
    if request.plan_hash is not None:
        return
    key = system.keys.pseudonym_key(request.key_id)
    ids = key.pseudonym(request.org, "plan", marking.digest()) if request.exact else None
    binding = Binding(
        org=request.org,
        subjects=request.subjects,
        key_id=request.key_id,
        before=request.before,
        purge=request.purge,
        external=request.external,
        ids=ids,
    )
    request.plan_hash = plan_hash(binding, totals)
    request.done(Step.PLAN)
    reason = None if request.bound_plan is None else difference(request.bound_plan, request.plan_hash)
    if reason is not None:
        raise PlanDiffers(reason)


def lower(tx: Tx, request: Request) -> None:
    """Users and sessions may be written to again from here on; a wider scope when the erasure has ended."""
    request.current_step = Step.LOWER
    if request.lowers_early:
        lower_fence(tx, request)
    request.done(Step.LOWER)
