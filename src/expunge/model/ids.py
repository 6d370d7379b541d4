"""Ids are opaque (law 12): what an id may be, and how one is shown."""

from __future__ import annotations

from expunge.errors import InvalidId

MAX_ID_BYTES = 256
NOBODY = "-"
"""How an absent identity part is stored; no caller may use it as an id (design 1)."""

_SHOWN_CHARS = 40


def check_id(value: object, what: str) -> str:
    """Return ``value`` unchanged when it is a valid id (law 12).

    No case folding, no normalisation, no trimming: two ids are the same only when their bytes are.

    Raises:
        InvalidId: not text, empty, blank, with NUL or a lone surrogate, over 256 bytes, or ``-``.

    """
    if not isinstance(value, str):
        raise InvalidId(f"{what} must be text, not {type(value).__name__}")
    if not value or value.isspace():
        raise InvalidId(f"{what} is empty or blank")
    if value == NOBODY:
        raise InvalidId(f"{what} is '-', which means nobody")
    if "\0" in value:
        raise InvalidId(f"{what} {shown(value)} holds a NUL character")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidId(f"{what} {shown(value)} holds a lone surrogate") from None
    if size > MAX_ID_BYTES:
        raise InvalidId(f"{what} {shown(value)} has {size} bytes, more than {MAX_ID_BYTES}")
    return value


def shown(value: object) -> str:
    """A value as messages show it: escaped, so that it cannot act on a terminal or a log, and shortened."""
    text = ascii(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 4] + "..." + text[-1]
