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
    """Delete the marked records of a page and count what went into ``request.removed``.

    Only what the deletes return counts: a held record stays, with its edges, and the census names it.
    """
    by_kind: dict[str, dict[str, int]] = defaultdict(dict)
    for name, record_id, position in marks:
        by_kind[name][record_id] = position
    gone: dict[str, int] = {}
    for name, positions in by_kind.items():
        ids = json.dumps(list(positions), ensure_ascii=False)
        statement = delete_marked(collection(name))
        went = tx.rows(statement, org=request.org, ids=ids, seq=request.lowered_seq)
        counts = Counter(positions[record_id] for (record_id,) in went)
        request.removed.setdefault(name, Counter()).update(counts)
        gone |= {record_id: positions[record_id] for (record_id,) in went}
    ids = json.dumps(list(gone), ensure_ascii=False)
    cut = [
        *tx.rows(CUT_FROM_DERIVED, org=request.org, ids=ids),
        *tx.rows(CUT_FROM_SOURCE, org=request.org, ids=ids),
    ]
    request.removed.setdefault("lineage", Counter()).update(Counter(gone[end] for (end,) in cut))
