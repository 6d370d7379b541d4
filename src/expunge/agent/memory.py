"""``agent.memory``: all that an agent does with its memory, in one place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Self

from expunge.agent.bound import Bound
from expunge.agent.chat import Chat
from expunge.agent.derived import Derived
from expunge.agent.knowledge import Knowledge
from expunge.datamap import RECORDS
from expunge.errors import ForgetFailed, InvalidScope
from expunge.model.ids import check_id
from expunge.operations.profile import ProfileOutput
from expunge.operations.scopes import scope_words
from expunge.subject.export import MemoryExport


class Forgotten(int):
    """How many records were removed, with the receipt that says so.

    ``by_collection`` counts them; their edges and bodies stand in the ``receipt``, which is the signed statement.
    ``request_id`` is the erasure.
    """

    by_collection: dict[str, int]
    receipt: dict[str, Any]
    request_id: str

    @classmethod
    def of(cls, answer: Any) -> Self:
        """The answer of an erasure that has completed."""
        by_collection = {kind.name: answer.removed[kind.name] for kind in RECORDS if answer.removed[kind.name]}
        made = cls(sum(by_collection.values()))
        made.by_collection, made.request_id = by_collection, answer.request_id
        made.receipt = answer.receipts[0] if answer.receipts else {}
        return made


class Memory(Derived, Chat, Knowledge):
    """The memory of one agent, on the identity that it is bound to."""

    def __init__(self, bound: Bound, extract: list[str], wake: Callable[[], None]) -> None:
        self._bound, self._extract, self._wake_up = bound, extract, wake

    @property
    def bound(self) -> Bound:
        """What every call of it is bound to."""
        return self._bound

    def _wake(self) -> None:
        self._wake_up()

    def bound_to(self, bound: Bound) -> Memory:
        """The same memory as another unit of work sees it."""
        return Memory(bound, self._extract, self._wake_up)

    async def profile(self, user_id: str | None = None) -> ProfileOutput:
        """What is held on a user (the agent's own, if none is named) in the agent's org and namespace."""
        answer: ProfileOutput = await self._bound.read(
            "subject.profile", user_id=self._somebody(user_id), namespace=self._bound.identity.namespace
        )
        return answer

    async def export(self, user_id: str | None = None, *, vectors: bool = False) -> MemoryExport:
        """All that is held on a user (the agent's own, if none is named) in the agent's org and namespace.

        Raises:
            InvalidScope: no user was named.
            ErasureInProgress, ErasedSince: an erasure that touches it runs, or ran meanwhile.

        """
        bound = self._bound
        return await bound.expunge.export(
            self._somebody(user_id), org=bound.identity.org, namespace=bound.identity.namespace, vectors=vectors
        )

    def _somebody(self, user_id: str | None) -> str:
        who = user_id if user_id is not None else self._bound.identity.user_id
        if who is None:
            raise InvalidScope("no user was named", hint="name the user, or bind the agent to one")
        return who

    async def forget(
        self, *, user_id: str | None = None, session_id: str | None = None, before: datetime | None = None
    ) -> Forgotten:
        """Erase a user, a session, or what of it is dated before a time, for good, in the agent's org and namespace.

        It is the saga with purge (design 4): fenced, counted, with a signed receipt. An agent that is bound to no
        namespace forgets in all of them. Nothing is assumed: somebody has to be named. The answer is how many records
        went (0 for an unknown user), with ``by_collection`` and ``receipt``.

        A session that is named alone is everybody's who spoke in it, helpers of the agent too. It goes with
        its episodes, with what was made from any of them and retires, and with facts that were made
        from them alone; other facts, and blocks, stay.

        What it queued to be made afresh is made with the next write that wakes the queue, or by ``drain``.

        Raises:
            InvalidScope: neither a user nor a session was named.
            ForgetFailed: the erasure did not complete; it says how it stands, and can be resumed.

        """
        if user_id is None and session_id is None:
            raise InvalidScope("nobody was named to forget", hint="name user_id, or session_id")
        for what, value in (("user_id", user_id), ("session_id", session_id)):
            if value is not None:
                check_id(value, what)
        users = [] if user_id is None else [user_id]
        namespaces = [] if self._bound.identity.namespace is None else [self._bound.identity.namespace]
        words = scope_words(users, namespaces, session_id=session_id)
        answer = await self._bound.read("erasure.request", purge=True, before=before, **words)
        if answer.status != "completed":
            raise ForgetFailed(
                f"erasure {answer.request_id} is {answer.status}: {answer.failure_reason or 'held'}",
                request_id=answer.request_id,
            )
        return Forgotten.of(answer)
