"""Marking: the records in scope, then everything made from them until nothing is new (law 5, lineage rule)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from expunge.authority.port import Tx
from expunge.datamap import RECORDS, Collection, collection
from expunge.datamap.selector import Selector, as_parameter, count_in_scope
from expunge.erasure.request import Tally
from expunge.erasure.statements import (
    ADD_MARK,
    COUNT_MARKS,
    DERIVED_OF,
    DETACHED,
    PAGE_OF_MARKS,
    count_revived,
    find_children,
    find_in_scope,
    hide_again,
    hide_by_id,
    hide_by_row,
    page_in_scope,
)
from expunge.model.scope import Scope, Target

Numbered = tuple[int, Target]
Mark = tuple[str, str, int]
"""Collection, id, and the position of the subject."""


class Marking:
    """The marking of one request (``request`` is its row number; 0 in a rehearsal)."""

    def __init__(self, tx: Tx, request: int, scope: Scope, fence_seq: int) -> None:
        self._tx, self._request, self._scope, self._seq = tx, request, scope, fence_seq
        self._selector = Selector.of(scope)

    def count(self) -> dict[Collection, Counter[int]]:
        """How many records each target selects in each collection."""
        targets = as_parameter(enumerate(self._scope.targets()))
        return {
            kind: Counter(
                dict(
                    self._tx.rows(
                        count_in_scope(kind, self._selector),
                        org=self._scope.org,
                        targets=targets,
                        seq=self._seq,
                    )
                )
            )
            for kind in RECORDS
        }

    def mark_targets(self, kind: Collection, targets: Iterable[Numbered]) -> list[str]:
        """Mark all that some targets select in a collection; the ids."""
        statement = find_in_scope(kind, self._selector)
        rows = self._tx.rows(statement, org=self._scope.org, targets=as_parameter(targets), seq=self._seq)
        return self._mark_rows(kind, rows)

    def mark_page(self, kind: Collection, target: Numbered, after: int, size: int) -> int:
        """Mark a page of what one target selects; the row to go on after, or 0 at the end."""
        rows = self._tx.rows(
            page_in_scope(kind, self._selector),
            org=self._scope.org,
            targets=as_parameter([target]),
            seq=self._seq,
            after=after,
            size=size,
        )
        self._mark_rows(kind, rows)
        return rows[-1][1] if len(rows) == size else 0

    def _mark_rows(self, kind: Collection, rows: Sequence[tuple[int, int, str]]) -> list[str]:
        self._tx.change_many(ADD_MARK, [(self._request, kind.name, row[2], row[0], 1) for row in rows])
        if rows:
            self._tx.change(hide_by_row(kind), rids=json.dumps([row[1] for row in rows]))
        return [row[2] for row in rows]

    def mark_derived(self, ids: Sequence[str]) -> list[str]:
        """Mark what goes because these marked records go; the ids that are new."""
        values = {
            "org": self._scope.org,
            "request": self._request,
            "ids": json.dumps(ids, ensure_ascii=False),
        }
        found = self._tx.rows(DERIVED_OF, **values)
        for kind in RECORDS:
            if kind.parent is not None:
                statement = find_children(kind, kind.parent.column)
                found += self._tx.rows(statement, parent=kind.parent.collection, **values)
        by_kind: dict[str, dict[str, int]] = defaultdict(dict)
        for name, record_id, position in found:
            by_kind[name].setdefault(record_id, position)
        for name, positions in by_kind.items():
            self._tx.change_many(
                ADD_MARK, [(self._request, name, record_id, at, 0) for record_id, at in positions.items()]
            )
            # A held record keeps being served; its mark lets the census name it.
            hidden = json.dumps(list(positions), ensure_ascii=False)
            self._tx.change(hide_by_id(collection(name)), org=self._scope.org, ids=hidden)
        return [record_id for positions in by_kind.values() for record_id in positions]

    def hide_again(self) -> None:
        """Hide what an earlier attempt had to leave because it was held, and is held no more."""
        for kind in RECORDS:
            self._tx.change(hide_again(kind), org=self._scope.org, request=self._request)

    def effects(self) -> Tally:
        """What the erasure does outside its scope: records that go, lose a source, or become current (law 10)."""
        derived: Counter[int] = Counter()
        for _, direct, position, count in self._tx.rows(COUNT_MARKS, request=self._request):
            if not direct:
                derived[position] += count
        values = {"org": self._scope.org, "request": self._request}
        revived: Counter[int] = Counter()
        for kind in RECORDS:
            if kind.versioned_by:
                revived.update(dict(self._tx.rows(count_revived(kind), **values)))
        return {
            "derived": derived,
            "detached": Counter(dict(self._tx.rows(DETACHED, **values))),
            "revived": revived,
        }

    def counts(self) -> dict[str, dict[str, int]]:
        """How many records are marked, by collection: ``direct`` and ``derived``."""
        found = {kind.name: {"direct": 0, "derived": 0} for kind in RECORDS}
        for name, direct, _, count in self._tx.rows(COUNT_MARKS, request=self._request):
            found[name]["direct" if direct else "derived"] += count
        return found


def page_of_marks(tx: Tx, request: int, size: int, after: tuple[str, str]) -> list[Mark]:
    """The marks of a request after one of them, at most ``size``."""
    name, record_id = after
    return tx.rows(PAGE_OF_MARKS, request=request, collection=name, id=record_id, size=size)


def pages_of_marks(tx: Tx, request: int, size: int) -> Iterator[list[Mark]]:
    """All marks of a request, page by page (law 11)."""
    after = ("", "")
    while page := page_of_marks(tx, request, size, after):
        yield page
        after = (page[-1][0], page[-1][1])


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
