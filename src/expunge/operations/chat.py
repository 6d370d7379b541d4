"""``chat.*``: episodes, sessions and runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from expunge.authority.port import Tx
from expunge.datamap import EPISODES
from expunge.memory import prepare
from expunge.memory.chat import (
    RunEnd,
    Said,
    end_run,
    end_session,
    sessions_of,
    transcript_of,
    turns_of,
    write_episodes,
)
from expunge.memory.drafts import draft, id_for
from expunge.memory.jobs import job_record
from expunge.memory.record import Record, identity_of
from expunge.memory.versions import Work, by_id
from expunge.model.instant import from_datetime, to_datetime, to_text
from expunge.operations.memory import MOST_AT_ONCE, IdempotencyKey, moment
from expunge.operations.registry import Call, Input, Instants, Number, Output, Who, id_of
from expunge.system import System

Status = Literal["running", "completed", "failed", "cancelled"]
EpisodeId = Annotated[str, id_of("id")]


class Message(Input):
    """One entry of a conversation. ``role`` is ``user``, ``assistant``, ``tool`` or what else an agent calls it."""

    role: str
    content: str | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Any | None = None

    def said(self) -> Said:
        """The entry as a transcript holds it."""
        data = self.model_dump(include={"name", "tool_call_id", "tool_calls"}, exclude_none=True)
        return Said(self.role, self.content, data or None)


class Episode(Input):
    """One run of a session: what went in, what came out, and the transcript of what was said between.

    ``occurred_at`` is now when it is left out. ``id`` is ours unless it is given; a repeat under the same id (or
    ``idempotency_key``) is written once. ``tool_calls`` is any JSON.
    """

    input: str | None = None
    output: str | None = None
    session_id: Annotated[str, id_of("session_id")] | None = None
    occurred_at: Instants | None = None
    tool_calls: Any | None = None
    transcript: Sequence[Message] = ()
    sources: Sequence[str] = ()
    id: EpisodeId | None = None
    idempotency_key: IdempotencyKey | None = None
    status: Status = "completed"


class RememberInput(Who):
    """Whose episodes, and 1 to 1,000 of them. ``extract`` names derivers that are to read each, in a queue."""

    episodes: Annotated[list[Episode], Field(min_length=1, max_length=MOST_AT_ONCE)]
    extract: Sequence[Annotated[str, id_of("deriver")]] = ()


class RememberOutput(Output):
    """The ids of the episodes, in order, and how many of them were there already."""

    ids: list[str]
    skipped: int


async def remember(system: System, call: Call, given: RememberInput) -> RememberOutput:
    """Write episodes with their transcripts, all or nothing, and open the sessions that they belong to."""
    records: list[Record] = []
    episodes: list[Record] = []
    for line, episode in enumerate(given.episodes, start=1):
        record = _episode(system, given, episode, line)
        episodes.append(record)
        said = [message.said() for message in episode.transcript]
        records += [record, *transcript_of(system, record, said)] if said else [record]
    await prepare(system, episodes)
    jobs = _jobs(system, call, episodes, given.extract)

    def unit(tx: Tx) -> int:
        work = Work(system, given.identity, call.as_of)
        known = [record.id for record in episodes if not record.fresh]
        if known:
            work.hold(tx, EPISODES, (), known)
        there = {name for name in known if by_id(tx, EPISODES, given.org, name) is not None}
        wanted = [job for job in jobs if job.sources[0] not in there]
        write_episodes(tx, work, [*records, *wanted])
        return len(there)

    skipped = await system.authority.run(unit)
    return RememberOutput(ids=[record.id for record in episodes], skipped=skipped)


def _episode(system: System, who: Who, episode: Episode, line: int) -> Record:
    session = episode.session_id or who.session_id
    identity = identity_of(who.org, who.namespace, who.agent, who.user_id, session)
    fields: dict[str, Any] = {"input": episode.input, "output": episode.output, "tool_calls": episode.tool_calls}
    fields |= {"status": episode.status, "sources": episode.sources}
    if episode.occurred_at is not None:
        fields["occurred_at"] = to_text(from_datetime(episode.occurred_at, "occurred_at"))
    fields["id"] = episode.id or id_for(EPISODES, identity, episode.idempotency_key)
    return draft(system, EPISODES, identity, fields, line=line)


def _jobs(system: System, call: Call, episodes: Sequence[Record], derivers: Sequence[str]) -> list[Record]:
    now = system.clock.now()
    works = [(episode, Work(system, episode.identity, call.as_of)) for episode in episodes]
    return [job_record(work, name, [episode.id], None, due_at=now) for episode, work in works for name in derivers]


class RunInput(Who):
    """A run that begins: whose, in which session, and what went in."""

    input: str | None = None
    id: EpisodeId | None = None


class RunOutput(Output):
    """The id of a run, and the erasure counter when it began: whoever ends it gives both back (law 4)."""

    run_id: str
    as_of: dict[str, int]


async def begin_run(system: System, call: Call, given: RunInput) -> RunOutput:
    """Note that a run has begun. It is an episode that has no output yet."""
    fields = {"input": given.input, "status": "running", "id": given.id}
    record = draft(system, EPISODES, given.identity, fields)
    await prepare(system, [record])
    work = Work(system, given.identity, call.as_of)
    await system.authority.run(lambda tx: write_episodes(tx, work, [record]))
    return RunOutput(run_id=record.id, as_of=dict(call.as_of))


class EndRunInput(Who):
    """Which run ends, and with what. ``extract`` names derivers that are to read it."""

    run_id: EpisodeId
    output: str | None = None
    status: Literal["completed", "failed", "cancelled"] = "completed"
    tool_calls: Any | None = None
    transcript: Sequence[Message] = ()
    extract: Sequence[Annotated[str, id_of("deriver")]] = ()


class EndRunOutput(Output):
    """The run as it ended."""

    run_id: str
    status: Status


async def finish_run(system: System, call: Call, given: EndRunInput) -> EndRunOutput:
    """Give a run its output. When it was erased since it began, nothing of it is written."""
    row = await system.authority.read(lambda tx: by_id(tx, EPISODES, given.org, given.run_id))
    fields = {"id": given.run_id, "input": row and row["input"], "output": given.output, "tool_calls": given.tool_calls}
    record = draft(system, EPISODES, given.identity, fields)
    await prepare(system, [record])
    said = tuple(message.said() for message in given.transcript)
    end = RunEnd(given.output, record.values["tool_calls"], given.status, said)
    work = Work(system, given.identity, call.as_of)

    def unit(tx: Tx) -> None:
        end_run(tx, work, given.run_id, end, record.entry)
        now = system.clock.now()
        if given.extract:
            work.put(tx, [job_record(work, name, [given.run_id], None, due_at=now) for name in given.extract])

    await system.authority.run(unit)
    return EndRunOutput(run_id=given.run_id, status=given.status)


class SessionInput(Who):
    """Which session of whom; ``any_agent`` takes what every agent said in it."""

    limit: int = Field(20, ge=1, le=10_000, description="How many messages, the newest ones.")
    any_agent: bool = False


class MessagesOutput(Output):
    """Messages, oldest first; ``more`` when there are earlier ones."""

    messages: list[Message]
    more: bool


async def session_messages(system: System, _call: Call, given: SessionInput) -> MessagesOutput:
    """Read the newest messages of a session, with what tools were asked and answered."""
    messages: list[Message] = []
    wanted, read_all = given.limit + 1, False
    while len(messages) <= given.limit and not read_all:  # a run that said nothing shall not use the limit up
        read = partial(turns_of, identity=given.identity, limit=wanted, any_agent=given.any_agent)
        turns = await system.authority.read(read)
        messages = [message for turn in turns for message in _messages(turn.input, turn.said, turn.output)]
        wanted, read_all = 4 * wanted, len(turns) < wanted
    return MessagesOutput(messages=messages[-given.limit :], more=len(messages) > given.limit)


def _messages(first: str | None, said: Sequence[Said], last: str | None) -> list[Message]:
    between = [
        Message.model_construct(
            _fields_set=None, **({"role": entry.role, "content": entry.content} | (entry.data or {}))
        )
        for entry in said
    ]
    before = [] if first is None else [Message(role="user", content=first)]
    after = [] if last is None else [Message(role="assistant", content=last)]
    return [*before, *between, *after]


class SessionsInput(Who):
    """Whose sessions; ``after`` is ``next`` of the page before."""

    limit: int = Field(50, ge=1, le=MOST_AT_ONCE)
    after: Number | None = None
    any_agent: bool = False


class Session(Output):
    """A session: open, or ended."""

    session_id: str
    status: str
    created_at: datetime
    ended_at: datetime | None


class SessionsOutput(Output):
    """Sessions, newest first; ``next`` when there are more."""

    sessions: list[Session]
    next: int | None


async def list_sessions(system: System, _call: Call, given: SessionsInput) -> SessionsOutput:
    """List the sessions of a user with an agent."""
    limit, below = given.limit + 1, given.after
    read = partial(sessions_of, identity=given.identity, limit=limit, below=below, any_agent=given.any_agent)
    found = await system.authority.read(read)
    sessions = [
        Session(
            session_id=item.session_id,
            status=item.status,
            created_at=to_datetime(item.created_at),
            ended_at=moment(item.ended_at),
        )
        for item in found[: given.limit]
    ]
    return SessionsOutput(sessions=sessions, next=found[given.limit - 1].rid if len(found) > given.limit else None)


class EndSessionOutput(Output):
    """Whether there was a session that was open."""

    ended: bool


async def finish_session(system: System, call: Call, given: Who) -> EndSessionOutput:
    """End a session."""
    work = Work(system, given.identity, call.as_of)
    return EndSessionOutput(ended=await system.authority.run(partial(end_session, work=work)))
