"""Chat: episodes with their transcripts, sessions, and runs in every state."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from expunge import ANY, Agent, Episode, Expunge, Message
from expunge.agent import Run
from expunge.errors import ErasedSince, ExpungeError, InputError, InvalidRecords, UnknownRun
from expunge.model.instant import ManualClock
from tests.agents.kit import ORG, after, as_user, count, read, texts

pytestmark = pytest.mark.authorities("sqlite", "postgres")

TOOLS = [{"id": "c1", "function": {"name": "weather", "arguments": {"city": "Porto", "days": [1, 2.5, None]}}}]
SAID = [
    Message(role="system", content="Be kind."),
    Message(role="assistant", content=None, tool_calls=TOOLS),
    Message(role="tool", content='{"sun": true}', name="weather", tool_call_id="c1"),
    Message(role="tool_result", content="", name="Ünïcode 😂"),
]


def told(messages: list[Message]) -> list[tuple[str, str | None]]:
    return [(message.role, message.content) for message in messages]


async def status_of(expunge: Expunge, run_id: str) -> str:
    ((status,),) = await read(expunge, "SELECT status FROM episodes WHERE id = :id", id=run_id)
    return str(status)


def state_of(run: Run) -> str:
    return run.state


@pytest.mark.authorities("memory", "postgres")
async def test_a_transcript_comes_back_as_it_was(expunge: Expunge) -> None:
    """A session gives back all that was said in it, in order, with what tools were asked and what they answered."""
    async with as_user(expunge) as agent:
        episode = Episode(input="Sun?", output="Yes.", session_id="s1", transcript=SAID, tool_calls={"n": [1]})
        first = await agent.memory.remember(episode)
        whole = await agent.memory.session_messages("s1")
        assert whole == [Message(role="user", content="Sun?"), *SAID, Message(role="assistant", content="Yes.")]
        (hit,) = await agent.memory.recall("sun")
        assert hit.id == first
        assert hit.record["tool_calls"] == {"n": [1]}
        assert hit.text == "Sun?\nYes."
        long = [Message(role="user", content=str(n)) for n in range(200)]
        await agent.memory.remember(Episode(session_id="long", transcript=long))
        assert await agent.memory.session_messages("long", limit=200) == long


@pytest.mark.authorities("memory", "postgres")
async def test_messages_are_the_newest_in_order(expunge: Expunge, clock: ManualClock) -> None:
    """Law 11: the newest messages, oldest first, whatever order they came in; what the limit left out is said."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        order = [3, 1, 2, 0]
        episodes = [Episode(input=f"q{n}", output=f"a{n}", session_id="s", occurred_at=after(minutes=n)) for n in order]
        await memory.remember_many(episodes)
        whole = await memory.session_messages("s")
        assert [message.content for message in whole] == ["q0", "a0", "q1", "a1", "q2", "a2", "q3", "a3"]
        assert not whole.more
        page = await memory.session_messages("s", limit=3)
        assert [message.content for message in page] == ["a2", "q3", "a3"]
        assert page.more
        assert not (await memory.session_messages("s", limit=8)).more
        assert await memory.session_messages("other") == []
        with pytest.raises(InputError):
            await memory.session_messages()
        assert len(await agent.at(session_id="s").memory.session_messages()) == 8


@pytest.mark.authorities("memory", "postgres")
async def test_runs_that_said_nothing_do_not_take_the_place_of_messages(expunge: Expunge) -> None:
    """Law 11: a limit of messages counts messages, and not runs without one."""
    async with as_user(expunge) as agent:
        await agent.memory.remember(Episode(input="hello", session_id="s", occurred_at=after(minutes=-1)))
        for _ in range(3):
            async with agent.memory.run(session_id="s"):
                pass
        page = await agent.memory.session_messages("s", limit=2)
        assert [message.content for message in page] == ["hello"]


@pytest.mark.authorities("memory", "postgres")
async def test_a_repeat_is_written_once(expunge: Expunge) -> None:
    """Law 16: an episode under an id, or an idempotency key, is written once; other content under it is refused."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        episode = Episode(id="e1", input="apple", session_id="s", transcript=SAID)
        keyed = Episode(idempotency_key="i1", input="pear", session_id="s")
        first = await memory.remember_many([episode, keyed])
        assert first.skipped == 0
        again = await memory.remember_many([episode, keyed, Episode(input="fresh")])
        assert (again.ids[:2], again.skipped) == (first.ids, 2)
        assert first.ids[0] == "e1"
        assert await count(expunge, "episodes", "events", "sessions") == {"episodes": 3, "events": 4, "sessions": 1}
        with pytest.raises(InvalidRecords):
            await memory.remember(Episode(id="e1", input="other", session_id="s"))
        with pytest.raises(InvalidRecords):
            await memory.remember(episode, user_id="bob")
        assert (await memory.remember(keyed, user_id="bob")) != first.ids[1]
        assert sorted(texts(await memory.recall("apple pear"))) == ["apple", "pear"]


@pytest.mark.authorities("memory", "postgres")
async def test_another_transcript_under_a_known_id_is_refused(expunge: Expunge) -> None:
    """Law 16: a repeat that says something else in its transcript is another episode, not a success."""
    async with as_user(expunge) as agent:
        await agent.memory.remember(Episode(id="e1", input="x", session_id="s", transcript=SAID[:1]))
        with pytest.raises(InvalidRecords):
            await agent.memory.remember(
                Episode(id="e1", input="x", session_id="s", transcript=[Message(role="system", content="Be rude.")])
            )
        assert await count(expunge, "events") == {"events": 1}


@pytest.mark.authorities("memory", "postgres")
async def test_two_episodes_of_one_id_in_one_call(expunge: Expunge) -> None:
    """Law 16: two different episodes under one id in one call are refused, and none is lost in silence."""
    async with as_user(expunge) as agent:
        with pytest.raises(ExpungeError):
            await agent.memory.remember_many([Episode(id="e1", input="one"), Episode(id="e1", input="two")])
        assert await count(expunge, "episodes") == {"episodes": 0}
        same = await agent.memory.remember_many([Episode(id="e1", input="one")] * 2)
        assert same.ids == ["e1", "e1"]
        assert await count(expunge, "episodes") == {"episodes": 1}


@pytest.mark.authorities("memory", "postgres")
async def test_remember_many_is_all_or_nothing(expunge: Expunge) -> None:
    """Law 16: one episode that does not fit keeps all of them out, with their sessions, events and entries."""
    async with as_user(expunge) as agent:
        good = Episode(input="apple", session_id="s", transcript=SAID)
        wrong = [
            Episode(input="a\0b"),
            Episode(input="x", transcript=[Message(role="tool", content="a\0b")]),
            Episode(input="x", tool_calls=float("inf")),
            Episode(input="x", sources=["nowhere"]),
        ]
        for bad in wrong:
            with pytest.raises(InputError):
                await agent.memory.remember_many([good, bad])
        nothing = await count(expunge, "episodes", "events", "sessions", "vectors", "search_docsize")
        assert set(nothing.values()) == {0}
        with pytest.raises(InputError):
            await agent.memory.remember_many([])
        with pytest.raises(InputError):
            await agent.memory.remember_many([good] * 1001)
        assert len((await agent.memory.remember_many([good] * 1000)).ids) == 1000


@pytest.mark.authorities("memory", "postgres")
async def test_two_users_may_speak_in_one_session(expunge: Expunge) -> None:
    """Law 12: a session id is opaque and belongs to its user: what one says in ``1`` is not the other's."""
    async with as_user(expunge) as ann, as_user(expunge, "bob") as bob:
        for agent, word in ((ann, "apple"), (bob, "pear")):
            await agent.memory.remember(Episode(input=word, session_id="1"))
        assert told(await ann.memory.session_messages("1")) == [("user", "apple")]
        assert told(await bob.memory.session_messages("1")) == [("user", "pear")]
        assert texts(await ann.memory.recall("apple pear", session_id="1")) == ["apple"]
        assert await ann.memory.end_session("1")
        assert [item.status for item in (await bob.memory.sessions()).sessions] == ["open"]
        assert (await ann.memory.forget(user_id="ann", session_id="1")) == 2
        assert await ann.memory.session_messages("1") == []
        assert told(await bob.memory.session_messages("1")) == [("user", "pear")]


@pytest.mark.authorities("memory", "postgres")
async def test_sessions_in_pages(expunge: Expunge, clock: ManualClock) -> None:
    """Law 11: sessions come newest first, page by page to the end, each open or ended; another's are not among them."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        for n in range(5):
            await memory.remember(Episode(input="x", session_id=f"s{n}"))
        await memory.remember(Episode(input="x", session_id="theirs"), user_id="bob")
        await memory.remember(Episode(input="x", session_id="of another"), agent="other")
        clock.advance(60)
        assert await memory.end_session("s3")
        assert not await memory.end_session("s3")
        assert not await memory.end_session("none")
        found, after_row = [], None
        for size in (2, 2, 1):
            page = await memory.sessions(limit=2, after=after_row)
            assert len(page.sessions) == size
            found += page.sessions
            after_row = page.next
        assert after_row is None
        assert [item.session_id for item in found] == ["s4", "s3", "s2", "s1", "s0"]
        ended = next(item for item in found if item.session_id == "s3")
        assert (ended.status, ended.created_at, ended.ended_at) == ("ended", after(), after(minutes=1))
        assert {item.status for item in found if item is not ended} == {"open"}
        everyone = await memory.sessions(any_agent=True)
        assert everyone.sessions[0].session_id == "of another"


@pytest.mark.authorities("memory", "postgres")
async def test_what_any_agent_said_in_a_session(expunge: Expunge) -> None:
    """A session is read for one agent, or for all of them."""
    async with as_user(expunge) as agent:
        await agent.memory.remember(Episode(input="mine", session_id="s", occurred_at=after(minutes=1)))
        await agent.memory.remember(Episode(input="its", session_id="s"), agent="other")
        assert told(await agent.memory.session_messages("s")) == [("user", "mine")]
        both = await agent.memory.session_messages("s", any_agent=True)
        assert told(both) == [("user", "its"), ("user", "mine")]
        assert sorted(texts(await agent.memory.recall("", agent=ANY))) == ["its", "mine"]


async def test_many_at_once_in_a_new_session(expunge: Expunge) -> None:
    """Episodes that come at once open their session once, and none is lost."""
    async with as_user(expunge) as agent:
        await asyncio.gather(*(agent.memory.remember(Episode(input=str(n), session_id="s")) for n in range(12)))
        assert await count(expunge, "sessions", "episodes") == {"sessions": 1, "episodes": 12}
        said = {message.content for message in await agent.memory.session_messages("s")}
        assert said == {str(n) for n in range(12)}


@pytest.mark.authorities("memory", "postgres")
async def test_a_run_that_finishes(expunge: Expunge, clock: ManualClock) -> None:
    """A run is an episode that gets its output, its calls and its transcript when it ends; search finds both ends."""
    async with as_user(expunge) as agent:
        async with agent.memory.run("Where is the sun?", session_id="s") as run:
            assert state_of(run) == "running"
            assert await status_of(expunge, run.id) == "running"
            await run.memory.set("seen", "in the run")
            clock.advance(5)
            await run.finish("In Porto.", tool_calls=TOOLS, transcript=SAID)
        assert state_of(run) == "completed"
        messages = await agent.memory.session_messages("s")
        assert messages[1:-1] == SAID
        assert (messages[0].content, messages[-1].content) == ("Where is the sun?", "In Porto.")
        for query in ("sun", "Porto"):
            (hit,) = await agent.memory.recall(query)
            assert (hit.id, hit.record["status"], hit.record["tool_calls"]) == (run.id, "completed", TOOLS)
        assert (await agent.memory.get("seen")).found
        assert await count(expunge, "episodes", "sessions") == {"episodes": 1, "sessions": 1}


@pytest.mark.authorities("memory", "postgres")
async def test_a_run_that_fails_or_is_given_up(expunge: Expunge) -> None:
    """A run ends as ``failed`` by an error, which is passed on, and as ``cancelled`` when nobody finished it."""
    async with as_user(expunge) as agent:
        with pytest.raises(ZeroDivisionError):
            async with agent.memory.run("one", session_id="s") as failed:
                raise ZeroDivisionError
        async with agent.memory.run("two", session_id="s") as left:
            pass
        assert (failed.state, left.state) == ("failed", "cancelled")
        assert await status_of(expunge, failed.id) == "failed"
        assert await status_of(expunge, left.id) == "cancelled"
        assert told(await agent.memory.session_messages("s")) == [("user", "one"), ("user", "two")]


@pytest.mark.authorities("memory", "postgres")
async def test_a_run_whose_task_is_cancelled(expunge: Expunge) -> None:
    """A run whose task is cancelled ends as ``cancelled``; its record is not left running."""
    async with as_user(expunge) as agent:
        begun = asyncio.Event()
        runs = []

        async def work() -> None:
            async with agent.memory.run("hello", session_id="s") as run:
                runs.append(run)
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await status_of(expunge, runs[0].id) == "cancelled"
        assert runs[0].state == "cancelled"


@pytest.mark.authorities("memory", "postgres")
async def test_a_finished_run_is_not_begun_or_ended_again(expunge: Expunge) -> None:
    """Law 16: a run that is over stays as it ended, whoever resumes it."""
    async with as_user(expunge) as agent:
        async with agent.memory.run("hello", id="r1", session_id="s") as run:
            await run.finish("done")
            with pytest.raises(UnknownRun):
                await run.finish("done again")
            assert run.state == "completed"
        with pytest.raises(InputError):
            async with agent.memory.run("hello", id="r1", session_id="s"):
                raise AssertionError("it began again")
        assert told(await agent.memory.session_messages("s")) == [("user", "hello"), ("assistant", "done")]


@pytest.mark.authorities("memory", "postgres")
async def test_a_run_that_still_lasts_is_resumed(expunge: Expunge) -> None:
    """A run that was left running (its process died) goes on under its id, as one episode."""
    async with as_user(expunge) as agent:
        values: dict[str, Any] = {
            "org": ORG,
            "namespace": "support",
            "agent": "helper",
            "user_id": "ann",
            "session_id": "s",
        }
        await expunge.call("chat.begin_run", id="r1", input="hello", **values)
        async with agent.memory.run("hello", id="r1", session_id="s") as run:
            await run.finish("done")
        assert await count(expunge, "episodes") == {"episodes": 1}
        assert await status_of(expunge, "r1") == "completed"


@pytest.mark.authorities("memory", "postgres")
@pytest.mark.parametrize("whose", ["user_id", "session_id"])
async def test_a_run_that_is_erased_meanwhile(expunge: Expunge, whose: str) -> None:
    """Law 4: what a run read may be gone: nothing that it writes after an erasure of its scope comes in."""
    async with as_user(expunge) as agent:
        scope: dict[str, Any] = {"user_id": "ann"} if whose == "user_id" else {"session_id": "s"}
        async with agent.memory.run("secret", session_id="s") as run:
            before = await agent.as_of()
            assert (await agent.memory.forget(**scope)) == 2
            with pytest.raises(ErasedSince):
                await run.memory.remember(Episode(input="secret", session_id="s"))
            with pytest.raises((ErasedSince, UnknownRun)):
                await run.finish("secret again", transcript=SAID)
            assert run.state == "erased"
        async with agent.memory.run("secret", session_id="s") as quiet:
            await agent.memory.forget(**scope)
        assert quiet.state == "erased"
        with pytest.raises(ErasedSince):
            async with agent.began(before).run("resumed", id=run.id, session_id="s"):
                raise AssertionError("it began")
        assert set((await count(expunge, "episodes", "events", "sessions", "search_docsize")).values()) == {0}
        async with agent.memory.run("fresh", session_id="s") as fresh:
            await fresh.finish("welcome back")
        assert fresh.state == "completed"


@pytest.mark.authorities("memory", "postgres")
async def test_the_memory_of_a_run_is_that_of_its_identity(expunge: Expunge) -> None:
    """What is written through ``run.memory`` belongs to whom the run is for."""
    async with as_user(expunge, None) as agent:
        async with agent.memory.run("hi", user_id="bob", session_id="s") as run:
            await run.memory.set("k", "of bob")
            await run.finish("ho")
        assert not (await agent.memory.get("k")).found
        assert (await agent.memory.get("k", user_id="bob", session_id="s")).found or (
            await agent.memory.get("k", user_id="bob")
        ).found


@pytest.mark.authorities("memory", "postgres")
async def test_a_run_is_ended_by_whom_it_is_for(expunge: Expunge) -> None:
    """Law 5: another user cannot end a run; were it taken, the index would know it as that other's for ever."""
    async with as_user(expunge, "bob") as bob:
        async with as_user(expunge) as agent, agent.memory.run("hello", session_id="s") as run:
            values: dict[str, Any] = {"org": ORG, "namespace": "support", "agent": "helper", "session_id": "s"}
            with pytest.raises(InputError):
                await expunge.call("chat.end_run", run_id=run.id, output="forged", user_id="bob", **values)
            await run.finish("mine")
            assert texts(await agent.memory.recall("mine")) == ["hello\nmine"]
        assert await bob.memory.recall("forged") == []
        assert (await bob.memory.forget(user_id="bob")) == 0


@pytest.mark.authorities("memory", "postgres")
async def test_what_a_run_ends_with_is_checked(expunge: Expunge) -> None:
    """Bad input: what is no JSON, too long or no text is refused at the end of a run as anywhere, and it goes on."""
    async with as_user(expunge) as agent, agent.memory.run("hello", session_id="s") as run:
        most = expunge.settings.max_value_bytes
        wrong: list[dict[str, Any]] = [
            {"output": "a\0b"},
            {"output": "x" * (most + 1)},
            {"output": "x", "tool_calls": object()},
            {"output": "x", "tool_calls": float("nan")},
            {"output": "x", "tool_calls": ["x" * most]},
            {"output": "x", "transcript": [Message(role="tool", content="a\0b")]},
        ]
        for ending in wrong:
            with pytest.raises(InputError):
                await run.finish(**ending)
            assert run.state == "running"
        await run.finish("fine")
        assert await status_of(expunge, run.id) == "completed"


async def test_a_shared_system_outlives_its_agents(expunge: Expunge) -> None:
    """An agent that shares a system sees what another wrote, and leaves it open."""
    async with Agent(expunge, org=ORG, user_id="ann") as one:
        await one.memory.remember(Episode(input="apple", session_id="s"))
    async with Agent(expunge, org=ORG, user_id="ann") as two:
        assert texts(await two.memory.recall("apple")) == ["apple"]
    assert expunge.is_open
