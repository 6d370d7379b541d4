"""What the tests of a peer's faults share: everything that an agent can write, raw looks, and what is slow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from expunge import Agent, Episode, Expunge, FactDraft, MemoryDraft, Message, NewFact, Settings, Source
from expunge.errors import (
    ErasedSince,
    ErasureInProgress,
)
from expunge.model.instant import ManualClock
from expunge.search import HashingEmbedder
from tests.agents.kit import read
from tests.crash.kit import RAW
from tests.eye import columns_of, home, is_served

WORD, OTHER = "quetzal", "heron"
REFUSED = (ErasureInProgress, ErasedSince)
RECORDS = ("sessions", "episodes", "events", "memories", "facts", "blocks", "documents", "chunks", "answers", "jobs")
INDEX = ("search_docsize", "vectors", "lineage", "marks")


def leftovers(
    where: Path | Settings, words: Sequence[str], blobs: Sequence[bytes] = ()
) -> dict[str, dict[str, list[str]]]:
    """What another program finds of some words in the files of a folder and in the columns of its database."""
    folder, served = (where, False) if isinstance(where, Path) else (home(where), is_served(where.db))
    database = None if served else str(folder / "expunge.db")
    asked = {"folder": str(folder), "database": database, "words": list(words)}
    done = subprocess.run(
        [sys.executable, str(RAW / "leftovers.py")],
        input=json.dumps(asked | {"blobs": [blob.hex() for blob in blobs]}),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: dict[str, dict[str, list[str]]] = json.loads(done.stdout)
    if isinstance(where, Settings) and served:
        for column, value in columns_of(where.db):
            if here := [word for word in words if word.encode().lower() in value.lower()]:
                found["columns"].setdefault(column, []).extend(here)
    return found


@contextlib.contextmanager
def reading(database: Path, *how: str) -> Iterator[Callable[[str], int]]:
    """Another program that has the database open (tests/raw/reader.py); call it to have it read again."""
    process = subprocess.Popen(
        [sys.executable, str(RAW / "reader.py"), str(database), *how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    lines, told = process.stdout, process.stdin
    lines.readline()

    def again(said: str = "again") -> int:
        print(said, file=told, flush=True)
        return int(lines.readline())

    try:
        yield again
    finally:
        process.communicate("end\n", timeout=30)
        assert process.returncode == 0


async def answerer(question: str, hits: Sequence[Any]) -> str:
    return f"{question}: {'; '.join(hit.text for hit in hits)}"


async def fill(agent: Agent, word: str, path: Path | None = None) -> None:
    """One of everything that an agent can write; wherever a text goes it says the word."""
    memory, user = agent.memory, f"{word}-user"
    said = [Message(role="tool", content=f"tool said {word}", tool_calls=[{"arguments": {word: [word]}}])]
    episode = Episode(
        input=f"I live in {word}. My name is {word}.",
        output=f"Noted: {word}",
        session_id=f"{word}-session",
        transcript=said,
        tool_calls={word: word},
    )
    first = await memory.remember(episode, user_id=user)
    await memory.set(f"{word}-key", {word: [word]}, tags=[word], user_id=user)
    await memory.set(f"{word}-key", f"again {word}", memory_type=word, user_id=user)
    await memory.derive(f"{word}-sum", f"sum of {word}", sources=[first], user_id=user)
    await memory.add_fact(NewFact(subject=word, predicate="is", object=f"a {word}"), user_id=user)
    await memory.update_block(f"{word}-block", f"working {word}", user_id=user)
    await memory.append_block(f"{word}-block", f" and {word}", user_id=user)
    await memory.add_document(f"{word} letter", text=f"A letter of {word}.\n\n" * 100, user_id=user)
    if path is not None:
        await asyncio.to_thread(path.write_bytes, f"\0binary {word}".encode())
        await memory.add_document(f"{word} scan", path=path, user_id=user)
        await asyncio.to_thread(path.unlink)
    await memory.consolidate(key=f"{word}-digest", user_id=user)
    await agent.at(user_id=user).memory.ask(f"where is {word}?", answerer)
    async with memory.run(f"a run of {word}", session_id=f"{word}-session", user_id=user) as run:
        await run.finish(f"ran {word}")
    await agent.drain()


async def vectors_of(expunge: Expunge, user: str) -> list[bytes]:
    """The beginning of every vector of a user, as it stands in the file."""
    rows = await read(expunge, "SELECT vector FROM vectors WHERE user_id = :user", user=user)
    return [bytes(vector)[:48] for (vector,) in rows]


async def of_user(expunge: Expunge, user: str) -> dict[str, int]:
    """How many records of a user there are by collection, hidden ones too; those of which there are none left out."""
    counted = {
        name: (await read(expunge, f"SELECT count(*) FROM {name} WHERE user_id = :user", user=user))[0][0]
        for name in (*RECORDS, "vectors")
    }
    return {name: number for name, number in counted.items() if number}


async def lowered(expunge: Expunge) -> int:
    """The erasure counter when the last fence came down: whatever is older is of before the erasure."""
    return int((await read(expunge, "SELECT max(lowered_seq) FROM fences"))[0][0])


class Waiting(HashingEmbedder):
    """An embedder that says that it has begun, and goes on when it is let."""

    def __init__(self) -> None:
        super().__init__(8)
        self.name = "waiting"
        self.waits = False
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> Any:
        if self.waits:
            self.begun.set()
            await self.goes_on.wait()
        return await super().embed(texts)

    def hold_back(self) -> None:
        self.waits = True
        self.begun.clear()
        self.goes_on.clear()

    def let_go(self) -> None:
        self.waits = False
        self.goes_on.set()


class Extractor:
    """A deriver that says that it has read, and answers when it is let; cancelled it goes on all the same, if it is so."""

    def __init__(self, *, stubborn: bool = False, facts: bool = True) -> None:
        self.facts = facts
        self.read: list[str] = []
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()
        self.stubborn, self.cancelled = stubborn, 0

    async def __call__(self, sources: Sequence[Source]) -> list[FactDraft | MemoryDraft]:
        self.read += [source.text for source in sources]
        self.begun.set()
        while True:
            try:
                await self.goes_on.wait()
                break
            except asyncio.CancelledError:
                self.cancelled += 1
                if not self.stubborn:
                    raise
        said = " ".join(source.text for source in sources)
        facts: list[FactDraft | MemoryDraft] = [FactDraft("user", "said", said)] if self.facts else []
        return [*facts, MemoryDraft(said, key="said")]


@contextlib.asynccontextmanager
async def embedding(settings: Settings, embedder: HashingEmbedder, clock: ManualClock) -> AsyncIterator[Expunge]:
    async with Expunge(settings=settings, clock=clock, embedder=embedder) as expunge:
        yield expunge
