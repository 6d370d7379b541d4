"""The floor of what agents do: the same rows by hand, in one transaction, on a thread behind the same hop.

It looks up no fence and no source, checks no field, keeps no version of a key but by its number, and turns nothing into
a typed answer. The words' hashes and the vectors are made by the product's own two helpers (``build.Index``); all else
is plain SQL.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import apsw

from bench.build import ADD_SEARCH, ADD_VECTOR, ORG, Index
from bench.floor import Floor

T = TypeVar("T")
AGENT, NAMESPACE = "helper", "app"
_IDENTITY = "org, namespace, agent, user_id, session_id"
_ROW = f"rid, id, {_IDENTITY}, created_at, recorded_at, updated_at, seq, marked"
_VALUES = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0"

_SESSION = "SELECT 1 FROM sessions WHERE org = ? AND namespace = ? AND agent = ? AND user_id = ? AND +session_id = ?"
_ADD_SESSION = f"INSERT INTO sessions ({_ROW}, status, ended_at) VALUES ({_VALUES}, 'open', NULL)"
_ADD_EPISODE = f"""INSERT INTO episodes ({_ROW}, occurred_at, input, output, tool_calls, status)
    VALUES ({_VALUES}, ?, ?, ?, NULL, 'completed')"""
_ADD_FACT = f"""INSERT INTO facts
    ({_ROW}, subject, predicate, object, predicate_key, valid_from, valid_to, exclusive, confidence)
    VALUES ({_VALUES}, ?, ?, ?, ?, NULL, NULL, 0, NULL)"""
_ADD_MEMORY = f"""INSERT INTO memories ({_ROW}, key, version, value, memory_type, state, tags, confidence, expires_at,
    on_expire, deriver) VALUES ({_VALUES}, ?, ?, ?, NULL, 'live', NULL, NULL, NULL, 'tombstone', NULL)"""
_OF_KEY = "org = ? AND namespace = ? AND user_id = ? AND agent = ? AND session_id = ? AND key = ?"
_VERSION = f"SELECT version FROM memories WHERE {_OF_KEY} ORDER BY updated_at DESC, version DESC LIMIT 1"
_GET = f"""SELECT id, key, value, version, memory_type, state, tags, confidence, created_at, updated_at, expires_at,
    on_expire FROM memories WHERE {_OF_KEY} AND marked = 0 ORDER BY updated_at DESC, version DESC LIMIT 1"""
_EDGE = "INSERT INTO lineage VALUES (?, ?, ?, 'facts', 'episodes', 'detach', 0)"
_AUDIT = """INSERT INTO audit SELECT ?1, coalesce(max(n), 0) + 1, 'no key', json_object('at', ?2, 'actor', 'bench',
    'role', 'operator', 'operation', 'records.put', 'outcome', 'done', 'detail', ?3), zeroblob(32)
    FROM audit WHERE org = ?1"""
_LAST = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?), 0)"

Identity = tuple[str, str, str, str, str]
"""Org, namespace, agent, user, session."""
Placed = tuple[int, Identity, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Said:
    """One episode."""

    session: str
    input: str
    output: str


def identity(user: str, session: str = "-") -> Identity:
    """A stored identity."""
    return ORG, NAMESPACE, AGENT, user, session


class Hand:
    """A connection that does by hand what an agent does, on one thread."""

    def __init__(self, folder: Path) -> None:
        self._floor = Floor(folder)
        self._connection = self._floor.connection
        # As the product: else a parameter compared with a column of a partial index is planned anew at each call.
        self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self._index = Index(folder)
        self._thread = ThreadPoolExecutor(1)

    def close(self) -> None:
        """Let go of the thread and the file."""
        self._thread.shutdown()
        self._floor.close()

    async def set(self, user: str, key: str, value: Any) -> int:
        """A value under a key; its version."""
        return (await self.set_many(user, {key: value}))[0]

    async def set_many(self, user: str, values: dict[str, Any]) -> list[int]:
        """Values under keys; their versions."""
        who = identity(user)
        texts = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}

        def work(cursor: apsw.Cursor) -> list[int]:
            now, last = _now(), _last(cursor, "memories")
            org, namespace, agent, user_id, session = who
            rows, versions = list[tuple[Any, ...]](), list[int]()
            for rid, (key, text) in enumerate(texts.items(), start=last + 1):
                found = cursor.execute(_VERSION, (org, namespace, user_id, agent, session, key)).get
                versions.append((found or 0) + 1)
                rows.append((*_row(rid, "me", who, now), key, versions[-1], text))
            cursor.executemany(_ADD_MEMORY, rows)
            self._add_entries(
                cursor,
                [(row[0] * 8 + 2, who, (key, value)) for row, (key, value) in zip(rows, values.items(), strict=True)],
            )
            return versions

        return await self.hop(lambda: self._commit(work))

    async def get(self, user: str, key: str) -> dict[str, Any] | None:
        """What stands under a key, on the thread."""
        return await self.hop(lambda: self.get_here(user, key))

    def get_here(self, user: str, key: str) -> dict[str, Any] | None:
        """What stands under a key, where the call is."""
        org, namespace, agent, user_id, session = identity(user)
        row = self._connection.execute(_GET, (org, namespace, user_id, agent, session, key)).fetchone()
        if row is None or row[5] != "live" or (row[10] is not None and row[10] <= _now()):
            return None
        names = ("id", "key", "value", "version", "memory_type", "state", "tags", "confidence")
        return dict(zip(names, row, strict=False)) | {"value": json.loads(row[2])}

    async def remember(self, user: str, said: Said) -> None:
        """An episode, and its session when there is none."""
        await self.remember_many(user, [said])

    async def remember_many(self, user: str, episodes: Sequence[Said]) -> None:
        """Episodes, and the sessions that there are none of."""

        def work(cursor: apsw.Cursor) -> None:
            now = _now()
            for session in dict.fromkeys(said.session for said in episodes):
                who = identity(user, session)
                if cursor.execute(_SESSION, who).fetchone() is None:
                    cursor.execute(_ADD_SESSION, _row(_last(cursor, "sessions") + 1, "se", who, now))
            placed, rows, last = list[Placed](), list[tuple[Any, ...]](), _last(cursor, "episodes")
            for rid, said in enumerate(episodes, start=last + 1):
                who = identity(user, said.session)
                rows.append((*_row(rid, "ep", who, now), now, said.input, said.output))
                placed.append((rid * 8 + 1, who, (said.input, said.output)))
            cursor.executemany(_ADD_EPISODE, rows)
            self._add_entries(cursor, placed)

        await self.hop(lambda: self._commit(work))

    async def load(self, lines: Sequence[bytes]) -> None:
        """Lines of JSON: episodes, and facts made from them."""

        def work(cursor: apsw.Cursor) -> None:
            now, placed = _now(), list[Placed]()
            episodes, facts, edges = list[tuple[Any, ...]](), list[tuple[Any, ...]](), list[tuple[str, str, str]]()
            episode, fact = _last(cursor, "episodes"), _last(cursor, "facts")
            for line in lines:
                record = json.loads(line)
                who = (ORG, "-", "-", record["user_id"], record.get("session_id", "-"))
                if record["collection"] == "episodes":
                    episode += 1
                    said = (record["input"], record["output"])
                    episodes.append((episode, record["id"], *who, now, now, now, now, *said))
                    placed.append((episode * 8 + 1, who, said))
                else:
                    fact += 1
                    said3 = (record["subject"], record["predicate"], record["object"])
                    facts.append((fact, record["id"], *who, now, now, now, *said3, record["predicate"]))
                    edges += [(ORG, record["id"], source) for source in record["sources"]]
                    placed.append((fact * 8 + 3, who, said3))
            cursor.executemany(_ADD_EPISODE, episodes)
            cursor.executemany(_ADD_FACT, facts)
            cursor.executemany(_EDGE, edges)
            self._add_entries(cursor, placed)
            cursor.execute(_AUDIT, (ORG, now, json.dumps({"loaded": len(lines)})))

        await self.hop(lambda: self._commit(work))

    def ask(self, query: str, parts: dict[str, str], limit: int) -> list[dict[str, Any]]:
        """The episodes that have any of the words, best first, where the call is."""
        wanted = self._index.words.query(ORG, query, parts)
        match = None if wanted is None else wanted.phrase
        return ask(self._connection, match, limit)

    async def hop(self, job: Callable[[], T]) -> T:
        """Do something on the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    def _add_entries(self, cursor: apsw.Cursor, placed: Iterable[Placed]) -> None:
        search, vectors = self._index.entries(list(placed))
        cursor.executemany(ADD_SEARCH, search)
        cursor.executemany(ADD_VECTOR, vectors)

    def _commit(self, work: Callable[[apsw.Cursor], T]) -> T:
        cursor = self._connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        try:
            done = work(cursor)
        except BaseException:
            cursor.execute("ROLLBACK")
            raise
        cursor.execute("COMMIT")
        return done


_MATCH = """SELECT rowid FROM search WHERE search MATCH ? AND rank MATCH 'bm25(0.0, 1.0)' ORDER BY rank LIMIT ?"""
_EPISODES = f"""SELECT rid, id, {_IDENTITY}, created_at, recorded_at, updated_at, occurred_at, input, output,
    tool_calls, status FROM episodes WHERE rid = ?"""
_NAMES = ("rid", "id", "org", "namespace", "agent", "user_id", "session_id", "created_at", "recorded_at", "updated_at",
          "occurred_at", "input", "output", "tool_calls", "status")  # fmt: skip


def ask(connection: apsw.Connection, match: str | None, limit: int) -> list[dict[str, Any]]:
    """The bare query: the index, and the rows that it names."""
    found: list[Any] = connection.execute(_MATCH, (match, limit)).fetchall()
    rows = (connection.execute(_EPISODES, (number >> 3,)).fetchone() for (number,) in found)
    return [dict(zip(_NAMES, row, strict=True)) for row in rows if row is not None]


def _row(rid: int, prefix: str, who: Identity, now: int) -> tuple[Any, ...]:
    return (rid, f"{prefix}-{secrets.token_hex(16)}", *who, now, now, now)


def _last(cursor: apsw.Cursor, table: str) -> int:
    return int(cursor.execute(_LAST, (table,)).get)


def _now() -> int:
    return time.time_ns() // 1000
