"""Records to write, and dumps to compare."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from expunge import Expunge
from expunge.authority.port import Statement, Tx
from expunge.datamap import LINEAGE, RECORDS
from expunge.erasure import Order
from expunge.memory.statements import stored_columns
from expunge.model.scope import Scope

AT = "2026-01-01T00:00:00Z"

HOSTILE_IDS = (
    "u1", "u10", "U1", "%", "_", "*", "?", "[", "[a-z]", "\\", "'", '"', "`", ";", "--", "-x", "--purge", "a b",
    " lead", "trail ", "../", "../../etc/passwd", "/etc/passwd", "C:\\x", ".", "..", "~", "$HOME", "{}", "{{x}}",
    "<script>", "&amp;", "%00", "%2e%2e%2f", "a\nb", "\tx", "\x1b[31mred", "\x7f", "u\u202e1", "\u200b",
    "jürgen", "ju\u0308rgen", "Straße", "STRASSE", "ı", "İ", "😂", "👩\u200d👩\u200d👧", "\U0010ffff", "\ufeffbom",
    "null", "None", "0", "-1", "1e9", "NaN", "true", "x" * 256, "é" * 128, "user_id", "$.user_id", "a\u2028b",
)  # fmt: skip
"""Ordinary ids that naive code trips over (law 12); each is another person."""

BAD_IDS: tuple[Any, ...] = (
    "",
    " ",
    "\t\n",
    "\u3000",
    "-",
    "a\0b",
    "\ud800",
    "x" * 257,
    "é" * 129,
    7,
    None,
    1.5,
    ["u1"],
)
"""What is no id (law 12)."""


def episode(record_id: str, user_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """An episode as a line has it."""
    return _record("episodes", record_id, user_id, {"input": f"words of {record_id}"} | fields)


def event(record_id: str, episode_id: str, user_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """An event of an episode."""
    return _record("events", record_id, user_id, {"episode": episode_id, "kind": "tool", "content": "called"} | fields)


def memory(record_id: str, key: str, user_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """A memory."""
    return _record("memories", record_id, user_id, {"key": key, "value": f"value of {record_id}"} | fields)


def fact(record_id: str, user_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """A fact."""
    return _record("facts", record_id, user_id, {"subject": "s", "predicate": "p", "object": record_id} | fields)


def block(record_id: str, name: str, user_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """A block."""
    return _record("blocks", record_id, user_id, {"name": name, "content": f"content of {record_id}"} | fields)


def session(record_id: str, user_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """A session."""
    return _record("sessions", record_id, user_id, fields)


def document(record_id: str, title: str, user_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """A document of one chunk."""
    return _record("documents", record_id, user_id, {"title": title, "text": f"text of {record_id}"} | fields)


def answer(record_id: str, user_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """An answer that is kept."""
    return _record("answers", record_id, user_id, {"question": f"what of {record_id}", "answer": "this"} | fields)


def job(record_id: str, user_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """A job that waits."""
    return _record("jobs", record_id, user_id, {"deriver": "digest"} | fields)


def of_agents(user_id: str, prefix: str) -> list[dict[str, Any]]:
    """A record of each further collection for a user, without documents: their bodies change how an erasure runs."""
    return [answer(f"{prefix}-ans", user_id), job(f"{prefix}-job", user_id)]


def _record(collection: str, record_id: str, user_id: str | None, fields: dict[str, Any]) -> dict[str, Any]:
    record = {"collection": collection, "id": record_id, "created_at": AT} | fields
    return record if user_id is None else record | {"user_id": user_id}


def one_of_each(user_id: str, prefix: str) -> list[dict[str, Any]]:
    """A record of every collection for a user, and two summaries that name nobody, the second made from the first."""
    return [
        session(f"{prefix}-s", user_id),
        episode(f"{prefix}-e", user_id, session_id=f"{prefix}-s"),
        event(f"{prefix}-v", f"{prefix}-e"),
        memory(f"{prefix}-m", "likes", user_id),
        fact(f"{prefix}-f", user_id, sources=[f"{prefix}-e"]),
        block(f"{prefix}-b", "persona", user_id),
        memory(f"{prefix}-sum", f"summary/{prefix}", sources=[f"{prefix}-e"]),
        memory(f"{prefix}-sum2", f"digest/{prefix}", sources=[f"{prefix}-sum"]),
    ]


def purge_order(*users: str, org: str = "default") -> Order:
    """The order to purge some users."""
    scope = Scope.of_users(org, users)
    return Order(scope, scope.type, purge=True)


async def dump(expunge: Expunge) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Every record by collection and id, whether it is marked (1 or 0), and all that a caller gave."""

    def unit(tx: Tx) -> dict[str, dict[str, tuple[Any, ...]]]:
        found: dict[str, dict[str, tuple[Any, ...]]] = {}
        for kind in RECORDS:
            columns = ["marked <> 0", *stored_columns(kind)]
            rows = tx.rows(Statement("test.dump", f"SELECT {', '.join(columns)} FROM {kind.name}"))
            at = columns.index("id")
            found[kind.name] = {row[at]: row for row in rows}
        edges = tx.rows(Statement("test.edges", f"SELECT derived, source, rule FROM {LINEAGE.name}"))
        found["lineage"] = {f"{row[0]}<{row[1]}": row for row in edges}
        return found

    return await expunge.system.authority.read(unit)


async def audited(expunge: Expunge, **columns: Any) -> list[dict[str, Any]]:
    """The bodies of the audit, as they are stored, in order; only those that hold these values."""

    def unit(tx: Tx) -> list[dict[str, Any]]:
        rows = tx.rows(Statement("test.audit", "SELECT org, n, body FROM audit ORDER BY org, n"))
        return [json.loads(body) | {"org": org, "n": n} for org, n, body in rows]

    bodies = await expunge.system.authority.read(unit)
    return [body for body in bodies if all(body[name] == value for name, value in columns.items())]


def ids(dumped: dict[str, dict[str, tuple[Any, ...]]]) -> set[str]:
    """The ids of all records in a dump."""
    return {record_id for name, rows in dumped.items() if name != "lineage" for record_id in rows}


def files_of(folder: Path) -> dict[str, bytes]:
    """The raw bytes of every file in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def digests(folder: Path) -> dict[str, str]:
    """A hash of every file in a folder."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files_of(folder).items()}
