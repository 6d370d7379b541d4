"""Episodes, sessions and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from expunge.agent.bound import Bound, Page, Where, Who, listed
from expunge.errors import ErasedSince, ErasureInProgress, InputError, UnknownRun
from expunge.operations.chat import Episode, Message, MessagesOutput, RememberOutput, SessionsOutput
from expunge.operations.recall import Hit, SearchOutput

if TYPE_CHECKING:
    from expunge.agent.memory import Memory


class Chat:
    """What was said: episodes with their transcripts, by session."""

    _bound: Bound
    _extract: list[str]

    def _wake(self) -> None: ...

    async def remember(self, episode: Episode, **who: Unpack[Who]) -> str:
        """Write an episode with its transcript, and open its session; its id. A repeat of an id is written once.

        Raises:
            InputError: a field does not fit. InvalidRecords: the id stands with other content.
            ErasureInProgress, ErasedSince, HiddenByErasure (laws 4, 5). EmbedderFault: nothing was written.

        """
        return (await self.remember_many([episode], **who)).ids[0]

    async def remember_many(self, episodes: Iterable[Episode], **who: Unpack[Who]) -> RememberOutput:
        """Write 1 to 1,000 episodes in one commit, all or nothing."""
        answer: RememberOutput = await self._bound.write(
            "chat.remember", who, episodes=listed(episodes), extract=list(self._extract)
        )
        if self._extract:
            self._wake()
        return answer

    async def recall(
        self,
        query: str,
        *,
        limit: int = 5,
        since: datetime | None = None,
        until: datetime | None = None,
        **where: Unpack[Where],
    ) -> list[Hit]:
        """The episodes that fit a query best; the newest, when it is empty. Dated from ``since`` until ``until``."""
        return (await self.recall_scored(query, limit=limit, since=since, until=until, **where)).hits

    async def recall_scored(
        self,
        query: str,
        *,
        limit: int = 5,
        alpha: float = 0.5,
        since: datetime | None = None,
        until: datetime | None = None,
        **where: Unpack[Where],
    ) -> SearchOutput:
        """As ``recall``, and with what vectors were compared; ``alpha`` is the share of the words in the rank."""
        answer: SearchOutput = await self._bound.read(
            "search.find",
            query=query,
            kinds=["episodes"],
            limit=limit,
            alpha=alpha,
            since=since,
            until=until,
            where=self._bound.where(where),
        )
        return answer

    async def session_messages(
        self, session: str | None = None, *, limit: int = 20, any_agent: bool = False, **who: Unpack[Who]
    ) -> Page[Message]:
        """The newest messages of a session, oldest first, with what tools were asked and what they answered.

        ``.more`` says whether there are earlier ones.
        """
        whose = self._bound.whose(who)
        if session is not None:
            whose["session_id"] = session
        if whose["session_id"] is None:
            raise InputError("no session was named", hint="name it, or bind the agent to it")
        answer: MessagesOutput = await self._bound.read("chat.messages", limit=limit, any_agent=any_agent, **whose)
        return Page.of(answer.messages, more=answer.more)

    async def sessions(
        self, *, limit: int = 50, after: int | None = None, any_agent: bool = False, **who: Unpack[Who]
    ) -> SessionsOutput:
        """The sessions of the user, newest first, each ``open`` or ``ended``; ``next`` when there are more."""
        whose = self._bound.whose(who)
        answer: SessionsOutput = await self._bound.read(
            "chat.sessions", limit=limit, after=after, any_agent=any_agent, **whose
        )
        return answer

    async def end_session(self, session: str, **who: Unpack[Who]) -> bool:
        """End a session; whether there was one that was open."""
        if session is None:
            raise InputError("no session was named")
        who["session_id"] = session
        return bool((await self._bound.write("chat.end_session", who)).ended)

    def run(self, input: str | None = None, *, id: str | None = None, **who: Unpack[Who]) -> Run:  # noqa: A002
        """A run of a session: ``async with agent.memory.run("Hello") as run: … await run.finish("Hi")``.

        What is written through ``run.memory`` is part of it: refused, when its scope was erased since it began (law 4).
        """
        return Run(self, input, id, who)


class Run:
    """A run while it lasts: ``completed`` by ``finish``, ``failed`` by an error, ``cancelled`` without either."""

    memory: Memory
    id: str

    def __init__(self, chat: Chat, first: str | None, run_id: str | None, who: Who) -> None:
        self._chat, self._first, self._given, self._who = chat, first, run_id, who
        self.state: Literal["new", "running", "completed", "failed", "cancelled", "erased"] = "new"

    async def __aenter__(self) -> Self:
        """Note that the run has begun.

        Raises:
            ErasureInProgress: its scope is being erased.

        """
        bound = self._chat._bound  # noqa: SLF001 (the two make one thing)
        as_of = bound.as_of or await bound.expunge.as_of(bound.identity.org)
        whose: dict[str, Any] = {part: value for part, value in bound.whose(self._who).items() if part != "session_id"}
        # What it writes is for whom it is; a value or a fact belongs to its session only when the call says so.
        own = bound.at(as_of=as_of, identity=replace(bound.identity, **whose))
        answer = await own.write("chat.begin_run", self._who, input=self._first, id=self._given)
        self.id, self.state = answer.run_id, "running"
        self.memory = self._chat.bound_to(own)  # type: ignore[attr-defined]
        return self

    async def finish(
        self, output: str | None, *, tool_calls: Any | None = None, transcript: Sequence[Message] = ()
    ) -> None:
        """End the run with its output.

        Raises:
            ErasedSince, UnknownRun: it was erased since it began, and nothing of it is written (law 4).

        """
        await self._end("completed", output=output, tool_calls=tool_calls, transcript=listed(transcript))

    async def _end(self, state: Literal["completed", "failed", "cancelled"], **values: Any) -> None:
        extract = list(self._chat._extract) if state == "completed" else []  # noqa: SLF001
        try:
            await self.memory._bound.write(  # noqa: SLF001
                "chat.end_run", self._who, run_id=self.id, status=state, extract=extract, **values
            )
        except (ErasedSince, ErasureInProgress, UnknownRun):
            if self.state == "running":
                self.state = "erased"
            raise
        self.state = state
        if extract:
            self._chat._wake()  # noqa: SLF001

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the run, if nobody has. One whose scope was erased meanwhile just ends: ``state`` is ``erased``."""
        if self.state != "running":
            return
        try:
            await self._end("cancelled" if kind in (None, asyncio.CancelledError) else "failed")
        except (ErasedSince, ErasureInProgress, UnknownRun):
            return
