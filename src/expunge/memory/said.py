"""What a record says, as answers and derivers read it."""

from __future__ import annotations

from typing import Any

from expunge.datamap import CHUNKS, EPISODES, FACTS, MEMORIES, Collection, Kind
from expunge.memory.versions import Row, as_value
from expunge.model.instant import to_datetime


def _told(kind: Kind | None, value: Any) -> Any:
    if value is None:
        return None
    if kind is Kind.INSTANT:
        return to_datetime(value)
    return bool(value) if kind is Kind.FLAG else value


def said(kind: Collection, row: Row) -> tuple[dict[str, Any], str]:
    """The fields of a record, and what it says as one text."""
    record: dict[str, Any] = {column.name: _told(column.kind, row[column.name]) for column in kind.content}
    if kind is MEMORIES:
        record |= {"value": as_value(row["value"]), "tags": as_value(row["tags"]) or [], "version": row["version"]}
        value = record["value"]
        return record, value if isinstance(value, str) else row["value"]
    if kind is FACTS:
        record["ends"] = _told(Kind.INSTANT, row.get("ends"))
        return record, f"{row['subject']} {row['predicate']} {row['object']}"
    if kind is CHUNKS:
        return record, row["text"]
    if kind is EPISODES:
        record["tool_calls"] = as_value(row["tool_calls"])
        return record, "\n".join(row[name] for name in ("input", "output") if row[name])
    return record, "\n".join(str(value) for value in record.values() if isinstance(value, str))
