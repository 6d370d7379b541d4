"""Writers and erasers in many threads and two processes: nothing older than a fence is left, and nothing else goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.authority.sqlite import Place, SqliteAuthority
from expunge.errors import ErasedSince
from tests.crash import race
from tests.crash.kit import RAW, Child, in_child
from tests.crash.race import KINDS, USERS, Eraser, Tally, names_of, write_in_threads
from tests.crash.story import ANN
from tests.raw.race_check import check
from tests.support import dump, episode, ids, memory

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

ERASURES = {"sqlite": 500, "postgres": 1000}
PROCESSES = 2
THREADS = 4
PAUSE_S = {"sqlite": 0.2, "postgres": 0.05}
"""For how long an eraser pauses at most; one that is done at once pauses longer, or nobody would have anything."""
ROUNDS = 10
"""How often the erasers stand still, so that all is counted that is only right then."""
SECONDS = 500
_CLEAN = {
    "older_than_fence": [], "of_erased": [], "dangling": 0, "search_outlived": 0, "search_missing": 0,
    "vectors_outlived": 0, "vectors_missing": 0,
}  # fmt: skip
_QUIET = {"marks_left": 0, "marked_left": 0, "marked_unsaid": 0, "rests_on_hidden": 0, "fences_up": 0}


class Checker:
    """Another program that looks at the database (tests/raw/race_check.py)."""

    def __init__(self, database: str, names: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(RAW / "race_check.py"), database, str(names)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, line: str) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        print(line, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0


def assert_clean(told: dict[str, Any], *, quiet: bool = False) -> None:
    wanted = _CLEAN | _QUIET if quiet else _CLEAN
    assert {name: told[name] for name in wanted} == wanted, told


class Race:
    """One process of the race: writers in threads, and an eraser that is looked over after each of its erasures."""

    def __init__(self, settings: Settings, folder: Path, erasures: int, pause_s: float) -> None:
        self.settings, self.erasures, self.pause_s = settings, erasures, pause_s
        self.names, self.stop = folder / "names.json", folder / "stop"
        self._standing = multiprocessing.get_context("fork").Barrier(PROCESSES)

    async def open_one(self) -> Expunge:
        return Expunge(settings=self.settings)

    def run(self, number: int) -> tuple[Tally, Counter[str], Counter[str], float]:
        race.count_repeats()
        wait = write_in_threads(self.open_one, THREADS, self.stop.exists)
        began = time.monotonic()
        try:
            met = asyncio.run(self._erase(number))
            took = time.monotonic() - began
            time.sleep(3)  # whoever was erased last may come back
        except BaseException:
            self._standing.abort()
            raise
        finally:
            self.stop.touch()
            tally = wait()
        return tally, met, race.repeated, took

    async def _erase(self, number: int) -> Counter[str]:
        met: Counter[str] = Counter()
        in_batches = self.settings.model_copy(update={"batch_rows": 40})
        with contextlib.closing(Checker(self.settings.db, self.names)) as checker:

            async def look(_erasure: int) -> None:
                assert_clean(checker.ask("check"))

            async with Expunge(settings=self.settings) as one, Expunge(settings=in_batches) as other:
                eraser = Eraser([one, other], 7 + number, pause_s=self.pause_s)
                for _ in range(ROUNDS):
                    met = await eraser.run(self.erasures // PROCESSES // ROUNDS, look)
                    self._standing.wait(SECONDS)
                    assert_clean(checker.ask("quiet"), quiet=True)
                    self._standing.wait(SECONDS)
        return met


@pytest.mark.authorities("sqlite", "postgres")
def test_writers_and_erasers_of_two_processes(authority, settings, tmp_path):
    """Law 4 and 5: whatever writers do and whenever their work began, an erasure leaves no row older than its fence.

    Whoever comes back can write, and what they write stays until an erasure is asked for after it.
    """
    racing = Race(settings, tmp_path, ERASURES[authority], PAUSE_S[authority])

    async def make() -> dict[str, str]:
        async with Expunge(settings=settings) as expunge:
            await expunge.put([episode(f"e<first-{n}>", user) for n, user in enumerate(USERS)])
            return names_of(expunge)

    racing.names.write_text(json.dumps(in_child(make)), encoding="utf-8")
    children = [Child(partial(racing.run, number), seconds=SECONDS) for number in range(PROCESSES)]
    ends = [child.end() for child in children]
    for ended in ends:
        assert (ended.signal, ended.error) == (0, ""), ended.error
    tallies, met, repeats, took = zip(*(ended.value for ended in ends), strict=True)
    written = tmp_path / "written.json"
    written.write_text(json.dumps([row for tally in tallies for row in tally.written]), encoding="utf-8")
    with contextlib.closing(Checker(settings.db, racing.names)) as checker:
        told, lost = checker.ask("quiet"), checker.ask(f"written {written}")
    for tally in tallies:
        print(
            f"pid {tally.pid}: accepted {tally.accepted.total()} {dict(tally.accepted)}, "
            f"refused {tally.refused.total()} {dict(tally.refused)}"
        )
    print(f"{ERASURES[authority]} erasures in {max(took):.0f} s on {authority}: {dict(sum(met, Counter()))}")
    print(f"units that began anew: {dict(sum(repeats, Counter()))}; at the end {told}")
    assert_clean(told, quiet=True)
    assert lost == [], "gone, though no erasure was asked for after it was written"
    for tally in tallies:
        assert tally.broken == []
        assert min(tally.accepted[kind] for kind in KINDS) > 0
        assert min(tally.refused[code] for code in ("ERASURE_IN_PROGRESS", "ERASED_SINCE", "INVALID_RECORDS")) > 0
        assert tally.late > 0
    total: Counter[str] = sum(met, Counter())
    assert total["completed"] == ERASURES[authority]
    assert set(told["requests"]) == {"completed"}
    assert min(total[what] for what in ("derived", "detached", "restores", "of date", "of org", "of user, hidden")) > 0
    assert told.get("deadlocks", 0) == 0
    assert min(told["of_users"].values()) > 0, "somebody could not come back"


def test_writers_against_erasures_in_memory(tmp_path):
    """Law 4 and 5, in memory: connections of one process race, and no row older than a fence is left."""
    place = Place.parse(":memory:")
    settings = Settings(db=":memory:", keys_file=tmp_path / "expunge.keys")
    erasures = 50

    async def open_one(**more: Any) -> Expunge:
        authority = await SqliteAuthority.open(place, create=True)
        return Expunge(settings=settings.model_copy(update=more), authority=authority)

    def race() -> tuple[Tally, Counter[str], dict[str, Any]]:
        over: list[bool] = []

        async def main() -> tuple[Tally, Counter[str], dict[str, Any]]:
            async with await open_one() as expunge:
                await expunge.put([episode(f"e<first-{n}>", user) for n, user in enumerate(USERS)])
                names = names_of(expunge)
                wait = write_in_threads(open_one, 4, lambda: bool(over))

                async def look(_erasure: int) -> None:
                    assert_clean(await expunge.system.authority.read(lambda tx: looked(tx, names)), quiet=True)

                try:
                    async with await open_one(batch_rows=5) as in_batches:
                        met = await Eraser([expunge, in_batches], 11, pause_s=0.1).run(erasures, look)
                    for _ in range(200):  # until everybody has come back
                        back = [(await expunge.profile(user)).found for user in USERS]
                        if all(back):
                            break
                        await asyncio.sleep(0.1)
                finally:
                    over.append(True)
                    tally = await asyncio.to_thread(wait)
                return tally, met, await expunge.system.authority.read(lambda tx: looked(tx, names))

        return asyncio.run(main())

    ended = Child(race, seconds=SECONDS).end()
    assert (ended.signal, ended.error) == (0, ""), ended.error
    tally, met, told = ended.value
    print(
        f"pid {tally.pid}, in memory: accepted {tally.accepted.total()} {dict(tally.accepted)}, "
        f"refused {tally.refused.total()} {dict(tally.refused)}; {dict(met)}; at the end {told}"
    )
    assert tally.broken == []
    assert met["completed"] == erasures
    assert tally.accepted.total() > 0
    assert tally.refused["ERASED_SINCE"] + tally.refused["ERASURE_IN_PROGRESS"] > 0
    assert_clean(told, quiet=True)
    assert min(told["of_users"].values()) > 0


def looked(tx: Any, names: dict[str, str]) -> dict[str, Any]:
    """What tests/raw/race_check.py says, of a database that no other process can open."""
    told: dict[str, Any] = check(tx._connection, names, quiet=True)
    return told


async def test_a_source_that_came_back_under_its_id_is_not_what_was_read(expunge):
    """Law 5: who read a summary before it was erased does not write from it into one that took its id since."""
    await expunge.put([episode("e<ann>", ANN), memory("m<sum>", "summary", sources=["e<ann>"], value="of Ann")])
    as_of = await expunge.as_of()  # a unit of work begins, and reads the summary
    await expunge.erase(ANN, purge=True)
    await expunge.put([memory("m<sum>", "summary", value="of nobody")])
    with pytest.raises(ErasedSince):
        await expunge.put([memory("m<two>", "digest", sources=["m<sum>"], value="from: of Ann")], as_of=as_of)
    assert ids(await dump(expunge)) == {"m<sum>"}


async def test_who_waits_for_the_database_does_not_hold_up_the_rest_of_the_process(settings):
    """Law 4 needs waiting writers: SQLite's sleep between two tries is not slept with the interpreter's lock held."""
    async with Expunge(settings=settings) as one, Expunge(settings=settings) as two:
        holding, ticks = asyncio.Event(), 0
        loop = asyncio.get_running_loop()

        def hold(tx: Any) -> None:
            loop.call_soon_threadsafe(holding.set)
            time.sleep(1.5)

        holder = asyncio.create_task(one.system.authority.run(hold))
        await holding.wait()
        waiter = asyncio.create_task(two.put([episode("e<ann>", ANN)]))
        while not holder.done():
            await asyncio.sleep(0.001)
            ticks += 1
        await waiter
    assert ticks > 150, f"the event loop ran {ticks} times in 1.5 seconds"
