"""What has become due: restore windows that have ended, and rows of erasures that nobody reads any more."""

from __future__ import annotations

from expunge.erasure.opening import take_due
from expunge.erasure.request import Request, expire_requests, list_due, some_expired
from expunge.erasure.saga import Progress, Saga, silent
from expunge.errors import RunnerSuperseded
from expunge.system import System


async def purge_due(system: System, *, role: str, progress: Progress = silent) -> list[Request]:
    """Purge what was not restored in time, of every org, urgent erasures first; each gets a second receipt.

    Rows of erasures that ended and were asked for 90 days ago go too. What another runner is at is left to it.

    Raises:
        ErasureInterrupted: the machine gave out; what was begun stays ``in_progress`` and can be resumed.

    """
    now = system.clock.now()
    found, some_old = await system.authority.read(lambda tx: (list_due(tx, now), some_expired(tx, now)))
    ended: list[Request] = []
    for due in found:
        try:
            taken = await take_due(system, due, role=role)
            ended.append(await Saga(system, taken, role=role, progress=progress).run())
        except RunnerSuperseded:
            continue
    if some_old:
        await system.authority.run(lambda tx: expire_requests(tx, now))
    return ended
