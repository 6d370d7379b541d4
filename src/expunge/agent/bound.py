"""What every call of an agent is bound to: the opened system, whose memory it is, and when its work began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self, TypedDict, TypeVar

from expunge.embedded import Expunge
from expunge.errors import InputError
from expunge.model.identity import PARTS, Identity
from expunge.model.ids import shown

T = TypeVar("T")


def listed(values: Any) -> Any:
    """The items of any collection or iterator as the list that an operation takes; what is none is for it to refuse."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        return values
    return list(values)


class Page(list[T]):
    """Some of what there is; ``more`` says whether a limit left anything out (law 11)."""

    more: bool = False

    @classmethod
    def of(cls, items: Iterable[T], *, more: bool) -> Page[T]:
        """A page of some items."""
        page = cls(items)
        page.more = more
        return page


class Everyone(Enum):
    """The kind of ``ANY``."""

    ANY = "any"


ANY = Everyone.ANY
"""In a read, for an identity part: whatever it is."""


class Who(TypedDict, total=False):
    """Whose records a call is about, instead of those that the agent is bound to; ``None`` is nobody."""

    namespace: str | None
    agent: str | None
    user_id: str | None
    session_id: str | None


class Where(TypedDict, total=False):
    """What a read is narrowed to, instead of what the agent is bound to; ``None`` is nobody, ``ANY`` whoever."""

    namespace: str | Everyone | None
    agent: str | Everyone | None
    user_id: str | Everyone | None
    session_id: str | Everyone | None


@dataclass(frozen=True, slots=True)
class Bound:
    """An opened system as one agent sees it.

    ``as_of`` are the erasure counters as they stood when a longer unit of work (a run) began; ``None`` when each call
    is a unit of its own (law 4).
    """

    expunge: Expunge
    identity: Identity
    as_of: dict[str, int] | None = None

    async def read(self, operation: str, **values: Any) -> Any:
        """Perform an operation that reads."""
        return await self.expunge.call(operation, org=self.identity.org, **values)

    async def write(self, operation: str, who: Who, **values: Any) -> Any:
        """Perform an operation that writes, as of the beginning of the work."""
        whose: dict[str, Any] = dict(self.whose(who))
        return await self.expunge.call(operation, org=self.identity.org, as_of=self.as_of, **whose, **values)

    def whose(self, who: Who) -> dict[str, str | None]:
        """The identity parts that a call speaks of."""
        self._check(who)
        return {part: getattr(self.identity, part) for part in PARTS} | dict(who)

    def where(self, where: Where) -> dict[str, str | None]:
        """What a read is narrowed to: what the agent is bound to, without the session, or what the call says."""
        self._check(where)
        parts: dict[str, Any] = {part: getattr(self.identity, part) for part in PARTS if part != "session_id"}
        parts |= where
        return {part: value for part, value in parts.items() if value is not ANY}

    def _check(self, given: Who | Where) -> None:
        unknown = given.keys() - set(PARTS)
        if unknown:
            names = ", ".join(PARTS)
            raise InputError(f"{shown(min(unknown))} is not taken here", hint=f"whose it is goes by {names}")

    def at(self, **changes: Any) -> Self:
        """The same with some of it changed."""
        return replace(self, **changes)
