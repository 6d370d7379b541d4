"""A record as it stands in an export: one JSON object, in the words of the load format."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import orjson

from expunge.authority.port import Row
from expunge.datamap import Collection, Column, Kind, Role
from expunge.model.identity import PARTS
from expunge.model.ids import NOBODY
from expunge.model.instant import to_text

_ENGINE = frozenset({"rid", "seq", "marked", "ref", "predicate_key"})
"""What the engine writes and makes again; no business of whoever reads an export."""
_TIMES = frozenset({Role.TIME})
_AHEAD = 2
"""The values of a row before its columns: whether it is hidden, and its edges."""


@lru_cache
def exported(kind: Collection) -> tuple[Column, ...]:
    """The columns of a collection that stand in an export."""
    return tuple(column for column in kind.columns if column.name not in _ENGINE)


@lru_cache
def selected(kind: Collection) -> str:
    """The columns of a row for ``encoder``: ``marked``, the edges as ``{source: rule}``, and what is exported."""
    columns = ", ".join(
        f"nullif(r.{column.name}, '{NOBODY}')" if column.name in PARTS else f"r.{column.name}"
        for column in exported(kind)
    )
    edges = "(SELECT json_group_object(l.source, l.rule) FROM lineage l WHERE l.derived = r.id AND l.org = r.org)"
    return f"r.marked, {edges}, {columns}"


@lru_cache
def encoder(kind: Collection) -> Callable[[Row], bytes]:
    """What writes the rows of ``selected`` as lines.

    Stored JSON is copied as it stands: no number is read and written again, so none changes (2^60, 1e400, 1.10).
    """
    names = [column.name for column in exported(kind)]
    converted = [(names[at], at + _AHEAD, convert) for at, column in enumerate(exported(kind))
                 if (convert := _conversion(column)) is not None]  # fmt: skip

    def encode(row: Row) -> bytes:
        record: dict[str, Any] = {"collection": kind.name, **dict(zip(names, row[_AHEAD:], strict=True))}
        for name, at, convert in converted:
            if row[at] is not None:
                record[name] = convert(row[at])
        if row[1] != "{}":
            record |= _lineage(kind, orjson.loads(row[1]))
        if row[0]:
            record["hidden"] = True
        return orjson.dumps({name: value for name, value in record.items() if value is not None})

    return encode


def _conversion(column: Column) -> Callable[[Any], Any] | None:
    if column.kind is Kind.JSON:
        return lambda text: orjson.Fragment(text.encode())
    if column.kind is Kind.FLAG:
        return bool
    return _instant if column.role in _TIMES else None


@lru_cache(maxsize=1024)
def _instant(instant: int) -> str:
    """Most records carry one moment three times."""
    return to_text(instant)


def _lineage(kind: Collection, edges: dict[str, str]) -> dict[str, Any]:
    rules = set(edges.values()) - {str(kind.rule)}
    return {"sources": list(edges)} | ({"lineage": rules.pop()} if rules else {})
