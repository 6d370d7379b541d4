"""``erasure.*``: request, status, list, resume, restore, release, census, receipts."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from expunge import erasure
from expunge.authority.port import Tx
from expunge.erasure import Order, Request, Saga, Status
from expunge.model.instant import Instant, to_text
from expunge.operations.registry import Call, Input, OrgId, Output, RequestId, UserId, id_of
from expunge.operations.scopes import RequestInput
from expunge.proof import receipts_of
from expunge.system import System


class Answer(Output):
    """How an erasure stands. ``census`` is null while it runs, or when it did not count every store."""

    request_id: str
    org: str
    scope_type: str
    status: str
    current_step: str | None
    steps_completed: list[str]
    attempts: int
    failure_reason: str | None
    residue_count: int | None
    residue: dict[str, int]
    requested_at: str
    verified_at: str | None
    census: dict[str, int] | None
    purge: bool
    restore_until: str | None = Field(description="Until when what is hidden can be restored.")
    found: bool | None
    subjects: int
    subjects_found: int = Field(description="Of how many subjects something was removed, or is hidden.")
    hidden: dict[str, int] = Field(description="Records that are kept and not served.")
    removed: dict[str, int]
    effects: dict[str, int]
    reversals_count: int = Field(description="Records in scope that were restored.")
    plan_hash: str | None
    requester: str | None
    urgency: str
    external: bool
    deferred: list[dict[str, str]]
    receipt: dict[str, Any] | list[dict[str, Any]] | None = Field(
        description="The signed receipt when completed; a list of them when several users were named."
    )

    @property
    def receipts(self) -> list[dict[str, Any]]:
        """The signed receipts, one for each user, in the order in which they were named."""
        if self.receipt is None:
            return []
        return self.receipt if isinstance(self.receipt, list) else [self.receipt]


async def request(system: System, call: Call, given: RequestInput) -> Answer | PreviewOutput:
    """Erase one scope, and answer when it is shown that nothing of it is left (or served); or only preview it."""
    order = given.order()
    if given.dry_run:
        return await _preview(system, order)
    if order.plan_hash is not None:
        await erasure.preview(system, order)  # what has changed already is refused before anything is written
    role = call.actor.role.name.lower()
    started, receipts = await erasure.start_erasure(system, order, actor=call.actor.id, role=role)
    if receipts is not None:
        return await _answer(system, started, receipts)
    return await _run(system, call, started)


async def _run(system: System, call: Call, opened: Request) -> Answer:
    saga = Saga(system, opened, role=call.actor.role.name.lower(), progress=call.progress)
    return await _answer(system, await saga.run(), saga.receipts)


class Stays(Output):
    """What stays in a collection and why; without a count where it holds no records of subjects."""

    collection: str
    count: int | None
    why: str


class PreviewOutput(Output):
    """What an erasure would do: what goes (in scope, and derived from it), effects on others, what stays and why."""

    org: str
    scope_type: str
    subjects: int
    purge: bool
    plan_hash: str
    found: bool
    subjects_found: int
    goes: dict[str, dict[str, int]]
    effects: dict[str, int]
    stays: list[Stays]


async def _preview(system: System, order: Order) -> PreviewOutput:
    found = await erasure.preview(system, order)
    return PreviewOutput(
        org=order.scope.org,
        scope_type=order.scope_type,
        subjects=len(order.scope.targets),
        purge=order.purge,
        plan_hash=found.plan_hash,
        found=found.found,
        subjects_found=found.subjects_found,
        goes=found.goes,
        effects=found.effects,
        stays=[Stays(collection=item.collection, count=item.count, why=item.why) for item in found.stays],
    )


class OneInput(Input):
    """One request of an org."""

    org: OrgId
    request_id: RequestId


async def status(system: System, _call: Call, given: OneInput) -> Answer:
    """Say how an erasure stands."""
    now = system.clock.now()
    found = await system.authority.read(lambda tx: erasure.find_request(tx, given.org, given.request_id, now))
    return await _answer(system, found)


async def resume(system: System, call: Call, given: OneInput) -> Answer:
    """Take an erasure over and go on from its last checkpoint."""
    role = call.actor.role.name.lower()
    taken = await erasure.resume_erasure(system, given.org, given.request_id, role=role, actor=call.actor.id)
    return await _run(system, call, taken)


class DueOutput(Output):
    """The erasures whose restore window had ended, as they stand now."""

    erasures: list[Answer]


class DueInput(Input):
    """Whether somebody asks for it, or it is done by itself at an opening: then only what is surely due, once."""

    unattended: bool = False


async def resume_due(system: System, call: Call, given: DueInput) -> DueOutput:
    """Purge what was hidden and not restored in time, in every org; each gets a second receipt."""
    role = call.actor.role.name.lower()
    ended = await erasure.purge_due(
        system, role=role, actor=call.actor.id, again=not given.unattended, progress=call.progress
    )
    return DueOutput(erasures=[await _answer(system, request) for request in ended])


class RestoreInput(Input):
    """What to restore of an erasure that hides: everything, or what the keys name and what comes back with it."""

    org: OrgId
    request_id: RequestId
    keys: list[Annotated[str, id_of("key")]] = Field(
        [], description="Ids of records, keys of memories or names of blocks; none for everything."
    )


class RestoreOutput(Output):
    """What is served again, and what stays hidden."""

    request_id: str
    restored: dict[str, int] = Field(description="Records that are served again, by collection.")
    reversals_count: int = Field(description="How many of them were in scope; the others came back with them.")
    still_hidden: int
    restore_until: str


async def restore(system: System, call: Call, given: RestoreInput) -> RestoreOutput:
    """Serve what an erasure hid again, within its restore window."""
    actor = call.actor
    role = actor.role.name.lower()
    found = await erasure.restore(system, given.org, given.request_id, given.keys, actor=actor.id, role=role)
    return RestoreOutput(
        request_id=found.request.id,
        restored=found.counts,
        reversals_count=found.reversals,
        still_hidden=found.still_hidden,
        restore_until=to_text(found.request.restore_until or 0),
    )


async def release(system: System, call: Call, given: OneInput) -> Answer:
    """Lower a fence that stayed up after an erasure stopped short."""
    role = call.actor.role.name.lower()
    released = await erasure.release_fence(system, given.org, given.request_id, role=role, actor=call.actor.id)
    return await _answer(system, released)


class ListInput(Input):
    """The erasures of an org; only those of a user, or of one status."""

    org: OrgId
    user_id: UserId | None = None
    status: Literal["in_progress", "completed", "failed", "abandoned", "blocked"] | None = None


class Listed(Output):
    """One erasure in a list."""

    request_id: str
    status: str
    purge: bool
    scope_type: str
    urgency: str
    subjects: int
    requested_at: str
    verified_at: str | None
    restore_until: str | None
    steps_completed_count: int
    reversals_count: int
    residue_count: int | None


class ListOutput(Output):
    """Every erasure of the org that is still listed, newest first."""

    erasures: list[Listed]


async def listing(system: System, _call: Call, given: ListInput) -> ListOutput:
    """List the erasures of an org."""
    status, now = None if given.status is None else Status(given.status), system.clock.now()
    found = await system.authority.read(lambda tx: erasure.list_requests(tx, given.org, now, status))
    if given.user_id is not None:  # by pseudonym, under every key there has been
        theirs = {key.pseudonym(given.org, "user_id", given.user_id) for key in system.keys.pseudonym_keys}
        found = [item for item in found if any(subject.get("user_id") in theirs for subject in item.subjects)]
    return ListOutput(erasures=[_listed(item) for item in found])


def _listed(item: Request) -> Listed:
    return Listed(
        request_id=item.id,
        status=item.status,
        purge=item.purge,
        scope_type=item.scope_type,
        urgency=item.urgency,
        subjects=len(item.subjects),
        requested_at=to_text(item.requested_at),
        verified_at=_text(item.verified_at),
        restore_until=None if item.purge else _text(item.restore_until),
        steps_completed_count=len(item.steps_completed),
        reversals_count=item.reversals_count,
        residue_count=None if item.census is None else sum(item.residue.values()),
    )


def _text(instant: Instant | None) -> str | None:
    return None if instant is None else to_text(instant)


class CensusOutput(Output):
    """A fresh count of what is older than the erasure and still there; of one that hides, of what is served."""

    request_id: str
    status: str
    purge: bool
    counted_at: str
    residue_count: int
    census: dict[str, int]


async def census(system: System, _call: Call, given: OneInput) -> CensusOutput:
    """Count again what an erasure left."""
    return CensusOutput(**await erasure.recount(system, given.org, given.request_id))


class ReceiptsOutput(Output):
    """The newest receipt of each subject, as the canonical JSON that was signed."""

    request_id: str
    receipts: list[str]


async def receipts(system: System, _call: Call, given: OneInput) -> ReceiptsOutput:
    """Give the receipts of an erasure."""

    def unit(tx: Tx) -> list[str]:
        signed = receipts_of(tx, given.org, given.request_id)
        if not signed:  # receipts outlive the row of their request
            erasure.find_request(tx, given.org, given.request_id, system.clock.now())
        return signed

    return ReceiptsOutput(request_id=given.request_id, receipts=await system.authority.read(unit))


async def _answer(system: System, found: Request, signed: list[dict[str, Any]] | None = None) -> Answer:
    now_signed = signed is not None  # then what is hidden has been counted in the same commit
    if signed is None:
        signed = []
        if found.status is Status.COMPLETED:
            bodies = await system.authority.read(lambda tx: receipts_of(tx, found.org, found.id))
            signed = [json.loads(body) for body in bodies]
    counted = None if found.census is None else erasure.summed(found.census, system.authority.name)
    hidden = found.totals(found.hidden)
    if found.hides and not now_signed:
        hidden = await system.authority.read(lambda tx: erasure.count_hidden(tx, found))
    return Answer(
        request_id=found.id,
        org=found.org,
        scope_type=found.scope_type,
        status=found.status,
        current_step=found.current_step,
        steps_completed=list(found.steps_completed),
        attempts=found.attempt,
        failure_reason=found.failure_reason,
        residue_count=None if counted is None else sum(counted.values()),
        residue=found.residue,
        requested_at=to_text(found.requested_at),
        verified_at=_text(found.verified_at),
        census=counted,
        purge=found.purge,
        restore_until=None if found.purge else _text(found.restore_until),
        found=found.found,
        subjects=len(found.subjects),
        subjects_found=found.subjects_found,
        hidden=hidden,
        removed=found.totals(found.removed),
        effects={name: counts.total() for name, counts in found.effects.items()},
        reversals_count=found.reversals_count,
        plan_hash=found.plan_hash,
        requester=found.requester,
        urgency=found.urgency,
        external=found.external,
        deferred=found.deferred,
        receipt=signed if len(found.subjects) > 1 and signed else (signed[0] if signed else None),
    )
