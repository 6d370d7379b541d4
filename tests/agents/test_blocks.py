"""Blocks: an agent's working memory, in order and in versions."""

from __future__ import annotations

import pytest

from expunge import Episode, Expunge
from expunge.errors import IdempotencyConflict, InputError
from expunge.model.instant import ManualClock
from tests.agents.kit import as_user, count, read

pytestmark = pytest.mark.authorities("sqlite", "postgres")

NAMES = ["persona", "goals", "a", "b"]


@pytest.mark.authorities("memory", "postgres")
async def test_blocks_stand_in_their_order(expunge: Expunge) -> None:
    """Issue 4: blocks are ordered: those with a number by it, the others by name; an edit keeps its place."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        for name, order in (("b", None), ("goals", 7), ("persona", 0), ("a", None)):
            await memory.update_block(name, f"the {name}", pinned_order=order)
        await memory.update_block("persona", "theirs", user_id="bob")
        assert [block.name for block in await memory.working()] == NAMES
        await memory.update_block("goals", "new")
        assert [block.name for block in await memory.working()] == NAMES
        moved = await memory.update_block("persona", "last", pinned_order=9)
        assert (moved.version, moved.pinned_order) == (2, 9)
        found = await memory.working()
        assert [(block.name, block.content) for block in found] == [
            ("goals", "new"),
            ("persona", "last"),
            ("a", "the a"),
            ("b", "the b"),
        ]
        assert [block.content for block in await memory.working(user_id="bob")] == ["theirs"]


async def test_blocks_are_durable_and_versioned(expunge: Expunge, clock: ManualClock) -> None:
    """A block's versions stand in the database; a deleted one is not served, and can be written anew."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        assert (await memory.update_block("k", "one", pinned_order=3)).version == 1
        clock.advance(-60)
        assert (await memory.append_block("k", " two")).content == "one two"
        assert (await memory.append_block("fresh", "begun")).content == "begun"
        assert await memory.delete_block("k")
        assert not await memory.delete_block("k")
        assert not await memory.delete_block("none")
        assert [block.name for block in await memory.working()] == ["fresh"]
        again = await memory.update_block("k", "")
        assert (again.version, again.content, again.pinned_order) == (4, "", None)
    stored = await read(expunge, "SELECT version, content, state FROM blocks WHERE name = 'k' ORDER BY version")
    assert stored == [(1, "one", "live"), (2, "one two", "live"), (3, None, "tombstoned"), (4, "", "live")]


@pytest.mark.authorities("memory", "postgres")
async def test_an_appended_block_rests_on_all_of_it(expunge: Expunge) -> None:
    """Law 5: what was added to a block rests on what the whole rests on: with the source's user it goes."""
    async with as_user(expunge, None) as agent:
        memory = agent.memory
        said = await memory.remember(Episode(input="secret of bob"), user_id="bob")
        heard = await memory.remember(Episode(input="word of carl"), user_id="carl")
        await memory.update_block("notes", "of bob", sources=[said])
        await memory.append_block("notes", ", and more")
        await memory.append_block("notes", ", of carl", sources=[heard])
        await memory.update_block("plain", "of nobody")
        await memory.update_block("plain", "of bob", sources=[said])
        assert (await memory.forget(user_id="bob")) == 5  # the episode, three versions of notes, one of plain
        found = await memory.working()
        assert [(block.name, block.content) for block in found] == [("plain", "of nobody")]
        assert await count(expunge, "blocks", "lineage") == {"blocks": 1, "lineage": 0}


@pytest.mark.authorities("memory", "postgres")
async def test_a_block_outlives_its_session(expunge: Expunge) -> None:
    """Design 4: blocks stay when a session is erased, unless they were made from what was said there."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        said = await memory.remember(Episode(input="x", session_id="s1"))
        await memory.update_block("stays", "written there", session_id="s1")
        await memory.update_block("goes", "made from it", sources=[said])
        await memory.forget(session_id="s1")
        assert [block.name for block in await memory.working()] == []
        assert [block.name for block in await memory.working(session_id="s1")] == ["stays"]


@pytest.mark.authorities("memory", "postgres")
async def test_a_block_is_written_once(expunge: Expunge) -> None:
    """Law 16: a repeat with an idempotency key adds nothing; another write under it is a conflict."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.update_block("k", "one", idempotency_key="i1")
        added = [await memory.append_block("k", " two", idempotency_key="i2") for _ in range(2)]
        assert [(block.version, block.content) for block in added] == [(2, "one two")] * 2
        assert (await memory.update_block("k", "one", idempotency_key="i1")).version == 1
        assert [block.content for block in await memory.working()] == ["one two"]
        with pytest.raises(IdempotencyConflict):
            await memory.update_block("k", "something else", idempotency_key="i1")
        with pytest.raises(IdempotencyConflict):
            await memory.update_block("l", "one", idempotency_key="i1")


@pytest.mark.authorities("memory", "postgres")
async def test_a_block_grows_no_further_than_a_value(expunge: Expunge) -> None:
    """Bad input: a limit is a limit, whether it is reached at once or by adding; nothing is cut off."""
    async with as_user(expunge) as agent:
        most = expunge.settings.max_value_bytes
        with pytest.raises(InputError):
            await agent.memory.update_block("k", "x" * (most + 1))
        await agent.memory.update_block("k", "x" * most)
        with pytest.raises(InputError):
            await agent.memory.append_block("k", "x")
        (block,) = await agent.memory.working()
        assert len(block.content) == most


@pytest.mark.authorities("memory", "postgres")
async def test_hidden_blocks_are_not_served(expunge: Expunge) -> None:
    """Law 6: a hidden block is not served; when only its newest version is, the one before it stands."""
    async with as_user(expunge) as agent:
        said = await agent.memory.remember(Episode(input="x"), user_id="bob")
        await agent.memory.update_block("k", "one")
        await agent.memory.update_block("k", "two", sources=[said])
        hidden = await agent.erasure.request("bob")
        assert [block.content for block in await agent.memory.working()] == ["one"]
        await agent.erasure.restore(hidden.request_id)
        assert [block.content for block in await agent.memory.working()] == ["two"]
