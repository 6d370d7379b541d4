"""Issue 6: vectors are compared by pgvector where it is, and where it is not the answers are the same."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import orjson
import psycopg
import pytest

from expunge import Episode, Expunge, NewFact, Settings
from expunge.authority.postgres.transaction import PostgresTx
from expunge.model.instant import ManualClock
from tests.agents.kit import ORG, as_user, count
from tests.pg import server as pg
from tests.subject.kit import exported

Two = dict[str, Expunge]

_WORDS = ("barcelona", "holiday", "train", "sister", "violin", "garden", "winter", "soup", "Ünterwäsche", "🎻", "map")
_TYPE = "SELECT atttypid::regtype::text FROM pg_attribute WHERE attrelid = 'expunge.vectors'::regclass AND attname = 'vector'"


@pytest.fixture
def places(postgres_server: str) -> Iterator[dict[str, str]]:
    """A database with pgvector, and one without."""
    made = {"pgvector": pg.fresh_database(postgres_server)}
    made["none"] = pg.fresh_database(postgres_server, pgvector=False)
    yield made
    for url in made.values():
        pg.drop_database(url)


@pytest.fixture
async def two(places: dict[str, str], tmp_path: Path) -> AsyncIterator[Two]:
    """A system on each, which compare few enough vectors that the limit is reached."""
    files: Any = {"keys_file": tmp_path / "expunge.keys", "objects": tmp_path / "objects", "vector_scan_rows": 60}
    async with (
        Expunge(settings=Settings(db=places["none"], **files), clock=ManualClock()) as without,
        Expunge(settings=Settings(db=places["pgvector"], **files), clock=ManualClock()) as having,
    ):
        yield {"pgvector": having, "none": without}


def _sentence(chance: random.Random) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(chance.randrange(1, 9)))


async def _fill(expunge: Expunge, episodes: int) -> None:
    chance = random.Random(7)
    for user in ("ann", "bob"):
        async with as_user(expunge, user) as agent:
            said = [Episode(input=_sentence(chance), output=_sentence(chance)) for _ in range(episodes)]
            await agent.memory.remember_many([*said, *[Episode(input="Bye!") for _ in range(5)]])
            await agent.memory.set_many({f"k{n}": _sentence(chance) for n in range(30)})
            await agent.memory.set("one", "a single row")
            await agent.memory.add_fact(NewFact(subject="ann", predicate="plays", object="violin"))


async def _found(expunge: Expunge, user: str, query: str) -> Any:
    kinds: list[Literal["episodes", "memories", "facts", "chunks"]] = ["episodes", "memories", "facts"]
    async with as_user(expunge, user) as agent:
        by_both = await agent.memory.recall_scored(query, limit=100)
        by_vector = await agent.memory.recall_scored(query, limit=7, alpha=0.0)
        searched = await agent.memory.search(query, kinds=kinds, limit=100)
        answers = [by_both.hits, by_vector.hits, searched]
        return by_both.vectors, [[(hit.text, hit.by_words, hit.by_vector) for hit in hits] for hits in answers]


@pytest.mark.parametrize(("episodes", "compared"), [(20, "all"), (90, "newest")])
async def test_the_answers_are_the_same(two: Two, episodes: int, compared: str) -> None:
    """One searches where the call is and one in the database: what is found, and in which order, is equal."""
    for expunge in two.values():
        await _fill(expunge, episodes)
    chance = random.Random(8)
    for query in ["barcelonna", "Bye", "bye bye", "a single", *(_sentence(chance) for _ in range(25))]:
        one, other = [await _found(expunge, "ann", query) for expunge in two.values()]
        assert one == other, query
        assert one[0] == compared
        assert any(one[1])
    assert [await _found(expunge, "nobody", "violin") for expunge in two.values()] == [("all", [[], [], []])] * 2


async def test_what_is_stored_reads_the_same(two: Two) -> None:
    """The bytes of a vector are those of every authority: written alone, copied in, and moved to a new version."""
    exports = []
    for expunge in two.values():
        await _fill(expunge, 3)
        async with as_user(expunge) as agent:
            await agent.memory.set("one", "a single row, told again")
            await agent.memory.delete("k0")
            await agent.memory.restore("k0")
        file = (await exported(expunge, "ann", org=ORG, vectors=True, format="jsonl"))[0]
        lines = [orjson.loads(line) for line in file.splitlines()]
        exports.append(sorted((line["in"], line["float16"]) for line in lines if "float16" in line))
    assert exports[0] == exports[1]
    assert len(exports[0]) > 35


async def test_the_database_says_what_compares(
    two: Two, places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A declared capability, never a guess: the type of the column decides, and ``doctor`` tells."""
    names: dict[str, set[str]] = {}
    real = PostgresTx.rows
    for name, expunge in two.items():
        run = names.setdefault(name, set())

        def noting(self: PostgresTx, statement: Any, /, run: set[str] = run, **values: Any) -> Any:
            run.add(statement.name)
            return real(self, statement, **values)

        async with as_user(expunge) as agent:
            await agent.memory.remember(Episode(input="violin"))
            monkeypatch.setattr(PostgresTx, "rows", noting)
            await agent.memory.recall("violin")
            monkeypatch.setattr(PostgresTx, "rows", real)
        with psycopg.connect(places[name]) as connection:
            ((kind,),) = connection.execute(_TYPE).fetchall()
        versions = (await expunge.call("system.doctor")).versions
        assert (kind.rpartition(".")[2], "pgvector" in versions) == {
            "pgvector": ("halfvec", True), "none": ("bytea", False),
        }[name]  # fmt: skip
    assert "episodes.nearest" in names["pgvector"] - names["none"]
    assert "episodes.vectors" in names["none"] - names["pgvector"]


async def test_an_extension_that_comes_later_changes_nothing_until_the_schema_is_new(
    two: Two, places: dict[str, str]
) -> None:
    """The column stays what it was made as; ``doctor`` says that the extension is there and not used."""
    with psycopg.connect(places["none"], autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    async with as_user(two["none"]) as agent:
        await agent.memory.set("k", "violin")
        assert len(await agent.memory.search("violinn")) == 1
    assert "not used" in (await two["none"].call("system.doctor")).versions["pgvector"]


async def test_vectors_leave_with_their_records(two: Two) -> None:
    """Law 7: an erasure takes the vectors of one user, whatever keeps them, and leaves the other's."""
    for expunge in two.values():
        await _fill(expunge, 3)
        before = (await count(expunge, "vectors"))["vectors"]
        said = await expunge.erase("ann", org=ORG, purge=True)
        assert (said.status, said.residue_count) == ("completed", 0)
        assert (await count(expunge, "vectors"))["vectors"] == before // 2
        assert (await _found(expunge, "bob", "violin"))[1][0]
