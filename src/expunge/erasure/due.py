"""What has become due: restore windows that have ended, and rows of erasures that nobody reads any more."""

from __future__ import annotations

from expunge import audit
from expunge.authority.port import Tx
from expunge.erasure.opening import resume_erasure, take_due
from expunge.erasure.request import Request, expire_requests, list_due, some_expired
from expunge.erasure.saga import Progress, Saga, silent
from expunge.errors import Abandoned, RunnerSuperseded
from expunge.model.instant import DAY, Instant
from expunge.system import System

_LONGEST_REST: Instant = 30 * DAY
"""A clock that stands further behind the last happening may have jumped, and somebody has to look (law 13)."""


async def purge_due(
    system: System, *, role: str, actor: str | None = None, again: bool = True, progress: Progress = silent
) -> list[Request]:
    """Purge what was not restored in time, of every org, urgent erasures first; each gets a second receipt.

    Rows of erasures that ended and were asked for 90 days ago go too. What another runner is at is left to it. Without
    ``again`` (nobody has asked for it) a purge that failed is not tried again, and nothing is done by a clock that
    stands more than 30 days after the last happening of the org.

    Raises:
        ErasureInterrupted: the machine gave out; what was begun stays ``in_progress`` and can be resumed.

    """
    now = system.clock.now()
    found, some_old = await system.authority.read(lambda tx: _look(tx, now, again=again))
    ended: list[Request] = []
    for due in found:
        try:
            taken = await _take(system, due, role=role, actor=actor)
            ended.append(await Saga(system, taken, role=role, progress=progress).run())
        except (RunnerSuperseded, Abandoned):
            continue
    if some_old:
        await system.authority.run(lambda tx: expire_requests(tx, now))
    return ended


def _look(tx: Tx, now: Instant, *, again: bool) -> tuple[list[Request], bool]:
    due = list_due(tx, now, again=again)
    if not again:
        latest = {org: audit.latest(tx, org) or now for org in {request.org for request in due}}
        due = [request for request in due if now - latest[request.org] <= _LONGEST_REST]
    return due, some_expired(tx, now)


async def _take(system: System, due: Request, *, role: str, actor: str | None) -> Request:
    if due.purge:
        return await resume_erasure(system, due.org, due.id, role=role, actor=actor)
    return await take_due(system, due, role=role, actor=actor)
