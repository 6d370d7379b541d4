"""How SQLite spells the words of our SQL (``expunge.authority.words``)."""

from __future__ import annotations

import re
from functools import cache

_EACH = re.compile(r"\beach_(?:text|number|object|entry)\(")
_MEMBER = re.compile(r"\b(?:text|number)_in\(([\w.:]+), '(\w+)'\)")
_FIRST = re.compile(r"\bfirst_(?:text|number)\(([\w.:]+), '(\w+)'\)")
_UNINDEXED = re.compile(r"\bunindexed\(([\w.]+)\)")
_LEAST = re.compile(r"\bleast\(")


@cache
def spelled(text: str) -> str:
    """A statement as SQLite reads it. There are as many as the product has statements, so each is kept."""
    text = _MEMBER.sub(r"json_extract(\1, '$.\2')", text)
    text = _FIRST.sub(r"json_extract(\1, '$[0].\2')", text)
    text = _UNINDEXED.sub(r"+\1", text)
    return _LEAST.sub("min(", _EACH.sub("json_each(", text))
