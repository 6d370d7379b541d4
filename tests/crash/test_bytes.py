"""Physical erasure: after it the words of whom was erased stand in no file, whoever else has the database open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.model.canonical import canonical
from expunge.proof import verify
from tests.crash.kit import RAW, everything, holding, in_child, opened, watched
from tests.crash.story import ANN, DORA
from tests.support import episode, fact, files_of, memory, one_of_each

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

_USERS, _ROWS, _ERASED = 2000, 20_000, 150
_NUMBER = re.compile(rb"<(\d{5})>")


class Reader:
    """Another program that has the database open (tests/raw/reader.py)."""

    def __init__(self, database: Path, *how: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(RAW / "reader.py"), str(database), *how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.first = self._answer()

    def again(self, said: str = "again") -> int:
        assert self._process.stdin
        print(said, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> int:
        assert self._process.stdout
        return int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate("end\n", timeout=30)
        assert self._process.returncode == 0


@contextlib.contextmanager
def reading(database: Path, *how: str) -> Iterator[Reader]:
    reader = Reader(database, *how)
    try:
        yield reader
    finally:
        reader.end()


def row(number: int, user: int, chance: random.Random) -> dict[str, Any]:
    """A record of one user; whatever is the user's holds ``<00017>``. Now and then it is larger than a page."""
    name = f"user<{user:05}>"
    text = f"word of {name} " * (600 if chance.random() < 0.01 else chance.randint(1, 12))
    return chance.choice(
        [
            episode(f"{number}-e<{user:05}>", name, input=text),
            memory(f"{number}-m<{user:05}>", f"key<{user:05}>-{number}", name, value=text),
            fact(f"{number}-f<{user:05}>", name, object=text),
        ]
    )


async def erase_among_others(folder: Path, seed: int) -> list[tuple[int, str, set[int]]]:
    """Erase users one after the other while others are written; after each tenth, whose bytes are in which file."""
    chance = random.Random(seed)
    users = list(range(_USERS))
    rows = [row(number, number % _USERS, chance) for number in range(_ROWS)]
    chance.shuffle(rows)
    settings = Settings(db=str(folder / "expunge.db"))
    left: list[tuple[int, str, set[int]]] = []
    number = _ROWS
    async with opened(settings) as expunge, opened(settings) as other:
        for start in range(0, _ROWS, 500):
            await expunge.put(rows[start : start + 500])
        with reading(folder / "expunge.db") as reader:
            assert reader.first > 0
            chance.shuffle(users)
            erased, staying = users[:_ERASED], users[_ERASED:]
            for done, user in enumerate(erased, start=1):
                # Two writers, so that what one keeps in its cache is older than what the other wrote.
                for writer in (expunge, other, expunge):
                    number += 4
                    await writer.put([row(number + n, chance.choice(staying), chance) for n in range(4)])
                answer = await (expunge if done % 3 else other).erase(f"user<{user:05}>", purge=True)
                assert (answer.status, answer.found, answer.deferred) == ("completed", True, [])
                if done % 10 == 0:
                    assert reader.again() > 0
                    left += stale_in(folder, erased[:done], done)
    return left


def stale_in(folder: Path, erased: list[int], done: int) -> list[tuple[int, str, set[int]]]:
    """The files that still hold something of erased users, and of whom."""
    found = {name: set(map(int, _NUMBER.findall(data))).intersection(erased) for name, data in files_of(folder).items()}
    return [(done, name, stale) for name, stale in found.items() if stale]


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_of_an_erased_user_is_left_in_any_file(tmp_path, seed):
    """Law 7, physically: 150 of 2,000 users go one by one among writes, and no byte of theirs is in any file."""
    left = in_child(lambda: erase_among_others(tmp_path, seed), seconds=200)
    assert left == [], f"after {left[0][0]} erasures {len(left[0][2])} users were still in {left[0][1]}"


async def erase_and_go_on(folder: Path, seed: int) -> list[tuple[int, str, set[int]]]:
    """Erase users one after the other on one connection, and look after the write that follows each."""
    chance, users, number = random.Random(seed), 400, 6000
    rows = [row(n, n % users, chance) for n in range(number)]
    chance.shuffle(rows)
    order = chance.sample(range(users), users)
    erased, staying = order[:50], order[50:]
    left: list[tuple[int, str, set[int]]] = []
    async with opened(Settings(db=str(folder / "expunge.db"))) as expunge:
        await expunge.put(rows)
        for done, user in enumerate(erased, start=1):
            await expunge.erase(f"user<{user:05}>", purge=True)
            number += 20
            await expunge.put([row(number + n, chance.choice(staying), chance) for n in range(20)])
            left += stale_in(folder, erased[:done], done)
    return left


@pytest.mark.parametrize("seed", [0, 1])
def test_what_a_cache_kept_is_not_written_again(tmp_path, seed):
    """Law 7, physically: a page that was cached through an erasure brings nothing back when it is next written."""
    left = in_child(lambda: erase_and_go_on(tmp_path, seed), seconds=120)
    assert left == [], f"after {left[0][0]} erasures {len(left[0][2])} users were in {left[0][1]} again"


def test_without_the_file_layer_bytes_would_stay(tmp_path, monkeypatch):
    """The control of the test above: with SQLite's own file layer it finds what secure_delete leaves behind."""
    monkeypatch.setattr("expunge.authority.sqlite.connection.VFS_NAME", "unix")
    stale: dict[int, int] = {}
    for seed in (1, 2, 3):
        (tmp_path / str(seed)).mkdir()
        left = in_child(partial(erase_among_others, tmp_path / str(seed), seed), seconds=200)
        stale[seed] = len({user for _, _, found in left for user in found})
        if stale[seed]:
            break
    print(f"users left in some file without the file layer, by seed: {stale}")
    assert any(stale.values())


async def fill(expunge: Expunge) -> list[str]:
    """Write the records of two people; the words of the first."""
    await expunge.put([*one_of_each(ANN, "<ann>"), *one_of_each(DORA, "<dora>")])
    return [ANN, "<ann>"]


async def receipts_that_verify(expunge: Expunge) -> list[dict[str, Any]]:
    """Every receipt of the ledger, each verified with the system's public keys against the whole chain.

    Of those of one request only the newest passes: a follow-up takes its place.
    """
    lines = (await expunge.call("ledger.export")).lines
    pinned = {key.id: key.private.public_key() for key in expunge.system.keys.signing_keys}
    receipts = [entry["receipt"] for entry in map(json.loads, lines[1:]) if "receipt" in entry]
    for number, receipt in enumerate(receipts):
        checks = verify(canonical(receipt), pinned, "\n".join(lines).encode())
        assert [check.name for check in checks] == ["form", "key", "signature", "census", "bytes", "ledger"]
        assert all(check.passed for check in checks[:-1]), checks
        is_newest = all(later["request_id"] != receipt["request_id"] for later in receipts[number + 1 :])
        assert checks[-1].passed == is_newest, checks
        assert ("DEFERRED" in checks[-2].detail) == bool(receipt["deferred"])
    return receipts


def impatient(folder: Path) -> Settings:
    return Settings(db=str(folder / "expunge.db"), reclaim_wait_s=0.2)


async def test_a_snapshot_defers_the_reclaim_and_a_resume_settles_it(tmp_path):
    """Law 16: while a reader keeps removed pages the receipt says deferred; afterwards a follow-up says they went."""
    async with opened(impatient(tmp_path)) as expunge:
        words = await fill(expunge)
        with reading(tmp_path / "expunge.db", "snapshot") as reader:
            seen = reader.first
            answer: Any = await expunge.erase(ANN, purge=True)
            assert (answer.status, answer.residue_count) == ("completed", 0)
            assert [item["store"] for item in answer.deferred] == ["authority"]
            assert answer.receipt["deferred"] == answer.deferred
            assert holding(tmp_path, words), "the reader keeps nothing: the case is not the one that is meant"
            assert reader.again() == seen
            still = await expunge.resume(answer.request_id)
            assert (still.status, still.deferred, still.receipt) == ("completed", answer.deferred, answer.receipt)
            assert reader.again("commit") < seen
            assert len(await receipts_that_verify(expunge)) == 1
            settled: Any = await expunge.resume(answer.request_id)
            assert (settled.status, settled.deferred, settled.receipt["deferred"]) == ("completed", [], [])
            assert holding(tmp_path, words) == {}
        first, second = await receipts_that_verify(expunge)
        assert (first["deferred"], second["deferred"]) == (answer.deferred, [])
        own = {"deferred", "previous", "signature"}
        assert {k: v for k, v in first.items() if k not in own} == {k: v for k, v in second.items() if k not in own}
        ended = await everything(expunge)
        again = await expunge.resume(answer.request_id)
        assert again.receipt == settled.receipt
        assert await everything(expunge) == ended


async def test_two_resumes_settle_a_deferred_reclaim_once(tmp_path):
    """Law 16: two runners that settle the same deferred reclaim sign one follow-up, not two."""
    settings = impatient(tmp_path)
    reached, goes_on = asyncio.Event(), asyncio.Event()

    async def gate(what: str, number: int) -> None:
        if (what, number) == ("run", 2):
            reached.set()
            await goes_on.wait()

    async with opened(settings) as expunge:
        await fill(expunge)
        with reading(tmp_path / "expunge.db", "snapshot"):
            answer: Any = await expunge.erase(ANN, purge=True)
            assert answer.deferred
        async with opened(settings, await watched(settings, gate=gate)) as other:
            running = asyncio.create_task(other.resume(answer.request_id))
            await asyncio.wait_for(reached.wait(), 30)
            one = await expunge.resume(answer.request_id)
            goes_on.set()
            two = await running
        assert one.deferred == two.deferred == []
        assert [receipt["deferred"] for receipt in await receipts_that_verify(expunge)] == [answer.deferred, []]


async def test_a_later_reader_does_not_unsettle_an_erasure(tmp_path):
    """Law 16: a settled erasure that is resumed is answered as it is: a reader of today keeps none of its pages."""
    async with opened(impatient(tmp_path)) as expunge:
        words = await fill(expunge)
        answer: Any = await expunge.erase(ANN, purge=True)
        assert answer.deferred == []
        await expunge.put([episode("e<later>", DORA)])
        with reading(tmp_path / "expunge.db", "snapshot"):
            await expunge.put([episode("e<latest>", DORA)])
            assert holding(tmp_path, words) == {}
            before = await everything(expunge)
            again = await expunge.resume(answer.request_id)
            assert (again.deferred, again.receipt) == ([], answer.receipt)
            assert await everything(expunge) == before
