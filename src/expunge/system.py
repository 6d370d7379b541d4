"""The opened system: an authority, a key ring, a clock and the settings, which everything above works with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from expunge import audit
from expunge.authority.orgs import seq_of, seqs
from expunge.authority.origin import store_id
from expunge.authority.places import open_authority, place_of
from expunge.authority.port import Authority, Row, Statement, Tx
from expunge.authority.postgres import PostgresPlace
from expunge.authority.sqlite import Place
from expunge.errors import KeyMissing
from expunge.keys import KeyRing, load_key_file, open_key_file
from expunge.model.instant import Clock, SystemClock
from expunge.search import Embedder, HashingEmbedder, Words
from expunge.search.embedder import WordLlamaEmbedder
from expunge.settings import Settings
from expunge.stores import BodyStore, Lifecycle
from expunge.stores.folder import FolderStore
from expunge.stores.memory import MemoryStore

_KEYS_NAMED = Statement("keys.named", "SELECT id, check_value FROM keys")
_NAME_KEY = Statement(
    "keys.name", "INSERT INTO keys (id, check_value) VALUES (:id, :check_value) ON CONFLICT DO NOTHING"
)


_NAMING = Statement("keys.naming", "SELECT 1", postgres="LOCK TABLE keys IN EXCLUSIVE MODE")
"""Until the commit nobody else names keys; on SQLite nobody else writes at all."""


class KeysRotated(Exception):
    """The database names a key that the ring in hand does not hold."""


@dataclass(slots=True)
class System:
    """What an operation gets to work with."""

    authority: Authority
    keys: KeyRing
    clock: Clock
    settings: Settings
    keys_path: Path | None
    stores: tuple[Lifecycle, ...] = ()
    """The stores outside the authority, in the order in which an erasure empties them."""
    bodies: Mapping[str, BodyStore] = field(default_factory=dict)
    """Those of them that take bodies from us, by collection."""
    embedder: Embedder | None = None
    derivers: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """What jobs are done by, by name; registered by whoever opens the system (``memory.derivers``)."""
    words: Words = field(init=False)
    _held: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.use_keys(self.keys)
        # The oldest key: it stays in every ring, so the index outlives a rotation.
        self.words = Words(self.keys.pseudonym_keys[0].secret)

    async def as_of(self, org: str | None = None) -> dict[str, int]:
        """The erasure counter of one org, or of every one: what a unit of work that begins now carries (law 4)."""
        if org is None:
            return await self.authority.read(seqs)
        return {org: await self.authority.glance(lambda tx: seq_of(tx, org))}

    async def store_id(self) -> str:
        """The name of the store."""
        return await self.authority.glance(store_id)

    def check_keys(self, tx: Tx) -> None:
        """Stop a unit of work that the ring in hand is too old for: another process has rotated the keys since.

        Its fences are raised under the new key, and a guard that does not know it would let a stale write through.
        """
        tx.expect(self._has_all, _KEYS_NAMED)

    def _has_all(self, named: list[Row]) -> None:
        if any(name not in self._held for name, _ in named):
            raise KeysRotated

    def use_keys(self, ring: KeyRing) -> None:
        """Work with another ring from now on."""
        self.keys, self._held = ring, frozenset(ring.check_values())

    def read_keys_again(self) -> None:
        """Read the key file again after ``KeysRotated``."""
        if self.keys_path is not None:
            self.use_keys(load_key_file(self.keys_path))

    async def close(self) -> None:
        """Wait for what runs and let go of the database."""
        await self.authority.close()


async def open_system(
    settings: Settings,
    *,
    clock: Clock | None = None,
    create: bool = True,
    authority: Authority | None = None,
    bodies: BodyStore | None = None,
    embedder: Embedder | None = None,
) -> System:
    """Open the database, the keys that it relies on, and the stores of its bodies.

    ``bodies`` takes the place of our own store for the collections that it names; ``embedder`` that of the setting.

    Keys are made only for a database that names none yet: a database whose key is missing is refused, because what
    was erased could no longer be matched (design 4).

    Raises:
        DatabaseFault: the database cannot be opened (see its kinds).
        KeyFault: the key file is missing, exposed, damaged, or lacks a key that the database names.

    """
    place = place_of(settings.db)
    path = keys_path(settings, place)
    if path is not None and create and not place.exists():
        open_key_file(path)
    if authority is None:
        authority = await open_authority(place, settings, create=create)
    try:
        keys = await _bind_keys(authority, path)
    except BaseException:
        await authority.close()
        raise
    stores = body_stores(settings, place) | ({} if bodies is None else dict.fromkeys(bodies.collections, bodies))
    return System(
        authority,
        keys,
        clock or SystemClock(),
        settings,
        path,
        tuple(dict.fromkeys(stores.values())),
        stores,
        embedder or EMBEDDERS[settings.embedder](),
    )


EMBEDDERS: dict[str, Callable[[], Embedder | None]] = {
    "hashing": HashingEmbedder,
    "wordllama": WordLlamaEmbedder,
    "none": lambda: None,
}
"""The embedders that the setting may name."""


def body_stores(settings: Settings, place: Place | PostgresPlace) -> dict[str, BodyStore]:
    """Our own stores of bodies, by collection: folders beside the database, or in memory as it is."""
    folder = objects_path(settings, place)
    if folder is None:
        return {
            "attachments": MemoryStore("objects", frozenset({"attachments"})),
            "documents": MemoryStore("originals", frozenset({"documents"})),
        }
    originals = folder.with_name(folder.name.removesuffix(".objects") + ".originals")
    return {
        "attachments": FolderStore(folder),
        "documents": FolderStore(originals, "originals", frozenset({"documents"})),
    }


def objects_path(settings: Settings, place: Place | PostgresPlace) -> Path | None:
    """Where the bytes of attachments lie: as set, else beside the database; ``None`` for memory."""
    return settings.objects or place.beside(".objects")


def keys_path(settings: Settings, place: Place | PostgresPlace) -> Path | None:
    """Where the key file is: as set, else beside the database; ``None`` for memory."""
    return settings.keys_file or place.beside("expunge.keys")


async def bind(authority: Authority, ring: KeyRing, entry: audit.Entry | None = None) -> None:
    """Let the database name every key of a ring, so that it is never opened without them; an older audit is chained.

    ``entry`` goes into the audit in the same commit, under the new key.
    """
    await authority.run(lambda tx: _name_keys(tx, ring, entry))


def _name_keys(tx: Tx, ring: KeyRing, entry: audit.Entry | None = None) -> None:
    tx.change_many(_NAME_KEY, [{"id": name, "check_value": value} for name, value in ring.check_values().items()])
    audit.adopt(tx, ring)
    if entry is not None:
        audit.record(tx, ring, entry)


async def _bind_keys(authority: Authority, path: Path | None) -> KeyRing:
    rows, waits = await authority.read(lambda tx: (tx.rows(_KEYS_NAMED), audit.waits(tx)))
    if path is None:
        ring = KeyRing.new()
    else:
        ring = load_key_file(path) if rows else open_key_file(path)
        _check_held(ring, rows, path)

    def unit(tx: Tx) -> None:
        tx.send(_NAMING)
        if path is not None:  # a replica that has another key file may have come first
            _check_held(ring, tx.rows(_KEYS_NAMED), path)
        _name_keys(tx, ring)

    if waits or not ring.check_values().keys() <= {name for name, _ in rows}:
        await authority.run(unit)
    return ring


def _check_held(ring: KeyRing, named: Iterable[Row], path: Path) -> None:
    held = ring.check_values()
    for name, value in named:
        if held.get(name) != value:
            raise KeyMissing(f"the database relies on key {name}, which {path} does not hold")
