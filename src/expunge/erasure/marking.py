"""Marking: the records in scope, then everything made from them until nothing is new (law 5, lineage rule)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from expunge.authority.port import Tx
from expunge.datamap import RECORDS, Collection, collection
from expunge.datamap.selector import Selector, as_parameter
from expunge.erasure.rebuild import count_rebuilds
from expunge.erasure.request import Request, Tally, no_effects
from expunge.erasure.statements import (
    ADD_MARK,
    ANY_BODY,
    COUNT_MARKS,
    DERIVED_OF,
    DETACHED,
    DROP_SOME_MARKS,
    FACTS_REVIVED,
    HAS_TIES,
    PAGE_OF_MARKS,
    SETTLE_BY_EDGE,
    UNFOUNDED,
    count_held,
    count_revived,
    find_children,
    find_in_scope,
    find_linked,
    find_rows,
    hide,
    hide_again,
    hide_marked,
    hold_in_scope,
    mark_in_scope,
    page_in_scope,
    settle_by_parent,
    unhide,
)
from expunge.model.scope import Scope, Target

Numbered = tuple[int, Target]
_PAGE = 5000


class Mark(NamedTuple):
    """A record that is about to go, the position of the subject on whose account, and where its body lies, if any."""

    collection: str
    id: str
    rid: int
    position: int
    ref: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is marked: by collection (``direct`` and ``derived``), and the same by position of the subject.

    The effects are on others (law 10): records outside the scope that go, that lose a source, or that become current.
    """

    counts: dict[str, dict[str, int]]
    tally: Tally
    effects: Tally

    @property
    def totals(self) -> dict[str, int]:
        """How many records go, by collection."""
        return {name: sum(counts.values()) for name, counts in self.counts.items()}

    @property
    def derived(self) -> dict[str, int]:
        """How many of them go for what they were made from, by collection."""
        return {name: counts["derived"] for name, counts in self.counts.items()}


class Marking:
    """The marking of one request (``request`` is its row number; 0 in a rehearsal).

    With ``hiding`` the rows are also hidden from reads. Where they are removed in the same commit nobody could
    see them in between, and the rows would only be written twice.
    """

    def __init__(self, tx: Tx, request: int, scope: Scope, fence_seq: int, *, hiding: bool) -> None:
        self._tx, self._request, self._scope, self._hiding = tx, request, scope, hiding
        self._selector = Selector.of(scope)
        self._values: dict[str, Any] = {"org": scope.org, "seq": fence_seq}

    def mark_counted(self, counts: Mapping[str, Counter[int]]) -> Outcome:
        """Mark all that the scope selects and what goes with it; ``counts`` is how many it selects.

        Where nothing in the store is tied to anything, what was counted is what is marked, but for what a hold keeps;
        and all versions of a key go together.
        """
        kinds = [collection(name) for name, count in counts.items() if count]
        marked = {kind.name: self._mark_all(kind) for kind in kinds}
        if self.ask_ties()():
            self.close_over(self.marks())
            self.settle()
        elif not may_revive(self._scope, counts) and all(
            count == counts[name].total() for name, count in marked.items()
        ):
            directly = {name: {"direct": count.total(), "derived": 0} for name, count in counts.items()}
            return Outcome(directly, {kind.name: counts[kind.name] for kind in kinds}, no_effects())
        return self.outcome()

    def mark_scope(self) -> list[Mark]:
        """Mark all that the scope selects in every collection."""
        for kind in self._selector.reached:
            self._mark_all(kind)
        return self.marks()

    def _mark_all(self, kind: Collection) -> int:
        """Mark all that the scope selects in a collection; how many there were."""
        values = {"request": self._request, "targets": self._targets(), "beside": not self._hiding}
        marked = self._tx.change(mark_in_scope(kind, self._selector), **values, **self._values)
        if marked and self._hiding:
            self._tx.send(hide_marked(kind), request=self._request)
        return marked

    def marks(self) -> list[Mark]:
        """All that is marked."""
        return [mark for page in pages_of_marks(self._tx, self._request, _PAGE) for mark in page]

    def mark_linked(self) -> list[Mark]:
        """Of what the scope selects, mark what has edges or children: enough where all goes in the same commit."""
        found = self._tx.rows(find_linked(self._selector), targets=self._targets(), **self._values)
        return self._mark(found, direct=True)

    def _targets(self) -> str:
        return as_parameter(enumerate(self._scope.targets))

    def mark_targets(self, kind: Collection, targets: Iterable[Numbered]) -> None:
        """Mark all that some targets select in a collection."""
        statement = find_in_scope(kind, self._selector)
        self._mark(self._tx.rows(statement, targets=as_parameter(targets), **self._values), direct=True)

    def mark_page(self, kind: Collection, target: Numbered, after: int, size: int) -> int:
        """Mark a page of what one target selects; the row to go on after, or 0 at the end."""
        statement = page_in_scope(kind, self._selector)
        found = self._tx.rows(statement, targets=as_parameter([target]), after=after, size=size, **self._values)
        marks = self._mark(found, direct=True)
        return marks[-1].rid if len(marks) == size else 0

    def mark_derived(self, ids: Sequence[str]) -> list[Mark]:
        """Mark what goes because these marked records go; what is new."""
        by_kind, held = self._derived(ids), set[tuple[str, str]]()
        while self._hold(by_kind, held):
            by_kind = self._derived(ids)
        marks: list[Mark] = []
        for name, positions in by_kind.items():
            wanted = json.dumps(list(positions), ensure_ascii=False)
            rows = self._tx.rows(find_rows(collection(name)), org=self._scope.org, ids=wanted)
            placed = [(name, record_id, rid, positions[record_id], ref) for record_id, rid, ref in rows]
            marks += self._mark(placed, direct=False)
        return marks

    def _derived(self, ids: Sequence[str]) -> dict[str, dict[str, int]]:
        """What goes because these go, by collection and id: the position of the subject."""
        values = {"org": self._scope.org, "request": self._request, "ids": json.dumps(ids, ensure_ascii=False)}
        found = self._tx.rows(DERIVED_OF, **values)
        for kind in RECORDS:
            if kind.parent is not None:
                statement = find_children(kind, kind.parent.column)
                found += self._tx.rows(statement, parent=kind.parent.collection, **values)
        by_kind: dict[str, dict[str, int]] = defaultdict(dict)
        for name, record_id, position in found:
            by_kind[name].setdefault(record_id, position)
        return by_kind

    def _hold(self, by_kind: Mapping[str, Iterable[str]], held: set[tuple[str, str]]) -> bool:
        """Wait for who derives from these just now, or gives one of them another source (law 5); ``held`` are theirs.

        Whether they may be others now.
        """
        waited = False
        for name in sorted(by_kind):
            ids = [record_id for record_id in by_kind[name] if (name, record_id) not in held]
            held.update((name, record_id) for record_id in ids)
            waited = self._tx.hold_rows(name, self._scope.org, ids, alone=True) or waited
        return waited

    def hold_scope(self) -> None:
        """Wait for who derives from what is in scope just now, where the fence does not keep them from it (law 5).

        It does not of what an erasure takes by its date, as what is derived is dated later; nor where it is down.
        """
        for kind in self._selector.reached:
            self._tx.rows(hold_in_scope(kind, self._selector), targets=self._targets(), **self._values)

    def close_over(self, marked: list[Mark]) -> None:
        """Mark what was made from what is marked, until nothing is new."""
        while marked:
            marked = self.mark_derived([mark.id for mark in marked])

    def _mark(self, rows: Iterable[Sequence[Any]], *, direct: bool) -> list[Mark]:
        """A held record that was derived is marked as well, but not hidden: so the census can name it."""
        marks = [Mark._make(row) for row in rows]
        told = self._hide(marks) if self._hiding else set()
        rows = [(*mark, direct, (mark.collection, mark.rid) not in told) for mark in marks]
        self._tx.change_many(ADD_MARK, [(self._request, self._scope.org, *row) for row in rows])
        return marks

    def _hide(self, marks: Sequence[Mark]) -> set[tuple[str, int]]:
        """Hide the rows of marks; those (by collection and row number) that tell of them from now on."""
        told: set[tuple[str, int]] = set()
        for name in {mark.collection for mark in marks}:
            rids = json.dumps([mark.rid for mark in marks if mark.collection == name])
            hidden = self._tx.rows(hide(collection(name)), request=self._request, rids=rids)
            told.update((name, rid) for (rid,) in hidden)
        return told

    def hide_again(self) -> None:
        """Hide what an earlier attempt has marked as derived while it was held: the closure does not find it anew."""
        for kind in RECORDS:
            self._tx.send(hide_again(kind), request=self._request)

    def settle(self) -> None:
        """Account each derived record to the first subject it was made from: a kill then changes no receipt."""
        if len(self._scope.targets) == 1:
            return
        values = {"org": self._scope.org, "request": self._request}
        moved = True
        while moved:
            moved = bool(self._tx.change(SETTLE_BY_EDGE, **values))
            for kind in RECORDS:
                if kind.parent is not None:
                    statement = settle_by_parent(kind, kind.parent.column)
                    moved = bool(self._tx.change(statement, parent=kind.parent.collection, **values)) or moved

    def outcome(self) -> Outcome:
        """What is marked, and what it does to others."""
        return outcome_of(self._tx, self._scope.org, self._request)

    def revived(self) -> Counter[int]:
        """How many older versions become current, by position of the subject."""
        return _revived(self._tx, self._scope.org, self._request)

    def held(self, outcome: Outcome) -> dict[str, tuple[int, int]]:
        """Of what is marked as derived how many records a hold keeps, and how many of those are outside the scope."""
        values = {"request": self._request, "org": self._scope.org, "targets": self._targets()}
        return {
            name: self._tx.rows(count_held(collection(name), self._selector), **values)[0] if count else (0, 0)
            for name, count in outcome.derived.items()
        }

    def ask_ties(self) -> Callable[[], bool]:
        """Whether anything in the store is tied to anything: if not, nothing goes for what it was made from."""
        answer = self._tx.ask(HAS_TIES)
        return lambda: bool(answer()[0][0])

    def ask_bodies(self) -> Callable[[], bool]:
        """Whether a marked record has a body outside the database."""
        answer = self._tx.ask(ANY_BODY, request=self._request)
        return lambda: bool(answer()[0][0])

    def digest(self) -> str:
        """A hash of the ids of all that is marked, in their order; to be keyed before anybody sees it (law 14)."""
        ids = hashlib.sha256()
        for page in pages_of_marks(self._tx, self._request, _PAGE):
            for mark in page:
                ids.update(f"{mark.collection}\0{mark.id}\0".encode())
        return ids.hexdigest()


def may_revive(scope: Scope, counts: Mapping[str, Counter[int]]) -> bool:
    """Whether facts may go without all that they had ended: those of one person may be of several agents and times."""
    return bool(counts["facts"]) and (scope.agent is not None or scope.before is not None)


def outcome_of(tx: Tx, org: str, request: int) -> Outcome:
    """What a request marks now, and what it does to others: some may have been restored since (law 10)."""
    counts = {kind.name: {"direct": 0, "derived": 0} for kind in RECORDS}
    tally: Tally = {kind.name: Counter() for kind in RECORDS}
    derived: Counter[int] = Counter()
    for name, direct, position, count in tx.rows(COUNT_MARKS, request=request):
        counts[name]["direct" if direct else "derived"] += count
        tally[name][position] += count
        if not direct:
            derived[position] += count
    detached: Counter[int] = Counter(dict(tx.rows(DETACHED, org=org, request=request)))
    rebuilt = count_rebuilds(tx, org, request)
    effects = {"derived": derived, "detached": detached, "revived": _revived(tx, org, request), "rebuilt": rebuilt}
    return Outcome(counts, tally, no_effects() | effects)


def _revived(tx: Tx, org: str, request: int) -> Counter[int]:
    revived: Counter[int] = Counter()
    for kind in RECORDS:
        if kind.versioned_by:
            revived.update(dict(tx.rows(count_revived(kind), org=org, request=request)))
    revived.update(dict(tx.rows(FACTS_REVIVED, org=org, request=request)))
    return revived


def page_of_marks(tx: Tx, request: int, size: int, after: tuple[str, str]) -> list[Mark]:
    """The marks of a request after one of them, at most ``size``."""
    name, record_id = after
    return [Mark(*row) for row in tx.rows(PAGE_OF_MARKS, request=request, collection=name, id=record_id, size=size)]


def pages_of_marks(tx: Tx, request: int, size: int) -> Iterator[list[Mark]]:
    """All marks of a request, page by page (law 11)."""
    after = ("", "")
    while page := page_of_marks(tx, request, size, after):
        yield page
        if len(page) < size:
            return
        after = page[-1][:2]


def packs(counts: Counter[int], targets: Sequence[Target], size: int) -> Iterator[list[Numbered]]:
    """Targets in groups that select at most ``size`` records together; a larger one stands alone."""
    pack: list[Numbered] = []
    rows = 0
    for position in sorted(counts):
        if pack and rows + counts[position] > size:
            yield pack
            pack, rows = [], 0
        pack.append((position, targets[position]))
        rows += counts[position]
    if pack:
        yield pack


def take_back(tx: Tx, request: Request, size: int) -> bool:
    """Undo a page of the marks of a request, and serve its rows again; whether there may be more."""
    page = page_of_marks(tx, request.rid, size, ("", ""))
    serve_again(tx, request.rid, page, seq=None)
    return len(page) == size


def take_back_unfounded(tx: Tx, request: Request) -> None:
    """Serve again what was marked for having lost its last source, and has one again (law 6)."""
    while rows := tx.rows(UNFOUNDED, org=request.org, request=request.rid):
        serve_again(tx, request.rid, [Mark._make(row) for row in rows], seq=None)


def serve_again(tx: Tx, request: int, marks: Sequence[Mark], seq: int | None) -> list[Mark]:
    """Drop marks and serve their rows again, as written at ``seq`` (or as they were); those that no other hides."""
    served: list[Mark] = []
    for name in {mark.collection for mark in marks}:
        here = {mark.rid: mark for mark in marks if mark.collection == name}
        values = {"request": request, "rids": json.dumps(list(here))}
        served += [here[rid] for rid, marked in tx.rows(unhide(collection(name)), seq=seq, **values) if not marked]
        ids = json.dumps([mark.id for mark in here.values()], ensure_ascii=False)
        tx.send(DROP_SOME_MARKS, request=request, collection=name, ids=ids)
    return served


def tally_of_marks(tx: Tx, request: Request) -> Tally:
    """How many records a request marks now, by collection and position of the subject."""
    tally: Tally = {kind.name: Counter() for kind in RECORDS}
    for name, _, position, count in tx.rows(COUNT_MARKS, request=request.rid):
        tally[name][position] += count
    return tally


def count_hidden(tx: Tx, request: Request) -> dict[str, int]:
    """How many records a request hides now, by collection: some may have been restored, or have gone by another."""
    return request.totals(tally_of_marks(tx, request))
