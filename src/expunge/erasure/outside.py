"""What lies outside the authority: bodies are removed before the rows that name them, listed again, and counted."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from expunge.authority.port import Tx
from expunge.census import bodies_of_live_rows
from expunge.erasure.request import Counts, Request
from expunge.erasure.statements import MARKED_BODIES, NAMED_BODIES
from expunge.errors import StoreFault
from expunge.stores import Asked, Found, Lifecycle, Permit
from expunge.system import System

T = TypeVar("T")

_REFS_A_CALL = 500
_AFTER_ALL = 1 << 62


def asked_of(system: System, request: Request) -> Asked:
    """What the stores are asked for on account of a request.

    While its fence is up no unit can write into the scope, so a body there is of one that was refused, or will be.
    """
    if request.scope is None:
        labels = tuple({part: frozenset({label}) for part, label in subject.items()} for subject in request.subjects)
    else:
        labels = tuple(
            system.keys.labels(target, request.key_id, known)
            for target, known in zip(request.scope.targets, request.subjects, strict=True)
        )
    return Asked(request.org, labels, request.scope, request.before, _bound(request))


def _bound(request: Request) -> int:
    """Below which ``seq`` something is older than the erasure."""
    return request.lowered_seq or _AFTER_ALL


@dataclass(frozen=True, slots=True)
class _Shelf:
    """One collection in one store, on account of a request."""

    system: System
    store: Lifecycle
    collection: str
    request: Request

    @property
    def name(self) -> str:
        return f"{self.store.name}.{self.collection}"

    async def found(self) -> list[Found]:
        """What the store lists in scope."""
        return await self._answer(self.store.find(self.collection, asked_of(self.system, self.request)))

    async def named(self) -> dict[str, int]:
        """The bodies that marked rows name, but for rows that are held, and the position of their subject."""
        named = await self.system.authority.read(lambda tx: ask_named(tx, self.request)())
        return named[self.collection]

    async def present(self, refs: Iterable[str]) -> set[str]:
        """Which of some bodies are there."""
        wanted = list(refs)
        return set(await self._answer(self.store.present(wanted))) if wanted else set()

    async def remove(self, refs: Sequence[str], permit: Permit) -> None:
        """Remove bodies, and take no refusal for an answer."""
        answer = await self._answer(self.store.remove(refs, permit))
        if answer.refused:
            reason = next(iter(answer.refused.values()))
            raise StoreFault(f"store {self.store.name} refused {len(answer.refused)} of {len(refs)}: {reason}")

    async def _answer(self, asked: Awaitable[T]) -> T:
        return await _within(self.system, self.store, asked)


Named = dict[str, dict[str, int]]
"""By collection, the bodies that marked rows name, and the position of their subject."""


def ask_named(tx: Tx, request: Request) -> Callable[[], Named]:
    """The bodies that marked rows name, but for rows that are held."""
    asked = {name: tx.ask(statement, request=request.rid) for name, statement in MARKED_BODIES.items()}
    return lambda: {name: dict(answer()) for name, answer in asked.items()}


def _shelves(system: System, request: Request) -> Iterator[_Shelf]:
    for store in system.stores:
        for collection in sorted(store.collections):
            yield _Shelf(system, store, collection, request)


async def holds_any(system: System, request: Request) -> bool:
    """Whether some store holds, or cannot say whether it holds, something in the scope of a request."""
    for shelf in _shelves(system, request):
        try:
            if not shelf.store.capabilities.find or await shelf.found():
                return True
        except StoreFault:
            return True
    return False


async def remove_outside(system: System, request: Request) -> tuple[dict[str, Counter[int]], list[dict[str, str]]]:
    """Remove from every store what is in scope and what the marked rows name, and make the bytes go.

    Returns how many bodies have gone by this request, by ``store.collection`` and position, and what is deferred.

    Raises:
        StoreFault: a store did not do it, or says that it did and still lists the bodies (law 16).

    """
    permit = Permit(request.id, request.attempt)
    removed = {shelf.name: await _Emptying(shelf, permit).run() for shelf in _shelves(system, request)}
    return removed, await reclaim_outside(system)


async def reclaim_outside(system: System) -> list[dict[str, str]]:
    """Make the bytes go in every store; what is deferred, with the store's own reason.

    Raises:
        StoreFault: a store did not answer.

    """
    deferred: list[dict[str, str]] = []
    for store in system.stores:
        answer = await _within(system, store, store.reclaim())
        if answer.deferred is not None:
            deferred.append({"store": store.name, "reason": answer.deferred, "until": answer.until})
    return deferred


class _Emptying:
    """A shelf, emptied of what its request covers."""

    def __init__(self, shelf: _Shelf, permit: Permit) -> None:
        self._shelf, self._permit = shelf, permit
        self._positions: dict[str, int] = {}

    async def run(self) -> Counter[int]:
        """Until nothing is listed any more; a round that removes nothing ends it as a fault.

        A removal is no commit, so of a run that was killed or failed nobody knows how far it came: of the bodies that
        marked rows name all are counted, and they are gone when this ends.
        """
        named = await self._shelf.named()
        self._positions |= named
        left = await self._shelf.present(named) | await self._listed()
        others: Counter[int] = Counter()
        while left:
            for pack in _packs(sorted(left)):
                await self._shelf.remove(pack, self._permit)
            still = await self._shelf.present(left) | await self._listed()
            gone = left - still
            if not gone:
                raise StoreFault(f"store {self._shelf.store.name} still holds {len(left)} of what it was to remove")
            others.update(self._positions[ref] for ref in gone if ref not in named)
            left = still
        before = self._shelf.request.removed.get(self._shelf.name, Counter())
        return (before | Counter(named.values())) + others

    async def _listed(self) -> set[str]:
        """The bodies in scope, but for those of rows that stay: held ones, and those that were restored."""
        shelf = self._shelf
        found = await shelf.found()
        mine = await shelf.system.authority.read(lambda tx: _without_kept(tx, shelf, found))
        for position, ref in mine:
            self._positions.setdefault(ref, position)
        return {ref for _, ref in mine}


def _packs(refs: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(refs), _REFS_A_CALL):
        yield refs[start : start + _REFS_A_CALL]


def _without_kept(tx: Tx, shelf: _Shelf, found: list[Found]) -> list[Found]:
    if not found:
        return []
    values = {"org": shelf.request.org, "refs": json.dumps([ref for _, ref in found]), "seq": _bound(shelf.request)}
    kept = {ref for (ref,) in tx.rows(NAMED_BODIES[shelf.collection], **values)}
    return [item for item in found if item.ref not in kept]


async def count_outside(system: System, request: Request, named: Named) -> Counts:
    """What the stores still hold, by subject: in scope by their own list, and of what the marked rows name (law 7).

    A store that cannot be fenced is counted again after its settle period.

    Raises:
        StoreFault: a store did not answer, so it is not counted.

    """
    counts: Counts = [{} for _ in request.subjects]
    for shelf in _shelves(system, request):
        left = await _count(shelf, named[shelf.collection])
        if shelf.store.capabilities.fence == "none":
            await asyncio.sleep(shelf.store.capabilities.settle_s)
            left |= await _count(shelf, named[shelf.collection])
        for position, count in enumerate(counts):
            count[shelf.name] = left[position]
    return counts


async def _count(shelf: _Shelf, named: Mapping[str, int]) -> Counter[int]:
    found = await shelf.found()
    kept: set[str] = set()
    if refs := [ref for _, ref in found]:
        kept = await shelf.system.authority.read_apart(
            lambda tx: bodies_of_live_rows(tx, shelf.collection, shelf.request.org, refs, _bound(shelf.request))
        )
    left = {ref: position for position, ref in found if ref not in kept}
    left |= {ref: named[ref] for ref in await shelf.present(named)}
    return Counter(left.values())


async def _within(system: System, store: Lifecycle, asked: Awaitable[T]) -> T:
    """The answer of a store, or a fault when it takes too long."""
    limit = asyncio.timeout(system.settings.store_timeout_s)
    try:
        async with limit:
            return await asked
    except TimeoutError:  # ours, or one of its own
        within = f"{system.settings.store_timeout_s:g} s" if limit.expired() else "time"
        raise StoreFault(f"store {store.name} did not answer in {within}") from None
