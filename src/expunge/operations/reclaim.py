"""``system.reclaim``: the bytes of what was removed."""

from __future__ import annotations

from pydantic import Field

from expunge.erasure import settle
from expunge.operations.registry import Call, NoInput, Output
from expunge.system import System


class ReclaimOutput(Output):
    """Whether the bytes are gone."""

    deferred: str | None = Field(description="Why they are not yet, and `None` when they are.")
    until: str | None = Field(description="Until when or what; `None` when they are gone.")


async def reclaim(system: System, _call: Call, _given: NoInput) -> ReclaimOutput:
    """Make the bytes of what was removed go, for all erasures at once; what waited for it is signed for again.

    On SQLite: merge the search index, and move the write-ahead log into the file. An erasure does the second itself.
    The keyed hashes of its words leave the index when that merges by itself, which it does when a third of its entries
    have gone; here it is told to. On PostgreSQL: vacuum every table, build its indexes anew, and let the server's log
    move on. Either costs as much as there is in the store.
    """
    answer = await settle(system)
    return ReclaimOutput(deferred=answer.deferred, until=None if answer.deferred is None else answer.until)
