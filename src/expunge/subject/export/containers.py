"""The three forms of an export. Each line of a section is the same bytes in all of them, so hashes are too.

``json`` is one JSON document with a line for each record; ``jsonl`` has a header, a line for each record, and the
manifest; ``zip`` holds the first as ``export.json`` and each body as a file of its own, named by a number (law 14).
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from datetime import datetime
from io import RawIOBase
from typing import Protocol

from expunge.model.instant import Instant, to_datetime
from expunge.subject.export.manifest import FORMAT, VERSION, Format

HEAD = b'{"format":"%b","version":%d' % (FORMAT.encode(), VERSION)
JSON_NAME, BODY_NAME = "export.json", "bodies/{:06}"


class Container(Protocol):
    """How an export is laid out. Every method gives the bytes that come next."""

    media_type: str
    inline: bool
    """Whether a body stands in its line; else it follows as a file."""

    def begin(self) -> bytes:
        """The start of the file."""
        ...

    def section(self, name: str) -> bytes:
        """The start of a section."""
        ...

    def line(self) -> bytes:
        """What stands before a line."""
        ...

    def lines(self, lines: Sequence[bytes]) -> bytes:
        """Whole lines."""
        ...

    def part(self, part: bytes) -> bytes:
        """A part of a line that ``line`` began."""
        ...

    def line_end(self) -> bytes:
        """What stands behind a line."""
        ...

    def manifest(self, manifest: bytes) -> bytes:
        """The manifest, after which no section follows."""
        ...

    def file(self, name: str) -> bytes:
        """The start of a body's file."""
        ...

    def piece(self, piece: bytes) -> bytes:
        """A piece of the body that ``file`` began."""
        ...

    def end(self) -> bytes:
        """The end of the file."""
        ...


class JsonLines:
    """A header, one line for each record, and the manifest as the last one."""

    media_type = "application/jsonl"
    inline = True

    def begin(self) -> bytes:
        """The header."""
        return HEAD + b"}\n"

    def section(self, name: str) -> bytes:
        """Nothing: each line names its section."""
        del name
        return b""

    def line(self) -> bytes:
        """Nothing."""
        return b""

    def lines(self, lines: Sequence[bytes]) -> bytes:
        """The lines."""
        return b"\n".join(lines) + b"\n" if lines else b""

    def part(self, part: bytes) -> bytes:
        """The part."""
        return part

    def line_end(self) -> bytes:
        """A newline."""
        return b"\n"

    def manifest(self, manifest: bytes) -> bytes:
        """The last line."""
        return b'{"manifest":%b}\n' % manifest

    def file(self, name: str) -> bytes:
        """There are no files in it."""
        raise NotImplementedError(name)

    def piece(self, piece: bytes) -> bytes:
        """There are no files in it."""
        raise NotImplementedError(str(len(piece)))

    def end(self) -> bytes:
        """Nothing."""
        return b""


class JsonDocument(JsonLines):
    """One JSON document: its sections, each a list with a record a line, and its manifest."""

    media_type = "application/json"

    def __init__(self) -> None:
        self._sections = self._lines = 0

    def begin(self) -> bytes:
        """The header, and the start of the sections."""
        return HEAD + b',"sections":{'

    def section(self, name: str) -> bytes:
        """The end of the section before it, and its name."""
        before = b"\n]," if self._sections else b""
        self._sections, self._lines = self._sections + 1, 0
        return before + b'\n"%b":[' % name.encode()

    def line(self) -> bytes:
        """A comma behind the line before it."""
        self._lines += 1
        return b"\n" if self._lines == 1 else b",\n"

    def lines(self, lines: Sequence[bytes]) -> bytes:
        """The lines, with commas between them."""
        if not lines:
            return b""
        first = self.line()
        self._lines += len(lines) - 1
        return first + b",\n".join(lines)

    def line_end(self) -> bytes:
        """Nothing: a comma follows only where another line does."""
        return b""

    def manifest(self, manifest: bytes) -> bytes:
        """The end of the sections, and the manifest."""
        return (b"\n]" if self._sections else b"") + b'\n},\n"manifest":%b}\n' % manifest


class _Tap(RawIOBase):
    """What a zip is written into: it is taken out in pieces, and never looked back at."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        self._held.append(piece)
        return len(piece)

    def drain(self) -> bytes:
        held, self._held = b"".join(self._held), []
        return held


class _Unclosed(zipfile.ZipFile):
    """A zip that may be left half written: nothing is open for it, and its own end would complain on stderr."""

    def __del__(self) -> None:
        pass


class Zip(JsonDocument):
    """A zip of the JSON document and the bodies."""

    media_type = "application/zip"
    inline = False

    def __init__(self, exported_at: Instant) -> None:
        super().__init__()
        self._tap = _Tap()
        self._zip = _Unclosed(self._tap, "w", zipfile.ZIP_DEFLATED)
        self._at = _zip_time(to_datetime(exported_at))
        self._open = self._zip.open(self._member(JSON_NAME), "w", force_zip64=True)

    def _member(self, name: str) -> zipfile.ZipInfo:
        member = zipfile.ZipInfo(name, self._at)
        member.compress_type = zipfile.ZIP_DEFLATED
        member.external_attr = 0o600 << 16
        return member

    def _put(self, data: bytes) -> bytes:
        self._open.write(data)
        return self._tap.drain()

    def begin(self) -> bytes:
        """The header, and the start of the sections."""
        return self._put(super().begin())

    def section(self, name: str) -> bytes:
        """The end of the section before it, and its name."""
        return self._put(super().section(name))

    def lines(self, lines: Sequence[bytes]) -> bytes:
        """The lines, with commas between them."""
        return self._put(super().lines(lines))

    def manifest(self, manifest: bytes) -> bytes:
        """The end of the document."""
        data = self._put(super().manifest(manifest))
        self._open.close()
        return data + self._tap.drain()

    def file(self, name: str) -> bytes:
        """The start of a body's file."""
        self._open.close()
        self._open = self._zip.open(self._member(name), "w", force_zip64=True)
        return self._tap.drain()

    def piece(self, piece: bytes) -> bytes:
        """A piece of the body."""
        return self._put(piece)

    def end(self) -> bytes:
        """The directory of the zip."""
        self._open.close()
        self._zip.close()
        return self._tap.drain()


def _zip_time(at: datetime) -> tuple[int, int, int, int, int, int]:
    """A zip knows the years 1980 to 2107."""
    return (min(max(at.year, 1980), 2107), at.month, at.day, at.hour, at.minute, at.second)


def container(form: Format, exported_at: Instant) -> Container:
    """The container of a form."""
    if form == "zip":
        return Zip(exported_at)
    return JsonDocument() if form == "json" else JsonLines()
