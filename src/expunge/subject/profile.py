"""The profile of a scope: counts by collection, first and last seen, sessions, and a few facts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from expunge.authority.port import Statement, Tx
from expunge.datamap import RECORDS, Collection, collection
from expunge.datamap.selector import Selector, as_parameter
from expunge.model.ids import NOBODY
from expunge.model.instant import Instant
from expunge.model.scope import Scope

SHOWN_FACTS = 5
SHOWN_SESSIONS = 10


@dataclass(slots=True)
class Profile:
    """What is held in a scope. ``made_from`` counts what was derived from it, one step away and wherever it is.

    ``sessions`` and ``facts`` are samples, newest first; ``session_count`` and ``counts`` say how many there are.
    """

    counts: dict[str, int] = field(default_factory=dict)
    made_from: dict[str, int] = field(default_factory=dict)
    first_seen: Instant | None = None
    last_seen: Instant | None = None
    namespaces: list[str] = field(default_factory=list)
    session_count: int = 0
    sessions: list[str] = field(default_factory=list)
    facts: list[tuple[str, str, str]] = field(default_factory=list)


def read_profile(tx: Tx, scope: Scope) -> Profile:
    """Read the profile of a scope (law 1: the same selector as the erasure); hidden records are not in it."""
    profile = Profile()
    selector = Selector.of(scope)
    values = {"org": scope.org, "targets": as_parameter(enumerate(scope.targets))}
    made: Counter[str] = Counter()
    seen: dict[str, Instant] = {}
    namespaces: set[str] = set()
    profile.counts = {kind.name: 0 for kind in RECORDS}
    for kind in selector.reached:
        count, first, last = tx.rows(_extent(kind, selector), **values)[0]
        profile.counts[kind.name] = count
        if not count:
            continue
        profile.first_seen = min(first, first if profile.first_seen is None else profile.first_seen)
        profile.last_seen = max(last, last if profile.last_seen is None else profile.last_seen)
        made.update(dict(tx.rows(_made_from(kind, selector), **values)))
        for namespace, session, latest in tx.rows(_places(kind, selector), **values):
            namespaces.add(namespace)
            seen[session] = max(latest, seen.get(session, latest))
    profile.made_from = dict(made)
    profile.namespaces = sorted(namespaces - {NOBODY})
    seen.pop(NOBODY, None)
    profile.session_count = len(seen)
    profile.sessions = sorted(seen, key=lambda session: (-seen[session], session))[:SHOWN_SESSIONS]
    facts = _newest_facts(collection("facts"), selector)
    if profile.counts["facts"]:
        profile.facts = [tuple(row) for row in tx.rows(facts, size=SHOWN_FACTS, **values)]
    return profile


def _from(kind: Collection, selector: Selector) -> str:
    return f"""FROM json_each(:targets) j CROSS JOIN {kind.name} r
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
        WHERE l.org = :org AND l.source IN (SELECT r.id {_from(kind, selector)}) AND {_SERVED} GROUP BY 1""",
    )


_MARKED = "WHEN '{0}' THEN (SELECT d.marked FROM {0} d WHERE d.org = l.org AND d.id = l.derived)"
_SERVED = f"0 = CASE l.derived_collection {' '.join(_MARKED.format(kind.name) for kind in RECORDS)} END"
"""Whether the derived end of an edge is served: a hidden record is in nobody's profile."""


@lru_cache
def _newest_facts(kind: Collection, selector: Selector) -> Statement:
    return Statement(
        "facts.newest",
        f"""SELECT r.subject, r.predicate, r.object {_from(kind, selector)}
        ORDER BY r.recorded_at DESC, r.id LIMIT :size""",
    )
