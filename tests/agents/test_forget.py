"""Forgetting: the saga with purge, from an agent's hand."""

from __future__ import annotations

from typing import Any

import pytest

from expunge import Agent, Episode, Expunge, Message, NewFact
from expunge.errors import ForgetFailed, InputError, InvalidScope
from expunge.model.instant import ManualClock
from tests.agents.kit import DAY_S, NAIVE, ORG, after, as_user, count, hold, is_verified, objects, read, texts
from tests.support import dump

pytestmark = pytest.mark.authorities("sqlite", "postgres")

RECORDS = ("sessions", "episodes", "events", "memories", "facts", "blocks", "documents", "chunks", "answers", "jobs")


async def answerer(question: str, hits: Any) -> str:
    return f"{question} {len(hits)}"


async def a_life(agent: Agent) -> int:
    """One or more of all that an agent writes; how many records that is."""
    memory = agent.memory
    said = await memory.remember(
        Episode(input="I like rain", session_id="s1", transcript=[Message(role="tool", content="rain")])
    )
    await memory.set("k", "rain")
    await memory.set("k", "rain again")
    await memory.delete("k")
    await memory.derive("sum", "rain", sources=[said])
    await memory.add_fact(NewFact(subject="user", predicate="likes", object="rain", sources=[said]))
    await memory.update_block("persona", "likes rain")
    await memory.add_document("Rain", text="rain " * 10)
    await memory.ask("What rain?", answerer)
    who: dict[str, Any] = {"org": ORG, "namespace": "support", "agent": "helper", "user_id": agent.identity.user_id}
    await agent.expunge.call("jobs.add", deriver="nobody", sources=[said], **who)
    return 13


async def test_a_user_is_forgotten_in_everything(expunge: Expunge) -> None:
    """Laws 7, 10: every collection ends at zero with a receipt that verifies; bystanders are as they were."""
    async with as_user(expunge, "bob") as bob:
        await a_life(bob)
        alone = await dump(expunge)
        async with as_user(expunge) as agent:
            records = await a_life(agent)
            assert all((await count(expunge, *RECORDS)).values())
            gone = await agent.memory.forget(user_id="ann")
        assert isinstance(gone, int)
        assert gone == records
        assert sum(n for name, n in gone.by_collection.items() if name in RECORDS) == records
        assert gone.by_collection["memories"] == 4
        assert {name for name in RECORDS if gone.by_collection.get(name)} == set(RECORDS)
        assert gone.receipt["request_id"] == gone.request_id
        assert set(gone.receipt["census"].values()) == {0}
        assert is_verified(expunge, gone.receipt)
        assert not is_verified(expunge, gone.receipt | {"org": "other"})
        assert await dump(expunge) == alone
        profile = await bob.memory.profile()
        assert (profile.found, profile.counts["episodes"]) == (True, 1)
        assert not (await bob.memory.profile("ann")).found
        assert gone + 1 == records + 1  # it is a number like any other


@pytest.mark.authorities("memory", "postgres")
async def test_forgetting_twice_is_nothing_found(expunge: Expunge) -> None:
    """Law 16: an unknown user is nothing found: 0, with a receipt that says so."""
    async with as_user(expunge) as agent:
        await agent.memory.set("k", 1)
        for user, went in (("nobody", 0), ("ann", 1), ("ann", 0), ("-x", 0)):
            gone = await agent.memory.forget(user_id=user)
            assert gone == went
            assert bool(gone) is bool(went)
            assert gone.by_collection == ({"memories": 1} if went else {})
            assert is_verified(expunge, gone.receipt)
        assert (await agent.memory.set("k", 2)).version == 1


@pytest.mark.authorities("memory", "postgres")
async def test_nobody_is_assumed(expunge: Expunge) -> None:
    """Bad input: somebody has to be named, also by an agent that is bound to a user; nothing goes."""
    async with as_user(expunge, session_id="s1") as agent:
        await agent.memory.set("k", 1)
        wrong: list[dict[str, Any]] = [
            {},
            {"before": after(days=-1)},
            {"user_id": None, "session_id": None},
            {"user_id": ""},
            {"user_id": "-"},
            {"user_id": 7},
            {"user_id": ["ann"]},
            {"session_id": "a\0b"},
            {"user_id": "ann", "before": NAIVE},
            {"user_id": "ann", "before": 7},
            {"user_id": "ann", "before": after(days=1)},  # it lies in the future
        ]
        for options in wrong:
            with pytest.raises(InputError):
                await agent.memory.forget(**options)
        with pytest.raises(InvalidScope):
            await agent.memory.forget()
        assert (await agent.memory.get("k")).found
        assert (await agent.erasure.list()).erasures == []
        async with Agent(expunge) as unbound:
            with pytest.raises(InvalidScope):
                await unbound.memory.profile()


@pytest.mark.authorities("memory", "postgres")
async def test_a_session_is_forgotten_as_the_design_says(expunge: Expunge) -> None:
    """Design 4: a session goes with its episodes, what retires with any of them, and facts of them alone."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        first = await memory.remember(
            Episode(input="one", session_id="s1", transcript=[Message(role="tool", content="x")])
        )
        second = await memory.remember(Episode(input="two", session_id="s2"))
        await memory.set("in it", "x", session_id="s1")
        await memory.derive("both", "x", sources=[first, second])
        await memory.derive("of two", "x", sources=[second])
        await memory.add_document("in it", text="x", session_id="s1")
        for number, sources in enumerate(([first], [first, second], [second], [])):
            fact = NewFact(subject="s", predicate=f"p{number}", object=f"f{number}", sources=sources)
            await memory.add_fact(fact)
        await memory.add_fact(NewFact(subject="s", predicate="p9", object="noted there"), session_id="s1")
        await memory.update_block("made", "x", sources=[first])
        await memory.update_block("noted", "x", session_id="s1")
        gone = await memory.forget(session_id="s1")
        expected = {"sessions": 1, "episodes": 1, "events": 1, "memories": 2, "facts": 1, "blocks": 1, "documents": 1}
        assert {name: n for name, n in gone.by_collection.items() if name in RECORDS} == expected | {"chunks": 1}
        assert gone.receipt["scope"]["type"] == "session"
        assert gone.receipt["effects"]["detached"] == 1
        assert objects(await memory.facts()) == {"f1", "f2", "f3", "noted there"}
        assert await memory.working() == []
        assert [block.name for block in await memory.working(session_id="s1")] == ["noted"]
        assert not (await memory.get("both")).found
        assert (await memory.get("of two")).found
        assert [item.session_id for item in (await memory.sessions()).sessions] == ["s2"]
        assert texts(await memory.recall("")) == ["two"]


@pytest.mark.authorities("memory", "postgres")
async def test_before_is_strict(expunge: Expunge, clock: ManualClock) -> None:
    """Design 4: ``before`` compares each collection's declared time, strictly; what is dated later stays."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        for number in range(3):
            await memory.remember(Episode(input=f"e{number}"))
            await memory.set(f"m{number}", number)
            await memory.update_block("b", str(number))
            fact = NewFact(subject="s", predicate=f"p{number}", object=f"f{number}", valid_from=after(days=-100))
            await memory.add_fact(fact)
            clock.advance(60)
        await memory.remember(Episode(input="of old", occurred_at=after(days=-9)))
        gone = await memory.forget(user_id="ann", before=after(seconds=60))
        assert gone.by_collection == {"episodes": 2, "memories": 1, "facts": 1, "blocks": 1}
        assert sorted(texts(await memory.recall(""))) == ["e1", "e2"]
        assert [(await memory.get(f"m{number}")).found for number in range(3)] == [False, True, True]
        assert objects(await memory.facts()) == {"f1", "f2"}
        assert [(block.content, block.version) for block in await memory.working()] == [("2", 3)]
        assert (await memory.forget(user_id="ann", before=after(seconds=60))) == 0


@pytest.mark.authorities("memory", "postgres")
async def test_before_gives_back_what_it_had_ended(expunge: Expunge, clock: ManualClock) -> None:
    """Law 10: a fact that was learned later and holds again is an effect, and is counted without lineage too."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.add_fact(NewFact(subject="s", predicate="p", object="later truth", valid_from=after(days=-5)))
        clock.advance(60)
        await memory.add_fact(NewFact(subject="s", predicate="p", object="older truth", valid_from=after(days=-9)))
        assert objects(await memory.facts()) == {"later truth"}
        gone = await memory.forget(user_id="ann", before=after(seconds=60))
        assert objects(await memory.facts()) == {"older truth"}
        assert gone.receipt["effects"]["revived"] == 1


@pytest.mark.authorities("memory", "postgres")
async def test_a_namespace_is_not_left(expunge: Expunge) -> None:
    """An agent that is bound to a namespace forgets and profiles there; one that is bound to none, everywhere."""
    async with as_user(expunge) as agent, as_user(expunge, namespace=None) as unbound:
        for namespace in ("support", "sales", None):
            await agent.memory.remember(Episode(input=str(namespace), session_id="s1"), namespace=namespace)
        assert (await agent.memory.profile()).counts["episodes"] == 1
        assert (await unbound.memory.profile()).counts["episodes"] == 3
        assert (await agent.memory.forget(user_id="ann")) == 2
        assert await agent.memory.recall("") == []
        assert len(await unbound.memory.recall("", namespace="sales")) == 1
        assert (await agent.memory.forget(session_id="s1")) == 0
        gone = await unbound.memory.forget(user_id="ann")
        assert gone == 4
        assert not (await unbound.memory.profile()).found


@pytest.mark.authorities("memory", "postgres")
async def test_another_org_is_not_touched(expunge: Expunge) -> None:
    """Law 12: the same user, session and keys in another org stay as they are."""
    async with as_user(expunge) as agent, as_user(expunge, org="umbrella") as other:
        for one in (agent, other):
            await one.memory.remember(Episode(id="e1", input="x", session_id="s1"))
            await one.memory.set("k", 1, idempotency_key="i")
        assert (await agent.memory.forget(user_id="ann", session_id="s1")) == 2
        assert (await agent.memory.forget(user_id="ann")) == 1
        assert len(await other.memory.recall("x")) == 1
        assert (await other.memory.get("k")).found


@pytest.mark.authorities("memory", "postgres")
async def test_what_is_held_is_not_called_forgotten(expunge: Expunge) -> None:
    """Laws 8, 16: where a hold stops the erasure nothing is called forgotten, and nothing goes."""
    async with as_user(expunge) as agent:
        await agent.memory.set("k", 1)
        await agent.memory.set("k", 1, user_id="bob")
        await hold(expunge, "ann")
        with pytest.raises(ForgetFailed) as caught:
            await agent.memory.forget(user_id="ann")
        assert "ann" not in str(caught.value)
        status = await agent.erasure.status(caught.value.data["request_id"])
        assert status.status == "blocked"
        assert (await agent.memory.get("k")).found
        assert (await agent.memory.forget(user_id="bob")) == 1


@pytest.mark.authorities("memory", "postgres")
async def test_who_comes_back_is_a_new_person(expunge: Expunge, clock: ManualClock) -> None:
    """Design 5: what is written after a forget stays, counted again or not; ids and keys may be used again."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        episode = Episode(id="e1", input="x", session_id="s1")
        requests = []
        for _ in range(2):
            await memory.remember(episode)
            written = await memory.set("k", "v", idempotency_key="i1")
            assert (written.version, written.replayed) == (1, False)
            gone = await memory.forget(user_id="ann")
            assert gone == 3
            requests.append(gone.request_id)
            clock.advance(60)
        await memory.remember(episode)
        again = await expunge.call("erasure.census", org=ORG, request_id=requests[-1])
        assert again.residue_count == 0
        assert len(await memory.recall("x")) == 1


@pytest.mark.authorities("memory", "postgres")
async def test_hidden_for_14_days_then_gone(expunge: Expunge, clock: ManualClock) -> None:
    """Design 4: without purge a user is hidden, and goes when the window ends; forget does not wait for it."""
    async with as_user(expunge) as agent:
        await agent.memory.set("k", 1)
        await agent.memory.set("k", 1, user_id="bob")
        hidden = await agent.erasure.request_user_id("ann", requester="ann")
        assert (hidden.hidden["memories"], hidden.removed["memories"]) == (1, 0)
        clock.advance(14 * DAY_S + 1)
        await expunge.call("erasure.resume_due")
        assert (await agent.erasure.status(hidden.request_id)).removed["memories"] == 1
        hidden = await agent.erasure.request_user_id("bob")
        assert (await agent.memory.forget(user_id="bob")) == 1
        assert await count(expunge, "memories") == {"memories": 0}


@pytest.mark.authorities("memory", "postgres")
async def test_an_erasure_by_the_agent_that_is_erased(expunge: Expunge) -> None:
    """Law 4, issue 4: a person may forget themselves inside of their own run: nothing of it is left, nor comes back."""
    async with as_user(expunge) as agent:
        agent.memory.auto_extract()
        async with agent.memory.run("I like rain, and forget me", session_id="s1") as run:
            await run.memory.set("k", "rain")
            gone = await run.memory.forget(user_id="ann")
        assert run.state == "erased"
        assert gone >= 3
        await agent.drain()
        assert set((await count(expunge, *RECORDS, "search_docsize", "vectors")).values()) == {0}
        ((fences,),) = await read(expunge, "SELECT count(*) FROM fences WHERE lowered_seq IS NULL")
        assert fences == 0
        assert (await agent.memory.set("k", "welcome back")).version == 1
