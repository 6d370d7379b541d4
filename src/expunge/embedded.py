"""The embedded system: ``async with Expunge("./memory.db") as expunge: …``."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from expunge.authority.port import Authority
from expunge.erasure import Progress
from expunge.erasure.saga import silent
from expunge.errors import InputError
from expunge.model.ids import shown
from expunge.model.instant import Clock
from expunge.operations import OPERATIONS, Actor, perform
from expunge.operations.erasure import Answer, PreviewOutput
from expunge.operations.records import ProfileOutput, PutOutput
from expunge.settings import Settings
from expunge.system import System, open_system


class Expunge:
    """An opened system. Calls act as the operator of ``settings.actor``."""

    def __init__(
        self,
        db: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        create: bool = True,
        authority: Authority | None = None,
    ) -> None:
        self.settings = settings if settings is not None else Settings.load(db=db)
        if settings is not None and db is not None:
            self.settings = settings.model_copy(update={"db": db})
        self._clock, self._create, self._authority = clock, create, authority
        self.system: System

    async def __aenter__(self) -> Self:
        """Open the database and its keys.

        Raises:
            DatabaseFault, KeyFault: they cannot be opened (see their kinds).

        """
        self.system = await open_system(
            self.settings, clock=self._clock, create=self._create, authority=self._authority
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what runs and close the database."""
        await self.system.close()

    async def call(
        self, name: str, *, as_of: dict[str, int] | None = None, progress: Progress = silent, **values: Any
    ) -> Any:
        """Perform an operation of the registry by its name; ``org`` defaults to the setting.

        Raises:
            InputError: there is no such operation, or the input does not fit it.
            ExpungeError: as the operation says.

        """
        return await self._perform(name, values, as_of=as_of, progress=progress)

    async def _perform(
        self,
        name: str,
        values: dict[str, Any],
        *,
        as_of: dict[str, int] | None = None,
        progress: Progress = silent,
    ) -> Any:
        operation = OPERATIONS.get(name)
        if operation is None:
            raise InputError(f"{shown(name)} is not an operation", hint="see docs/reference/operations.md")
        if "org" in operation.input.model_fields and values.get("org") is None:
            values = values | {"org": self.settings.org}
        actor = Actor(self.settings.actor)
        return await perform(self.system, operation, values, actor=actor, as_of=as_of, progress=progress)

    async def as_of(self) -> dict[str, int]:
        """The erasure counters now: take it when a unit of work begins, give it to the write that ends it (law 4)."""
        return await self.system.as_of()

    async def put(
        self,
        records: Iterable[Any],
        *,
        org: str | None = None,
        skip_bad: bool = False,
        as_of: dict[str, int] | None = None,
    ) -> PutOutput:
        """Write records (JSON objects or lines of JSON), all or nothing unless ``skip_bad``.

        Without ``as_of`` the work begins now, before the first record is taken from ``records`` (law 4).
        """
        if as_of is None:
            as_of = await self.as_of()
        values = {"records": list(records), "skip_bad": skip_bad, "org": org}
        answer: PutOutput = await self._perform("records.put", values, as_of=as_of)
        return answer

    async def profile(self, user_id: str, *, org: str | None = None) -> ProfileOutput:
        """What is held on a user."""
        answer: ProfileOutput = await self._perform("subject.profile", {"user_id": user_id, "org": org})
        return answer

    async def preview(self, *user_ids: str, org: str | None = None) -> PreviewOutput:
        """What erasing these users would do; nothing is changed."""
        values = {"user_ids": list(user_ids), "purge": True, "org": org}
        answer: PreviewOutput = await self._perform("erasure.preview", values)
        return answer

    async def erase(self, *user_ids: str, purge: bool, org: str | None = None, progress: Progress = silent) -> Answer:
        """Erase 1 to 500 users everywhere in the org; the answer carries the census and the receipt."""
        values = {"user_ids": list(user_ids), "purge": purge, "org": org}
        answer: Answer = await self._perform("erasure.request", values, progress=progress)
        return answer

    async def resume(self, request_id: str, *, org: str | None = None) -> Answer:
        """Go on with an erasure that stopped."""
        answer: Answer = await self._perform("erasure.resume", {"request_id": request_id, "org": org})
        return answer
