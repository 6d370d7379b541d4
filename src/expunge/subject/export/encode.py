"""A record as it stands in an export: one JSON object, in the words of the load format."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson

from expunge.authority.port import Row
from expunge.datamap import Collection, Column, Kind, Role
from expunge.model.identity import PARTS
from expunge.model.ids import NOBODY

_ENGINE = frozenset({"rid", "seq", "marked", "ref", "predicate_key"})
"""What the engine writes and makes again; no business of whoever reads an export."""
_TEXT = orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (written as UTC: a zone would be carried through every record)


@lru_cache
def exported(kind: Collection) -> tuple[Column, ...]:
    """The columns of a collection that stand in an export."""
    return tuple(column for column in kind.columns if column.name not in _ENGINE)


@lru_cache
def selected(kind: Collection) -> str:
    """The columns of a row for ``encoder``: what is exported, its edges as ``{source: rule}``, and what hides it."""
    columns = ", ".join(
        f"nullif(r.{column.name}, '{NOBODY}')" if column.name in PARTS else f"r.{column.name}"
        for column in exported(kind)
    )
    edges = "(SELECT json_group_object(l.source, l.rule) FROM lineage l WHERE l.derived = r.id AND l.org = r.org)"
    return f"{columns}, nullif({edges}, '{{}}'), nullif(r.marked, 0)"


@lru_cache
def encoder(kind: Collection) -> Callable[[Row], bytes]:
    """What writes the rows of ``selected`` as lines.

    Stored JSON is copied as it stands: no number is read and written again, so none changes (2^60, 1e400, 1.10).
    """
    names = (*(column.name for column in exported(kind)), "sources", "hidden")
    converted = [(column.name, convert) for column in exported(kind) if (convert := _conversion(column)) is not None]
    first = b'{"collection":"%b",' % kind.name.encode()

    def encode(row: Row) -> bytes:
        record = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for name, convert in converted:
            if name in record:
                record[name] = convert(record[name])
        if "sources" in record:
            record |= _lineage(kind, orjson.loads(record["sources"]))
        if "hidden" in record:
            record["hidden"] = True
        return first + orjson.dumps(record, option=_TEXT)[1:]

    return encode


def _conversion(column: Column) -> Callable[[Any], Any] | None:
    if column.kind is Kind.JSON:
        return lambda text: orjson.Fragment(text.encode())
    if column.kind is Kind.FLAG:
        return bool
    return _instant if column.role is Role.TIME else None


@lru_cache(maxsize=1024)
def _instant(instant: int) -> datetime:
    """Most records carry one moment three times."""
    return _EPOCH + timedelta(microseconds=instant)


def _lineage(kind: Collection, edges: dict[str, str]) -> dict[str, Any]:
    rules = set(edges.values()) - {str(kind.rule)}
    return {"sources": list(edges)} | ({"lineage": rules.pop()} if rules else {})
