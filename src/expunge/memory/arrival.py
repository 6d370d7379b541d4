"""Records that arrive by an export: what was erased since it was made does not come back by it (laws 4 and 5).

Such a record is left out and counted, and the rest is taken, unlike in a file that somebody writes: a unit of work that
meets a fence there is refused as a whole. An erasure that still runs refuses an export too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from expunge.authority.port import GuardKey, Tx
from expunge.datamap import Rule
from expunge.errors import ErasedSince
from expunge.keys import KeyRing
from expunge.memory.batch import Batch
from expunge.memory.record import Record
from expunge.memory.statements import LOCATE
from expunge.model.instant import Instant

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Arrival:
    """How an export comes in.

    ``own``: it was made by the store that it comes to, so a record that it names as a source, and that is in neither,
    was erased. ``erased`` are records that the ledger of another store says were erased after the export.
    """

    own: bool
    erased: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class Here:
    """Where a record of the store is: the counter of the unit that wrote it, and whose it is."""

    seq: int
    parts: tuple[str, ...]


@dataclass(slots=True)
class Sifted:
    """What did not come in: records that were erased, and edges to sources that are nowhere."""

    erased: int = 0
    edges: int = 0


def _locate(tx: Tx, batch: Batch) -> dict[Key, Here]:
    """Where in the store the records are that those of a batch rest on."""
    wanted: dict[str, dict[str, None]] = defaultdict(dict)
    for record in batch.records.values():
        wanted[record.org].update(dict.fromkeys(record.needs))
    return {
        (org, row[1]): Here(row[3], tuple(row[4:8]))
        for org, ids in wanted.items()
        for row in tx.rows(LOCATE, org=org, ids=json.dumps(list(ids), ensure_ascii=False))
    }


class _Guard:
    """The guard, asked for one identity at a time; the earliest record of each is asked first, and mostly says all."""

    def __init__(self, tx: Tx, keys: KeyRing, as_of: Mapping[str, int]) -> None:
        self._tx, self._keys, self._as_of = tx, keys, as_of
        self._known: dict[tuple[tuple[str, ...], Instant], bool] = {}
        self._free: dict[tuple[str, ...], Instant] = {}

    def refuses(self, stored: tuple[str, ...], dated: Instant) -> bool:
        """Whether what is dated so, of this identity, was erased after the export.

        Raises:
            ErasureInProgress: an erasure of it is running.

        """
        if stored in self._free and self._free[stored] <= dated:
            return False
        if (stored, dated) not in self._known:
            org, *parts = stored
            try:
                self._tx.guard([GuardKey(org, self._keys.matches(org, tuple(parts)), dated)], self._as_of.get(org, 0))
                self._known[stored, dated], self._free[stored] = False, dated
            except ErasedSince:
                self._known[stored, dated] = True
        return self._known[stored, dated]


def sift(tx: Tx, batch: Batch, arrival: Arrival, keys: KeyRing, as_of: Mapping[str, int]) -> tuple[Batch, Sifted]:
    """A batch without what was erased since its export was made, and without what may not be there then.

    A record that retires goes with any source that was erased, one that detaches with the last (design 4). A source
    that another store had, and this one does not, costs the record its edge. The write guards again.

    Raises:
        ErasureInProgress: an erasure of a record, or of a source of one, is running.

    """
    return _Sift(tx, batch.copy(), arrival, _Guard(tx, keys, as_of), as_of).run()


class _Sift:
    def __init__(self, tx: Tx, batch: Batch, arrival: Arrival, guard: _Guard, as_of: Mapping[str, int]) -> None:
        self._batch, self._arrival, self._guard, self._as_of = batch, arrival, guard, as_of
        self._here = _locate(tx, batch)
        self._out = set(arrival.erased)
        self._found = Sifted()

    def run(self) -> tuple[Batch, Sifted]:
        for record in list(self._batch.needs_first()):
            if self._is_erased(record) or self._fell_with_sources(record):
                self._out.add(record.key)
                del self._batch.records[record.key]
                self._found.erased += 1
        return self._batch, self._found

    def _is_erased(self, record: Record) -> bool:
        parent = record.collection.parent
        return (
            record.key in self._out
            or self._guard.refuses(record.identity.stored(), record.dated)
            or (parent is not None and self._is_gone((record.org, record.values[parent.column]), record.dated))
        )

    def _fell_with_sources(self, record: Record) -> bool:
        """Whether a record goes by its lineage rule; one that stays loses the sources that are not there."""
        gone = {source for source in record.sources if self._is_gone((record.org, source), record.dated)}
        lost = {source for source in record.sources if source not in gone and self._is_nowhere((record.org, source))}
        left = tuple(source for source in record.sources if source not in gone | lost)
        rule = record.rule or record.collection.rule
        if gone and (rule is not Rule.DETACH or not left):
            return True
        if gone or lost:
            self._found.edges += len(gone | lost)
            self._batch.records[record.key] = replace(record, sources=left)
        return False

    def _is_gone(self, key: Key, dated: Instant) -> bool:
        """Whether a record that another rests on was erased after the export."""
        if key in self._out:
            return True
        if key in self._batch.records:
            return False
        place = self._here.get(key)
        if place is None:
            return self._arrival.own
        return place.seq > self._as_of.get(key[0], 0) or self._guard.refuses((key[0], *place.parts), dated)

    def _is_nowhere(self, key: Key) -> bool:
        return key not in self._batch.records and key not in self._here
