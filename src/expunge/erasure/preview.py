"""The preview: the marking of the real erasure, carried out and taken back, so that it cannot differ from it."""

from __future__ import annotations

from dataclasses import dataclass

from expunge.authority.port import Tx
from expunge.datamap import COLLECTIONS, RECORDS, Act
from expunge.datamap.selector import Selector, as_parameter, count_scope
from expunge.erasure.marking import Marking, Outcome
from expunge.erasure.order import Order
from expunge.erasure.plan import Binding, difference, plan_hash
from expunge.erasure.request import next_rid
from expunge.erasure.statements import count_by_identity
from expunge.errors import PlanChanged
from expunge.system import System

_AFTER_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Staying:
    """What stays in a collection, and why; ``count`` is of records, and ``None`` where the collection holds none."""

    collection: str
    count: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What would go by collection (``direct`` and ``derived``), what would happen to others, what stays and why."""

    plan_hash: str
    found: bool
    subjects_found: int
    goes: dict[str, dict[str, int]]
    effects: dict[str, int]
    stays: list[Staying]


async def preview(system: System, order: Order) -> Preview:
    """Say what an erasure would do, and do nothing.

    Raises:
        InvalidScope: ``before`` lies in the future.
        PlanChanged: the order is bound to another plan.

    """
    order.check_dates(system.clock.now())
    found = await system.authority.rehearse(lambda tx: _rehearse(tx, system, order))
    reason = None if order.plan_hash is None else difference(order.plan_hash, found.plan_hash)
    if reason is not None:
        raise PlanChanged(f"nothing was done: {reason}")
    return found


def _rehearse(tx: Tx, system: System, order: Order) -> Preview:
    scope = order.scope
    number = next_rid(tx)  # no other has it: rehearsals of one scope do not wait for each other
    marking = Marking(tx, number, scope, _AFTER_ALL, hiding=False)
    marking.close_over(marking.mark_scope())
    outcome = marking.outcome()
    key = system.keys.current
    binding = Binding(
        org=scope.org,
        subjects=[system.keys.pseudonyms(target) for target in scope.targets],
        key_id=key.id,
        before=scope.before,
        purge=order.purge,
        external=order.external,
        ids=key.pseudonym(scope.org, "plan", marking.digest()) if order.exact else None,
    )
    held = marking.held(outcome)
    goes = {name: counts | {"derived": counts["derived"] - held[name][0]} for name, counts in outcome.counts.items()}
    effects = {name: counts.total() for name, counts in outcome.effects.items()}
    return Preview(
        plan_hash=plan_hash(binding, outcome.totals),
        found=any(outcome.totals.values()),
        subjects_found=len({at for counts in outcome.tally.values() for at, count in counts.items() if count}),
        goes=goes,
        effects=effects | {"derived": sum(counts["derived"] for counts in goes.values())},
        stays=[*_held(tx, order, outcome, held), *_outliving(tx, order, number), *_control()],
    )


def _held(tx: Tx, order: Order, outcome: Outcome, derived: dict[str, tuple[int, int]]) -> list[Staying]:
    """What the scope selects, or its closure finds, and a hold keeps."""
    selected = {name: counts.total() for name, counts in count_scope(tx, order.scope).items()}
    kept = {name: count - outcome.counts[name]["direct"] + derived[name][1] for name, count in selected.items()}
    return [Staying(name, count, "a hold keeps it") for name, count in kept.items() if count]


def _outliving(tx: Tx, order: Order, request: int) -> list[Staying]:
    """What belongs to a session and outlives it."""
    selector = Selector.of(order.scope)
    values = {"org": order.scope.org, "targets": as_parameter(enumerate(order.scope.targets))}
    found: list[Staying] = []
    for kind in RECORDS:
        if not kind.reached_by(selector.parts):
            there = tx.rows(count_by_identity(kind, selector), request=request, **values)[0][0]
            if there:
                found.append(Staying(kind.name, there, kind.session_keep))
    return found


def _control() -> list[Staying]:
    return [Staying(kind.name, None, kind.keep) for kind in COLLECTIONS if kind.act is Act.KEEP]
