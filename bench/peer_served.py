"""Beside the peer on PostgreSQL: the same rows in two databases of one server, which is durable as servers are."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from pathlib import Path

from bench.build import BLOCKS, DATABASE, EPISODES, FACTS, ORG, Shape, build
from bench.erasure import OURS, Sizes
from bench.hand import AGENT, NAMESPACE
from bench.harness import Report, Samples, ms
from bench.peer import PEER, child, install, measure, ours
from bench.served import filled_from, server
from expunge import Agent
from tests.pg.server import drop_database, fresh_database

SERVED_PEER, THEIRS = PEER.replace("==", "[postgres]=="), "peer"
_COLUMNS = ("contender", "users", "n", "median ms", "p95 ms", "x peer")
_FAR_BELOW, _MANY = ("profile", "export", "forget"), 10_000
"""What is to cost a tenth of theirs, and from how many users on: theirs reads a whole table for it."""
_UNFENCED = ("remember",)
"""Theirs knows no fence, so it has less to do; told, and held to nothing."""


async def served_peer(folder: Path, sizes: Sizes) -> Report:
    """PostgreSQL: remember, recall, profile, export and forget beside loomflow."""
    title = f"PostgreSQL, beside {PEER} ({EPISODES} episodes, {FACTS} facts, {BLOCKS} blocks a user)"
    report = Report(title, _COLUMNS)
    python = await install(folder / "served-peer-venv", SERVED_PEER)
    if python is None:
        report.verdicts.append(f"{SERVED_PEER} could not be installed here: nothing was measured")
        return report
    with server(folder) as url:
        for users in sizes.peers:
            shape = Shape(users * EPISODES, said=5, searched=True)
            built = await build(shape, folder / f"{shape.name}-served-peer")
            filled = await filled_from(built, url, folder / f"{shape.name}-served-peer.keys")
            theirs = fresh_database(url)
            async with AsyncExitStack() as stack:
                agent = Agent(settings=filled.settings(filled.url), org=ORG, namespace=NAMESPACE, agent=AGENT)
                its = child(python, "peer_child_served.py", theirs, str(built / DATABASE))
                contenders = {
                    OURS: ours(await stack.enter_async_context(agent)), THEIRS: await stack.enter_async_context(its),
                }  # fmt: skip
                _tell(report, users, await measure(contenders, shape, sizes))
            for database in (theirs, filled.url):
                drop_database(database)
            shutil.rmtree(built)
    return report


def _tell(report: Report, users: int, samples: dict[str, Samples]) -> None:
    for doing, taken in samples.items():
        ratio = taken.ratio(OURS, THEIRS)
        for name in (OURS, THEIRS):
            times = [ms(taken.median(name)), ms(taken.p95(name))]
            report.rows.append([f"{doing}: {name}", f"{users:,}", str(taken.count(name)), *times,
                                f"{taken.ratio(name, THEIRS):.2f}"])  # fmt: skip
            report.values[f"{users} {doing}: {name} ms"] = taken.median(name) * 1e3
        figure = f"{doing}, {users:,} users, {OURS} / {THEIRS}"
        if doing in _UNFENCED:
            report.note(f"{figure} (theirs knows no fence)", ratio)
        else:
            report.hold(figure, ratio, 0.1 if doing in _FAR_BELOW and users >= _MANY else 1.0)
