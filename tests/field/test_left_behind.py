"""Left behind: what a deletion forgets although it says that all is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from expunge import Agent, Episode, Expunge, Settings
from expunge.authority.port import Statement
from expunge.model.instant import ManualClock
from tests.agents.kit import HELPER, NAMESPACE, after
from tests.eye import bytes_of
from tests.field.kit import ORG, QUESTION, SESSION, answerer, as_user, every_way_to_read, live, rows
from tests.support import dump, memory

pytestmark = pytest.mark.authorities("sqlite", "postgres")

CANARY, OTHER = "kanarienvogel", "wellensittich"
_CUT = Statement("test.cut", "DELETE FROM lineage")


@pytest.mark.parametrize("purge", [True, False], ids=["purged", "hidden"])
async def test_no_way_to_read_serves_what_is_gone(expunge: Expunge, clock: ManualClock, purge: bool) -> None:
    """Law 7: a list that is empty while the search still finds it (5). Each way is seen to work before; Bob's stay."""
    async with as_user(expunge) as ann, as_user(expunge, "bob") as bob:
        await live(ann, CANARY)
        await live(bob, OTHER)
        before = await every_way_to_read(ann, CANARY, clock)
        assert [name for name, text in before.items() if CANARY not in text and name != "profile"] == []
        bobs = await every_way_to_read(bob, OTHER, clock)
        answer = await expunge.erase("ann", purge=purge, org=ORG)
        assert answer.status == "completed"
        gone = await every_way_to_read(ann, CANARY, clock)
        assert [name for name, text in gone.items() if CANARY in text] == []
        assert "found=False" in gone["profile"]
        served = await every_way_to_read(bob, OTHER, clock)
        changing = {"export", "export, jsonl", "what a deriver is given", "profile"}
        assert {name: served[name] for name in served.keys() - changing} == {
            name: bobs[name] for name in bobs.keys() - changing
        }
        assert (await expunge.call("jobs.count", org=ORG)).jobs == {"waiting": 1}  # Bob's
        told = [await expunge.call("erasure.list", org=ORG), await expunge.call("system.doctor"), answer]
        assert CANARY not in str(told) + str((await expunge.call("ledger.export", org=ORG)).lines)
        if not purge:
            await expunge.restore(answer.request_id, org=ORG)
            back = await every_way_to_read(ann, CANARY, clock)
            assert [name for name, text in back.items() if CANARY not in text and name != "profile"] == []


async def test_every_earlier_value_goes_with_the_last(settings: Settings) -> None:
    """Law 7: values that were overwritten or deleted stay in a history or journal (9, 53): none is in any byte."""
    words = [f"{CANARY}{number}" for number in range(4)]
    async with Expunge(settings=settings, clock=ManualClock()) as expunge, as_user(expunge) as ann:
        async with as_user(expunge, "bob") as bob:
            await bob.memory.set("key", OTHER)
            await bob.memory.set("key", OTHER + " again")
        for word in words:
            await ann.memory.set("key", word)
            await ann.memory.update_block("persona", word)
            await ann.memory.add_document("Letter", text=word)
        await ann.memory.delete("key")
        await ann.memory.delete_block("persona")
        await ann.memory.delete_document("Letter")
        kept = b"".join(bytes_of(settings).values())
        assert all(word.encode() in kept for word in words)
        assert (await ann.memory.forget(user_id="ann")) == 19
        assert await ann.memory.forget(user_id="ann") == 0
        history = (await bob.memory.history("key")).versions
        assert [version.value for version in history] == [OTHER + " again", OTHER]
    left = b"".join(bytes_of(settings).values())
    assert [word for word in words if word.encode() in left] == []
    assert OTHER.encode() in left


@pytest.mark.parametrize("part", ["org", "user_id", "namespace", "agent", "session_id"])
async def test_who_comes_again_under_the_same_id_inherits_nothing(expunge: Expunge, part: str) -> None:
    """Law 7: a purge that leaves the full-text index lets the next owner of the id find the old words (11)."""
    mine: dict[str, Any] = {"user_id": "ann", "namespace": "n", "agent": "a", "session_id": "s"}
    org = ORG if part == "org" else "default"
    scopes: dict[str, Callable[[], Awaitable[Any]]] = {
        "org": lambda: expunge.erase(whole_org=True, purge=True, org=org),
        "user_id": lambda: expunge.erase("ann", purge=True),
        "namespace": lambda: expunge.erase(namespaces=["n"], purge=True),
        "agent": lambda: expunge.erase(agent="a", purge=True),
        "session_id": lambda: expunge.erase(session_id="s", purge=True),
    }
    async with Agent(expunge, org=org, **mine) as before, Agent(expunge, org="bystander", **mine) as other:
        for agent, word in ((before, CANARY), (other, OTHER)):
            await agent.memory.set("k", f"the {word} of before")
            await agent.memory.add_document("D", text=f"the {word} of before")
        answer = await scopes[part]()
        assert (answer.status, answer.found) == ("completed", True)
        assert (await scopes[part]()).found is False
        await before.memory.set("again", "new words")
        kinds: Any = ["episodes", "memories", "facts", "chunks"]
        for alpha in (0.0, 0.5, 1.0):
            found = await before.memory.search(f"the {CANARY} of before", kinds=kinds, alpha=alpha)
            assert [hit.text for hit in found if hit.text != "new words"] == []
            there = await other.memory.search(f"the {OTHER} of before", kinds=kinds, alpha=alpha)
            assert {hit.collection for hit in there} == {"memories", "chunks"}
        assert [hit.text for hit in await before.memory.search("", kinds=kinds)] == ["new words"]
    entries = "SELECT (SELECT count(*) FROM search_docsize), (SELECT count(*) FROM vectors)"
    assert await rows(expunge, entries) == [(3, 3)]


WAYS: dict[str, dict[str, Any]] = {
    "a user": {"users": ("ann",)},
    "a session": {"session_id": SESSION},
    "a namespace": {"namespaces": [NAMESPACE]},
    "an agent": {"agent": HELPER},
    "what is older": {"users": ("ann",), "before": after(seconds=1)},
    "the org": {"whole_org": True},
}


@pytest.mark.parametrize("purge", [True, False], ids=["purged", "hidden"])
@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_erase_clears_the_answers_that_were_kept(
    expunge: Expunge, clock: ManualClock, way: str, purge: bool
) -> None:
    """Law 6: one way to delete clears the cache of answers and another does not (7)."""
    async with as_user(expunge) as ann, as_user(expunge, "bob", namespace="elsewhere", agent="another") as bob:
        for agent, word in ((ann, CANARY), (bob, OTHER)):
            session = SESSION if agent is ann else "s2"
            await agent.memory.remember(Episode(input=f"it was said: {word}", session_id=session))
            assert not (await agent.memory.ask(QUESTION, answerer)).cached
            assert (await agent.memory.ask(QUESTION, answerer)).cached
        clock.advance(2)
        scope = dict(WAYS[way])
        answer = await expunge.erase(*scope.pop("users", ()), purge=purge, org=ORG, **scope)
        assert answer.status == "completed"
        asked = await ann.memory.ask(QUESTION, answerer)
        assert (asked.cached, asked.text) == (False, "")
        theirs = await bob.memory.ask(QUESTION, answerer)
        assert (theirs.cached, OTHER in theirs.text) == ((False, False) if way == "the org" else (True, True))


async def test_a_private_block_goes_and_a_shared_one_stays(expunge: Expunge) -> None:
    """Law 10: the blocks of an agent that was deleted stay (21). Its own go, with theirs of its users; shared stay."""
    async with as_user(expunge) as ann:
        await ann.memory.update_block("private", CANARY)
        await ann.memory.update_block("shared", OTHER, agent=None)
        await ann.memory.update_block("of another", OTHER, agent="another")
        answer = await expunge.erase(agent=HELPER, purge=True, org=ORG)
        assert (answer.status, answer.removed["blocks"]) == ("completed", 1)
        assert await ann.memory.working() == []
        assert [block.name for block in await ann.memory.working(agent=None)] == ["shared"]
        assert [block.name for block in await ann.memory.working(agent="another")] == ["of another"]
        assert (await expunge.erase(agent=HELPER, purge=True, org=ORG)).found is False


async def test_a_record_whose_edge_was_lost_is_no_bystander_of_its_owner(expunge: Expunge) -> None:
    """Law 7: what only the edges reach is missed where an edge is missing (17): what names its owner goes by that."""
    await expunge.put(
        [
            memory("source", "k", "ann"),
            memory("hers", "sum", "ann", sources=["source"]),
            memory("bobs", "k", "bob"),
        ]
    )
    await expunge.system.authority.run(lambda tx: tx.change(_CUT))
    answer = await expunge.erase("ann", purge=True)
    assert (answer.status, answer.removed["memories"]) == ("completed", 2)
    assert set((await dump(expunge))["memories"]) == {"bobs"}
