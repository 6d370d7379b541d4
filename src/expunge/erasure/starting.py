"""Starting: what is small and only hidden is opened and brought to its end in one hop; all else is opened."""

from __future__ import annotations

from functools import partial
from typing import Any

from expunge.authority.port import AtHand
from expunge.erasure.ending import end_counted, interrupted, one_commit
from expunge.erasure.opening import opening
from expunge.erasure.order import Order
from expunge.erasure.recount import count_inside
from expunge.erasure.request import Request, Status, Step
from expunge.errors import EnvironmentFault
from expunge.system import System

Started = tuple[Request, list[dict[str, Any]] | None]
"""A request, and its receipts where it has come to its end already."""


async def start_erasure(system: System, order: Order, *, actor: str, role: str) -> Started:
    """Open an erasure, and end it when it only hides what fits into one commit; a saga goes on with any other.

    The commits, and the census between them, are those of the saga: what a kill leaves, a resume ends.

    Raises:
        InvalidScope: ``before`` lies in the future.
        RunnerSuperseded: another runner has taken the request over.
        ErasureInterrupted: the machine gave out; the request stays ``in_progress`` and can be resumed.

    """
    opened = opening(system, order, actor=actor, role=role, at_once=True)
    if order.purge:
        return await system.authority.run(opened), None

    def work(at_hand: AtHand) -> Started:
        request = at_hand.run(opened)
        if request.status is not Status.IN_PROGRESS or Step.LOWER not in request.steps_completed:
            return request, None
        try:
            counts, _ = at_hand.read_apart(partial(count_inside, system=system, request=request))
            ending = partial(end_counted, system=system, role=role, counts=counts, now=system.clock.now())
            return at_hand.run(one_commit(system, request, ending))
        except EnvironmentFault as fault:
            raise interrupted(request, fault) from fault

    return await system.authority.in_one_hop(work)
