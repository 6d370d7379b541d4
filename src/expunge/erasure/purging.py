"""Purging: marked records go, batch by batch, and with each the edges that named it (law 8)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence

from expunge.authority.port import Tx
from expunge.datamap import collection
from expunge.erasure.marking import Mark
from expunge.erasure.request import Request
from expunge.erasure.statements import CUT_FROM_DERIVED, CUT_FROM_SOURCE, delete_marked


def purge(tx: Tx, request: Request, marks: Sequence[Mark]) -> None:
    """Delete marked records and count what went into ``request.removed``.

    Only what the deletes return counts: a held record stays, with its edges, and the census names it.
    """
    by_kind: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        by_kind[mark.collection].append(mark)
    gone: dict[str, int] = {}
    for name, here in by_kind.items():
        rids = json.dumps(sorted(mark.rid for mark in here))  # in the order of the file, which is read once
        went = tx.rows(delete_marked(collection(name)), org=request.org, rids=rids, seq=request.lowered_seq)
        positions = {mark.id: mark.position for mark in here}
        accounted = {record_id: positions[record_id] for (record_id,) in went}
        request.removed.setdefault(name, Counter()).update(accounted.values())
        gone |= accounted
    ids = json.dumps(list(gone), ensure_ascii=False)
    cut = [*tx.rows(CUT_FROM_DERIVED, org=request.org, ids=ids), *tx.rows(CUT_FROM_SOURCE, org=request.org, ids=ids)]
    request.removed.setdefault("lineage", Counter()).update(gone[end] for (end,) in cut)
