"""What the field reports share: a life with a word in all of it, and every way to read it again."""

from __future__ import annotations

from typing import Any

from expunge import Agent, Episode, Expunge, Message, NewFact
from expunge.authority.port import Statement
from expunge.model.instant import Clock, to_datetime
from tests.agents.kit import HELPER, NAMESPACE, ORG, as_user
from tests.eye import spelled
from tests.subject.kit import exported

QUESTION = "What was said?"
SESSION = "s1"
_HOLD = Statement(
    "test.hold",
    "INSERT INTO holds (org, user_id, namespace, placed_at) VALUES (:org, :user_id, :namespace, 0)",
)


async def answerer(_question: str, hits: Any) -> str:
    """Quote what was found."""
    return " ".join(hit.text for hit in hits)


async def live(agent: Agent, word: str) -> None:
    """Write a word into everything that an agent keeps: values and their history, chat, facts, blocks, documents."""
    memory = agent.memory
    said = await memory.remember(
        Episode(
            input=f"{word} went in",
            output=f"{word} came out",
            session_id=SESSION,
            transcript=[Message(role="tool", content=f"{word} called")],
        )
    )
    await memory.set("key", f"{word} first")
    await memory.set("key", f"{word} second")
    await memory.set("shared", f"{word} without an agent", agent=None)
    await memory.derive("summary", f"{word} in short", sources=[said])
    await memory.add_fact(NewFact(subject="they", predicate="said", object=word, sources=[said]))
    await memory.update_block("persona", f"says {word}")
    await memory.add_document("Letter", text=f"{word} in a letter. " * 100)
    await memory.ask(QUESTION + " " + word, answerer)
    await agent.expunge.call("jobs.add", deriver="reader", sources=[said], **whose(agent))


def whose(agent: Agent) -> dict[str, Any]:
    """The identity of an agent, as operations take it."""
    return {"org": ORG, "namespace": NAMESPACE, "agent": HELPER, "user_id": agent.identity.user_id}


async def every_way_to_read(agent: Agent, word: str, clock: Clock) -> dict[str, str]:
    """What each way to read gives of a person, as text. ``word`` is what is searched for."""
    memory, expunge, user = agent.memory, agent.expunge, str(agent.identity.user_id)
    kinds: Any = ["episodes", "memories", "facts", "chunks"]
    read: dict[str, Any] = {
        "get": await memory.get("key"),
        "get of another key": await memory.get("shared", agent=None),
        "history": await memory.history("key"),
        "recall by words": (await memory.recall_scored(word, alpha=1.0)).hits,
        "recall by vectors": (await memory.recall_scored(f"{word} went", alpha=0.0)).hits,
        "recall the newest": await memory.recall(""),
        "session_messages": await memory.session_messages(SESSION),
        "facts": await memory.facts(),
        "facts at any time": await memory.facts(at_any_time=True),
        "facts as known": await memory.facts(known_at=to_datetime(clock.now())),
        "recall_facts": await memory.recall_facts(word),
        "working": await memory.working(),
        "document": await memory.document("Letter"),
        "an earlier document": await memory.document("Letter", version=1),
        "original": await memory.original("Letter"),
        "answers.kept": await memory.ask(QUESTION + " " + word, answerer),
        "profile": await memory.profile(user),
        "export": (await exported(expunge, user, org=ORG))[0],
        "export, jsonl": (await exported(expunge, user, org=ORG, format="jsonl", vectors=True))[0],
        "what a deriver is given": await _given_to_a_deriver(agent),
    }
    for kind in kinds:
        for alpha in (0.0, 1.0):
            read[f"search {kind} {alpha}"] = await memory.search(f"{word} in", kinds=[kind], alpha=alpha)
        read[f"search the newest {kind}"] = await memory.search("", kinds=[kind])
    return {name: str(given) for name, given in read.items()}


async def _given_to_a_deriver(agent: Agent) -> list[str]:
    """What the queue hands to a deriver: it is to read all episodes of the person."""
    given: list[str] = []

    async def reader(sources: Any) -> list[Any]:
        given.extend(source.text for source in sources)
        return []

    agent.expunge.system.derivers["reads all"] = reader
    await agent.expunge.call("jobs.add", deriver="reads all", **whose(agent))
    await agent.expunge.call("jobs.run", org=ORG, derivers=["reads all"])
    return given


async def rows(expunge: Expunge, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    """Rows as they stand in the database."""
    statement = Statement("test.rows", spelled(expunge.settings.db, sql))
    return await expunge.system.authority.read(lambda tx: tx.rows(statement, **values))


async def place_hold(
    expunge: Expunge, *, org: str = "default", user_id: str | None = None, namespace: str | None = None
) -> None:
    """Place a hold: its operations come later."""
    await expunge.system.authority.run(lambda tx: tx.change(_HOLD, org=org, user_id=user_id, namespace=namespace))


__all__ = [
    "ORG",
    "QUESTION",
    "SESSION",
    "answerer",
    "as_user",
    "every_way_to_read",
    "live",
    "place_hold",
    "rows",
    "whose",
]
