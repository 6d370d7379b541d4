"""Decoding what a body compresses, within bounds, and telling what cannot be looked into.

Decoded bytes stay in memory: a temporary file would leave somebody's words where nobody looks for them.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Protocol

import numpy as np

MOST_DECODED = 256 * 1024 * 1024
"""How many decoded bytes of one body are looked at; beyond it what stands there is unknown."""
MOST_NESTED = 32 * 1024 * 1024
"""How large a decoded piece may be to be decoded again, because it is held in memory for it."""
DEEPEST = 4
_PIECE = 1 << 20
_HEAD = 64 * 1024
_FEW = 1024
_PRINTED = frozenset(b"\t\n\r" + bytes(range(32, 127)))
_MOSTLY = 0.8
"""With so many printed signs of ASCII it is a text in an older encoding."""
_TANGLED = 7.5
"""Bits of entropy a byte: text has 4 to 6, compressed and encrypted data nearly 8."""


class Readable(Protocol):
    """What can be read from its beginning to its end, and closed."""

    def read(self, size: int = -1, /) -> bytes:
        """So many bytes or fewer; none at the end."""
        ...


_OPENERS: dict[bytes, tuple[str, Callable[[IO[bytes]], gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile]]] = {
    b"\x1f\x8b": ("gzip", lambda stream: gzip.GzipFile(fileobj=stream)),
    b"BZh": ("bzip2", bz2.BZ2File),
    b"\xfd7zXZ\0": ("xz", lzma.LZMAFile),
}
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_SEALED = {
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!": "RAR",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"\x04\x22\x4d\x18": "LZ4",
    b"%PDF-": "PDF",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an office format of before 2007",
    b"Salted__": "encrypted by OpenSSL",
    b"age-encryption.org/": "encrypted by age",
    b"-----BEGIN PGP MESSAGE": "encrypted by PGP",
    b"MSCF": "CAB",
}
_PICTURES = {
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF8": "GIF",
    b"RIFF": "RIFF (sound, video or WebP)",
    b"OggS": "Ogg",
    b"ID3": "MP3",
    b"fLaC": "FLAC",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
}
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, ValueError, RuntimeError)
"""What the decoders of the standard library raise at what is damaged, encrypted, or of a kind that they do not know."""


Seen = Callable[[Readable, str | None], None]
"""Takes what may be looked through to its end, and the name of what it lies in."""


@dataclass(slots=True)
class Opener:
    """Looks through a body and all that it compresses; what cannot be decoded is noted in ``unknown``."""

    seen: Seen
    unknown: list[str] = field(default_factory=list)
    not_text: str | None = None
    """What a body is that holds no text to be read, such as a picture."""
    _left: int = MOST_DECODED

    def open(self, stream: IO[bytes]) -> None:
        """Look through a body, which can be read from any place."""
        self._look(stream, None, 0)

    def _look(self, stream: IO[bytes], within: str | None, depth: int) -> None:
        head = stream.read(_HEAD)
        stream.seek(0)
        self.seen(stream, within)
        stream.seek(0)
        opener = next((opener for magic, opener in _OPENERS.items() if head.startswith(magic)), None)
        if opener is not None or head.startswith(_ZIP):
            if depth == DEEPEST:
                self._note(f"it is packed more than {DEEPEST} times")
            elif opener is None:
                self._zip(stream, within, depth)
            else:
                name, decode = opener
                self._unpack(lambda: decode(stream), _inside(within, name), depth)
        elif sealed := next((name for magic, name in _SEALED.items() if head.startswith(magic)), None):
            self._note(f"it is {sealed}, which is not decoded here")
        elif picture := next((name for magic, name in _PICTURES.items() if head.startswith(magic)), None):
            self.not_text = self.not_text or picture
        elif not _is_text(head) and (why := _tangled(head)):
            self._note(why)

    def _zip(self, stream: IO[bytes], within: str | None, depth: int) -> None:
        try:
            with zipfile.ZipFile(stream) as packed:
                for number, member in enumerate(packed.infolist(), start=1):
                    if not member.is_dir():
                        name = _inside(within, f"zip, member {number}")
                        self._unpack(lambda member=member: packed.open(member), name, depth)  # type: ignore[misc]
        except _BROKEN:
            self._note("its zip cannot be read")

    def _unpack(
        self, decode: Callable[[], contextlib.AbstractContextManager[Readable]], within: str, depth: int
    ) -> None:
        try:
            with decode() as decoded:
                start = decoded.read(min(MOST_NESTED, self._left) + 1)
                if len(start) <= MOST_NESTED:
                    if not self._spend(len(start)):
                        start = start[:-1]
                    self._look(io.BytesIO(start), within, depth + 1)
                else:
                    self._stream(start, decoded, within)
        except _BROKEN:
            self._note(f"what it packs ({within}) cannot be decoded: damaged, encrypted, or of a kind not known")

    def _stream(self, start: bytes, decoded: Readable, within: str) -> None:
        """What is too large to be held is looked through as it comes, and not decoded again."""
        if start.startswith((*_OPENERS, *_ZIP, *_SEALED)):
            self._note(f"what it packs ({within}) is packed again, and larger than {MOST_NESTED} bytes")
        self.seen(_Rest(self._pieces(start, decoded)), within)

    def _pieces(self, start: bytes, decoded: Readable) -> Iterator[bytes]:
        piece = start
        while piece and self._spend(len(piece)):
            yield piece
            piece = decoded.read(min(_PIECE, self._left + 1))

    def _spend(self, size: int) -> bool:
        self._left -= size
        if self._left < 0:
            self._left = 0
            self._note(f"it decodes to more than {MOST_DECODED} bytes")
            return False
        return True

    def _note(self, why: str) -> None:
        if why not in self.unknown:
            self.unknown.append(why)


class _Rest:
    """Reads pieces as a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def read(self, _size: int = -1, /) -> bytes:
        return next(self._pieces, b"")


def _inside(within: str | None, name: str) -> str:
    return name if within is None else f"{within}, {name}"


def _is_text(head: bytes) -> bool:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    try:
        head.decode()
    except UnicodeDecodeError as fault:
        return len(head) - fault.start < 4  # noqa: PLR2004 (a sign that the piece cuts)
    return True


def _tangled(head: bytes) -> str | None:
    """Why a body may be compressed or encrypted in a way that has no mark."""
    if sum(byte in _PRINTED for byte in head) > _MOSTLY * len(head):
        return None
    if len(head) < _FEW:
        return "it is no text, and too short to tell whether it is compressed or encrypted"
    shares = np.bincount(np.frombuffer(head, np.uint8), minlength=256) / len(head)
    entropy = -sum(share * math.log2(share) for share in shares.tolist() if share)
    return "it is no text, and looks compressed or encrypted" if entropy > _TANGLED else None
