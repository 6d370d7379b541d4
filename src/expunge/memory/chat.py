"""Chat: episodes with their transcripts, the sessions that they belong to, and runs while they last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from expunge.authority.port import GuardKey, Statement, Tx
from expunge.datamap import EPISODES, EVENTS, SESSIONS
from expunge.errors import UnknownRun
from expunge.memory.drafts import draft, new_id
from expunge.memory.put import PutOutcome
from expunge.memory.record import Record
from expunge.memory.versions import Row, Work, by_id
from expunge.model.canonical import canonical_plain
from expunge.model.identity import PARTS, Identity
from expunge.model.ids import shown
from expunge.model.instant import Instant
from expunge.search import Entry, add_entries
from expunge.search.index import drop_entries, record_number
from expunge.system import System


@dataclass(frozen=True, slots=True)
class Said:
    """One entry of a transcript: who said it (or ``tool_call``, ``tool_result``), what, and what else belongs to it."""

    role: str
    content: str | None
    data: dict[str, Any] | None = None


def transcript_of(system: System, episode: Record, said: Sequence[Said], first: int = 0) -> list[Record]:
    """The events of an episode, from a position on. Their ids follow from it, so that a repeat finds them."""
    events: list[Record] = []
    for position, entry in enumerate(said, start=first):
        name = hashlib.sha256(canonical_plain([episode.id, str(position)])).hexdigest()[:32]
        fields: dict[str, Any] = {"id": f"ev-{name}", "episode": episode.id, "position": position}
        fields |= {"kind": entry.role, "content": entry.content, "data": entry.data}
        event = draft(system, EVENTS, episode.identity, fields)
        events.append(replace(event, line=episode.line, fresh=episode.fresh))
    return events


def write_episodes(tx: Tx, work: Work, records: Sequence[Record]) -> PutOutcome:
    """Write episodes and their events, and the sessions that they open."""
    seen: dict[Identity, Record | None] = {}
    for record in records:
        if record.identity not in seen:
            seen[record.identity] = _session_for(tx, work, record)
    opened = [session for session in seen.values() if session is not None]
    return work.put(tx, [*opened, *records])


def _session_for(tx: Tx, work: Work, episode: Record) -> Record | None:
    """The session of an episode, unless it has none, or it is there. Two users may both speak in a session ``1``."""
    if episode.identity.session_id is None:
        return None
    stored = dict(zip(("org", *PARTS), episode.identity.stored(), strict=True))
    if tx.rows(_SESSION, **stored):
        return None
    replace(work, identity=episode.identity).hold(tx, SESSIONS, [""])
    if tx.rows(_SESSION, **stored):  # again: whoever opened it meanwhile has ended
        return None
    now = work.system.clock.now()
    times = {"created_at": min(now, episode.dated), "recorded_at": now, "updated_at": now}
    values = times | {"status": "open", "ended_at": None}
    return Record(episode.line, SESSIONS, new_id(SESSIONS), episode.identity, values, (), frozenset(), fresh=True)


def end_session(tx: Tx, work: Work) -> bool:
    """End a session; whether there was one that was open."""
    _guard(tx, work, work.system.clock.now())
    now = work.system.clock.now()
    stored = dict(zip(("org", *PARTS), work.identity.stored(), strict=True))
    return bool(tx.change(_END_SESSION, now=now, **stored))


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended: what came out of it, with which calls, in which state, and what was said meanwhile."""

    output: str | None
    tool_calls: str | None
    """As JSON."""
    status: str
    said: tuple[Said, ...] = ()


def end_run(tx: Tx, work: Work, run_id: str, end: RunEnd, entry: Entry | None) -> Row:
    """Give a run that lasts its output. It is a write of the unit that the run is, since its beginning (law 4).

    Raises:
        UnknownRun: there is no such run, or it was erased: nothing of it comes back.
        ErasureInProgress, ErasedSince: its scope is being erased, or was since it began.

    """
    row = _running(tx, work, run_id)
    identity = work.identity
    _guard(tx, work, row["occurred_at"])
    if tx.hold_rows(EPISODES.name, identity.org, [run_id], alone=True):
        row = _running(tx, work, run_id)  # again: an erasure may have taken it for what it was made from
    values = {"output": end.output, "tool_calls": end.tool_calls, "status": end.status, "now": work.system.clock.now()}
    tx.send(_END_RUN, rid=row["rid"], **values)
    number = record_number(EPISODES, row["rid"])
    drop_entries(tx, json.dumps([number]))
    if entry is not None:
        add_entries(tx, [(number, identity.stored(), entry)])
    if end.said:
        episode = Record(1, EPISODES, run_id, identity, {"occurred_at": row["occurred_at"]}, (), frozenset())
        work.put(tx, transcript_of(work.system, episode, end.said))
    return row | values


def _running(tx: Tx, work: Work, run_id: str) -> Row:
    row = by_id(tx, EPISODES, work.identity.org, run_id)
    if row is not None and tuple(row[part] for part in ("org", *PARTS)) != work.identity.stored():
        row = None  # somebody else's
    if row is None or row["status"] != "running":
        what = "was erased, or never begun" if row is None else f"is {row['status']}"
        raise UnknownRun(f"run {shown(run_id)} {what}")
    return row


def _guard(tx: Tx, work: Work, dated: Instant) -> None:
    work.system.check_keys(tx)
    org, *stored = work.identity.stored()
    key = GuardKey(org, work.system.keys.matches(org, tuple(stored)), dated)
    tx.guard([key], work.as_of.get(org, 0))


_SAME = """s.org = :org AND s.session_id = :session_id AND s.session_id <> '-' AND unindexed(s.user_id) = :user_id
    AND unindexed(s.namespace) = :namespace AND unindexed(s.agent) = :agent AND s.marked = 0"""
_SESSION = Statement("sessions.one", f"SELECT s.rid FROM sessions s WHERE {_SAME}")
_END_SESSION = Statement(
    "sessions.end",
    f"""UPDATE sessions AS s SET status = 'ended', ended_at = :now, updated_at = :now
    WHERE {_SAME} AND s.status = 'open'""",
)
_END_RUN = Statement(
    "episodes.end_run",
    """UPDATE episodes SET output = :output, tool_calls = :tool_calls, status = :status, updated_at = :now
    WHERE rid = :rid""",
)
_LAST = Statement(
    "episodes.of_session",
    """SELECT r.id, r.input, r.output, r.occurred_at, r.status FROM episodes r
    WHERE r.org = :org AND r.session_id = :session_id AND r.session_id <> '-' AND unindexed(r.user_id) = :user_id
    AND unindexed(r.namespace) = :namespace AND (:any_agent = 1 OR r.agent = :agent) AND r.marked = 0
    ORDER BY r.occurred_at DESC, r.rid DESC LIMIT :limit""",
)
_EVENTS = Statement(
    "events.of_episodes",
    """SELECT r.episode, r.kind, r.content, r.data FROM each_text(:ids) j
    CROSS JOIN events r ON r.org = :org AND r.episode = j.value WHERE r.marked = 0
    ORDER BY r.episode, r.position, r.rid""",
)
_SESSIONS = Statement(
    "sessions.list",
    """SELECT s.session_id, s.status, s.created_at, s.ended_at, s.rid FROM sessions s
    WHERE s.org = :org AND s.user_id = :user_id AND unindexed(s.namespace) = :namespace
    AND (:any_agent = 1 OR s.agent = :agent) AND s.marked = 0 AND s.rid < :below ORDER BY s.rid DESC LIMIT :limit""",
)


@dataclass(frozen=True, slots=True)
class Turn:
    """An episode of a session as a conversation: what went in, what was said meanwhile, what came out."""

    id: str
    input: str | None
    output: str | None
    occurred_at: Instant
    status: str
    said: tuple[Said, ...]


def turns_of(tx: Tx, identity: Identity, limit: int, *, any_agent: bool) -> list[Turn]:
    """The newest episodes of a session, oldest first, each with its transcript."""
    stored = dict(zip(("org", *PARTS), identity.stored(), strict=True))
    rows = tx.rows(_LAST, limit=limit, any_agent=any_agent, **stored)[::-1]
    said: dict[str, list[Said]] = {row[0]: [] for row in rows}
    ids = json.dumps(list(said), ensure_ascii=False)
    for episode, kind, content, data in tx.rows(_EVENTS, org=identity.org, ids=ids):
        said[episode].append(Said(kind or "", content, None if data is None else json.loads(data)))
    return [Turn(name, said_in, out, at, status, tuple(said[name])) for name, said_in, out, at, status in rows]


@dataclass(frozen=True, slots=True)
class Session:
    """A session, and the number that lists go on from."""

    session_id: str
    status: str
    created_at: Instant
    ended_at: Instant | None
    rid: int


def sessions_of(tx: Tx, identity: Identity, limit: int, below: int | None, *, any_agent: bool) -> list[Session]:
    """The sessions of a user, newest first, below a number."""
    stored = dict(zip(("org", *PARTS), identity.stored(), strict=True))
    bounds = {"limit": limit, "below": 2**62 if below is None else below}
    del stored["session_id"]
    return [Session(*row) for row in tx.rows(_SESSIONS, any_agent=any_agent, **bounds, **stored)]
