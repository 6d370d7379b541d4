"""Blocks: an agent's working memory, by name and in an order; durable, and each change a version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from expunge.authority.port import Statement, Tx
from expunge.datamap import BLOCKS
from expunge.errors import IdempotencyConflict, InputError
from expunge.memory.drafts import again
from expunge.memory.record import Record
from expunge.memory.versions import Row, Work, by_id, current, later, sources_of, written
from expunge.model.identity import PARTS, Identity
from expunge.search.served import is_current


def write_block(tx: Tx, work: Work, record: Record, *, append: bool, keep_order: bool) -> Row:
    """Write a block as the next version of its name. Appended to, it rests on what it rested on before, too (law 5)."""
    work.hold(tx, BLOCKS, [record.values["name"]], () if record.fresh else [record.id])
    if not record.fresh and (done := by_id(tx, BLOCKS, record.org, record.id)) is not None:
        text, said = done["content"] or "", record.values["content"] or ""
        if done["name"] != record.values["name"] or not (text.endswith(said) if append else text == said):
            raise IdempotencyConflict
        return done
    before = current(tx, BLOCKS, record.identity, record.values["name"])
    live = before if before is not None and before["state"] == "live" else None
    changes: dict[str, Any] = {"updated_at": later(before, work.system.clock.now())}
    if live is not None and keep_order:
        changes["pinned_order"] = live["pinned_order"]
    if append and live is not None:
        changes["content"] = (live["content"] or "") + (record.values["content"] or "")
        most = work.system.settings.max_value_bytes
        if len(changes["content"].encode()) > most:
            raise InputError(f"the block would have more than {most} bytes (max_value_bytes), so nothing was written")
        sources, rule = sources_of(tx, record.org, live["id"])
        record = replace(record, sources=tuple(dict.fromkeys((*sources, *record.sources))), rule=record.rule or rule)
    work.put(tx, [again(record, **changes)])
    return written(tx, BLOCKS, record)


def drop_block(tx: Tx, work: Work, record: Record) -> bool:
    """Write a tombstone over a block; whether there was one."""
    work.hold(tx, BLOCKS, [record.values["name"]])
    before = current(tx, BLOCKS, record.identity, record.values["name"])
    if before is None or before["state"] != "live":
        return False
    now = later(before, work.system.clock.now())
    work.put(tx, [again(record, state="tombstoned", content=None, updated_at=now)])
    return True


_WORKING = Statement(
    "blocks.working",
    f"""SELECT r.name, r.content, r.version, r.updated_at, r.pinned_order FROM blocks r
    WHERE r.org = :org AND r.user_id = :user_id AND unindexed(r.namespace) = :namespace AND unindexed(r.agent) = :agent
    AND unindexed(r.session_id) = :session_id AND r.marked = 0 AND r.state = 'live'
    AND {is_current(BLOCKS)}
    ORDER BY r.pinned_order IS NULL, r.pinned_order, r.name""",
)


def working(tx: Tx, identity: Identity) -> list[Row]:
    """The blocks of an identity in their order: those with a number by it, then the others by name."""
    stored = dict(zip(("org", *PARTS), identity.stored(), strict=True))
    columns = ("name", "content", "version", "updated_at", "pinned_order")
    return [dict(zip(columns, row, strict=True)) for row in tx.rows(_WORKING, **stored)]
