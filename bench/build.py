"""Databases to measure in: the product's own schema, filled by direct SQL in the order in which time would fill it."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from expunge import Expunge
from expunge.authority.port import Halves
from expunge.datamap import CODES, Collection, collection
from expunge.keys import load_key_file
from expunge.memory.statements import ADD_EDGE, insert, inserted, stored_columns
from expunge.model.identity import PARTS
from expunge.search import HashingEmbedder, Words
from expunge.settings import Settings

ORG = "default"
DATABASE, KEYS = "expunge.db", "expunge.keys"
EPISODES, FACTS, BLOCKS = 20, 10, 3
"""The rows of one user."""

_START = 1_700_000_000_000_000
_MINUTE = 60_000_000
_SENTENCES = 2000
_VOCABULARY = 20_000
_SYLLABLES = [one + other for one in "bcdfghlmnprstv" for other in "aeo"]
_PAGE = 2000

ADD_SEARCH = "INSERT INTO search (rowid, owner, words) VALUES (?, ?, ?)"
ADD_VECTOR = """INSERT INTO vectors (record, org, namespace, agent, user_id, session_id, model, vector)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a database is, and whether each fact names an episode of its user as its source.

    ``together`` is how many users share a namespace; with 0 there is one for all. ``each`` is how many episodes a user
    has, in which ``said`` sentences are answered; ``sentences`` is how many different ones there are. Without ``more``
    there are episodes alone. Vectors are those of the texts where somebody is going to search; elsewhere they are
    noise of the same size, made in a tenth of the time.
    """

    episodes: int
    linked: bool = False
    together: int = 0
    each: int = EPISODES
    said: int = 2
    sentences: int = _SENTENCES
    more: bool = True
    searched: bool = False

    @property
    def users(self) -> list[str]:
        """Every user, in order."""
        return [f"user-{number:06d}" for number in range(self.episodes // self.each)]

    @property
    def namespaces(self) -> list[str]:
        """Every namespace, in order."""
        return list(dict.fromkeys(self.namespace(user) for user in self.users))

    def namespace(self, user: str) -> str:
        """Where a user's rows lie."""
        return f"space-{int(user.removeprefix('user-')) // self.together:06d}" if self.together else "app"

    @property
    def name(self) -> str:
        """The shape as a file name."""
        ends = ("-linked" * self.linked, "-spaces" * bool(self.together), "-searched" * self.searched)
        return f"{self.episodes}{''.join(ends)}{f'-each-{self.each}' * (self.each != EPISODES)}"


def settings(folder: Path) -> Settings:
    """The settings of the database in a folder; nothing is taken from the environment."""
    return Settings(db=str(folder / DATABASE), org=ORG, actor="bench")


async def build(shape: Shape, folder: Path) -> Path:
    """A database (and its key file) in a new folder; the folder. One of each shape is made, the rest are copies."""
    made = folder.parent / "made" / shape.name
    if not made.exists():
        await _build(shape, made)
    return copy(made, folder)


async def _build(shape: Shape, folder: Path) -> None:
    make(folder)
    async with Expunge(settings=settings(folder)) as product:
        seed = {"collection": "blocks", "id": "bystander", "user_id": "bystander", "name": "n", "content": "c"}
        await product.put([seed])
    connection = apsw.Connection(str(folder / DATABASE))
    for pragma in ("synchronous = 0", "cache_size = -2000000", "temp_store = 2"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    _fill(connection, shape, Index(folder, noise=not shape.searched))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()


def make(folder: Path) -> None:
    """Make a new folder."""
    folder.mkdir(parents=True)


def copy(built: Path, folder: Path) -> Path:
    """A fresh copy of a built database, its pages in the page cache as the original's are; the folder."""
    shutil.copytree(built, folder)
    return folder


def synthetic(chance: random.Random, count: int = _SENTENCES) -> list[str]:
    """Sentences of 10 to 30 made-up words. A few are in every other sentence, most are rare, as in any language."""
    words = ["".join(chance.choices(_SYLLABLES, k=chance.randint(1, 4))) for _ in range(_VOCABULARY)]
    weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(_VOCABULARY)))
    return [" ".join(chance.choices(words, cum_weights=weights, k=chance.randint(10, 30))) for _ in range(count)]


class Index:
    """What the index knows of records, by the product's own hashes and embedder: used as libraries, in every floor."""

    def __init__(self, folder: Path, *, noise: bool = False, keys: str = KEYS) -> None:
        self._noise = np.random.default_rng(1) if noise else None
        self.words = Words(load_key_file(folder / keys).pseudonym_keys[0].secret)
        self._embedder = HashingEmbedder()
        self._owners: dict[tuple[str, ...], str] = {}

    def entries(
        self, records: Sequence[tuple[int, tuple[str, ...], Sequence[str]]]
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """The rows of ``search`` and of ``vectors`` for records: number, stored identity, texts."""
        packed = self._vectors(["\n".join(texts) for _, _, texts in records])
        search = [(number, self._owner(who), self.words.hashed(who[0], texts)) for number, who, texts in records]
        vectors = [
            (number, *who, self._embedder.name, Halves(vector.tobytes()))
            for (number, who, _), vector in zip(records, packed, strict=True)
        ]
        return search, vectors

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float16]:
        if self._noise is not None:
            return self._noise.standard_normal((len(texts), self._embedder.dims), np.float32).astype(np.float16)
        made = self._embedder._embed(texts)  # noqa: SLF001 (floors have no loop where they embed)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        return made.astype(np.float16)

    def _owner(self, who: tuple[str, ...]) -> str:
        if who not in self._owners:
            if len(self._owners) >= _PAGE:
                self._owners.clear()
            self._owners[who] = self.words.owner(who)
        return self._owners[who]


def _fill(connection: apsw.Connection, shape: Shape, index: Index) -> None:
    """Round by round, every user once in a round, in another order each time: no user's rows lie together."""
    chance = random.Random(shape.episodes)
    users, ids = shape.users, _Ids(chance)
    rows = _Rows(shape, ids, synthetic(chance, shape.sentences), chance)
    with connection:
        for number in range(shape.each):
            chance.shuffle(users)
            _add(connection, index, "episodes", (rows.episode(user, number) for user in users))
            if not shape.more:
                continue
            if number % 2:
                _add(connection, index, "facts", (rows.fact(user, number) for user in users))
                connection.executemany(ADD_EDGE.text, rows.edges)
                rows.edges.clear()
            if number in (3, 9, 15):
                _add(connection, index, "blocks", (rows.block(user, number) for user in users))


def _add(connection: apsw.Connection, index: Index, name: str, rows: Iterable[dict[str, Any]]) -> None:
    """Add rows under the numbers that they would be given, and what the index knows of them."""
    kind = collection(name)
    rows, last = iter(rows), connection.execute(f"SELECT coalesce(max(rid), 0) FROM {name}").get
    numbers = itertools.count(int(last) + 1)
    while page := list(itertools.islice(rows, _PAGE)):
        for row in page:
            row["rid"] = next(numbers)
        connection.executemany(insert(kind).text, map(inserted(kind), page))
        if kind.searched:
            search, vectors = index.entries(
                [
                    (row["rid"] * CODES + kind.search_code, (row["org"], *(row[part] for part in PARTS)),
                     [row[column] for column in kind.searched])
                    for row in page
                ]
            )  # fmt: skip
            connection.executemany(ADD_SEARCH, search)
            connection.executemany(ADD_VECTOR, vectors)


class _Ids:
    """Ids as writers make them: random, so neighbours in the index are not neighbours in time."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def new(self, prefix: str) -> str:
        return f"{prefix}-{self._chance.getrandbits(96):024x}"


def _empty(kind: Collection) -> dict[str, Any]:
    """A record of which nothing was said."""
    return dict.fromkeys(stored_columns(kind)) | {column.name: column.default for column in kind.content}


class _Rows:
    """The rows of each collection, and the edges that are due."""

    def __init__(self, shape: Shape, ids: _Ids, text: list[str], chance: random.Random) -> None:
        self._ids, self._text, self._chance = ids, text, chance
        self._said = shape.said
        self._namespaces = {user: shape.namespace(user) for user in shape.users}
        self._newest: dict[str, str] | None = {} if shape.linked else None
        self._now = _START
        self._empty = {name: _empty(collection(name)) for name in ("episodes", "facts", "blocks")}
        self.edges: list[dict[str, Any]] = []

    def episode(self, user: str, number: int) -> dict[str, Any]:
        row = self._row(collection("episodes"), "ep", user)
        if self._newest is not None:
            self._newest[user] = row["id"]
        said = self._chance.choice(self._text)
        answered = " ".join(f"{self._chance.choice(self._text)}." for _ in range(self._said))
        return row | {"session_id": f"{user}-s{number // 4}", "occurred_at": self._now, "input": said,
                      "output": answered}  # fmt: skip

    def fact(self, user: str, number: int) -> dict[str, Any]:
        row = self._row(collection("facts"), "fact", user)
        if self._newest is not None:
            self.edges.append(
                {"org": ORG, "derived": row["id"], "source": self._newest[user], "derived_collection": "facts",
                 "source_collection": "episodes", "rule": "detach", "seq": 0}
            )  # fmt: skip
        return row | {"subject": user, "predicate": f"said-{number}", "predicate_key": f"said_{number}",
                      "object": self._chance.choice(self._text)}  # fmt: skip

    def block(self, user: str, number: int) -> dict[str, Any]:
        row = self._row(collection("blocks"), "block", user)
        return row | {"name": f"block-{number}", "version": 1, "content": self._chance.choice(self._text)}

    def _row(self, kind: Collection, prefix: str, user: str) -> dict[str, Any]:
        self._now += _MINUTE
        times = dict.fromkeys(("created_at", "recorded_at", "updated_at"), self._now)
        identity = {"org": ORG, "namespace": self._namespaces[user], "agent": "helper", "user_id": user}
        return self._empty[kind.name] | identity | {"session_id": "-"} | times | {"id": self._ids.new(prefix), "seq": 0}
