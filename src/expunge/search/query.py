"""What is looked for, and which records are let through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from expunge.datamap import Collection
from expunge.model.instant import Instant
from expunge.search.embedder import Vectors
from expunge.search.served import EVER, narrowed, served

FIRST_LOOK = 50
"""So many are ranked at least, however few are asked for: the one rank may know what the other puts last."""
Searched = Literal["all", "newest", "none"]
"""What the vectors were compared with: all that the filter lets through; the newest of it and what the words found; or
nothing, for there was no query, or no vector."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for, and in what.

    ``parts`` narrows by stored identity. ``vector`` is that of the text, of length 1. ``scan`` is how many vectors are
    compared at most. ``since`` and ``until`` bound the time that the collection is dated by, half-open. ``weight`` is
    the share of the words in the rank, the rest is the vectors'.
    """

    org: str
    kinds: tuple[Collection, ...]
    text: str
    parts: Mapping[str, str]
    now: Instant
    limit: int
    vector: Vectors | None = None
    model: str = ""
    scan: int = 5000
    since: Instant | None = None
    until: Instant | None = None
    valid_at: Instant | None = None
    known_at: Instant | None = None
    weight: float = 0.5
    memory_type: str | None = None
    """Of memories, those of this type."""

    def values(self) -> dict[str, Any]:
        """The parameters that every statement of the query takes."""
        instants = {"valid_at": self.now if self.valid_at is None else self.valid_at}
        instants |= {"known_at": EVER if self.known_at is None else self.known_at}
        bounds = {"since": self.since, "until": self.until, "memory_type": self.memory_type}
        return {"org": self.org, "now": self.now} | instants | bounds | dict(self.parts)


Shape = tuple[tuple[tuple[str, bool], ...], bool, bool, bool]


def shape_of(query: Query) -> Shape:
    """What the text of a statement depends on."""
    parts = tuple((part, value == "-") for part, value in query.parts.items())
    return parts, query.memory_type is not None, query.since is not None, query.until is not None


def let_through(kind: Collection, shape: Shape) -> str:
    """What the records ``r`` of a collection have to be for a query of this shape to find them."""
    parts, typed, since, until = shape
    terms = [narrowed({part: "-" if nobody else "" for part, nobody in parts}), served(kind)]
    terms += ["r.memory_type = :memory_type"] * (typed and kind.name == "memories")
    terms += [f"r.{kind.time} >= :since"] * since + [f"r.{kind.time} < :until"] * until
    return " AND ".join(terms)
