"""What is derived while an erasure runs (law 5), with two connections to PostgreSQL that are made to meet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, MemoryDraft, Settings
from expunge.erasure.opening import open_erasure
from expunge.errors import ErasedSince
from tests.agents.kit import read
from tests.pg.writer import PATIENCE_S, Writer, begun
from tests.support import dump, episode, ids, memory, purge_order

pytestmark = pytest.mark.timeout(60)

ANN, BOB = "user<ann>", "user<bob>"
OLD, LIMIT = "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"


@pytest.fixture
def served(postgres_place: str, tmp_path: Path) -> Settings:
    return Settings(db=postgres_place, keys_file=tmp_path / "expunge.keys")


async def met(expunge: Expunge, writer: Writer, late: dict[str, Any], *users: str, **scope: Any) -> Any:
    """What an erasure answers that comes while a writer has the rows that it derives from, and waits for it."""
    try:
        writer.start(*await begun(expunge.system, late))
        assert writer.tx.stands.is_set()
        erasing = asyncio.create_task(expunge.erase(*users, **scope))
        await asyncio.to_thread(writer.stand_in_the_way, erasing.done)
        assert not erasing.done(), "the erasure did not wait for who derives"
        assert await writer.go_on() is None
        return await asyncio.wait_for(erasing, PATIENCE_S)
    finally:
        writer.close()


@pytest.mark.parametrize("batch_rows", [1, 1000])
@pytest.mark.parametrize("purge", [True, False])
async def test_what_is_derived_from_what_was_derived(served: Settings, purge: bool, batch_rows: int) -> None:
    """The summary is nobody's, so no fence is about it: the erasure waits for its row, and then looks again."""
    async with Expunge(settings=served.model_copy(update={"batch_rows": batch_rows})) as expunge:
        await expunge.put([episode("e<ann>", ANN), memory("m<sum>", "summary", sources=["e<ann>"])])
        late = memory("m<late>", "digest", sources=["m<sum>"])
        answer = await met(expunge, Writer(served.db, at="rows held"), late, ANN, purge=purge)
        assert answer.status == "completed"
        assert answer.effects["derived"] == 2
        assert await read(expunge, "SELECT id FROM memories WHERE marked = 0") == []
        assert await read(expunge, "SELECT count(*) FROM memories") == [(0 if purge else 2,)]


@pytest.mark.parametrize("purge", [True, False])
@pytest.mark.parametrize("tied", [True, False])
async def test_what_is_derived_from_what_an_erasure_takes_by_its_date(
    served: Settings, purge: bool, tied: bool
) -> None:
    """What is derived is dated later, so the fence does not keep it out: the erasure waits for the rows in scope."""
    async with Expunge(settings=served) as expunge:
        await expunge.put([episode("e<ann>", ANN, occurred_at=OLD), episode("e<bob>", BOB)])
        if tied:
            await expunge.put([memory("m<other>", "other", sources=["e<bob>"])])
        late = memory("m<late>", "digest", sources=["e<ann>"])
        # It has asked when the erasure comes, and the erasure of a date takes its scope alone: so it waits for that.
        writer = Writer(served.db, at="rows held")
        answer = await met(expunge, writer, late, ANN, purge=purge, before=LIMIT)
        assert (answer.status, answer.effects["derived"]) == ("completed", 1)
        assert await read(expunge, "SELECT id FROM memories WHERE marked = 0 AND id = 'm<late>'") == []


async def test_what_is_derived_under_the_fence_of_a_date(served: Settings) -> None:
    """The same where the writer comes after the fence was raised, and before the erasure looks."""
    async with Expunge(settings=served) as expunge:
        await expunge.put([episode("e<ann>", ANN, occurred_at=OLD)])
        order = purge_order(ANN)
        dated = expunge.system.clock.now() - 1
        scope = type(order.scope)(org="default", user_ids=(ANN,), before=dated)
        request = await open_erasure(expunge.system, type(order)(scope, scope.type, purge=True), actor="a", role="x")
        writer = Writer(served.db, at="rows held")
        try:
            updated = "2030-01-01T00:00:00Z"
            writer.start(*await begun(expunge.system, memory("m<late>", "k", sources=["e<ann>"], updated_at=updated)))
            assert writer.tx.stands.is_set()
            erasing = asyncio.create_task(expunge.resume(request.id))
            await asyncio.to_thread(writer.stand_in_the_way, erasing.done)
            assert not erasing.done()
            assert await writer.go_on() is None
            answer = await asyncio.wait_for(erasing, PATIENCE_S)
        finally:
            writer.close()
        assert (answer.status, answer.effects["derived"]) == ("completed", 1)
        assert ids(await dump(expunge)) == set()
        assert await read(expunge, "SELECT count(*) FROM lineage") == [(0,)]


async def test_a_source_that_came_back_between_two_looks_is_not_what_was_read(served: Settings) -> None:
    """A writer has found its source and not yet its row, when it is erased and another takes its id."""
    async with Expunge(settings=served) as expunge:
        await expunge.put([episode("e<ann>", ANN), memory("m<sum>", "summary", sources=["e<ann>"], value="of Ann")])
        writer = Writer(served.db, at="sources guarded")
        try:
            writer.start(*await begun(expunge.system, memory("m<two>", "digest", sources=["m<sum>"], value="of Ann")))
            assert writer.tx.stands.is_set()
            assert (await expunge.erase(ANN, purge=True)).status == "completed"
            await expunge.put([memory("m<sum>", "summary", value="of nobody")])
            assert isinstance(await writer.go_on(), ErasedSince)
        finally:
            writer.close()
        assert ids(await dump(expunge)) == {"m<sum>"}


async def test_who_waits_for_writers_keeps_nobody_else_from_writing(served: Settings) -> None:
    """An erasure that waits for the writers of its scope has nothing yet that others of the org wait for."""
    async with Expunge(settings=served) as expunge:
        await expunge.put([episode("e<ann>", ANN)])
        writer = Writer(served.db)
        try:
            writer.start(*await begun(expunge.system, episode("e<late>", ANN)))
            erasing = asyncio.create_task(expunge.erase(ANN, purge=True))
            await asyncio.to_thread(writer.stand_in_the_way, erasing.done)
            await asyncio.wait_for(expunge.put([episode("e<bob>", BOB)]), 2)
            assert not erasing.done()
            assert await writer.go_on() is None
            assert (await erasing).removed["episodes"] == 2
        finally:
            writer.close()


@pytest.mark.authorities("sqlite", "postgres")
async def test_nothing_is_made_afresh_for_somebody_whose_erasure_runs(expunge: Expunge) -> None:
    """Law 4: a summary of Bob's goes with Ann; the job to make it afresh would be written under the fence of Bob."""

    async def of_all(sources: Any) -> list[Any]:
        return [MemoryDraft([source.id for source in sources])]

    expunge.system.derivers["of_all"] = of_all
    await expunge.put([episode("e<ann>", ANN), episode("e<carl>", "user<carl>")])
    await expunge.call("jobs.add", deriver="of_all", sources=["e<ann>", "e<carl>"], user_id=BOB)
    assert (await expunge.call("jobs.run")).done == 1
    request = await open_erasure(expunge.system, purge_order(BOB), actor="a", role="operator")
    answer = await expunge.erase(ANN, purge=True)
    assert (answer.status, answer.effects["derived"]) == ("completed", 1)
    assert await read(expunge, "SELECT count(*) FROM jobs") == [(0,)]
    assert (await expunge.resume(request.id)).status == "completed"
    await expunge.call("jobs.run")
    assert ids(await dump(expunge)) == {"e<carl>"}
