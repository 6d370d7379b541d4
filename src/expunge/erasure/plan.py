"""The plan hash: what an erasure is bound to do, without ids unless it is asked to be exact (design 4).

A plan hash is ``sha256:``, 64 hexadecimal digits, and after a colon how many records go of each collection, in the
order of the data map and with dots between. The digits bind scope, options, collections and rules, and must be the
same; the numbers may differ by a fifth, and by ten at least: a store goes on living between preview and erasure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from expunge.datamap import COLLECTIONS, RECORDS
from expunge.errors import InputError
from expunge.model.canonical import canonical_plain, digest
from expunge.model.ids import shown
from expunge.model.instant import Instant

RULES_VERSION = 2
"""Raised when the lineage rule or what an act does to a collection changes its meaning."""
TOLERANCE = 0.2
"""The share by which the count of a collection may have changed since the plan was shown."""
TOLERATED_ROWS = 10
"""How many records it may always have changed by."""

_FORM = re.compile(r"(sha256:[0-9a-f]{64}):([0-9]{1,15}(?:\.[0-9]{1,15})*)")


@dataclass(frozen=True, slots=True)
class Binding:
    """What a plan binds. ``ids`` is a keyed digest of the ids that go, in an exact plan (law 14)."""

    org: str
    subjects: list[dict[str, str]]
    key_id: str
    before: Instant | None
    purge: bool
    external: bool
    ids: str | None = None


def plan_hash(binding: Binding, counts: Mapping[str, int]) -> str:
    """The hash of a plan that removes, or hides, so many records by collection."""
    plan = {
        "org": binding.org,
        "subjects": sorted(binding.subjects, key=lambda subject: sorted(subject.items())),
        "key_id": binding.key_id,
        "before": None if binding.before is None else str(binding.before),
        "purge": binding.purge,
        "external": binding.external,
        "ids": binding.ids,
        "collections": _collections(),
        "rules": RULES_VERSION,
    }
    return f"{digest(canonical_plain(plan))}:{'.'.join(str(counts.get(kind.name, 0)) for kind in RECORDS)}"


def check_form(bound: str) -> str:
    """Return a plan hash that somebody gave, unchanged.

    Raises:
        InputError: it is none.

    """
    form = _FORM.fullmatch(bound)
    if form is None or form[2].count(".") != len(RECORDS) - 1:
        raise InputError(f"{shown(bound)} is not a plan hash", hint="take it whole from the preview: --dry-run")
    return bound


def difference(bound: str, found: str) -> str | None:
    """Why a plan is not the one that was bound, or ``None`` when it is."""
    (wanted, planned), (digits, counted) = (text.rsplit(":", 1) for text in (bound, found))
    if wanted != digits:
        return "the plan hash was made for another scope, mode, key or set of rules, or names other records"
    for kind, before, now in zip(RECORDS, planned.split("."), counted.split("."), strict=True):
        if abs(int(now) - int(before)) > max(TOLERATED_ROWS, TOLERANCE * int(before)):
            return f"{before} {kind.name} were to go, and now it is {now}"
    return None


@cache
def _collections() -> str:
    kinds = {
        kind.name: {"act": kind.act, "in_session": kind.session_act, "rule": kind.rule, "time": kind.time}
        for kind in COLLECTIONS
    }
    return digest(canonical_plain(kinds))
