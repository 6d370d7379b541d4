"""Restoring: second thoughts about an erasure that hid its records, for 14 days (seed page Loom, "Tombstone or purge").

Records come back in one commit. What was in scope counts as a reversal; what had been made from it comes back with it
when nothing that it rests on stays hidden, and does not count. What another erasure hides as well stays hidden by that
one; it is as written now all the same, so that the end of the window of this one finds it newer than itself.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from expunge import audit
from expunge.authority.orgs import seq_of
from expunge.authority.port import GuardKey, Tx
from expunge.datamap import RECORDS, collection
from expunge.erasure.marking import Mark, pages_of_marks, serve_again
from expunge.erasure.request import Request, Status, find_request, save
from expunge.erasure.statements import (
    DIRECT_MARKS,
    FENCE_STANDS,
    FREED,
    HAS_TIES,
    HIDDEN_PARENT,
    MARKED_CHILDREN,
    MARKS_NAMED,
    RESTORABLE_FROM,
    RESTS_ON_HIDDEN,
    identities,
)
from expunge.errors import InputError, NotRestorable
from expunge.model.ids import shown
from expunge.model.instant import Instant, to_text
from expunge.system import System

OPERATION = "erasure.restore"
_PAGE = 5000
Name = tuple[str, str]
"""The collection of a record, and its id."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What came back by collection, how many of them are reversals, and how many records stay hidden."""

    request: Request
    counts: dict[str, int]
    reversals: int
    still_hidden: int


async def restore(system: System, org: str, request_id: str, keys: Sequence[str], *, actor: str, role: str) -> Restored:
    """Serve what an erasure hid again: all of it, or what ``keys`` name and what comes back with that.

    A key is the id of a record, the key of a memory or the name of a block. A restored record is as written now.

    Raises:
        UnknownRequest: the org has no such request.
        NotRestorable: it does not hide anything, or its restore window has ended.
        InputError: it has hidden nothing under a key, or what that was made from stays hidden.
        ErasureInProgress: another erasure of the same scope is running.

    """

    def unit(tx: Tx) -> Restored:
        system.check_keys(tx)
        tx.lead(org)
        now = system.clock.now()
        request = find_request(tx, org, request_id, now)
        _check_window(request, now)
        was = request.copy()
        restored = _Restoring(tx, system, request).run(keys)
        save(tx, request, was=was, now=now)
        audit.record(
            tx,
            system.keys,
            audit.Entry(
                org=org,
                at=now,
                actor=actor,
                role=role,
                operation=OPERATION,
                outcome="done",
                request_id=request.id,
                subjects=request.subjects,
                subjects_key=request.key_id,
                detail={"restored": restored.counts, "reversals": restored.reversals},
            ),
        )
        return restored

    return await system.authority.run(unit)


def _check_window(request: Request, now: Instant) -> None:
    if not request.hides or request.restore_until is None:
        how = f"is {request.status}"
        if request.purge:
            how = "has purged its records" if request.status is Status.COMPLETED else "is purging its records"
        raise NotRestorable(f"erasure {request.id} {how}, so nothing can be restored from it")
    if now >= request.restore_until:
        raise NotRestorable(f"the restore window of erasure {request.id} ended at {to_text(request.restore_until)}")


class _Restoring:
    """One restore in its transaction."""

    def __init__(self, tx: Tx, system: System, request: Request) -> None:
        self._tx, self._system, self._request = tx, system, request
        self._seq = seq_of(tx, request.org)
        self._values = {"org": request.org, "request": request.rid}
        self._ties = bool(tx.rows(HAS_TIES)[0][0])

    def run(self, keys: Sequence[str]) -> Restored:
        rid = self._request.rid
        marks = self._marks(rid)
        direct = {(row[0], row[1]) for row in self._tx.rows(DIRECT_MARKS, request=rid)}
        named = self._named(keys) if keys else direct
        chosen = [mark for name, mark in marks.items() if name in named]
        served = self._give_up(rid, chosen, marks)
        if keys:
            self._refuse_unfounded(chosen)
        served += self._free(served)
        back = [marks[name] for mark in served if (name := (mark.collection, mark.id)) in marks]
        reversals = Counter(mark.position for mark in back if (mark.collection, mark.id) in direct)
        self._request.reversals.update(reversals)
        counts = Counter(mark.collection for mark in served)
        return Restored(self._request, dict(counts), reversals.total(), len(marks) - len(back))

    def _marks(self, request: int) -> dict[Name, Mark]:
        pages = pages_of_marks(self._tx, request, _PAGE)
        return {(mark.collection, mark.id): mark for page in pages for mark in page}

    def _named(self, keys: Sequence[str]) -> set[Name]:
        """The marks that each key names.

        Raises:
            InputError: a key names none.

        """
        found: dict[str, set[Name]] = defaultdict(set)
        listed = json.dumps(list(dict.fromkeys(keys)), ensure_ascii=False)
        for key, *name in self._tx.rows(MARKS_NAMED, keys=listed, **self._values):
            found[key].add((name[0], name[1]))
        if unknown := next((key for key in keys if key not in found), None):
            raise InputError(
                f"erasure {self._request.id} hides nothing under {shown(unknown)}",
                hint="name the id of a record, the key of a memory or the name of a block; or no key, for all",
            )
        return set().union(*found.values())

    def _give_up(self, request: int, marks: Sequence[Mark], all_marks: Mapping[Name, Mark]) -> list[Mark]:
        """Let a request hide these records no more, nor what it hides for them; those that are served again by it.

        What another hides stays hidden. Nothing is served under a fence (law 4).
        """
        served: list[Mark] = []
        while marks:
            self._guard(marks)
            served += serve_again(self._tx, request, marks, self._seq)
            tied = self._with(request, marks) if self._ties else ()
            marks = [all_marks[name] for name in tied if name in all_marks]
        return served

    def _free(self, served: Sequence[Mark]) -> list[Mark]:
        """What others hide because its last source was hidden, and a source of it is served again (law 6)."""
        back: list[Mark] = []
        while served and self._ties:
            freed: dict[int, list[Mark]] = defaultdict(list)
            ids = json.dumps([mark.id for mark in served], ensure_ascii=False)
            for request, *mark in self._tx.rows(FREED, org=self._request.org, ids=ids):
                freed[request].append(Mark(*mark))
            served = []
            for request, marks in freed.items():
                served += self._give_up(request, marks, self._marks(request))
            back += served
        return back

    def _guard(self, marks: Iterable[Mark]) -> None:
        if not self._tx.rows(FENCE_STANDS, org=self._request.org)[0][0]:
            return  # one that came down does not refuse what begins now
        rids: dict[str, list[int]] = defaultdict(list)
        for mark in marks:
            rids[mark.collection].append(mark.rid)
        keys = [
            GuardKey(self._request.org, self._system.keys.matches(self._request.org, tuple(parts)), dated)
            for name, numbers in rids.items()
            for *parts, dated in self._tx.rows(identities(collection(name)), rids=json.dumps(numbers))
        ]
        self._tx.guard(keys, self._seq)

    def _refuse_unfounded(self, chosen: Sequence[Mark]) -> None:
        """What rests on records that stay hidden, or belongs to one, does not come back without them (law 5)."""
        for mark in chosen:
            values = {"org": self._request.org, "collection": mark.collection, "id": mark.id}
            of_hidden = HIDDEN_PARENT.get(mark.collection)
            if self._tx.rows(RESTS_ON_HIDDEN, **values) or (of_hidden and self._tx.rows(of_hidden, rid=mark.rid)):
                raise InputError(
                    f"{shown(mark.id)} was made from records that stay hidden, or belongs to one",
                    hint="restore what it was made from, and it comes back by itself; or name both",
                )

    def _with(self, request: int, marks: Sequence[Mark]) -> list[Name]:
        """What a request hides for these records alone: what belongs to them, and what had been made from them."""
        values = {"org": self._request.org, "request": request}
        values["ids"] = json.dumps([mark.id for mark in marks], ensure_ascii=False)
        found = {(name, record_id) for name, record_id in self._tx.rows(RESTORABLE_FROM, **values)}
        for kind in RECORDS:
            if kind.parent is not None:
                children = self._tx.rows(MARKED_CHILDREN[kind.name], **values)
                found |= {(kind.name, record_id) for (record_id,) in children}
        return sorted(found)
