"""Derived data: summaries, extracted facts and kept answers, and that they go with what they were made from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from expunge import ANY, Episode, Expunge, FactDraft, MemoryDraft, Settings, Source, digest, plain_facts
from expunge.errors import ErasedSince, InputError, InvalidRecords
from expunge.model.instant import ManualClock
from tests.agents.kit import DAY_S, NAIVE, ORG, as_user, count, objects, read, texts

pytestmark = pytest.mark.authorities("sqlite", "postgres")


async def told(agent: Any, *says: tuple[str, str], **who: Any) -> list[str]:
    """Remember what was said in sessions, as ``(session, text)``; the ids."""
    episodes = [Episode(input=text, session_id=session) for session, text in says]
    return list((await agent.memory.remember_many(episodes, **who)).ids)


async def jobs(expunge: Expunge) -> dict[str, int]:
    found: dict[str, int] = (await expunge.call("jobs.count", org=ORG)).jobs
    return found


@pytest.mark.authorities("memory", "postgres")
async def test_retire_goes_with_any_source_and_detach_with_the_last(expunge: Expunge) -> None:
    """Law 6, design 4: what retires goes with any source; what detaches loses an edge, and goes with the last."""
    async with as_user(expunge, None) as agent:
        memory = agent.memory
        sources = [(await told(agent, ("s", f"of {name}"), user_id=name))[0] for name in ("bob", "carl")]
        summary = await memory.derive("retires", "summary", sources=sources)
        await memory.derive("detaches", "shared", sources=sources, lineage="detach")
        await memory.derive("of the summary", "x", sources=[summary.memory_id])
        await memory.set("plain", "stays")
        preview = await agent.erasure.preview("bob")
        assert (preview.effects["derived"], preview.effects["detached"]) == (2, 1)
        gone = await memory.forget(user_id="bob")
        assert gone.by_collection | {"memories": 2, "episodes": 1} == gone.by_collection
        assert gone.receipt["effects"]["detached"] == 1
        stands = {key: (await memory.get(key)).found for key in ("retires", "detaches", "of the summary", "plain")}
        assert stands == {"retires": False, "detaches": True, "of the summary": False, "plain": True}
        await memory.forget(user_id="carl")
        assert not (await memory.get("detaches")).found
        assert (await memory.get("plain")).found
        assert await count(expunge, "memories", "lineage") == {"memories": 1, "lineage": 0}


@pytest.mark.authorities("memory", "postgres")
async def test_a_derived_write_is_a_write_in_the_scope_of_its_sources(expunge: Expunge) -> None:
    """Law 5: what rests on an erased source is refused, by its id and by when the work began; so is what rests on none."""
    async with as_user(expunge, None) as agent:
        (said,) = await told(agent, ("s", "secret"), user_id="bob")
        began = agent.began(await agent.as_of())
        await agent.memory.forget(user_id="bob")
        with pytest.raises(InvalidRecords):
            await agent.memory.derive("k", "secret", sources=[said])
        with pytest.raises((ErasedSince, InvalidRecords)):
            await began.derive("k", "secret", sources=[said])
        (again,) = await told(agent, ("s", "public"), user_id="bob")
        with pytest.raises(ErasedSince):
            await began.derive("k", "secret", sources=[again])
        with pytest.raises(InputError):
            await agent.memory.derive("k", "secret", sources=[])
        assert (await agent.memory.derive("k", "public", sources=[again])).version == 1
        assert await count(expunge, "memories") == {"memories": 1}


@pytest.mark.authorities("memory", "postgres")
async def test_another_version_rests_on_what_it_says(expunge: Expunge) -> None:
    """Law 5: a value that is restored rests on what it rested on; one that was written anew does not, and stays."""
    async with as_user(expunge, None) as agent:
        memory = agent.memory
        (said,) = await told(agent, ("s", "secret"), user_id="bob")
        for key in ("restored", "anew", "deleted"):
            await memory.derive(key, "secret", sources=[said])
            if key != "anew":
                await memory.delete(key)
        await memory.restore("restored")
        await memory.set("anew", "of nobody")
        await memory.forget(user_id="bob")
        assert not (await memory.get("restored")).found
        assert (await memory.get("anew")).value == "of nobody"
        back = await memory.restore("deleted")
        assert (back.found, back.restored) == (False, False)
        assert await read(expunge, "SELECT count(*) FROM memories WHERE value LIKE '%secret%'") == [(0,)]


@pytest.mark.authorities("memory", "postgres")
async def test_a_summary_is_rebuilt_from_what_is_left(expunge: Expunge) -> None:
    """Design 4, rebuild: the summary goes with a source, a job is queued, and makes it afresh without the words."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await told(agent, ("s1", "My cat is Zorro. And more."), ("s2", "I like rain."))
        queued = await memory.consolidate(key="about")
        assert queued.sources == 2
        assert (await agent.drain()).failed == 0
        assert (await memory.get("about")).value == "My cat is Zorro.\nI like rain."
        assert texts(await memory.search("Zorro")) == ["My cat is Zorro.\nI like rain."]
        preview = await agent.erasure.preview(session_id="s1")
        assert (preview.effects["derived"], preview.effects["rebuilt"]) == (1, 1)
        gone = await memory.forget(session_id="s1")
        assert gone.receipt["effects"]["rebuilt"] == 1
        assert not (await memory.get("about")).found
        assert await jobs(expunge) == {"waiting": 1}
        drained = await agent.drain()
        assert (drained.done, drained.failed) == (1, 0)
        assert (await memory.get("about")).value == "I like rain."
        assert texts(await memory.search("Zorro rain")) == ["I like rain."]
        assert await read(expunge, "SELECT count(*) FROM memories WHERE value LIKE '%Zorro%'") == [(0,)]
        assert await jobs(expunge) == {}
        last = await memory.forget(session_id="s2")
        assert last.receipt["effects"]["rebuilt"] == 0  # nothing is left to make it from
        assert await jobs(expunge) == {}
        assert not (await memory.get("about")).found
        assert await count(expunge, "memories", "lineage") == {"memories": 0, "lineage": 0}


@pytest.mark.authorities("memory", "postgres")
async def test_a_queued_rebuild_goes_with_its_last_source(expunge: Expunge) -> None:
    """Law 4: a job that waits reads nothing that was erased meanwhile, and goes with all that it was to read."""
    async with as_user(expunge) as agent:
        await told(agent, ("s1", "One."), ("s2", "Two."), ("s3", "Three."))
        await agent.memory.consolidate()
        await agent.drain()
        await agent.memory.forget(session_id="s1")
        await agent.memory.forget(session_id="s2")
        assert (await agent.drain()).done == 1
        assert (await agent.memory.get("summary")).value == "Three."
        await told(agent, ("s4", "Four."))
        await agent.memory.consolidate()
        await agent.drain()
        await agent.memory.forget(session_id="s3")
        assert await jobs(expunge) == {"waiting": 1}
        gone = await agent.memory.forget(user_id="ann")
        assert gone.by_collection["jobs"] == 1
        assert await jobs(expunge) == {}
        assert (await agent.drain()).done == 0


@pytest.mark.authorities("memory", "postgres")
async def test_facts_are_extracted_from_what_is_said(expunge: Expunge, clock: ManualClock) -> None:
    """``auto_extract`` reads each episode once, in the queue; what it learns rests on the episode and goes with it."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        assert memory.auto_extract() == "plain_facts"
        assert memory.auto_extract(plain_facts) == "plain_facts"
        episode = Episode(id="e1", input="Hello, my name is Ann. I live in Porto, and I like rain.", session_id="s1")
        await memory.remember(episode)
        await memory.remember(episode)
        clock.advance(60)
        async with memory.run("I moved to Faro", session_id="s2") as run:
            await run.finish("Nice!")
        await agent.drain()
        known = {(fact.predicate, fact.object) for fact in await memory.facts()}
        assert known == {("name", "Ann"), ("lives_in", "Faro"), ("likes", "rain")}
        assert len(await memory.facts(at_any_time=True)) == 4
        assert await jobs(expunge) == {}
        await memory.forget(session_id="s2")
        assert objects(await memory.facts()) == {"Ann", "Porto", "rain"}
        assert (await memory.forget(user_id="ann")) == 5  # the episode, its session and its facts
        assert await count(expunge, "facts") == {"facts": 0}


@pytest.mark.authorities("memory", "postgres")
async def test_derivers_of_ones_own(expunge: Expunge, clock: ManualClock) -> None:
    """Any async callable derives; it is given what is served, oldest first, and names are not taken twice."""
    seen: list[Sequence[Source]] = []

    async def longest(sources: Sequence[Source]) -> list[Any]:
        seen.append(sources)
        text = max((source.text for source in sources), key=len)
        return [MemoryDraft({"longest": text}, key="longest"), FactDraft("user", "said", text, exclusive=False)]

    async with as_user(expunge) as agent:
        memory = agent.memory
        ids = await told(agent, ("s1", "short"), ("s1", "somewhat longer"), ("s2", "the longest of all"))
        clock.advance(1)
        note = (await memory.set("note", "a note that is by far the longest of all of them")).memory_id
        await memory.consolidate(longest, session_id="s1")
        await agent.drain()
        assert [source.id for source in seen[0]] == ids[:2]
        assert (await memory.get("longest", session_id=None)).value == {"longest": "somewhat longer"}
        await memory.consolidate(longest, sources=[*ids, note], name="longest")
        await agent.drain()
        assert [source.collection for source in seen[1]] == ["episodes"] * 3 + ["memories"]
        assert objects(await memory.facts()) == {
            "somewhat longer",
            "a note that is by far the longest of all of them",
        }
        with pytest.raises(InputError):
            await memory.consolidate(digest, name="longest")
        with pytest.raises(InputError):
            await memory.consolidate(longest, sources=["nowhere"])
        nothing = await memory.consolidate(longest, user_id="bob")
        assert (nothing.id, nothing.sources) == (None, 0)
        await memory.delete("note")
        await memory.consolidate(longest, sources=[ids[0], note])
        await agent.drain()
        assert [source.id for source in seen[2]] == ids[:1]


def answering(answer: Any) -> Callable[..., Any]:
    async def rubbish(sources: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        if answer is asyncio:
            await asyncio.Event().wait()
        return answer

    return rubbish


RUBBISH = {
    "raises": ZeroDivisionError("secret words"),
    "hangs": asyncio,
    "none": None,
    "texts": ["secret words"],
    "number": 7,
    "no json": [MemoryDraft(object())],
    "nan": [MemoryDraft(float("nan"))],
    "bad key": [MemoryDraft("x", key="")],
    "no key": [MemoryDraft("x", key=7)],  # type: ignore[arg-type]
    "one bad": [MemoryDraft("good"), FactDraft("user", "likes", "a\0b")],
    "no text": [FactDraft("user", "likes", 7)],  # type: ignore[arg-type]
    "no predicate": [FactDraft("user", None, "x")],  # type: ignore[arg-type]
    "naive": [FactDraft("user", "likes", "x", valid_from=NAIVE)],
    "no time": [FactDraft("user", "likes", "x", valid_from="2026-01-01")],  # type: ignore[arg-type]
    "backwards": [FactDraft("user", "likes", "x", valid_to=NAIVE.replace(year=2020).astimezone())],
}


@pytest.mark.parametrize("case", RUBBISH)
async def test_a_deriver_that_does_not_answer_as_it_should(clock: ManualClock, case: str) -> None:
    """Law 16: a job that fails is tried three times, then failed for good; nothing of it is written, others go on."""
    opened_with = Settings(db=":memory:", derive_timeout_s=0.01)
    async with Expunge(settings=opened_with, clock=clock) as opened, as_user(opened) as agent:
        (said,) = await told(agent, ("s", "I like rain"))
        who: dict[str, Any] = {"org": ORG, "namespace": "support", "agent": "helper", "user_id": "ann"}
        opened.system.derivers |= {"bad": answering(RUBBISH[case]), "plain_facts": plain_facts}
        await opened.call("jobs.add", deriver="bad", key="k", sources=[said], **who)
        await opened.call("jobs.add", deriver="plain_facts", sources=[said], **who)
        drained = await agent.drain()
        assert (drained.done, drained.failed) == (1, 1)
        assert await jobs(opened) == {"waiting": 1}
        for left in ("waiting", "failed"):
            assert (await agent.drain()).failed == 0  # not before its pause is over
            clock.advance(3600)
            assert (await agent.drain()).failed == 1
            assert await jobs(opened) == {left: 1}
        clock.advance(DAY_S)
        assert (await agent.drain()).failed == 0
        assert await count(opened, "memories", "facts") == {"memories": 0, "facts": 1}
        ((reason,),) = await read(opened, "SELECT failure FROM jobs")
        assert reason
        assert "secret" not in reason
        await agent.memory.forget(user_id="ann")
        assert await jobs(opened) == {}


@pytest.mark.authorities("memory", "postgres")
async def test_an_agent_closes_beside_a_deriver_that_answers_rubbish(expunge: Expunge) -> None:
    """Law 16: what a deriver does wrong is the job's failure, and not that of the agent that closes."""
    async with as_user(expunge) as agent:
        agent.memory.auto_extract(answering([FactDraft("user", None, "x")]), name="bad")  # type: ignore[arg-type]
        await told(agent, ("s", "I like rain"))
    assert await count(expunge, "episodes", "facts") == {"episodes": 1, "facts": 0}


@pytest.mark.authorities("memory", "postgres")
async def test_what_is_erased_while_a_deriver_thinks_is_not_written(expunge: Expunge) -> None:
    """Law 4: a job carries the ``as_of`` of what it read: after an erasure nothing of it is written."""
    async with as_user(expunge) as agent:
        thinking, erased = asyncio.Event(), asyncio.Event()

        async def slow(sources: Sequence[Source]) -> list[Any]:
            thinking.set()
            await erased.wait()
            return [MemoryDraft(source.text) for source in sources]

        await told(agent, ("s1", "secret"), ("s2", "public"))
        await agent.memory.consolidate(slow)
        await thinking.wait()
        await agent.memory.forget(session_id="s1")
        erased.set()
        await agent.drain()
        assert await read(expunge, "SELECT count(*) FROM memories WHERE value LIKE '%secret%'") == [(0,)]
        assert texts(await agent.memory.recall("")) == ["public"]


async def answerer(question: str, hits: Sequence[Any]) -> str:
    return f"{question} {' '.join(sorted(texts(hits)))}"


@pytest.mark.authorities("memory", "postgres")
async def test_an_answer_is_kept_and_given_again(expunge: Expunge, clock: ManualClock) -> None:
    """``ask`` keeps an answer for whom it was asked, for its time; another spelling of the question is the same."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        written = await memory.set("k", "rain falls")
        first = await memory.ask("What falls?", answerer)
        assert (first.text, first.cached) == ("What falls? rain falls", False)
        assert first.quotes == [written.memory_id]
        again = await memory.ask("what  FALLS?", answerer)
        assert (again.text, again.quotes, again.cached) == (first.text, first.quotes, True)
        assert not (await memory.ask("What falls?", answerer, fresh=True)).cached
        assert not (await agent.at(user_id="bob").memory.ask("What falls?", answerer)).cached
        assert not (await agent.at(namespace="other").memory.ask("What falls?", answerer)).cached
        empty = await agent.at(user_id="bob").memory.ask("What falls?", answerer)
        assert (empty.quotes, empty.cached) == ([], False)
        clock.advance(DAY_S - 1)
        assert (await memory.ask("What falls?", answerer)).cached
        clock.advance(1)
        assert not (await memory.ask("What falls?", answerer, ttl_seconds=5)).cached
        clock.advance(5)
        assert not (await memory.ask("What falls?", answerer)).cached


@pytest.mark.authorities("memory", "postgres")
async def test_an_answer_is_not_given_to_a_question_about_another(expunge: Expunge) -> None:
    """An answer from what was found of one user is not given again when the question is asked of another."""
    async with as_user(expunge, None) as agent:
        memory = agent.memory
        await memory.set("k", "rain of bob", user_id="bob")
        await memory.set("k", "rain of carl", user_id="carl")
        for user in ("bob", "carl"):
            found = await memory.ask("What rain?", answerer, user_id=user)
            assert (found.text, found.cached) == (f"What rain? rain of {user}", False)
            assert (await memory.ask("What rain?", answerer, user_id=user)).cached
        both = await memory.ask("What rain?", answerer, user_id=ANY)
        assert both.text == "What rain? rain of bob rain of carl"
        nothing = await memory.ask("What rain?", answerer, kinds=["episodes"], user_id=ANY)
        assert nothing.quotes == []


@pytest.mark.authorities("memory", "postgres")
@pytest.mark.parametrize("how", ["deleted", "replaced", "expired", "hidden"])
async def test_an_answer_is_not_given_again_without_what_it_quotes(
    expunge: Expunge, clock: ManualClock, how: str
) -> None:
    """Design 4: an answer that quotes what is not served any more is not given again."""
    async with as_user(expunge, None) as agent:
        memory = agent.memory
        await memory.set("k", "rain falls", ttl_seconds=60, user_id="bob")
        await memory.set("l", "rain stays", user_id="bob")
        (asked, other) = ("What falls?", "What stays?")
        for question in (asked, other):
            found = await memory.ask(question, answerer, limit=1, user_id=ANY)
            assert len(found.quotes) == 1
            assert (await memory.ask(question, answerer, limit=1, user_id=ANY)).cached
        match how:
            case "deleted":
                await memory.delete("k", user_id="bob")
            case "replaced":
                await memory.set("k", "snow falls", user_id="bob")
            case "expired":
                clock.advance(60)
            case _:
                await agent.erasure.request_user_id("bob")
        assert not (await memory.ask(asked, answerer, limit=1, user_id=ANY)).cached
        assert (await memory.ask(other, answerer, limit=1, user_id=ANY)).cached is (how != "hidden")


@pytest.mark.authorities("memory", "postgres")
async def test_an_answer_goes_with_what_it_quotes(expunge: Expunge) -> None:
    """Law 6: an answer goes with any record that it quotes, whoever asked; one that quotes others stays."""
    async with as_user(expunge, None) as agent:
        memory = agent.memory
        await memory.set("k", "rain falls", user_id="bob")
        await memory.set("k", "snow stays", user_id="carl")
        both = await memory.ask("rain snow", answerer, user_id=ANY)
        assert len(both.quotes) == 2
        await memory.ask("snow stays", answerer, limit=1, user_id="carl")
        gone = await memory.forget(user_id="bob")
        assert gone.by_collection["answers"] == 1
        assert await read(expunge, "SELECT question FROM answers") == [("snow stays",)]
        assert (await memory.ask("snow stays", answerer, limit=1, user_id="carl")).cached
        assert not (await memory.ask("rain snow", answerer, user_id=ANY)).cached


@pytest.mark.authorities("memory", "postgres")
async def test_an_answer_thought_out_during_an_erasure_is_not_kept(expunge: Expunge) -> None:
    """Law 4: what was read before an erasure and answered after it is refused, and stands nowhere."""
    async with as_user(expunge) as agent:
        await agent.memory.set("k", "secret")

        async def slow(question: str, hits: Sequence[Any]) -> str:
            await agent.memory.forget(user_id="ann")
            return texts(hits)[0]

        with pytest.raises((ErasedSince, InvalidRecords)):
            await agent.memory.ask("What secret?", slow)
        assert await count(expunge, "answers", "memories") == {"answers": 0, "memories": 0}
