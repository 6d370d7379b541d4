"""Asking the census: while an erasure runs by its clear targets and marks, afterwards by pseudonyms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from expunge.authority.port import Statement, Tx
from expunge.census.sql import BY_IDENTITY, COUNTED, DATED, DERIVED, IDENTITY, LIVE_SUBJECTS
from expunge.keys import PseudonymKey
from expunge.model.instant import Instant
from expunge.model.scope import Target

_DERIVED = Statement("census.derived", DERIVED)


@dataclass(frozen=True, slots=True)
class Question:
    """Which request, and below which ``seq`` a record is older than the erasure (design 5)."""

    org: str
    request: int
    seq: int


def count_left(tx: Tx, question: Question, targets: Sequence[Target]) -> list[dict[str, int]]:
    """For each target the records left, by collection, zeros too."""
    counts = _by_identity(tx, question, targets)
    for position, name, left in tx.rows(_DERIVED, org=question.org, request=question.request, seq=question.seq):
        counts[position][name] += left
    return counts


def count_left_by_pseudonym(
    tx: Tx, question: Question, subjects: Sequence[dict[str, str]], key: PseudonymKey, before: Instant | None
) -> list[dict[str, int]]:
    """As ``count_left`` when only pseudonyms are left: live ids are hashed until they match."""
    parts = sorted({part for subject in subjects for part in subject})
    clear: dict[tuple[str, str], str] = {}
    for part in parts:
        for (value,) in tx.rows(Statement(f"census.live_{part}", LIVE_SUBJECTS[part]), org=question.org):
            clear[part, key.pseudonym(question.org, part, value)] = value
    counts = [dict.fromkeys(COUNTED, 0) for _ in subjects]
    live = [
        (position, {part: clear[part, pseudonym] for part, pseudonym in subject.items()})
        for position, subject in enumerate(subjects)
        if all((part, pseudonym) in clear for part, pseudonym in subject.items())
    ]
    targets = [Target(question.org, before=before, **named) for _, named in live]
    for (position, _), count in zip(live, _by_identity(tx, question, targets), strict=True):
        counts[position] = count
    return counts


def _by_identity(tx: Tx, question: Question, targets: Sequence[Target]) -> list[dict[str, int]]:
    """The targets of a request all name the same parts, so one statement counts for all of them."""
    counts = [dict.fromkeys(COUNTED, 0) for _ in targets]
    if not targets:
        return counts
    named = [target.named() for target in targets]
    values: dict[str, str | int | None] = {"org": question.org, "seq": question.seq}
    values["targets"] = json.dumps(named, ensure_ascii=False)
    before = targets[0].before
    if before is not None:
        values["before"] = before
    for position, name, left in tx.rows(_identity_statement(tuple(named[0]), dated=before is not None), **values):
        counts[position][name] = left
    return counts


@lru_cache
def _identity_statement(parts: tuple[str, ...], *, dated: bool) -> Statement:
    times = DATED if dated else dict.fromkeys(DATED, "")
    identity = "".join(IDENTITY[part] for part in parts)
    return Statement("census.by_identity", BY_IDENTITY.format(identity=identity, **times))
