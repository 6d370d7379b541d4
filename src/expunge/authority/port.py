"""The authority port: synchronous units of work, each taken to the driver in one hop (design 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from expunge.model.instant import Instant

T = TypeVar("T")
ONE_ORG: ContextVar[str | None] = ContextVar("one_org", default=None)
"""The org that the operation at hand is about, where it is about one: an authority that can keeps it from all others.

Each statement names its org; this is a second wall, for the case that one does not.
"""
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """One named SQL statement with ``:name`` (or ``?``) parameters. The name is what logs and plans speak of.

    Its text is SQL that both authorities read, in the words of ``expunge.authority.words`` where they speak otherwise.
    ``postgres`` stands beside it where the two do not even have the same tables or clauses.
    """

    name: str
    text: str
    postgres: str | None = None


class Halves(bytes):
    """A vector as it is stored: half-precision numbers, the low byte of each first."""


@dataclass(frozen=True, slots=True)
class GuardKey:
    """What a write is matched by: for each stored identity part its pseudonyms, and the earliest time written.

    ``parts`` follows the order of ``expunge.model.identity.PARTS``; a part has one pseudonym per key of the ring.
    """

    org: str
    parts: tuple[tuple[str, ...], ...]
    dated: Instant


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """The answer of a reclaim: ``None`` when the bytes are gone, otherwise why they are not yet, and until when."""

    deferred: str | None = None
    until: str = "unknown"


@dataclass(frozen=True, slots=True)
class Setting:
    """Something of the driver or the server that has to be as we want it, and how it was found."""

    name: str
    wanted: str
    found: str
    severity: Literal["warn", "fail"] = "fail"
    next: str = "open the database again"
    """What to do when it is another."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What an authority says of itself: versions by name, its settings, its files, and what others may keep.

    ``waiting_bytes`` wait in a log of ours to be moved into the file; ``None`` where the log is the server's.
    """

    versions: dict[str, str]
    settings: list[Setting]
    files: list[Path]
    waiting_bytes: int | None
    uncovered: list[str] = field(default_factory=list)


FileForm = Literal["database", "log", "heap", "index", "toast", "wal", "other"]
"""The layout of a file: a SQLite ``database``, and the ``log`` that is written ahead of one; of a PostgreSQL server a
segment of a table (``heap``), of an ``index``, of the long values of a table (``toast``), or of its log (``wal``)."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file in which an authority keeps what it was given, open for reading by offset and length."""

    path: Path
    form: FileForm
    size: int
    read: Callable[[int, int], bytes]
    """Bytes from an offset; fewer than asked for, where the file ends."""
    relation: int | None = None
    """Of a file of a server: the number of the table or index that it is a segment of."""
    first_page: int = 0
    """Which page of it this segment begins with."""
    fault: str | None = None
    """Why it cannot be read, and what to do about it; one that can has none."""


@dataclass(frozen=True, slots=True)
class Inspected(Generic[T]):
    """What was made of the files, and whether somebody has committed something meanwhile."""

    answer: T
    changed: bool
    left_out: tuple[str, ...] = ()
    """What the authority keeps, or may keep, and did not open."""


class Tx(Protocol):
    """What a unit of work may do inside its transaction.

    What is waited for comes in one order, so that no two units wait for each other: ``lead``, then ``seal`` or
    ``enter``, then ``hold_names``, rows, and the row of the org (docs/consistency.md). An authority that lets one unit
    write at a time has nothing to do for them.
    """

    def lead(self, org: str, sealing: Iterable[GuardKey] = ()) -> None:
        """Be the only unit of the org that works at an erasure, until the commit; one that raises a fence seals, too.

        It works when it has sealed, and waits for rows. So what it seals is named here, before it holds anything else.
        """
        ...

    def seal(self, keys: Iterable[GuardKey]) -> None:
        """Wait until the units that write into the scopes of these keys have ended, and let no other begin.

        A key is that of a scope here: a part that it does not narrow has no pseudonyms.
        """
        ...

    def enter(self, keys: Iterable[GuardKey]) -> None:
        """Be among the units that ``seal`` waits for; ``guard`` does it for the keys that it is given."""
        ...

    def hold_names(self, org: str, names: Iterable[str]) -> None:
        """Keep other units from writing under these names (ids, keys of versions) until the commit."""
        ...

    def settle(self, org: str) -> None:
        """Come to the row of the org: it is the last that is waited for, and others wait for it until the commit."""
        ...

    def guard(self, keys: Iterable[GuardKey], as_of: int) -> None:
        """Refuse the unit when a fence that matches a key is up, or came down after ``as_of`` (law 4).

        Raises:
            ErasureInProgress: a fence is up.
            ErasedSince: a fence came down after the unit began.

        """
        ...

    def ask_numbers(self, collection: str, count: int) -> Callable[[], Sequence[int]]:
        """The next row numbers of a collection, for rows that this unit inserts, as ``ask``. None is given twice."""
        ...

    def hold_rows(self, collection: str, org: str, ids: Sequence[str], *, alone: bool) -> bool:
        """Keep rows as they are until the commit: from being marked or removed, or with ``alone`` from being held, too.

        Whether another unit may have changed them since they were read, so that they are to be read again.
        """
        ...

    def ask_uncovered(self) -> Callable[[], list[str]]:
        """What the store's own settings let others keep of what was written: no erasure reaches it. As ``ask``."""
        ...

    @property
    def compares(self) -> bool:
        """Whether statements may call ``nearness(vector, numbers)``: the store compares vectors by itself."""
        ...

    def rows(self, statement: Statement, /, **values: Any) -> list[Row]:
        """All rows of a statement."""
        ...

    def ask(self, statement: Statement, /, **values: Any) -> Callable[[], list[Row]]:
        """All rows of a statement, wanted later: what is asked for before the first answer is taken goes together."""
        ...

    def expect(self, check: Callable[[list[Row]], None], statement: Statement, /, **values: Any) -> None:
        """Hold the unit to what a statement answers: ``check`` may raise before it ends, also with an error of ours."""
        ...

    def change(self, statement: Statement, /, **values: Any) -> int:
        """Run a statement that changes rows; how many it changed."""
        ...

    def ask_change(self, statement: Statement, /, **values: Any) -> Callable[[], int]:
        """Run a statement that changes rows; how many it changed is wanted later, as with ``ask``."""
        ...

    def send(self, statement: Statement, /, **values: Any) -> None:
        """Run a statement that changes rows, when nobody asks how many. Where it fails, that may show later."""
        ...

    def change_many(self, statement: Statement, values: Iterable[Mapping[str, Any] | Sequence[Any]], /) -> None:
        """Run a statement once for each set of values."""
        ...


Unit = Callable[[Tx], T]


class AtHand(Protocol):
    """An authority for whoever works where its data is: the same calls, and no hop to get there."""

    def run(self, unit: Unit[T]) -> T:
        """Run a unit and commit it, as ``Authority.run`` does."""
        ...

    def read_apart(self, unit: Unit[T]) -> T:
        """Run a unit that only reads, as ``Authority.read_apart`` does."""
        ...


class Authority(Protocol):
    """A transactional store. A unit may run more than once, so it changes nothing but the store."""

    name: str

    @property
    def waits(self) -> Reclaimed | None:
        """What ``reclaim`` answers, where that is known before: the bytes always wait. Else ``None``."""
        ...

    async def run(self, unit: Unit[T]) -> T:
        """Run a unit and commit it durably; busy, deadlock and serialization failures are retried.

        Raises:
            DatabaseBusy: others held the store for longer than ``busy_timeout_s``.
            DiskFull: there was no room; nothing of the unit was written.
            DatabaseFault: the store failed otherwise.

        """
        ...

    async def rehearse(self, unit: Unit[T]) -> T:
        """Run a unit exactly as ``run`` does, and take it back."""
        ...

    async def read(self, unit: Unit[T]) -> T:
        """Run a unit that only reads, on a snapshot."""
        ...

    async def glance(self, unit: Unit[T]) -> T:
        """As ``read``, for a row or two that are found by their key.

        A hop to another thread costs several times what such a read does, so an authority that has its data at hand
        may do it where the call is.
        """
        ...

    async def read_apart(self, unit: Unit[T]) -> T:
        """As ``read``, on a connection that serves nothing else: what the census counts with."""
        ...

    async def in_one_hop(self, work: Callable[[AtHand], T]) -> T:
        """Do several units in turn, for what is so small that the hops between them would cost as much as the units.

        Each is a unit like any other: committed (or read) by itself, and retried by itself; ``work`` runs once.
        """
        ...

    async def reclaim(self) -> Reclaimed:
        """Make the bytes of what was removed go; reads the store's own answer."""
        ...

    async def compact(self) -> Reclaimed:
        """As ``reclaim``, and write anew what keeps something of removed rows until then, whatever that costs."""
        ...

    async def examine(self) -> Examined:
        """Look at itself, and change nothing."""
        ...

    async def inspect(self, work: Callable[[Tx, Sequence[KeptFile]], T]) -> Inspected[T]:
        """As ``read_apart``, with every file of the store open for reading, byte for byte.

        The snapshot is taken before the files are opened and held to the end, so that nothing that it reads is written
        over meanwhile. There are no files where all is in memory. One that cannot be opened is there with the reason.
        """
        ...

    async def close(self) -> None:
        """Wait for what runs and let go of the store."""
        ...
