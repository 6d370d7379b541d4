"""The saga: one erasure as checkpointed idempotent steps, from the intent to the receipt (design 4).

Every commit does one thing and writes the request row back under its attempt, so a killed runner leaves a state to go
on from, and a runner that was taken over cannot commit any more. A scope of up to one batch
takes open and fence in one commit, plan to purge in a second; then one more to forget after the census, and one to
sign after the bytes have been reclaimed, so that what a receipt says of them is known when it is signed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from expunge.authority.port import Tx
from expunge.census import Question, count_left
from expunge.datamap import RECORDS, Collection
from expunge.datamap.selector import count_scope
from expunge.erasure.ending import complete, fail, follow_up, forget
from expunge.erasure.fence import lower_fence
from expunge.erasure.marking import Mark, Marking, Numbered, packs, page_of_marks, pages_of_marks
from expunge.erasure.plan import plan_hash
from expunge.erasure.purging import purge_marked, purge_scope
from expunge.erasure.request import Request, Status, Step, save
from expunge.errors import EnvironmentFault, ErasureInterrupted
from expunge.system import System

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Called with a step, how many of its parts are done, and how many it has."""


def silent(_step: str, _done: int, _of: int) -> None:
    """Progress that nobody watches."""


class _MoreThanOneBatch(Exception):
    """The scope does not fit into one commit."""


class Saga:
    """One runner of one attempt."""

    def __init__(self, system: System, request: Request, *, role: str, progress: Progress = silent) -> None:
        self._system, self._role, self._progress = system, role, progress
        self._request = request
        self._size = system.settings.batch_rows
        self.receipts: list[dict[str, Any]] | None = None
        """The receipts, when this run has signed them."""

    async def run(self) -> Request:
        """Go on from the last checkpoint to the end: ``completed``, or ``failed`` with the residue named (law 7).

        A completed request whose reclaim was deferred has it tried again.

        Raises:
            RunnerSuperseded: another runner has taken the request over.
            ErasureInterrupted: the machine gave out; the request stays ``in_progress`` and can be resumed.

        """
        try:
            if self._request.status is Status.IN_PROGRESS:
                await self._run()
            elif self._request.status is Status.COMPLETED and self._request.deferred:
                await self._settle()
        except EnvironmentFault as fault:
            request = self._request
            raise ErasureInterrupted(
                f"erasure {request.id} is still {request.status}: {fault.message}",
                hint=f"{fault.next_step or 'mend it'}, then: expunge resume {request.id}",
                request_id=request.id,
            ) from fault
        return self._request

    async def _run(self) -> None:
        done = self._request.steps_completed
        if Step.FORGET not in done:
            self._progress(Step.PLAN, 0, 1)
            if {Step.PLAN, Step.MARK, Step.LOWER}.intersection(done) or not await self._at_once():
                await self._in_batches()
            self._progress(Step.CENSUS, 0, 1)
            await self._count()
        if self._request.status is Status.IN_PROGRESS:
            self._progress(Step.RECLAIM, 0, 1)
            await self._finish(await self._reclaim())
            self._progress(Step.FINISH, 1, 1)

    async def _commit(self, work: Callable[[Tx, Request], T]) -> T:
        """One commit of this attempt: the request is worked on, and written back if it is still ours (``save``)."""

        def unit(tx: Tx) -> tuple[Request, T]:
            request = self._request.copy()
            result = work(tx, request)
            save(tx, request, was=self._request, now=self._system.clock.now())
            return request, result

        self._request, result = await self._system.authority.run(unit)
        return result

    async def _at_once(self) -> bool:
        """Plan, mark, lower and purge in one commit, unless the scope selects more than one batch."""
        try:
            await self._commit(self._plan_to_purge)
        except _MoreThanOneBatch:
            return False
        self._progress(Step.PURGE, 1, 1)
        return True

    def _plan_to_purge(self, tx: Tx, request: Request) -> None:
        counts = count_scope(tx, request.clear_scope)
        if sum(count.total() for count in counts.values()) > self._size:
            raise _MoreThanOneBatch
        self._plan(tx, request)
        marking = _marking(tx, request, hiding=False)
        linked = marking.mark_linked()
        frontier = linked
        while frontier:
            frontier = marking.mark_derived([mark.id for mark in frontier])
        if linked:  # without an edge nothing outside the scope is touched, and all versions of a key go together
            marking.settle()
            request.effects = marking.outcome()[1]
        request.done(Step.MARK)
        self._lower(tx, request)
        purge_scope(tx, request, counts, linked)
        for page in list(pages_of_marks(tx, request.rid, self._size)) if linked else []:
            purge_marked(tx, request, page)
        request.found = any(count.total() for count in request.removed.values())
        request.done(Step.PURGE)

    async def _in_batches(self) -> None:
        if Step.PLAN not in self._request.steps_completed:
            await self._commit(self._plan)
        if Step.MARK not in self._request.steps_completed:
            await self._mark_in_batches()
        if Step.LOWER not in self._request.steps_completed:
            await self._commit(self._lower)
        if Step.PURGE not in self._request.steps_completed:
            await self._purge_in_batches()

    def _plan(self, _tx: Tx, request: Request) -> None:
        request.current_step = Step.PLAN
        request.plan_hash = plan_hash(request.clear_scope, request.subjects, request.key_id, purge=request.purge)
        request.done(Step.PLAN)

    async def _mark_in_batches(self) -> None:
        counts = await self._system.authority.read(lambda tx: count_scope(tx, self._request.clear_scope))
        targets = self._request.clear_scope.targets
        total, marked = sum(count.total() for count in counts.values()), 0
        for kind in RECORDS:
            for pack in packs(counts[kind.name], targets, self._size):
                if sum(counts[kind.name][position] for position, _ in pack) <= self._size:
                    await self._commit(partial(_mark_pack, kind, pack))
                else:
                    await self._mark_large_target(kind, pack[0])
                marked += sum(counts[kind.name][position] for position, _ in pack)
                self._progress(Step.MARK, marked, total)
        await self._close()
        await self._commit(self._end_marking)

    async def _mark_large_target(self, kind: Collection, target: Numbered) -> None:
        after = await self._commit(partial(_mark_page, kind, target, 0, size=self._size))
        while after:
            after = await self._commit(partial(_mark_page, kind, target, after, size=self._size))

    async def _close(self) -> None:
        """The closure: over all that is marked, then over what that has marked, until nothing is new (law 5)."""
        frontier = await self._system.authority.read(
            lambda tx: [mark.id for page in pages_of_marks(tx, self._request.rid, self._size) for mark in page]
        )
        while frontier:
            found: list[str] = []
            for start in range(0, len(frontier), self._size):
                found += await self._commit(partial(_mark_derived, frontier[start : start + self._size]))
            frontier = found

    def _end_marking(self, tx: Tx, request: Request) -> None:
        request.current_step = Step.MARK
        _marking(tx, request, hiding=False).settle()
        if not request.found:  # a resume finds only what is left: the first answer stands
            counts, request.effects = _marking(tx, request, hiding=False).outcome()
            request.found = any(any(count.values()) for count in counts.values())
        request.done(Step.MARK)

    def _lower(self, tx: Tx, request: Request) -> None:
        request.current_step = Step.LOWER
        lower_fence(tx, request)
        request.done(Step.LOWER)

    async def _purge_in_batches(self) -> None:
        after, done = ("", ""), 0
        while page := await self._commit(partial(_purge_page, after, self._size)):
            after, done = page[-1][:2], done + len(page)
            self._progress(Step.PURGE, done, done + self._size)

    async def _reclaim(self) -> list[dict[str, str]]:
        """Make the bytes go; what is deferred, by store, with the store's own reason."""
        authority = self._system.authority
        answer = await authority.reclaim()
        if answer.deferred is None:
            return []
        return [{"store": authority.name, "reason": answer.deferred, "until": "unknown"}]

    async def _count(self) -> None:
        """Census on a connection of its own; then the scope is forgotten, or the request failed (law 7)."""
        request = self._request
        question = Question(request.org, request.rid, request.lowered_seq or 0)
        targets = request.clear_scope.targets
        counts = await self._system.authority.read_apart(lambda tx: count_left(tx, question, targets))
        verified_at = self._system.clock.now()

        def work(tx: Tx, request: Request) -> None:
            request.census, request.verified_at = counts, verified_at
            request.done(Step.CENSUS)
            if request.residue or request.uncounted:
                fail(tx, request, self._system, role=self._role)
            else:
                forget(tx, request)

        await self._commit(work)

    async def _finish(self, deferred: list[dict[str, str]]) -> None:
        def work(tx: Tx, request: Request) -> list[dict[str, Any]]:
            request.deferred = deferred
            request.done(Step.RECLAIM)
            return complete(tx, request, self._system, role=self._role)

        self.receipts = await self._commit(work)

    async def _settle(self) -> None:
        """Try a deferred reclaim again; when the answer is another one, a follow-up receipt says so."""
        deferred = await self._reclaim()
        if deferred == self._request.deferred:
            return
        unit = partial(follow_up, request=self._request, system=self._system, deferred=deferred)
        self._request = await self._system.authority.run(unit)
        self.receipts = None


def _marking(tx: Tx, request: Request, *, hiding: bool) -> Marking:
    return Marking(tx, request.rid, request.clear_scope, request.fence_seq or 0, hiding=hiding)


def _mark_pack(kind: Collection, pack: Sequence[Numbered], tx: Tx, request: Request) -> None:
    request.current_step = Step.MARK
    _marking(tx, request, hiding=True).mark_targets(kind, pack)


def _mark_page(kind: Collection, target: Numbered, after: int, tx: Tx, request: Request, *, size: int) -> int:
    request.current_step = Step.MARK
    return _marking(tx, request, hiding=True).mark_page(kind, target, after, size)


def _mark_derived(ids: Sequence[str], tx: Tx, request: Request) -> list[str]:
    return [mark.id for mark in _marking(tx, request, hiding=True).mark_derived(ids)]


def _purge_page(after: tuple[str, str], size: int, tx: Tx, request: Request) -> list[Mark]:
    request.current_step = Step.PURGE
    page = page_of_marks(tx, request.rid, size, after)
    purge_marked(tx, request, page)
    if len(page) < size:
        request.done(Step.PURGE)
    return page
