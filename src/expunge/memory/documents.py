"""Documents: an original under a title, each change a version; what is pinned is not replaced or deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from expunge.authority.port import GuardKey, Statement, Tx
from expunge.datamap import DOCUMENTS
from expunge.errors import IdempotencyConflict, Pinned
from expunge.memory.drafts import again
from expunge.memory.record import Record
from expunge.memory.versions import Row, Work, by_id, current, later, written
from expunge.model.identity import PARTS, Identity
from expunge.model.ids import shown
from expunge.search.served import is_current


def write_document(
    tx: Tx, work: Work, document: Record, chunks: Sequence[Record], refs: Mapping[tuple[str, str], str]
) -> Row:
    """Write a document with its chunks as the next version of its title.

    Raises:
        Pinned: the version that stands is pinned.

    """
    work.hold(tx, DOCUMENTS, [document.values["title"]], () if document.fresh else [document.id])
    if not document.fresh and (done := by_id(tx, DOCUMENTS, document.org, document.id)) is not None:
        if any(done[name] != document.values[name] for name in ("title", "state", "sha256")):
            raise IdempotencyConflict
        return done
    before = _unpinned(tx, document.identity, document.values["title"])
    now = later(before, work.system.clock.now())
    dated = dict.fromkeys(("created_at", "recorded_at", "updated_at"), now)
    work.put(tx, [again(document, updated_at=now), *(again(chunk, **dated) for chunk in chunks)], refs)
    return written(tx, DOCUMENTS, document)


def drop_document(tx: Tx, work: Work, tombstone: Record) -> bool:
    """Write a tombstone over a title; whether there was a document.

    Raises:
        Pinned: the version that stands is pinned.

    """
    work.hold(tx, DOCUMENTS, [tombstone.values["title"]])
    before = _unpinned(tx, tombstone.identity, tombstone.values["title"])
    if before is None or before["state"] != "live":
        return False
    work.put(tx, [again(tombstone, updated_at=later(before, work.system.clock.now()))])
    return True


def _unpinned(tx: Tx, identity: Identity, title: str) -> Row | None:
    before = current(tx, DOCUMENTS, identity, title)
    if before is not None and before["pinned"]:
        raise Pinned(f"document {shown(title)} is pinned at version {before['version']}")
    return before


def pin_document(tx: Tx, work: Work, title: str, *, pinned: bool) -> Row | None:
    """Pin the version that stands, or take the pin off; ``None`` when there is none. An erasure asks no pin (law 8)."""
    work.system.check_keys(tx)
    work.hold(tx, DOCUMENTS, [title])
    row = current(tx, DOCUMENTS, work.identity, title)
    if row is None or row["state"] != "live":
        return None
    org, *stored = work.identity.stored()
    key = GuardKey(org, work.system.keys.matches(org, tuple(stored)), row["updated_at"])
    tx.guard([key], work.as_of.get(org, 0))
    tx.send(_PIN, rid=row["rid"], pinned=int(pinned))
    return row | {"pinned": int(pinned)}


def text_of(tx: Tx, row: Row) -> str:
    """The text of a document, from its chunks."""
    return "".join(text for (text,) in tx.rows(_TEXT, org=row["org"], document=row["id"]))


def documents_of(tx: Tx, identity: Identity, limit: int, after: str) -> list[Row]:
    """The documents of an identity that stand, by title, after one of them."""
    stored = dict(zip(("org", *PARTS), identity.stored(), strict=True))
    return [dict(zip(_LISTED, row, strict=True)) for row in tx.rows(_LIST, limit=limit, after=after, **stored)]


_LISTED = ("id", "title", "version", "media_type", "pinned", "bytes", "sha256", "created_at", "updated_at")
_PIN = Statement("documents.pin", "UPDATE documents SET pinned = :pinned WHERE rid = :rid")
_TEXT = Statement(
    "chunks.text",
    """SELECT r.text FROM chunks r WHERE r.org = :org AND r.document = :document AND r.marked = 0
    ORDER BY r.position""",
)
_LIST = Statement(
    "documents.list",
    f"""SELECT {", ".join(f"r.{name}" for name in _LISTED)} FROM documents r
    WHERE r.org = :org AND r.namespace = :namespace AND r.user_id = :user_id AND r.agent = :agent
    AND r.session_id = :session_id AND r.title > :after AND r.marked = 0 AND r.state = 'live'
    AND {is_current(DOCUMENTS)}
    ORDER BY r.title LIMIT :limit""",
)


def as_json(row: Row) -> dict[str, Any]:
    """What answers say of a document."""
    return {name: row[name] for name in _LISTED}
