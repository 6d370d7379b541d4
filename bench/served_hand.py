"""The floor on PostgreSQL: the same rows by hand through the same driver, behind the same hop to a thread.

It takes no lock, looks up no fence and no source, checks no field, and turns nothing into a typed answer.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from bench.build import Index
from bench.floor import HELD
from bench.hand import Identity, Said, identity
from expunge.authority.postgres.connection import prepare
from expunge.authority.postgres.schema import Schema

T = TypeVar("T")
_IDENTITY = "org, namespace, agent, user_id, session_id"
_ROW = f"rid, id, {_IDENTITY}, created_at, recorded_at, updated_at, seq, marked"
_EPISODE = f"{_ROW}, occurred_at, input, output, status"
_MEMORY = f"{_ROW}, key, version, value, state, on_expire"
_SESSION = f"{_ROW}, status"
_FACT = f"{_ROW}, subject, predicate, object, predicate_key, exclusive"
_VECTOR = f"record, {_IDENTITY}, model, vector"
_IS_SESSION = """SELECT 1 FROM sessions
    WHERE org = %s AND namespace = %s AND agent = %s AND user_id = %s AND session_id = %s"""
_VERSION = """SELECT version FROM memories WHERE org = %s AND namespace = %s AND user_id = %s AND agent = %s
    AND session_id = %s AND key = %s ORDER BY updated_at DESC, version DESC LIMIT 1"""
_VERSIONS = """SELECT key, max(version) FROM memories WHERE org = %s AND namespace = %s AND user_id = %s AND agent = %s
    AND session_id = %s AND key = ANY (%s) GROUP BY key"""
_NUMBERS = "SELECT nextval('{}_rid_seq') FROM generate_series(1, %s)"
_FEW = 20
"""From so many rows on a developer copies them in."""

Rows = list[tuple[Any, ...]]


class ServedHand:
    """One connection that does by hand what an agent does, on one thread."""

    def __init__(self, url: str, keys: Path) -> None:
        self._connection = psycopg.connect(url, autocommit=True, options="-c search_path=expunge")
        self._schema = Schema.read(self._connection)
        prepare(self._connection, self._schema)
        self._index = Index(keys.parent, keys=keys.name)
        self._thread = ThreadPoolExecutor(1)

    def close(self) -> None:
        """Let go of the thread and the connection."""
        self._thread.shutdown()
        self._connection.close()

    async def set_many(self, user: str, values: dict[str, Any]) -> None:
        """Values under keys."""
        await self._hop(lambda: self._set_many(identity(user), values))

    async def remember_many(self, user: str, episodes: Sequence[Said]) -> None:
        """Episodes, and the sessions that there are none of."""
        await self._hop(lambda: self._remember_many(user, episodes))

    async def load(self, lines: Sequence[bytes]) -> None:
        """Lines of JSON: episodes, and facts made from them."""
        await self._hop(lambda: self._load([json.loads(line) for line in lines]))

    async def erase(self, user: str, org: str) -> None:
        """Delete what a user has; entries and vectors go by the product's own triggers, as in ours."""
        await self._hop(lambda: self._erase(user, org))

    def _set_many(self, who: Identity, values: dict[str, Any]) -> None:
        org, namespace, agent, user, session = who
        with self._connection.transaction():
            stands = (org, namespace, user, agent, session)
            if len(values) == 1:
                (key,) = values
                found = self._connection.execute(_VERSION, (*stands, key)).fetchone()
                known = {} if found is None else {key: found[0]}
            else:
                known = dict(self._connection.execute(_VERSIONS, (*stands, list(values))).fetchall())
            rows: Rows = [
                (*row, key, known.get(key, 0) + 1, json.dumps(values[key], ensure_ascii=False), "live", "tombstone")
                for row, key in zip(self._rows("memories", "me", [who] * len(values)), values, strict=True)
            ]
            self._insert("memories", _MEMORY, rows)
            self._entries([(row[0] * 8 + 2, who, pair) for row, pair in zip(rows, values.items(), strict=True)])

    def _remember_many(self, user: str, episodes: Sequence[Said]) -> None:
        with self._connection.transaction():
            for session in dict.fromkeys(said.session for said in episodes):
                who = identity(user, session)
                if self._connection.execute(_IS_SESSION, who).fetchone() is None:
                    self._insert("sessions", _SESSION, [(*row, "open") for row in self._rows("sessions", "se", [who])])
            self._say([(identity(user, said.session), None, said.input, said.output) for said in episodes])

    def _load(self, records: Sequence[dict[str, Any]]) -> None:
        with self._connection.transaction():
            said = [one for one in records if one["collection"] == "episodes"]
            self._say([(_who(one), one["id"], one["input"], one["output"]) for one in said])
            facts = [one for one in records if one["collection"] == "facts"]
            texts = [(one["subject"], one["predicate"], one["object"]) for one in facts]
            rows = self._rows("facts", "fa", [_who(one) for one in facts], [one["id"] for one in facts])
            self._insert("facts", _FACT, [(*row, *text, text[1], 0) for row, text in zip(rows, texts, strict=True)])
            edges = [(row[2], one["id"], source, "facts", "episodes", "detach", 0)
                     for row, one in zip(rows, facts, strict=True) for source in one["sources"]]  # fmt: skip
            self._insert("lineage", "org, derived, source, derived_collection, source_collection, rule, seq", edges)
            self._entries([(row[0] * 8 + 3, row[2:7], text) for row, text in zip(rows, texts, strict=True)])

    def _say(self, told: Sequence[tuple[Identity, str | None, str, str]]) -> None:
        rows = self._rows("episodes", "ep", [who for who, _, _, _ in told], [one for _, one, _, _ in told])
        self._insert(
            "episodes", _EPISODE,
            [(*row, row[7], one, two, "completed") for row, (_, _, one, two) in zip(rows, told, strict=True)],
        )  # fmt: skip
        self._entries([(row[0] * 8 + 1, who, (one, two)) for row, (who, _, one, two) in zip(rows, told, strict=True)])

    def _erase(self, user: str, org: str) -> None:
        with self._connection.transaction():
            for table in HELD:
                self._connection.execute(f"DELETE FROM {table} WHERE org = %s AND user_id = %s".encode(), (org, user))

    def _rows(
        self, table: str, prefix: str, whose: Sequence[Identity], ids: Sequence[str | None] | None = None
    ) -> Rows:
        numbers = self._connection.execute(_NUMBERS.format(table).encode(), (len(whose),)).fetchall()
        now = time.time_ns() // 1000
        named = ids or [None] * len(whose)
        return [
            (rid, name or f"{prefix}-{secrets.token_hex(16)}", *who, now, now, now, 0, 0)
            for (rid,), who, name in zip(numbers, whose, named, strict=True)
        ]

    def _entries(self, placed: Sequence[tuple[int, Identity, Sequence[str]]]) -> None:
        search, vectors = self._index.entries(list(placed))
        self._insert("search", "record, owner, words", [(n, a.split(" "), b.split(" ")) for n, a, b in search])
        self._insert("vectors", _VECTOR, vectors)

    def _insert(self, table: str, columns: str, rows: Rows) -> None:
        if len(rows) < _FEW:
            marks = ", ".join(["%s"] * len(columns.split(",")))
            with self._connection.cursor() as cursor:
                cursor.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})".encode(), rows)
            return
        copy = f"COPY {table} ({columns}) FROM STDIN (FORMAT binary)"
        with self._connection.cursor().copy(copy.encode()) as copying:
            copying.set_types([self._schema.types[table][name] for name in columns.split(", ")])
            for row in rows:
                copying.write_row(row)

    async def _hop(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)


def _who(record: dict[str, Any]) -> Identity:
    return ("default", "-", "-", record["user_id"], record.get("session_id", "-"))
