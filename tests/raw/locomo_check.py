"""Prove from outside what an erasure left: this process knows nothing of Expunge but its tables.

    python -I -S locomo_check.py FOLDER BEFORE INPUT QUESTION

FOLDER holds the database, or in ``expunge.url`` where it is served, after a scope was erased, BEFORE the same folder before, INPUT the JSON lines that were
loaded. QUESTION is a JSON object: ``columns`` (column -> values, which a record in scope has in all of them), ``before``
(what a record in scope is dated before), ``whole_org``; with none of them nobody is in scope. ``restored`` are the ids
that were restored since, or true for all; ``hidden`` says that the scope was not purged; ``packages`` is where the driver of a server is,
and ``files`` asks for the bytes of the server's own files. From the input alone it works
out what has to go and what has to stay, and then looks in two ways:

1. the rows, by the standard library's SQLite, read-only: what stays is equal to the input in every column that the
   input gives and to the database before in every column, and nothing else is there, edges of lineage included; the
   search index (by its shadow tables: this SQLite cannot use it) knows what stays and has a vector for it, and no more;
2. the bytes of every file in the folder, before SQLite opens any of them: no erased text, no piece of one, no id of
   a removed record and nothing that names the scope, except where the very same bytes stand in what has to stay.

Of a scope that is hidden it looks at the rows alone: all of them are there, what went is marked, what was restored has
a newer ``seq``, and apart from that every column of records, edges, entries and vectors is as before.

It prints one JSON object; ``problems`` is empty when all of that holds.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sqlite3
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

DATABASE, URL = "expunge.db", "expunge.url"
ORG = "default"
NOBODY = "-"
PIECE, STRIDE = 24, 8
"""Bytes. Every piece of an erased text is looked for at every eighth byte of a file: no remnant of 31 bytes escapes."""
FEW = 1000
BY_CHANCE = 6
"""Bytes. A shorter text or name stands by chance in the numbers that vectors and the search index are made of: four
given bytes in one store of a hundred, five in one of some thousands."""

IDENTITY = ("org", "id", "namespace", "agent", "user_id", "session_id")
TIMES = ("created_at", "recorded_at", "updated_at")
CONTENT = {
    "sessions": ("status", "ended_at"),
    "episodes": ("occurred_at", "input", "output", "tool_calls", "status"),
    "events": ("episode", "kind", "content", "data", "position"),
    "attachments": ("episode", "path", "bytes", "sha256"),
    "memories": (
        "key", "value", "memory_type", "state", "tags", "confidence", "expires_at", "on_expire", "deriver",
    ),
    "facts": ("subject", "predicate", "object", "valid_from", "valid_to", "exclusive", "confidence"),
    "blocks": ("name", "content", "state", "pinned_order"),
    "documents": ("title", "state", "media_type", "pinned"),
    "chunks": ("document", "position", "text"),
    "answers": ("question", "answer", "asked", "expires_at"),
    "jobs": ("deriver", "key", "status", "attempts", "due_at", "claimed_until", "failure"),
}  # fmt: skip
DEFAULTS: dict[str, Row] = {
    "sessions": {"status": "open"},
    "episodes": {"status": "completed"},
    "memories": {"state": "live", "on_expire": "tombstone"},
    "facts": {"exclusive": 0},
    "blocks": {"state": "live"},
    "documents": {"state": "live", "pinned": 0},
    "jobs": {"status": "waiting", "attempts": 0},
}
"""What stands in a column that a record does not give."""
ENGINE = {"rid", "seq", "marked", "version", "ref", "predicate_key"}
"""Columns that the input does not give: compared with the database before."""
INSTANTS = {*TIMES, "occurred_at", "valid_from", "valid_to", "ended_at", "expires_at", "due_at", "claimed_until"}
JSON = {"value", "tags", "tool_calls", "data"}
WORDS = {
    "sessions": (),
    "episodes": ("input", "output"),
    "events": ("content",),
    "attachments": (),
    "memories": ("value",),
    "facts": ("object",),
    "blocks": ("content",),
    "documents": (),
    "chunks": ("text",),
    "answers": ("question", "answer"),
    "jobs": (),
}
"""The columns whose text must not outlive its record."""
DATED = {
    "episodes": "occurred_at",
    "memories": "updated_at",
    "facts": "recorded_at",
    "blocks": "updated_at",
    "documents": "updated_at",
}
"""What dates a record; the others are dated by their creation."""
OUTLIVES_ITS_SESSION = {"facts", "blocks", "jobs"}
VERSIONED = {"memories": "key", "blocks": "name", "documents": "title"}
DETACH = {"facts", "chunks", "jobs"}
SEARCHED = {"episodes": 1, "memories": 2, "facts": 3, "chunks": 4}
"""What search finds; the index knows a record by eight times its row number and this."""
EDGE = ("org", "derived", "source", "derived_collection", "source_collection", "rule")

Row = dict[str, Any]


@cache
def micros(text: str) -> int:
    """Microseconds since 1970 UTC."""
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def stored(record: Row) -> Row:
    """The columns of a record as its table has to hold them."""
    row: Row = {name: record.get(name, NOBODY) for name in IDENTITY}
    row["org"] = record.get("org", ORG)
    if record["collection"] == "sessions":
        row["session_id"] = record["id"]
    created = record["created_at"]
    for name in TIMES:
        row[name] = record.get(name, created)
    usual: Row = {"occurred_at": created, "due_at": created} | DEFAULTS.get(record["collection"], {})
    for name in CONTENT[record["collection"]]:
        row[name] = record.get(name, usual.get(name))
    for name in JSON & row.keys():
        if name in record:
            row[name] = json.dumps(row[name], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return {
        name: micros(value) if name in INSTANTS and value is not None else _as_bytes(value)
        for name, value in row.items()
    }


def _as_bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def forms(text: str) -> set[bytes]:
    """A text as it is, and as it stands inside JSON."""
    escaped = (json.dumps(text, ensure_ascii=plain)[1:-1] for plain in (True, False))
    return {form.encode() for form in (text, *escaped)}


def pieces_of(form: bytes) -> list[bytes]:
    """Every piece of a text."""
    return [form[at : at + PIECE] for at in range(len(form) - PIECE + 1)]


def in_record(number: int) -> bytes:
    """An integer as SQLite writes it into a row; 0 and 1 take no byte."""
    if number in {0, 1}:
        return b""
    size = next(size for size in (1, 2, 3, 4, 6, 8) if -(1 << (8 * size - 1)) <= number < 1 << (8 * size - 1))
    return number.to_bytes(size, "big", signed=True)


def standing(ids: set[bytes], data: bytes) -> set[bytes]:
    """Those of many ids that stand in some bytes: looked up where the beginning of one is."""
    lengths, found = {len(one) for one in ids}, set()
    for beginning in {one[:3] for one in ids}:
        at = data.find(beginning)
        while at >= 0:
            found |= {data[at : at + length] for length in lengths} & ids
            at = data.find(beginning, at + 1)
    return found


class Question:
    """Whose records were erased, and what was restored of them."""

    def __init__(self, asked: Row) -> None:
        self.columns: dict[str, list[str]] = asked.get("columns", {})
        self.before: str | None = asked.get("before")
        self.restored: list[str] | bool = asked.get("restored", [])
        self.hidden: bool = asked.get("hidden", False)
        self.packages: str | None = asked.get("packages")
        self.files: bool = asked.get("files", False)
        self._somebody = bool(self.columns or self.before or asked.get("whole_org"))

    def names(self, collection: str, row: Row) -> bool:
        """Whether a record is in scope by whose it is and how it is dated."""
        return (
            self._somebody
            and row["org"] == ORG.encode()
            and all(row[column].decode() in values for column, values in self.columns.items())
            and (self.before is None or row[DATED.get(collection, "created_at")] < micros(self.before))
        )

    def reaches(self, collection: str) -> bool:
        """Whether records go for whose they are: what outlives its session goes with what it was made from alone."""
        return "session_id" not in self.columns or collection not in OUTLIVES_ITS_SESSION

    def clear(self) -> set[str]:
        """In what the scope would be named: a namespace of two digits is sought as an index and as JSON have it."""
        named = {column: values for column, values in self.columns.items() if column != "namespace"}
        spaces = self.columns.get("namespace", [])
        return {*chain(*named.values())} | {form for name in spaces for form in (ORG + name, f'"{name}"')}


class Plan:
    """What the input says has to go with a scope, what of that was restored since, and what has to stay."""

    def __init__(self, records: list[Row], question: Question) -> None:
        self.question = question
        self.records = {record["id"]: record for record in records}
        self.rows = {record["id"]: stored(record) for record in records}
        named = {record_id for record_id, row in self.rows.items() if question.names(self.kind(record_id), row)}
        self.direct = {record_id for record_id in named if question.reaches(self.kind(record_id))}
        self.planned = self._closed(self.direct, self._follows)
        self.outlives = named - self.planned
        self.back = self._back()
        self.goes = self.planned - self.back
        self.stays = self.records.keys() - self.goes

    def kind(self, record_id: str) -> str:
        """The collection of a record."""
        return str(self.records[record_id]["collection"])

    def _closed(self, ids: set[str], follows: Callable[[str, set[str]], bool]) -> set[str]:
        closed = set(ids)
        while new := {record_id for record_id in self.records.keys() - closed if follows(record_id, closed)}:
            closed |= new
        return closed

    def _follows(self, record_id: str, goes: set[str]) -> bool:
        """The lineage rule: retire with any source, detach with the last; an event goes with its episode."""
        record = self.records[record_id]
        sources = set(record.get("sources", ()))
        if record["collection"] in DETACH:
            return bool(sources) and sources <= goes
        return bool(sources & goes) or record.get("episode") in goes

    def _back(self) -> set[str]:
        """What was restored, and what comes back with it."""
        restored = self.question.restored
        return set(self.planned) if restored is True else self._closed(set(restored or ()), self._returns)

    def _returns(self, record_id: str, back: set[str]) -> bool:
        """The other way round: detach with any source, retire with the last, and what is in scope by name alone."""
        record = self.records[record_id]
        sources = set(record.get("sources", ()))
        if record_id not in self.planned:
            return False
        if record.get("episode") in back:
            return True
        if record_id in self.direct or not sources & back:
            return False
        return record["collection"] in DETACH or not sources & (self.planned - back)

    def counts(self, ids: Iterable[str]) -> dict[str, int]:
        """Records by collection, zeros too."""
        found = Counter(map(self.kind, ids))
        return {name: found[name] for name in CONTENT}

    def edges(self, derived: set[str]) -> set[tuple[str, str]]:
        """Every edge to some derived records."""
        return {(one, source) for one in derived for source in self.records[one].get("sources", ())}

    @cached_property
    def edges_left(self) -> set[tuple[str, str]]:
        """The edges whose ends both stay."""
        return {edge for edge in self.edges(set(self.stays)) if edge[1] in self.stays}

    def removed(self) -> dict[str, int]:
        """How many go, by collection, edges too."""
        edges = len(self.edges(set(self.records))) - len(self.edges_left)
        return self.counts(self.goes) | {"lineage": edges}

    def effects(self) -> dict[str, int]:
        """What happens outside the scope, on account of what was not restored."""
        detached = {derived for derived, source in self.edges(set(self.stays)) if source in self.goes}
        versions: dict[tuple[Any, ...], list[tuple[int, int, str]]] = defaultdict(list)
        for at, (record_id, record) in enumerate(self.records.items()):
            if name := VERSIONED.get(record["collection"]):
                row = self.rows[record_id]
                key = (name, row[name], *(row[part] for part in IDENTITY if part != "id"))
                versions[key].append((row["updated_at"], at, record_id))
        current = [(max(found)[2], {item[2] for item in found}) for found in versions.values()]
        revived = sum(newest in self.goes and bool(ids - self.goes) for newest, ids in current)
        return {"derived": len(self.goes - self.direct), "detached": len(detached), "revived": revived, "rebuilt": 0}

    def edge_row(self, edge: tuple[str, str]) -> tuple[bytes, ...]:
        """An edge as its table has to hold it."""
        derived, source = (self.records[end] for end in edge)
        rule = "detach" if derived["collection"] in DETACH else "retire"
        names = (derived.get("org", ORG), *edge, derived["collection"], source["collection"], rule)
        return tuple(name.encode() for name in names)


class Served:
    """All rows of a database on a server, and its bytes as far as a client sees them.

    The server's driver is taken from the folder that we are told of; ours does not come with it.
    """

    def __init__(self, url: str, packages: str) -> None:
        sys.path.append(packages)
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True, options="-c search_path=expunge")
        self.rows: dict[str, dict[bytes, Row]] = {
            table: {row["id"]: row for row in self._all(table)} for table in CONTENT
        }
        self.edges = {tuple(row[name] for name in EDGE): row for row in self._all("lineage")}
        self.entries = {row["record"]: row for row in self._all("search")}
        self.vectors = {row["record"]: row for row in self._all("vectors")}
        self.numbers_in_index = b"\0".join(self._numbers())
        self.integrity = "ok"  # what SQLite says of its file has no like here

    def _numbers(self) -> Iterator[bytes]:
        """Hashes, whole numbers and vectors: as they come over the line, and as they stand in files of this machine."""
        yield from (part.encode() for row in self.entries.values() for part in (*row["owner"], *row["words"]))
        tables: list[Iterable[Row]] = [rows.values() for rows in self.rows.values()]
        tables += [self.edges.values(), self.entries.values(), self.vectors.values()]
        whole = {value for rows in tables for row in rows for value in row.values() if isinstance(value, int)}
        for order in ("big", "little"):
            yield from (number.to_bytes(8, order, signed=True) for number in whole)
        with self._connection.cursor().copy("COPY (SELECT vector FROM vectors) TO STDOUT (FORMAT binary)") as copying:
            for piece in copying:
                data = bytes(piece)
                yield data
                for start in (0, 1):
                    turned = array("H", data[start : start + (len(data) - start) // 2 * 2])
                    turned.byteswap()
                    yield turned.tobytes()

    def numbers(self, collection: str) -> dict[bytes, int]:
        """By id, what the search index knows the records of a collection by."""
        return numbers(self.rows, collection)

    def contents(self, *, files: bool) -> dict[str, bytes]:
        """The rows of every table as they come over the line; with ``files``, what the server's own files hold."""
        tables = [
            name for (name,) in self._connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'expunge'")
        ]
        found = {}
        for table in tables:
            with self._connection.cursor().copy(f"COPY {table} TO STDOUT (FORMAT binary)") as copying:
                found[f"table {table}"] = b"".join(bytes(piece) for piece in copying)
        if files:
            ((path,),) = self._connection.execute("SELECT pg_relation_filepath('pg_class')").fetchall()
            folder = path.rpartition("/")[0]
            named: dict[str, str] = dict(
                self._connection.execute("SELECT pg_relation_filenode(oid)::text, relname FROM pg_class")
            )
            for (name,) in self._connection.execute("SELECT pg_ls_dir(%s)", (folder,)).fetchall():
                rows = self._connection.execute("SELECT pg_read_binary_file(%s)", (f"{folder}/{name}",)).fetchall()
                relation = named.get(re.split(r"[._]", name)[0], "of nothing")
                found[f"file {name} ({relation})"] = rows[0][0]
        return found

    def close(self) -> None:
        """Let go of the server: a database that somebody is connected to cannot be copied."""
        self._connection.close()

    def _all(self, table: str) -> list[Row]:
        cursor = self._connection.execute(f"SELECT * FROM {table}")
        names = [column.name for column in cursor.description or ()]
        return [{name: _as_bytes(value) for name, value in zip(names, row, strict=True)} for row in cursor]


def numbers(rows: dict[str, dict[bytes, Row]], collection: str) -> dict[bytes, int]:
    """By id, what the search index knows the records of a collection by."""
    code = SEARCHED.get(collection)
    return {} if code is None else {key: row["rid"] * 8 + code for key, row in rows[collection].items()}


class Database:
    """All rows of a database file, opened read-only."""

    def __init__(self, path: Path, *, at_rest: bool) -> None:
        flags = "mode=ro&immutable=1" if at_rest else "mode=ro"
        connection = sqlite3.connect(f"{path.as_uri()}?{flags}", uri=True)
        connection.text_factory = bytes
        self.rows: dict[str, dict[bytes, Row]] = {}
        for table in CONTENT:
            self.rows[table] = {row["id"]: row for row in self._all(connection, table)}
        self.edges = {tuple(row[name] for name in EDGE): row for row in self._all(connection, "lineage")}
        self.entries = {row["id"]: row for row in self._all(connection, "search_docsize")}
        self.vectors = {row["record"]: row for row in self._all(connection, "vectors")}
        self.numbers_in_index = b"\0".join(row["block"] for row in self._all(connection, "search_data"))
        self.integrity = connection.execute("PRAGMA integrity_check").fetchall()[0][0].decode()
        connection.close()

    def numbers(self, collection: str) -> dict[bytes, int]:
        """By id, what the search index knows the records of a collection by."""
        return numbers(self.rows, collection)

    @staticmethod
    def _all(connection: sqlite3.Connection, table: str) -> list[Row]:
        cursor = connection.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


Rows = Database | Served


def row_problems(plan: Plan, now: Rows, before: Rows) -> list[str]:
    """What differs between the rows that are there and those that have to be."""
    problems = [] if now.integrity == "ok" else [f"integrity_check: {now.integrity}"]
    for table in CONTENT:
        expected = {
            record_id.encode(): plan.rows[record_id] for record_id in plan.stays if plan.kind(record_id) == table
        }
        found = now.rows[table]
        problems += [f"{table} {record_id!r} had to go and is there" for record_id in found.keys() - expected.keys()]
        problems += [f"{table} {record_id!r} had to stay and is gone" for record_id in expected.keys() - found.keys()]
        for record_id in expected.keys() & found.keys():
            row = found[record_id]
            given = {name: value for name, value in row.items() if name not in ENGINE}
            if given != expected[record_id]:
                problems.append(f"{table} {record_id!r} differs from the input: {given!r}")
            if row != before.rows[table][record_id] or row["marked"]:
                problems.append(f"{table} {record_id!r} differs from before: {row!r}")
    edges = {plan.edge_row(edge) for edge in plan.edges_left}
    problems += [f"edge {edge!r} had to go and is there" for edge in now.edges.keys() - edges]
    problems += [f"edge {edge!r} had to stay and is gone" for edge in edges - now.edges.keys()]
    for edge in edges & now.edges.keys():
        if now.edges[edge] != before.edges[edge]:
            problems.append(f"edge {edge!r} differs from before")
    return problems + index_problems(plan, now, before)


def index_problems(plan: Plan, now: Rows, before: Rows) -> list[str]:
    """What search would find, or rank, and must not; and what it would not find of what stays."""
    expected: dict[int, Row] = {}
    for table in SEARCHED:
        for record_id, number in before.numbers(table).items():
            if record_id.decode() in plan.stays:
                expected[number] = plan.rows[record_id.decode()]
    problems = []
    for kind, found, was in (("entry", now.entries, before.entries), ("vector", now.vectors, before.vectors)):
        problems += [f"{kind} {number} had to go and is there" for number in found.keys() - expected.keys()]
        problems += [f"{kind} {number} had to stay and is gone" for number in expected.keys() - found.keys()]
        problems += [
            f"{kind} {number} differs from before"
            for number in expected.keys() & found.keys()
            if found[number] != was.get(number)
        ]
    owned = {part for part in IDENTITY if part != "id"}
    for number in expected.keys() & now.vectors.keys():
        if any(now.vectors[number][part] != expected[number][part] for part in owned):
            problems.append(f"vector {number} is somebody else's")
    return problems


def hidden_problems(plan: Plan, now: Rows, before: Rows) -> list[str]:
    """What differs between the rows that are there and those of before, but for what hiding and restoring changes."""
    problems = [] if now.integrity == "ok" else [f"integrity_check: {now.integrity}"]
    served_at = {now.rows[plan.kind(record_id)][record_id.encode()]["seq"] for record_id in plan.back}
    if len(served_at) > 1:
        problems.append(f"what was restored has several values of seq: {served_at!r}")
    for table in CONTENT:
        was, found = before.rows[table], now.rows[table]
        problems += [f"{table} {record_id!r} came or went" for record_id in was.keys() ^ found.keys()]
        for record_id in was.keys() & found.keys():
            goes = record_id.decode() in plan.goes  # then the row names the request that hides it
            changed: Row = {"marked": found[record_id]["marked"]}
            if goes != bool(found[record_id]["marked"]):
                problems.append(f"{table} {record_id!r} is {'served' if goes else 'hidden'}")
                continue
            if record_id.decode() in plan.back:
                changed["seq"] = max(found[record_id]["seq"], was[record_id]["seq"] + 1)
            if found[record_id] != was[record_id] | changed:
                problems.append(f"{table} {record_id!r} is not as it has to be: {found[record_id]!r}")
    kept: tuple[tuple[str, dict[Any, Row], dict[Any, Row]], ...] = (
        ("edge", now.edges, before.edges),
        ("entry", now.entries, before.entries),
        ("vector", now.vectors, before.vectors),
    )
    for kind, there, were in kept:
        either = there.keys() | were.keys()
        problems += [f"{kind} {key!r} differs" for key in either if there.get(key) != were.get(key)]
    return problems


class Bytes:
    """The search through the raw bytes, and what it has to leave alone."""

    def __init__(self, plan: Plan, now: Rows, before: Rows) -> None:
        self._plan = plan
        staying = [(plan.records[record_id]["collection"], plan.rows[record_id]) for record_id in plan.stays]
        self._texts = b"\0".join(
            value for _, row in staying for name, value in row.items() if isinstance(value, bytes) and name != "id"
        )
        self._adjoining = b"\0".join([*self._side_by_side(staying, before)])
        self.words = sorted(
            {
                text if isinstance(text, str) else json.dumps(text, ensure_ascii=False, sort_keys=True)
                for record in map(plan.records.__getitem__, plan.goes)
                for name in WORDS[record["collection"]]
                if (text := record.get(name)) is not None
            }
        )
        found = {text: {form for form in forms(text) if form in self._texts} for text in self.words}
        self.exempt = [text for text in self.words if found[text]]
        self._needles = {form: text for text in self.words for form in forms(text) - found[text]}
        numbers = b"\0".join([now.numbers_in_index, *(row["vector"] for row in now.vectors.values())])
        chance = {form for form in self._needles if len(form) < BY_CHANCE and form in numbers}
        self.by_chance = sorted(self._needles.pop(form) for form in chance)
        self.ids = sorted(plan.goes)
        every_id = {record_id.encode() for record_id in self.ids}
        exempt_ids = standing(every_id, self._adjoining)
        self.exempt_ids = sorted(record_id.decode() for record_id in exempt_ids)
        self._sought_ids = every_id - exempt_ids
        clear, beside = plan.question.clear(), self._texts + self._adjoining
        self.exempt_names = sorted(name for name in clear if name.encode() in beside)
        named = clear - set(self.exempt_names)
        names_by_chance = {name for name in named if len(name) < BY_CHANCE and name.encode() in numbers}
        self.by_chance += sorted(names_by_chance)
        self._sought_names = named - names_by_chance
        self.pieces = {piece for text in self.words for form in forms(text) for piece in pieces_of(form)}

    def _side_by_side(self, staying: list[tuple[str, Row]], before: Rows) -> list[bytes]:
        """Staying ids with what SQLite writes right behind them, without a byte between.

        In a row of a table the id is followed by the namespace, in an index by the row number, in the lineage one
        end of an edge by the other: beside 26/D1:1 the namespace 26 makes 26/D1:12 out of a record that stays. Whose
        a record is stands in an index between its org and its ``seq``; that of its vector, between its org and the
        number of the vector.
        """
        joined = []
        for table, row in staying:
            joined.append(b"".join(row[name] for name in IDENTITY))
            joined += [row[name] for name in ("episode", "document") if name in row]
            behind = before.rows[table][row["id"]]
            if name := VERSIONED.get(table):
                ending = in_record(row["updated_at"]) + in_record(behind["version"]) + in_record(behind["rid"])
                joined.append(row[name] + ending)
            if (vector := before.vectors.get(behind["rid"] * 8 + SEARCHED.get(table, 0))) is not None:
                parts = [vector[part] for part in IDENTITY if part != "id"]
                joined.append(b"".join([*parts, vector["model"], vector["vector"]]))
                joined += [vector["org"] + part + in_record(vector["record"]) for part in parts[1:]]
            joined.append(row["id"] + in_record(behind["rid"]))
            ending = in_record(behind["seq"]) + in_record(behind["rid"])
            joined += [row["org"] + row[part] + ending for part in IDENTITY[2:]]
        for edge in self._plan.edges_left:
            org, derived, source, *rest = self._plan.edge_row(edge)
            joined += [org + derived + source + b"".join(rest), org + source + derived]
        return joined

    def problems(self, name: str, data: bytes) -> list[str]:
        """What stands in a file and must not. A longer text that stands there shows by a piece of it."""
        pieces = self.pieces
        hits = {piece for at in range(0, len(data) - PIECE + 1, STRIDE) if (piece := data[at : at + PIECE]) in pieces}
        problems = [f"{name} holds the piece {piece!r}" for piece in self._astray(hits)]
        problems += [
            f"{name} holds the erased text {text!r}"
            for form, text in self._needles.items()
            if (len(form) < PIECE + STRIDE - 1 or not hits.isdisjoint(pieces_of(form))) and form in data
        ]
        problems += [f"{name} holds the id {record_id!r}" for record_id in standing(self._sought_ids, data)]
        problems += [f"{name} holds the name {clear!r}" for clear in self._sought_names if clear.encode() in data]
        return problems

    def _astray(self, hits: set[bytes]) -> set[bytes]:
        """The pieces that stand in no text that stays: looked up one by one, unless that takes longer than all do."""
        if len(hits) > FEW:
            return hits - self._staying_pieces
        return {piece for piece in hits if piece not in self._texts}

    @cached_property
    def _staying_pieces(self) -> set[bytes]:
        texts, pieces = self._texts, self.pieces
        return {piece for at in range(len(texts)) if (piece := texts[at : at + PIECE]) in pieces}


def main() -> None:
    """Check a folder and print what was found."""
    folder, before_folder, source = (Path(argument).resolve() for argument in sys.argv[1:4])
    ours = [name for name in sys.modules if name.partition(".")[0] == "expunge"]
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    question = Question(json.loads(sys.argv[4]))
    with source.open(encoding="utf-8") as lines:
        plan = Plan([json.loads(line) for line in lines], question)
    before: Rows
    now: Rows
    if question.packages is None:
        before, now = Database(before_folder / DATABASE, at_rest=True), Database(folder / DATABASE, at_rest=False)
    else:
        before, now = (Served((one / URL).read_text(), question.packages) for one in (before_folder, folder))
        contents |= now.contents(files=question.files)
        before.close()
        now.close()
    answer = {
        "served": question.packages is not None,
        "imports_ours": ours or importlib.util.find_spec("expunge") is not None,
        "removed": plan.removed(),
        "effects": plan.effects(),
        "direct": plan.counts(plan.direct),
        "derived": plan.counts(plan.planned - plan.direct),
        "outlives": plan.counts(plan.outlives),
        "back": plan.counts(plan.back),
        "reversals": len(plan.back & plan.direct),
        "goes": {name: sorted(one for one in plan.goes if plan.kind(one) == name) for name in CONTENT},
        "edges_gone": sorted(plan.edges(set(plan.records)) - plan.edges_left),
        "edges_back": len([edge for edge in plan.edges(set(plan.stays)) if edge[1] in plan.goes]),
        "stays": len(plan.stays),
        "files": {name: len(data) for name, data in sorted(contents.items())},
    }
    if question.hidden:
        answer["problems"] = hidden_problems(plan, now, before)
    else:
        raw = Bytes(plan, now, before)
        problems = [problem for name, data in contents.items() for problem in raw.problems(name, data)]
        answer |= {
            "texts": len(raw.words),
            "exempt": raw.exempt,
            "by_chance": raw.by_chance,
            "exempt_ids": raw.exempt_ids,
            "exempt_names": raw.exempt_names,
            "pieces": len(raw.pieces),
            "problems": problems + row_problems(plan, now, before),
        }
    print(json.dumps(answer))


main()
