"""The bytes that had to wait: made to go for all erasures at once, and said in follow-up receipts (design 4)."""

from __future__ import annotations

from functools import partial

from expunge.authority.port import Reclaimed, Tx
from expunge.erasure.ending import deferral, follow_up
from expunge.erasure.health import Named, read_deferred
from expunge.erasure.request import Status, find_request
from expunge.system import System


async def settle(system: System) -> Reclaimed:
    """Compact the authority, and sign again for each erasure whose bytes waited in it: they are gone, or why not yet.

    Only for those that had ended before: what was removed while it ran may still be there.
    """
    waiting = await system.authority.read(read_deferred)
    answer = await system.authority.compact()
    for named in waiting:
        await system.authority.run(partial(_follow_up, system=system, named=named, answer=answer))
    return answer


def _follow_up(tx: Tx, *, system: System, named: Named, answer: Reclaimed) -> None:
    org, request_id = named
    tx.lead(org)
    request = find_request(tx, org, request_id, system.clock.now())
    name = system.authority.name
    left = [item for item in request.deferred if item["store"] != name]
    if request.status is not Status.COMPLETED or left == request.deferred:
        return
    follow_up(tx, request=request, system=system, deferred=[*left, *deferral(system, answer)])
