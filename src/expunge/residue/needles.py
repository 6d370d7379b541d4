"""What is looked for: each text in every form in which it may stand in a file, and the pieces of a long one.

In a database a long text does not stand in one piece: what does not fit into a page goes on in another one, which
need not be the next. So a text of 48 bytes and more is also looked for by pieces of 24, chosen so that one of them
lies whole on one side of any break.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from expunge.errors import InputError

SHORTEST = 4
"""Bytes of UTF-8 that a text has to have at least: fewer stand in any file by chance."""
LEAST_EXPORTED = 8
"""The same for what is taken from an export, unless the caller says otherwise."""
LONGEST = 64 * 1024
"""A longer form is looked for by its beginning of this length, and in the database by its pieces as well."""
_PIECE, _PIECES_FROM, _PIECE_EVERY = 24, 48, 512


class Form(StrEnum):
    """How a text stands in a file."""

    PLAIN = "UTF-8"
    ESCAPED = "JSON-escaped"
    UTF16_LE = "UTF-16 LE"
    UTF16_BE = "UTF-16 BE"
    DIGEST = "SHA-256"
    DIGEST_HEX = "SHA-256 in hex"
    VECTOR = "vector"
    WORDS = "hashes of its words"


@dataclass(frozen=True, slots=True)
class Needle:
    """A text to look for; ``number`` is its place in what was given, and all that an answer tells of it.

    ``record`` is the text of the whole record that it came from, as the embedder was given it.
    """

    number: int
    text: str
    record: str | None = None

    @property
    def size(self) -> int:
        """Its bytes in UTF-8."""
        return len(self.text.encode())


@dataclass(frozen=True, slots=True)
class Meaning:
    """What some bytes are: a form of a needle, or a piece of one."""

    needle: int
    form: Form
    is_part: bool = False


@dataclass(slots=True)
class Sought:
    """The different bytes to look for, and of each what it means to have found them."""

    patterns: list[bytes] = field(default_factory=list)
    meanings: list[list[Meaning]] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def add(self, data: bytes, meaning: Meaning) -> None:
        """Look for these bytes as well."""
        number = self._numbers.setdefault(data, len(self.patterns))
        if number == len(self.patterns):
            self.patterns.append(data)
            self.meanings.append([])
        if meaning not in self.meanings[number]:
            self.meanings[number].append(meaning)


def needles_of(texts: Sequence[str]) -> list[Needle]:
    """Texts that somebody gave, numbered from 1.

    Raises:
        InputError: there is none, or one is too short to mean anything, or holds a lone surrogate. None is shown.

    """
    if not texts:
        raise InputError("there is no text to look for", hint="give --text, --texts-from or --from-export")
    for number, text in enumerate(texts, start=1):
        size = size_of(text, number)
        if size < SHORTEST:
            what = "is empty" if not size else f"has {size} bytes"
            raise InputError(
                f"text {number} {what}: fewer than {SHORTEST} bytes stand in any file by chance",
                hint="give a longer piece of what was said",
            )
    return [Needle(number, text) for number, text in enumerate(texts, start=1)]


def size_of(text: str, number: int) -> int:
    """The bytes of a text in UTF-8.

    Raises:
        InputError: it holds a lone surrogate, which no store takes.

    """
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InputError(f"text {number} holds a lone surrogate", hint="no store takes one: leave it out") from None


def whole_forms(needles: Iterable[Needle]) -> Sought:
    """Every form in which the texts may stand in a body."""
    sought = Sought()
    for needle in needles:
        for form, data in _forms(needle.text):
            sought.add(data[:LONGEST], Meaning(needle.number, form))
    return sought


def database_forms(needles: Iterable[Needle], vectors: Mapping[int, Iterable[bytes]]) -> Sought:
    """The same for the files of a database, with vectors by the number of the needle, and pieces of long texts."""
    given = list(needles)
    sought = whole_forms(given)
    for number, found in vectors.items():
        for vector in found:
            sought.add(vector, Meaning(number, Form.VECTOR))
    for needle in given:
        for form, data in _forms(needle.text):
            if form in (Form.PLAIN, Form.ESCAPED):
                for piece in _pieces(data):
                    sought.add(piece, Meaning(needle.number, form, is_part=True))
    return sought


def _forms(text: str) -> Iterator[tuple[Form, bytes]]:
    plain = text.encode()
    yield Form.PLAIN, plain
    escaped = json.dumps(text)[1:-1]
    others = (json.dumps(text, ensure_ascii=False)[1:-1].encode(), escaped.encode(), _in_capitals(escaped).encode())
    for data in dict.fromkeys(others):
        if data != plain:
            yield Form.ESCAPED, data
    yield Form.UTF16_LE, text.encode("utf-16-le")
    yield Form.UTF16_BE, text.encode("utf-16-be")
    digest = hashlib.sha256(plain)
    yield Form.DIGEST, digest.digest()
    yield Form.DIGEST_HEX, digest.hexdigest().encode()


def _in_capitals(escaped: str) -> str:
    """The escapes of a JSON text with capital digits, as some writers have them."""
    pieces = escaped.split("\\u")
    return pieces[0] + "".join(f"\\u{piece[:4].upper()}{piece[4:]}" for piece in pieces[1:])


def _pieces(data: bytes) -> Iterator[bytes]:
    if len(data) >= _PIECES_FROM:
        last = len(data) - _PIECE
        for start in (*range(0, last, _PIECE_EVERY), last):
            yield data[start : start + _PIECE]
