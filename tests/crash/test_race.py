"""Writers in many threads and two processes against erasures: nothing older than a fence is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.authority.sqlite import Place, SqliteAuthority
from expunge.errors import ErasedSince
from expunge.model.scope import Target
from tests.crash.kit import RAW, Child, in_child
from tests.crash.race import USERS, Tally, erase_many, write_in_threads
from tests.crash.story import ANN
from tests.support import dump, episode, ids, memory

pytestmark = [pytest.mark.crash, pytest.mark.timeout(400)]

ERASURES = 200
THREADS = 8
SECONDS = 300
_CLEAN = {
    "older_than_fence": 0, "of_erased": [], "marked": 0, "dangling": 0, "marks": 0, "fences_up": 0,
    "search_docsize_outlived": 0, "search_docsize_missing": 0, "vectors_outlived": 0, "vectors_missing": 0,
}  # fmt: skip


class Checker:
    """Another program that looks at the database (tests/raw/race_check.py)."""

    def __init__(self, database: Path, pseudonyms: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(RAW / "race_check.py"), str(database), str(pseudonyms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def check(self) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        print("check", file=self._process.stdin, flush=True)
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told

    def close(self) -> None:
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0


def pseudonyms(expunge: Expunge) -> dict[str, str]:
    """Whose each pseudonym is."""
    keys = expunge.system.keys
    return {keys.pseudonyms(Target("default", user_id=user))["user_id"]: user for user in USERS}


def assert_clean(told: dict[str, Any]) -> None:
    assert {name: told[name] for name in _CLEAN} == _CLEAN, told


def test_writers_of_two_processes_against_200_erasures(tmp_path):
    """Law 4 and 5: whatever writers do and whenever their work began, an erasure leaves no row older than its fence."""
    settings = Settings(db=str(tmp_path / "expunge.db"))
    database, names, stop = tmp_path / "expunge.db", tmp_path / "pseudonyms.json", tmp_path / "stop"

    async def make() -> dict[str, str]:
        async with Expunge(settings=settings) as expunge:
            await expunge.put([episode(f"e<first-{n}>", user) for n, user in enumerate(USERS)])
            return pseudonyms(expunge)

    names.write_text(json.dumps(in_child(make)), encoding="utf-8")

    async def open_one() -> Expunge:
        return Expunge(settings=settings)

    def write() -> Tally:
        return write_in_threads(open_one, THREADS, stop.exists)()

    async def erase() -> Counter[str]:
        with contextlib.closing(Checker(database, names)) as checker:

            async def look(number: int) -> None:
                assert_clean(checker.check())

            in_batches = settings.model_copy(update={"batch_rows": 40})
            async with Expunge(settings=settings) as one, Expunge(settings=in_batches) as other:
                return await erase_many([one, other], ERASURES, 7, look)

    def write_and_erase() -> tuple[Tally, Counter[str], float]:
        wait = write_in_threads(open_one, THREADS, stop.exists)
        began = time.monotonic()
        try:
            met = asyncio.run(erase())
            took = time.monotonic() - began
            time.sleep(2)  # whoever was erased last may come back
        finally:
            stop.touch()
            tally = wait()
        return tally, met, took

    second = Child(write, seconds=SECONDS)
    first = Child(write_and_erase, seconds=SECONDS)
    ended = first.end()
    stop.touch()
    other = second.end()
    assert (ended.signal, ended.error) == (0, ""), ended.error
    assert (other.signal, other.error) == (0, ""), other.error
    tally, met, took = ended.value
    with contextlib.closing(Checker(database, names)) as checker:
        told = checker.check()
    for one in (tally, other.value):
        print(
            f"pid {one.pid}: accepted {one.accepted.total()} {dict(one.accepted)}, "
            f"refused {one.refused.total()} {dict(one.refused)}"
        )
    print(f"{ERASURES} erasures in {took:.0f} s: {dict(met)}; at the end {told}")
    for one in (tally, other.value):
        assert one.broken == []
        assert min(one.accepted[kind] for kind in ("direct", "own words", "derived", "derived from derived")) > 0
        assert min(one.refused[code] for code in ("ERASURE_IN_PROGRESS", "ERASED_SINCE", "INVALID_RECORDS")) > 0
        assert one.late > 0
    assert met["completed"] == ERASURES
    assert told["requests"] == {"completed": ERASURES}
    assert met["derived"] > 0
    assert met["detached"] > 0
    assert_clean(told)
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
                whose = pseudonyms(expunge)
                wait = write_in_threads(open_one, 4, lambda: bool(over))

                async def look(number: int) -> None:
                    assert_clean(await expunge.system.authority.read(lambda tx: check(tx, whose)))

                try:
                    async with await open_one(batch_rows=5) as in_batches:
                        met = await erase_many([expunge, in_batches], erasures, 11, look)
                    for _ in range(200):  # until everybody has come back
                        back = [(await expunge.profile(user)).found for user in USERS]
                        if all(back):
                            break
                        await asyncio.sleep(0.1)
                finally:
                    over.append(True)
                    tally = await asyncio.to_thread(wait)
                return tally, met, await expunge.system.authority.read(lambda tx: check(tx, whose))

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
    assert_clean(told)
    assert min(told["of_users"].values()) > 0


def check(tx: Any, whose: dict[str, str]) -> dict[str, Any]:
    """What tests/raw/race_check.py says, of a database that no other process can open."""
    checker = _raw_check()

    class Connection:
        def execute(self, text: str, values: tuple[Any, ...] = ()) -> Any:
            return tx._connection.execute(text, values) if text not in ("BEGIN", "COMMIT") else None

    told: dict[str, Any] = checker(Connection(), whose)
    return told


def _raw_check() -> Any:
    """The function of the script, without what it imports."""
    text = (RAW / "race_check.py").read_text(encoding="utf-8").replace("import sqlite3\n", "")
    space: dict[str, Any] = {"__name__": "race_check"}
    exec(compile(text, "race_check.py", "exec"), space)
    return space["check"]


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
