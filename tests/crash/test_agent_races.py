"""Agents that are forgotten while other processes write, work and are killed (`spec/loomflow-facts.md` §5)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from expunge import Agent, Episode, Expunge, FactDraft, MemoryDraft, Message, NewFact, Settings, Source
from expunge.agent import Forgotten, Memory
from expunge.errors import DatabaseBusy, ErasedSince, ErasureInProgress, ForgetFailed, InvalidRecords, UnknownRun
from expunge.model.instant import ManualClock
from expunge.stores.folder import FolderStore
from tests.agents.kit import ORG, as_user, count, is_verified
from tests.agents.peer import INDEX, OTHER, RECORDS, WORD, fill, leftovers, of_user, reading
from tests.crash.kit import (
    RAW,
    Child,
    Flag,
    Gate,
    WatchedStore,
    copied,
    forked,
    in_child,
    kill_at,
    opened,
    watched,
)
from tests.support import dump

pytestmark = [pytest.mark.crash, pytest.mark.timeout(200)]

REFUSED = (ErasureInProgress, ErasedSince, InvalidRecords, UnknownRun, DatabaseBusy)
IDENTITY: dict[str, Any] = {"org": ORG, "namespace": "support", "agent": "helper", "user_id": "ann"}
Point = tuple[str, int, str]


def in_folder(folder: Path, **more: Any) -> Settings:
    return Settings(db=str(folder / "expunge.db"), **more)


class Looking:
    """Another program that looks for what is older than a moment (tests/raw/older.py)."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(RAW / "older.py"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def look(self, name: str, before: int, *, files: bool = False) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        asked = {"name": name, "before": before, "files": files}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0


def tagged(user: str) -> str:
    """A text that says whose it is and when the work that writes it began."""
    return f"{user}@{time.monotonic_ns()}@"


async def retelling(sources: Sequence[Source]) -> list[FactDraft | MemoryDraft]:
    """All that was read, as a fact and as a summary; sometimes it takes a while."""
    said = " ".join(source.text for source in sources)
    await asyncio.sleep(random.choice([0, 0, 0.01]))
    return [FactDraft("user", "said", said, exclusive=False), MemoryDraft(said, key="said")]


@dataclass(slots=True)
class Written:
    """What a writing process did: by kind how much was accepted and refused, and what of the other user was accepted."""

    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    of_bob: list[str] = field(default_factory=list)
    wrongly: list[str] = field(default_factory=list)
    """Of bob, whom nobody forgets: what was refused as if he were."""


async def write(agent: Agent, kind: str, user: str, chance: random.Random) -> str:
    """One unit of work; the text that it wrote."""
    memory, said = agent.memory, tagged(user)
    match kind:
        case "remember":
            transcript = [Message(role="tool", content=said)]
            await memory.remember(
                Episode(input=said, session_id="s", transcript=transcript, tool_calls=[said]), user_id=user
            )
        case "run":
            async with memory.run(said, session_id="s", user_id=user) as run:
                await asyncio.sleep(chance.uniform(0, 0.01))
                await run.memory.set("of run", said, user_id=user)
                await run.finish(said)
        case "set":
            await memory.set("key", said, user_id=user)
        case "fact":
            await memory.add_fact(NewFact(subject="user", predicate="is", object=said), user_id=user)
        case "block":
            await memory.update_block("block", said, user_id=user)
        case "document":
            await memory.add_document("letter", text=said * 50, user_id=user)
        case _:  # who read before writes later
            as_of = await agent.as_of()
            hits = await memory.recall("", user_id=user)
            await asyncio.sleep(chance.uniform(0, 0.02))
            value, sources = [*(hit.text for hit in hits), said], [hit.id for hit in hits]
            await agent.began(as_of).set("read", value, sources=sources, user_id=user)
    return said


KINDS = ("remember", "remember", "run", "set", "fact", "block", "document", "read")


async def write_on(settings: Settings, seed: int, is_over: Callable[[], bool]) -> Written:
    """Write as agents do, for two users, with an extractor in the background, until it is over."""
    chance, written = random.Random(seed), Written()
    async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
        agent.memory.auto_extract(retelling)

        async def one() -> None:
            while not is_over():
                kind, user = chance.choice(KINDS), chance.choice(["ann", "ann", "bob"])
                try:
                    said = await write(agent, kind, user, chance)
                    written.accepted[kind] += 1
                    if user == "bob" and kind == "remember":
                        written.of_bob.append(said)
                except REFUSED as fault:
                    written.refused[fault.code] += 1
                    if user == "bob" and isinstance(fault, ErasureInProgress | ErasedSince):
                        written.wrongly.append(f"{kind}: {fault}")
                await asyncio.sleep(chance.uniform(0, 0.01))

        await asyncio.gather(one(), one(), one())
    return written


async def forgotten(agent: Agent, user_id: str) -> int:
    """Forget somebody. The original of a document whose writer is about to be refused fails it, and a resume heals that.

    Law 16: it says so, and never that all is gone.
    """
    try:
        return await agent.memory.forget(user_id=user_id)
    except ForgetFailed as fault:
        if "originals.documents" not in fault.message:
            raise
        request_id = str(fault.data["request_id"])
    answer: Any = None
    for _ in range(4):
        answer = await agent.erasure.resume(request_id)
        if answer.status == "completed":
            return Forgotten.of(answer)
        await asyncio.sleep(0.2)
    raise AssertionError(answer.failure_reason)


def test_d2c_a_process_that_remembers_while_another_forgets(tmp_path: Path) -> None:
    """Law 4 and 5: whatever two processes write, nothing whose work began before a forget is left after it."""
    settings, stop, forgets = in_folder(tmp_path), tmp_path.parent / f"{tmp_path.name}.stop", 30

    async def start() -> None:
        async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
            await agent.memory.remember(Episode(input="first"), user_id="bob")

    async def forget() -> Counter[str]:
        met: Counter[str] = Counter()
        with contextlib.closing(Looking(tmp_path)) as looking:
            async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
                for number in range(forgets):
                    began = time.monotonic_ns()
                    met["removed"] += await forgotten(agent, "ann")
                    found = looking.look("ann", began)
                    assert found["older"] == {}, (number, found["older"], began)
                    assert (found["dangling"], found["unfounded"], found["doubled"]) == (0, 0, 0)
                    await asyncio.sleep(0.05)
        return met

    in_child(start)

    def write_until_stopped(seed: int) -> Written:
        return asyncio.run(write_on(settings, seed, stop.exists))

    writers = [Child(partial(write_until_stopped, seed), seconds=110) for seed in (1, 2)]
    try:
        met = in_child(forget, seconds=100)
    finally:
        stop.touch()
        ended = [writer.end() for writer in writers]
        stop.unlink()
    assert [(one.signal, one.error) for one in ended] == [(0, "")] * 2, "\n".join(one.error for one in ended)
    written: list[Written] = [one.value for one in ended]
    print(f"{forgets} forgets removed {met['removed']}; {[(one.accepted, one.refused) for one in written]}")
    assert met["removed"] > forgets
    for one in written:
        assert one.wrongly == []
        assert min(one.accepted[kind] for kind in KINDS) > 0
    assert sum(one.refused["ERASED_SINCE"] + one.refused["ERASURE_IN_PROGRESS"] for one in written) > 0

    async def at_the_end() -> dict[str, int]:
        async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
            await agent.memory.forget(user_id="ann")
            assert (await agent.memory.forget(user_id="ann")) == 0
            return await of_user(expunge, "ann")

    assert in_child(at_the_end) == {}
    with contextlib.closing(Looking(tmp_path)) as looking:
        found = looking.look("ann", time.monotonic_ns(), files=True)
        assert (found["older"], found["dangling"], found["unfounded"]) == ({}, 0, 0)
        assert found["doubled"] == 0
        stays = set(looking.look("bob", 0)["tags"])
    assert {int(said.split("@")[1]) for one in written for said in one.of_bob} <= stays


def test_d1_killed_right_after_a_forget(tmp_path: Path) -> None:
    """Law 7, physically: a process that is killed as its forget ends leaves nothing in the files, whoever reads."""
    settings = in_folder(tmp_path)

    async def start() -> None:
        async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
            await fill(agent, WORD)
            await fill(agent, OTHER)

    async def forget_and_die() -> None:
        async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
            await agent.memory.forget(user_id=f"{WORD}-user")
            os.kill(os.getpid(), signal.SIGKILL)

    in_child(start)
    assert leftovers(tmp_path, [WORD])["files"]
    with reading(tmp_path / "expunge.db") as again:
        assert forked(lambda: asyncio.run(forget_and_die())).signal == signal.SIGKILL
        assert leftovers(tmp_path, [WORD]) == {"files": {}, "columns": {}}
        assert again("again") == 2
    assert leftovers(tmp_path, [OTHER])["columns"]


def test_d7_a_forget_that_is_killed_between_its_steps(tmp_path: Path) -> None:
    """Law 16: killed before and after each commit and each call of the store, a resume ends as if nothing had been."""
    prepared, killed = tmp_path / "prepared", tmp_path / "killed"

    async def start() -> None:
        async with opened(in_folder(prepared)) as expunge, as_user(expunge) as agent:
            await fill(agent, OTHER)
            await fill(agent, WORD)

    def forget(folder: Path, point: Point | None = None) -> Any:
        async def job() -> Any:
            settings = in_folder(folder, batch_rows=12)
            authority = await watched(settings, watch=None if point is None else kill_at(point))
            store = FolderStore(folder / "expunge.originals", "originals", frozenset({"documents"}))
            bodies = WatchedStore(store, authority)
            async with opened(settings, authority, bodies=bodies) as expunge, as_user(expunge) as agent:
                gone = await agent.memory.forget(user_id=f"{WORD}-user")
                return authority.passed, gone.by_collection

        ended = forked(lambda: asyncio.run(job()))
        assert ended.error == ""
        assert ended.signal == (signal.SIGKILL if point else 0), point
        return ended.value

    async def end() -> tuple[str, dict[str, int], dict[str, Any]]:
        async with opened(in_folder(killed, batch_rows=12)) as expunge, as_user(expunge) as agent:
            listed = (await agent.erasure.list()).erasures
            if not listed:
                gone = await agent.memory.forget(user_id=f"{WORD}-user")
                answer = await agent.erasure.status(gone.request_id)
            else:
                answer = await agent.erasure.resume(listed[0].request_id)
            assert (answer.status, answer.residue_count) == ("completed", 0)
            assert is_verified(expunge, answer.receipts[0])
            assert await of_user(expunge, f"{WORD}-user") == {}
            assert (await agent.memory.forget(user_id=f"{WORD}-user")) == 0
            found = listed[0].status if listed else "nothing"
            removed = {name: number for name, number in answer.removed.items() if number}
            return found, removed, {name: set(rows) for name, rows in (await dump(expunge)).items()}

    prepared.mkdir()
    in_child(start)
    passed, gone = forget(copied(prepared, killed))
    _, removed, stays = in_child(end)
    assert gone.items() <= removed.items()
    points = [(*what, when) for what in passed for when in ("before", "after")]
    assert len(points) > 20
    assert {what for what, *_ in points} == {"run", "reclaim", "store"}
    states: Counter[str] = Counter()
    for point in points:
        forget(copied(prepared, killed), point)
        state, went, left = in_child(end)
        states[state] += 1
        assert (went, left) == (removed, stays), point
        assert leftovers(killed, [WORD]) == {"files": {}, "columns": {}}, point
    print(f"killed at {len(points)} points; what was found: {dict(states)}")
    assert states["in_progress"] > len(points) // 2


def counted(folder: Path, *, later: float = 0) -> dict[str, Any]:
    """What a worker does that comes so many seconds later, and what there is then."""

    async def job() -> dict[str, Any]:
        clock = ManualClock()
        clock.advance(later)
        async with opened(in_folder(folder), clock=clock) as expunge:
            expunge.system.derivers["retelling"] = retelling
            ran = await expunge.call("jobs.run", org=ORG)
            return {"done": ran.done, "failed": ran.failed} | await count(expunge, "facts", "memories", "jobs")

    return in_child(job)


def with_a_job(folder: Path) -> None:
    async def job() -> None:
        async with opened(in_folder(folder)) as expunge, as_user(expunge) as agent:
            await agent.memory.remember(Episode(id="e1", input=WORD, session_id="s"))
            await agent.memory.remember(Episode(id="e2", input=OTHER), user_id="bob")
            await expunge.call("jobs.add", deriver="retelling", sources=["e1"], **IDENTITY)

    folder.mkdir()
    in_child(job)


def work_and_die(folder: Path, point: Point | None) -> list[tuple[str, int]]:
    """A worker that is killed at a point, or (without one) while its deriver thinks."""

    async def dying(sources: Sequence[Source]) -> list[FactDraft | MemoryDraft]:
        if point is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return await retelling(sources)

    async def job() -> list[tuple[str, int]]:
        settings = in_folder(folder)
        authority = await watched(settings, watch=kill_at(point) if point else None)
        async with opened(settings, authority) as expunge:
            expunge.system.derivers["retelling"] = dying
            await expunge.call("jobs.run", org=ORG)
            return authority.passed

    ended = forked(lambda: asyncio.run(job()))
    assert ended.error == ""
    assert ended.signal == (0 if point == ("run", 0, "never") else signal.SIGKILL), point
    passed: list[tuple[str, int]] = ended.value or []
    return passed


def test_a_worker_that_is_killed_loses_no_job_and_doubles_none(tmp_path: Path) -> None:
    """Law 16: whenever a worker is killed, its job is done once: by another, when its lease has ended."""
    with_a_job(tmp_path / "made")
    passed = work_and_die(copied(tmp_path / "made", tmp_path / "now"), ("run", 0, "never"))
    once = {"facts": 1, "memories": 1, "jobs": 0}
    assert counted(tmp_path / "now") == {"done": 0, "failed": 0} | once
    points: list[Point | None] = [None, *((*what, when) for what in passed for when in ("before", "after"))]
    states: Counter[str] = Counter()
    for point in points:
        folder = copied(tmp_path / "made", tmp_path / "now")
        work_and_die(folder, point)
        at_once = counted(folder)
        taken = at_once["jobs"] == 1
        if taken:  # somebody has it, as far as anybody knows
            assert at_once == {"done": 0, "failed": 0, "facts": 0, "memories": 0, "jobs": 1}, point
            assert counted(folder, later=299)["done"] == 0, point
            assert counted(folder, later=301) == {"done": 1, "failed": 0} | once, point
        else:
            assert {name: at_once[name] for name in once} == once, point
        states["taken" if taken else "done" if not at_once["done"] else "waiting"] += 1
        assert counted(folder, later=1000) == {"done": 0, "failed": 0} | once, point
    assert min(states[name] for name in ("taken", "done", "waiting")) > 0, states


def test_the_job_of_a_killed_worker_whose_user_was_forgotten(tmp_path: Path) -> None:
    """Law 4: a job that a killed worker had taken goes with its user, and nobody takes it up when its lease ends."""
    with_a_job(tmp_path / "now")
    work_and_die(tmp_path / "now", None)

    async def forget() -> dict[str, int]:
        async with opened(in_folder(tmp_path / "now")) as expunge, as_user(expunge) as agent:
            return (await agent.memory.forget(user_id="ann")).by_collection

    went = in_child(forget)
    assert {name: went[name] for name in ("episodes", "sessions", "jobs")} == {"episodes": 1, "sessions": 1, "jobs": 1}
    nothing = {"done": 0, "failed": 0, "facts": 0, "memories": 0, "jobs": 0}
    assert counted(tmp_path / "now", later=1000) == nothing
    assert leftovers(tmp_path / "now", [WORD]) == {"files": {}, "columns": {}}
    assert leftovers(tmp_path / "now", [OTHER])["columns"] == {"episodes.input": [OTHER]}


def stopping(point: tuple[str, int], reached: Flag, goes_on: Flag) -> Gate:
    async def gate(*here: object) -> None:
        if here == point:
            reached.set()
            assert await asyncio.to_thread(goes_on.wait)

    return gate


@pytest.mark.parametrize("end", ["goes on", "killed"])
@pytest.mark.parametrize("point", [("store", 1), ("run", 1)])
def test_d2c_a_document_of_a_process_that_stops_while_another_forgets(
    tmp_path: Path, point: tuple[str, int], end: str
) -> None:
    """Law 4 and 7: a document that was on its way through a forget is refused, and leaves no original behind.

    Of a process that is killed on the way, what it had stored goes with the forget, or with the next one.
    """
    settings, reached, goes_on = in_folder(tmp_path), Flag(), Flag()

    async def start() -> None:
        async with opened(settings) as expunge, as_user(expunge) as agent:
            await agent.memory.add_document("letter", text=WORD)
            await agent.memory.add_document("letter", text=OTHER, user_id="bob")

    async def late() -> str:
        authority = await watched(settings)
        store = FolderStore(tmp_path / "expunge.originals", "originals", frozenset({"documents"}))
        async with opened(settings, authority, bodies=WatchedStore(store, authority)) as expunge:
            authority.gate = stopping(point, reached, goes_on)
            authority._begun.clear()
            async with as_user(expunge) as agent:
                try:
                    await agent.memory.add_document("letter", text=f"late {WORD}")
                except (ErasedSince, ErasureInProgress) as fault:
                    return fault.code
        return "taken"

    async def forget() -> dict[str, int]:
        async with opened(settings) as expunge, as_user(expunge) as agent:
            return (await agent.memory.forget(user_id="ann")).by_collection

    async def left() -> dict[str, int]:
        async with opened(settings) as expunge:
            return await of_user(expunge, "ann")

    in_child(start)
    with contextlib.closing(reached), contextlib.closing(goes_on):
        child = Child(lambda: asyncio.run(late()))
        assert reached.wait(child.answer), child.end().error
        assert in_child(forget)["documents"] == 1
        if end == "killed":
            os.kill(child.pid, signal.SIGKILL)
        goes_on.set()
        ended = child.end()
    assert (ended.signal, ended.error) == (signal.SIGKILL if end == "killed" else 0, "")
    assert ended.value == (None if end == "killed" else "ERASED_SINCE")
    assert in_child(left) == {}
    assert leftovers(tmp_path, [WORD]) == {"files": {}, "columns": {}}
    assert leftovers(tmp_path, [OTHER])["files"]
    assert in_child(forget).get("documents", 0) == 0


def test_d2c_an_original_that_a_killed_process_stored_after_the_forget(tmp_path: Path) -> None:
    """Law 7: a body that was stored after its user was forgotten, by a process killed before its row, goes next time."""
    settings, reached, goes_on = in_folder(tmp_path), Flag(), Flag()

    async def late() -> None:
        authority = await watched(settings)
        store = FolderStore(tmp_path / "expunge.originals", "originals", frozenset({"documents"}))
        async with opened(settings, authority, bodies=WatchedStore(store, authority)) as expunge:
            authority.gate, authority.watch = stopping(("store", 1), reached, goes_on), kill_at(("store", 1, "after"))
            authority._begun.clear()
            async with as_user(expunge) as agent:
                await agent.memory.add_document("letter", text=f"late {WORD}")

    async def start() -> None:
        async with opened(settings) as expunge, as_user(expunge) as agent:
            await agent.memory.add_document("letter", text=OTHER, user_id="bob")

    async def forget() -> int:
        async with opened(settings) as expunge, as_user(expunge) as agent:
            return int(await agent.memory.forget(user_id="ann"))

    in_child(start)
    with contextlib.closing(reached), contextlib.closing(goes_on):
        child = Child(lambda: asyncio.run(late()))
        assert reached.wait(child.answer), child.end().error
        assert in_child(forget) == 0
        goes_on.set()
        assert child.end().signal == signal.SIGKILL
    left = leftovers(tmp_path, [WORD])
    assert left["columns"] == {}
    assert len(left["files"]) == 1, "the case is not the one that is meant"
    assert in_child(forget) == 0
    assert leftovers(tmp_path, [WORD]) == {"files": {}, "columns": {}}
    assert leftovers(tmp_path, [OTHER])["files"]


async def test_d6_forty_thousand_episodes_of_one_user(tmp_path: Path) -> None:
    """Law 1 and 11: 40,000 episodes go with one forget; profile, preview and the answer count the very same."""
    number, others = 40_000, 500
    settings = in_folder(tmp_path, embedder="none")

    def line(n: int, user: str) -> dict[str, Any]:
        who = {"user_id": user, "namespace": "support", "agent": "helper", "session_id": f"s{n // 100}"}
        return {"collection": "episodes", "id": f"{user}-{n}", "input": f"{user} said {n}"} | who

    async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
        memory: Memory = agent.memory
        for start in range(0, number, 10_000):
            await expunge.put([line(n, "ann") for n in range(start, start + 10_000)], org=ORG)
        await expunge.put([line(n, "bob") for n in range(others)], org=ORG)
        facts = [NewFact(subject=f"thing {n}", predicate="is", object="x", sources=[f"ann-{n}"]) for n in range(1000)]
        await memory.add_facts(facts)
        await memory.derive("team", "of both", sources=["ann-1", "bob-1"], user_id=None)
        held = {name: count for name, count in (await memory.profile()).counts.items() if count}
        assert held == {"episodes": number, "facts": 1000}
        preview = (await agent.erasure.preview("ann")).goes
        planned = {name: sum(counts.values()) for name, counts in preview.items() if any(counts.values())}
        began = time.monotonic()
        gone = await memory.forget(user_id="ann")
        print(f"{number} episodes forgotten in {time.monotonic() - began:.1f} s")
        records = {name: count for name, count in gone.by_collection.items() if name in RECORDS}
        assert records == planned == held | {"memories": 1}
        assert gone == number + 1001
        assert gone.receipt["census"]["authority.episodes"] == 0
        assert is_verified(expunge, gone.receipt)
        assert await of_user(expunge, "ann") == {}
        assert await of_user(expunge, "bob") == {"episodes": others}
        assert await count(expunge, *INDEX) == {"search_docsize": others, "vectors": 0, "lineage": 0, "marks": 0}
        assert (await memory.forget(user_id="ann")) == 0
        assert not (await memory.profile()).found
        assert len(await memory.recall("said", user_id="bob")) == 5
