"""Restoring: second thoughts about an erasure that hid its records, for 14 days (seed page Loom, "Tombstone or purge").

Records come back in one commit. What was in scope counts as a reversal; what had been made from it comes back with it
when nothing that it rests on stays hidden, and does not count.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from expunge import audit
from expunge.authority.orgs import seq_of
from expunge.authority.port import GuardKey, Tx
from expunge.datamap import RECORDS, collection
from expunge.erasure.marking import Mark, pages_of_marks, serve_again
from expunge.erasure.request import Request, find_request, save
from expunge.erasure.statements import (
    DIRECT_MARKS,
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
        now = system.clock.now()
        request = find_request(tx, org, request_id, now)
        _check_window(request, now)
        was = request.copy()
        restored = _Restoring(tx, system, request).run(keys)
        save(tx, request, was=was, now=now)
        audit.record(
            tx,
            audit.Entry(
                org=org,
                at=now,
                actor=actor,
                role=role,
                operation=OPERATION,
                outcome="done",
                request_id=request.id,
                subjects=request.subjects,
                detail={"restored": restored.counts, "reversals": restored.reversals},
            ),
        )
        return restored

    return await system.authority.run(unit)


def _check_window(request: Request, now: Instant) -> None:
    if not request.hides or request.restore_until is None:
        how = "has purged its records" if request.purge else f"is {request.status}"
        raise NotRestorable(f"erasure {request.id} {how}, so nothing can be restored from it")
    if now >= request.restore_until:
        raise NotRestorable(f"the restore window of erasure {request.id} ended at {to_text(request.restore_until)}")


class _Restoring:
    """One restore in its transaction."""

    def __init__(self, tx: Tx, system: System, request: Request) -> None:
        self._tx, self._system, self._request = tx, system, request
        self._seq = seq_of(tx, request.org)
        self._counts: Counter[str] = Counter()
        self._values = {"org": request.org, "request": request.rid}

    def run(self, keys: Sequence[str]) -> Restored:
        marks = [mark for page in pages_of_marks(self._tx, self._request.rid, _PAGE) for mark in page]
        direct = {(row[0], row[1]) for row in self._tx.rows(DIRECT_MARKS, request=self._request.rid)}
        named = self._named(keys) if keys else direct
        chosen = [mark for mark in marks if (mark.collection, mark.id) in named]
        by_name = {(mark.collection, mark.id): mark for mark in marks}
        back: list[Mark] = []
        frontier = self._serve(chosen)
        self._refuse_unfounded([mark for mark in chosen if (mark.collection, mark.id) not in direct])
        while frontier:
            back += frontier
            frontier = self._serve([by_name[name] for name in self._with(frontier) if name in by_name])
        reversals = Counter(mark.position for mark in back if (mark.collection, mark.id) in direct)
        self._request.reversals.update(reversals)
        for mark in back:
            self._request.hidden[mark.collection][mark.position] -= 1
        return Restored(self._request, dict(self._counts), reversals.total(), len(marks) - len(back))

    def _named(self, keys: Sequence[str]) -> set[tuple[str, str]]:
        """The marks that each key names.

        Raises:
            InputError: a key names none.

        """
        named: set[tuple[str, str]] = set()
        for key in dict.fromkeys(keys):
            found = {(name, record_id) for name, record_id in self._tx.rows(MARKS_NAMED, key=key, **self._values)}
            if not found:
                raise InputError(
                    f"erasure {self._request.id} hides nothing under {shown(key)}",
                    hint="name the id of a record, the key of a memory or the name of a block; or no key, for all",
                )
            named |= found
        return named

    def _serve(self, marks: Sequence[Mark]) -> list[Mark]:
        """Serve records again, those that no other hides, unless a fence stands over them (law 4)."""
        self._guard(marks)
        served = serve_again(self._tx, self._request, marks, self._seq)
        self._counts.update(mark.collection for mark in served)
        return served

    def _guard(self, marks: Iterable[Mark]) -> None:
        rids: dict[str, list[int]] = defaultdict(list)
        for mark in marks:
            rids[mark.collection].append(mark.rid)
        keys = [
            GuardKey(self._request.org, self._system.keys.matches(self._request.org, tuple(parts)), dated)
            for name, numbers in rids.items()
            for *parts, dated in self._tx.rows(identities(collection(name)), rids=json.dumps(numbers))
        ]
        self._tx.guard(keys, self._seq)

    def _refuse_unfounded(self, derived: Sequence[Mark]) -> None:
        """What was made from records that stay hidden does not come back without them (law 5)."""
        for mark in derived:
            if self._tx.rows(RESTS_ON_HIDDEN, org=self._request.org, collection=mark.collection, id=mark.id):
                raise InputError(
                    f"{shown(mark.id)} was made from records that stay hidden",
                    hint="restore what it was made from, and it comes back by itself",
                )

    def _with(self, marks: Sequence[Mark]) -> list[tuple[str, str]]:
        """What comes back with these records: what belongs to them, and what had been made from them."""
        ids = json.dumps([mark.id for mark in marks], ensure_ascii=False)
        found = {(name, record_id) for name, record_id in self._tx.rows(RESTORABLE_FROM, ids=ids, **self._values)}
        for kind in RECORDS:
            if kind.parent is not None:
                statement = MARKED_CHILDREN[kind.name]
                found |= {(kind.name, record_id) for (record_id,) in self._tx.rows(statement, ids=ids, **self._values)}
        return sorted(found)
