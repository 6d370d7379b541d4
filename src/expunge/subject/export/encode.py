"""A record as it stands in an export: one JSON object on a line, in the words of the load format.

The store writes the line itself: a record of a million is not taken apart into values and put together again, and
stored JSON is copied as it stands, so that no number is read and written anew (2^60, 1e400, 1.10).
"""

from __future__ import annotations

from functools import lru_cache

from expunge.datamap import Collection, Column, Kind, Role
from expunge.model.identity import PARTS
from expunge.model.ids import NOBODY

_ENGINE = frozenset({"rid", "seq", "marked", "ref", "predicate_key"})
"""What the engine writes and makes again; no business of whoever reads an export."""


@lru_cache
def line(kind: Collection) -> str:
    """The line of a record ``r``, as an expression. What is NULL, or nobody, has no name in it."""
    parts = [f"""'{{"collection":"{kind.name}"'"""]
    parts += [_member(column) for column in kind.columns if column.name not in _ENGINE]
    parts += [_lineage(kind), """CASE WHEN r.marked <> 0 THEN ',"hidden":true' END""", "'}'"]
    return f"concat({', '.join(parts)})"


def _member(column: Column) -> str:
    name = f"r.{column.name}"
    there = f"{name} <> '{NOBODY}'" if column.name in PARTS else f"{name} IS NOT NULL"
    return f"""CASE WHEN {there} THEN ',"{column.name}":' || {_value(column, name)} END"""


def _value(column: Column, name: str) -> str:
    if column.kind is Kind.JSON:
        return name
    if column.kind is Kind.FLAG:
        return f"CASE WHEN {name} = 1 THEN 'true' ELSE 'false' END"
    if column.kind is Kind.SHARE:
        return f"share_text({name})"
    return f"instant_text({name})" if column.role is Role.TIME else f"json_quote({name})"


def _lineage(kind: Collection) -> str:
    """The sources of a record, and its rule where that is not its collection's."""
    rule = f"""CASE WHEN max(l.rule) <> '{kind.rule}' THEN ',"lineage":' || json_quote(max(l.rule))
        WHEN min(l.rule) <> '{kind.rule}' THEN ',"lineage":' || json_quote(min(l.rule)) END"""
    sources = "string_agg(json_quote(l.source), ',' ORDER BY l.source)"
    return f"""(SELECT CASE WHEN count(*) > 0 THEN concat(',"sources":[', {sources}, ']', {rule}) END
        FROM lineage l WHERE l.derived = r.id AND l.org = r.org)"""
