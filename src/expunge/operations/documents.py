"""``documents.*``: originals, their versions, and the pin."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from expunge.authority.port import Tx
from expunge.datamap import DOCUMENTS
from expunge.errors import InputError, NotOffered
from expunge.memory import Attached, Batch, discard, prepare, store_bodies
from expunge.memory.documents import as_json, documents_of, drop_document, pin_document, text_of, write_document
from expunge.memory.drafts import draft, id_for
from expunge.memory.originals import records_of_document
from expunge.memory.record import BadField
from expunge.memory.versions import Row, Work, current, versions
from expunge.model.instant import to_datetime
from expunge.operations.memory import MOST_AT_ONCE, IdempotencyKey
from expunge.operations.registry import Call, Output, Text, Who, id_of
from expunge.system import System

Title = Annotated[str, id_of("title")]


class DocumentInput(Who):
    """A document: its title, and its text, or a file (with its text, if somebody has read that out of it)."""

    title: Title
    text: str | None = None
    path: Path | None = None
    media_type: str | None = None
    sources: Sequence[str] = ()
    idempotency_key: IdempotencyKey | None = None


class Document(Output):
    """A version of a document: of how many bytes, with which SHA-256."""

    id: str
    title: str
    version: int
    media_type: str | None
    pinned: bool
    bytes: int
    sha256: str
    created_at: datetime
    updated_at: datetime


def document_of(row: Row) -> Document:
    """A row as answers give it."""
    values = as_json(row) | {"pinned": bool(row["pinned"])}
    values |= {name: to_datetime(row[name]) for name in ("created_at", "updated_at")}
    return Document(**values)


async def add(system: System, call: Call, given: DocumentInput) -> Document:
    """Write a document as the next version of its title: its original, its row and its chunks, or nothing."""
    identity = given.identity
    fields: dict[str, Any] = given.model_dump(include={"title", "text", "media_type", "sources"})
    attached = None
    if given.path is not None:
        attached = Attached(given.path.parent, system.settings.max_attachment_bytes)
        fields["path"] = given.path.name
    fields["id"] = id_for(DOCUMENTS, identity, given.idempotency_key)
    document = draft(system, DOCUMENTS, identity, fields)
    try:
        chunks = records_of_document(document, attached)
    except BadField as fault:
        raise InputError(f"nothing was written: {fault.field} {fault.reason}") from None
    await prepare(system, chunks)
    batch = Batch.of([document])
    refs = await store_bodies(system, batch, attached, call.as_of)
    work = Work(system, identity, call.as_of)

    def unit(tx: Tx) -> Row:
        return write_document(tx, work, document, chunks, refs)

    try:
        row = await system.authority.run(unit)
    except Exception:  # not when it is cancelled: the unit goes on in its thread, and its row may name the body
        await discard(system, batch, refs)
        raise
    await discard(system, batch, {key: ref for key, ref in refs.items() if ref != row["ref"]})
    return document_of(row)


class TitleInput(Who):
    """Whose document, by title; a version, or the one that stands."""

    title: Title
    version: int | None = Field(None, ge=1, le=2**62)


class DocumentOutput(Output):
    """A document with its text; not ``found`` when there is none, or it was deleted or erased."""

    found: bool
    document: Document | None
    text: str | None


async def get(system: System, _call: Call, given: TitleInput) -> DocumentOutput:
    """Read a document: what stands, or a version of it."""

    def unit(tx: Tx) -> tuple[Row | None, str | None]:
        row = _version(tx, given)
        return (None, None) if row is None else (row, text_of(tx, row))

    row, text = await system.authority.read(unit)
    return DocumentOutput(found=row is not None, document=None if row is None else document_of(row), text=text)


def _version(tx: Tx, given: TitleInput) -> Row | None:
    if given.version is None:
        row = current(tx, DOCUMENTS, given.identity, given.title)
    else:
        rows = versions(tx, DOCUMENTS, given.identity, given.title, limit=1, below=given.version + 1)
        row = rows[0] if rows and rows[0]["version"] == given.version else None
    return row if row is not None and row["state"] == "live" else None


class OriginalOutput(Output):
    """The bytes of a document as it came."""

    found: bool
    data: bytes | None


async def original(system: System, _call: Call, given: TitleInput) -> OriginalOutput:
    """Read the original of a document."""
    row = await system.authority.read(lambda tx: _version(tx, given))
    if row is None:
        return OriginalOutput(found=False, data=None)
    store = system.bodies.get(DOCUMENTS.name)
    if store is None:
        raise NotOffered("there is no place for the originals of documents", hint="set objects to a folder")
    return OriginalOutput(found=True, data=b"".join([piece async for piece in store.read(row["ref"])]))


class DocumentsInput(Who):
    """Whose documents, after a title."""

    limit: int = Field(50, ge=1, le=MOST_AT_ONCE)
    after: Text = ""


class DocumentsOutput(Output):
    """Documents by title; ``next`` when there are more."""

    documents: list[Document]
    next: str | None


async def listing(system: System, _call: Call, given: DocumentsInput) -> DocumentsOutput:
    """List the documents of an identity."""
    read = partial(documents_of, identity=given.identity, limit=given.limit + 1, after=given.after)
    rows = await system.authority.read(read)
    more = len(rows) > given.limit
    found = [document_of(row) for row in rows[: given.limit]]
    return DocumentsOutput(documents=found, next=found[-1].title if more else None)


class PinInput(Who):
    """Whose document, and whether it is to be pinned."""

    title: Title
    pinned: bool = True


class FoundOutput(Output):
    """Whether there was such a document."""

    found: bool


async def pin(system: System, call: Call, given: PinInput) -> FoundOutput:
    """Pin the version that stands: it is not replaced or deleted until the pin is off. An erasure asks no pin."""
    work = Work(system, given.identity, call.as_of)
    row = await system.authority.run(partial(pin_document, work=work, title=given.title, pinned=given.pinned))
    return FoundOutput(found=row is not None)


async def delete(system: System, call: Call, given: TitleInput) -> FoundOutput:
    """Write a tombstone over a document; its earlier versions stay on disk."""
    tombstone = draft(system, DOCUMENTS, given.identity, {"title": given.title, "state": "tombstoned"})
    tombstone.values |= {"bytes": 0, "sha256": ""}
    work = Work(system, given.identity, call.as_of)
    return FoundOutput(found=await system.authority.run(partial(drop_document, work=work, tombstone=tombstone)))
