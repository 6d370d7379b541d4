"""How a caller says a scope: its type and value, what narrows it, and the order that comes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from expunge.erasure import Order, Urgency
from expunge.errors import InputError, InvalidScope
from expunge.model.ids import check_id
from expunge.model.instant import Instant, from_datetime, parse_instant
from expunge.model.scope import Scope, Target
from expunge.operations.registry import Input, OrgId

ScopeType = Literal["user_id", "user_list", "namespace", "namespace_list", "org", "agent", "session"]
_PART_OF = {"user_id": "user_id", "user_list": "user_id", "namespace": "namespace", "namespace_list": "namespace",
            "agent": "agent", "session": "session_id"}  # fmt: skip
_LISTS = {"user_list": "user_ids", "namespace_list": "namespaces"}


class RequestInput(Input):
    """What to erase: one scope, which further parts narrow. Without ``purge`` the records are hidden for 14 days."""

    org: OrgId
    scope_type: ScopeType
    scope_value: Any = Field(
        None,
        description="The id; for a list a JSON array of 1 to 500 ids, for namespace_list also "
        '`{"namespaces": […], "purge": bool}`; nothing for org.',
    )
    user_id: str | None = Field(None, description="Narrows to a user.")
    namespace: str | None = Field(None, description="Narrows to a namespace.")
    agent: str | None = Field(None, description="Narrows to an agent.")
    session_id: str | None = Field(None, description="Narrows to a session.")
    before: str | datetime | None = Field(None, description="Narrows to what is dated before, strictly; with a zone.")
    requester: str | None = Field(None, description="Who asked for it.")
    urgency: Literal["normal", "urgent"] = Field("normal", description="Urgent ones are gone on with first.")
    purge: bool | None = Field(None, description="Remove the records for good; otherwise they are hidden.")
    external: bool = Field(default=True, description="False leaves external systems out; for namespace_list only.")
    dry_run: bool = Field(default=False, description="Only say what would happen.")
    plan_hash: str | None = Field(None, description="What a dry run answered: refuse when the plan has changed.")
    exact: bool = Field(default=False, description="Bind the very records, not only how many.")

    def order(self) -> Order:
        """The order that this comes to.

        Raises:
            InvalidScope: parts that do not go together.
            InvalidId, InvalidInstant, InputError: a value that is none.

        """
        values, inner_purge = self._values()
        if inner_purge is not None and self.purge not in (None, inner_purge):
            raise InvalidScope("scope_value and the request say different things of purge", hint="say it once")
        if self.exact and self.plan_hash is None and not self.dry_run:
            raise InputError("exact binds nothing without a plan hash", hint="take one with dry_run and exact")
        scope = Scope(self.org, before=_instant(self.before), **self._named(values))
        return Order(
            scope=scope,
            scope_type=self.scope_type,
            purge=bool(self.purge or inner_purge),
            requester=self.requester,
            urgency=Urgency(self.urgency),
            external=self.external,
            plan_hash=self.plan_hash,
            exact=self.exact,
        )

    @property
    def targets(self) -> tuple[Target, ...]:
        """Whom it speaks of, for the audit."""
        return self.order().scope.targets

    def _values(self) -> tuple[tuple[str, ...], bool | None]:
        """The ids that ``scope_value`` names, and what it says of purge."""
        if self.scope_type == "org":
            if self.scope_value not in (None, self.org):
                raise InvalidScope("scope_value names another org than org does", hint="leave scope_value out")
            return (), None
        if self.scope_type not in _LISTS:
            if self.scope_value is None or isinstance(self.scope_value, list | dict):
                raise InvalidScope(
                    f"scope_value of {self.scope_type} must be an id", hint="a list has its own scope_type"
                )
            return (self.scope_value,), None
        return _list_of(self.scope_type, self.scope_value)

    def _named(self, values: tuple[str, ...]) -> dict[str, Any]:
        narrowing = {
            part: value
            for part in ("user_id", "namespace", "agent", "session_id")
            if (value := getattr(self, part)) is not None
        }
        if self.scope_type == "org" and narrowing:
            raise InvalidScope(f"an org scope takes in everything, and {', '.join(narrowing)} narrows it",
                               hint="make that the scope_type")  # fmt: skip
        part = _PART_OF.get(self.scope_type, "")
        if part in narrowing:
            raise InvalidScope(f"scope_value names the {part} already", hint=f"leave {part} out")
        named: dict[str, tuple[str, ...]] = {name: (value,) for name, value in narrowing.items()} | {part: values}
        return {
            "user_ids": named.get("user_id", ()),
            "namespaces": named.get("namespace", ()),
            "agent": next(iter(named.get("agent", ())), None),
            "session_id": next(iter(named.get("session_id", ())), None),
        }


def _list_of(scope_type: str, value: object) -> tuple[tuple[str, ...], bool | None]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise InvalidScope(f"scope_value of {scope_type} is not JSON", hint="give a JSON array of ids") from None
    purge = None
    if scope_type == "namespace_list" and isinstance(value, dict):
        if not {"namespaces"} <= value.keys() <= {"namespaces", "purge"}:
            raise InvalidScope("scope_value of namespace_list must hold namespaces, and may hold purge")
        purge, value = value.get("purge"), value["namespaces"]
        if purge is not None and not isinstance(purge, bool):
            raise InvalidScope("purge in scope_value must be true or false")
    if not isinstance(value, list):
        raise InvalidScope(f"scope_value of {scope_type} must be a list of ids")
    if not value:
        raise InvalidScope(f"scope_value of {scope_type} names nobody")
    return tuple(value), purge


def _instant(value: str | datetime | None) -> Instant | None:
    if value is None:
        return None
    return from_datetime(value, "before") if isinstance(value, datetime) else parse_instant(value, "before")


def scope_words(
    user_ids: Sequence[str] = (),
    namespaces: Sequence[str] = (),
    *,
    session_id: str | None = None,
    agent: str | None = None,
    whole_org: bool = False,
) -> dict[str, Any]:
    """A conjunction in the words of ``erasure.request``.

    Raises:
        InvalidId: a user or a namespace that is none.
        InvalidScope: nothing is named and it is not the whole org, or the whole org and something else; two lists.

    """
    for what, values in (("user_id", user_ids), ("namespace", namespaces)):
        for value in values:
            check_id(value, what)
    named = [*(["user"] * bool(user_ids)), *(["namespace"] * bool(namespaces))]
    named += [word for word, value in (("session", session_id), ("agent", agent)) if value is not None]
    if whole_org == bool(named):
        if whole_org:
            raise InvalidScope(f"the whole org is asked for, and a {named[0]} as well", hint="ask for one of them")
        raise InvalidScope(
            "nothing was named, so nothing is erased",
            hint="name users, namespaces, a session or an agent; or say that the whole org is meant",
        )
    if len(user_ids) > 1 and len(namespaces) > 1:
        raise InvalidScope("a scope may list users or namespaces, not both", hint="ask once for each")
    words: dict[str, Any] = {"agent": agent, "session_id": session_id}
    words["user_id"] = user_ids[0] if len(user_ids) == 1 else None
    words["namespace"] = namespaces[0] if len(namespaces) == 1 else None
    if len(user_ids) > 1:
        words |= {"scope_type": "user_list", "scope_value": list(user_ids)}
    elif len(namespaces) > 1:
        words |= {"scope_type": "namespace_list", "scope_value": list(namespaces)}
    else:
        kinds = {"user_id": "user_id", "session": "session_id", "namespace": "namespace", "agent": "agent"}
        kind = next((kind for kind, part in kinds.items() if words[part] is not None), "org")
        words |= {"scope_type": kind, "scope_value": words.get(kinds.get(kind, ""))}
        words |= {kinds[kind]: None} if kind in kinds else {}
    return words
