"""The plan hash: what an erasure is bound to do, without ids and counts (design 4)."""

from __future__ import annotations

from functools import cache

from expunge.datamap import COLLECTIONS
from expunge.model.canonical import canonical_plain, digest
from expunge.model.scope import Scope

RULES_VERSION = 1
"""Raised when the lineage rule or what an act does to a collection changes its meaning."""


def plan_hash(scope: Scope, subjects: list[dict[str, str]], key_id: str, *, purge: bool) -> str:
    """A hash over scope (by pseudonyms), options, collections and their acts, the rules' version and the cutoff."""
    plan = {
        "org": scope.org,
        "type": scope.type,
        "subjects": subjects,
        "key_id": key_id,
        "before": None if scope.before is None else str(scope.before),
        "purge": purge,
        "collections": _collections(),
        "rules": RULES_VERSION,
    }
    return digest(canonical_plain(plan))


@cache
def _collections() -> str:
    kinds = {kind.name: {"act": kind.act, "rule": kind.rule, "time": kind.time} for kind in COLLECTIONS}
    return digest(canonical_plain(kinds))
