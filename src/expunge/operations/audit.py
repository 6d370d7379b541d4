"""``audit.list``, ``audit.verify`` and ``audit.head``."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from expunge import audit
from expunge.authority.port import Tx
from expunge.errors import InputError
from expunge.model.instant import from_datetime, to_text
from expunge.operations.registry import Call, Input, Instants, Number, OrgId, Output, RequestId, UserId, id_of
from expunge.system import System

FORMAT = "expunge-audit-head/1"
_MAC = re.compile("[0-9a-f]{64}")


class ListInput(Input):
    """The entries of an org, newest first, or some of them; ``after`` is ``next`` of the page before."""

    org: OrgId
    user_id: UserId | None = Field(None, description="Whom they speak of; found by pseudonym, under every key.")
    actor: Annotated[str, id_of("actor")] | None = Field(None, description="Who did it; found in the same way.")
    request_id: RequestId | None = None
    since: Instants | None = None
    until: Instants | None = Field(None, description="The first time that is too late.")
    after: Number | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class Listed(Output):
    """One entry; ``names`` says what its pseudonyms stand for, as far as that has not been erased."""

    n: int
    at: str
    key_id: str
    actor: str | None
    role: str
    operation: str
    outcome: str
    request_id: str | None
    subjects: list[dict[str, str]]
    requester: str | None
    detail: dict[str, Any]
    names: dict[str, str]


class ListOutput(Output):
    """A page of entries; ``next`` when there are more."""

    entries: list[Listed]
    next: int | None


async def listing(system: System, _call: Call, given: ListInput) -> ListOutput:
    """List what was done in an org.

    Raises:
        DatabaseFault: somebody changed an entry so that it cannot be read.

    """
    narrowed = audit.Filter(
        user_id=given.user_id,
        actor=given.actor,
        request_id=given.request_id,
        since=None if given.since is None else from_datetime(given.since, "since"),
        until=None if given.until is None else from_datetime(given.until, "until"),
    )

    def unit(tx: Tx) -> tuple[list[audit.Listed], bool]:
        system.check_keys(tx)
        return audit.page(tx, system.keys, given.org, narrowed, limit=given.limit, below=given.after)

    found, more = await system.authority.read(unit)
    entries = [_listed(item) for item in found]
    return ListOutput(entries=entries, next=entries[-1].n if more else None)


def _listed(item: audit.Listed) -> Listed:
    try:
        return _as_written(item)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        raise audit.unreadable(item.n) from None


def _as_written(item: audit.Listed) -> Listed:
    body = item.body
    return Listed(
        n=item.n,
        at=to_text(body["at"]),
        key_id=body.get("subjects_key", item.key_id),
        actor=body["actor"],
        role=body["role"],
        operation=body["operation"],
        outcome=body["outcome"],
        request_id=body["request_id"],
        subjects=body["subjects"],
        requester=body.get("requester"),
        detail=body["detail"],
        names=item.names,
    )


class HeadInput(Input):
    """Whose chain."""

    org: OrgId


class HeadOutput(Output):
    """The head of a chain: how many entries it has, and the MAC of the newest, which no other chain has."""

    format: str = FORMAT
    org: str
    n: int
    mac: str


async def head(system: System, _call: Call, given: HeadInput) -> HeadOutput:
    """Give the head of an org's chain, to be kept elsewhere."""
    found = await system.authority.read(lambda tx: audit.head(tx, given.org))
    return HeadOutput(org=found.org, n=found.n, mac=found.mac)


class Remembered(Input):
    """A head as ``audit.head`` gave it."""

    format: str = FORMAT
    org: OrgId
    n: Number
    mac: str


class VerifyInput(Input):
    """Whose chain, and a head of it that was kept elsewhere."""

    org: OrgId
    head: Remembered | None = None


class Fault(Output):
    """The first thing that is wrong: its kind, and the number of the entry."""

    kind: str
    n: int
    why: str


class VerifyOutput(Output):
    """Whether the chain is whole; how many entries are, from the first on, and the head of those."""

    ok: bool
    entries: int
    head: HeadOutput
    fault: Fault | None


async def verify(system: System, _call: Call, given: VerifyInput) -> VerifyOutput:
    """Go through the whole chain of an org.

    Raises:
        InputError: the remembered head is none of this org.

    """
    remembered = None if given.head is None else _remembered(given.head, given.org)

    def unit(tx: Tx) -> audit.Verdict:
        system.check_keys(tx)
        return audit.verify(tx, system.keys, given.org, remembered)

    found = await system.authority.read(unit)
    return VerifyOutput(
        ok=found.fault is None,
        entries=found.entries,
        head=HeadOutput(org=found.head.org, n=found.head.n, mac=found.head.mac),
        fault=None if found.fault is None else Fault(**asdict(found.fault)),
    )


def _remembered(given: Remembered, org: str) -> audit.Head:
    if given.format != FORMAT or not _MAC.fullmatch(given.mac):
        raise InputError("the head is not one that audit head wrote", hint="write one with: expunge audit head -o FILE")
    if given.org != org:
        raise InputError("the head is of another org", hint="name its org with --org")
    return audit.Head(given.org, given.n, given.mac)
