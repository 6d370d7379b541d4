"""The manifest of an export: what it is of, where it came from, what it holds, and what was left out and why."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from expunge.datamap import RECORDS
from expunge.model.canonical import digest

FORMAT = "expunge-export"
VERSION = 1
"""The version of the format. A reader refuses one that it does not know."""
Format = Literal["json", "jsonl", "zip"]
FORMATS: tuple[Format, ...] = get_args(Format)

BODIES, DERIVED, VECTORS, AUDIT = "bodies", "derived", "vectors", "audit"
RECORD_SECTIONS = tuple(kind.name for kind in RECORDS)
"""The sections that an import brings back; the others follow from them or only tell."""


class Hashed:
    """A section as it is written or read: how many lines it has, and the SHA-256 over each line and a newline."""

    def __init__(self) -> None:
        self.count, self.truncated = 0, False
        self._hash = hashlib.sha256()

    def add(self, lines: Sequence[bytes]) -> None:
        """Take in whole lines."""
        if lines:
            self._hash.update(b"\n".join(lines) + b"\n")
            self.count += len(lines)

    def add_part(self, part: bytes, *, last: bool = False) -> None:
        """Take in a part of one line, which is counted with its last part."""
        self._hash.update(part)
        if last:
            self._hash.update(b"\n")
            self.count += 1

    def as_json(self) -> dict[str, Any]:
        """What the manifest says of the section."""
        return {"count": self.count, "sha256": "sha256:" + self._hash.hexdigest(), "truncated": self.truncated}


@dataclass(slots=True)
class LeftOut:
    """Something that is held and does not stand in the export. ``why`` is for a person; ``count`` where it is known."""

    what: str
    why: str
    count: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The same for the manifest."""
        return {"what": self.what, "why": self.why, "count": self.count}


@dataclass(slots=True)
class Manifest:
    """What an export says of itself. ``origin`` holds all that differs between two exports of the same records."""

    view: str
    scope: dict[str, Any]
    origin: dict[str, Any]
    sections: dict[str, Hashed] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    whole: bool = True

    def section(self, name: str) -> Hashed:
        """The section of this name, made when it is first asked for."""
        return self.sections.setdefault(name, Hashed())

    def miss(self, left_out: LeftOut) -> None:
        """Say that a record or body in scope is not here: the export is not complete."""
        self.left_out.append(left_out)
        self.whole = False

    def as_json(self) -> dict[str, Any]:
        """The manifest, with the hash of itself.

        ``complete`` is false as soon as one record or body in scope is not in the file, of whatever section. Vectors
        and search entries are made from records, so their absence does not count.
        """
        said: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "view": self.view,
            "scope": self.scope,
            "origin": self.origin,
            "sections": {name: section.as_json() for name, section in self.sections.items()},
            "complete": self.whole and not any(section.truncated for section in self.sections.values()),
            "left_out": [item.as_json() for item in self.left_out],
        }
        return said | {"sha256": manifest_hash(said)}


def manifest_hash(said: dict[str, Any]) -> str:
    """The hash of a manifest without its own field for it."""
    rest = {name: value for name, value in said.items() if name != "sha256"}
    return digest(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode())
