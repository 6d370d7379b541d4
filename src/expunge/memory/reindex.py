"""Reindexing: entries for records that came in without one, or with a vector of another embedder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from expunge.authority.port import Statement, Tx
from expunge.datamap import CODES, Collection
from expunge.memory.prepare import prepare
from expunge.memory.record import Record
from expunge.memory.versions import Row, by_rids
from expunge.model.identity import PARTS, Identity
from expunge.search import add_entries
from expunge.search.index import drop_entries, record_number
from expunge.system import System


@dataclass(frozen=True, slots=True)
class Unindexed:
    """A page of records: of an org and a collection, after a row number; all of them, or those that lack an entry."""

    org: str
    kind: Collection
    after: int
    size: int
    everything: bool


async def reindex_page(system: System, asked: Unindexed) -> tuple[int | None, int]:
    """Make the entries of a page. The row number to go on after (``None``: at the end), and how many were made.

    Raises:
        EmbedderFault: the embedder failed; the pages before this one are done.

    """
    model = "" if system.embedder is None else system.embedder.name
    rows = await system.authority.read(lambda tx: _page(tx, asked, model))
    if not rows:
        return None, 0
    records = {row["rid"]: _record(asked.kind, row) for row in rows}
    await prepare(system, records.values())

    def unit(tx: Tx) -> int:
        # A record that went meanwhile, or was changed, keeps what it has: its entry is made by whoever changes it.
        same = [row for row in by_rids(tx, asked.kind, list(records)) if row in rows]
        drop_entries(tx, json.dumps([record_number(asked.kind, row["rid"]) for row in same]))
        entries = [(row["rid"], records[row["rid"]]) for row in same]
        placed = [
            (record_number(asked.kind, rid), record.identity.stored(), record.entry)
            for rid, record in entries
            if record.entry is not None
        ]
        add_entries(tx, placed)
        return len(placed)

    done = await system.authority.run(unit)
    return rows[-1]["rid"], done


def _record(kind: Collection, row: Row) -> Record:
    identity = Identity(row["org"], *(None if row[part] == "-" else row[part] for part in PARTS))
    return Record(1, kind, row["id"], identity, row, (), frozenset())


def _page(tx: Tx, asked: Unindexed, model: str) -> list[Row]:
    statement = _find(asked.kind, everything=asked.everything)
    found = tx.rows(statement, org=asked.org, after=asked.after, size=asked.size, model=model)
    return by_rids(tx, asked.kind, [rid for (rid,) in found])


@lru_cache
def _find(kind: Collection, *, everything: bool) -> Statement:
    return Statement(
        f"{kind.name}.unindexed",
        _unindexed(kind, "search_docsize d WHERE d.id", everything=everything),  # where fts5 keeps a row for each entry
        postgres=_unindexed(kind, "search d WHERE d.record", everything=everything),
    )


def _unindexed(kind: Collection, entry: str, *, everything: bool) -> str:
    number = f"r.rid * {CODES} + {kind.search_code}"
    lacking = f"""(NOT EXISTS (SELECT 1 FROM {entry} = {number}) OR (:model <> '' AND NOT EXISTS (
        SELECT 1 FROM vectors v WHERE v.record = {number} AND v.model = :model)))"""
    live = "r.state = 'live' AND " if kind.versioned_by else ""
    return f"""SELECT r.rid FROM {kind.name} r WHERE r.rid > :after AND unindexed(r.org) = :org AND r.marked = 0
        AND {live}{":model = :model" if everything else lacking} ORDER BY r.rid LIMIT :size"""
