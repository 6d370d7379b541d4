"""Asking the audit."""

from __future__ import annotations

from typing import Any

from expunge import Expunge, Settings
from expunge.authority.port import Statement
from expunge.operations import OPERATIONS, Actor, Role, perform
from expunge.operations.audit import Listed, VerifyOutput
from tests.eye import bytes_of

ORG = "default"


async def verified(expunge: Expunge, **given: Any) -> VerifyOutput:
    answer: VerifyOutput = await expunge.call("audit.verify", **given)
    return answer


async def listed(expunge: Expunge, **given: Any) -> list[Listed]:
    entries: list[Listed] = (await expunge.call("audit.list", **given)).entries
    return entries


def happened(entries: list[Listed]) -> list[tuple[str, str]]:
    """Operations with their outcomes, oldest first."""
    return [(entry.operation, entry.outcome) for entry in reversed(entries)]


async def ask(expunge: Expunge, text: str, **values: Any) -> list[tuple[Any, ...]]:
    return await expunge.system.authority.read(lambda tx: tx.rows(Statement("test.ask", text), **values))


async def names(expunge: Expunge, org: str = ORG) -> set[str]:
    """What is filed in clear beside the chain of an org."""
    return {name for (name,) in await ask(expunge, "SELECT name FROM audit_clear WHERE org = :org", org=org)}


async def as_actor(expunge: Expunge, actor: str, name: str, role: Role = Role.OPERATOR, **values: Any) -> Any:
    return await perform(expunge.system, OPERATIONS[name], {"org": ORG} | values, actor=Actor(actor, role))


async def erase_as(expunge: Expunge, actor: str, user: str, **more: Any) -> Any:
    words: dict[str, Any] = {"scope_type": "user_id", "scope_value": user, "purge": True} | more
    return await as_actor(expunge, actor, "erasure.request", **words)


def holding(settings: Settings, *words: str) -> list[str]:
    """Which words stand in any byte that there is."""
    data = b"".join(bytes_of(settings).values())
    return [word for word in words if word.encode() in data]
