"""The peer on PostgreSQL, as ``peer_child.py`` has it on SQLite: what is asked, and what it took, a line each.

``python peer_child_served.py URL DATABASE``. Loading: our rows, one to one, copied into the tables that the peer's own
schema has, after one user went in by its public API and the rows were compared. Its approximate indexes of vectors are
not made: they would take longer than all else here, and cost its ``remember`` several times what it does now.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
import warnings
from typing import Any

from peer_child import Source, Table, Types, moment, predicate, triple  # type: ignore[import-not-found,unused-ignore]

_APPROXIMATE = ("episodes_embedding_idx", "facts_embedding_idx")
_TABLES = ("episodes", "facts", "memory_blocks")
_NAMESPACE, _SURE = "default", 1.0


class ServedPeer:
    """A memory of the peer's on a server."""

    def __init__(self, source: Source) -> None:
        warnings.simplefilter("ignore")
        self._source, self._table, self.types = source, Table(), Types()
        self.memory: Any

    async def load(self, url: str) -> None:
        """All of it."""
        kind: Any = importlib.import_module("loomflow.memory.postgres").PostgresMemory
        self.memory = await kind.connect(url, embedder=self._table, with_facts=True, init_schema=True)
        pool = self.memory._pool  # noqa: SLF001 (its tables are filled as a copy of them would be)
        async with pool.acquire() as connection:
            for index in _APPROXIMATE:
                await connection.execute(f"DROP INDEX {index}")
            user = self._source.blocks()[0][0]
            found = [await self._by_api(connection, user), await self._by_copy(connection, user)]
            if found[0] != found[1]:
                raise RuntimeError("rows by direct SQL differ from those of the peer's API")
            await self._copy(connection, "")
            await connection.execute("VACUUM ANALYZE")

    async def _by_api(self, connection: Any, user: str) -> list[Any]:
        for row in self._source.episodes(user):
            await self.memory.remember(self.types.episode(row))
        for row in self._source.facts(user):
            await self.memory.facts.append(self.types.fact(row))
        for _, name, content, _ in self._source.blocks(user):
            await self.memory.update_block(name, content, user_id=user)
        return await self._emptied(connection)

    async def _by_copy(self, connection: Any, user: str) -> list[Any]:
        await self._copy(connection, user)
        return await self._emptied(connection)

    async def _emptied(self, connection: Any) -> list[Any]:
        """What the tables hold, but for when the peer wrote a block; then nothing."""
        found = []
        for table in _TABLES:
            rows = await connection.fetch(f"SELECT to_jsonb(t) - 'updated_at' AS row FROM {table} t ORDER BY 1")
            found.append([row["row"] for row in rows])
        await connection.execute(f"TRUNCATE {', '.join(_TABLES)} CASCADE")
        return found

    async def _copy(self, connection: Any, only: str) -> None:
        vector = self._table.vector
        await connection.copy_records_to_table(
            "episodes",
            columns=("id", "namespace", "session_id", "user_id", "occurred_at", "input", "output", "embedding"),
            records=[
                (row[0], _NAMESPACE, *row[1:3], moment(row[3]), *row[4:6], vector(f"{row[4]}\n{row[5]}"))
                for row in self._source.episodes(only)
            ],
        )
        await connection.copy_records_to_table(
            "facts",
            columns=("id", "user_id", "subject", "predicate", "object", "confidence", "valid_from", "recorded_at",
                     "sources", "embedding"),
            records=[
                (*row[:3], predicate(row[3]), row[4], _SURE, moment(row[5]), moment(row[5]), [], vector(triple(row)))
                for row in self._source.facts(only)
            ],
        )  # fmt: skip
        await connection.copy_records_to_table(
            "memory_blocks",
            columns=("namespace", "user_id", "name", "content", "updated_at"),
            records=[(_NAMESPACE, *row[:3], moment(row[3])) for row in self._source.blocks(only)],
        )


async def main(url: str, database: str) -> None:
    """Load, and do what is asked."""
    peer = ServedPeer(Source(database))
    begun = time.perf_counter()
    await peer.load(url)
    print(json.dumps({"loaded": time.perf_counter() - begun}), flush=True)
    for line in sys.stdin:
        print(json.dumps(await peer.types.do(peer.memory, json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
