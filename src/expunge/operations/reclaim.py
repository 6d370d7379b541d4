"""``system.reclaim``: the bytes of what was removed."""

from __future__ import annotations

from pydantic import Field

from expunge.operations.registry import Call, NoInput, Output
from expunge.system import System


class ReclaimOutput(Output):
    """Whether the bytes are gone."""

    deferred: str | None = Field(description="Why they are not yet, and `None` when they are.")


async def reclaim(system: System, _call: Call, _given: NoInput) -> ReclaimOutput:
    """Make the bytes of what was removed go: merge the search index, and move the write-ahead log into the file.

    An erasure does the second itself. The keyed hashes of its words leave the index when that merges by itself, which
    it does when a third of its entries have gone; here it is told to. Its cost is that of the whole index.
    """
    return ReclaimOutput(deferred=(await system.authority.compact()).deferred)
