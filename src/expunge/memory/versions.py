"""Versions: reading and adding to the history of a key, of memories, blocks and documents alike."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from expunge.authority.port import GuardKey, Halves, Statement, Tx
from expunge.datamap import Collection, Rule
from expunge.memory.batch import Batch
from expunge.memory.put import PutOutcome, Unit, put_records, version_name
from expunge.memory.record import Record
from expunge.memory.statements import stored_columns
from expunge.model.identity import PARTS, Identity
from expunge.model.instant import DAY, Instant
from expunge.search.index import record_number
from expunge.system import System

RESTORABLE_FOR: Instant = 14 * DAY
"""How long what was deleted can be brought back (seed page Loom, "Tombstone or purge")."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Work:
    """One unit of work of an agent: the system, as whom, and the erasure counters as they stood when it began."""

    system: System
    identity: Identity
    as_of: Mapping[str, int]

    def hold(self, tx: Tx, kind: Collection, keys: Iterable[str], ids: Iterable[str] = ()) -> None:
        """Let no other unit write versions of these keys, or records of these ids, before it is read what follows."""
        org, *stored = self.identity.stored()
        tx.enter([GuardKey(org, self.system.keys.matches(org, tuple(stored)), 0)])
        tx.hold_names(org, [*(version_name(kind, self.identity, key) for key in keys), *ids])

    def put(self, tx: Tx, records: Iterable[Record], refs: Mapping[tuple[str, str], str] | None = None) -> PutOutcome:
        """Write records, each after all that it rests on, or nothing (laws 4, 5)."""
        self.system.check_keys(tx)
        unit = Unit(self.system.keys, self.as_of, refs or {})
        return put_records(tx, Batch.of(records), unit, skip_bad=False)


def current(tx: Tx, kind: Collection, identity: Identity, name: str) -> Row | None:
    """The newest version of a key that is not hidden, whatever it says; ``None`` when there is none."""
    return next(iter(versions(tx, kind, identity, name, limit=1)), None)


def standing(tx: Tx, kind: Collection, identity: Identity, names: Sequence[str]) -> dict[str, Row]:
    """Of the current version of each of many keys of one identity what the next one follows from, by key.

    Keys that have no version are left out.
    """
    values = dict(zip(("org", *PARTS), identity.stored(), strict=True))
    rows = tx.rows(_standing(kind), names=json.dumps(list(names), ensure_ascii=False), **values)
    return {name: dict(zip(_FOLLOWED, row, strict=True)) for name, *row in rows}


def versions(
    tx: Tx, kind: Collection, identity: Identity, name: str, *, limit: int, below: int | None = None
) -> list[Row]:
    """The versions of a key that are not hidden, newest first; below a version number, if one is given."""
    values = dict(zip(("org", *PARTS), identity.stored(), strict=True))
    rows = tx.rows(_versions(kind), name=name, limit=limit, below=below, **values)
    columns = ("rid", *stored_columns(kind))
    return [dict(zip(columns, row, strict=True)) for row in rows]


def by_id(tx: Tx, kind: Collection, org: str, record_id: str) -> Row | None:
    """A record by its id, unless it is hidden."""
    columns = ("rid", *stored_columns(kind))
    rows = tx.rows(_by_id(kind), org=org, id=record_id)
    return dict(zip(columns, rows[0], strict=True)) if rows else None


def by_rids(tx: Tx, kind: Collection, rids: Sequence[int]) -> list[Row]:
    """Records by their row numbers."""
    columns = ("rid", *stored_columns(kind))
    return [dict(zip(columns, row, strict=True)) for row in tx.rows(_by_rids(kind), rids=json.dumps(list(rids)))]


def written(tx: Tx, kind: Collection, record: Record) -> Row:
    """A record that this transaction has written."""
    row = by_id(tx, kind, record.org, record.id)
    if row is None:
        raise LookupError(f"{kind.name}: a record that was written is not there")
    return row


def sources_of(tx: Tx, org: str, record_id: str) -> tuple[tuple[str, ...], Rule | None]:
    """What a record was made from, and by which rule: a copy of it rests on the same."""
    edges = tx.rows(_SOURCES, org=org, id=record_id)
    return tuple(source for source, _ in edges), Rule(edges[0][1]) if edges else None


def vector_of(tx: Tx, kind: Collection, row: Row) -> tuple[str, Halves | None]:
    """The model and the vector of a record."""
    rows = tx.rows(_VECTOR, record=record_number(kind, row["rid"]))
    return (rows[0][0], Halves(rows[0][1])) if rows else ("", None)


def later(row: Row | None, now: Instant) -> Instant:
    """When the next version of a key is dated: a clock that stepped back shall not put it behind what it replaces."""
    return now if row is None else max(now, row["updated_at"])


@lru_cache
def _versions(kind: Collection) -> Statement:
    columns = ", ".join(f"r.{column}" for column in ("rid", *stored_columns(kind)))
    return Statement(
        f"{kind.name}.versions",
        f"""SELECT {columns} FROM {kind.name} r
        WHERE r.org = :org AND r.namespace = :namespace AND r.user_id = :user_id AND r.agent = :agent
        AND r.session_id = :session_id AND r.{kind.versioned_by} = :name AND r.marked = 0
        AND (CAST(:below AS BIGINT) IS NULL OR r.version < :below)
        ORDER BY r.updated_at DESC, r.version DESC LIMIT :limit""",
    )


_FOLLOWED = ("version", "updated_at", "state", "expires_at", "on_expire")


@lru_cache
def _standing(kind: Collection) -> Statement:
    columns = ", ".join(f"r.{column}" for column in (str(kind.versioned_by), *_FOLLOWED))
    return Statement(
        f"{kind.name}.standing",
        f"""SELECT {columns} FROM each_text(:names) j CROSS JOIN {kind.name} r ON r.rid = (
            SELECT n.rid FROM {kind.name} n WHERE n.org = :org AND n.namespace = :namespace AND n.user_id = :user_id
            AND n.agent = :agent AND n.session_id = :session_id AND n.{kind.versioned_by} = j.value AND n.marked = 0
            ORDER BY n.updated_at DESC, n.version DESC LIMIT 1)""",
    )


@lru_cache
def _by_id(kind: Collection) -> Statement:
    columns = ", ".join(f"r.{column}" for column in ("rid", *stored_columns(kind)))
    return Statement(
        f"{kind.name}.by_id", f"SELECT {columns} FROM {kind.name} r WHERE r.org = :org AND r.id = :id AND r.marked = 0"
    )


@lru_cache
def _by_rids(kind: Collection) -> Statement:
    columns = ", ".join(f"r.{column}" for column in ("rid", *stored_columns(kind)))
    return Statement(
        f"{kind.name}.by_rids",
        f"SELECT {columns} FROM each_number(:rids) j CROSS JOIN {kind.name} r WHERE r.rid = j.value",
    )


_SOURCES = Statement("lineage.sources", "SELECT source, rule FROM lineage WHERE derived = :id AND org = :org")
_VECTOR = Statement("vectors.one", "SELECT model, vector FROM vectors WHERE record = :record")


def as_value(text: str | None) -> Any:
    """The JSON of a column."""
    return None if text is None else json.loads(text)
