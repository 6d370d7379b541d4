"""Purging: records go, and with each the edges that named it (law 8).

Only what the deletes return counts: a held record stays, with its edges, and the census names it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from expunge.authority.port import Tx
from expunge.datamap import collection
from expunge.datamap.selector import Selector, as_parameter, count_scope
from expunge.erasure.marking import Mark
from expunge.erasure.request import Request
from expunge.erasure.statements import (
    CUT_FROM_DERIVED,
    CUT_FROM_SOURCE,
    DROP_OTHERS,
    DROP_SOME_MARKS,
    OTHERS_OPEN,
    PUT_BESIDE,
    delete_in_scope,
    delete_marked,
)


def purge_scope(tx: Tx, request: Request, counts: Mapping[str, Counter[int]], linked: Sequence[Mark]) -> None:
    """Delete all that is in scope, and the edges of ``linked``, those of them that have any.

    ``counts`` is how many there were: what an index counts alone costs less than a delete that answers row by row.
    Where the delete removed fewer (some are held, or newer than the fence), what is left is counted too.
    """
    scope = request.clear_scope
    selector = Selector.of(scope)
    values = {"org": request.org, "targets": as_parameter(enumerate(scope.targets)), "seq": request.fence_seq}
    kinds = [collection(name) for name in counts if counts[name]]
    went = {kind.name: tx.ask_change(delete_in_scope(kind, selector), **values) for kind in kinds}
    some_stay = any(went[kind.name]() < counts[kind.name].total() for kind in kinds)
    left = count_scope(tx, scope) if some_stay else {}
    for name in went:
        _account(request, name, counts[name] - left.get(name, Counter()))
    _cut(tx, request, [mark.id for mark in linked])


def others_may_mark(tx: Tx, request: Request) -> Callable[[], bool]:
    """Whether another request of the org, one that hides or has not come to its end, may mark what this one removes."""
    answer = tx.ask(OTHERS_OPEN, org=request.org, request=request.rid)
    return lambda: bool(answer()[0][0])


def purge_marked(tx: Tx, request: Request, marks: Sequence[Mark]) -> None:
    """Delete marked records and the edges of those that went."""
    by_kind: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        by_kind[mark.collection].append(mark)
    shared = others_may_mark(tx, request)()
    gone: list[str] = []
    for name, here in by_kind.items():
        rids = json.dumps(sorted(mark.rid for mark in here))  # in the order of the file, which is read once
        told: dict[str, int] = dict(tx.rows(delete_marked(collection(name)), org=request.org, rids=rids))
        positions = {mark.id: mark.position for mark in here}
        _account(request, name, Counter(positions[record_id] for record_id in told))
        _untell(tx, request, name, told)
        if told and shared:
            ids = json.dumps(list(told), ensure_ascii=False)
            tx.send(DROP_OTHERS, org=request.org, request=request.rid, collection=name, ids=ids)
        gone += told
    _cut(tx, request, gone)


def _untell(tx: Tx, request: Request, name: str, told: Mapping[str, int]) -> None:
    """What rows that are gone had told of: the marks of this request go on beside them, those of others go as well."""
    by_request: dict[int, list[str]] = defaultdict(list)
    for record_id, marked in told.items():
        by_request[marked].append(record_id)
    for rid, ids in by_request.items():
        if rid:
            statement = PUT_BESIDE if rid == request.rid else DROP_SOME_MARKS
            tx.send(statement, request=rid, collection=name, ids=json.dumps(ids, ensure_ascii=False))


def _cut(tx: Tx, request: Request, gone: Sequence[str]) -> None:
    ids = json.dumps(gone, ensure_ascii=False)
    for statement in (CUT_FROM_DERIVED, CUT_FROM_SOURCE):
        cut = tx.rows(statement, org=request.org, request=request.rid, ids=ids) if gone else []
        _account(request, "lineage", Counter(position for (position,) in cut))


def _account(request: Request, name: str, counts: Mapping[int, int]) -> None:
    request.removed.setdefault(name, Counter()).update(counts)
