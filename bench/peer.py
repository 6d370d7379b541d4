"""Beside the peer: loomflow's SQLite and in-memory backends, with the same data, in the same run.

The peer is no dependency of the project: it is installed into a virtual environment in the temporary folder, and runs
there in a child process a backend (``peer_child.py``) that answers what each call took. Where it cannot be installed
the benchmark says so and measures nothing. Contenders take turns, user by user.

Durability. Ours on a file: WAL, ``synchronous=FULL``, every call that returns is on disk, and a ``forget`` leaves no
byte in the WAL. Theirs on SQLite: WAL, ``synchronous=NORMAL``, one connection a call, whose close moves the WAL into
the file and so syncs it too. Both in memory: none.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from bench.build import BLOCKS, DATABASE, EPISODES, FACTS, KEYS, ORG, Shape, build, copy, settings, synthetic
from bench.erasure import Sizes
from bench.hand import AGENT, NAMESPACE
from bench.harness import Report, Samples, ms
from expunge import Agent
from expunge.operations.chat import Episode
from expunge.settings import Settings

PEER = "loomflow==0.20.0"
FILE, MEMORY, PEER_FILE, PEER_MEMORY = "ours, file", "ours, memory", "peer, SQLite", "peer, memory"
_LIMIT, _INSTALL_S, _LOAD_S = 5, 120.0, 900.0
_REMOVED = EPISODES + 1 + FACTS + BLOCKS
_COLUMNS = ("contender", "users", "n", "median ms", "p95 ms", "x peer, SQLite", "x peer, memory")
_UNEQUAL = {"remember": "a list append, without any index"}
"""Where the peer's memory does nothing that could be compared."""

Do = Callable[[dict[str, Any]], Awaitable[float]]
"""Does one thing; the seconds that it took."""


async def peer(folder: Path, sizes: Sizes) -> Report:
    """Remember, recall, profile, export and forget beside loomflow, on SQLite and in memory."""
    report = Report(f"Beside {PEER} ({EPISODES} episodes, {FACTS} facts, {BLOCKS} blocks a user)", _COLUMNS)
    python = await install(folder / "peer-venv")
    if python is None:
        report.verdicts.append(f"{PEER} could not be installed here: nothing was measured")
        return report
    for users in sizes.peers:
        shape = Shape(users * EPISODES, said=5, searched=True)
        built = await build(shape, folder / f"{shape.name}-peer")
        async with AsyncExitStack() as stack:
            contenders: dict[str, Do] = {}
            for name, open_one in (
                (FILE, partial(_on_file, built, folder)),
                (MEMORY, partial(_in_memory, built, folder)),
                (PEER_FILE, partial(_child, python, "sqlite", built, folder)),
                (PEER_MEMORY, partial(_child, python, "memory", built, folder)),
            ):
                contenders[name] = await stack.enter_async_context(open_one())
            samples = await measure(contenders, shape, sizes)
        shutil.rmtree(built)
        _tell(report, users, samples)
    return report


async def install(folder: Path, peer: str = PEER) -> Path | None:
    """The Python of an environment that has the peer, or ``None``."""
    python = folder / "bin" / "python"
    if python.exists():
        return python
    steps = (
        (sys.executable, "-m", "venv", "--without-pip", str(folder)),
        (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", peer),
    )
    for step in steps:
        process = await asyncio.create_subprocess_exec(
            *step, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            ended = await asyncio.wait_for(process.wait(), _INSTALL_S)
        except TimeoutError:
            process.kill()
            ended = await process.wait()
        if ended != 0:
            shutil.rmtree(folder, ignore_errors=True)
            return None
    return python


@asynccontextmanager
async def _on_file(built: Path, folder: Path) -> AsyncIterator[Do]:
    work = copy(built, folder / "ours-file")
    async with Agent(settings=settings(work), org=ORG, namespace=NAMESPACE, agent=AGENT) as agent:
        yield ours(agent)
    shutil.rmtree(work)


@asynccontextmanager
async def _in_memory(built: Path, folder: Path) -> AsyncIterator[Do]:
    """Ours in memory, with the same rows: copied page by page, since loading them would take minutes."""
    work = copy(built, folder / "ours-memory")
    source = apsw.Connection(str(work / DATABASE))
    source.execute("PRAGMA journal_mode = delete").fetchall()  # memory has no WAL
    kept = Settings(db=":memory:", org=ORG, actor="bench", keys_file=work / KEYS)
    async with Agent(settings=kept, org=ORG, namespace=NAMESPACE, agent=AGENT) as agent:
        place: Any = agent.expunge.system.authority
        target = apsw.Connection(
            f"file:/{place.place.memory_name}?vfs=memdb", flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
        )
        with target.backup("main", source, "main") as backup:
            backup.step()
        target.close()
        source.close()
        yield ours(agent)
    shutil.rmtree(work)


def ours(agent: Agent) -> Do:
    """What is asked, of an agent of ours."""

    async def do(asked: dict[str, Any]) -> float:
        memory, user = agent.memory, asked["user"]
        work: Awaitable[Any]
        if asked["operation"] == "remember":
            episode = Episode(input=asked["input"], output=asked["output"], session_id=asked["session_id"])
            work = memory.remember(episode, user_id=user)
        elif asked["operation"] in ("profile", "export"):
            work = getattr(memory, asked["operation"])(user)
        elif asked["operation"] == "forget":
            work = memory.forget(user_id=user)
        else:
            work = getattr(memory, asked["operation"])(asked["query"], limit=_LIMIT, user_id=user)
        begun = time.perf_counter()
        answer: Any = await work
        taken = time.perf_counter() - begun
        if asked["operation"] == "forget":
            counts = answer.by_collection if answer else {}
            _check_removed(asked, sum(counts.get(name, 0) for name in ("episodes", "facts", "blocks")))
        return taken

    return do


@asynccontextmanager
async def _child(python: Path, backend: str, built: Path, folder: Path) -> AsyncIterator[Do]:
    work = folder / f"theirs-{backend}"
    work.mkdir()
    async with child(python, "peer_child.py", backend, str(built / DATABASE), str(work)) as do:
        yield do
    shutil.rmtree(work)


@asynccontextmanager
async def child(python: Path, script: str, *arguments: str) -> AsyncIterator[Do]:
    """A process of the peer's that does what it is asked for."""
    pipe = asyncio.subprocess.PIPE
    command = (str(python), str(Path(__file__).with_name(script)), *arguments)
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    source, sink = child.stdin, child.stdout
    if source is None or sink is None:
        raise RuntimeError("the peer cannot be spoken to")

    async def answer(timeout_s: float) -> dict[str, Any]:
        line = await asyncio.wait_for(sink.readline(), timeout_s)
        if not line:
            raise RuntimeError(f"the peer's process ended: {script}")
        found: dict[str, Any] = json.loads(line)
        return found

    async def do(asked: dict[str, Any]) -> float:
        source.write(json.dumps(asked).encode() + b"\n")
        await source.drain()
        done = await answer(_LOAD_S)
        if asked["operation"] == "forget":
            _check_removed(asked, done["removed"])
        return float(done["seconds"])

    try:
        await answer(_LOAD_S)
        yield do
    finally:
        source.close()
        await child.wait()


def _check_removed(asked: dict[str, Any], removed: int) -> None:
    """Both forgot the same: the episode that was remembered just before, and all that was loaded."""
    if removed != asked["there"]:
        raise RuntimeError(f"{removed} records of {asked['user']} were forgotten, not {asked['there']}")


async def measure(contenders: dict[str, Do], shape: Shape, sizes: Sizes) -> dict[str, Samples]:
    """User by user: one more episode, two ways to recall, the profile, and forget; and somebody who was never there."""
    chance = random.Random(shape.episodes)
    text = synthetic(chance)
    samples: dict[str, Samples] = {}
    names = list(contenders)
    end = time.monotonic() + sizes.round_s
    for number, user in enumerate(chance.sample(shape.users, sizes.asked + sizes.warm_up), start=-sizes.warm_up):
        said = {"input": chance.choice(text), "output": " ".join(f"{chance.choice(text)}." for _ in range(5))}
        query = " ".join(chance.sample(said["input"].split(), 3))
        whole = {"user": user, "session_id": f"{user}-new", "query": query, "there": _REMOVED} | said
        nobody = {"user": f"nobody-{number}", "there": 0}
        for doing, asked in (
            ("remember", whole | {"operation": "remember"}),
            ("recall", whole | {"operation": "recall"}),
            ("recall, ranked", whole | {"operation": "recall_scored"}),
            ("profile", whole | {"operation": "profile"}),
            ("export", whole | {"operation": "export"}),
            ("forget", whole | {"operation": "forget"}),
            ("forget nobody", nobody | {"operation": "forget"}),
        ):
            kept = samples.setdefault(doing, Samples())
            start = number % len(names)
            for name in (*names[start:], *names[:start]):
                taken = await contenders[name](asked)
                if number >= 0:
                    kept.by_name[name].append(taken)
        if time.monotonic() > end and number >= 0:
            break
    return samples


def _tell(report: Report, users: int, samples: dict[str, Samples]) -> None:
    for doing, taken in samples.items():
        for name in (FILE, MEMORY, PEER_FILE, PEER_MEMORY):
            ratios = [f"{taken.ratio(name, other):.2f}" for other in (PEER_FILE, PEER_MEMORY)]
            times = [ms(taken.median(name)), ms(taken.p95(name))]
            report.rows.append([f"{doing}: {name}", f"{users:,}", str(taken.count(name)), *times, *ratios])
            report.values[f"{users} {doing}: {name} ms"] = taken.median(name) * 1e3
        for mine, its in ((FILE, PEER_FILE), (MEMORY, PEER_MEMORY)):
            title = f"{doing}, {users:,} users, {mine} / {its}"
            if its == PEER_MEMORY and doing in _UNEQUAL:
                report.note(f"{title} ({_UNEQUAL[doing]})", taken.ratio(mine, its))
            else:
                report.hold(title, taken.ratio(mine, its), 1.0)
