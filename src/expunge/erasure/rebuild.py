"""Rebuilding: what went because one of its sources went, and can be derived afresh from the others (design 4)."""

from __future__ import annotations

import secrets
from collections import Counter

from expunge.authority.orgs import seq_of
from expunge.authority.port import GuardKey, Statement, Tx
from expunge.datamap import JOBS, MEMORIES
from expunge.datamap.marks import is_marked
from expunge.erasure.request import Request
from expunge.erasure.statements import FENCE_STANDS
from expunge.errors import ErasureInProgress
from expunge.keys import KeyRing
from expunge.model.instant import Instant
from expunge.search.served import is_current
from expunge.system import System


def count_rebuilds(tx: Tx, org: str, request: int) -> Counter[int]:
    """How many marked records can be derived afresh, by position of the subject (law 10)."""
    return Counter(position for _, position in tx.rows(_GOING, org=org, request=request))


def queue_rebuilds(tx: Tx, request: Request, system: System) -> None:
    """Queue a job for each marked record that can be derived afresh.

    The job reads what is left, and is a record of its own: it goes with the last of that. Asked again after a kill,
    a record has its job already. Nothing is made afresh for somebody who is being erased as well (law 4).
    """
    going, now = tx.rows(_GOING, org=request.org, request=request.rid), system.clock.now()
    seq = seq_of(tx, request.org) if going else 0
    for record_id, _ in going:
        if _is_fenced(tx, request.org, record_id, system.keys, seq=seq, now=now):
            continue
        job = f"{JOBS.name[:2]}-{secrets.token_hex(16)}"
        values = {"org": request.org, "request": request.rid, "id": record_id, "job": job, "seq": seq}
        if tx.change(_QUEUE, now=now, **values):
            tx.send(_READ, **values)


def _is_fenced(tx: Tx, org: str, record_id: str, keys: KeyRing, *, seq: int, now: Instant) -> bool:
    if not tx.rows(FENCE_STANDS, org=org)[0][0]:
        return False
    ((*parts,),) = tx.rows(_WHOSE, org=org, id=record_id)
    try:
        tx.guard([GuardKey(org, keys.matches(org, tuple(parts)), now)], seq)
    except ErasureInProgress:
        return True
    return False


_WHOSE = Statement(
    "memories.whose",
    "SELECT namespace, agent, user_id, session_id FROM memories WHERE org = :org AND id = :id",
)
_LEFT = (
    f"""FROM lineage l WHERE l.derived = :id AND l.org = :org AND NOT {is_marked("l.source", "l.source_collection")}"""
)
_GOING = Statement(
    "marks.to_rebuild",
    f"""SELECT m.id, m.position FROM marks m CROSS JOIN memories r ON r.rid = m.rid
    WHERE m.request = :request AND m.collection = 'memories' AND m.direct = 0
    AND r.deriver IS NOT NULL AND r.state = 'live' AND r.org = :org
    AND EXISTS (SELECT 1 FROM lineage l WHERE l.derived = m.id AND l.org = :org AND l.rule = 'rebuild')
    AND EXISTS (SELECT 1 {_LEFT.replace(":id", "m.id")})
    AND {is_current(MEMORIES).replace("n.marked = 0", "TRUE")}""",
)
_QUEUE = Statement(
    "jobs.queue_rebuild",
    f"""INSERT INTO jobs (org, id, namespace, agent, user_id, session_id, created_at, recorded_at, updated_at, seq,
        deriver, key, status, attempts, due_at)
    SELECT r.org, :job, r.namespace, r.agent, r.user_id, r.session_id, :now, :now, :now, :seq,
        r.deriver, r.key, 'waiting', 0, :now
    FROM memories r WHERE r.org = :org AND r.id = :id AND EXISTS (SELECT 1 {_LEFT}) AND NOT EXISTS (
        SELECT 1 FROM jobs j WHERE j.org = :org AND j.namespace = r.namespace AND j.user_id = r.user_id
        AND j.agent = r.agent AND j.session_id = r.session_id AND j.key = r.key AND j.deriver = r.deriver
        AND j.status = 'waiting' AND j.seq >= :seq)""",
)
_READ = Statement(
    "lineage.of_rebuild",
    f"""INSERT INTO lineage (org, derived, source, derived_collection, source_collection, rule, seq)
    SELECT l.org, :job, l.source, 'jobs', l.source_collection, 'detach', :seq {_LEFT} ON CONFLICT DO NOTHING""",
)
