"""PostgreSQL: what agents do and what an erasure costs, against hand-written SQL on the same server and driver.

Ours and the floor have each a copy of one database on one server that is durable as servers are by default. The floor
takes no lock and knows no fence (``served_hand.py``); entries of the index and vectors go by the same triggers.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from bench.agents import AT_ONCE, FLOOR, _lines
from bench.build import ORG, Shape, synthetic
from bench.erasure import COLUMNS, OURS, Sizes, tell
from bench.hand import AGENT, NAMESPACE, Said
from bench.harness import Report, Samples, Turn, take_turns
from bench.served import Built, analyse, built_on, server
from bench.served_hand import ServedHand
from expunge import Agent, Expunge
from expunge.operations.chat import Episode

WRITERS = 8
MOST_ONE, MOST_BESIDE, MOST_MANY, MOST_ERASE, MOST_GROWTH, MOST_SLOWED = 2.5, 2.0, 1.5, 3.0, 1.2, 1.5
_TURNS_A_SESSION = 4

Write = Callable[[int], Awaitable[object]]
"""Write something; the number says which."""


async def served_one(folder: Path, sizes: Sizes) -> Report:
    """PostgreSQL: set and remember, one at a time."""
    report = Report("PostgreSQL, one call at a time", COLUMNS)
    with server(folder) as url:
        shape = Shape(sizes.spaces[0])
        built = await built_on(url, shape, folder)
        samples = {"set": Samples(), "remember": Samples()}
        with built.copies("ours", "floor") as copies:
            async with AsyncExitStack() as stack:
                agent, hand = await _contenders(stack, built, copies, shape.users[0])
                text = synthetic(random.Random(1))
                for turn in range(sizes.warm_up + sizes.writes):
                    for doing, turns in _single(agent, hand, text, turn).items():
                        await take_turns(turns, turn, samples[doing] if turn >= sizes.warm_up else None)
    for doing, taken in samples.items():
        tell(report, f"{sizes.spaces[0]:,}", taken, FLOOR, f"{doing}: ")
        report.hold(f"{doing}, x {FLOOR}", taken.ratio(OURS, FLOOR), MOST_ONE)
    return report


async def served_thousand(folder: Path, sizes: Sizes) -> Report:
    """PostgreSQL: set_many, remember_many and load, a thousand rows a call."""
    report = Report(f"PostgreSQL, {AT_ONCE:,} rows a call", COLUMNS)
    samples: dict[str, Samples] = {}
    with server(folder) as url:
        shape = Shape(sizes.spaces[0])
        built = await built_on(url, shape, folder)
        with built.copies("ours", "floor") as copies:
            async with AsyncExitStack() as stack:
                agent, hand = await _contenders(stack, built, copies, shape.users[0])
                chance = random.Random(2)
                for turn in range(1 + sizes.batches):
                    for doing, turns in _batches(agent, hand, chance, turn).items():
                        kept = samples.setdefault(doing, Samples())
                        await take_turns(turns, turn, kept if turn else None)
                    if not turn:
                        analyse(*copies.values())
    for doing, taken in samples.items():
        tell(report, f"{sizes.spaces[0]:,}", taken, FLOOR, f"{doing}: ")
        report.hold(f"{doing}, x {FLOOR}", taken.ratio(OURS, FLOOR), MOST_MANY)
    return report


async def served_writers(folder: Path, sizes: Sizes) -> Report:
    """PostgreSQL: eight writers at once; how they scale, and what an erasure beside them costs them."""
    report = Report(f"PostgreSQL, {WRITERS} writers", ("contender", "writers", "calls a second", "p95 ms"))
    with server(folder) as url:
        shape = Shape(sizes.spaces[0])
        built = await built_on(url, shape, folder)
        rates: dict[tuple[str, int], float] = {}
        p95: dict[str, float] = {}
        for number in (1, WRITERS):
            for name, measured in (await _beside(built, shape, number, sizes, erasing=False)).items():
                rates[name, number] = _tell_writers(report, name, number, measured)
                p95[name] = measured[1].p95("call")
        disturbed = (await _beside(built, shape, WRITERS, sizes, erasing=True))[OURS]
        _tell_writers(report, f"{OURS}, beside erasures", WRITERS, disturbed)
    report.hold(f"remember, {WRITERS} writers, x {FLOOR}", rates[FLOOR, WRITERS] / rates[OURS, WRITERS], MOST_BESIDE)
    scaled = {name: rates[name, WRITERS] / rates[name, 1] for name in (OURS, FLOOR)}
    report.hold("scaling of the floor / scaling of ours", scaled[FLOOR] / scaled[OURS], 1.0)
    report.hold("p95 of writers beside erasures, x without", disturbed[1].p95("call") / p95[OURS], MOST_SLOWED)
    return report


async def served_erasure(folder: Path, sizes: Sizes) -> Report:
    """PostgreSQL: one user erased, in a small and in a large database."""
    report = Report("PostgreSQL, erase one user (20 episodes, 10 facts, 3 blocks)", COLUMNS)
    samples = {size: Samples() for size in sizes.one}
    with server(folder) as url:
        for size in sizes.one:
            shape = Shape(size)
            built = await built_on(url, shape, folder)
            with built.copies("ours", "floor") as copies:
                async with AsyncExitStack() as stack:
                    product = await stack.enter_async_context(Expunge(settings=built.settings(copies["ours"])))
                    hand = ServedHand(copies["floor"], built.keys)
                    stack.callback(hand.close)
                    users = random.Random(1).sample(shape.users, sizes.warm_up + sizes.users)
                    for turn, user in enumerate(users):
                        turns: dict[str, Turn] = {
                            OURS: partial(product.erase, user, purge=True), FLOOR: partial(hand.erase, user, ORG),
                        }  # fmt: skip
                        await take_turns(turns, turn, samples[size] if turn >= sizes.warm_up else None)
    for size in sizes.one:
        tell(report, f"{size:,}", samples[size], FLOOR)
        report.hold(f"one user, {size:,} episodes, x {FLOOR}", samples[size].ratio(OURS, FLOOR), MOST_ERASE)
    small, large = (samples[size] for size in sizes.one)
    growth = {name: large.median(name) / small.median(name) for name in (OURS, FLOOR)}
    title = f"growth {growth[OURS]:.2f} / growth of the floor {growth[FLOOR]:.2f}"
    report.hold(title, growth[OURS] / growth[FLOOR], MOST_GROWTH)
    return report


async def _contenders(
    stack: AsyncExitStack, built: Built, copies: dict[str, str], user: str
) -> tuple[Agent, ServedHand]:
    product = await stack.enter_async_context(Expunge(settings=built.settings(copies["ours"])))
    bound = Agent(product, org=ORG, namespace=NAMESPACE, agent=AGENT, user_id=user)
    agent = await stack.enter_async_context(bound)
    hand = ServedHand(copies["floor"], built.keys)
    stack.callback(hand.close)
    return agent, hand


def _said(text: list[str], turn: int, session: str) -> tuple[Episode, Said]:
    one, two = text[turn % len(text)], f"{text[(turn * 7) % len(text)]}. {text[(turn * 13) % len(text)]}."
    return Episode(input=one, output=two, session_id=session), Said(session, one, two)


def _single(agent: Agent, hand: ServedHand, text: list[str], turn: int) -> dict[str, dict[str, Turn]]:
    user, key, value = str(agent.identity.user_id), f"preference-{turn // 2}", text[turn % len(text)]
    episode, said = _said(text, turn, f"session-{turn // _TURNS_A_SESSION}")
    return {
        "set": {OURS: partial(agent.memory.set, key, value), FLOOR: partial(hand.set_many, user, {key: value})},
        "remember": {
            OURS: partial(agent.memory.remember, episode), FLOOR: partial(hand.remember_many, user, [said]),
        },
    }  # fmt: skip


def _batches(agent: Agent, hand: ServedHand, chance: random.Random, turn: int) -> dict[str, dict[str, Turn]]:
    text, user, start = synthetic(chance), str(agent.identity.user_id), turn * AT_ONCE // 2
    values = {f"key-{number}": chance.choice(text) for number in range(start, start + AT_ONCE)}
    pairs = [_said(text, number, f"batch-{turn}-{number // 100}") for number in range(AT_ONCE)]
    lines = list(_lines(chance, text, turn))
    return {
        "set_many": {OURS: partial(agent.memory.set_many, values), FLOOR: partial(hand.set_many, user, values)},
        "remember_many": {
            OURS: partial(agent.memory.remember_many, [episode for episode, _ in pairs]),
            FLOOR: partial(hand.remember_many, user, [said for _, said in pairs]),
        },
        "load": {OURS: partial(agent.expunge.put, lines), FLOOR: partial(hand.load, lines)},
    }


async def _beside(
    built: Built, shape: Shape, writers: int, sizes: Sizes, *, erasing: bool
) -> dict[str, tuple[float, Samples]]:
    """Calls a second, and how long each took, of writers that each write for a user of their own."""
    text = synthetic(random.Random(3))
    found: dict[str, tuple[float, Samples]] = {}
    with built.copies("ours", "floor") as copies:
        async with AsyncExitStack() as stack:
            product = await stack.enter_async_context(Expunge(settings=built.settings(copies["ours"])))
            agents = [
                await stack.enter_async_context(
                    Agent(product, org=ORG, namespace=NAMESPACE, agent=AGENT, user_id=f"writer-{number}")
                )
                for number in range(writers)
            ]
            writes: list[Write] = [partial(_ours_says, agent, text) for agent in agents]
            found[OURS] = await _at_once(writes, sizes, _erasures(product, shape) if erasing else None)
            if not erasing:
                hands = [ServedHand(copies["floor"], built.keys) for _ in range(writers)]
                for hand in hands:
                    stack.callback(hand.close)
                writes = [partial(_hand_says, hand, f"writer-{n}", text) for n, hand in enumerate(hands)]
                found[FLOOR] = await _at_once(writes, sizes, None)
    return found


async def _ours_says(agent: Agent, text: list[str], turn: int) -> None:
    await agent.memory.remember(_said(text, turn, f"s-{turn // _TURNS_A_SESSION}")[0])


async def _hand_says(hand: ServedHand, user: str, text: list[str], turn: int) -> None:
    await hand.remember_many(user, [_said(text, turn, f"s-{turn // _TURNS_A_SESSION}")[1]])


async def _erasures(product: Expunge, shape: Shape) -> None:
    for user in itertools.cycle(shape.users):
        await product.erase(user, purge=True)
        await asyncio.sleep(0.05)


async def _at_once(writes: list[Write], sizes: Sizes, beside: Awaitable[None] | None) -> tuple[float, Samples]:
    samples = Samples()

    async def one(write: Write) -> None:
        for turn in range(sizes.warm_up + sizes.writes):
            begun = time.perf_counter()
            await write(turn)
            if turn >= sizes.warm_up:
                samples.by_name["call"].append(time.perf_counter() - begun)

    other = None if beside is None else asyncio.ensure_future(beside)
    begun = time.perf_counter()
    await asyncio.gather(*map(one, writes))
    taken = time.perf_counter() - begun
    if other is not None:
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    return len(writes) * (sizes.warm_up + sizes.writes) / taken, samples


def _tell_writers(report: Report, name: str, writers: int, measured: tuple[float, Samples]) -> float:
    rate, samples = measured
    report.rows.append((name, str(writers), f"{rate:,.0f}", f"{samples.p95('call') * 1e3:.2f}"))
    return rate
