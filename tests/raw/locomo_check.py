"""Prove from outside what an erasure left: this process knows nothing of Expunge but its tables.

    python -I -S locomo_check.py FOLDER BEFORE INPUT [USER...]

FOLDER holds the database after the users were erased, BEFORE the same folder before, INPUT the JSON lines that were
loaded. From the input alone it works out what has to go and what has to stay, and then looks in two ways:

1. the rows, by the standard library's SQLite, read-only: what stays is equal to the input in every column that the
   input gives and to the database before in every column, and nothing else is there, edges of lineage included;
2. the bytes of every file in the folder, before SQLite opens any of them: no erased text, no piece of one, no id of
   a removed record and no clear user id, except where the very same bytes stand in a record that has to stay.

It prints one JSON object; ``problems`` is empty when all of that holds.
"""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import sys
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Any

DATABASE = "expunge.db"
ORG = "default"
NOBODY = "-"
PIECE, STRIDE = 24, 8
"""Bytes. Every piece of an erased text is looked for at every eighth byte of a file: no remnant of 31 bytes escapes."""

IDENTITY = ("org", "id", "namespace", "agent", "user_id", "session_id")
TIMES = ("created_at", "recorded_at", "updated_at")
CONTENT = {
    "sessions": (),
    "episodes": ("occurred_at", "input", "output"),
    "events": ("episode", "kind", "content"),
    "memories": ("key", "value", "memory_type"),
    "facts": ("subject", "predicate", "object", "valid_from", "valid_to"),
    "blocks": ("name", "content"),
}
ENGINE = {"rid", "seq", "marked", "version"}
"""Columns that the input does not give: compared with the database before."""
INSTANTS = {*TIMES, "occurred_at", "valid_from", "valid_to"}
WORDS = {
    "sessions": (),
    "episodes": ("input", "output"),
    "events": ("content",),
    "memories": ("value",),
    "facts": ("object",),
    "blocks": ("content",),
}
"""The columns whose text must not outlive its record."""
VERSIONED = {"memories": "key", "blocks": "name"}
DETACH = {"facts"}
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
    for name in CONTENT[record["collection"]]:
        row[name] = record.get(name, created if name == "occurred_at" else None)
    if "value" in row:
        row["value"] = json.dumps(row["value"], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return {
        name: micros(value) if name in INSTANTS and value is not None else value.encode() if value else value
        for name, value in row.items()
    }


def forms(text: str) -> set[bytes]:
    """A text as it is, and as it stands inside JSON."""
    escaped = (json.dumps(text, ensure_ascii=plain)[1:-1] for plain in (True, False))
    return {form.encode() for form in (text, *escaped)}


def standing(ids: set[bytes], data: bytes) -> set[bytes]:
    """Those of many ids that stand in some bytes: looked up where the beginning of one is."""
    lengths, found = {len(one) for one in ids}, set()
    for beginning in {one[:3] for one in ids}:
        at = data.find(beginning)
        while at >= 0:
            found |= {data[at : at + length] for length in lengths} & ids
            at = data.find(beginning, at + 1)
    return found


class Plan:
    """What the input says has to go with some users, and what has to stay."""

    def __init__(self, records: list[Row], users: list[str]) -> None:
        self.records = {record["id"]: record for record in records}
        self.rows = {record["id"]: stored(record) for record in records}
        self.users = users
        self.direct = {record["id"] for record in records if record.get("user_id") in set(users)}
        self.goes = set(self.direct)
        while new := {record_id for record_id in self.records.keys() - self.goes if self._follows(record_id)}:
            self.goes |= new
        self.stays = self.records.keys() - self.goes

    def _follows(self, record_id: str) -> bool:
        """The lineage rule: retire with any source, detach with the last; an event goes with its episode."""
        record = self.records[record_id]
        sources = set(record.get("sources", ()))
        if record["collection"] in DETACH:
            return bool(sources) and sources <= self.goes
        return bool(sources & self.goes) or record.get("episode") in self.goes

    def edges(self, derived: set[str]) -> set[tuple[str, str]]:
        """Every edge to some derived records."""
        return {(one, source) for one in derived for source in self.records[one].get("sources", ())}

    @cached_property
    def edges_left(self) -> set[tuple[str, str]]:
        """The edges whose ends both stay."""
        return {edge for edge in self.edges(set(self.stays)) if edge[1] in self.stays}

    def removed(self) -> dict[str, int]:
        """How many go, by collection, edges too."""
        counts = Counter(self.records[record_id]["collection"] for record_id in self.goes)
        edges = len(self.edges(set(self.records))) - len(self.edges_left)
        return {name: counts[name] for name in CONTENT} | {"lineage": edges}

    def effects(self) -> dict[str, int]:
        """What happens outside the scope."""
        detached = {derived for derived, source in self.edges(set(self.stays)) if source in self.goes}
        versions: dict[tuple[Any, ...], list[tuple[int, int, str]]] = defaultdict(list)
        for at, (record_id, record) in enumerate(self.records.items()):
            if name := VERSIONED.get(record["collection"]):
                row = self.rows[record_id]
                key = (name, row[name], *(row[part] for part in IDENTITY if part != "id"))
                versions[key].append((row["updated_at"], at, record_id))
        current = [(max(found)[2], {item[2] for item in found}) for found in versions.values()]
        revived = sum(newest in self.goes and bool(ids - self.goes) for newest, ids in current)
        return {"derived": len(self.goes - self.direct), "detached": len(detached), "revived": revived}

    def edge_row(self, edge: tuple[str, str]) -> tuple[bytes, ...]:
        """An edge as its table has to hold it."""
        derived, source = (self.records[end] for end in edge)
        rule = "detach" if derived["collection"] in DETACH else "retire"
        names = (derived.get("org", ORG), *edge, derived["collection"], source["collection"], rule)
        return tuple(name.encode() for name in names)


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
        self.integrity = connection.execute("PRAGMA integrity_check").fetchall()[0][0].decode()
        connection.close()

    @staticmethod
    def _all(connection: sqlite3.Connection, table: str) -> list[Row]:
        cursor = connection.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def row_problems(plan: Plan, now: Database, before: Database) -> list[str]:
    """What differs between the rows that are there and those that have to be."""
    problems = [] if now.integrity == "ok" else [f"integrity_check: {now.integrity}"]
    for table in CONTENT:
        expected = {
            record_id.encode(): plan.rows[record_id]
            for record_id in plan.stays
            if plan.records[record_id]["collection"] == table
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
    return problems


class Bytes:
    """The search through the raw bytes, and what it has to leave alone."""

    def __init__(self, plan: Plan, before: Database) -> None:
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
        self.ids = sorted(plan.goes)
        every_id = {record_id.encode() for record_id in self.ids}
        exempt_ids = standing(every_id, self._adjoining)
        self.exempt_ids = sorted(record_id.decode() for record_id in exempt_ids)
        self._sought_ids = every_id - exempt_ids
        self.exempt_users = [user for user in plan.users if user.encode() in self._texts + self._adjoining]
        whole = (form for text in self.words for form in forms(text))
        self.pieces = {form[at : at + PIECE] for form in whole for at in range(len(form) - PIECE + 1)}

    def _side_by_side(self, staying: list[tuple[str, Row]], before: Database) -> list[bytes]:
        """Staying ids with what SQLite writes right behind them, without a byte between.

        In a row of a table the id is followed by the namespace, in an index by the row number, in the lineage one
        end of an edge by the other: beside 26/D1:1 the namespace 26 makes 26/D1:12 out of a record that stays.
        """
        joined = []
        for table, row in staying:
            joined.append(b"".join(row[name] for name in IDENTITY))
            joined += [row[name] for name in ("episode", "key", "name") if name in row]
            rid = before.rows[table][row["id"]]["rid"]
            joined.append(row["id"] + rid.to_bytes((rid.bit_length() + 8) // 8, "big"))
        for edge in self._plan.edges_left:
            org, derived, source, *rest = self._plan.edge_row(edge)
            joined += [org + derived + source + b"".join(rest), org + source + derived]
        return joined

    def problems(self, name: str, data: bytes) -> list[str]:
        """What stands in a file and must not."""
        problems = [f"{name} holds the erased text {text!r}" for form, text in self._needles.items() if form in data]
        problems += [f"{name} holds the id {record_id!r}" for record_id in standing(self._sought_ids, data)]
        problems += [
            f"{name} holds the user id {user!r}"
            for user in set(self._plan.users) - set(self.exempt_users)
            if user.encode() in data
        ]
        pieces = self.pieces
        hits = {piece for at in range(0, len(data) - PIECE + 1, STRIDE) if (piece := data[at : at + PIECE]) in pieces}
        problems += [f"{name} holds the piece {piece!r}" for piece in hits and hits - self._staying_pieces]
        return problems

    @cached_property
    def _staying_pieces(self) -> set[bytes]:
        texts, pieces = self._texts, self.pieces
        return {piece for at in range(len(texts)) if (piece := texts[at : at + PIECE]) in pieces}


def main() -> None:
    """Check a folder and print what was found."""
    folder, before_folder, source = (Path(argument).resolve() for argument in sys.argv[1:4])
    ours = [name for name in sys.modules if name.partition(".")[0] == "expunge"]
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with source.open(encoding="utf-8") as lines:
        plan = Plan([json.loads(line) for line in lines], sys.argv[4:])
    before = Database(before_folder / DATABASE, at_rest=True)
    raw = Bytes(plan, before)
    problems = [problem for name, data in contents.items() for problem in raw.problems(name, data)]
    problems += row_problems(plan, Database(folder / DATABASE, at_rest=False), before)
    answer = {
        "imports_ours": ours or importlib.util.find_spec("expunge") is not None,
        "removed": plan.removed(),
        "effects": plan.effects(),
        "goes": {name: sorted(i for i in plan.goes if plan.records[i]["collection"] == name) for name in CONTENT},
        "edges_gone": sorted(plan.edges(set(plan.records)) - plan.edges_left),
        "edges_back": len([edge for edge in plan.edges(set(plan.stays)) if edge[1] in plan.goes]),
        "stays": len(plan.stays),
        "texts": len(raw.words),
        "exempt": raw.exempt,
        "exempt_ids": raw.exempt_ids,
        "exempt_users": raw.exempt_users,
        "pieces": len(raw.pieces),
        "files": {name: len(data) for name, data in sorted(contents.items())},
        "problems": problems,
    }
    print(json.dumps(answer))


main()
