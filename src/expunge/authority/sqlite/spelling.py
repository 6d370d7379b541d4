"""How SQLite spells the words of our SQL (``expunge.authority.words``)."""

from __future__ import annotations

import re
from functools import cache

_YEAR_1 = -62_135_596_800
"""0001-01-01 in seconds of 1970. Times are counted from it, since the remainder of something negative is negative."""
_SINCE = rf"(\1 - {_YEAR_1 * 1_000_000})"
_INSTANT = rf"""strftime('"%Y-%m-%dT%H:%M:%S', {_SINCE} / 1000000 + {_YEAR_1}, 'unixepoch') ||
    iif(\1 % 1000000 = 0, 'Z"', printf('.%06dZ"', {_SINCE} % 1000000))"""
_WORDS = (
    (re.compile(r"\b(?:text|number)_in\(([\w.:]+), '(\w+)'\)"), r"json_extract(\1, '$.\2')"),
    (re.compile(r"\bfirst_(?:text|number)\(([\w.:]+), '(\w+)'\)"), r"json_extract(\1, '$[0].\2')"),
    (re.compile(r"\bdigest\(([\w.:]+)\)"), r"\1"),
    (re.compile(r"\bunindexed\(([\w.]+)\)"), r"+\1"),
    (re.compile(r"\binstant_text\(([\w.]+)\)"), _INSTANT),
    (re.compile(r"\bshare_text\("), "printf('%!.17g', "),
    (re.compile(r"\beach_(?:text|number|object|entry)\("), "json_each("),
    (re.compile(r"\bleast\("), "min("),
)


@cache
def spelled(text: str) -> str:
    """A statement as SQLite reads it. There are as many as the product has statements, so each is kept."""
    for word, spelling in _WORDS:
        text = word.sub(spelling, text)
    return text
