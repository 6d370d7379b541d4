"""Scope: the one selector of records (law 1), and the targets that it falls into."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from expunge.errors import InvalidScope
from expunge.model.identity import PARTS
from expunge.model.ids import check_id, shown
from expunge.model.instant import Instant

MAX_TARGETS = 500
"""The most users (or namespaces) that one request may name (design 4)."""


@dataclass(frozen=True, slots=True)
class Target:
    """One conjunction of identity parts within an org: what one fence refuses and one receipt speaks of.

    A part that is ``None`` is not narrowed. ``before`` narrows to what is dated strictly earlier.
    """

    org: str
    namespace: str | None = None
    agent: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    before: Instant | None = None

    @property
    def type(self) -> str:
        """The word for this scope in receipts: the narrowest part that it names, or ``org``."""
        return type_of(self.named())

    def named(self) -> dict[str, str]:
        """The identity parts that the target narrows, in stored order."""
        return {part: value for part in PARTS if (value := getattr(self, part)) is not None}


def type_of(parts: Container[str]) -> str:
    """The word for a scope that names these parts: that of the narrowest, or ``org``."""
    words = {"user_id": "user_id", "session_id": "session", "namespace": "namespace", "agent": "agent"}
    return next((word for part, word in words.items() if part in parts), "org")


@dataclass(frozen=True, slots=True)
class Scope:
    """An org and any conjunction of users, namespaces, agent, session and ``before``; with none of them, the org.

    The same object drives profile, erase, census, fence and hold (law 1).
    """

    org: str
    user_ids: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    agent: str | None = None
    session_id: str | None = None
    before: Instant | None = None
    targets: tuple[Target, ...] = field(init=False, repr=False, compare=False)
    """The conjunctions that the scope is the union of, in the order in which they were named."""

    def __post_init__(self) -> None:
        """Raises InvalidId for a part that is no id, InvalidScope for repeated or too many subjects."""
        self._check()
        targets = (
            Target(self.org, namespace, self.agent, user, self.session_id, self.before)
            for user in (self.user_ids or (None,))
            for namespace in (self.namespaces or (None,))
        )
        object.__setattr__(self, "targets", tuple(targets))

    def _check(self) -> None:
        check_id(self.org, "org")
        for what, values in (("user_id", self.user_ids), ("namespace", self.namespaces)):
            for value in values:
                check_id(value, what)
            if len(values) > MAX_TARGETS:
                raise InvalidScope(f"{len(values)} values of {what} are more than {MAX_TARGETS}")
            if len(set(values)) < len(values):
                twice = next(value for value in values if values.count(value) > 1)
                raise InvalidScope(f"{what} {shown(twice)} is named twice", hint="name each once")
        if len(self.user_ids) > 1 and len(self.namespaces) > 1:
            raise InvalidScope("a scope may list users or namespaces, not both", hint="ask once for each")
        for what in ("agent", "session_id"):
            if getattr(self, what) is not None:
                check_id(getattr(self, what), what)

    @classmethod
    def of_users(cls, org: str, user_ids: Sequence[str]) -> Scope:
        """The scope of 1 to 500 users across every namespace of an org.

        Raises:
            InvalidScope: no user at all, more than 500, or one named twice.

        """
        if not user_ids:
            raise InvalidScope("no user was named")
        return cls(org=org, user_ids=tuple(user_ids))

    @property
    def type(self) -> str:
        """The word for this scope in requests and the ledger; a list has a word of its own."""
        if len(self.user_ids) > 1:
            return "user_list"
        return "namespace_list" if len(self.namespaces) > 1 else self.targets[0].type

    def as_json(self) -> dict[str, Any]:
        """The clear form that stands in the request row until the end of the erasure."""
        return {
            "org": self.org,
            "user_ids": list(self.user_ids),
            "namespaces": list(self.namespaces),
            "agent": self.agent,
            "session_id": self.session_id,
            "before": self.before,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Scope:
        """The scope that ``as_json`` wrote."""
        return cls(**(data | {"user_ids": tuple(data["user_ids"]), "namespaces": tuple(data["namespaces"])}))
