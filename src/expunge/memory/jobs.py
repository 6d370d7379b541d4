"""Jobs: what is to be derived. A job is a record like any other: fenced, and gone with what it was to read.

Whoever runs one takes it for a while; when that ends without an answer, another may take it. What it reads, and the
erasure counter at that moment (``as_of``), are of one snapshot; so what it writes is refused when its scope was erased
meanwhile, however long the deriver took (law 4).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from expunge.authority.orgs import seq_of
from expunge.authority.port import Statement, Tx
from expunge.datamap import JOBS, RECORDS, Collection
from expunge.errors import RunnerSuperseded
from expunge.holds import not_held
from expunge.memory.drafts import new_id
from expunge.memory.record import Record
from expunge.memory.statements import stored_columns
from expunge.memory.versions import Row, Work
from expunge.model.identity import PARTS, Identity
from expunge.model.instant import Instant
from expunge.search.served import EVER, served

MOST_ATTEMPTS = 3
_FIRST_PAUSE: Instant = 5_000_000


@dataclass(frozen=True, slots=True)
class Job:
    """A job that was taken."""

    rid: int
    id: str
    identity: Identity
    deriver: str
    key: str | None
    attempts: int


def job_record(work: Work, deriver: str, sources: Sequence[str], key: str | None, *, due_at: Instant) -> Record:
    """A job to be written with what it is to read, or after it."""
    now = work.system.clock.now()
    values = dict.fromkeys(("created_at", "recorded_at", "updated_at"), now)
    state: dict[str, Any] = {"status": "waiting", "attempts": 0, "claimed_until": None, "failure": None}
    values |= {"deriver": deriver, "key": key, "due_at": due_at} | state
    return Record(1, JOBS, new_id(JOBS), work.identity, values, tuple(sources), frozenset(), fresh=True)


def take_job(tx: Tx, org: str, derivers: Sequence[str], now: Instant, lease: Instant) -> Job | None:
    """Take the job of an org that has waited longest, of those that some derivers can do, for so many microseconds."""
    values = {"org": org, "derivers": json.dumps(list(derivers), ensure_ascii=False)}
    tx.send(_GIVE_UP, org=org, now=now, most=MOST_ATTEMPTS)
    rows = tx.rows(_TAKE, now=now, until=now + lease, **values)
    if not rows:
        return None
    rid, name, deriver, key, attempts, *stored = rows[0]
    identity = Identity(org, *(None if value == "-" else value for value in stored))
    return Job(rid, name, identity, deriver, key, attempts)


def read_sources(tx: Tx, org: str, derived: str, now: Instant) -> tuple[list[tuple[Collection, Row]], int]:
    """What a record is made from, as far as it is served, oldest first; and the erasure counter of the same moment."""
    moment = {"now": now, "valid_at": now, "known_at": EVER}
    found: list[tuple[Collection, Row]] = []
    for kind in RECORDS:
        columns = ("rid", *stored_columns(kind))
        rows = tx.rows(_sources_in(kind), org=org, id=derived, **moment)
        found += [(kind, dict(zip(columns, row, strict=True))) for row in rows]
    found.sort(key=lambda item: (item[1][item[0].time], item[1]["rid"]))
    return found, seq_of(tx, org)


def end_job(tx: Tx, job: Job) -> None:
    """Let a job go that is done, unless a hold keeps it (law 8).

    Raises:
        RunnerSuperseded: another has taken it meanwhile, and what this one made is not written.

    """
    tx.hold_rows(JOBS.name, job.identity.org, [job.id], alone=True)
    if not tx.change(_DONE, rid=job.rid, attempts=job.attempts):
        raise RunnerSuperseded("the job was taken by another, or has gone")
    if tx.rows(_END, rid=job.rid):
        tx.send(_CUT, id=job.id, org=job.identity.org)


def fail_job(tx: Tx, job: Job, reason: str, now: Instant, *, at_once: bool = False) -> None:
    """Let a job wait for its next attempt, or give it up. The reason names a kind of error, and nothing it read."""
    given_up = job.attempts >= MOST_ATTEMPTS
    due = now if at_once else now + _FIRST_PAUSE * 4 ** (job.attempts - 1)
    tx.send(
        _FAIL, rid=job.rid, attempts=job.attempts, status="failed" if given_up else "waiting", due=due, reason=reason
    )


def episodes_to_read(tx: Tx, identity: Identity) -> list[str]:
    """The episodes of an identity that are served, of one session when it names one."""
    stored = dict(zip(("org", *PARTS), identity.stored(), strict=True))
    return [record_id for (record_id,) in tx.rows(_EPISODES, **stored)]


def waiting_jobs(tx: Tx, org: str) -> dict[str, int]:
    """How many jobs of an org there are, by status."""
    return dict(tx.rows(_COUNT, org=org))


@lru_cache
def _sources_in(kind: Collection) -> Statement:
    columns = ", ".join(f"r.{column}" for column in ("rid", *stored_columns(kind)))
    return Statement(
        f"{kind.name}.sources",
        f"""SELECT {columns} FROM lineage l CROSS JOIN {kind.name} r ON r.org = l.org AND r.id = l.source
        WHERE l.derived = :id AND l.org = :org AND l.source_collection = '{kind.name}' AND {served(kind)}""",
    )


_EPISODES = Statement(
    "episodes.to_read",
    """SELECT r.id FROM episodes r WHERE r.org = :org AND r.user_id = :user_id AND unindexed(r.namespace) = :namespace
    AND unindexed(r.agent) = :agent AND (:session_id = '-' OR unindexed(r.session_id) = :session_id) AND r.marked = 0
    AND r.status = 'completed' ORDER BY r.occurred_at, r.rid""",
)
_TAKEN = """UPDATE jobs SET status = 'running', attempts = attempts + 1, claimed_until = :until, updated_at = :now
    WHERE rid = (SELECT r.rid FROM jobs r WHERE r.status IN ('waiting', 'running') AND r.due_at <= :now
        AND r.org || '' = :org AND r.marked = 0 AND r.deriver IN (SELECT value FROM each_text(:derivers))
        AND (r.status = 'waiting' OR r.claimed_until <= :now)
        ORDER BY r.due_at, r.rid LIMIT 1{others})
    RETURNING rid, id, deriver, key, attempts, namespace, agent, user_id, session_id"""
_TAKE = Statement("jobs.take", _TAKEN.format(others=""), postgres=_TAKEN.format(others=" FOR UPDATE SKIP LOCKED"))
"""The job that is due first; where others take one at the same time, the next one that they do not take."""
_GIVE_UP = Statement(
    "jobs.give_up",
    """UPDATE jobs SET status = 'failed', claimed_until = NULL, failure = 'its worker did not come back'
    WHERE status IN ('waiting', 'running') AND status = 'running' AND due_at <= :now AND claimed_until <= :now
    AND attempts >= :most AND unindexed(org) = :org""",
)
_DONE = Statement(
    "jobs.done", "UPDATE jobs SET status = 'done' WHERE rid = :rid AND attempts = :attempts AND status = 'running'"
)
_END = Statement("jobs.end", f"DELETE FROM jobs AS r WHERE r.rid = :rid AND {not_held('jobs')} RETURNING rid")
_CUT = Statement("lineage.cut_job", "DELETE FROM lineage WHERE derived = :id AND org = :org")
_FAIL = Statement(
    "jobs.fail",
    """UPDATE jobs SET status = :status, due_at = :due, claimed_until = NULL, failure = :reason
    WHERE rid = :rid AND attempts = :attempts AND status = 'running'""",
)
_COUNT = Statement("jobs.count", "SELECT status, count(*) FROM jobs WHERE org = :org AND marked = 0 GROUP BY status")
