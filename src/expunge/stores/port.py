"""The lifecycle port: what an erasure needs of every place where a collection's bodies lie (design 2).

What a store cannot express raises ``StoreUnable``; nothing widens. What it could not do raises ``StoreFault``. Every
list is whole (law 11): a store that pages does so inside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from expunge.authority.port import Reclaimed
from expunge.errors import StoreUnable
from expunge.model.instant import Instant
from expunge.model.scope import Scope

Labels = Mapping[str, frozenset[str]]
"""For each identity part that a target narrows, the pseudonyms under which a store may have filed it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a store is asked for: the targets of a scope, and how old a body has to be.

    ``labels`` has one entry per target, with a pseudonym per key of the ring. ``scope`` is the same in clear ids, for
    stores that know no pseudonyms; ``None`` once the scope has been forgotten. ``before`` compares the time of the
    record that names the body, strictly. ``seq`` bounds the org's erasure counter as the writing unit carried it,
    strictly: what was written after the erasure is not asked for.
    """

    org: str
    labels: tuple[Labels, ...]
    scope: Scope | None
    before: Instant | None
    seq: int


class Found(NamedTuple):
    """A body: its name in the store, and the position (in ``Asked.labels``) of the target that it was found for."""

    position: int
    ref: str


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave to remove, made by an erasure after it has checked the holds; it says for which request and attempt."""

    request_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Removal:
    """The answer of a removal: the refs that are gone (also those that were not there), and why others are not."""

    gone: frozenset[str]
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do.

    ``find``: list by scope. ``fence``: how a body that an erased unit of work still writes is told from a new one:
    ``in_write`` (the store refuses it), ``header`` (it carries the unit's ``seq``), ``none`` (it cannot be told; the
    receipt names the store as unfenced, and it is counted again after ``settle_s`` seconds). ``remove``: by ref.
    ``physical``: whether a removal frees the bytes ``at_once``, ``later`` (``reclaim`` tells), or nobody knows.
    """

    find: bool
    fence: Literal["in_write", "header", "none"]
    remove: bool
    physical: Literal["at_once", "later", "unknown"]
    settle_s: float = 0.0


class Lifecycle(Protocol):
    """A store of one or more collections' bodies."""

    name: str
    collections: frozenset[str]
    """Which collections have bodies here."""

    @property
    def capabilities(self) -> Capabilities:
        """What the store can do."""
        ...

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        """The bodies of a collection that are in scope and old enough, whether or not a record names them.

        Raises:
            StoreUnable: the store cannot list by scope.
            StoreFault: it did not answer.

        """
        ...

    async def present(self, refs: Iterable[str]) -> frozenset[str]:
        """Which of these bodies are there.

        Raises:
            StoreFault: the store did not answer.

        """
        ...

    def read(self, ref: str) -> AsyncIterator[bytes]:
        """The bytes of a body, in pieces.

        Raises:
            StoreFault: it is not there, or the store did not answer.

        """
        ...

    async def remove(self, refs: Sequence[str], permit: Permit) -> Removal:
        """Remove bodies. One that cannot be removed does not stop the rest (law 8).

        Raises:
            StoreUnable: the store cannot remove.
            StoreFault: it did not answer; some may be gone.

        """
        ...

    async def reclaim(self) -> Reclaimed:
        """Make the bytes of what was removed go.

        Raises:
            StoreFault: it did not answer.

        """
        ...


@dataclass(frozen=True, slots=True)
class Filing:
    """Whose a body is, by pseudonyms in the order of ``PARTS``, and what tells how old it is."""

    org: str
    parts: tuple[str, ...]
    dated: Instant
    seq: int


class BodyStore(Lifecycle, Protocol):
    """A store that also takes bodies from us."""

    async def put(self, filing: Filing, body: AsyncIterator[bytes]) -> str:
        """Store a body durably; the ref by which it is known from then on.

        Raises:
            DiskFull: there was no room; nothing of it is left behind.
            StoreFault: it was not stored; nothing of it is left behind.

        """
        ...


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that lies where a store keeps its bodies, whoever has put it there.

    ``name`` is relative to the store, and is the ref of what is a body. ``named_by_us``: whether the name has the form
    that the store gives, of pseudonyms and random digits. ``regular``: not so a link, a pipe or the like.
    """

    name: str
    path: Path
    named_by_us: bool
    regular: bool


@runtime_checkable
class OnDisk(Protocol):
    """A store whose bodies are files of this machine, and which lets them be looked at (``expunge residue``)."""

    async def files(self) -> list[StoredFile]:
        """Every file that lies in its place: bodies, what killed writers have left, and what others have put there.

        Raises:
            StoreUnable: it has no files.
            StoreFault: the place did not let us look.

        """
        ...


async def files_of(inner: object) -> list[StoredFile]:
    """The files of a store that may have none.

    Raises:
        StoreUnable: it has none, or does not let them be looked at.

    """
    if not isinstance(inner, OnDisk):
        raise StoreUnable(f"the store {getattr(inner, 'name', 'of bodies')} does not show files")
    return await inner.files()
