"""Finding among 100,000 episodes of 1,000 users, against the bare query; and a writer beside four readers.

Ours is ``Agent.memory.recall`` and ``search``: the words and the vectors, fused, what is not served left out, typed
answers. The floor is the same FTS5 MATCH, ``ORDER BY rank LIMIT``, and the rows fetched by hand, on a thread behind the
same hop. It compares no vectors; ours without them (``alpha=1``) is shown as well, so that one sees what those cost.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from bench.build import ORG, Shape, build, copy, settings, synthetic
from bench.erasure import COLUMNS, OURS, Sizes, check_same, tell
from bench.floor import written
from bench.hand import AGENT, NAMESPACE, Hand, Said
from bench.harness import Report, Samples, Turn, ms, take_turns
from expunge import ANY, Agent
from expunge.agent.bound import Where
from expunge.operations.chat import Episode
from expunge.operations.recall import Kind

FLOOR, WORDS, SCORED = "bare query", "ours, words alone", "ours, search"
MOST_FOUND, MOST_BESIDE = 3.0, 1.5
EACH, LIMIT, READERS = 100, 10, 4
_SENTENCES = 30_000
_QUERY_WORDS = 4

Write = Callable[[int], Awaitable[object]]
Read = Callable[[int], Awaitable[object]]


def shape_of(sizes: Sizes) -> Shape:
    """1,000 users with 100 episodes each, of 30,000 different sentences."""
    return Shape(sizes.rows, each=EACH, sentences=_SENTENCES, more=False, searched=True)


async def recall(folder: Path, sizes: Sizes) -> Report:
    """Recall and search of one user, and of a whole namespace, against the bare query."""
    shape = shape_of(sizes)
    report = Report(f"Find {LIMIT} of {shape.episodes:,} episodes of {len(shape.users):,} users", COLUMNS)
    built = await build(shape, folder / f"{shape.name}-recall")
    copies = {name: copy(built, folder / "round" / name.replace(" ", "-")) for name in (OURS, FLOOR)}
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(_agent(copies[OURS]))
        hand = Hand(copies[FLOOR])
        stack.callback(hand.close)
        queries = _queries(shape)
        await _agree(agent, hand, queries)
        for doing, wide in (("one user", False), ("namespace", True)):
            samples, count = Samples(), sizes.queries // (5 if wide else 1)
            warm_up = min(20, count)
            for number in range(-warm_up, count):
                user, query = next(queries)
                turns = _turns(agent, hand, user=None if wide else user, query=query)
                await take_turns(turns, number, samples if number >= 0 else None)
            tell(report, f"{shape.episodes:,}", samples, FLOOR, f"{doing}: ")
            for name in (OURS, SCORED, WORDS):
                title = f"{doing}, p95 of {name} / p95 of the {FLOOR}"
                ratio = samples.p95(name) / samples.p95(FLOOR)
                if wide or name == WORDS:
                    report.note(title, ratio)
                else:
                    report.hold(title, ratio, MOST_FOUND)
    shutil.rmtree(folder / "round")
    shutil.rmtree(built)
    return report


def _agent(folder: Path) -> Agent:
    return Agent(settings=settings(folder), org=ORG, namespace=NAMESPACE, agent=AGENT)


def _queries(shape: Shape) -> Iterator[tuple[str, str]]:
    """Users, and a few words that somebody may ask for, as frequent as they are in what was said."""
    chance = random.Random(7)
    text = synthetic(random.Random(shape.episodes), shape.sentences)  # the very sentences of the database
    while True:
        words = list(dict.fromkeys(chance.choice(text).split()))
        yield chance.choice(shape.users), " ".join(chance.sample(words, min(_QUERY_WORDS, len(words))))


def _turns(agent: Agent, hand: Hand, *, user: str | None, query: str) -> dict[str, Turn]:
    memory = agent.memory
    who: Where = {"user_id": ANY, "agent": ANY} if user is None else {"user_id": user}
    parts = {"namespace": NAMESPACE} if user is None else {"user_id": user}
    return {
        OURS: partial(memory.recall, query, limit=LIMIT, **who),
        SCORED: partial(memory.search, query, kinds=_ALL, limit=LIMIT, **who),
        WORDS: partial(memory.recall_scored, query, limit=LIMIT, alpha=1.0, **who),
        FLOOR: partial(hand.hop, partial(hand.ask, query, parts, LIMIT)),
    }


_ALL: Sequence[Kind] = ("episodes", "memories", "facts", "chunks")


async def _agree(agent: Agent, hand: Hand, queries: Iterator[tuple[str, str]]) -> None:
    """By words alone ours finds what the bare query finds. Which come first differs: it counts others' words too."""
    for _ in range(10):
        user, query = next(queries)
        found = await agent.memory.recall_scored(query, limit=EACH, alpha=1.0, user_id=user)
        mine, its = {hit.id for hit in found.hits}, {row["id"] for row in hand.ask(query, {"user_id": user}, EACH)}
        if mine != its:
            raise RuntimeError(f"the contenders found different rows: {mine ^ its}")


async def beside(folder: Path, sizes: Sizes) -> Report:
    """A writer that remembers without a pause, alone and beside four readers that recall without a pause."""
    shape, samples = shape_of(sizes), Samples()
    built = await build(shape, folder / f"{shape.name}-beside")
    copies = {name: copy(built, folder / "round" / name) for name in ("ours", "floor")}
    for number in range(sizes.rounds):
        async with (
            _ours(copies["ours"], shape, number) as (write, read),
            _floor(copies["floor"], shape, number) as both,
        ):
            phases: dict[str, Callable[[], Awaitable[list[float]]]] = {
                "ours, alone": partial(_alone, write, sizes.beside),
                "ours, beside tasks": partial(_beside_tasks, write, read, sizes.beside),
                "ours, beside a process": partial(_beside_process, write, ("ours", copies["ours"]), sizes),
                "floor, alone": partial(_alone, both[0], sizes.beside),
                "floor, beside tasks": partial(_beside_tasks, *both, sizes.beside),
                "floor, beside a process": partial(_beside_process, both[0], ("floor", copies["floor"]), sizes),
            }
            names = list(phases)
            for name in (*names[number % len(names) :], *names[: number % len(names)]):
                samples.by_name[name] += await phases[name]()
    check_same(list(copies.values()), written)
    shutil.rmtree(folder / "round")
    shutil.rmtree(built)
    columns = ("writer", "n", "median ms", "p95 ms", "p95 / alone", "median / alone")
    report = Report(f"Remember without a pause beside {READERS} readers, among {shape.episodes:,} episodes", columns)
    for name in samples.by_name:
        whose, how = name.split(", ")
        alone = f"{whose}, alone"
        p95, median = samples.p95(name) / samples.p95(alone), samples.ratio(name, alone)
        report.rows.append(
            [name, str(samples.count(name)), ms(samples.median(name)), ms(samples.p95(name)), f"{p95:.2f}",
             f"{median:.2f}"]
        )  # fmt: skip
        title = f"writer {how}, p95 / p95 alone"
        if whose == "ours" and how != "alone":
            report.hold(title, p95, MOST_BESIDE)
        elif how != "alone":
            report.note(f"floor: {title}", p95)
    return report


@asynccontextmanager
async def _ours(folder: Path, shape: Shape, number: int) -> AsyncIterator[tuple[Write, Read]]:
    text, queries = synthetic(random.Random(number)), _queries(shape)
    async with _agent(folder) as agent:

        async def write(turn: int) -> None:
            session = f"beside-{number}-{turn // 4}"
            episode = Episode(input=text[turn % len(text)], output=text[-turn % len(text)], session_id=session)
            await agent.memory.remember(episode, user_id=shape.users[turn % len(shape.users)])

        async def read(_turn: int) -> None:
            user, query = next(queries)
            await agent.memory.recall(query, limit=LIMIT, user_id=user)

        yield write, read


@asynccontextmanager
async def _floor(folder: Path, shape: Shape, number: int) -> AsyncIterator[tuple[Write, Read]]:
    """The writer has a connection and a thread, and the readers another two, as ours has."""
    text, queries = synthetic(random.Random(number)), _queries(shape)
    hands = [Hand(folder) for _ in range(3)]

    async def write(turn: int) -> None:
        said = Said(f"beside-{number}-{turn // 4}", text[turn % len(text)], text[-turn % len(text)])
        await hands[0].remember(shape.users[turn % len(shape.users)], said)

    async def read(turn: int) -> None:
        user, query = next(queries)
        hand = hands[1 + turn % 2]
        await hand.hop(partial(hand.ask, query, {"user_id": user}, LIMIT))

    try:
        yield write, read
    finally:
        for hand in hands:
            hand.close()


async def _alone(write: Write, count: int) -> list[float]:
    taken: list[float] = []
    warm_up = max(5, count // 10)
    for number in range(-warm_up, count):
        begun = time.perf_counter()
        await write(number + warm_up)
        if number >= 0:
            taken.append(time.perf_counter() - begun)
    return taken


async def _beside_tasks(write: Write, read: Read, count: int) -> list[float]:
    async def reading(turn: int) -> None:
        while True:
            await read(turn)

    readers = [asyncio.create_task(reading(turn)) for turn in range(READERS)]
    try:
        await asyncio.sleep(0.2)
        return await _alone(write, count)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def _beside_process(write: Write, what: tuple[str, Path], sizes: Sizes) -> list[float]:
    """The readers are tasks of a process of their own."""
    arguments = (sys.executable, "-m", "bench.recall", what[0], str(what[1]), str(sizes.rows))
    child = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    try:
        if child.stdout is None or await child.stdout.readline() != b"reading\n":
            raise RuntimeError("the readers did not begin")
        return await _alone(write, sizes.beside)
    finally:
        child.kill()
        await child.wait()


async def _read_for_ever(whose: str, folder: Path, shape: Shape) -> None:
    async with _ours(folder, shape, 0) if whose == "ours" else _floor(folder, shape, 0) as (_, read):

        async def reading(turn: int) -> None:
            while True:
                await read(turn)

        await asyncio.gather(*(read(turn) for turn in range(READERS)))
        print("reading", flush=True)
        await asyncio.gather(*(reading(turn) for turn in range(READERS)))


if __name__ == "__main__":
    asyncio.run(_read_for_ever(sys.argv[1], Path(sys.argv[2]), shape_of(Sizes(rows=int(sys.argv[3])))))
