"""Reading an export of records: which texts of it are looked for.

An export is one JSON object with ``sections``, or JSON lines of ``section`` and ``record``, or a zip that has one of
these as ``export.json``; its records have the fields of ``docs/load-format.md``.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

from expunge.datamap import COLLECTIONS, Collection, Kind, Role
from expunge.errors import InputError
from expunge.memory.prepare import strings_in
from expunge.residue.needles import Needle, size_of

_MEMBER = "export.json"
_HINT = "give a file that an export has written, or texts with --texts-from"
_KNOWN = {kind.name: kind for kind in COLLECTIONS}
_FURTHER = {"documents": ("text",)}
"""What a record brings besides its columns."""


def read_export(data: bytes, least: int) -> tuple[list[Needle], int]:
    """The texts of an export that have at least so many bytes, each once, and how many were shorter.

    They are the content of the records, the ids of the records, and the ids of the users.

    Raises:
        InputError: it is no export, or holds no text that is long enough.

    """
    texts: dict[str, str | None] = {}
    short: set[str] = set()
    for section, record in records_of(data):
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


def records_of(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of an export, each with the section that it stands in.

    Raises:
        InputError: it is none.

    """
    text = _unpacked(data).removeprefix(b"\xef\xbb\xbf")
    whole: Any
    lines: list[Any]
    try:
        whole = json.loads(text)
        if isinstance(whole, dict) and isinstance(whole.get("sections"), dict):
            lines = [{"section": name, "record": record} for name, here in whole["sections"].items() for record in here]
        else:
            lines = [whole]
    except ValueError:
        try:
            lines = [json.loads(line) for line in text.split(b"\n") if line.strip()]
        except ValueError:
            raise InputError("this is no export: it is no JSON", hint=_HINT) from None
    for line in lines:
        if isinstance(line, dict) and isinstance(line.get("record"), dict) and isinstance(line.get("section"), str):
            yield line["section"], line["record"]
        elif not (isinstance(line, dict) and "manifest" in line):
            raise InputError("this is no export: it has no records in sections", hint=_HINT)


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(b"PK"):
        return data
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            return packed.read(_MEMBER)
    except (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError, OSError):
        raise InputError(f"this is no export: the zip holds no {_MEMBER} that can be read", hint=_HINT) from None


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
    own = {
        column.name
        for column in kind.content
        if column.role is Role.CONTENT and not column.choices and column.kind in (Kind.TEXT, Kind.KEY, Kind.JSON)
    }
    return own | set(_FURTHER.get(kind.name, ()))


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
