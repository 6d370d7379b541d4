"""The profile of a scope: counts by collection, first and last seen, sessions, and a few facts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from expunge.authority.port import Statement, Tx
from expunge.datamap import RECORDS, Collection
from expunge.datamap.selector import Selector, as_parameter
from expunge.model.ids import NOBODY
from expunge.model.instant import Instant
from expunge.model.scope import Scope

SHOWN = 3
SHOWN_SESSIONS = 10
SHOWN_CHARS = 200
_SAMPLED = {
    "episodes": "coalesce(r.input, r.output, '')",
    "memories": "r.key || ': ' || r.value",
    "facts": "r.subject || ' ' || r.predicate || ' ' || r.object",
    "blocks": "r.name || ': ' || coalesce(r.content, '')",
    "documents": "r.title",
}
"""What is shown of a record, as an example of what is held."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A record, as an example: its first ``SHOWN_CHARS`` characters."""

    collection: str
    id: str
    at: Instant
    text: str


@dataclass(slots=True)
class Profile:
    """What is held in a scope.

    ``made_from`` counts what was derived from it, ``rests_on`` what it was derived from: one step away, wherever it is.
    ``seen`` is the first and the last time of each collection. ``sessions`` and ``samples`` are the newest;
    ``session_count`` and ``counts`` say how many there are.
    """

    counts: dict[str, int] = field(default_factory=dict)
    seen: dict[str, tuple[Instant, Instant]] = field(default_factory=dict)
    made_from: dict[str, int] = field(default_factory=dict)
    rests_on: dict[str, int] = field(default_factory=dict)
    first_seen: Instant | None = None
    last_seen: Instant | None = None
    namespaces: list[str] = field(default_factory=list)
    session_count: int = 0
    sessions: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


def read_profile(tx: Tx, scope: Scope) -> Profile:
    """Read the profile of a scope (law 1: the same selector as the erasure); hidden records are not in it."""
    profile = Profile()
    selector = Selector.of(scope)
    values = {"org": scope.org, "targets": as_parameter(enumerate(scope.targets))}
    made: Counter[str] = Counter()
    rests: Counter[str] = Counter()
    seen: dict[str, Instant] = {}
    namespaces: set[str] = set()
    profile.counts = {kind.name: 0 for kind in RECORDS}
    for kind in selector.reached:
        count, first, last = tx.rows(_extent(kind, selector), **values)[0]
        profile.counts[kind.name] = count
        if not count:
            continue
        profile.seen[kind.name] = first, last
        made.update(dict(tx.rows(_made_from(kind, selector), **values)))
        rests.update(dict(tx.rows(_rests_on(kind, selector), **values)))
        if kind.name in _SAMPLED:
            newest = tx.rows(_newest(kind, selector), size=SHOWN, chars=SHOWN_CHARS, **values)
            profile.samples += [Sample(kind.name, *row) for row in newest]
        for namespace, session, latest in tx.rows(_places(kind, selector), **values):
            namespaces.add(namespace)
            seen[session] = max(latest, seen.get(session, latest))
    profile.made_from, profile.rests_on = dict(made), dict(rests)
    if profile.seen:
        profile.first_seen = min(first for first, _ in profile.seen.values())
        profile.last_seen = max(last for _, last in profile.seen.values())
    profile.namespaces = sorted(namespaces - {NOBODY})
    seen.pop(NOBODY, None)
    profile.session_count = len(seen)
    profile.sessions = sorted(seen, key=lambda session: (-seen[session], session))[:SHOWN_SESSIONS]
    return profile


def _from(kind: Collection, selector: Selector) -> str:
    return f"""FROM each_object(:targets) j CROSS JOIN {kind.name} r
        WHERE {selector.where(kind)} AND r.marked = 0"""


@lru_cache
def _extent(kind: Collection, selector: Selector) -> Statement:
    return Statement(
        f"{kind.name}.extent",
        f"SELECT count(*), min(r.{kind.time}), max(r.{kind.time}) {_from(kind, selector)}",
    )


@lru_cache
def _places(kind: Collection, selector: Selector) -> Statement:
    return Statement(
        f"{kind.name}.places",
        f"SELECT r.namespace, r.session_id, max(r.{kind.time}) {_from(kind, selector)} GROUP BY 1, 2",
    )


@lru_cache
def _made_from(kind: Collection, selector: Selector) -> Statement:
    return Statement(
        f"{kind.name}.made_from",
        f"""SELECT l.derived_collection, count(DISTINCT l.derived) FROM lineage l
        WHERE l.org = :org AND l.source IN (SELECT r.id {_from(kind, selector)}) AND {_served("derived")} GROUP BY 1""",
    )


@lru_cache
def _rests_on(kind: Collection, selector: Selector) -> Statement:
    return Statement(
        f"{kind.name}.rests_on",
        f"""SELECT l.source_collection, count(DISTINCT l.source) FROM lineage l
        WHERE l.org = :org AND l.derived IN (SELECT r.id {_from(kind, selector)}) AND {_served("source")} GROUP BY 1""",
    )


def _served(end: str) -> str:
    """Whether an end of an edge is served: a hidden record is in nobody's profile."""
    marked = " ".join(
        f"WHEN '{kind.name}' THEN (SELECT d.marked FROM {kind.name} d WHERE d.org = l.org AND d.id = l.{end})"
        for kind in RECORDS
    )
    return f"0 = CASE l.{end}_collection {marked} END"


@lru_cache
def _newest(kind: Collection, selector: Selector) -> Statement:
    return Statement(
        f"{kind.name}.newest",
        f"""SELECT r.id, r.{kind.time}, substr({_SAMPLED[kind.name]}, 1, CAST(:chars AS INTEGER))
        {_from(kind, selector)}
        ORDER BY r.{kind.time} DESC, r.id LIMIT :size""",
    )
