"""The one way in: records are guarded, checked against the store, and written in one unit of work (laws 4, 5)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from expunge.authority.orgs import ensure_org, expect_seq
from expunge.authority.port import GuardKey, Tx
from expunge.datamap import RECORDS, SEARCHED, Collection, Rule, collection
from expunge.errors import ErasedSince, ErasureInProgress, HiddenByErasure, InvalidRecords
from expunge.keys import KeyRing
from expunge.memory.batch import Batch
from expunge.memory.bodies import has_body
from expunge.memory.record import TIMES, BadRecord, Record
from expunge.memory.statements import (
    ADD_EDGE,
    EDGES_OF,
    LOCATE,
    MARKED,
    RESTS_ON,
    fetch,
    insert,
    inserted,
    newest_versions,
    stored_columns,
)
from expunge.model.canonical import to_json
from expunge.model.identity import PARTS, Identity
from expunge.model.ids import shown
from expunge.model.instant import Instant
from expunge.search.index import add_entries, record_number

T = TypeVar("T")

_IDS_A_STATEMENT = 5000


@dataclass(slots=True)
class PutOutcome:
    """What became of a batch."""

    loaded: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    reattached: int = 0
    bad: list[BadRecord] = field(default_factory=list)
    by_org: Counter[str] = field(default_factory=Counter)
    named: set[str] = field(default_factory=set)
    """The bodies that rows name from now on."""
    versions: dict[str, int] = field(default_factory=dict)
    """The versions that were given, by id."""


@dataclass(frozen=True, slots=True)
class _Located:
    collection: str
    marked: bool
    seq: int
    parts: tuple[str, ...]
    rid: int


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit of work brings besides its records: the keys it is matched by, its ``as_of``, where bodies lie."""

    keys: KeyRing
    as_of: Mapping[str, int]
    refs: Mapping[tuple[str, str], str] = field(default_factory=dict)


def put_records(tx: Tx, batch: Batch, unit: Unit, *, skip_bad: bool) -> PutOutcome:
    """Write a batch, all of it or (without ``skip_bad``) nothing.

    The unit is refused when a fence matches the identity of a record or of a source of one (laws 4 and 5).

    Raises:
        InvalidRecords: a record is bad and ``skip_bad`` is not set.
        ErasureInProgress, ErasedSince: a fence refuses the unit, or a record to be replaced is being erased.
        HiddenByErasure: a record, or what it rests on, is hidden and can be restored.

    """
    return _Put(tx, batch, unit).run(skip_bad=skip_bad)


class _Put:
    """One batch on its way into the store."""

    def __init__(self, tx: Tx, batch: Batch, unit: Unit) -> None:
        self._tx, self._batch, self._keys, self._as_of, self._refs = tx, batch.copy(), unit.keys, unit.as_of, unit.refs
        self._located: dict[tuple[str, str], _Located] = {}
        self._leaving: dict[tuple[str, str], str | None] = {}  # and by which erasure it is hidden, if it is no more
        self._present: list[Record] = []
        self._outcome = PutOutcome(skipped=batch.skipped)

    def run(self, *, skip_bad: bool) -> PutOutcome:
        if not skip_bad:
            self._batch.refuse_bad()
        records = list(self._batch.records.values())
        self._refuse_future()
        self._guard((record.identity.stored(), record.dated) for record in records)
        for org, names in self._names(records).items():
            self._tx.hold_names(org, names)
        self._locate(records)
        self._guard_sources(records)
        while self._hold_needs(records):
            was, self._located = self._located, {}
            self._locate(records)
            if self._located == was:
                self._refuse_marked(records)  # what is marked beside its row is not seen there
                break
            self._guard_sources(records)  # some have gone, and others may have come under their ids
        self._sort_out_present(records)
        self._drop_unfounded()
        if not skip_bad:
            self._batch.refuse_bad()
        self._write()
        self._outcome.bad = sorted(self._batch.bad, key=lambda item: item.line)
        return self._outcome

    def _refuse_future(self) -> None:
        """An ``as_of`` from another database, or from after a restore, would hide its rows from every erasure."""
        for org in {record.org for record in self._batch.records.values()}:
            expect_seq(self._tx, org, self._as_of.get(org, 0))

    def _guard(self, touched: Iterable[tuple[tuple[str, ...], Instant]]) -> None:
        """One check for each identity, dated by the earliest record that is written under it (law 4)."""
        earliest: dict[tuple[str, ...], Instant] = {}
        for stored, dated in touched:
            earliest[stored] = min(dated, earliest.get(stored, dated))
        by_org: dict[str, list[GuardKey]] = defaultdict(list)
        for (org, *parts), dated in earliest.items():
            by_org[org].append(GuardKey(org, self._keys.matches(org, tuple(parts)), dated))
        for org, guard_keys in by_org.items():
            self._tx.guard(guard_keys, self._as_of.get(org, 0))

    def _locate(self, records: Sequence[Record]) -> None:
        """Where the records of the batch, and all that they rest on, already are."""
        wanted: dict[str, dict[str, None]] = defaultdict(dict)
        for record in records:
            if asked := record.needs if record.fresh else (record.id, *record.needs):
                wanted[record.org].update(dict.fromkeys(asked))
        for org, ids in wanted.items():
            for page in _slices([record_id for record_id in ids if not self._comes_fresh(org, record_id)]):
                given = _as_ids(page)
                told: dict[str, int] = {}
                for name, record_id, marked, seq, *parts, rid in self._tx.rows(LOCATE, org=org, ids=given):
                    self._located[org, record_id] = _Located(name, bool(marked), seq, tuple(parts), rid)
                    if marked:
                        told[record_id] = marked
                for record_id, hidden, by in self._tx.rows(MARKED, org=org, ids=given, told=to_json(told)):
                    self._leaving[org, record_id] = by if hidden else None

    def _comes_fresh(self, org: str, record_id: str) -> bool:
        record = self._batch.records.get((org, record_id))
        return record is not None and record.fresh

    def _names(self, records: Iterable[Record]) -> dict[str, list[str]]:
        """What no other unit may write at the same time: ids that somebody chose, and the keys of versions."""
        names: dict[str, list[str]] = defaultdict(list)
        for record in records:
            if not record.fresh:
                names[record.org].append(record.id)
            if column := record.collection.versioned_by:
                names[record.org].append(version_name(record.collection, record.identity, record.values[column]))
        return names

    def _guard_sources(self, records: Sequence[Record]) -> None:
        """A derived write is a write in the scope of each of its sources, and none may be marked (law 5)."""
        self._refuse_marked(records)
        touched: list[tuple[tuple[str, ...], Instant]] = []
        for record in records if self._located else ():
            for need in (record.id, *record.needs):
                place = self._located.get((record.org, need))
                if place is not None:
                    self._refuse_later(record, need, place)
                    touched.append(((record.org, *place.parts), record.dated))
        self._guard(touched)

    def _refuse_marked(self, records: Sequence[Record]) -> None:
        for record in records if self._located or self._leaving else ():
            for need in (record.id, *record.needs):
                place = self._located.get((record.org, need))
                if by := self._leaving.get((record.org, need)):
                    raise HiddenByErasure(
                        f"line {record.line}: {shown(need)} was hidden by erasure {by}",
                        hint=f"restore it first (expunge restore {by}), or purge it",
                        request_id=by,
                    )
                if (place is not None and place.marked) or (record.org, need) in self._leaving:
                    raise ErasureInProgress(f"line {record.line}: {shown(need)} is being erased")

    def _hold_needs(self, records: Sequence[Record]) -> bool:
        """Keep what the records rest on as it is (law 5): an erasure looks for what was made of a row after it has it.

        Whether it may have changed since it was located.
        """
        needed: dict[tuple[str, str], list[str]] = defaultdict(list)
        for record in records if self._located else ():
            for need in (record.id, *record.needs):
                if place := self._located.get((record.org, need)):
                    needed[place.collection, record.org].append(need)
        held = [self._tx.hold_rows(kind, org, ids, alone=False) for (kind, org), ids in sorted(needed.items())]
        return any(held)

    def _refuse_later(self, record: Record, need: str, place: _Located) -> None:
        """A source that was written after the unit began is not what it read, even under the same id (law 4)."""
        if need != record.id and place.seq > self._as_of.get(record.org, 0):
            raise ErasedSince(f"line {record.line}: {shown(need)} was written after the work began")

    def _sort_out_present(self, records: Sequence[Record]) -> None:
        """Take out what the store has already: the same content is counted as skipped, other content is bad."""
        here: dict[tuple[str, str], list[Record]] = defaultdict(list)
        for record in records:
            if place := self._located.get(record.key):
                here[record.org, place.collection].append(record)
        for (org, name), found in here.items():
            for page in _slices(found):
                self._compare(org, name, page)

    def _compare(self, org: str, name: str, records: Sequence[Record]) -> None:
        rows, edges = self._fetch(org, name, records)
        for record in records:
            if record.collection.name == name and _agrees(record, rows[record.id], edges[record.id]):
                self._present.append(record)
                self._outcome.skipped += 1
                del self._batch.records[record.key]
            elif record.collection.written_by:
                what = shown(record.values.get("path", record.id))
                self._batch.reject(record, record.collection.name, f"{what} is stored with other content")
            else:
                self._batch.reject(record, "id", f"{shown(record.id)} is in the store with other content")

    def _fetch(
        self, org: str, name: str, records: Sequence[Record]
    ) -> tuple[dict[str, dict[str, Any]], dict[str, set[str]]]:
        ids, kept = _as_ids([record.id for record in records]), collection(name)
        edges: dict[str, set[str]] = defaultdict(set)
        for derived, source in self._tx.rows(EDGES_OF, org=org, ids=ids):
            edges[derived].add(source)
        names = stored_columns(kept)
        rows = [dict(zip(names, row, strict=True)) for row in self._tx.rows(fetch(kept), org=org, ids=ids)]
        return {row["id"]: row for row in rows}, edges

    def _drop_unfounded(self) -> None:
        """Reject what rests on a record that is nowhere, and then what rests on that."""
        for record in self._batch.needs_first():
            if (fault := self._unfounded(record)) is not None:
                self._batch.reject(record, *fault)

    def _unfounded(self, record: Record) -> tuple[str, str] | None:
        parent = record.collection.parent
        for need in record.needs:
            name = self._name_of(record.org, need)
            is_parent = parent is not None and need == record.values[parent.column]
            field = parent.column if parent is not None and is_parent else "sources"
            if name is None:
                return field, f"{shown(need)} is neither in the store nor in what was given"
            if parent is not None and is_parent and name != parent.collection:
                return field, f"{shown(need)} is one of the {name}, not of the {parent.collection}"
        return None

    def _name_of(self, org: str, record_id: str) -> str | None:
        if record := self._batch.records.get((org, record_id)):
            return record.collection.name
        place = self._located.get((org, record_id))
        return place.collection if place else None

    def _write(self) -> None:
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        numbers, versions = self._ask_numbers(), self._numbered_versions()
        for record in self._batch.records.values():
            kind, stored = record.collection, record.identity.stored()
            row = record.values.copy()
            row["org"], row["namespace"], row["agent"], row["user_id"], row["session_id"] = stored
            row["id"], row["seq"] = record.id, self._as_of.get(record.org, 0)
            row["rid"] = next(numbers[kind.name])
            if kind.body_in:
                row[kind.body_in] = self._body_of(record)
            if kind.versioned_by:
                row["version"] = self._outcome.versions[record.id] = versions[record.key]
            rows[kind.name].append(row)
            self._outcome.by_org[record.org] += 1
        self._outcome.loaded.update({name: len(here) for name, here in rows.items()})
        for org in self._outcome.by_org:
            ensure_org(self._tx, org)
        for kind in RECORDS:
            if rows[kind.name]:
                self._tx.change_many(insert(kind), map(inserted(kind), rows[kind.name]))
        self._index(rows)
        self._tx.change_many(ADD_EDGE, self._edges(self._batch.records.values()))
        # A record that was there already gets back the edges it lost to an erasure, where the source is back.
        self._outcome.reattached = sum(self._reattach(edge) for edge in self._edges(self._present))

    def _ask_numbers(self) -> dict[str, Iterator[int]]:
        """The numbers that rows would be given, by collection: the index has to know them. None is ever used again."""
        wanted = Counter(record.collection.name for record in self._batch.records.values())
        asked = {name: self._tx.ask_numbers(name, count) for name, count in wanted.items()}
        return {name: _when_asked(answer) for name, answer in asked.items()}

    def _index(self, rows: Mapping[str, Sequence[dict[str, Any]]]) -> None:
        records = self._batch.records
        add_entries(
            self._tx,
            (
                (record_number(kind, row["rid"]), record.identity.stored(), record.entry)
                for kind in SEARCHED
                for row in rows[kind.name]
                if (record := records[row["org"], row["id"]]).entry is not None
            ),
        )

    def _body_of(self, record: Record) -> str | None:
        """Where the body of a record lies. There is none where its row was there when bodies were stored."""
        if not has_body(record):
            return None
        ref = self._refs.get(record.key)
        if ref is None:
            what = shown(record.values.get("path", record.id))
            raise ErasureInProgress(f"line {record.line}: {what} has gone by an erasure just now")
        self._outcome.named.add(ref)
        return ref

    def _reattach(self, edge: dict[str, Any]) -> int:
        added = self._tx.change(ADD_EDGE, **edge)
        if added and self._tx.rows(RESTS_ON, org=edge["org"], id=edge["source"], on=edge["derived"]):
            raise InvalidRecords(f"nothing was written: the sources of {shown(edge['derived'])} form a cycle")
        return added

    def _edges(self, records: Iterable[Record]) -> Iterator[dict[str, Any]]:
        for record in records:
            for source in record.sources:
                if (name := self._name_of(record.org, source)) is not None:
                    yield {
                        "org": record.org,
                        "derived": record.id,
                        "source": source,
                        "derived_collection": record.collection.name,
                        "source_collection": name,
                        "rule": record.rule or record.collection.rule or Rule.RETIRE,
                        "seq": self._as_of.get(record.org, 0),
                    }

    def _numbered_versions(self) -> dict[tuple[str, str], int]:
        """The version that each record is: the next of its key, in the order in which they came.

        One that an export numbers keeps its number where the store has no higher one of the key, whatever came first;
        the others follow in the order of their numbers.
        """
        newest, numbers = self._newest_versions(), dict[tuple[str, str], int]()
        by_key: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
        for record in self._batch.records.values():
            if column := record.collection.versioned_by:
                by_key[record.collection.name, record.identity.stored(), record.values[column]].append(record)
        for key, records in by_key.items():
            last = newest.get(key, 0)
            for record in sorted(records, key=lambda record: record.version or 0):
                last = numbers[record.key] = max(last + 1, record.version or 0)
        return numbers

    def _newest_versions(self) -> dict[tuple[Any, ...], int]:
        """The highest version of each key that is written, by collection, identity and key."""
        asked: dict[tuple[Collection, tuple[str, ...]], dict[str, None]] = defaultdict(dict)
        for record in self._batch.records.values():
            if column := record.collection.versioned_by:
                asked[record.collection, record.identity.stored()][record.values[column]] = None
        found: dict[tuple[Any, ...], int] = {}
        for (kind, stored), names in asked.items():
            values = dict(zip(("org", *PARTS), stored, strict=True))
            for page in _slices(list(names)):
                rows = self._tx.rows(newest_versions(kind), names=_as_ids(page), **values)
                found |= {(kind.name, stored, name): version for name, version in rows if version is not None}
        return found


def _when_asked(answer: Callable[[], Iterable[T]]) -> Iterator[T]:
    """What an answer has, which is waited for when the first of it is taken."""
    yield from answer()


def version_name(kind: Collection, identity: Identity, key: str) -> str:
    """What units that write versions of one key wait for each other by."""
    return "\0".join((kind.name, *identity.stored(), key))


def _agrees(record: Record, row: Mapping[str, Any], edges: set[str]) -> bool:
    """Whether the stored row says what the record says.

    A stored record may have lost sources to an erasure since: fewer edges than the record names still agree.
    """
    if tuple(row[part] for part in ("org", *PARTS)) != record.identity.stored():
        return False
    compared = {name for name in record.values if name not in TIMES or name in record.given}
    return edges <= set(record.sources) and all(row[name] == record.values[name] for name in compared)


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _IDS_A_STATEMENT):
        yield items[start : start + _IDS_A_STATEMENT]


def _as_ids(ids: Sequence[str]) -> str:
    return json.dumps(ids, ensure_ascii=False)
