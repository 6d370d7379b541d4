"""Bodies: the bytes of attachments are stored before the row that names them is written (design 2, stores)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping

from expunge.authority.port import GuardKey, Tx
from expunge.errors import NotOffered, StoreFault
from expunge.memory.attachments import Attached, attachments_among
from expunge.memory.batch import Batch
from expunge.memory.record import Record
from expunge.memory.statements import LOCATE
from expunge.stores import Permit
from expunge.stores.port import Filing
from expunge.system import System

Refs = dict[tuple[str, str], str]
"""Where the body of each attachment lies, by org and id."""


async def store_bodies(system: System, batch: Batch, attached: Attached | None, as_of: Mapping[str, int]) -> Refs:
    """Store the bodies of the attachments in a batch that are not there yet, each filed under whose it is.

    A body carries the ``seq`` of its unit of work, so that an erasure tells one that a refused unit left behind from
    one that was written after it (law 4).

    Raises:
        ErasureInProgress, ErasedSince: a fence refuses the unit, so nothing was stored.
        NotOffered: there is no place for attachments.
        InputError: a file has changed since the batch was read.
        DiskFull, StoreFault: they could not be stored; none of them is left.

    """
    wanted = attachments_among(batch.records.values())
    if not wanted or attached is None:
        return {}
    store = system.bodies
    if store is None:
        raise NotOffered("a database in memory has no place for attachments", hint="set objects to a folder")
    here = await system.authority.read(lambda tx: _look(tx, system, wanted, as_of))
    refs: Refs = {}
    try:
        for record in wanted:
            if record.key not in here:
                parts = system.keys.filed_under(record.identity)
                filing = Filing(record.org, parts, record.dated, as_of.get(record.org, 0))
                refs[record.key] = await store.put(filing, attached.read(record))
    except BaseException:
        await discard(system, refs.values())
        raise
    return refs


async def discard(system: System, refs: Iterable[str]) -> None:
    """Remove bodies that no row came to name. What cannot be removed now is found by the next erasure of its scope."""
    unwanted = list(refs)
    if unwanted and system.bodies is not None:
        try:
            await system.bodies.remove(unwanted, Permit("records.put", 0))
        except (StoreFault, TimeoutError):
            return


def _look(tx: Tx, system: System, wanted: Iterable[Record], as_of: Mapping[str, int]) -> set[tuple[str, str]]:
    """Which attachments are there. The write guards again; this keeps bodies out of a scope while it is erased."""
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
