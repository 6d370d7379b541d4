"""The peer, in a process and a virtual environment of its own; it imports nothing of ours.

``python peer_child.py BACKEND DATABASE FOLDER`` takes the data out of our database, loads it, says so, and then does
one thing a line: what is asked comes as JSON, and what it took (seconds, without the way here) goes back as JSON.

Loading: our rows, one to one. SQLite by direct SQL into the tables that the peer's own constructor made, after one user
went in by its public API and the rows were compared (all of them by the API would take a minute for 1,000 users and ten
for 10,000). In memory by the public API, but for facts: each is compared with all others there, so they are put where
the API puts them. Vectors come from a table: what embedding costs is not counted against the peer.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import sqlite3  # noqa: TID251 (the only library of this process, and of the peer)
import struct
import sys
import time
import warnings
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_DIMS, _VECTORS = 384, 64
_LIMIT = 5


class Table:
    """An embedder that looks a vector up."""

    name, dimensions = "table", _DIMS

    def __init__(self) -> None:
        chance = random.Random(1)
        self._vectors = [[chance.gauss(0, 0.05) for _ in range(_DIMS)] for _ in range(_VECTORS)]
        self.packed = [struct.pack(f"{_DIMS}f", *vector) for vector in self._vectors]

    @staticmethod
    def slot(text: str) -> int:
        """Which vector a text has."""
        return zlib.crc32(text.encode()) % _VECTORS

    def vector(self, text: str) -> list[float]:
        """The vector of a text."""
        return self._vectors[self.slot(text)]

    async def embed(self, text: str) -> list[float]:
        """The same, as the peer asks for it."""
        return self.vector(text)

    async def embed_batch(self, texts: list[str]) -> list[list[float]]:
        """The vectors of texts."""
        return [await self.embed(text) for text in texts]


class Source:
    """Our rows."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path)

    def episodes(self, only: str = "") -> list[tuple[Any, ...]]:
        """Id, session, user, seconds, input, output."""
        return self._of("id, session_id, user_id, occurred_at / 1e6, input, output", "episodes", only)

    def facts(self, only: str = "") -> list[tuple[Any, ...]]:
        """Id, user, subject, predicate, object, seconds."""
        return self._of("id, user_id, subject, predicate, object, recorded_at / 1e6", "facts", only)

    def blocks(self, only: str = "") -> list[tuple[Any, ...]]:
        """User, name, content, seconds."""
        return self._of("user_id, name, content, updated_at / 1e6", "blocks", only)

    def _of(self, columns: str, table: str, only: str) -> list[tuple[Any, ...]]:
        narrowed = f"AND user_id = '{only}'" if only else ""
        return self._connection.execute(
            f"SELECT {columns} FROM {table} WHERE user_id <> 'bystander' {narrowed} ORDER BY rid"
        ).fetchall()


class Types:
    """The peer's own records, and what is asked of a memory of the peer's."""

    def __init__(self) -> None:
        self._types: Any = importlib.import_module("loomflow.core.types")

    def episode(self, row: tuple[Any, ...]) -> Any:
        """One of our rows as the peer's."""
        names = ("id", "session_id", "user_id", "occurred_at", "input", "output")
        return self._types.Episode(**dict(zip(names, row, strict=True)) | {"occurred_at": moment(row[3])})

    def fact(self, row: tuple[Any, ...]) -> Any:
        """One of our rows as the peer's."""
        names = ("id", "user_id", "subject", "predicate", "object", "recorded_at")
        at = {"recorded_at": moment(row[5]), "valid_from": moment(row[5])}
        return self._types.Fact(**dict(zip(names, row, strict=True)) | at)

    async def do(self, memory: Any, asked: dict[str, Any]) -> dict[str, Any]:
        """One thing, timed."""
        user, operation = asked["user"], asked["operation"]
        if operation == "remember":
            said = {name: asked[name] for name in ("session_id", "input", "output")}
            work = memory.remember(self._types.Episode(user_id=user, **said))
        elif operation in ("recall", "recall_scored"):
            work = getattr(memory, operation)(asked["query"], limit=_LIMIT, user_id=user)
        else:
            work = getattr(memory, operation)(user_id=user)
        begun = time.perf_counter()
        answer = await work
        taken = time.perf_counter() - begun
        return {"seconds": taken, "removed": answer if operation == "forget" else None}


class Peer:
    """A memory of the peer's."""

    def __init__(self, backend: str, source: Source, folder: Path) -> None:
        warnings.simplefilter("ignore")
        self.types = Types()
        self._source, self._table, self._folder, self._backend = source, Table(), folder, backend
        self.memory: Any
        if backend == "sqlite":
            self._sqlite: Any = importlib.import_module("loomflow.memory.sqlite")
            self.memory = self._sqlite.SqliteMemory(folder / "peer.db", embedder=self._table)
        else:
            self.memory = importlib.import_module("loomflow.memory.inmemory").InMemoryMemory()

    async def load(self) -> None:
        """All of it."""
        if self._backend == "sqlite":
            await self._check_rows()
            connection = sqlite3.connect(self._folder / "peer.db")
            self._insert(connection, "")
            connection.close()
            return
        for row in self._source.episodes():
            await self.memory.remember(self.types.episode(row))
        facts = (self.types.fact(row) for row in self._source.facts())
        self.memory.facts._facts = {fact.id: fact for fact in facts}  # noqa: SLF001 (the module says why)
        for user, name, content, _ in self._source.blocks():
            await self.memory.update_block(name, content, user_id=user)

    async def _check_rows(self) -> None:
        """Rows by direct SQL are those that the API writes."""
        user = self._source.blocks()[0][0]
        by_api = self._sqlite.SqliteMemory(self._folder / "api.db", embedder=self._table)
        for row in self._source.episodes(user):
            await by_api.remember(self.types.episode(row))
        for row in self._source.facts(user):
            await by_api.facts.append(self.types.fact(row))
        for _, name, content, _ in self._source.blocks(user):
            await by_api.update_block(name, content, user_id=user)
        self._sqlite.SqliteMemory(self._folder / "sql.db", embedder=self._table)
        found = []
        for name in ("api.db", "sql.db"):
            connection = sqlite3.connect(self._folder / name)
            if name == "sql.db":
                self._insert(connection, user)
            blocks = connection.execute("SELECT user_id, name, content, pinned_order FROM working_blocks ORDER BY name")
            tables = [connection.execute(f"SELECT * FROM {table} ORDER BY id") for table in ("episodes", "facts")]
            found.append([rows.fetchall() for rows in (*tables, blocks)])
            connection.close()
        if found[0] != found[1]:
            raise RuntimeError("rows by direct SQL differ from those of the peer's API")

    def _insert(self, connection: sqlite3.Connection, only: str) -> None:
        packed, slot = self._table.packed, self._table.slot
        connection.executemany(
            "INSERT INTO episodes (id, session_id, user_id, occurred_at, input, output, embedding) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            ((*row, packed[slot(f"{row[4]}\n{row[5]}")]) for row in self._source.episodes(only)),
        )
        connection.executemany(
            "INSERT INTO facts (id, user_id, subject, predicate, object, valid_from, recorded_at, embedding) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (*row[:3], predicate(row[3]), row[4], row[5], row[5], packed[slot(triple(row))])
                for row in self._source.facts(only)
            ),
        )
        order: dict[str, int] = {}
        for user, name, content, at in self._source.blocks(only):
            place = order[user] = order.get(user, -1) + 1
            connection.execute(
                "INSERT INTO working_blocks (user_id, name, content, pinned_order, updated_at) VALUES (?, ?, ?, ?, ?)",
                (user, name, content, place, at),
            )
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def triple(fact: tuple[Any, ...]) -> str:
    """What the peer embeds of a fact."""
    return f"{fact[2]} {predicate(fact[3])} {fact[4]}"


def predicate(name: str) -> str:
    """As the peer spells predicates."""
    return name.replace("-", "_")


def moment(seconds: float) -> datetime:
    """A time as the peer has it."""
    return datetime.fromtimestamp(seconds, UTC)


async def main(backend: str, database: str, folder: str) -> None:
    """Load, and do what is asked."""
    peer = Peer(backend, Source(database), Path(folder))
    begun = time.perf_counter()
    await peer.load()
    print(json.dumps({"loaded": time.perf_counter() - begun}), flush=True)
    for line in sys.stdin:
        print(json.dumps(await peer.types.do(peer.memory, json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
