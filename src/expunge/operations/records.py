"""``records.put``: the one way in, for records as they are written and for those that an export brings back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from expunge import audit
from expunge.authority.port import Tx
from expunge.memory import (
    Attached,
    Batch,
    Carried,
    PutOutcome,
    Reading,
    Unit,
    discard,
    prepare,
    put_records,
    store_bodies,
)
from expunge.memory.bodies import Refs
from expunge.operations.registry import Call, Input, OrgId, Output
from expunge.system import System


class PutInput(Input):
    """Records as JSON objects, or as lines of JSON (bytes); see the load format."""

    org: OrgId
    records: Sequence[Any]
    skip_bad: bool = False
    attachments_from: Path | None = Field(
        None, description="The folder that the paths of attachments are relative to; they cannot leave it."
    )


class Bad(Output):
    """A record that was not taken."""

    line: int
    field: str
    reason: str


class PutOutput(Output):
    """What became of the records: written (by collection), already there, given lost sources back, not taken."""

    loaded: int
    skipped: int
    reattached: int
    collections: dict[str, int]
    bad: list[Bad]


async def put(system: System, call: Call, given: PutInput) -> PutOutput:
    """Write records, all or nothing unless ``skip_bad``."""
    attached = None
    if given.attachments_from is not None:
        attached = Attached(given.attachments_from, system.settings.max_attachment_bytes)
    batch = await asyncio.to_thread(Batch, given.records, reading_of(system, given.org), attached)
    outcome = await write_batch(system, call, batch, attached, skip_bad=given.skip_bad, operation="records.put")
    return PutOutput(**said_of(outcome))


def reading_of(system: System, org: str, *, exported: bool = False) -> Reading:
    """What reading a record of this call needs to know."""
    limits = system.settings.max_value_bytes, system.settings.max_attachment_bytes
    return Reading(org, system.clock.now(), *limits, exported=exported)


def said_of(outcome: PutOutcome) -> dict[str, Any]:
    """What became of a batch, as the answers say it."""
    return {
        "loaded": outcome.loaded.total(),
        "skipped": outcome.skipped,
        "reattached": outcome.reattached,
        "collections": dict(outcome.loaded),
        "bad": [Bad(line=item.line, field=item.field, reason=item.reason) for item in outcome.bad],
    }


async def write_batch(
    system: System, call: Call, batch: Batch, attached: Attached | Carried | None, *, skip_bad: bool, operation: str
) -> PutOutcome:
    """Write a batch: its search entries are made, its bodies stored, and then its rows, in one unit of work."""
    if not skip_bad:
        batch.refuse_bad()
    call.progress("check", len(batch.records), len(batch.records))
    await prepare(system, batch.records.values())
    refs = await store_bodies(system, batch, attached, call.as_of)
    unit = partial(_write, system=system, call=call, batch=batch, refs=refs, skip_bad=skip_bad, operation=operation)
    try:
        outcome = await system.authority.run(unit)
    except Exception:  # not when it is cancelled: the unit goes on in its thread, and its rows may name the bodies
        await discard(system, batch, refs)
        raise
    await discard(system, batch, {key: ref for key, ref in refs.items() if ref not in outcome.named})
    call.progress("write", outcome.loaded.total(), outcome.loaded.total())
    return outcome


def _write(
    tx: Tx, *, system: System, call: Call, batch: Batch, refs: Refs, skip_bad: bool, operation: str
) -> PutOutcome:
    system.check_keys(tx)
    outcome = put_records(tx, batch, Unit(system.keys, call.as_of, refs), skip_bad=skip_bad)
    for org, count in outcome.by_org.items():
        audit.record(
            tx,
            system.keys,
            audit.Entry(
                org=org,
                at=system.clock.now(),
                actor=call.actor.id,
                role=call.actor.role.name.lower(),
                operation=operation,
                outcome="done",
                detail={"loaded": count},
                as_of=call.as_of.get(org, 0),
            ),
        )
    return outcome
