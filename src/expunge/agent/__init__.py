"""The agent: an identity, and the memory that belongs to it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from expunge.agent.bound import ANY, Bound
from expunge.agent.chat import Run
from expunge.agent.derived import Answer
from expunge.agent.erasure import Erasure
from expunge.agent.memory import Forgotten, Memory
from expunge.embedded import Expunge
from expunge.errors import ExpungeError, InputError
from expunge.model.identity import PARTS, Identity
from expunge.model.instant import Clock
from expunge.operations.jobs import RunJobsOutput
from expunge.search import Embedder
from expunge.settings import Settings

__all__ = ["ANY", "Agent", "Answer", "Forgotten", "Memory", "Run"]

_DRAIN_S = 30.0


class Agent:
    """An agent on an identity: ``async with Agent("sqlite:///memory.db", org="acme", user_id="u-42") as agent: …``.

    ``memory`` is all that it remembers, ``erasure`` what an operator asks for. Given an opened ``Expunge`` it shares
    that, and leaves it open. Parts that are left out are nobody's; the org is that of the settings.
    """

    def __init__(
        self,
        db: str | Expunge | None = None,
        *,
        org: str | None = None,
        namespace: str | None = None,
        agent: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        """Raises InvalidId for a part that is no id, SettingsError for settings that do not fit."""
        if isinstance(db, Expunge):
            if settings is not None or clock is not None or embedder is not None:
                raise InputError("a shared Expunge has its own settings, clock and embedder", hint="give it those")
            self.expunge, self._owns = db, False
        else:
            self.expunge = Expunge(db, settings=settings, clock=clock, embedder=embedder)
            self._owns = True
        parts = {"namespace": namespace, "agent": agent, "user_id": user_id, "session_id": session_id}
        self.identity = Identity(self.expunge.settings.org if org is None else org, **parts)
        self._extract: list[str] = []
        self._worker: asyncio.Task[None] | None = None
        self._ran = {"done": 0, "failed": 0}
        self._is_open = False
        self._memory: Memory | None = None

    @property
    def memory(self) -> Memory:
        """All that the agent remembers.

        Raises:
            InputError: the agent was not opened.

        """
        if self._memory is None:
            raise InputError("the agent is not open", hint="use it inside of: async with Agent(…) as agent")
        return self._memory

    @property
    def erasure(self) -> Erasure:
        """What an operator asks for.

        Raises:
            InputError: the agent was not opened.

        """
        return Erasure(self.memory.bound)

    async def __aenter__(self) -> Self:
        """Open the database, unless it is shared.

        Raises:
            DatabaseFault, KeyFault: it cannot be opened.

        """
        if self._owns:
            await self.expunge.__aenter__()
        elif not self.expunge.is_open:
            raise InputError(
                "the shared Expunge is not open", hint="use it inside of: async with Expunge(…) as expunge"
            )
        self._bind()
        return self

    def _bind(self) -> None:
        self._memory, self._is_open = Memory(Bound(self.expunge, self.identity), self._extract, self._wake), True

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the queue come to its end (30 s at most; what is left is done by whoever opens next), and close."""
        self._is_open = False
        try:
            if self._worker is not None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._worker, _DRAIN_S)
        finally:
            self._worker = None
            if self._owns:
                await self.expunge.__aexit__(kind, value, trace)

    def at(self, **who: str | None) -> Agent:
        """The same agent on another identity, such as ``agent.at(user_id="u-7", session_id="s1")``; it shares all else.

        Raises:
            InputError: a part that there is not. InvalidId: a part that is no id.

        """
        if unknown := who.keys() - set(PARTS):
            raise InputError(f"{min(unknown)} is no identity part", hint=f"there are {', '.join(PARTS)}")
        other = Agent(self.expunge, org=self.identity.org)
        changes: dict[str, Any] = dict(who)
        other.identity = replace(self.identity, **changes)
        other._extract = self._extract
        if self._is_open:
            other._is_open = True
            other._memory = Memory(Bound(self.expunge, other.identity), self._extract, self._wake)
        return other

    async def as_of(self) -> dict[str, int]:
        """The erasure counter of the org now: what a longer unit of work begins with (law 4)."""
        return await self.expunge.as_of(self.identity.org)

    def began(self, as_of: dict[str, int]) -> Memory:
        """The memory as a unit of work sees it that began with these counters."""
        return self.memory.bound_to(Bound(self.expunge, self.identity, as_of))

    async def drain(self) -> RunJobsOutput:
        """Run the jobs that wait, to the last one, and say how many were done and failed since this was asked before.

        What has failed waits for its next attempt: a few seconds, then longer, three in all.
        """
        if self._worker is not None:
            await self._worker
        while await self._run_some():
            pass
        ran, self._ran = self._ran, {"done": 0, "failed": 0}
        return RunJobsOutput(**ran)

    async def _run_some(self) -> bool:
        answer = await self.expunge.call("jobs.run", org=self.identity.org, limit=20)
        self._ran["done"] += answer.done
        self._ran["failed"] += answer.failed
        return bool(answer.done + answer.failed)

    def _wake(self) -> None:
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Run what waits. What fails waits for its next attempt; what the machine refuses, for the next to open."""
        with contextlib.suppress(ExpungeError):
            while await self._run_some():
                pass
