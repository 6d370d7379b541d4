"""``records.put`` and ``subject.profile``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from expunge import audit
from expunge.authority.port import Tx
from expunge.memory import Attached, Batch, PutOutcome, Reading, Unit, discard, prepare, put_records, store_bodies
from expunge.memory.bodies import Refs
from expunge.model.instant import to_text
from expunge.model.scope import Scope, Target
from expunge.operations.audited import note_read
from expunge.operations.registry import Call, Input, OrgId, Output, UserId, id_of
from expunge.subject import read_profile
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
    settings = system.settings
    reading = Reading(given.org, system.clock.now(), settings.max_value_bytes, settings.max_attachment_bytes)
    attached = None
    if given.attachments_from is not None:
        attached = Attached(given.attachments_from, settings.max_attachment_bytes)
    batch = await asyncio.to_thread(Batch, given.records, reading, attached)
    if not given.skip_bad:
        batch.refuse_bad()
    call.progress("check", len(batch.records), len(batch.records))
    await prepare(system, batch.records.values())
    refs = await store_bodies(system, batch, attached, call.as_of)
    try:
        outcome = await system.authority.run(
            partial(_write, system=system, call=call, batch=batch, refs=refs, given=given)
        )
    except Exception:  # not when it is cancelled: the unit goes on in its thread, and its rows may name the bodies
        await discard(system, batch, refs)
        raise
    await discard(system, batch, {key: ref for key, ref in refs.items() if ref not in outcome.named})
    call.progress("write", outcome.loaded.total(), outcome.loaded.total())
    return PutOutput(
        loaded=outcome.loaded.total(),
        skipped=outcome.skipped,
        reattached=outcome.reattached,
        collections=dict(outcome.loaded),
        bad=[Bad(line=item.line, field=item.field, reason=item.reason) for item in outcome.bad],
    )


def _write(tx: Tx, *, system: System, call: Call, batch: Batch, refs: Refs, given: PutInput) -> PutOutcome:
    system.check_keys(tx)
    outcome = put_records(tx, batch, Unit(system.keys, call.as_of, refs), skip_bad=given.skip_bad)
    for org, count in outcome.by_org.items():
        audit.record(
            tx,
            system.keys,
            audit.Entry(
                org=org,
                at=system.clock.now(),
                actor=call.actor.id,
                role=call.actor.role.name.lower(),
                operation="records.put",
                outcome="done",
                detail={"loaded": count},
                as_of=call.as_of.get(org, 0),
            ),
        )
    return outcome


class ProfileInput(Input):
    """Whose profile, in one namespace or in all of them."""

    org: OrgId
    user_id: UserId
    namespace: Annotated[str, id_of("namespace")] | None = None

    @property
    def targets(self) -> tuple[Target, ...]:
        """Whom it speaks of, for the audit."""
        return (Target(self.org, namespace=self.namespace, user_id=self.user_id),)


class Fact(Output):
    """One statement."""

    subject: str
    predicate: str
    object: str


class ProfileOutput(Output):
    """What is held on a user; ``found`` is false when nothing is."""

    org: str
    user_id: str
    found: bool
    counts: dict[str, int] = Field(description="Records by collection.")
    made_from: dict[str, int] = Field(description="Records derived from theirs, one step away, by collection.")
    first_seen: str | None
    last_seen: str | None
    namespaces: list[str]
    session_count: int
    recent_sessions: list[str]
    sample_facts: list[Fact]

    @property
    def episode_count(self) -> int:
        """How many episodes."""
        return self.counts["episodes"]

    @property
    def fact_count(self) -> int:
        """How many facts, with those that do not hold any more."""
        return self.counts["facts"]


async def profile(system: System, call: Call, given: ProfileInput) -> ProfileOutput:
    """Say what is held on a user, in one namespace or across all of an org."""
    namespaces = () if given.namespace is None else (given.namespace,)
    scope = Scope(org=given.org, user_ids=(given.user_id,), namespaces=namespaces)
    found = await system.authority.read(lambda tx: read_profile(tx, scope))
    await note_read(system, call.by("subject.profile"), scope, found.counts)
    return ProfileOutput(
        org=given.org,
        user_id=given.user_id,
        found=any(found.counts.values()),
        counts=found.counts,
        made_from=found.made_from,
        first_seen=None if found.first_seen is None else to_text(found.first_seen),
        last_seen=None if found.last_seen is None else to_text(found.last_seen),
        namespaces=found.namespaces,
        session_count=found.session_count,
        recent_sessions=found.sessions,
        sample_facts=[Fact(subject=s, predicate=p, object=o) for s, p, o in found.facts],
    )
