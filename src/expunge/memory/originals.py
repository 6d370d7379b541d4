"""Documents: the original as it came, and its text in chunks, which search finds."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from collections.abc import Iterator

from expunge.datamap import CHUNKS
from expunge.memory.attachments import Attached
from expunge.memory.record import BadField, Record
from expunge.model.canonical import canonical_plain

CHUNK_CHARS = 1200
"""The most characters of a chunk: a few paragraphs, so that what is found is what was looked for."""

_CUTS = tuple(re.compile(pattern) for pattern in (r"\n\s*\n", r"\n", r"(?<=[.!?\u3002])\s+", r"\s+"))
"""Where a text may be cut, the best places first."""


def records_of_document(document: Record, attached: Attached | None) -> list[Record]:
    """Describe the original of a document, and make the records of its chunks.

    A file that is not UTF-8 has no chunks unless its text comes with it: it is kept, and search does not find it.

    Raises:
        BadField: the file cannot be read, is too large, or lies outside the folder.

    """
    text, data = document.text, b""
    if document.files:
        if attached is None:
            raise BadField("path", "has no folder that it is relative to (attachments_from)")
        data = b"".join(attached.pieces(document.files[0]))
        text = _decoded(data) if text is None else text
        document.values["media_type"] = document.values["media_type"] or mimetypes.guess_type(document.files[0])[0]
    elif text is not None:
        data = document.body = text.encode()
    document.values |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return [_chunk(document, position, piece) for position, piece in enumerate(pieces_of(text or ""))]


def _decoded(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _chunk(document: Record, position: int, text: str) -> Record:
    name = hashlib.sha256(canonical_plain([document.id, str(position)])).hexdigest()[:32]
    return Record(
        line=document.line,
        collection=CHUNKS,
        id="ch-" + name,
        identity=document.identity,
        values={
            **dict.fromkeys(("created_at", "recorded_at", "updated_at"), document.dated),
            "document": document.id,
            "position": position,
            "text": text,
        },
        sources=(),
        given=frozenset(),
        fresh=document.fresh,
    )


def pieces_of(text: str) -> Iterator[str]:
    """A text in pieces of at most ``CHUNK_CHARS``, cut where it pauses longest; together they are the text."""
    start = 0
    while len(text) - start > CHUNK_CHARS:
        end = start + _cut(text[start : start + CHUNK_CHARS])
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _cut(window: str) -> int:
    """The last of the best places to cut that leaves at least half of a window."""
    for pattern in _CUTS:
        ends = [found.end() for found in pattern.finditer(window) if 2 * found.end() >= len(window)]
        if ends:
            return ends[-1]
    return len(window)
