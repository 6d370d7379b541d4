"""``agent.erasure``: erasures of the agent's org, as an operator asks for them."""

from __future__ import annotations

from typing import Any

from expunge.agent.bound import Bound
from expunge.operations.erasure import Answer, ListOutput, PreviewOutput, RestoreOutput
from expunge.operations.scopes import scope_words


class Erasure:
    """Requests in the agent's org; they are not narrowed to its namespace unless they say so."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound

    async def request_user_id(
        self, user_id: str, *, requester: str | None = None, purge: bool = False, **options: Any
    ) -> Answer:
        """Erase a user: hide them for 14 days, or ``purge`` them for good; ``options`` as ``erasure.request``."""
        return await self.request(user_id, requester=requester, purge=purge, **options)

    async def request(
        self,
        *user_ids: str,
        namespaces: tuple[str, ...] | list[str] = (),
        session_id: str | None = None,
        agent: str | None = None,
        purge: bool = False,
        **options: Any,
    ) -> Answer:
        """Erase a conjunction of users, namespaces, a session and an agent; ``options`` as ``erasure.request``."""
        words = scope_words(user_ids, namespaces, session_id=session_id, agent=agent)
        answer: Answer = await self._bound.read("erasure.request", purge=purge, **words, **options)
        return answer

    async def preview(self, *user_ids: str, purge: bool = True, **scope: Any) -> PreviewOutput:
        """What erasing a scope would do."""
        return await self._bound.expunge.preview(*user_ids, org=self._bound.identity.org, purge=purge, **scope)

    async def status(self, request_id: str) -> Answer:
        """How an erasure stands."""
        answer: Answer = await self._bound.read("erasure.status", request_id=request_id)
        return answer

    async def list(self, **options: Any) -> ListOutput:
        """The erasures of the org, newest first."""
        answer: ListOutput = await self._bound.read("erasure.list", **options)
        return answer

    async def restore(self, request_id: str, *keys: str) -> RestoreOutput:
        """Serve again what an erasure without purge has hidden."""
        answer: RestoreOutput = await self._bound.read("erasure.restore", request_id=request_id, keys=list(keys))
        return answer

    async def resume(self, request_id: str) -> Answer:
        """Go on with an erasure that stopped."""
        answer: Answer = await self._bound.read("erasure.resume", request_id=request_id)
        return answer
