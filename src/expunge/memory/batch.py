"""A batch of records that came in together: what is wrong inside it, before the store is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count

from expunge.datamap import DOCUMENTS
from expunge.errors import InvalidRecords
from expunge.memory.attachments import Attached, Carried
from expunge.memory.originals import records_of_document
from expunge.memory.record import TIMES, BadField, BadRecord, Reading, Record, read_line, read_record
from expunge.model.ids import shown

_NOTHING = Reading("-", 0, 0, 0)
_SHOWN = 5
_REPORTED = 1000


class Batch:
    """Records by ``(org, id)`` in the order they came, with what was skipped and what was bad."""

    def __init__(
        self,
        raw: Iterable[object],
        reading: Reading,
        attached: Attached | Carried | None = None,
        lines: Iterable[int] | None = None,
    ) -> None:
        """Read records. ``lines`` are the numbers of their lines, where those do not simply count them."""
        self.records: dict[tuple[str, str], Record] = {}
        self.skipped = 0
        self.bad: list[BadRecord] = []
        self._order: list[tuple[str, str]] = []
        for line, item in zip(count(1) if lines is None else lines, raw, strict=False):
            self._take(item, line, reading, attached)
        self._drop_cycles()

    @classmethod
    def of(cls, records: Iterable[Record]) -> Batch:
        """A batch of records that we made ourselves, each after all that it rests on."""
        batch = cls((), _NOTHING)
        for record in records:
            first = batch.records.setdefault(record.key, record)
            if first is record:
                batch._order.append(record.key)
            elif not says_the_same(first, record):
                batch.bad.append(BadRecord(record.line, "id", _clash(record, first)))
        return batch

    def copy(self) -> Batch:
        """A batch that a unit of work may take records out of, and take again when the unit is repeated."""
        twin = object.__new__(Batch)
        twin.records, twin.skipped, twin.bad = dict(self.records), self.skipped, list(self.bad)
        twin._order = self._order
        return twin

    def _take(self, item: object, line: int, reading: Reading, attached: Attached | Carried | None) -> None:
        if isinstance(item, str):
            item = item.encode(errors="surrogatepass")
        if isinstance(item, bytes) and not item.strip():
            return
        try:
            record = read_record(read_line(item) if isinstance(item, bytes) else item, line, reading)
            brings = _brought(record, attached)
        except BadField as fault:
            self.bad.append(BadRecord(line, fault.field, fault.reason))
            return
        first = self.records.setdefault(record.key, record)
        if first is not record:
            if not _same(first, record):
                self.bad.append(BadRecord(line, "id", _clash(record, first)))
                return
            self.skipped += 1
        self._take_brought(first, brings)

    def _take_brought(self, record: Record, brings: Iterable[Record]) -> None:
        for brought in brings:
            first = self.records.setdefault(brought.key, brought)
            if first is brought:
                record.brings += (brought,)
            elif _same(first, brought):
                self.skipped += 1
            else:
                self.reject(record, brought.collection.name, _clash(brought, first))
                return

    def _drop_cycles(self) -> None:
        """What is left when every record whose needs are met has been taken away lies on a cycle, or behind one."""
        waiting = {key: self._inside(record) for key, record in self.records.items()}
        needed_by: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        for key, needs in waiting.items():
            for need in needs:
                needed_by[need].append(key)
        ready = [key for key, needs in waiting.items() if not needs]
        while ready:
            done = ready.pop()
            self._order.append(done)
            del waiting[done]
            for key in needed_by[done]:
                waiting[key].discard(done)
                if not waiting[key]:
                    ready.append(key)
        for key in waiting:
            self.reject(self.records[key], "sources", "form a cycle, or rest on one")

    def _inside(self, record: Record) -> set[tuple[str, str]]:
        return {(record.org, need) for need in record.needs if (record.org, need) in self.records}

    def needs_first(self) -> Iterator[Record]:
        """The records that are left, each after all that it rests on."""
        return (self.records[key] for key in self._order if key in self.records)

    def reject(self, record: Record, field: str, reason: str) -> None:
        """Take a record out as bad."""
        self.bad.append(BadRecord(record.line, field, reason))
        for gone in (record, *record.brings):
            self.records.pop(gone.key, None)

    def refuse_bad(self) -> None:
        """Raise InvalidRecords when anything was bad: a file is taken whole or not at all."""
        if not self.bad:
            return
        bad = sorted(self.bad, key=lambda item: item.line)
        first = "; ".join(str(item) for item in bad[:_SHOWN])
        more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        raise InvalidRecords(
            f"nothing was written: {first}{more}",
            bad_total=len(bad),
            bad=[{"line": item.line, "field": item.field, "reason": item.reason} for item in bad[:_REPORTED]],
        )


def _clash(record: Record, first: Record) -> str:
    return f"{shown(record.id)} stands on line {first.line} with other content"


def _brought(record: Record, attached: Attached | Carried | None) -> list[Record]:
    if isinstance(attached, Carried):
        attached.give(record)
        return []
    if record.collection is DOCUMENTS:
        return records_of_document(record, attached)
    if not record.files:
        return []
    if attached is None:
        raise BadField("attachments", "have no folder that their paths are relative to (attachments_from)")
    return attached.records_of(record)


def says_the_same(first: Record, second: Record) -> bool:
    """Whether two records say the same, but for times that neither of them gave."""
    if (first.collection, first.identity, set(first.sources)) != (
        second.collection,
        second.identity,
        set(second.sources),
    ):
        return False
    compared = [name for name in first.values if name not in TIMES or name in first.given | second.given]
    return all(first.values[name] == second.values.get(name) for name in compared)


def _same(first: Record, second: Record) -> bool:
    """Whether two records of one file are one record; a time that neither gave is the same moment of loading."""
    return (first.collection, first.identity, first.values, set(first.sources)) == (
        second.collection,
        second.identity,
        second.values,
        set(second.sources),
    )
