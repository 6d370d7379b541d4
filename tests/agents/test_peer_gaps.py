"""The faults that were measured at a peer, D5 to D11, what it leaves you with (G1 to G4), and its queue.

``test_peer_faults.py`` has those before, ``tests/crash/test_agent_races.py`` the long races and the kills.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from expunge import Episode, Expunge, FactDraft, Message, NewFact, Settings, Source, digest
from expunge.errors import (
    ErasedSince,
    ForgetFailed,
    InvalidRecords,
    InvalidScope,
    UnknownRun,
)
from expunge.model.instant import ManualClock
from expunge.stores.faulty import Fault, Faulty
from expunge.stores.memory import MemoryStore
from tests.agents.kit import DAY_S, ORG, after, as_user, change, count, is_verified, read, texts
from tests.agents.peer import INDEX, OTHER, RECORDS, REFUSED, WORD, Extractor, fill, leftovers, of_user
from tests.crash.kit import in_child
from tests.eye import changed
from tests.support import dump

pytestmark = pytest.mark.authorities("sqlite", "postgres")

# --- D5: the same name elsewhere


async def test_d5_two_orgs_with_the_same_names(expunge: Expunge) -> None:
    """Law 10: the same user, session, keys and ids of another org, or of another namespace, stay byte-equal."""

    def rows(dumped: dict[str, dict[str, tuple[Any, ...]]]) -> set[tuple[Any, ...]]:
        return {row for name, found in dumped.items() if name != "lineage" for row in found.values()}

    places = [(ORG, "support"), ("umbrella", "support"), (ORG, "sales")]
    agents = [as_user(expunge, f"{WORD}-user", org=org, namespace=namespace) for org, namespace in places]
    async with contextlib.AsyncExitStack() as stack:
        for agent in agents:
            await stack.enter_async_context(agent)
        one, *others = agents
        for agent in others:
            await fill(agent, WORD)
        before = rows(await dump(expunge))
        profiles = [await agent.memory.profile() for agent in others]
        facts = [await agent.memory.facts(subject=WORD) for agent in others]
        await fill(one, WORD)
        found = await one.memory.profile()
        assert found.counts == profiles[0].counts
        gone = await one.memory.forget(user_id=f"{WORD}-user")
        assert {name: gone.by_collection.get(name, 0) for name in found.counts} == found.counts
        assert rows(await dump(expunge)) == before
        assert [await agent.memory.profile() for agent in others] == profiles
        assert [await agent.memory.facts(subject=WORD) for agent in others] == facts
        assert not (await one.memory.profile()).found
        assert (await one.memory.forget(session_id=f"{WORD}-session")) == 0
        assert rows(await dump(expunge)) == before
        for agent in others:  # and what was kept can still be found, read, and forgotten
            assert texts(await agent.memory.recall(WORD))
            assert (await agent.memory.forget(user_id=f"{WORD}-user")) == gone


# --- D6: too much of one user (the 40,000 episodes are in tests/crash/test_agent_races.py)


async def test_d6_more_than_one_commit_can_take(settings: Settings) -> None:
    """Law 11: a user of many batches goes whole, and profile, preview and answer count the same."""
    settings = changed(settings, batch_rows=7)
    async with Expunge(settings=settings) as expunge, as_user(expunge, f"{WORD}-user") as agent:
        await fill(agent, OTHER)
        others = (await agent.memory.profile(f"{OTHER}-user")).counts
        await fill(agent, WORD)
        await agent.memory.remember_many(Episode(input=f"{WORD} {number}", session_id="s") for number in range(300))
        held = (await agent.memory.profile()).counts
        planned = (await agent.erasure.preview(f"{WORD}-user")).goes
        gone = await agent.memory.forget(user_id=f"{WORD}-user")
        removed = {name: gone.by_collection.get(name, 0) for name in held}
        assert removed == held == {name: counts["direct"] + counts["derived"] for name, counts in planned.items()}
        assert await of_user(expunge, f"{WORD}-user") == {}
        assert (await agent.memory.profile(f"{OTHER}-user")).counts == others


# --- D7: half an erasure


async def test_d7_a_forget_that_stops_short_is_no_success(settings: Settings, clock: ManualClock) -> None:
    """Law 16: a store that does not give up its bodies fails the forget; nothing is served, and a resume ends it."""
    store = Faulty(MemoryStore("originals", frozenset({"documents"})), Fault.RAISES)
    async with (
        Expunge(settings=settings, clock=clock, bodies=store) as expunge,
        as_user(expunge, f"{WORD}-user") as agent,
    ):
        memory = agent.memory
        await fill(agent, OTHER)
        await fill(agent, WORD)
        kept = await of_user(expunge, f"{OTHER}-user")
        with pytest.raises(ForgetFailed) as failed:
            await memory.forget(user_id=f"{WORD}-user")
        request_id = failed.value.data["request_id"]
        assert (await agent.erasure.status(request_id)).status == "failed"
        for found in (
            await memory.recall(WORD),
            await memory.recall_facts(WORD),
            await memory.search(WORD),
            await memory.working(),
            (await memory.documents()).documents,
            (await memory.sessions()).sessions,
        ):
            assert found == []
        assert not (await memory.profile()).found
        store.heal()
        ended = await agent.erasure.resume(request_id)
        assert (ended.status, ended.residue_count) == ("completed", 0)
        assert is_verified(expunge, ended.receipts[0])
        assert await of_user(expunge, f"{WORD}-user") == {}
        assert await of_user(expunge, f"{OTHER}-user") == kept
        assert (await agent.erasure.resume(request_id)).receipt == ended.receipt
        assert (await memory.forget(user_id=f"{WORD}-user")) == 0


# --- D8: the record of the request


async def test_d8_the_record_of_a_forget_is_about_whom_it_was(expunge: Expunge) -> None:
    """Law 2 and 14: a forget leaves an intent and an end, found by whom it was about, and neither name nor word."""
    async with as_user(expunge, f"{WORD}-user") as agent:
        await fill(agent, WORD)
        gone = await agent.memory.forget(user_id=f"{WORD}-user")
        (pseudonym,) = (value for name, value in gone.receipt["scope"]["pseudonyms"].items() if name == "user_id")
        audit = await read(
            expunge,
            """SELECT text_in(body, 'operation'), text_in(body, 'outcome'), text_in(body, 'subjects')
            FROM audit WHERE org = :org AND text_in(body, 'request_id') = :id ORDER BY n""",
            org=ORG, id=gone.request_id,
        )  # fmt: skip
        assert [row[1] for row in audit] == ["intent", "completed"]
        assert all(pseudonym in str(row[2]) for row in audit)
        assert [item.request_id for item in (await agent.erasure.list(user_id=f"{WORD}-user")).erasures] == [
            gone.request_id
        ]
        assert (await agent.erasure.list(user_id=f"{OTHER}-user")).erasures == []
        assert is_verified(expunge, gone.receipt)
        assert not is_verified(expunge, gone.receipt | {"org": "other"})
        assert not is_verified(expunge, gone.receipt | {"removed": gone.receipt["removed"] | {"facts": 0}})
        assert leftovers(expunge.settings, [WORD]) == {"files": {}, "columns": {}}


# --- D9: who asks in a run of their own


@pytest.mark.authorities("memory", "postgres")
@pytest.mark.parametrize("end", ["finish", "leave", "raise", "remember", "set", "fact", "derive"])
async def test_d9_who_asks_to_be_forgotten_in_their_own_run(expunge: Expunge, end: str) -> None:
    """Law 4: the run in which somebody asks to be forgotten goes with them, and writes nothing after it."""
    async with as_user(expunge) as agent:
        agent.memory.auto_extract()
        await agent.memory.remember(Episode(input=OTHER), user_id="bob")
        await agent.drain()
        before = await dump(expunge)
        first = await agent.memory.remember(Episode(input=f"I live in {WORD}.", session_id="s"))
        refused: list[type[BaseException]] = [*REFUSED, UnknownRun, InvalidRecords]
        writes: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "finish": lambda run: run.finish(f"forgotten {WORD}", transcript=[Message(role="tool", content=WORD)]),
            "remember": lambda run: run.memory.remember(Episode(input=WORD, session_id="s")),
            "set": lambda run: run.memory.set("key", WORD),
            "fact": lambda run: run.memory.add_fact(NewFact(subject="user", predicate="is", object=WORD)),
            "derive": lambda run: run.memory.derive("sum", WORD, sources=[first], user_id="bob"),
        }
        with contextlib.suppress(KeyError):
            async with agent.memory.run(f"Forget me, {WORD}!", session_id="s") as run:
                assert (await run.memory.forget(user_id="ann")) >= 3
                if end in writes:
                    with pytest.raises(tuple(refused)):
                        await writes[end](run)
                elif end == "raise":
                    raise KeyError
        assert run.state == "erased"
        await agent.drain()
        assert await dump(expunge) == before
        assert (await agent.memory.forget(user_id="ann")) == 0


@pytest.mark.authorities("memory", "postgres")
async def test_d9_the_run_of_who_forgets_somebody_else(expunge: Expunge) -> None:
    """Law 5: an operator's run that names what it read of somebody is a write in their scope, and refused."""
    async with as_user(expunge, "root") as agent:
        first = await agent.memory.remember(Episode(input=WORD), user_id="ann")
        async with agent.memory.run("forget ann") as run:
            await run.memory.forget(user_id="ann")
            with pytest.raises((*REFUSED, InvalidRecords)):
                await run.memory.remember(Episode(input=f"it said {WORD}", sources=[first]))
            await run.finish("done")
        assert texts(await agent.memory.recall("")) == ["forget ann\ndone"]
        assert await of_user(expunge, "ann") == {}


# --- D10: a run that goes on


def test_d10_a_run_that_another_process_resumes(settings: Settings) -> None:
    """Law 4: a run that began before the forget is not ended, begun anew or written for after it, by any process."""
    who: dict[str, Any] = {"org": ORG, "namespace": "support", "agent": "helper", "session_id": "s"}

    async def begin() -> dict[str, dict[str, Any]]:
        async with Expunge(settings=settings) as expunge, as_user(expunge):
            return {
                user: (
                    await expunge.call("chat.begin_run", input=f"prompt of {user}", user_id=user, **who)
                ).model_dump()
                for user in ("ann", "bob")
            }

    async def forget() -> int:
        async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
            return int(await agent.memory.forget(user_id="ann"))

    async def resume(begun: dict[str, dict[str, Any]]) -> dict[str, dict[str, int]]:
        async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
            end = {"output": WORD, "transcript": [Message(role="tool", content=WORD)]} | who
            mine = begun["ann"]
            with pytest.raises((UnknownRun, ErasedSince)):
                await expunge.call("chat.end_run", run_id=mine["run_id"], user_id="ann", as_of=mine["as_of"], **end)
            with pytest.raises(UnknownRun):  # nor by one who has lost the counters
                await expunge.call("chat.end_run", run_id=mine["run_id"], user_id="ann", **end)
            with pytest.raises(ErasedSince):
                async with agent.began(mine["as_of"]).run("prompt of ann", id=mine["run_id"], session_id="s"):
                    raise AssertionError("it went on")
            with pytest.raises(ErasedSince):
                await agent.began(mine["as_of"]).remember(Episode(input="prompt of ann", session_id="s"))
            theirs = begun["bob"]
            await expunge.call("chat.end_run", run_id=theirs["run_id"], user_id="bob", as_of=theirs["as_of"], **end)
            return {user: await of_user(expunge, user) for user in ("ann", "bob")}

    begun = in_child(begin)
    assert in_child(forget) == 2
    left = in_child(lambda: resume(begun))
    assert left == {"ann": {}, "bob": {"sessions": 1, "episodes": 1, "events": 1, "vectors": 1}}
    assert leftovers(settings, ["prompt of ann"]) == {"files": {}, "columns": {}}


# --- D11: nothing is left to be pruned, and the answer can be verified


@pytest.mark.authorities("memory", "postgres")
async def test_d11_a_forget_needs_no_pruning(expunge: Expunge) -> None:
    """Law 7: runs, sessions and the queue go with their user; the answer says how much, by collection, and is signed."""
    async with as_user(expunge) as agent:
        for number in range(15):
            async with agent.memory.run(WORD, session_id=f"s{number}") as run:
                await run.finish(WORD)
        expunge.system.derivers["never"] = Extractor()
        values: dict[str, Any] = {"org": ORG, "namespace": "support", "agent": "helper"}
        await expunge.call("jobs.add", deriver="never", user_id="ann", **values)
        running = agent.memory.run("still running", session_id="s99")
        await running.__aenter__()
        held = {name: number for name, number in (await agent.memory.profile()).counts.items() if number}
        assert held == {"sessions": 16, "episodes": 16, "jobs": 1}
        gone = await agent.memory.forget(user_id="ann")
        assert (gone.by_collection, gone) == (held, 33)
        assert {
            name: number for name, number in gone.receipt["removed"].items() if number and name != "lineage"
        } == held
        assert is_verified(expunge, gone.receipt)
        assert set((await count(expunge, *RECORDS, *INDEX)).values()) == {0}
        with pytest.raises(UnknownRun):
            await running.finish("late")


# --- G1: what a session leaves


@pytest.mark.authorities("memory", "postgres")
async def test_g1_a_session_goes_with_what_came_from_it_alone(expunge: Expunge) -> None:
    """Design 4: facts from elsewhere, and blocks, stay; a fact, a job and a summary of the session alone go with it."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        one = await memory.remember(Episode(input=WORD, session_id="s"))
        two = await memory.remember(Episode(input=OTHER, session_id="t"))
        helper = await memory.remember(Episode(input=f"sub {WORD}", session_id="s"), agent="worker", user_id=None)
        statements = {"alone": [one], "both": [one, two], "other": [two], "none": [], "worker": [helper]}
        for name, sources in statements.items():
            await memory.add_fact(NewFact(subject=name, predicate="is", object="x", sources=sources))
        await memory.add_fact(NewFact(subject="in session", predicate="is", object="x"), session_id="s")
        await memory.update_block("persona", "kind", session_id="s")
        await memory.derive("sum", WORD, sources=[one, two])
        await memory.set("kept", OTHER, sources=[one, two], lineage="detach")
        gone = await memory.forget(session_id="s")
        assert gone.by_collection["episodes"] == 2  # and that of the sub-agent, which belongs to no user
        assert gone.by_collection["facts"] == 2
        left = {row[0] for row in await read(expunge, "SELECT subject FROM facts")}
        assert left == {"both", "other", "none", "in session"}
        edges = {row[0] for row in await read(expunge, "SELECT source FROM lineage")}
        assert edges == {two}  # and none dangles
        assert [block.name for block in await memory.working(session_id="s")] == ["persona"]
        assert not (await memory.get("sum")).found
        assert (await memory.get("kept")).value == OTHER
        assert texts(await memory.recall("")) == [OTHER]
        assert await of_user(expunge, "-") == {}
        assert (await memory.forget(session_id="s")) == 0
        assert (await memory.forget(user_id="ann")) > 0
        assert set((await count(expunge, *RECORDS, *INDEX)).values()) == {0}


@pytest.mark.authorities("memory", "postgres")
async def test_g1_a_session_of_one_of_two_who_spoke_in_it(expunge: Expunge) -> None:
    """Law 12: of a session ``1`` in which two have spoken a user's part goes alone; named alone it is everybody's."""
    async with as_user(expunge) as ann, as_user(expunge, "bob") as bob:
        for agent in (ann, bob):
            first = await agent.memory.remember(Episode(input=WORD, session_id="1"))
            await agent.memory.add_fact(NewFact(subject="user", predicate="is", object="x", sources=[first]))
        kept = await of_user(expunge, "bob")
        one_of_each = {"sessions": 1, "episodes": 1, "facts": 1}
        gone = await ann.memory.forget(user_id="ann", session_id="1")
        assert {name: gone.by_collection[name] for name in one_of_each} == one_of_each
        assert await of_user(expunge, "ann") == {}
        assert await of_user(expunge, "bob") == kept
        assert texts(await bob.memory.recall(WORD)) == [WORD]
        assert (await ann.memory.forget(user_id="ann", session_id="1")) == 0
        assert (await ann.memory.forget(session_id="1")) == 3
        assert await of_user(expunge, "bob") == {}
        assert set((await count(expunge, *RECORDS, *INDEX)).values()) == {0}


# --- G3: nobody was named


@pytest.mark.authorities("memory", "postgres")
async def test_g3_nobody_is_forgotten_unless_named(expunge: Expunge) -> None:
    """Law 16: naming nobody is an error and not everybody without a name; a session alone is one; an unknown is 0."""
    async with as_user(expunge, None) as agent:
        memory = agent.memory
        await memory.remember(Episode(input=WORD))
        await memory.remember(Episode(input=OTHER, session_id="s"), user_id="ann")
        before = await dump(expunge)
        for call in (
            memory.forget,
            lambda: memory.forget(user_id=None),
            lambda: memory.forget(before=after(days=-1)),
            memory.profile,
        ):
            with pytest.raises(InvalidScope):
                await call()
        unknown = await memory.forget(user_id="nobody-we-know")
        assert (unknown, unknown.by_collection) == (0, {})
        assert is_verified(expunge, unknown.receipt)
        assert (await agent.erasure.status(unknown.request_id)).found is False
        assert (await memory.forget(session_id="no-such-session")) == 0
        assert await dump(expunge) == before
        assert (await memory.forget(session_id="s")) == 2
        assert texts(await memory.recall("")) == [WORD]


# --- G4: what is there besides


@pytest.mark.authorities("memory", "postgres")
async def test_g4_a_forget_can_be_seen_before_and_after(expunge: Expunge, clock: ManualClock) -> None:
    """Law 8 and 10: a preview changes nothing, a hold stops a forget, strict ``before`` splits at its moment."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        old = await memory.remember(Episode(input="old"))
        clock.advance(DAY_S)
        await memory.remember(Episode(input="new"))
        before = await dump(expunge)
        planned = await agent.erasure.preview("ann")
        assert planned.goes["episodes"] == {"direct": 2, "derived": 0}
        assert await dump(expunge) == before
        await change(expunge, "INSERT INTO holds (org, user_id, placed_at) VALUES (:org, 'ann', 0)", org=ORG)
        with pytest.raises(ForgetFailed):
            await memory.forget(user_id="ann")
        assert texts(await memory.recall("")) == ["new", "old"]
        await change(expunge, "UPDATE holds SET released_at = 1")
        assert (await memory.forget(user_id="ann", before=after())) == 0
        assert (await memory.forget(user_id="ann", before=after(days=1))) == 1
        assert texts(await memory.recall("")) == ["new"]
        with pytest.raises(UnknownRun):
            await expunge.call("chat.end_run", org=ORG, run_id=old)
        assert (await memory.forget(user_id="ann", before=after(days=1) + timedelta(hours=0))) == 0


# --- the queue


@pytest.mark.authorities("memory", "postgres")
async def test_a_late_job_of_an_erased_user_writes_nothing(expunge: Expunge, clock: ManualClock) -> None:
    """Law 4 and 5: a job that was taken before its user was forgotten, or hidden, writes nothing, then or later."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        for how in ("forget", "hide", "session"):
            extractor = Extractor()
            memory.auto_extract(extractor, name=how)
            agent._extract[:] = [how]
            await memory.remember(Episode(input=f"{WORD} {how}", session_id=how))
            await memory.remember(Episode(input=OTHER, session_id="t"), user_id="bob")
            await extractor.begun.wait()
            match how:
                case "forget":
                    await memory.forget(user_id="ann")
                case "hide":
                    await agent.erasure.request_user_id("ann")
                case _:
                    await memory.forget(session_id=how)
            extractor.goes_on.set()
            await agent.drain()
            for _ in range(3):
                clock.advance(DAY_S)
                await agent.drain()
            for name in ("facts", "memories"):
                assert await read(expunge, f"SELECT id FROM {name} WHERE user_id = 'ann'") == []
            assert len(await memory.facts(user_id="bob", at_any_time=True)) == 1
            await memory.forget(user_id="bob")
            await memory.forget(user_id="ann")
        assert set((await count(expunge, *RECORDS, *INDEX)).values()) == {0}


async def test_a_rebuild_after_an_erasure_knows_nothing_of_it(expunge: Expunge) -> None:
    """Lineage rule: what was made from two people is made afresh from the other alone, and no word is left."""
    read_in_order: list[set[str]] = []

    async def summary(sources: Sequence[Source]) -> list[Any]:
        read_in_order.append({source.id for source in sources})
        return list(await digest(sources))

    async with as_user(expunge, None) as agent:
        memory = agent.memory
        ann = [await memory.remember(Episode(input=f"{WORD} {n}."), user_id=f"{WORD}-user") for n in range(3)]
        bob = [await memory.remember(Episode(input=f"{OTHER} {n}."), user_id=f"{OTHER}-user") for n in range(3)]
        await memory.consolidate(summary, key="team", sources=[*ann, *bob])
        await agent.drain()
        told = (await memory.get("team")).value
        assert WORD in told
        assert OTHER in told
        team = (await memory.get("team")).memory
        assert team
        await memory.derive("of the team", f"{WORD} again", sources=[team.memory_id])
        planned = await agent.erasure.preview(f"{WORD}-user")
        gone = await memory.forget(user_id=f"{WORD}-user")
        assert planned.effects["rebuilt"] == 1
        assert gone.by_collection["memories"] == 2
        assert leftovers(expunge.settings, [WORD]) == {"files": {}, "columns": {}}
        await agent.drain()
        assert read_in_order == [{*ann, *bob}, set(bob)]
        assert (await memory.get("team")).value == "\n".join(f"{OTHER} {n}." for n in range(3))
        assert not (await memory.get("of the team")).found
        assert leftovers(expunge.settings, [WORD]) == {"files": {}, "columns": {}}
        edges = {source for (source,) in await read(expunge, "SELECT source FROM lineage")}
        assert edges == set(bob)
        assert (await agent.drain()).done == 0
        await memory.forget(user_id=f"{OTHER}-user")
        await agent.drain()
        assert set((await count(expunge, *RECORDS, *INDEX)).values()) == {0}


@pytest.mark.authorities("memory", "postgres")
async def test_a_rebuild_that_has_read_who_is_forgotten_next(expunge: Expunge, clock: ManualClock) -> None:
    """Law 5: a rebuild that thinks while another of its sources is forgotten writes nothing of that one either."""
    extractor = Extractor(facts=False)
    async with as_user(expunge, None) as agent:
        memory = agent.memory
        people = {user: await memory.remember(Episode(input=f"word of {user}"), user_id=user) for user in "abc"}
        extractor.goes_on.set()
        await memory.consolidate(extractor, key="said", name="slow", sources=list(people.values()))
        await agent.drain()
        assert (await memory.get("said")).found
        extractor.begun.clear()
        extractor.goes_on.clear()
        await memory.forget(user_id="a")
        running = asyncio.create_task(agent.drain())
        await extractor.begun.wait()
        await memory.forget(user_id="b")
        extractor.goes_on.set()
        await running
        for _ in range(3):
            clock.advance(DAY_S)
            await agent.drain()
        (value,) = {row[0] for row in await read(expunge, "SELECT value FROM memories")}
        assert json.loads(value) == "word of c"
        assert {row[0] for row in await read(expunge, "SELECT source FROM lineage")} == {people["c"]}


@pytest.mark.authorities("memory", "postgres")
async def test_a_worker_that_comes_back_after_its_lease_writes_nothing(expunge: Expunge, clock: ManualClock) -> None:
    """Law 16: a job whose worker was slow is taken by another and done once, whatever the first still says."""
    first, second = Extractor(), Extractor()
    second.goes_on.set()
    async with as_user(expunge) as agent:
        await agent.memory.remember(Episode(id="e1", input=WORD))
        values: dict[str, Any] = {"org": ORG, "namespace": "support", "agent": "helper", "user_id": "ann"}
        await expunge.call("jobs.add", deriver="slow", sources=["e1"], **values)
        expunge.system.derivers["slow"] = first
        slow = asyncio.create_task(expunge.call("jobs.run", org=ORG))
        await first.begun.wait()
        expunge.system.derivers["slow"] = second
        assert (await expunge.call("jobs.run", org=ORG)).done == 0  # it is taken
        clock.advance(301)
        assert (await expunge.call("jobs.run", org=ORG)).done == 1
        first.goes_on.set()
        await slow
        assert await count(expunge, "facts", "memories", "jobs") == {"facts": 1, "memories": 1, "jobs": 0}


@pytest.mark.authorities("memory", "postgres")
async def test_a_job_that_ends_every_worker_is_given_up(expunge: Expunge, clock: ManualClock) -> None:
    """Law 16: a job is tried three times in all, also where its workers do not live to say that it failed."""
    tried: list[str] = []

    async def ends_its_worker(sources: Sequence[Source]) -> list[FactDraft]:
        tried.append(sources[0].id)
        raise asyncio.CancelledError

    async with as_user(expunge) as agent:
        await agent.memory.remember(Episode(id="e1", input=WORD))
        expunge.system.derivers["fatal"] = ends_its_worker
        values: dict[str, Any] = {"org": ORG, "namespace": "support", "agent": "helper", "user_id": "ann"}
        await expunge.call("jobs.add", deriver="fatal", sources=["e1"], **values)
        for _ in range(6):
            with contextlib.suppress(asyncio.CancelledError):
                await expunge.call("jobs.run", org=ORG)
            clock.advance(DAY_S)
        assert tried == ["e1"] * 3
        assert await read(expunge, "SELECT status FROM jobs") == [("failed",)]
        assert (await agent.memory.forget(user_id="ann")) == 2
