"""Canonical JSON (RFC 8785) and the hashes made from it."""

from __future__ import annotations

import hashlib
from typing import Any

import rfc8785


def canonical(value: Any) -> bytes:
    """A JSON value as the one sequence of bytes that RFC 8785 gives it."""
    return rfc8785.dumps(value)


def digest(data: bytes) -> str:
    """SHA-256 of some bytes, as ``sha256:`` and 64 hexadecimal digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
