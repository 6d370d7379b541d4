"""The saga: one erasure as checkpointed idempotent steps, from the intent to the receipt (design 4).

Every commit does one thing and writes the request row back under its attempt, so a killed runner leaves a state to go
on from, and a runner that was taken over cannot commit any more. A scope of up to one batch, of which nothing lies
outside the authority, takes open and fence in one commit, plan to purge in a second; then one more to forget after the
census, and one to sign after the bytes have been reclaimed, so that what a receipt says of them is known when it is
signed. An erasure that hides takes open to lower in one commit (``opening.py``) and ends with its census in a second;
at the end of its restore window it goes on with the stores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

from expunge.authority.port import Reclaimed, Tx
from expunge.datamap import RECORDS, Collection
from expunge.datamap.selector import count_scope
from expunge.erasure.ending import (
    Known,
    complete,
    end_counted,
    fail,
    follow_up,
    interrupted,
    note_reclaim,
    one_commit,
    refuse_plan,
)
from expunge.erasure.marking import (
    Mark,
    Numbered,
    may_revive,
    packs,
    page_of_marks,
    pages_of_marks,
    take_back,
    take_back_unfounded,
)
from expunge.erasure.naming import unname
from expunge.erasure.opening import audit_request
from expunge.erasure.outside import count_outside, holds_any, reclaim_outside, remove_outside
from expunge.erasure.planning import NotAtOnce, PlanDiffers, bind, lower, marking_of, note_marks, plan_to_hide
from expunge.erasure.purging import others_may_mark, purge_marked, purge_scope
from expunge.erasure.rebuild import queue_rebuilds
from expunge.erasure.recount import count_inside
from expunge.erasure.request import Counts, Request, Status, Step
from expunge.errors import EnvironmentFault, PlanChanged, StoreFault
from expunge.system import System

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Called with a step, how many of its parts are done, and how many it has."""


def silent(_step: str, _done: int, _of: int) -> None:
    """Progress that nobody watches."""


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

        Of a completed purge, what a killed writer has left in a store goes, and a deferred reclaim is tried again.

        Raises:
            RunnerSuperseded: another runner has taken the request over.
            ErasureInterrupted: the machine gave out; the request stays ``in_progress`` and can be resumed.

        """
        try:
            if self._request.status is Status.IN_PROGRESS:
                await self._run()
            elif self._request.status is Status.COMPLETED and self._request.purge:
                await self._settle()
        except EnvironmentFault as fault:
            raise interrupted(self._request, fault) from fault
        return self._request

    async def _run(self) -> None:
        done = self._request.steps_completed
        if Step.FORGET not in done:
            self._progress(Step.PLAN, 0, 1)
            if {Step.PLAN, Step.MARK, Step.LOWER}.intersection(done) or not await self._at_once():
                await self._in_batches()
            if self._request.status is Status.IN_PROGRESS:
                self._progress(Step.CENSUS, 0, 1)
                await self._count()
        if self._request.status is Status.IN_PROGRESS:
            self._progress(Step.RECLAIM, 0, 1)
            await self._finish(await self._system.authority.reclaim())
        if self._request.status is Status.COMPLETED:
            self._progress(Step.FINISH, 1, 1)

    async def _commit(self, work: Callable[[Tx, Request], T]) -> T:
        """One commit of this attempt: the request is worked on, and written back if it is still ours (``save``)."""
        self._request, result = await self._system.authority.run(one_commit(self._system, self._request, work))
        return result

    async def _at_once(self) -> bool:
        """Plan, mark, lower and purge (or hide) in one commit, unless that is more than one commit can take."""
        if self._request.purge and await holds_any(self._system, self._request):
            return False
        try:
            await self._commit(
                self._plan_to_purge if self._request.purge else partial(plan_to_hide, system=self._system)
            )
        except NotAtOnce:
            return False
        except PlanDiffers as fault:
            await self._refuse(str(fault))
        self._progress(Step.PURGE if self._request.purge else Step.MARK, 1, 1)
        return True

    def _plan_to_purge(self, tx: Tx, request: Request) -> None:
        """Where nobody asks for the ids, what is in scope is found by whose it is, and only what has ties is marked."""
        shared = others_may_mark(tx, request)
        marking = marking_of(tx, request, hiding=False)
        if request.before is not None or request.lowered_seq is not None:
            marking.hold_scope()
        ties, bodies = marking.ask_ties(), marking.ask_bodies()
        counts = count_scope(tx, request.clear_scope)
        if sum(count.total() for count in counts.values()) > self._size:
            raise NotAtOnce
        by_id = request.exact or shared() or may_revive(request.clear_scope, counts)
        marked = marking.mark_scope() if by_id else marking.mark_linked() if ties() else []
        marking.close_over(marked)
        if marked:
            bodies = marking.ask_bodies()
        if bodies() or any(counts[kind.name] for kind in RECORDS if kind.body_in):
            raise NotAtOnce
        planned: Counter[str] = Counter()
        if marked:  # without an edge nothing outside the scope is touched, and all versions of a key go together
            marking.settle()
            outcome = marking.outcome()
            request.effects = outcome.effects
            queue_rebuilds(tx, request, self._system)
            planned.update(outcome.totals if by_id else outcome.derived)
        request.done(Step.MARK)
        lower(tx, request)
        if not by_id:
            purge_scope(tx, request, counts, marked)
            planned.update({name: count.total() for name, count in request.removed.items()})
            request.effects["revived"] = marking.revived() if marked else Counter()  # what was not marked is gone now
        for page in list(pages_of_marks(tx, request.rid, self._size)) if marked else []:
            purge_marked(tx, request, page)
        bind(request, planned, marking, self._system)
        request.found = any(count.total() for count in request.removed.values())
        request.done(Step.STORES)  # before this commit they were asked, and held nothing
        unname(tx, request, self._system)
        request.done(Step.PURGE)

    async def _refuse(self, reason: str) -> NoReturn:
        """The plan has changed: what was marked is served again, and the fence comes down."""
        while await self._commit(partial(_take_back_page, size=self._size)):
            pass
        await self._commit(partial(refuse_plan, system=self._system, role=self._role, reason=reason))
        raise PlanChanged(f"nothing was done: {reason}", request_id=self._request.id)

    async def _in_batches(self) -> None:
        if Step.MARK not in self._request.steps_completed:
            await self._mark_in_batches()
        if Step.LOWER not in self._request.steps_completed:
            await self._commit(lower)
        if self._request.purge and Step.STORES not in self._request.steps_completed:
            await self._empty_stores()
        going_on = self._request.status is Status.IN_PROGRESS
        if self._request.purge and going_on and Step.PURGE not in self._request.steps_completed:
            await self._purge_in_batches()

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
        try:
            await self._commit(self._end_marking)
        except PlanDiffers as fault:
            await self._refuse(str(fault))

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
        marking = marking_of(tx, request, hiding=True)
        marking.hide_again()
        take_back_unfounded(tx, request)
        note_marks(request, marking, self._system)
        queue_rebuilds(tx, request, self._system)

    async def _empty_stores(self) -> None:
        """The bodies go before the rows that name them; a store that does not do it ends the run as failed."""
        self._progress(Step.STORES, 0, 1)
        try:
            went, deferred = await remove_outside(self._system, self._request)
        except StoreFault as fault:
            await self._fail(Step.STORES, str(fault))
            return

        def work(_tx: Tx, request: Request) -> None:
            request.current_step = Step.STORES
            request.removed |= {name: counts for name, counts in went.items() if counts}
            request.deferred = deferred
            request.done(Step.STORES)

        await self._commit(work)

    async def _fail(self, step: Step, reason: str) -> None:
        await self._commit(partial(fail, system=self._system, role=self._role, step=step, reason=reason))

    async def _purge_in_batches(self) -> None:
        after, done = ("", ""), 0
        while page := await self._commit(partial(_purge_page, after, self._size, system=self._system)):
            after, done = page[-1][:2], done + len(page)
            self._progress(Step.PURGE, done, done + self._size)

    async def _count(self) -> None:
        """Census on a connection of its own; then the scope is forgotten, or hidden, or it has failed (law 7)."""
        request = self._request
        counting = partial(count_inside, system=self._system, request=request)
        inside, named = await self._system.authority.read_apart(counting)
        outside: Counts = [{} for _ in request.subjects]
        if request.purge:
            try:
                outside = await count_outside(self._system, request, named)
            except StoreFault as fault:
                await self._fail(Step.CENSUS, f"not counted: {fault}")
                return
        counts = [mine | theirs for mine, theirs in zip(inside, outside, strict=True)]
        work = partial(end_counted, system=self._system, role=self._role, counts=counts, now=self._system.clock.now())
        self.receipts = await self._commit(work)

    async def _finish(self, answer: Reclaimed) -> None:
        def work(tx: Tx, request: Request) -> list[dict[str, Any]]:
            note_reclaim(request, self._system, answer)
            return complete(tx, request, self._system, role=self._role, known=Known.ask(tx, request))

        self.receipts = await self._commit(work)

    async def _sweep_outside(self) -> None:
        """What a writer that was killed had put into a store too late goes, and the audit says so (law 2)."""
        request = self._request
        went, _ = await remove_outside(self._system, request)
        if any(counts != request.removed.get(name, Counter()) for name, counts in went.items() if counts):
            now = self._system.clock.now()
            await self._system.authority.run(
                lambda tx: audit_request(tx, request, self._system, role=self._role, outcome="swept", now=now)
            )

    async def _settle(self) -> None:
        """Remove what came into a store too late; try a deferred reclaim again, and say so in a follow-up receipt."""
        if self._system.stores:
            await self._sweep_outside()
        if not self._request.deferred:
            return
        deferred = [*await reclaim_outside(self._system), *await self._still_deferred()]
        if deferred == self._request.deferred:
            return
        unit = partial(follow_up, request=self._request, system=self._system, deferred=deferred)
        self._request = await self._system.authority.run(unit)
        self.receipts = None

    async def _still_deferred(self) -> list[dict[str, str]]:
        """What waited in the authority, if it still does: with the reason that was signed for last."""
        name = self._system.authority.name
        waited = [item for item in self._request.deferred if item["store"] == name]
        return waited if waited and (await self._system.authority.reclaim()).deferred is not None else []


def _take_back_page(tx: Tx, request: Request, *, size: int) -> bool:
    return take_back(tx, request, size)


def _mark_pack(kind: Collection, pack: Sequence[Numbered], tx: Tx, request: Request) -> None:
    request.current_step = Step.MARK
    marking_of(tx, request, hiding=True).mark_targets(kind, pack)


def _mark_page(kind: Collection, target: Numbered, after: int, tx: Tx, request: Request, *, size: int) -> int:
    request.current_step = Step.MARK
    return marking_of(tx, request, hiding=True).mark_page(kind, target, after, size)


def _mark_derived(ids: Sequence[str], tx: Tx, request: Request) -> list[str]:
    return [mark.id for mark in marking_of(tx, request, hiding=True).mark_derived(ids)]


def _purge_page(after: tuple[str, str], size: int, tx: Tx, request: Request, *, system: System) -> list[Mark]:
    request.current_step = Step.PURGE
    page = page_of_marks(tx, request.rid, size, after)
    purge_marked(tx, request, page)
    if len(page) < size:
        unname(tx, request, system)
        request.done(Step.PURGE)
    return page
