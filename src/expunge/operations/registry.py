"""What an operation is, and the one way to perform it: authorise, validate, run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import IntEnum
from types import UnionType
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from expunge.erasure import Progress
from expunge.erasure.saga import silent
from expunge.errors import AuthInsufficient, InputError
from expunge.model.ids import check_id, shown
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


class Input(BaseModel):
    """The input of an operation: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


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
    if actor.role < operation.role:
        needed = operation.role.name.lower()
        raise AuthInsufficient(f"{operation.name} needs the role {needed}, not {actor.role.name.lower()}")
    try:
        given = operation.input(**values)
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(shown(part) if isinstance(part, str) else str(part) for part in first["loc"])
        raise InputError(f"{operation.name}: {where or 'input'}: {first['msg'].lower()}") from None
    if as_of is not None and not _are_counters(as_of):
        raise InputError("as_of does not hold counters", hint="take it with as_of() when the work begins")
    if as_of is None:
        as_of = await system.as_of() if operation.writes_records else {}
    call = Call(actor, as_of, progress)
    try:
        return await operation.handler(system, call, given)
    except KeysRotated:
        system.read_keys_again()
        return await operation.handler(system, call, given)
