"""The order: what somebody asks an erasure to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from expunge.erasure.plan import check_form
from expunge.errors import InvalidScope
from expunge.model.ids import check_id
from expunge.model.instant import Instant
from expunge.model.scope import Scope


class Urgency(StrEnum):
    """Which of the erasures that wait is gone on with first."""

    NORMAL = "normal"
    URGENT = "urgent"


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for. Without ``purge`` the records are hidden, and can be restored for 14 days.

    ``plan_hash`` binds the erasure to what a preview has shown; ``exact`` binds it to the very records. ``external``
    is false where external systems are to be left out, and only a list of namespaces may ask for that.
    """

    scope: Scope
    scope_type: str
    purge: bool
    requester: str | None = None
    urgency: Urgency = Urgency.NORMAL
    external: bool = True
    plan_hash: str | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        """Raises InvalidScope or InputError for what does not go together."""
        if self.requester is not None:
            check_id(self.requester, "requester")
        if not self.external and self.scope_type != "namespace_list":
            raise InvalidScope("external systems can be left out for a namespace_list only", hint="leave external out")
        if self.plan_hash is not None:
            check_form(self.plan_hash)

    def check_dates(self, now: Instant) -> None:
        """Refuse a date in the future: nobody can say what will be dated before it.

        Raises:
            InvalidScope: ``before`` is later than now.

        """
        if self.scope.before is not None and self.scope.before > now:
            raise InvalidScope("before lies in the future", hint="name a moment that has passed")
