"""What an operation is, and the one way to perform it: authorise, validate, run."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from types import UnionType
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from expunge.authority.port import ONE_ORG
from expunge.erasure import Progress
from expunge.erasure.saga import silent
from expunge.errors import Abandoned, AuthInsufficient, InputError, Refused, RunnerSuperseded
from expunge.model.identity import PARTS, Identity
from expunge.model.ids import NOBODY, check_id, shown
from expunge.model.instant import from_datetime, parse_instant, to_datetime
from expunge.model.scope import Target
from expunge.operations.audited import By, note_refusal
from expunge.system import KeysRotated, System

Out = TypeVar("Out", bound=BaseModel)


class Role(IntEnum):
    """What a caller may do; each role may do what those below it may."""

    VIEWER = 1
    WRITER = 2
    ADMIN = 3
    ORG_ADMIN = 4
    OPERATOR = 5


def id_of(what: str) -> BeforeValidator:
    """The check of an id (law 12), as part of a type."""
    return BeforeValidator(lambda value: check_id(value, what))


OrgId = Annotated[str, id_of("org")]
UserId = Annotated[str, id_of("user_id")]
RequestId = Annotated[str, id_of("request_id")]
"""Ids under law 12: checked before anything else, so that every surface answers a bad one with INVALID_ID."""


def _storable(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a NUL character")
    if any("\ud800" <= sign <= "\udfff" for sign in value):
        raise ValueError("holds a lone surrogate")
    return value


Text = Annotated[str, AfterValidator(_storable)]
"""Text that every authority can store and compare."""
Number = Annotated[int, Field(ge=0, le=2**62)]
"""A whole number that every authority can store."""


class Input(BaseModel):
    """The input of an operation: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @property
    def targets(self) -> tuple[Target, ...]:
        """Whom it speaks of, as far as the audit has to say so of a refusal."""
        return ()


class NoInput(Input):
    """Nothing."""


class Output(BaseModel):
    """The answer of an operation."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who calls, with which role. Local callers are operators."""

    id: str
    role: Role = Role.OPERATOR


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its actor, and each org's erasure counter as it stood when the work began (``as_of``, law 4)."""

    actor: Actor
    as_of: dict[str, int]
    progress: Progress = field(default=silent)

    def by(self, operation: str) -> By:
        """Who calls, as the audit says it."""
        return By(self.actor.id, self.actor.role.name.lower(), operation)


Handler = Callable[[System, Call, Any], Awaitable[BaseModel]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: what every surface needs to know to offer it."""

    name: str
    role: Role
    summary: str
    input: type[Input]
    output: type[Output] | UnionType
    handler: Handler
    read_only: bool = False
    destructive: bool = False
    writes_records: bool = False
    """Whether it carries an ``as_of`` into the store (law 4)."""
    writes_any_org: bool = False
    """Whether its records may name other orgs than its input."""
    refusals_audited: bool = False
    """Whether every refusal is an entry of the audit; one for want of a role is in any case."""


def _aware(value: object) -> datetime:
    if isinstance(value, datetime):
        return to_datetime(from_datetime(value, "a time"))
    return to_datetime(parse_instant(value, "a time"))


Instants = Annotated[datetime, BeforeValidator(_aware)]
"""A time with a zone; one without is refused (law 13), with INVALID_INSTANT wherever it comes in."""


class Who(Input):
    """Whose a record is that a call speaks of: an org, and up to four parts; one that is left out means nobody."""

    org: OrgId
    namespace: Annotated[str, id_of("namespace")] | None = None
    agent: Annotated[str, id_of("agent")] | None = None
    user_id: UserId | None = None
    session_id: Annotated[str, id_of("session_id")] | None = None

    @property
    def identity(self) -> Identity:
        """The same as an identity."""
        return Identity(self.org, self.namespace, self.agent, self.user_id, self.session_id)


class Where(Input):
    """What a read is narrowed to: of each part that is given what belongs to it, or (null) to nobody."""

    namespace: Annotated[str, id_of("namespace")] | None = None
    agent: Annotated[str, id_of("agent")] | None = None
    user_id: UserId | None = None
    session_id: Annotated[str, id_of("session_id")] | None = None

    @property
    def parts(self) -> dict[str, str]:
        """The parts that were given, as they are stored."""
        return {part: getattr(self, part) or NOBODY for part in PARTS if part in self.model_fields_set}


def _are_counters(as_of: object) -> bool:
    return isinstance(as_of, dict) and all(type(seq) is int and seq >= 0 for seq in as_of.values())


async def perform(
    system: System,
    operation: Operation,
    values: dict[str, Any],
    *,
    actor: Actor,
    as_of: dict[str, int] | None = None,
    progress: Progress = silent,
) -> BaseModel:
    """Perform an operation.

    ``as_of`` is given by a caller whose work began before this call (a run, a queue); otherwise it begins now.

    Raises:
        AuthInsufficient: the actor's role is below the operation's.
        InputError: the input does not fit the operation.
        ExpungeError: as the operation says.

    """
    try:
        return await _perform(system, operation, values, actor=actor, as_of=as_of, progress=progress)
    except (RunnerSuperseded, Abandoned):
        raise  # it goes on by another runner; or it was given up, as the audit has said in the same commit
    except Refused as fault:
        if operation.refusals_audited or isinstance(fault, AuthInsufficient):
            await _note(system, operation, values, Call(actor, {}).by(operation.name), fault)
        raise


async def _note(system: System, operation: Operation, values: dict[str, Any], by: By, fault: Refused) -> None:
    """Enter a refusal into the audit. What was refused for want of a role has not been validated yet."""
    org, request_id = system.settings.org, None
    targets: tuple[Target, ...] = ()
    with contextlib.suppress(InputError, ValidationError):
        if "org" in operation.input.model_fields:
            org = check_id(values.get("org"), "org")
        given = operation.input(**values)
        request_id, targets = getattr(given, "request_id", None), given.targets
    await note_refusal(system, by, fault, org=org, targets=targets, request_id=request_id)


async def _perform(
    system: System,
    operation: Operation,
    values: dict[str, Any],
    *,
    actor: Actor,
    as_of: dict[str, int] | None,
    progress: Progress,
) -> BaseModel:
    if actor.role < operation.role:
        needed = operation.role.name.lower()
        raise AuthInsufficient(f"{operation.name} needs the role {needed}, not {actor.role.name.lower()}")
    try:
        given = operation.input(**values)
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(shown(part) if isinstance(part, str) else str(part) for part in first["loc"])
        said = first["msg"][:1].lower() + first["msg"][1:]
        raise InputError(
            f"{operation.name}: {where or 'input'}: {said}",
            hint=f"what {operation.name} takes stands in docs/reference/operations.md",
        ) from None
    if as_of is not None and not _are_counters(as_of):
        raise InputError("as_of does not hold counters", hint="take it with as_of() when the work begins")
    if as_of is None:
        own = None if operation.writes_any_org else getattr(given, "org", None)
        as_of = await system.as_of(own) if operation.writes_records else {}
    call = Call(actor, as_of, progress)
    about = ONE_ORG.set(None if operation.writes_any_org else getattr(given, "org", None))
    try:
        return await operation.handler(system, call, given)
    except KeysRotated:
        system.read_keys_again()
        return await operation.handler(system, call, given)
    finally:
        ONE_ORG.reset(about)
