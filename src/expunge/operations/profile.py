"""``subject.profile``: what is held on a user."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from expunge.model.instant import to_text
from expunge.model.scope import Scope, Target
from expunge.operations.audited import note_read
from expunge.operations.registry import Call, Input, OrgId, Output, UserId, id_of
from expunge.subject import read_profile
from expunge.system import System


class ProfileInput(Input):
    """Whose profile, in one namespace or in all of them."""

    org: OrgId
    user_id: UserId
    namespace: Annotated[str, id_of("namespace")] | None = None

    @property
    def targets(self) -> tuple[Target, ...]:
        """Whom it speaks of, for the audit."""
        return (Target(self.org, namespace=self.namespace, user_id=self.user_id),)


class Seen(Output):
    """The first and the last time of a collection's records."""

    first: str
    last: str


class SampleRecord(Output):
    """A record, as an example of what is held; its text is cut."""

    collection: str
    id: str
    at: str
    text: str


class ProfileOutput(Output):
    """What is held on a user; ``found`` is false when nothing is."""

    org: str
    user_id: str
    found: bool
    counts: dict[str, int] = Field(description="Records by collection.")
    seen: dict[str, Seen] = Field(description="When, by collection.")
    made_from: dict[str, int] = Field(description="Records derived from theirs, one step away, by collection.")
    rests_on: dict[str, int] = Field(description="Records that theirs were derived from, one step away, by collection.")
    first_seen: str | None
    last_seen: str | None
    namespaces: list[str]
    session_count: int
    recent_sessions: list[str]
    samples: list[SampleRecord] = Field(description="The newest few of each collection.")

    @property
    def episode_count(self) -> int:
        """How many episodes."""
        return self.counts["episodes"]

    @property
    def fact_count(self) -> int:
        """How many facts, with those that do not hold any more."""
        return self.counts["facts"]


async def profile(system: System, call: Call, given: ProfileInput) -> ProfileOutput:
    """Say what is held on a user, in one namespace or across all of an org."""
    namespaces = () if given.namespace is None else (given.namespace,)
    scope = Scope(org=given.org, user_ids=(given.user_id,), namespaces=namespaces)
    found = await system.authority.read(lambda tx: read_profile(tx, scope))
    await note_read(system, call.by("subject.profile"), scope, found.counts)
    return ProfileOutput(
        org=given.org,
        user_id=given.user_id,
        found=any(found.counts.values()),
        counts=found.counts,
        seen={name: Seen(first=to_text(first), last=to_text(last)) for name, (first, last) in found.seen.items()},
        made_from=found.made_from,
        rests_on=found.rests_on,
        first_seen=None if found.first_seen is None else to_text(found.first_seen),
        last_seen=None if found.last_seen is None else to_text(found.last_seen),
        namespaces=found.namespaces,
        session_count=found.session_count,
        recent_sessions=found.sessions,
        samples=[
            SampleRecord(collection=item.collection, id=item.id, at=to_text(item.at), text=item.text)
            for item in found.samples
        ],
    )
