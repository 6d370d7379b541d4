"""Resurrection: what comes back after it was erased, by a repeat, a late writer, or a load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from expunge import Agent, Episode, Expunge, NewFact
from expunge.errors import ErasedSince, HiddenByErasure, InvalidRecords
from tests.agents.kit import ORG
from tests.field.kit import as_user, rows
from tests.support import dump, episode, fact, ids, memory

pytestmark = pytest.mark.authorities("sqlite", "postgres")

WRITES: dict[str, Callable[[Agent], Awaitable[Any]]] = {
    "set": lambda agent: agent.memory.set("k", "secret", idempotency_key="once"),
    "remember": lambda agent: agent.memory.remember(Episode(input="secret", idempotency_key="once")),
    "add_fact": lambda agent: agent.memory.add_fact(
        NewFact(subject="s", predicate="p", object="secret", idempotency_key="once")
    ),
    "update_block": lambda agent: agent.memory.update_block("b", "secret", idempotency_key="once"),
    "add_document": lambda agent: agent.memory.add_document("d", text="secret", idempotency_key="once"),
}


@pytest.mark.parametrize("name", WRITES)
async def test_a_repeat_of_a_write_brings_back_nothing_that_was_hidden_or_erased(expunge: Expunge, name: str) -> None:
    """Law 4: a retry under a key that was used before the erasure finds the record, or writes it again (23, 25).

    Hidden, it is refused; erased, a retry of work that began before is refused, and what begins afterwards is a new
    record: the first version of its key, without the edges of the old one.
    """
    write = WRITES[name]
    async with as_user(expunge) as agent:
        began = await agent.as_of()
        await write(agent)
        before = await dump(expunge)
        hidden = await expunge.erase("ann", purge=False, org=ORG)
        with pytest.raises((HiddenByErasure, InvalidRecords)):
            await write(agent)
        assert ids(await dump(expunge)) == ids(before)
        await expunge.restore(hidden.request_id, org=ORG)
        await write(agent)  # the same again: nothing is written
        assert ids(await dump(expunge)) == ids(before)
        assert await agent.memory.forget(user_id="ann") > 0
        late = agent.at()
        late._memory = agent.began(began)
        with pytest.raises(ErasedSince):
            await write(late)
        assert ids(await dump(expunge)) == set()
        await write(agent)
        back = await dump(expunge)
        assert len(ids(back)) == len(ids(before))
        assert back["lineage"] == {}
        assert await agent.memory.forget(user_id="ann") == len(ids(back))
        assert ids(await dump(expunge)) == set()


async def test_a_load_under_the_ids_of_erased_records_revives_nothing_of_them(expunge: Expunge) -> None:
    """Laws 4, 5: a bulk load with the keys of deleted rows takes their marks off (101): here they are new, or refused."""
    load = [episode("e", "ann", input="new"), memory("m", "k", "ann", value="new"), fact("f", "ann", object="new")]
    old = [
        episode("e", "ann", input="old"),
        memory("m0", "k", "ann", value="older"),
        memory("m", "k", "ann", value="old", sources=["e"]),
        fact("f", "ann", object="old", sources=["e"]),
        memory("bobs", "k", "bob"),
    ]
    await expunge.put(old)
    hidden = await expunge.erase("ann", purge=False)
    before = await dump(expunge)
    for skip_bad in (False, True):
        with pytest.raises(HiddenByErasure):
            await expunge.put(load, skip_bad=skip_bad)
    assert await dump(expunge) == before
    assert not (await expunge.profile("ann")).found
    began = await expunge.as_of()
    await expunge.restore(hidden.request_id)
    assert (await expunge.erase("ann", purge=True)).status == "completed"
    with pytest.raises(ErasedSince):
        await expunge.put(load, as_of=began)
    await expunge.put(load)
    left = await dump(expunge)
    assert (ids(left), left["lineage"]) == ({"e", "m", "f", "bobs"}, {})
    assert await rows(expunge, "SELECT version, value FROM memories WHERE id = 'm'") == [(1, '"new"')]
    assert "old" not in str({key: row for rows_ in left.values() for key, row in rows_.items() if key != "bobs"})
    assert (await expunge.call("erasure.census", request_id=hidden.request_id)).residue_count == 0
