"""Which texts of an export are looked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from expunge.datamap import COLLECTIONS, Collection, Kind, Role
from expunge.errors import InputError
from expunge.memory.prepare import strings_in
from expunge.residue.needles import Needle, size_of
from expunge.subject.export import ExportFile

_HINT = "give a file that an export has written, or texts with --texts-from"
_KNOWN = {kind.name: kind for kind in COLLECTIONS}


def read_export(data: bytes, least: int) -> tuple[list[Needle], int]:
    """The texts of an export that have at least so many bytes, each once, and how many were shorter.

    They are the content of the records, the ids of the records, and the ids of the users.

    Raises:
        InvalidExport: it is no export, or not as it was written.
        InputError: it holds no text that is long enough.

    """
    texts: dict[str, str | None] = {}
    short: set[str] = set()
    for line in ExportFile.read(data).lines:
        section, record = line.record["collection"], line.record
        whole = searched_text(section, record)
        for text in content_of(section, record):
            if size_of(text, len(texts) + 1) < least:
                short.add(text)
            elif texts.get(text) is None:
                texts[text] = whole
    if not texts:
        raise InputError(f"the export holds no text of {least} bytes and more", hint=_HINT)
    needles = [Needle(number, text, whole) for number, (text, whole) in enumerate(texts.items(), start=1)]
    return needles, len(short)


def content_of(section: str, record: dict[str, Any]) -> Iterator[str]:
    """The texts of a record: what its collection declares as content; of one that is not known, all that it holds."""
    for name in ("id", "user_id"):
        if isinstance(record.get(name), str):
            yield record[name]
    kind = _KNOWN.get(section)
    names = record.keys() - {"id", "user_id"} if kind is None else _content_names(kind)
    for name in sorted(names):
        yield from _leaves(record.get(name))


def searched_text(section: str, record: dict[str, Any]) -> str | None:
    """The text by which the embedder knew the record, for a record that search finds."""
    kind = _KNOWN.get(section)
    if kind is None or not kind.searched:
        return None
    texts: list[str] = []
    for name in kind.searched:
        texts += strings_in(record.get(name))
    return "\n".join(texts)


def _content_names(kind: Collection) -> set[str]:
    return {
        column.name
        for column in kind.content
        if column.role is Role.CONTENT and not column.choices and column.kind in (Kind.TEXT, Kind.KEY, Kind.JSON)
    }


def _leaves(value: object) -> Iterator[str]:
    """Every text inside of some JSON; the names in it are not what somebody wrote."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
