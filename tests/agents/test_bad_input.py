"""Bad input through every call of an agent: a clear error, and nothing half-written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from expunge import Agent, Episode, Expunge, Message, NewFact, Settings
from expunge.agent import Memory
from expunge.errors import EmbedderFault, InputError, InvalidId
from expunge.model.instant import ManualClock
from tests.agents.kit import MOODS, NAIVE, ORG, Moody, as_user, change, count, texts
from tests.support import BAD_IDS, HOSTILE_IDS

TABLES = ("sessions", "episodes", "events", "memories", "facts", "blocks", "documents", "chunks", "answers", "jobs",
          "lineage", "vectors", "search_docsize")  # fmt: skip
Call = Callable[[Memory, Any], Awaitable[Any]]


async def unrefused(calls: Mapping[str, Awaitable[Any]], *wanted: type[Exception]) -> dict[str, str]:
    """Which calls are not answered with one of the wanted errors, and with what instead."""
    wrong: dict[str, str] = {}
    for name, call in calls.items():
        try:
            answer = await call
        except wanted:
            continue
        except Exception as fault:  # noqa: BLE001 (whatever it is, it is not what was wanted)
            wrong[name] = f"{type(fault).__name__}: {fault}"
        else:
            wrong[name] = f"answered {answer!r}"
    return wrong


async def answerer(question: str, hits: Any) -> str:
    return question


def fact(**fields: Any) -> NewFact:
    return NewFact(**({"subject": "s", "predicate": "p", "object": "o"} | fields))


IDS: dict[str, Call] = {
    "set": lambda m, bad: m.set(bad, 1),
    "set_many": lambda m, bad: m.set_many([{"key": "good", "value": 1}, {"key": bad, "value": 1}]),
    "get": lambda m, bad: m.get(bad),
    "delete": lambda m, bad: m.delete(bad),
    "restore": lambda m, bad: m.restore(bad),
    "history": lambda m, bad: m.history(bad),
    "touch": lambda m, bad: m.touch("good", bad, ttl_seconds=1),
    "update_block": lambda m, bad: m.update_block(bad, "x"),
    "append_block": lambda m, bad: m.append_block(bad, "x"),
    "delete_block": lambda m, bad: m.delete_block(bad),
    "add_document": lambda m, bad: m.add_document(bad, text="x"),
    "document": lambda m, bad: m.document(bad),
    "original": lambda m, bad: m.original(bad),
    "pin_document": lambda m, bad: m.pin_document(bad),
    "delete_document": lambda m, bad: m.delete_document(bad),
    "end_session": lambda m, bad: m.end_session(bad),
    "session_messages": lambda m, bad: m.session_messages(bad),
    "consolidate": lambda m, bad: m.consolidate(key=bad),
}
"""Calls with an id of their own in the place of ``bad``."""
SOURCES: dict[str, Call] = {
    "set": lambda m, bad: m.set("k", 1, sources=[bad]),
    "derive": lambda m, bad: m.derive("k", 1, sources=[bad]),
    "remember": lambda m, bad: m.remember(Episode(input="x", sources=[bad])),
    "add_fact": lambda m, bad: m.add_fact(fact(sources=[bad])),
    "update_block": lambda m, bad: m.update_block("k", "x", sources=[bad]),
    "append_block": lambda m, bad: m.append_block("k", "x", sources=[bad]),
    "add_document": lambda m, bad: m.add_document("k", text="x", sources=[bad]),
    "consolidate": lambda m, bad: m.consolidate(sources=[bad]),
}
OF_SOMEBODY: dict[str, Call] = {
    "set": lambda m, who: m.set("k", 1, **who),
    "set_many": lambda m, who: m.set_many({"k": 1}, **who),
    "get": lambda m, who: m.get("k", **who),
    "delete": lambda m, who: m.delete("k", **who),
    "restore": lambda m, who: m.restore("k", **who),
    "history": lambda m, who: m.history("k", **who),
    "touch": lambda m, who: m.touch("k", clear_expiry=True, **who),
    "search": lambda m, who: m.search("x", **who),
    "derive": lambda m, who: m.derive("k", 1, sources=["x"], **who),
    "consolidate": lambda m, who: m.consolidate(**who),
    "remember": lambda m, who: m.remember(Episode(input="x"), **who),
    "recall": lambda m, who: m.recall("x", **who),
    "session_messages": lambda m, who: m.session_messages(**({"session_id": "s"} | who)),
    "sessions": lambda m, who: m.sessions(**who),
    "run": lambda m, who: m.run("x", **who).__aenter__(),
    "add_fact": lambda m, who: m.add_fact(fact(), **who),
    "facts": lambda m, who: m.facts(**who),
    "recall_facts": lambda m, who: m.recall_facts("x", **who),
    "working": lambda m, who: m.working(**who),
    "update_block": lambda m, who: m.update_block("k", "x", **who),
    "append_block": lambda m, who: m.append_block("k", "x", **who),
    "delete_block": lambda m, who: m.delete_block("k", **who),
    "add_document": lambda m, who: m.add_document("k", text="x", **who),
    "document": lambda m, who: m.document("k", **who),
    "documents": lambda m, who: m.documents(**who),
    "pin_document": lambda m, who: m.pin_document("k", **who),
    "delete_document": lambda m, who: m.delete_document("k", **who),
    "ask": lambda m, who: m.ask("x", answerer, **who),
}
"""Calls that take whose records they speak of."""


async def test_what_is_no_id_is_refused(in_memory: Expunge) -> None:
    """Law 12: what is no id is a clear error in every call, and nothing is written."""
    async with as_user(in_memory) as agent:
        calls = {f"{name} {bad!a}": call(agent.memory, bad) for name, call in IDS.items() for bad in BAD_IDS}
        calls.pop("consolidate None").close()  # type: ignore[attr-defined]
        assert await unrefused(calls, InputError) == {}
        assert set((await count(in_memory, *TABLES)).values()) == {0}


async def test_what_is_no_source_is_refused(in_memory: Expunge) -> None:
    """Law 5: a source that is no id, or is nowhere, is a clear error, and nothing is written."""
    async with as_user(in_memory) as agent:
        bad_ids = (*(bad for bad in BAD_IDS if isinstance(bad, str)), "nowhere", 7)
        calls = {f"{name} {bad!a}": call(agent.memory, bad) for name, call in SOURCES.items() for bad in bad_ids
                 if isinstance(bad, str) or name not in ("remember", "add_fact")}  # fmt: skip
        assert await unrefused(calls, InputError) == {}
        assert set((await count(in_memory, *TABLES)).values()) == {0}


async def test_whose_it_is_is_checked(in_memory: Expunge) -> None:
    """Law 12: a bad identity part is refused in every call, and so is a part that there is not."""
    async with as_user(in_memory) as agent:
        calls: dict[str, Awaitable[Any]] = {}
        for name, call in OF_SOMEBODY.items():
            for part in ("namespace", "agent", "user_id", "session_id"):
                for bad in (7, "", "a\0b", "\ud800"):
                    calls[f"{name} {part} {bad!a}"] = call(agent.memory, {part: bad})
        assert await unrefused(calls, InvalidId) == {}
        unknown = {name: call(agent.memory, {"user": "x"}) for name, call in OF_SOMEBODY.items()}
        assert await unrefused(unknown, InputError) == {}
        assert set((await count(in_memory, *TABLES)).values()) == {0}


def test_an_agent_is_somebody() -> None:
    """Law 12: a bad part of an agent's own identity is refused when it is made; an empty org is not the default one."""
    for part in ("org", "namespace", "agent", "user_id", "session_id"):
        for bad in BAD_IDS:
            if bad is not None:
                parts: dict[str, Any] = {part: bad}
                with pytest.raises(InvalidId):
                    Agent(":memory:", **parts)
    agent = Agent(":memory:", user_id="ann")
    for wrong in ({"user_id": 7}, {"org": "other"}, {"colour": "red"}):
        values: dict[str, Any] = wrong
        with pytest.raises(InputError):
            agent.at(**values)
    assert agent.at(user_id=None).identity.user_id is None


async def test_ids_that_look_strange_are_ordinary(in_memory: Expunge) -> None:
    """Law 12: every id is opaque and another: as a user, a key, a session, a title and a name."""
    async with as_user(in_memory) as agent:
        for at, one in enumerate(HOSTILE_IDS):
            await agent.memory.set(one, at, user_id=one, session_id=one)
            await agent.memory.remember(Episode(id=one, input=f"n{at}", session_id=one))
            await agent.memory.update_block(one, str(at))
        for at, one in enumerate(HOSTILE_IDS):
            assert (await agent.memory.get(one, user_id=one, session_id=one)).value == at
            assert [item.content for item in await agent.memory.session_messages(one)] == [f"n{at}"]
        assert len(await agent.memory.working()) == len(HOSTILE_IDS)
        assert len((await agent.memory.sessions(limit=1000)).sessions) == len(HOSTILE_IDS)
        half = HOSTILE_IDS[::8]
        for one in half:
            assert (await agent.memory.forget(user_id=one)) == 1
        for at, one in enumerate(HOSTILE_IDS):
            assert (await agent.memory.get(one, user_id=one, session_id=one)).found is (one not in half), at


NAIVE_TIMES: dict[str, Call] = {
    "set": lambda m, at: m.set("k", 1, valid_to=at),
    "set_many": lambda m, at: m.set_many([{"key": "k", "value": 1, "valid_to": at}]),
    "touch": lambda m, at: m.touch("k", valid_to=at),
    "remember": lambda m, at: m.remember(Episode(input="x", occurred_at=at)),
    "since": lambda m, at: m.recall("x", since=at),
    "until": lambda m, at: m.search("x", until=at),
    "valid_from": lambda m, at: m.add_fact(fact(valid_from=at)),
    "valid_to": lambda m, at: m.add_fact(fact(valid_to=at)),
    "valid_at": lambda m, at: m.facts(valid_at=at),
    "known_at": lambda m, at: m.recall_facts("x", known_at=at),
    "before": lambda m, at: m.forget(user_id="ann", before=at),
}


async def test_a_time_has_a_zone(in_memory: Expunge) -> None:
    """Law 13: a time without a zone, or what is none, is refused in every call."""

    async def at(call: Call, bad: Any) -> None:
        await call(agent.memory, bad)

    async with as_user(in_memory) as agent:
        calls = {
            f"{name} {bad}": at(call, bad) for name, call in NAIVE_TIMES.items() for bad in (NAIVE, "soon", 7, True)
        }
        assert await unrefused(calls, InputError, ValidationError) == {}
        assert set((await count(in_memory, *TABLES)).values()) == {0}


VALUES: dict[str, Call] = {
    "value": lambda m, bad: m.set("k", bad),
    "values": lambda m, bad: m.set_many({"good": 1, "k": bad}),
    "derived": lambda m, bad: m.set("k", {"deep": [bad]}),
}
NO_VALUES = [object(), float("nan"), float("inf"), b"bytes", {1, 2}, "\ud800", {"a": "\ud800"}, {("a",): 1}, NAIVE]


async def test_what_is_no_json_is_refused(in_memory: Expunge) -> None:
    """Bad input: a value that JSON does not have is refused, alone, deep inside, and beside good ones."""
    circular: list[Any] = []
    circular.append(circular)
    async with as_user(in_memory) as agent:
        values = dict(enumerate((*NO_VALUES, circular, "x" * in_memory.settings.max_value_bytes)))
        calls = {f"{name} {at}": call(agent.memory, bad) for name, call in VALUES.items() for at, bad in values.items()}
        assert await unrefused(calls, InputError) == {}
        assert set((await count(in_memory, *TABLES)).values()) == {0}


@pytest.mark.parametrize("depth", [100, 700, 850, 900, 930, 960, 990, 5000])
async def test_a_value_that_is_nested_deep(in_memory: Expunge, depth: int) -> None:
    """Bad input: a value is written and read again, or refused as nested too deep; nothing between."""
    value: Any = "leaf"
    for _ in range(depth):
        value = [value]
    async with as_user(in_memory) as agent:
        try:
            await agent.memory.set("k", value)
        except InputError:
            assert set((await count(in_memory, *TABLES)).values()) == {0}
            return
        assert texts(await agent.memory.search("leaf")) != []
        found = (await agent.memory.get("k")).value
        for _ in range(depth):
            (found,) = found
        assert found == "leaf"


KINDS: dict[str, Callable[[Memory], Awaitable[Any]]] = {
    "tags as a text": lambda m: m.set("k", 1, tags="vip"),
    "tags as a number": lambda m: m.set("k", 1, tags=7),  # type: ignore[arg-type]
    "tags of numbers": lambda m: m.set("k", 1, tags=[7]),  # type: ignore[list-item]
    "confidence": lambda m: m.set("k", 1, confidence=2),
    "confidence as text": lambda m: m.set("k", 1, confidence="1"),  # type: ignore[arg-type]
    "ttl 0": lambda m: m.set("k", 1, ttl_seconds=0),
    "ttl as text": lambda m: m.set("k", 1, ttl_seconds="60"),  # type: ignore[arg-type]
    "ttl for ever": lambda m: m.set("k", 1, ttl_seconds=10**12),
    "on_expire": lambda m: m.set("k", 1, ttl_seconds=1, on_expire="delete"),  # type: ignore[arg-type]
    "lineage": lambda m: m.set("k", 1, lineage="keep"),  # type: ignore[arg-type]
    "if_version": lambda m: m.set("k", 1, if_version=-1),
    "sources as a text": lambda m: m.set("k", 1, sources="me-1"),
    "sources as nothing": lambda m: m.set("k", 1, sources=None),  # type: ignore[arg-type]
    "no items": lambda m: m.set_many([]),
    "items that are none": lambda m: m.set_many([7]),  # type: ignore[list-item]
    "items as a number": lambda m: m.set_many(7),  # type: ignore[arg-type]
    "too many items": lambda m: m.set_many({str(n): n for n in range(1001)}),
    "no keys": lambda m: m.touch(clear_expiry=True),
    "no episode": lambda m: m.remember(None),  # type: ignore[arg-type]
    "episodes as a number": lambda m: m.remember_many(7),  # type: ignore[arg-type]
    "no fact": lambda m: m.add_fact("x"),  # type: ignore[arg-type]
    "limit 0": lambda m: m.search("x", limit=0),
    "limit as text": lambda m: m.recall("x", limit="5"),  # type: ignore[arg-type]
    "alpha": lambda m: m.search("x", alpha=2),
    "kinds": lambda m: m.search("x", kinds=["secrets"]),  # type: ignore[list-item]
    "no kinds": lambda m: m.search("x", kinds=[]),
    "query as bytes": lambda m: m.search(b"x"),  # type: ignore[arg-type]
    "query half a sign": lambda m: m.search("\ud800"),
    "subject half a sign": lambda m: m.facts(subject="\ud800"),
    "predicate half a sign": lambda m: m.facts(predicate="\ud800"),
    "type half a sign": lambda m: m.search("x", memory_type="\ud800"),
    "title half a sign": lambda m: m.documents(after="\ud800"),
    "a session beyond": lambda m: m.sessions(after=2**70),
    "a version beyond": lambda m: m.history("k", before_version=2**70),
    "a document's version beyond": lambda m: m.document("k", version=2**70),
    "content as a number": lambda m: m.update_block("k", 7),  # type: ignore[arg-type]
    "pinned_order": lambda m: m.update_block("k", "x", pinned_order=-1),
    "path as a number": lambda m: m.add_document("k", path=7),  # type: ignore[arg-type]
    "version 0": lambda m: m.document("k", version=0),
    "question as a number": lambda m: m.ask(7, answerer),  # type: ignore[arg-type]
}


async def test_what_is_of_another_kind_is_refused(in_memory: Expunge) -> None:
    """Bad input: a value of the wrong kind or size is a clear error, and never taken for something else."""

    async def made(call: Callable[[Memory], Awaitable[Any]]) -> Any:
        return await call(agent.memory)

    async with as_user(in_memory) as agent:
        assert await unrefused({name: made(call) for name, call in KINDS.items()}, InputError) == {}
        assert set((await count(in_memory, *TABLES)).values()) == {0}


async def test_unknown_fields_are_refused(in_memory: Expunge) -> None:
    """Bad input: a field that there is not is refused, in a model and in an item, and in an operation's input."""
    for model, fields in ((Episode, {"input": "x"}), (Message, {"role": "tool"}), (NewFact, {"subject": "s"})):
        made: Any = model
        with pytest.raises(ValidationError):
            made(**fields, colour="red")
    async with as_user(in_memory) as agent:
        with pytest.raises(InputError):
            await agent.memory.set_many([{"key": "k", "value": 1, "colour": "red"}])
        with pytest.raises(InputError):
            await in_memory.call("memory.set", org=ORG, key="k", value=1, colour="red")
        assert set((await count(in_memory, *TABLES)).values()) == {0}


async def test_a_huge_transcript(clock: ManualClock) -> None:
    """Bad input: one entry above the limit keeps the whole episode out; many entries below it are taken."""
    settings = Settings(db=":memory:", max_value_bytes=10_000)
    async with Expunge(settings=settings, clock=clock) as opened, as_user(opened) as agent:
        said = [Message(role="tool", content="é" * 5000) for _ in range(300)]
        for bad in (
            Message(role="tool", content="x" * 10_001),
            Message(role="tool", tool_calls=["x" * 10_000]),
            Message(role="x" * 10_001),
        ):
            with pytest.raises(InputError):
                await agent.memory.remember(Episode(input="x", session_id="s", transcript=[*said, bad]))
        with pytest.raises(InputError):
            await agent.memory.remember(Episode(input="x" * 10_001, session_id="s", transcript=said))
        assert set((await count(opened, *TABLES)).values()) == {0}
        await agent.memory.remember(Episode(input="x", session_id="s", transcript=said))
        assert (await agent.memory.session_messages("s", limit=400))[1:] == said


WRITES: dict[str, Callable[[Memory], Awaitable[Any]]] = {
    "set": lambda m: m.set("k", "new"),
    "set_many": lambda m: m.set_many({"k": "new", "l": "new"}),
    "remember": lambda m: m.remember(Episode(input="x", session_id="s", transcript=[Message(role="tool")])),
    "run": lambda m: m.run("x", session_id="s").__aenter__(),
    "add_fact": lambda m: m.add_fact(fact()),
    "add_document": lambda m: m.add_document("T", text="x"),
}


@pytest.mark.parametrize("mood", MOODS)
async def test_an_embedder_that_misbehaves(clock: ManualClock, mood: str) -> None:
    """Bad input: an embedder fails, hangs, or answers no vectors: what is written is written whole, or not at all."""
    embedder = Moody()
    settings = Settings(db=":memory:", embed_timeout_s=0.005)
    async with Expunge(settings=settings, clock=clock, embedder=embedder) as opened, as_user(opened) as agent:
        await agent.memory.set("k", "old")
        before = await count(opened, *TABLES)
        embedder.mood = mood
        for name, write in WRITES.items():
            with pytest.raises(EmbedderFault):
                await write(agent.memory)
            assert await count(opened, *TABLES) == before, name
        with pytest.raises(EmbedderFault):
            await agent.memory.search("old")
        await change(opened, "DELETE FROM search")
        with pytest.raises(EmbedderFault):
            await opened.call("search.reindex", org=ORG)
        assert (await agent.memory.get("k")).value == "old"
        await agent.memory.update_block("b", "needs none")
        embedder.mood = None
        for name, write in WRITES.items():
            await write(agent.memory)
            assert (await count(opened, *TABLES)) != before, name
        embedder.mood = mood
        assert (await agent.memory.forget(user_id="ann")) > 0
        assert set((await count(opened, *TABLES)).values()) == {0}


async def test_a_run_ends_once_its_embedder_is_back(clock: ManualClock) -> None:
    """Bad input: a run whose end could not be embedded still lasts, and is ended by a second try."""
    embedder = Moody()
    settings = Settings(db=":memory:")
    async with Expunge(settings=settings, clock=clock, embedder=embedder) as opened, as_user(opened) as agent:
        async with agent.memory.run("hello", session_id="s") as run:
            embedder.mood = "raises"
            with pytest.raises(EmbedderFault):
                await run.finish("out", transcript=[Message(role="tool", content="x")])
            assert run.state == "running"
            assert (await count(opened, "events"))["events"] == 0
            embedder.mood = None
            await run.finish("out", transcript=[Message(role="tool", content="x")])
        assert texts(await agent.memory.recall("out")) == ["hello\nout"]


async def test_a_cancelled_write_is_whole_or_nothing(in_memory: Expunge) -> None:
    """Law 16: a write whose task is cancelled stands with all that belongs to it, or does not stand."""
    async with as_user(in_memory) as agent:
        for patience in range(12):
            episode = Episode(input="x", session_id=f"s{patience}", transcript=[Message(role="tool", content="y")])
            task = asyncio.create_task(agent.memory.remember(episode))
            for _ in range(patience):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await agent.memory.set("after", 1)
        counted = await count(in_memory, "sessions", "episodes", "events", "search_docsize")
        assert counted["sessions"] == counted["episodes"] == counted["events"] == counted["search_docsize"] - 1


CALLS: dict[str, Callable[[Memory], Awaitable[Any]]] = {
    **{name: lambda m, call=call: call(m, "k") for name, call in IDS.items()},  # type: ignore[misc]
    "search": lambda m: m.search("x"),
    "facts": lambda m: m.facts(),
    "forget": lambda m: m.forget(user_id="ann"),
    "profile": lambda m: m.profile(),
    "recall": lambda m: m.recall("x"),
    "run": lambda m: m.run("x").__aenter__(),
}


async def test_a_closed_agent_says_so(clock: ManualClock) -> None:
    """Bad input: a call after the agent was closed is a clear error, through what was held of it as well."""
    agent = Agent(":memory:", org=ORG, user_id="ann", clock=clock)
    async with agent:
        memory = agent.memory
    for closed in (memory, agent.memory):
        assert await unrefused({name: call(closed) for name, call in CALLS.items()}, InputError) == {}
    with pytest.raises(InputError):
        async with Agent(agent.expunge, org=ORG):
            raise AssertionError("it opened")
    with pytest.raises(InputError):
        await agent.drain()


async def test_an_agent_that_is_not_open_says_so(clock: ManualClock) -> None:
    """Bad input: a call before the agent is opened is a clear error of ours."""
    agent = Agent(":memory:", org=ORG, user_id="ann", clock=clock)
    with pytest.raises(InputError):
        await agent.memory.set("k", 1)
    with pytest.raises(InputError):
        await agent.erasure.list()


async def test_an_agent_is_opened_again(tmp_path: Path, clock: ManualClock) -> None:
    """An agent that was closed can be opened again, and remembers; opened twice at once it says so."""
    agent = Agent(str(tmp_path / "m.db"), org=ORG, user_id="ann", clock=clock)
    async with agent:
        await agent.memory.set("k", 1)
    async with agent:
        assert (await agent.memory.get("k")).value == 1
