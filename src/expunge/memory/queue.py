"""The queue: jobs taken one by one, what they are to read read, and what comes of it written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from expunge.authority.port import Tx
from expunge.datamap import FACTS, MEMORIES
from expunge.errors import DerivationFailed, EnvironmentFault, ErasedSince, ExpungeError, InvalidRecords
from expunge.memory.derivers import Deriver, Draft, FactDraft, MemoryDraft, Source
from expunge.memory.drafts import draft
from expunge.memory.jobs import Job, end_job, fail_job, read_sources, take_job
from expunge.memory.prepare import prepare
from expunge.memory.record import Record, predicate_of
from expunge.memory.rows import Setting, set_rows
from expunge.memory.said import said
from expunge.memory.versions import Work
from expunge.model.instant import from_datetime, to_datetime, to_text
from expunge.model.waiting import answer_within
from expunge.system import System

_GRACE_S = 240
"""For how much longer than its deriver may think a job is taken, in seconds."""


async def run_next(system: System, org: str, derivers: Mapping[str, Deriver]) -> str | None:
    """Run the job that has waited longest; what became of it (``done``, ``failed``), or ``None`` when none waits."""
    names = list(derivers)
    job = await system.authority.run(partial(_take, system=system, org=org, names=names))
    if job is None:
        return None
    try:
        await _run(system, job, derivers[job.deriver])
    except EnvironmentFault:
        raise  # the machine gave out, not the job: it is taken again when its lease ends
    except ExpungeError as fault:
        reason = fault.code
        # Some of what it read was erased meanwhile: what is left can be read at once.
        again = isinstance(fault, ErasedSince | InvalidRecords)
        await system.authority.run(lambda tx: fail_job(tx, job, reason, system.clock.now(), at_once=again))
        return "failed"
    return "done"


def _take(tx: Tx, *, system: System, org: str, names: Sequence[str]) -> Job | None:
    lease = round((system.settings.derive_timeout_s + _GRACE_S) * 1_000_000)
    return take_job(tx, org, names, system.clock.now(), lease)


async def _run(system: System, job: Job, deriver: Deriver) -> None:
    org, now = job.identity.org, system.clock.now()
    found, seq = await system.authority.read(lambda tx: read_sources(tx, org, job.id, now))
    sources = [_source(kind, row) for kind, row in found]
    drafts = await _derive(system, job, deriver, sources) if sources else []
    work = Work(system, replace(job.identity, session_id=None), {org: seq})
    try:
        settings = [_memory(system, work, job, item, sources) for item in drafts if isinstance(item, MemoryDraft)]
        shared = len({row["user_id"] for _, row in found}) > 1
        facts = [_fact(system, work, item, sources, shared=shared) for item in drafts if isinstance(item, FactDraft)]
    except (AttributeError, TypeError, ValueError) as fault:  # a draft is a plain class: anything may stand in it
        raise DerivationFailed(f"deriver {job.deriver} answered a draft that is none") from fault
    await prepare(system, [*facts, *(setting.record for setting in settings)])

    def unit(tx: Tx) -> None:
        if facts:
            work.put(tx, facts)
        if settings:
            set_rows(tx, work, settings)
        end_job(tx, job)

    await system.authority.run(unit)


async def _derive(system: System, job: Job, deriver: Deriver, sources: Sequence[Source]) -> Sequence[Draft]:
    try:
        drafts = list(await answer_within(system.settings.derive_timeout_s, deriver(sources)))
    except TimeoutError:
        raise DerivationFailed(f"deriver {job.deriver} did not answer in time") from None
    except Exception as fault:  # whatever a deriver raises is its own: the next job goes on
        raise DerivationFailed(f"deriver {job.deriver} failed with {type(fault).__name__}") from fault
    if not all(isinstance(item, FactDraft | MemoryDraft) for item in drafts):
        raise DerivationFailed(f"deriver {job.deriver} answered something else than drafts")
    return drafts


def _source(kind: Any, row: dict[str, Any]) -> Source:
    record, text = said(kind, row)
    return Source(row["id"], kind.name, text, record, to_datetime(row[kind.time]))


def _fact(system: System, work: Work, item: FactDraft, sources: Sequence[Source], *, shared: bool) -> Record:
    """A fact that was made from what several people said, and does not say from which of it, goes with any of them."""
    rests_on = [source.id for source in sources] if item.sources is None else list(item.sources)
    if not rests_on or not set(rests_on) <= {source.id for source in sources}:
        raise DerivationFailed("a draft names sources that the job was not given, or none")
    begins = item.valid_from or max(source.occurred_at for source in sources)
    fields: dict[str, Any] = {"subject": item.subject, "predicate": predicate_of(item.predicate), "object": item.object}
    fields |= {"exclusive": item.exclusive, "confidence": item.confidence, "sources": rests_on}
    fields["lineage"] = "retire" if shared and item.sources is None else "detach"
    fields["valid_from"] = to_text(from_datetime(begins, "valid_from"))
    if item.valid_to is not None:
        fields["valid_to"] = to_text(from_datetime(item.valid_to, "valid_to"))
    return draft(system, FACTS, work.identity, fields)


def _memory(system: System, work: Work, job: Job, item: MemoryDraft, sources: Sequence[Source]) -> Setting:
    fields: dict[str, Any] = {"key": (job.key or job.deriver) if item.key is None else item.key, "value": item.value}
    fields |= {"memory_type": item.memory_type, "sources": [source.id for source in sources]}
    fields |= {"lineage": "rebuild", "deriver": job.deriver}
    return Setting(draft(system, MEMORIES, work.identity, fields))
