"""Asking the census: while an erasure runs by its clear targets and marks, afterwards by pseudonyms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from expunge.authority.port import Row, Statement, Tx
from expunge.census.sql import (
    ALL_BY_IDENTITY,
    BY_IDENTITY,
    COUNTED,
    DATED,
    DERIVED,
    EDGES,
    IDENTITY,
    LIVE_SUBJECTS,
    MARKED_ENTRIES,
    MARKED_ENTRIES_IN_POSTGRES,
    NAMED_BODIES,
    NAMES,
    NAMES_OF_ORG,
    ONE_BY_IDENTITY,
    OUTLIVE_A_SESSION,
    SEARCH,
    SEARCH_IN_POSTGRES,
    SOME_DERIVED,
    VECTORS,
)
from expunge.keys import PseudonymKey
from expunge.model.canonical import to_json
from expunge.model.instant import Instant
from expunge.model.scope import Target

_LIVE = " AND c.marked = 0"
_PART = re.compile(r"c\.\w+")
_DERIVED = {live: Statement("census.derived", DERIVED.format(live=_LIVE if live else "")) for live in (False, True)}
_SOME_DERIVED = Statement("census.some_derived", SOME_DERIVED)
_EDGES = Statement("census.edges", EDGES)
_ENTRIES = Statement("census.marked_entries", MARKED_ENTRIES, postgres=MARKED_ENTRIES_IN_POSTGRES)
_SEARCH = Statement("census.search", SEARCH, postgres=SEARCH_IN_POSTGRES)
_NAMES = {("user_id",): Statement("census.names", NAMES), (): Statement("census.names_of_org", NAMES_OF_ORG)}
"""By the parts that a scope names. Somebody who is erased from a part of an org alone keeps their name."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which request, and below which ``seq`` a record is older than the erasure (design 5).

    ``live`` counts what is served: of an erasure that hides. Otherwise every record counts. ``owned`` says by what the
    search index knows whose an entry is, for an org and the identity parts that are narrowed.
    """

    org: str
    request: int
    seq: int
    owned: Callable[[str, Mapping[str, str]], str]
    live: bool = False


def count_left(tx: Tx, question: Question, targets: Sequence[Target]) -> list[dict[str, int]]:
    """For each target the records left, by collection, zeros too."""
    marked = _asked_by_mark(tx, question)
    counts = _by_identity(tx, question, targets)
    _add(counts, marked())
    return counts


def _asked_by_mark(tx: Tx, question: Question) -> Callable[[], Iterator[Row]]:
    """What was derived, and so may name nobody, is found by its mark, while there is one."""
    values = {"org": question.org, "request": question.request, "seq": question.seq}
    some_derived = tx.ask(_SOME_DERIVED, request=question.request)
    edges = None if question.live else tx.ask(_EDGES, **values)

    def answer() -> Iterator[Row]:
        derived = some_derived()[0][0]
        yield from edges() if edges else ()
        yield from tx.rows(_DERIVED[question.live], request=question.request) if derived else ()
        yield from tx.rows(_ENTRIES, request=question.request) if derived and not question.live else ()

    return answer


def _add(counts: list[dict[str, int]], left: Iterable[Row]) -> None:
    for position, name, count in left:
        counts[position][name] += count


def count_left_by_pseudonym(
    tx: Tx, question: Question, subjects: Sequence[dict[str, str]], key: PseudonymKey, before: Instant | None
) -> list[dict[str, int]]:
    """As ``count_left`` when only pseudonyms are known: live ids are hashed until they match."""
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
    _add(counts, _asked_by_mark(tx, question)())
    return counts


def bodies_of_live_rows(tx: Tx, collection: str, org: str, refs: Sequence[str], seq: int) -> set[str]:
    """Of some bodies that a store listed, those that a record names which is served or not older than ``seq``."""
    if not refs:
        return set()
    statement = Statement(f"census.{collection}_bodies", NAMED_BODIES[collection])
    return {ref for (ref,) in tx.rows(statement, org=org, refs=json.dumps(list(refs)), seq=seq)}


def _by_identity(tx: Tx, question: Question, targets: Sequence[Target]) -> list[dict[str, int]]:
    """The targets of a request all name the same parts, so one statement counts for all of them."""
    counts = [dict.fromkeys(COUNTED, 0) for _ in targets]
    if not targets:
        return counts
    named = [target.named() for target in targets]
    values: dict[str, str | int | None] = {"org": question.org, "seq": question.seq}
    one = len(named) == 1
    values["target" if one else "targets"] = to_json(named[0] if one else named)
    before = targets[0].before
    if before is not None:
        values["before"] = before
    parts = tuple(named[0])
    names = _counted_by_identity(parts)
    statement = _identity_statement(parts, dated=before is not None, live=question.live, one=one)
    by_identity = tx.ask(statement, **values)
    beside = [] if question.live else _asked_of_index(tx, question, named)
    if parts in _NAMES and before is None and not question.live:
        beside.append(tx.ask(_NAMES[parts], **_names_values(question, named)))
    for position, *left in by_identity():
        counts[position].update(zip(names, left, strict=True))
    for answer in beside:
        _add(counts, answer())
    return counts


def _names_values(question: Question, named: Sequence[Mapping[str, str]]) -> dict[str, str | int]:
    values: dict[str, str | int] = {"org": question.org, "seq": question.seq}
    return values | ({"targets": json.dumps(named, ensure_ascii=False)} if named[0] else {})


def _asked_of_index(tx: Tx, question: Question, named: Sequence[Mapping[str, str]]) -> list[Callable[[], list[Row]]]:
    """What stands in the search index without a record behind it: an entry leaves with its record, or it is residue."""
    owned = json.dumps([question.owned(question.org, parts) for parts in named])
    targets = json.dumps(named, ensure_ascii=False)
    vectors = _vectors_statement(tuple(named[0]))
    return [tx.ask(_SEARCH, owned=owned), tx.ask(vectors, org=question.org, targets=targets)]


@lru_cache
def _vectors_statement(parts: tuple[str, ...]) -> Statement:
    return Statement("census.vectors", VECTORS.format(identity=_identity(parts, "t.value")))


def _identity(parts: tuple[str, ...], target: str) -> str:
    """What narrows to the parts of a target. A user is the narrowest, so no other index is offered beside theirs."""
    texts = (IDENTITY[part].format(target=target) for part in parts if part != "user_id")
    if "user_id" not in parts:
        return "".join(texts)
    return IDENTITY["user_id"].format(target=target) + _PART.sub(r"unindexed(\g<0>)", "".join(texts))


@lru_cache
def _identity_statement(parts: tuple[str, ...], *, dated: bool, live: bool, one: bool = False) -> Statement:
    words = DATED if dated else dict.fromkeys(DATED, "")
    words = words | {"identity": _identity(parts, ":target" if one else "t.value"), "live": _LIVE if live else ""}
    counts = ", ".join(f"({BY_IDENTITY[name].format(**words)})" for name in _counted_by_identity(parts))
    return Statement("census.by_identity", (ONE_BY_IDENTITY if one else ALL_BY_IDENTITY).format(counts=counts))


def _counted_by_identity(parts: tuple[str, ...]) -> list[str]:
    skipped = OUTLIVE_A_SESSION if "session_id" in parts else ()
    return [name for name in BY_IDENTITY if name not in skipped]
