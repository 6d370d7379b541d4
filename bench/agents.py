"""What an agent writes and reads by key: set, remember, get, and a thousand at once, against the same rows by hand.

Ours is ``Agent.memory`` (``load``: ``Expunge.put``), with all that it promises: checked input, fences, counters,
versions and typed answers. The floor (``hand.py``) writes the same rows into a copy of the same database, with the same
pragmas but without our file layer. The floor goes to a thread for each call, as drivers do. Our ``get`` does not: it
reads on the event loop. So the floor's ``get`` where the call is is shown as well, and held to nothing.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from bench.build import ORG, Shape, build, copy, settings, synthetic
from bench.erasure import COLUMNS, OURS, Sizes, check_same, tell
from bench.floor import written
from bench.hand import AGENT, NAMESPACE, Hand, Said
from bench.harness import Report, Samples, Turn, take_turns
from expunge import Agent, Expunge
from expunge.agent import Memory
from expunge.operations.chat import Episode

FLOOR, HERE = "floor, by hand", "floor, on the loop"
MOST_ONE, MOST_MANY, AT_ONCE = 2.5, 1.5, 1000
_TURNS_A_SESSION = 4

Turns = dict[str, dict[str, Turn]]
"""For each thing that is done, what each contender does."""


async def one_by_one(folder: Path, sizes: Sizes) -> Report:
    """Agents: set, remember and get, one at a time."""
    report = Report("Agents, one call at a time", COLUMNS)
    samples = await _measure(folder, sizes, sizes.writes, _single)
    for doing, taken in samples.items():
        tell(report, f"{sizes.spaces[0]:,}", taken, FLOOR, f"{doing}: ")
        report.hold(f"{doing}, x {FLOOR}", taken.ratio(OURS, FLOOR), MOST_ONE)
    report.note(f"get, x {HERE}", samples["get"].ratio(OURS, HERE))
    return report


async def thousand(folder: Path, sizes: Sizes) -> Report:
    """Agents: set_many, remember_many and load, a thousand rows a call."""
    report = Report(f"Agents, {AT_ONCE:,} rows a call", COLUMNS)
    samples = await _measure(folder, sizes, sizes.batches, _batches)
    for doing, taken in samples.items():
        tell(report, f"{sizes.spaces[0]:,}", taken, FLOOR, f"{doing}: ")
        report.hold(f"{doing}, x {FLOOR}", taken.ratio(OURS, FLOOR), MOST_MANY)
    return report


async def _measure(
    folder: Path, sizes: Sizes, count: int, make: Callable[[Agent, Hand, random.Random], Iterator[Turns]]
) -> dict[str, Samples]:
    """Rounds on fresh copies; after each both have written the same number of rows in every table."""
    samples: dict[str, Samples] = {}
    shape = Shape(sizes.spaces[0])
    built = await build(shape, folder / f"{shape.name}-agents")
    for number in range(sizes.rounds):
        work = built.parent / "round"
        copies = [copy(built, work / name) for name in ("ours", "floor")]
        async with AsyncExitStack() as stack:
            product = await stack.enter_async_context(Expunge(settings=settings(copies[0])))
            agent = await stack.enter_async_context(
                Agent(product, org=ORG, namespace=NAMESPACE, agent=AGENT, user_id=shape.users[number])
            )
            hand = Hand(copies[1])
            stack.callback(hand.close)
            warm_up = min(sizes.warm_up, max(1, count // 4))
            turns_of = make(agent, hand, random.Random(number))
            for turn, turns in enumerate(itertools.islice(turns_of, warm_up + count)):
                for doing, each in turns.items():
                    kept = samples.setdefault(doing, Samples())
                    await take_turns(each, turn, kept if turn >= warm_up else None)
        check_same(copies, written)
        shutil.rmtree(work)
    shutil.rmtree(built)
    return samples


def _single(agent: Agent, hand: Hand, chance: random.Random) -> Iterator[Turns]:
    """A value, an episode, and the value read: every fourth turn a new session, every other turn a key that stood."""
    text, user, memory = synthetic(chance), str(agent.identity.user_id), agent.memory
    for turn in itertools.count():
        key, value = f"preference-{turn // 2}", chance.choice(text)
        session = f"session-{turn // _TURNS_A_SESSION}"
        said = Said(session, chance.choice(text), f"{chance.choice(text)}. {chance.choice(text)}.")
        episode = Episode(input=said.input, output=said.output, session_id=session)
        yield {
            "set": {OURS: partial(memory.set, key, value), FLOOR: partial(hand.set, user, key, value)},
            "remember": {OURS: partial(memory.remember, episode), FLOOR: partial(hand.remember, user, said)},
            "get": {
                OURS: partial(_got, memory, key, value),
                FLOOR: partial(hand.get, user, key),
                HERE: partial(_in_place, hand, user, key),
            },
        }


async def _got(memory: Memory, key: str, value: str) -> None:
    if (await memory.get(key)).value != value:
        raise RuntimeError("what was written was not read")


def _in_place(hand: Hand, user: str, key: str) -> None:
    hand.get_here(user, key)


def _batches(agent: Agent, hand: Hand, chance: random.Random) -> Iterator[Turns]:
    """A thousand values, half of them under keys that stand; a thousand episodes in ten sessions; a thousand lines."""
    text, user, memory = synthetic(chance), str(agent.identity.user_id), agent.memory
    for turn in itertools.count():
        start = turn * AT_ONCE // 2
        values = {f"key-{number}": chance.choice(text) for number in range(start, start + AT_ONCE)}
        said = [
            Said(f"batch-{turn}-{number // 100}", chance.choice(text), f"{chance.choice(text)}. {chance.choice(text)}.")
            for number in range(AT_ONCE)
        ]
        episodes = [Episode(input=one.input, output=one.output, session_id=one.session) for one in said]
        lines = list(_lines(chance, text, turn))
        yield {
            "set_many": {OURS: partial(memory.set_many, values), FLOOR: partial(hand.set_many, user, values)},
            "remember_many": {
                OURS: partial(memory.remember_many, episodes),
                FLOOR: partial(hand.remember_many, user, said),
            },
            "load": {OURS: partial(agent.expunge.put, lines), FLOOR: partial(hand.load, lines)},
        }


def _lines(chance: random.Random, text: list[str], turn: int) -> Iterator[bytes]:
    """Two in three are episodes, one in three a fact made from the episode before it."""
    for number in range(AT_ONCE):
        user = f"loaded-{chance.randrange(AT_ONCE // 30):06d}"
        record: dict[str, object] = {"id": f"record-{turn}-{number}", "user_id": user}
        if number % 3 < 2:
            record |= {"collection": "episodes", "session_id": f"{user}-s"}
            record |= {"input": chance.choice(text), "output": chance.choice(text)}
        else:
            record |= {"collection": "facts", "sources": [f"record-{turn}-{number - 1}"]}
            record |= {"subject": user, "predicate": "said", "object": chance.choice(text)}
        yield json.dumps(record).encode()
