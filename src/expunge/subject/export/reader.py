"""An export as it comes back: read whole, every hash checked before one record of it is used.

A section's hash is over its lines as they were written, so a file that was formatted anew counts as edited.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple, cast

from expunge.errors import InvalidExport
from expunge.model.ids import shown
from expunge.subject.export.containers import HEAD, JSON_NAME
from expunge.subject.export.manifest import BODIES, FORMAT, RECORD_SECTIONS, VERSION, Hashed, manifest_hash

_ZIP = b"PK\x03\x04"
_BOM = b"\xef\xbb\xbf"
_VERSION = re.compile(rb'\{"format":"%b","version":(\d{1,9})[,}]' % FORMAT.encode())
_SECTION = re.compile(rb'"([a-z_]{1,40})":\[')
_BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError)
"""What comes out of a zip, or of base64, that was damaged somewhere."""
_BODY = re.compile("bodies/[0-9]{6,20}")
_ZIP_END, _ZIP_END_BYTES = b"PK\x05\x06", 22
"""What a zip without a comment ends with, and how long it is."""
_MOST_HEAD, _MOST_LINE, _BUFFER = 100, 512 << 20, 1 << 20
"""Most bytes of the first line, and of one in a zip, where no body stands in a line."""
_MOST_BYTES = 4 << 30
"""A zip that would unpack into more than this is not read: no export of ours that fits into memory is larger."""


class Line(NamedTuple):
    """A record of an export, and the line that it stands on (from 1)."""

    number: int
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Body:
    """A body: in its line as base64, or as a file of the zip."""

    sha256: str
    bytes: int
    base64: str | None
    file: str | None


def is_export(data: bytes) -> bool:
    """Whether bytes begin as an export does; whether it is whole and unchanged, only reading it tells."""
    return data.startswith((_ZIP, b'{"format":"'), len(_BOM) if data.startswith(_BOM) else 0)


@dataclass(slots=True)
class ExportFile:
    """An export whose hashes were found to be right."""

    manifest: dict[str, Any]
    lines: list[Line]
    told: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The lines of sections that an import does not bring back: ``derived``, ``vectors``, ``audit``."""
    bodies: dict[str, Body] = field(default_factory=dict)
    archive: zipfile.ZipFile | None = None

    @classmethod
    def read(cls, data: bytes) -> ExportFile:
        """Read an export from its bytes.

        Raises:
            InvalidExport: it is not an export, of a newer version, cut short, or was edited; where, and how.

        """
        if not data.startswith(_ZIP):
            return _Reader(io.BytesIO(data.removeprefix(_BOM)), len(data)).read()
        try:
            archive = zipfile.ZipFile(io.BytesIO(data))
            _check_members(archive, data)
            with archive.open(JSON_NAME) as member:  # line by line: what is no export is not unpacked first
                found = _Reader(io.BufferedReader(cast("io.RawIOBase", member), _BUFFER), _MOST_LINE).read()
        except _BROKEN_ZIP as fault:
            raise InvalidExport(f"the zip cannot be read ({type(fault).__name__})") from None
        found.archive = archive
        return found

    def size_of(self, record_id: str) -> int | None:
        """How many bytes the body of a record has, ``None`` where the export has none."""
        body = self.bodies.get(record_id)
        return None if body is None else body.bytes

    @property
    def org(self) -> str:
        """Whose records it holds."""
        return str(self.manifest["scope"]["org"])

    def body_of(self, record_id: str) -> bytes | None:
        """The body of a record, ``None`` where the export has none.

        Raises:
            InvalidExport: it is not what the record says.

        """
        body = self.bodies.get(record_id)
        return None if body is None else self._decoded(record_id, body)

    def _decoded(self, record_id: str, body: Body) -> bytes:
        try:
            encoded = body.base64
            data = self._member(body) if encoded is None else base64.b64decode(encoded, validate=True)
        except (KeyError, *_BROKEN_ZIP):
            raise InvalidExport(f"the body of {shown(record_id)} cannot be read") from None
        if len(data) != body.bytes or hashlib.sha256(data).hexdigest() != body.sha256:
            raise InvalidExport(f"the body of {shown(record_id)} was edited")
        return data

    def _member(self, body: Body) -> bytes:
        if self.archive is None or body.file is None:
            raise KeyError(body.file)
        info = self.archive.getinfo(body.file)
        if info.file_size != body.bytes:
            raise KeyError(body.file)
        return self.archive.read(info)


def _check_members(archive: zipfile.ZipFile, data: bytes) -> None:
    """Refuse a zip that another program may read otherwise than we do, or that holds what no export holds."""
    members = archive.infolist()
    names = {member.filename for member in members}
    if JSON_NAME not in names:
        raise InvalidExport(f"the zip holds no {JSON_NAME}, so it is not an export")
    if len(names) < len(members):
        raise InvalidExport("the zip holds two files of one name")
    for member in members:
        if member.filename != JSON_NAME and _BODY.fullmatch(member.filename) is None:
            raise InvalidExport(f"the zip holds {shown(member.filename)}, which no export does")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InvalidExport(f"{member.filename} is packed in a way that no export is")
    if min(member.header_offset for member in members) > 0 or not data.startswith(_ZIP_END, -_ZIP_END_BYTES):
        raise InvalidExport("something stands before or behind the zip")
    size = archive.getinfo(JSON_NAME).file_size
    if size > _MOST_BYTES:
        raise InvalidExport(f"the zip would unpack into {size} bytes, more than {_MOST_BYTES}")


class _Reader:
    """Reads the document of an export line by line, as it was written."""

    def __init__(self, document: BinaryIO, most: int) -> None:
        self._document, self._most = document, most
        self._sections: dict[str, Hashed] = {}
        self._found = ExportFile({}, [])

    def read(self) -> ExportFile:
        head = self._head()
        lines = enumerate(self._split(), start=2)
        if head == HEAD + b"}":
            manifest = self._read_lines(lines)
        elif head == HEAD + b',"sections":{':
            manifest = self._read_document(lines)
        else:
            raise InvalidExport("line 1 is not as it was written")
        self._check(manifest)
        return self._found

    def _split(self) -> Iterator[bytes]:
        return (line.removesuffix(b"\n") for line in iter(self._line, b""))

    def _line(self) -> bytes:
        line = self._document.readline(self._most + 1)
        if len(line) > self._most:
            raise InvalidExport(f"a line has more than {self._most} bytes")
        return line

    def _head(self) -> bytes:
        """The first line, which says the version; of what is no export not more than the start is read."""
        head = self._document.readline(_MOST_HEAD).removesuffix(b"\n")
        found = _VERSION.match(head)
        if found is None:
            raise InvalidExport("the file is not an export of Expunge")
        if int(found[1]) > VERSION:
            raise InvalidExport(f"the export has version {int(found[1])}, newer than {VERSION}", hint="upgrade Expunge")
        return head

    def _read_lines(self, lines: Iterator[tuple[int, bytes]]) -> object:
        for number, line in lines:
            if line.startswith(b'{"manifest":'):
                if next(lines, None) is not None:
                    raise InvalidExport(f"line {number + 1} stands behind the manifest")
                return _object(number, line)["manifest"]
            self._take(number, line, None)
        raise InvalidExport("the export was cut short: its manifest is missing", hint="make it again")

    def _read_document(self, lines: Iterator[tuple[int, bytes]]) -> object:
        section: str | None = None
        for number, line in lines:
            if line in (b"]", b"],"):
                section = None
            elif (opened := _SECTION.fullmatch(line)) is not None:
                section = opened[1].decode()
                self._sections.setdefault(section, Hashed())
            elif line == b"},":
                return self._last(lines)
            elif section is None:
                raise InvalidExport(f"line {number} is not as it was written")
            else:
                self._take(number, line.removesuffix(b","), section)
        raise InvalidExport("the export was cut short: its manifest is missing", hint="make it again")

    def _last(self, lines: Iterator[tuple[int, bytes]]) -> object:
        number, line = next(lines, (0, b""))
        if not line.startswith(b'"manifest":') or not line.endswith(b"}}") or next(lines, None) is not None:
            raise InvalidExport("the export was cut short, or something stands behind it", hint="make it again")
        return _object(number, b"{" + line)["manifest"]

    def _take(self, number: int, line: bytes, section: str | None) -> None:
        record = _object(number, line)
        name = record.get("collection")
        if not isinstance(name, str) or (section is not None and name != section):
            raise InvalidExport(f"line {number} does not say which section it is of")
        self._sections.setdefault(name, Hashed()).add([line])
        if name == BODIES:
            self._take_body(number, record)
        elif name in RECORD_SECTIONS:
            self._found.lines.append(Line(number, record))
        else:
            self._found.told.setdefault(name, []).append(record)

    def _take_body(self, number: int, said: dict[str, Any]) -> None:
        body = Body(str(said.get("sha256")), said.get("bytes", -1), said.get("base64"), said.get("file"))
        texts = (said.get("of"), *(text for text in (body.base64, body.file) if text is not None))
        if not all(isinstance(text, str) for text in texts) or type(body.bytes) is not int:
            raise InvalidExport(f"line {number} is not a body")
        self._found.bodies[said["of"]] = body

    def _check(self, manifest: object) -> None:
        """Compare what the manifest says with what was read."""
        if not isinstance(manifest, dict) or not _has_form(manifest):
            raise InvalidExport("the manifest lacks something that every manifest has")
        if manifest.get("sha256") != manifest_hash(manifest):
            raise InvalidExport("the manifest was edited: it is not what its hash says")
        said = manifest["sections"]
        for name in said.keys() | self._sections.keys():
            found = self._sections.get(name, Hashed()).as_json()
            here = said.get(name) if isinstance(said.get(name), dict) else {}
            if here.get("count", 0) != found["count"]:
                raise InvalidExport(
                    f"section {shown(name)} has {found['count']} lines, and should have {here.get('count')}"
                )
            if here.get("sha256") != found["sha256"]:
                raise InvalidExport(f"section {shown(name)} was edited: it is not what its hash says")
        self._found.manifest = manifest


def _has_form(manifest: dict[str, Any]) -> bool:
    scope, origin = manifest.get("scope"), manifest.get("origin")
    return (
        isinstance(scope, dict)
        and isinstance(scope.get("org"), str)
        and isinstance(origin, dict)
        and isinstance(origin.get("store"), str)
        and isinstance(origin.get("exported_at"), str)
        and type(origin.get("as_of")) is int
        and isinstance(manifest.get("complete"), bool)
        and isinstance(manifest.get("sections"), dict)
    )


def _object(number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except RecursionError:
        raise InvalidExport(f"line {number} is nested too deep") from None
    except ValueError:
        raise InvalidExport(f"line {number} is not JSON: the export was edited or cut short") from None
    if not isinstance(found, dict):
        raise InvalidExport(f"line {number} is not an object")
    return found
