"""``jobs.*``: what is to be derived, and running it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import Field

from expunge.authority.port import Tx
from expunge.errors import InputError
from expunge.memory.derivers import Deriver
from expunge.memory.jobs import episodes_to_read, job_record, waiting_jobs
from expunge.memory.queue import run_next
from expunge.memory.versions import Work
from expunge.operations.memory import MOST_AT_ONCE, Key
from expunge.operations.registry import Call, Input, OrgId, Output, Who, id_of
from expunge.system import System

Name = Annotated[str, id_of("deriver")]


class AddJobInput(Who):
    """What is to be derived: by which deriver, under which key, from which records.

    Without ``sources`` from every episode of the identity (of one session, when it names one).
    """

    deriver: Name
    key: Key | None = None
    sources: Sequence[Annotated[str, id_of("sources")]] = ()


class AddJobOutput(Output):
    """The id of the job, and how many records it is to read; no id when there is nothing to read."""

    id: str | None
    sources: int


async def add(system: System, call: Call, given: AddJobInput) -> AddJobOutput:
    """Queue something to be derived."""
    work = Work(system, given.identity, call.as_of)

    def unit(tx: Tx) -> AddJobOutput:
        sources = list(given.sources) or episodes_to_read(tx, given.identity)
        if not sources:
            return AddJobOutput(id=None, sources=0)
        record = job_record(work, given.deriver, sources, given.key, due_at=system.clock.now())
        work.put(tx, [record])
        return AddJobOutput(id=record.id, sources=len(sources))

    return await system.authority.run(unit)


class RunJobsInput(Input):
    """Whose jobs, how many at most, and by which derivers (all that are registered)."""

    org: OrgId
    limit: int = Field(100, ge=1, le=MOST_AT_ONCE)
    derivers: Sequence[Name] | None = None


class RunJobsOutput(Output):
    """How many jobs were done, and how many failed; those are tried again later, three times in all."""

    done: int
    failed: int


async def run(system: System, _call: Call, given: RunJobsInput) -> RunJobsOutput:
    """Run jobs that wait, one after the other."""
    wanted = system.derivers if given.derivers is None else {name: _known(system, name) for name in given.derivers}
    counts = {"done": 0, "failed": 0}
    for _ in range(given.limit if wanted else 0):
        became = await run_next(system, given.org, wanted)
        if became is None:
            break
        counts[became] += 1
    return RunJobsOutput(**counts)


def _known(system: System, name: str) -> Deriver:
    if name not in system.derivers:
        raise InputError("there is no such deriver", hint="register it with the system that is to run it")
    return system.derivers[name]


class JobsInput(Input):
    """Whose jobs."""

    org: OrgId


class JobsOutput(Output):
    """How many jobs there are, by status."""

    jobs: dict[str, int]


async def count(system: System, _call: Call, given: JobsInput) -> JobsOutput:
    """Count the jobs of an org."""
    return JobsOutput(jobs=await system.authority.read(partial(waiting_jobs, org=given.org)))
