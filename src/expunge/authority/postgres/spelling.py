"""How PostgreSQL spells the words of our SQL (``expunge.authority.words``).

Most of them are functions of our schema, so that a statement reads the same there. What is left are parameters, and
the order of tables, which this planner chooses by itself.
"""

from __future__ import annotations

import re
from functools import cache

from expunge.authority.port import Statement

_PIECES = re.compile(r"('(?:[^']|'')*')|(%)|(\?)|(?<![:\w]):([a-z]\w*)")
"""Texts in quotes, per cent signs (which the driver reads), and parameters."""
_ORDERED = re.compile(r"\bCROSS JOIN (\w+(?:\([^()]*\))? \w+)(\s+)ON\b")
_UNINDEXED = re.compile(r"\bunindexed\(([\w.]+)\)")


@cache
def spelled(statement: Statement) -> str:
    """A statement as the driver takes it. There are as many as the product has statements, so each is kept."""
    text = statement.postgres or statement.text
    text = _UNINDEXED.sub(r"\1", _ORDERED.sub(r"JOIN \1\2ON", text))
    return _PIECES.sub(_piece, text)


def _piece(found: re.Match[str]) -> str:
    quoted, percent, positional, name = found.groups()
    if quoted is not None:
        return quoted.replace("%", "%%")
    if percent is not None:
        return "%%"
    return "%s" if positional is not None else f"%({name})s"
