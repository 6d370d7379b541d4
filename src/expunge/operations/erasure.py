"""``erasure.*``: request, preview, status, list, resume, census, receipts."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field

from expunge import erasure
from expunge.erasure import Request, Saga, Status
from expunge.errors import NotOffered
from expunge.model.instant import to_text
from expunge.model.scope import Scope
from expunge.operations.registry import Call, Input, OrgId, Output, RequestId, UserId
from expunge.proof import receipts_of
from expunge.system import System


class RequestInput(Input):
    """Whom to erase: 1 to 500 users of an org. Hiding (``purge`` false) is not offered yet."""

    org: OrgId
    user_ids: list[UserId] = Field(description="1 to 500 user ids.")
    purge: bool = False


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
    found: bool | None
    removed: dict[str, int]
    effects: dict[str, int]
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


async def request(system: System, call: Call, given: RequestInput) -> Answer:
    """Erase users across every namespace of an org, and answer when it is shown that nothing is left."""
    scope = Scope.of_users(given.org, given.user_ids)
    if not given.purge:
        raise NotOffered(
            "hiding first (an erasure without purge) is not offered yet; it comes with Core 2",
            hint="erase with --purge",
        )
    role = call.actor.role.name.lower()
    opened = await erasure.open_erasure(system, scope, actor=call.actor.id, role=role)
    return await _run(system, call, opened)


async def _run(system: System, call: Call, opened: Request) -> Answer:
    saga = Saga(system, opened, role=call.actor.role.name.lower(), progress=call.progress)
    return await _answer(system, await saga.run(), saga.receipts)


class PreviewOutput(Output):
    """What an erasure would do: what goes (in scope, and derived from it), effects on others, what stays and why."""

    org: str
    users: int
    plan_hash: str
    found: bool
    goes: dict[str, dict[str, int]]
    effects: dict[str, int]
    stays: dict[str, str]


async def preview(system: System, _call: Call, given: RequestInput) -> PreviewOutput:
    """Say what an erasure would do, and do nothing."""
    scope = Scope.of_users(given.org, given.user_ids)
    found = await erasure.preview(system, scope, purge=given.purge)
    return PreviewOutput(
        org=given.org,
        users=len(given.user_ids),
        plan_hash=found.plan_hash,
        found=found.found,
        goes=found.goes,
        effects=found.effects,
        stays=found.stays,
    )


class OneInput(Input):
    """One request of an org."""

    org: OrgId
    request_id: RequestId


async def status(system: System, _call: Call, given: OneInput) -> Answer:
    """Say how an erasure stands."""
    found = await system.authority.read(lambda tx: erasure.find_request(tx, given.org, given.request_id))
    return await _answer(system, found)


async def resume(system: System, call: Call, given: OneInput) -> Answer:
    """Take an erasure over and go on from its last checkpoint."""
    role = call.actor.role.name.lower()
    taken = await erasure.resume_erasure(system, given.org, given.request_id, role=role)
    return await _run(system, call, taken)


class ListInput(Input):
    """The erasures of an org, or only those of a user."""

    org: OrgId
    user_id: UserId | None = None


class Listed(Output):
    """One erasure in a list."""

    request_id: str
    status: str
    scope_type: str
    subjects: int
    requested_at: str
    verified_at: str | None
    steps_completed_count: int
    residue_count: int | None


class ListOutput(Output):
    """Every erasure of the org that is still listed, newest first."""

    erasures: list[Listed]


async def listing(system: System, _call: Call, given: ListInput) -> ListOutput:
    """List the erasures of an org."""
    found = await system.authority.read(lambda tx: erasure.list_requests(tx, given.org))
    if given.user_id is not None:  # by pseudonym, under every key there has been
        theirs = {key.pseudonym(given.org, "user_id", given.user_id) for key in system.keys.pseudonym_keys}
        found = [item for item in found if any(subject.get("user_id") in theirs for subject in item.subjects)]
    return ListOutput(
        erasures=[
            Listed(
                request_id=item.id,
                status=item.status,
                scope_type=item.scope_type,
                subjects=len(item.subjects),
                requested_at=to_text(item.requested_at),
                verified_at=None if item.verified_at is None else to_text(item.verified_at),
                steps_completed_count=len(item.steps_completed),
                residue_count=None if item.census is None else sum(item.residue.values()),
            )
            for item in found
        ]
    )


class CensusOutput(Output):
    """A fresh count of what is older than the erasure and still there."""

    request_id: str
    status: str
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

    def unit(tx: Any) -> list[str]:
        erasure.find_request(tx, given.org, given.request_id)
        return receipts_of(tx, given.org, given.request_id)

    return ReceiptsOutput(request_id=given.request_id, receipts=await system.authority.read(unit))


async def _answer(system: System, found: Request, signed: list[dict[str, Any]] | None = None) -> Answer:
    if signed is None:
        signed = []
        if found.status is Status.COMPLETED:
            bodies = await system.authority.read(lambda tx: receipts_of(tx, found.org, found.id))
            signed = [json.loads(body) for body in bodies]
    counted = None if found.census is None else erasure.store_census(system.authority.name, found.census)
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
        verified_at=None if found.verified_at is None else to_text(found.verified_at),
        census=counted,
        purge=found.purge,
        found=found.found,
        removed=found.totals(found.removed),
        effects={name: counts.total() for name, counts in found.effects.items()},
        deferred=found.deferred,
        receipt=signed if len(found.subjects) > 1 and signed else (signed[0] if signed else None),
    )
