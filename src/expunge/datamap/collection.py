"""What the data map says of a collection."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """Whose or what a column is."""

    ORG = "org"
    ID = "id"
    NAMESPACE = "namespace"
    AGENT = "agent"
    USER = "user"
    SESSION = "session"
    TIME = "time"
    CONTENT = "content"
    PARENT = "parent"
    SYSTEM = "system"
    """Written by the engine alone; a caller never sets it."""
    PSEUDONYM = "pseudonym"
    CLEAR_UNTIL_END = "clear until the end"
    """Clear ids that an erasure needs while it runs; emptied in the commit that ends it."""
    ACTOR = "actor"
    """Who did something; never the subject it was done to (law 14)."""


class Kind(StrEnum):
    """What a content column holds."""

    TEXT = "text"
    KEY = "key"
    """Text under the rules of an id (law 12)."""
    JSON = "json"
    INSTANT = "instant"
    NUMBER = "number"
    """A whole number that is not negative."""
    SHARE = "share"
    """A number from 0 to 1."""
    FLAG = "flag"
    """True or false, stored as 1 or 0."""


class Act(StrEnum):
    """What an erasure does to a collection in a kind of scope."""

    REMOVE = "remove"
    VIA_PARENT = "via parent"
    VIA_SOURCES = "via sources"
    """It goes when what it was made from goes, by its lineage rule, and not for whom it belongs to."""
    KEEP = "keep"


class Rule(StrEnum):
    """What happens to a derived record when a source of it goes (design 4)."""

    RETIRE = "retire"
    REBUILD = "rebuild"
    """As retire, and what made it is asked to make it again from what is left."""
    DETACH = "detach"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: whose it is, and for what a caller writes, what it holds.

    ``choices`` are the only texts it may hold, ``default`` what it holds when the caller gives nothing.
    """

    name: str
    role: Role
    kind: Kind | None = None
    required: bool = False
    choices: tuple[str, ...] = ()
    default: str | int | None = None


@dataclass(frozen=True, slots=True)
class Parent:
    """A column that names the record which this one belongs to and goes with."""

    column: str
    collection: str


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """One named kind of record; each is declared once, so it is compared and hashed by identity.

    ``act`` is what an erasure of a matching scope does, ``keep`` its reason where the answer is to keep it;
    ``session_act`` and ``session_keep`` are the same where the scope is a session (design 4, "lineage rule").
    ``body_in`` names the column with the place of a body that lies in a store. ``written_by`` names the collection
    whose records bring these, or what else writes them; a caller does not.
    ``searched`` names the columns whose words the search index finds, and ``search_code`` is what the index knows the
    collection by: it stands in the files, so it is never given to another.
    ``rule`` is the lineage rule of a record written with sources, unless its writer chooses another of ``rules``.
    ``time`` is what ``before`` compares.
    ``versioned_by`` names the column whose value, within one identity, orders records into versions.
    """

    name: str
    purpose: str
    columns: tuple[Column, ...]
    act: Act
    lifetime: str
    keep: str = ""
    rule: Rule | None = None
    time: str = "created_at"
    parent: Parent | None = None
    versioned_by: str | None = None
    session_act: Act = Act.REMOVE
    session_keep: str = ""
    body_in: str | None = None
    written_by: str | None = None
    searched: tuple[str, ...] = ()
    search_code: int = 0
    rules: tuple[Rule, ...] = ()
    content: tuple[Column, ...] = field(init=False)
    """The columns that a caller fills, besides the common ones."""

    def __post_init__(self) -> None:
        """Work out once what is asked for with every record."""
        object.__setattr__(self, "content", tuple(column for column in self.columns if column.kind is not None))

    def reached_by(self, parts: Container[str]) -> bool:
        """Whether a scope that names these identity parts selects records here by whose they are."""
        return self.session_act is Act.REMOVE or "session_id" not in parts

    def column(self, role: Role) -> str | None:
        """The name of the column that has this role, if there is one."""
        return next((column.name for column in self.columns if column.role is role), None)
