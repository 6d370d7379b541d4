"""Derivers: what makes facts and summaries from records. Any async callable will do; two plain ones stand here.

A deriver is given the records that a job is to read and answers with drafts. What it writes rests on all of them, goes
by their lineage, and is refused when any of them was erased while it thought (laws 4, 5).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """A record as a deriver reads it: its collection and id, what it says as one text, its fields, and its time."""

    id: str
    collection: str
    text: str
    record: dict[str, Any]
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class FactDraft:
    """A fact to be written: as ``NewFact``; from the time of the newest source, when ``valid_from`` is left out.

    ``sources`` are the ids of those that it rests on; all of them, when they are left out. Then, where they are of
    several people, it goes with any of them, for nobody can tell whose words it carries.
    """

    subject: str
    predicate: str
    object: str
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    exclusive: bool = True
    confidence: float | None = None
    sources: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class MemoryDraft:
    """A memory to be written, under the key of the job when it names none. It is made afresh when a source goes."""

    value: Any
    key: str | None = None
    memory_type: str | None = "summary"


Draft = FactDraft | MemoryDraft
Deriver = Callable[[Sequence[Source]], Awaitable[Sequence[Draft]]]

_ME = r"\b(?:i am|i'm|i)"
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (predicate, re.compile(pattern, re.IGNORECASE))
    for predicate, pattern in (
        ("name", r"\bmy name is (?P<object>[^.,;!?\n]{1,60})"),
        ("lives_in", rf"{_ME} (?:live|living|moved|moving) (?:in|to) (?P<object>[^.,;!?\n]{{1,60}})"),
        ("works_at", rf"{_ME} (?:work|working) (?:at|for) (?P<object>[^.,;!?\n]{{1,60}})"),
        ("works_as", rf"{_ME} (?:work|working) as (?:an? )?(?P<object>[^.,;!?\n]{{1,60}})"),
        ("likes", rf"{_ME} (?:really )?(?:like|love|enjoy) (?P<object>[^.,;!?\n]{{1,60}})"),
    )
)
_ALONE = frozenset({"name", "lives_in", "works_at", "works_as"})
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


async def plain_facts(sources: Sequence[Source]) -> list[Draft]:
    """Facts that somebody says of themselves in so many words ("I moved to Porto"); the same of the same text."""
    drafts: list[Draft] = []
    for source in sources:
        words = source.record.get("input") or source.text
        for predicate, pattern in _PATTERNS:
            for found in pattern.finditer(words):
                what = found["object"].strip()
                drafts.append(
                    FactDraft(
                        "user", predicate, what, source.occurred_at, exclusive=predicate in _ALONE, sources=[source.id]
                    )
                )
    return drafts


async def digest(sources: Sequence[Source]) -> list[Draft]:
    """The first sentence of each record, in their order, as one memory; of the same records always the same."""
    firsts = [_SENTENCE.split(source.text.strip(), maxsplit=1)[0][:200] for source in sources if source.text.strip()]
    return [MemoryDraft("\n".join(firsts))] if firsts else []
