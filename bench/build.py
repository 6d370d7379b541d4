"""Databases to measure in: the product's own schema, filled by direct SQL in the order in which time would fill it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from expunge import Expunge
from expunge.datamap import Collection, collection
from expunge.memory.statements import ADD_EDGE, insert, stored_columns
from expunge.settings import Settings

ORG = "default"
DATABASE = "expunge.db"
EPISODES, FACTS, BLOCKS = 20, 10, 3
"""The rows of one user."""

_START = 1_700_000_000_000_000
_MINUTE = 60_000_000
_TEXT = """
the cat asked about a trip to lisbon in may because her sister moved there and she prefers trains over planes he said
that his manager wants the report by friday and the budget is smaller than last year we talked about allergies to nuts
a new piano teacher the garden and whether to sell the old car
"""
_SENTENCES = 2000


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a database is, and whether each fact names an episode of its user as its source.

    ``together`` is how many users share a namespace; with 0 there is one for all.
    """

    episodes: int
    linked: bool = False
    together: int = 0

    @property
    def users(self) -> list[str]:
        """Every user, in order."""
        return [f"user-{number:06d}" for number in range(self.episodes // EPISODES)]

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
        return f"{self.episodes}{'-linked' if self.linked else ''}{'-spaces' if self.together else ''}"


def settings(folder: Path) -> Settings:
    """The settings of the database in a folder; nothing is taken from the environment."""
    return Settings(db=str(folder / DATABASE), org=ORG, actor="bench")


async def build(shape: Shape, folder: Path) -> Path:
    """Make a database (and its key file) in a new folder; the folder."""
    make(folder)
    async with Expunge(settings=settings(folder)) as product:
        seed = {"collection": "blocks", "id": "bystander", "user_id": "bystander", "name": "n", "content": "c"}
        await product.put([seed])
    connection = apsw.Connection(str(folder / DATABASE))
    for pragma in ("synchronous = 0", "cache_size = -2000000", "temp_store = 2"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    _fill(connection, shape)
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    return folder


def make(folder: Path) -> None:
    """Make a new folder."""
    folder.mkdir(parents=True)


def copy(built: Path, folder: Path) -> Path:
    """A fresh copy of a built database, its pages in the page cache as the original's are; the folder."""
    shutil.copytree(built, folder)
    return folder


def synthetic(chance: random.Random) -> list[str]:
    """Sentences of 10 to 30 words, made up."""
    words = _TEXT.split()
    return [" ".join(chance.choices(words, k=chance.randint(10, 30))) for _ in range(_SENTENCES)]


def _fill(connection: apsw.Connection, shape: Shape) -> None:
    """Round by round, every user once in a round, in another order each time: no user's rows lie together."""
    chance = random.Random(shape.episodes)
    users, ids = shape.users, _Ids(chance)
    rows = _Rows(shape, ids, synthetic(chance), chance)
    with connection:
        for number in range(EPISODES):
            chance.shuffle(users)
            _add(connection, "episodes", (rows.episode(user, number) for user in users))
            if number % 2:
                _add(connection, "facts", (rows.fact(user, number) for user in users))
                connection.executemany(ADD_EDGE.text, rows.edges)
                rows.edges.clear()
            if number in (3, 9, 15):
                _add(connection, "blocks", (rows.block(user, number) for user in users))


def _add(connection: apsw.Connection, name: str, rows: Iterator[dict[str, Any]]) -> None:
    connection.executemany(insert(collection(name)).text, rows)


class _Ids:
    """Ids as writers make them: random, so neighbours in the index are not neighbours in time."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def new(self, prefix: str) -> str:
        return f"{prefix}-{self._chance.getrandbits(96):024x}"


class _Rows:
    """The rows of each collection, and the edges that are due."""

    def __init__(self, shape: Shape, ids: _Ids, text: list[str], chance: random.Random) -> None:
        self._ids, self._text, self._chance = ids, text, chance
        self._namespaces = {user: shape.namespace(user) for user in shape.users}
        self._newest: dict[str, str] | None = {} if shape.linked else None
        self._now = _START
        self._empty = {
            name: dict.fromkeys(stored_columns(collection(name))) for name in ("episodes", "facts", "blocks")
        }
        self.edges: list[dict[str, Any]] = []

    def episode(self, user: str, number: int) -> dict[str, Any]:
        row = self._row(collection("episodes"), "ep", user)
        if self._newest is not None:
            self._newest[user] = row["id"]
        said = self._chance.choice(self._text)
        answered = f"{self._chance.choice(self._text)}. {self._chance.choice(self._text)}."
        return row | {"session_id": f"{user}-s{number // 4}", "occurred_at": self._now, "input": said,
                      "output": answered}  # fmt: skip

    def fact(self, user: str, number: int) -> dict[str, Any]:
        row = self._row(collection("facts"), "fact", user)
        if self._newest is not None:
            self.edges.append(
                {"org": ORG, "derived": row["id"], "source": self._newest[user], "derived_collection": "facts",
                 "source_collection": "episodes", "rule": "detach", "seq": 0}
            )  # fmt: skip
        return row | {"subject": user, "predicate": f"said-{number}", "object": self._chance.choice(self._text)}

    def block(self, user: str, number: int) -> dict[str, Any]:
        row = self._row(collection("blocks"), "block", user)
        return row | {"name": f"block-{number}", "version": 1, "content": self._chance.choice(self._text)}

    def _row(self, kind: Collection, prefix: str, user: str) -> dict[str, Any]:
        self._now += _MINUTE
        times = dict.fromkeys(("created_at", "recorded_at", "updated_at"), self._now)
        identity = {"org": ORG, "namespace": self._namespaces[user], "agent": "helper", "user_id": user}
        return self._empty[kind.name] | identity | {"session_id": "-"} | times | {"id": self._ids.new(prefix), "seq": 0}
