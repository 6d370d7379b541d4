"""The faults that were measured at a peer, one by one: here they are not (`spec/loomflow-facts.md` §5), D1 to D4.

The others are in ``test_peer_gaps.py``, the long races and the kills in ``tests/crash/test_agent_races.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from expunge import Agent, Episode, Expunge, Message, NewFact, Settings
from expunge.agent import Memory
from expunge.errors import (
    ErasedSince,
    ExpungeError,
    HiddenByErasure,
    InvalidId,
    InvalidInstant,
    InvalidRecords,
)
from expunge.model.instant import ManualClock
from tests.agents.kit import NAIVE, ORG, after, as_user, count, read, texts
from tests.agents.peer import (
    INDEX,
    OTHER,
    RECORDS,
    REFUSED,
    WORD,
    Extractor,
    Waiting,
    answerer,
    embedding,
    fill,
    leftovers,
    lowered,
    of_user,
    reading,
    vectors_of,
)
from tests.crash.kit import in_child
from tests.support import dump

# --- D1: what is deleted is still in the file


async def test_d1_bytes_of_whom_was_forgotten_while_others_have_the_file_open(expunge: Expunge, tmp_path: Path) -> None:
    """Law 7, physically: with another program and another system on the file, nothing of it is in any of the files."""
    path = tmp_path / "scan.bin"
    async with as_user(expunge) as agent, Expunge(settings=expunge.settings) as second:
        agent.memory.auto_extract()
        await fill(agent, WORD, path)
        await fill(agent, OTHER, path)
        await second.profile(f"{WORD}-user", org=ORG)
        blobs = await vectors_of(expunge, f"{WORD}-user")
        there = leftovers(tmp_path, [WORD], blobs)
        assert {"expunge.db", "expunge.db-wal"} & there["files"].keys()
        assert any(name.startswith("expunge.originals") for name in there["files"])
        assert {"episodes.input", "events.data", "memories.value", "facts.object", "answers.answer"} <= there[
            "columns"
        ].keys()
        assert not any(name.startswith("search") for name in there["columns"])
        others = await vectors_of(expunge, f"{OTHER}-user")
        assert len(blobs) == len(others) > 5
        with reading(tmp_path / "expunge.db") as again:
            gone = await agent.memory.forget(user_id=f"{WORD}-user")
            assert gone > 10
            assert gone.receipt["deferred"] == []
            assert leftovers(tmp_path, [WORD], blobs) == {"files": {}, "columns": {}}
            assert again("again") == 2  # what the reader sees is the other's: an episode and a run
            assert (await agent.memory.forget(user_id=f"{WORD}-user")) == 0
            assert leftovers(tmp_path, [WORD], blobs) == {"files": {}, "columns": {}}
        stays = leftovers(tmp_path, [OTHER], others)
        assert {"facts.object", "blocks.content", "documents.title", "chunks.text"} <= stays["columns"].keys()
        found = [name for names in stays["files"].values() for name in names if name.startswith("blob")]
        assert len(set(found)) == len(others)


async def test_d1_a_reader_that_keeps_old_pages_is_named(tmp_path: Path) -> None:
    """Law 16: where a reader of before keeps what was removed, the receipt says so, and a resume settles it."""
    settings = Settings(db=str(tmp_path / "expunge.db"), reclaim_wait_s=0.1)
    async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
        await fill(agent, WORD)
        with reading(tmp_path / "expunge.db", "snapshot") as again:
            gone = await agent.memory.forget(user_id=f"{WORD}-user")
            assert [item["store"] for item in gone.receipt["deferred"]] == ["authority"]
            found = leftovers(tmp_path, [WORD])
            assert found["files"]
            assert found["columns"] == {}
            again("commit")
        settled = await agent.erasure.resume(gone.request_id)
        assert (settled.status, settled.deferred) == ("completed", [])
        assert leftovers(tmp_path, [WORD]) == {"files": {}, "columns": {}}


# --- D2: who is forgotten comes back


@pytest.mark.parametrize("where", ["file", "memory"])
async def test_d2a_a_remember_in_flight(settings: Settings, where: str) -> None:
    """Law 4: of 200 episodes that race with a forget, none and no fact of one is left of before it."""
    chance, became = random.Random(where), Counter[str]()
    settings = settings if where == "file" else Settings(db=":memory:")
    async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
        memory = agent.memory
        memory.auto_extract()
        stays = await memory.remember(Episode(input="I live in Lisbon.", session_id="s"), user_id="bob")

        async def one(number: int) -> str:
            await asyncio.sleep(chance.choice([0, 0, chance.uniform(0, 0.02)]))
            return await memory.remember(Episode(input=f"I live in town{number}.", session_id="s"))

        async def forget() -> int:
            await asyncio.sleep(chance.choice([0, 0, chance.uniform(0, 0.004)]))
            return await memory.forget(user_id="ann")

        for number in range(100):
            said = f"town{number}"
            if number % 10 in (0, 1):  # one after the other, so that all that can become of it does
                pair: list[Any] = [one(number), forget()][:: -1 if number % 10 else 1]
                answers: list[Any] = [await call for call in pair]
                in_order = number % 10 == 0
            else:
                in_order = chance.random() < 0.5
                pair = [one(number), forget()] if in_order else [forget(), one(number)]
                answers = await asyncio.gather(*pair, return_exceptions=True)
            wrote, went = answers if in_order else answers[::-1]
            await agent.drain()
            assert not isinstance(went, BaseException)
            rows = await read(expunge, "SELECT id, seq FROM episodes WHERE input = :said", said=f"I live in {said}.")
            facts = await read(expunge, "SELECT object, seq FROM facts WHERE object = :said", said=said)
            if isinstance(wrote, BaseException):
                assert isinstance(wrote, REFUSED), wrote
                assert (rows, facts) == ([], [])
                became["refused"] += 1
            elif rows:
                assert [row[0] for row in rows] == [wrote]
                assert [fact[0] for fact in facts] == [said]
                assert min(row[1] for row in (*rows, *facts)) >= await lowered(expunge)
                became["after"] += 1
            else:
                assert facts == []
                became["before"] += 1
            there = await of_user(expunge, "ann") if number % 20 == 0 or not rows else {"episodes": 1}
            assert bool(there) == bool(rows), there
        await memory.forget(user_id="ann")
        assert await of_user(expunge, "ann") == {}
        assert await count(expunge, "marks") == {"marks": 0}
        assert [row[0] for row in await read(expunge, "SELECT id FROM episodes")] == [stays]
        assert [fact.object for fact in await memory.facts(user_id="bob")] == ["Lisbon"]
    assert min(became[name] for name in ("refused", "after", "before")) > 5, became


async def test_d2a_a_forget_while_it_embeds(clock: ManualClock) -> None:
    """Law 4: 50 times the embedder is slow and the forget comes meanwhile: refused, and nothing is back."""
    embedder = Waiting()
    async with embedding(Settings(db=":memory:"), embedder, clock) as expunge, as_user(expunge) as agent:
        memory = agent.memory
        memory.auto_extract()
        await memory.remember(Episode(input="I live in Lisbon."), user_id="bob")
        await agent.drain()
        for number in range(50):
            await memory.remember(Episode(input="I live in Porto.", session_id="s"))
            await agent.drain()  # or it may be its fact that is waited for, and the late write begins after the forget
            embedder.hold_back()
            late = asyncio.create_task(memory.remember(Episode(input=f"I live in town{number}.", session_id="s")))
            await embedder.begun.wait()
            clock.advance(0.05)
            assert (await memory.forget(user_id="ann")) >= 2
            embedder.let_go()
            with pytest.raises(ErasedSince):
                await late
            await agent.drain()
            assert await of_user(expunge, "ann") == {}
        assert (await memory.forget(user_id="ann")) == 0
        assert await count(expunge, "episodes", "facts", "vectors", "search_docsize") == {
            "episodes": 1, "facts": 1, "vectors": 2, "search_docsize": 2,
        }  # fmt: skip
        await memory.remember(Episode(input="I live in Faro."))  # who comes back is welcome
        assert texts(await memory.recall("Faro")) == ["I live in Faro."]


Writing = Callable[[Memory], Awaitable[Any]]


async def ends_a_run(memory: Memory) -> None:
    async with memory.run(session_id="s") as run:
        await run.finish(WORD)


WRITES: dict[str, Writing] = {
    "remember": lambda memory: memory.remember(Episode(input=WORD)),
    "set": lambda memory: memory.set("key", WORD),
    "set_many": lambda memory: memory.set_many({"one": WORD, "two": WORD}),
    "add_fact": lambda memory: memory.add_fact(NewFact(subject="user", predicate="is", object=WORD)),
    "add_document": lambda memory: memory.add_document("letter", text=WORD),
    "run": ends_a_run,
}


@pytest.mark.authorities("sqlite", "postgres")
@pytest.mark.parametrize("kind", WRITES)
async def test_d2a_every_write_that_is_slow_while_its_user_is_forgotten(
    settings: Settings, clock: ManualClock, kind: str
) -> None:
    """Law 4: whatever is written through an embedder, a forget that comes meanwhile refuses it, with its body."""
    embedder = Waiting()
    async with embedding(settings, embedder, clock) as expunge, as_user(expunge) as agent:
        await agent.memory.remember(Episode(input=OTHER), user_id="bob")
        embedder.hold_back()
        late = asyncio.ensure_future(WRITES[kind](agent.memory))
        await embedder.begun.wait()
        await agent.memory.forget(user_id="ann")
        embedder.let_go()
        with pytest.raises(ErasedSince):
            await late
        assert await of_user(expunge, "ann") == {}
        assert leftovers(settings, [WORD]) == {"files": {}, "columns": {}}
        assert await of_user(expunge, "bob") == {"episodes": 1, "vectors": 1}
        await WRITES[kind](agent.memory)
        assert await of_user(expunge, "ann") != {}


@pytest.mark.parametrize("scope", ["session", "time", "namespace"])
async def test_d2a_a_narrower_forget_while_it_embeds(clock: ManualClock, scope: str) -> None:
    """Law 4: a session, a time or a namespace that is forgotten while it embeds refuses what belongs to it, only that."""
    embedder = Waiting()
    async with embedding(Settings(db=":memory:"), embedder, clock) as expunge, as_user(expunge) as agent:
        memory = agent.memory
        memory.auto_extract()
        embedder.hold_back()
        old, new = Episode(input="I live in Porto.", session_id="s"), Episode(input="I live in Faro.", session_id="t")
        mine = asyncio.create_task(memory.remember(old))
        await embedder.begun.wait()
        clock.advance(10)
        other = {"namespace": "sales"} if scope == "namespace" else {}
        theirs = asyncio.create_task(memory.remember(new, **other))
        await asyncio.sleep(0)
        match scope:
            case "session":
                assert (await memory.forget(session_id="s")) == 0
            case "time":
                assert (await memory.forget(user_id="ann", before=after(seconds=5))) == 0
            case _:
                answer = await agent.erasure.request("ann", namespaces=["support"], purge=True)
                assert answer.status == "completed"
        embedder.let_go()
        with pytest.raises(ErasedSince):
            await mine
        await theirs
        await agent.drain()
        assert await read(expunge, "SELECT input FROM episodes") == [("I live in Faro.",)]
        assert await read(expunge, "SELECT object FROM facts") == [("Faro",)]


async def test_d2a_an_answer_that_is_thought_about_meanwhile(in_memory: Expunge) -> None:
    """Law 5: an answer that quotes what was forgotten while it was made is not kept."""
    async with as_user(in_memory) as agent:
        await agent.memory.remember(Episode(input=f"The {WORD} sings."))
        await agent.memory.remember(Episode(input=f"The {OTHER} stands."), user_id="bob")

        async def slow(question: str, hits: Sequence[Any]) -> str:
            await agent.memory.forget(user_id="ann")
            return await answerer(question, hits)

        bob = agent.at(user_id="bob")
        with contextlib.suppress(*REFUSED, InvalidRecords):
            await bob.memory.ask(WORD, slow, user_id="ann")
        assert await count(in_memory, "answers", "lineage") == {"answers": 0, "lineage": 0}
        kept = await bob.memory.ask(OTHER, answerer)
        assert (await bob.memory.ask(OTHER, answerer)).cached
        assert WORD not in kept.text


async def test_d2b_a_second_agent_forgets_what_another_extracts(in_memory: Expunge) -> None:
    """Law 4: an extraction of one agent does not write back what another has forgotten."""
    extractor = Extractor()
    async with as_user(in_memory) as one, as_user(in_memory) as two:
        one.memory.auto_extract(extractor, name="slow")
        await one.memory.remember(Episode(input=WORD))
        await extractor.begun.wait()
        assert (await two.memory.forget(user_id="ann")) == 2  # the episode and the job
        extractor.goes_on.set()
        await one.drain()
        assert extractor.read == [WORD]
        assert set((await count(in_memory, *RECORDS, *INDEX)).values()) == {0}
        await one.memory.remember(Episode(input=OTHER))
        await one.drain()
        assert texts(await two.memory.recall_facts(OTHER)) != []


async def test_d2b_a_second_agent_from_the_same_url(tmp_path: Path) -> None:
    """Law 4: two agents that were opened by the same URL are two systems, and one fence."""
    url = f"sqlite:///{tmp_path / 'expunge.db'}"
    who: dict[str, Any] = {"org": ORG, "namespace": "support", "agent": "helper", "user_id": "ann"}
    extractor = Extractor()
    async with Agent(url, **who) as one, Agent(url, **who) as two:
        assert one.expunge is not two.expunge
        one.memory.auto_extract(extractor, name="slow")
        first = await one.memory.remember(Episode(input=WORD))
        await one.memory.remember(Episode(input=OTHER), user_id="bob")
        await extractor.begun.wait()
        began = await one.as_of()
        assert (await two.memory.forget(user_id="ann")) == 2
        extractor.goes_on.set()
        await one.drain()
        with pytest.raises(ErasedSince):
            await one.began(began).set("key", WORD)
        with pytest.raises(ExpungeError):
            await one.began(began).derive("sum", WORD, sources=[first], user_id="bob")
        for agent in (one, two):
            assert await of_user(agent.expunge, "ann") == {}
            assert texts(await agent.memory.recall_facts(OTHER, user_id="bob")) != []
        assert leftovers(tmp_path, [WORD]) == {"files": {}, "columns": {}}


async def test_d2b_a_source_that_was_hidden_or_came_back_under_its_id(in_memory: Expunge) -> None:
    """Law 5: what one has read of another is not written for oneself once that is hidden, gone, or written anew."""
    async with as_user(in_memory) as ann, as_user(in_memory, "bob") as bob:
        await ann.memory.remember(Episode(id="e1", input=WORD))
        began = await bob.as_of()

        async def retell(memory: Memory) -> None:
            await memory.derive("told", WORD, sources=["e1"])

        async def retell_as_a_fact(memory: Memory) -> None:
            await memory.add_fact(NewFact(subject="ann", predicate="said", object=WORD, sources=["e1"]))

        async def all_are_refused(*refusals: type[ExpungeError]) -> None:
            for memory in (bob.began(began), *([] if ErasedSince in refusals else [bob.memory])):
                for call in (retell, retell_as_a_fact):
                    with pytest.raises(refusals):
                        await call(memory)
            assert await of_user(in_memory, "bob") == {}

        await ann.erasure.request_user_id("ann")
        await all_are_refused(HiddenByErasure)
        await ann.memory.forget(user_id="ann")
        await all_are_refused(InvalidRecords)
        await ann.memory.remember(Episode(id="e1", input=OTHER))
        await all_are_refused(ErasedSince)
        await retell(bob.memory)  # who reads it now may


async def test_d2d_an_extraction_that_is_waited_for(in_memory: Expunge) -> None:
    """Law 4: an extraction that somebody waits for is as fenced as one in the background."""
    extractor = Extractor()
    async with as_user(in_memory) as agent:
        first = await agent.memory.remember(Episode(input=WORD))
        in_memory.system.derivers["slow"] = extractor
        values: dict[str, Any] = {"org": ORG, "namespace": "support", "agent": "helper", "user_id": "ann"}
        await in_memory.call("jobs.add", deriver="slow", sources=[first], **values)
        waited = asyncio.create_task(in_memory.call("jobs.run", org=ORG))
        await extractor.begun.wait()
        assert (await agent.memory.forget(user_id="ann")) == 2
        extractor.goes_on.set()
        ran = await waited
        assert (ran.done, ran.failed) == (0, 1)
        assert set((await count(in_memory, *RECORDS, *INDEX)).values()) == {0}
        assert (await in_memory.call("jobs.run", org=ORG)).done == 0


async def test_d2e_a_cancelled_task_whose_thread_goes_on(settings: Settings) -> None:
    """Law 4: cancelled is not stopped. What its thread still writes is of before the erasure, and refused or erased."""
    async with (
        Expunge(settings=settings) as one,
        Expunge(settings=settings) as two,
        as_user(one) as agent,
        as_user(two) as operator,
    ):
        for number in range(10):
            held, holding = threading.Event(), threading.Event()

            def hold(_tx: Any, held: threading.Event = held, holding: threading.Event = holding) -> None:
                holding.set()
                held.wait(10)

            holder = asyncio.create_task(two.system.authority.run(hold))
            await asyncio.to_thread(holding.wait, 10)
            late = asyncio.create_task(agent.memory.remember(Episode(input=f"{WORD} {number}", session_id="s")))
            await asyncio.sleep(0.01)  # it waits for the file in its thread
            late.cancel()
            with pytest.raises(asyncio.CancelledError):
                await late
            forgetting = asyncio.create_task(operator.memory.forget(user_id="ann"))
            await asyncio.sleep(0)
            held.set()
            await holder
            await forgetting
            await one.system.authority.run(lambda _tx: None)  # one thread writes: what went on has ended
            assert await of_user(one, "ann") == {}
            await operator.memory.remember(Episode(input=OTHER), user_id="bob")
        assert await of_user(two, "bob") == {"episodes": 10, "vectors": 10}


@pytest.mark.authorities("sqlite", "postgres")
async def test_d2e_a_cancelled_document_leaves_no_body(settings: Settings, clock: ManualClock) -> None:
    """Law 7: who gives up while the body of a document is being stored leaves nothing behind for a forget to miss."""
    async with Expunge(settings=settings, clock=clock) as expunge, as_user(expunge) as agent:
        for number in range(12):
            late = asyncio.create_task(agent.memory.add_document("letter", text=f"{WORD} {number} " * 2000))
            await asyncio.sleep(0.001 * number)
            late.cancel()
            await asyncio.gather(late, return_exceptions=True)
            await agent.memory.add_document("letter", text=OTHER, user_id="bob")
            await agent.memory.forget(user_id="ann")
        await asyncio.sleep(0.05)
        assert leftovers(settings, [WORD]) == {"files": {}, "columns": {}}
        assert await agent.memory.original("letter", user_id="bob") == OTHER.encode()


async def test_d2f_a_forget_does_not_wait_for_an_extractor(in_memory: Expunge) -> None:
    """Law 4: an extractor that is slow, or does not care that it is cancelled, holds up no forget and writes nothing."""
    stubborn = Extractor(stubborn=True)
    async with as_user(in_memory) as agent:
        agent.memory.auto_extract(stubborn, name="stubborn")
        await agent.memory.remember(Episode(input=WORD))
        await stubborn.begun.wait()
        async with asyncio.timeout(2):
            assert (await agent.memory.forget(user_id="ann")) == 2
        assert stubborn.cancelled == 0
        stubborn.goes_on.set()
        await agent.drain()
        assert set((await count(in_memory, *RECORDS, *INDEX)).values()) == {0}


async def test_d2f_an_extractor_that_ignores_its_time_limit(clock: ManualClock) -> None:
    """Law 16: one that does not end when its time is over fails its job then, and holds up neither queue nor close."""
    stubborn = Extractor(stubborn=True)
    settings = Settings(db=":memory:", derive_timeout_s=0.05)
    async with Expunge(settings=settings, clock=clock) as expunge, as_user(expunge) as agent:
        agent.memory.auto_extract(stubborn, name="stubborn")
        await agent.memory.remember(Episode(input=WORD))
        await stubborn.begun.wait()
        queue = asyncio.create_task(agent.drain())
        try:
            done, _ = await asyncio.wait([queue], timeout=2)
            assert done, "the queue waits for an extractor whose time is over"
        finally:
            stubborn.goes_on.set()
            await queue
        assert await count(expunge, "facts", "memories") == {"facts": 0, "memories": 0}


# --- D3: what is kept, and counted


async def test_d3_transcripts_and_tool_calls_are_kept_and_go(in_memory: Expunge) -> None:
    """Law 1: tool calls and transcripts are kept, shown, counted as records, and forgotten as what they are."""
    said = [
        Message(role="assistant", tool_calls=[{"id": "c1", "arguments": {"city": WORD}}]),
        Message(role="tool", content=WORD, name="weather", tool_call_id="c1"),
    ]
    async with as_user(in_memory) as agent:
        memory = agent.memory
        for number in range(12):
            session = f"s{number}"
            await memory.remember(Episode(input="Sun?", session_id=session, transcript=said, tool_calls=[{"n": WORD}]))
        await memory.remember(Episode(input="Rain?", session_id="s0", transcript=said), user_id="bob")
        (hit, *_) = await memory.recall("sun")
        assert hit.record["tool_calls"] == [{"n": WORD}]
        assert (await memory.session_messages("s3"))[1:] == said
        profile = await memory.profile()
        held = {name: number for name, number in profile.counts.items() if number}
        assert held == {"episodes": 12, "events": 24, "sessions": 12}
        assert profile.session_count == 12  # and not the ten that are shown
        assert len((await memory.sessions()).sessions) == 12
        gone = await memory.forget(user_id="ann")
        assert gone.by_collection == held
        assert gone == 48
        assert await of_user(in_memory, "ann") == {}
        assert await memory.session_messages("s3") == []
        assert (await memory.session_messages("s0", user_id="bob"))[1:] == said


# --- D4: the same everywhere


async def test_d4_naive_times_are_refused_the_same_everywhere(in_memory: Expunge) -> None:
    """Law 13: a time without a zone is refused by every call that takes one, with one error, and nothing is done."""
    async with as_user(in_memory) as agent:
        memory = agent.memory
        await memory.remember(Episode(id="e1", input=WORD))
        before = await dump(in_memory)
        fact: dict[str, Any] = {"subject": "user", "predicate": "is", "object": WORD}
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "forget": lambda: memory.forget(user_id="ann", before=NAIVE),
            "request": lambda: agent.erasure.request_user_id("ann", before=NAIVE),
            "request text": lambda: agent.erasure.request_user_id("ann", before=NAIVE.isoformat()),
            "preview": lambda: agent.erasure.preview("ann", before=NAIVE),
            "erase": lambda: in_memory.erase("ann", purge=True, before=NAIVE),
            "set": lambda: memory.set("key", WORD, valid_to=NAIVE),
            "touch": lambda: memory.touch("key", valid_to=NAIVE),
            "recall since": lambda: memory.recall(WORD, since=NAIVE),
            "recall until": lambda: memory.recall(WORD, until=NAIVE),
            "search": lambda: memory.search(WORD, since=NAIVE),
            "facts": lambda: memory.facts(valid_at=NAIVE),
            "facts known": lambda: memory.facts(known_at=NAIVE),
            "recall_facts": lambda: memory.recall_facts(WORD, valid_at=NAIVE),
            "remember": lambda: in_memory.call("chat.remember", org=ORG, episodes=[{"occurred_at": NAIVE}]),
            "add_facts": lambda: in_memory.call("facts.add", org=ORG, facts=[fact | {"valid_from": NAIVE}]),
        }
        met: dict[str, str] = {}
        for name, call in calls.items():
            try:
                await call()
                met[name] = "taken"
            except ExpungeError as fault:
                met[name] = fault.code
        assert met == dict.fromkeys(calls, InvalidInstant.code)
        assert await dump(in_memory) == before


def test_d4_blocks_are_durable_in_every_process(tmp_path: Path) -> None:
    """Law 1: blocks are in the store: another process reads them, forgets them, and the first shows them no more."""
    settings = Settings(db=str(tmp_path / "expunge.db"))

    async def write() -> list[str]:
        async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
            await agent.memory.update_block("second", WORD, pinned_order=2)
            await agent.memory.update_block("first", WORD, pinned_order=1)
            await agent.memory.update_block("first", OTHER, user_id="bob")
            return [block.name for block in await agent.memory.working()]

    async def forget() -> dict[str, int]:
        async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
            assert [block.content for block in await agent.memory.working()] == [WORD, WORD]
            assert (await agent.memory.profile()).counts["blocks"] == 2
            return (await agent.memory.forget(user_id="ann")).by_collection

    async def main() -> None:
        async with Expunge(settings=settings) as expunge, as_user(expunge) as agent:
            assert len(await agent.memory.working()) == 2
            assert await asyncio.to_thread(in_child, forget) == {"blocks": 2}
            assert await agent.memory.working() == []
            assert [block.content for block in await agent.memory.working(user_id="bob")] == [OTHER]
            assert (await agent.memory.forget(user_id="ann")) == 0

    assert in_child(write) == ["first", "second"]
    in_child(main)


@pytest.mark.parametrize("bad", [123, "", " ", "-", "a\0b", "\ud800", "x" * 257, b"ann", True])
async def test_d4_what_is_no_id_is_refused_the_same_everywhere(in_memory: Expunge, bad: Any) -> None:
    """Law 12: what is no id is refused by every call alike; it is never nobody's, and never another's."""
    async with as_user(in_memory, "123") as agent:
        memory = agent.memory
        for user in ("123", None):
            await memory.remember(Episode(input=WORD, session_id="123"), user_id=user)
        before = await dump(in_memory)
        made: dict[str, Callable[[], Any]] = {
            f"Agent({part})": partial(Agent, in_memory, **{part: bad})
            for part in ("org", "namespace", "agent", "user_id", "session_id")
        }
        made |= {"at": lambda: agent.at(user_id=bad)}
        calls: dict[str, Callable[[], Any]] = {
            "forget user": lambda: memory.forget(user_id=bad),
            "forget session": lambda: memory.forget(session_id=bad),
            "profile": lambda: memory.profile(bad),
            "request": lambda: agent.erasure.request_user_id(bad, purge=True),
            "preview": lambda: agent.erasure.preview(bad),
            "remember": lambda: memory.remember(Episode(input=WORD), user_id=bad),
            "run": lambda: memory.run(WORD, user_id=bad).__aenter__(),
            "set": lambda: memory.set("key", WORD, user_id=bad),
            "get": lambda: memory.get("key", user_id=bad),
            "add_fact": lambda: memory.add_fact(NewFact(subject="s", predicate="p", object="o"), session_id=bad),
            "update_block": lambda: memory.update_block("block", WORD, namespace=bad),
            "add_document": lambda: memory.add_document("title", text=WORD, agent=bad),
            "recall": lambda: memory.recall(WORD, user_id=bad),
            "messages": lambda: memory.session_messages(bad),
            "consolidate": lambda: memory.consolidate(user_id=bad),
        }
        met: dict[str, str] = {}
        for name, call in (made | calls).items():
            try:
                answer = call()
                if name in calls:
                    await answer
                met[name] = "taken"
            except ExpungeError as fault:
                met[name] = fault.code
        assert met == dict.fromkeys(made | calls, InvalidId.code)
        assert await dump(in_memory) == before
        assert (await memory.forget(user_id="123")) == 2
        assert await of_user(in_memory, "-") == {"episodes": 1, "sessions": 1, "vectors": 1}
