"""The preview: the marking of the real erasure, carried out and taken back, so that it cannot differ from it."""

from __future__ import annotations

from dataclasses import dataclass

from expunge.authority.port import Tx
from expunge.datamap import COLLECTIONS, Act
from expunge.erasure.marking import Marking
from expunge.erasure.plan import plan_hash
from expunge.model.scope import Scope
from expunge.system import System

_REHEARSAL = 0
_AFTER_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Preview:
    """What would go by collection (``direct`` and ``derived``), what would happen to others, what stays and why."""

    plan_hash: str
    found: bool
    goes: dict[str, dict[str, int]]
    effects: dict[str, int]
    stays: dict[str, str]


async def preview(system: System, scope: Scope, *, purge: bool) -> Preview:
    """Say what an erasure of this scope would do, and do nothing."""
    subjects = [system.keys.pseudonyms(target) for target in scope.targets]

    def unit(tx: Tx) -> Preview:
        marking = Marking(tx, _REHEARSAL, scope, _AFTER_ALL, hiding=False)
        frontier = marking.mark_scope()
        while frontier:
            frontier = marking.mark_derived([mark.id for mark in frontier])
        goes, effects = marking.outcome()
        return Preview(
            plan_hash=plan_hash(scope, subjects, system.keys.current.id, purge=purge),
            found=any(any(counts.values()) for counts in goes.values()),
            goes=goes,
            effects={name: counts.total() for name, counts in effects.items()},
            stays={kind.name: kind.keep for kind in COLLECTIONS if kind.act is Act.KEEP},
        )

    return await system.authority.rehearse(unit)
