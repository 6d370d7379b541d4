"""The guard on PostgreSQL: what each weaker one would let through, shown with a real server, and that ours does not.

Two orders of two connections are made to happen, none is hoped for: the writer asks while an erasure has raised its
fence and has not committed it, or the writer has asked and is about to write when an erasure comes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from expunge import Settings
from expunge.authority.fences import fences_of, refuse, values_of
from expunge.authority.port import GuardKey
from expunge.authority.postgres.locks import _by_org, _hash
from expunge.authority.postgres.spelling import spelled
from expunge.errors import ErasedSince, ErasureInProgress
from tests.agents.kit import read
from tests.crash.kit import opened, watched
from tests.pg.writer import PATIENCE_S, Standing, Writer, begun
from tests.support import memory

pytestmark = pytest.mark.timeout(60)

ANN = "user<ann>"
LATE = memory("m<late>", "likes", ANN, value="late words")


class AtRepeatableRead(Standing):
    """All that the transaction sees is of its first statement, which was before it waited for the lock."""

    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ"


class WithoutLock(Standing):
    """The fences are read, and no erasure waits for the unit that has read them."""

    def check(self, keys: list[GuardKey], as_of: int) -> None:
        for key in keys:
            refuse(self.rows(fences_of(len(key.parts[0])), **values_of(key, as_of)))


class InOneStatement(Standing):
    """The lock is taken and the fences are read by one statement, which sees what was there before it waited."""

    def check(self, keys: list[GuardKey], as_of: int) -> None:
        for key in keys:
            ((org, stripes),) = _by_org([key]).items()
            text = f"""WITH locks AS MATERIALIZED (
                SELECT count(pg_advisory_xact_lock_shared(%(org_hash)s::int, k)) AS taken
                FROM unnest(%(stripes)s::int[]) AS k)
            SELECT f.* FROM locks CROSS JOIN LATERAL ({spelled(fences_of(len(key.parts[0])))} OFFSET 0) f
            WHERE locks.taken > 0"""
            values = values_of(key, as_of) | {"org_hash": _hash(org) - (1 << 31), "stripes": sorted(stripes)}
            refuse(self._sending.rows(text, values))


async def past_the_fence(expunge: Any) -> list[Any]:
    """What is there of Ann and older than her fence."""
    text = "SELECT id FROM memories WHERE user_id = :user AND seq < (SELECT max(lowered_seq) FROM fences)"
    return [name for (name,) in await read(expunge, text, user=ANN)]


@pytest.fixture
def served(postgres_place: str, tmp_path: Path) -> Settings:
    return Settings(db=postgres_place, keys_file=tmp_path / "expunge.keys")


@pytest.mark.parametrize(
    ("kind", "leaks"), [(InOneStatement, True), (AtRepeatableRead, True), (WithoutLock, True), (Standing, False)]
)
async def test_who_asks_while_a_fence_is_raised(served: Settings, kind: type[Standing], leaks: bool) -> None:
    """Law 4: the fence that a writer has waited for is seen by its guard, and by none that read before it waited."""
    authority = await watched(served)
    async with opened(served, authority) as expunge:
        await expunge.put([memory("m<early>", "likes", ANN)])
        batch, unit = await begun(expunge.system, LATE)
        writer = Writer(served.db, kind)
        waited: list[bool] = []

        def raised(what: str, number: int, when: str) -> None:
            if (what, number, when) == ("run", 1, "before"):  # the fence is up, and not committed
                writer.start(batch, unit)
                waited.append(writer.waits())

        authority._begun.clear()
        authority.watch = raised
        try:
            answer = await expunge.erase(ANN, purge=True)
            refusal = await writer.go_on()
        finally:
            writer.close()
        assert waited == [kind is not WithoutLock]
        assert (answer.status, answer.residue_count) == ("completed", 0)
        assert await past_the_fence(expunge) == (["m<late>"] if leaks else [])
        assert isinstance(refusal, (ErasureInProgress, ErasedSince)) is not leaks, refusal


@pytest.mark.parametrize(
    ("kind", "leaks"), [(InOneStatement, False), (AtRepeatableRead, False), (WithoutLock, True), (Standing, False)]
)
async def test_who_has_asked_before_a_fence_is_raised(served: Settings, kind: type[Standing], leaks: bool) -> None:
    """Law 4: an erasure waits for who was let through, and then finds what they wrote; where nothing holds it, not."""
    authority = await watched(served)
    async with opened(served, authority) as expunge:
        await expunge.put([memory("m<early>", "likes", ANN)])
        writer = Writer(served.db, kind)
        try:
            writer.start(*await begun(expunge.system, LATE))
            assert writer.tx.stands.is_set()
            erasing = asyncio.create_task(expunge.erase(ANN, purge=True))
            await asyncio.to_thread(writer.stand_in_the_way, erasing.done)
            assert erasing.done() is (kind is WithoutLock)
            assert await writer.go_on() is None
            answer = await asyncio.wait_for(erasing, PATIENCE_S)
        finally:
            writer.close()
        assert (answer.status, answer.residue_count) == ("completed", 0)
        assert answer.removed["memories"] == (1 if leaks else 2)
        assert await past_the_fence(expunge) == (["m<late>"] if leaks else [])
