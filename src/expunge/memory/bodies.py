"""Bodies: bytes that lie outside the database are stored before the row that names them is written (design 2)."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping

from expunge.authority.port import GuardKey, Tx
from expunge.datamap import Collection
from expunge.errors import NotOffered, StoreFault
from expunge.memory.attachments import Attached, Carried
from expunge.memory.batch import Batch
from expunge.memory.record import Record
from expunge.memory.statements import LOCATE
from expunge.stores import BodyStore, Permit
from expunge.stores.port import Filing
from expunge.system import System

Refs = dict[tuple[str, str], str]
"""Where the body of each record lies, by org and id."""


async def store_bodies(
    system: System, batch: Batch, attached: Attached | Carried | None, as_of: Mapping[str, int]
) -> Refs:
    """Store the bodies of the records in a batch that are not there yet, each filed under whose it is.

    A body carries the ``seq`` of its unit of work, so that an erasure tells one that a refused unit left behind from
    one that was written after it (law 4).

    Raises:
        ErasureInProgress, ErasedSince: a fence refuses the unit, so nothing was stored.
        NotOffered: there is no place for them.
        InputError: a file has changed since the batch was read.
        DiskFull, StoreFault: they could not be stored; none of them is left.

    """
    wanted = [record for record in batch.records.values() if has_body(record)]
    if not wanted:
        return {}
    here = await system.authority.read(lambda tx: _look(tx, system, wanted, as_of))
    refs: Refs = {}
    try:
        for record in wanted:
            if record.key not in here:
                parts = system.keys.filed_under(record.identity)
                filing = Filing(record.org, parts, record.dated, as_of.get(record.org, 0))
                body = _piece(record.body) if record.body is not None else _of_file(attached, record)
                refs[record.key] = await _store_of(system, record.collection).put(filing, body)
    except BaseException:
        await discard(system, batch, refs)
        raise
    return refs


def has_body(record: Record) -> bool:
    """Whether a record comes with bytes that lie outside the database."""
    return record.collection.body_in is not None and (bool(record.files) or record.body is not None)


async def discard(system: System, batch: Batch, refs: Refs) -> None:
    """Remove bodies that no row came to name. What cannot be removed now is found by the next erasure of its scope."""
    unwanted: dict[Collection, list[str]] = defaultdict(list)
    for key, ref in refs.items():
        unwanted[batch.records[key].collection].append(ref)
    for kind, here in unwanted.items():
        with contextlib.suppress(StoreFault, TimeoutError):
            await _store_of(system, kind).remove(here, Permit("records.put", 0))


def _store_of(system: System, kind: Collection) -> BodyStore:
    store = system.bodies.get(kind.name)
    if store is None:
        raise NotOffered(f"there is no place for the bodies of {kind.name}", hint="set objects to a folder")
    return store


async def _piece(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _of_file(attached: Attached | Carried | None, record: Record) -> AsyncIterator[bytes]:
    if attached is None:  # a batch refuses files without their folder
        raise NotOffered("there is no folder that paths are relative to")
    return attached.read(record)


def _look(tx: Tx, system: System, wanted: Iterable[Record], as_of: Mapping[str, int]) -> set[tuple[str, str]]:
    """Which of them are there. The write guards again; this keeps bodies out of a scope while it is erased."""
    system.check_keys(tx)
    for record in wanted:
        org, *stored = record.identity.stored()
        tx.guard([GuardKey(org, system.keys.matches(org, tuple(stored)), record.dated)], as_of.get(org, 0))
    return _present(tx, [record.key for record in wanted])


def _present(tx: Tx, keys: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    by_org: dict[str, list[str]] = defaultdict(list)
    for org, record_id in keys:
        by_org[org].append(record_id)
    return {(org, row[1]) for org, ids in by_org.items() for row in tx.rows(LOCATE, org=org, ids=json.dumps(ids))}
