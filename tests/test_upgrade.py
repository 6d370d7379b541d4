"""Migrations: a database of the first schema is brought to the newest, and nothing in it is lost."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from expunge import Agent, Expunge, Settings
from expunge.authority.port import Statement
from expunge.authority.sqlite import migrate
from expunge.model.instant import ManualClock
from tests.support import dump, episode, fact, ids, memory

COMMON = "org, id, namespace, agent, user_id, session_id, created_at, recorded_at, updated_at, seq"
WHOSE = "'acme', ?, '-', '-', ?, '-', 1, 1, 1, 0"


@pytest.fixture
async def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A database as the first schema had it, with two people and what was made from both."""
    settings = Settings(db=str(tmp_path / "old.db"), org="acme")
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "migrations", lambda: [item for item in real if item[0] == 1])
        async with Expunge(settings=settings, clock=ManualClock()):
            pass
    connection = apsw.Connection(settings.db)
    connection.execute("INSERT INTO orgs (org) VALUES ('acme')")
    for user in ("ann", "bob"):
        connection.execute(
            f"INSERT INTO episodes ({COMMON}, occurred_at, input) VALUES ({WHOSE}, 1, ?)",
            (f"{user}-e", user, f"{user} likes gooseberries"),
        )
        connection.execute(
            f"INSERT INTO facts ({COMMON}, subject, predicate, object) VALUES ({WHOSE}, ?, 'Lives-in', 'Porto')",
            (f"{user}-f", user, user),
        )
    connection.execute(
        f"INSERT INTO memories ({COMMON}, key, version, value) VALUES ({WHOSE}, 'sum', 1, '\"both\"')", ("sum", "-")
    )
    connection.execute(
        """INSERT INTO lineage VALUES ('acme', 'sum', 'ann-e', 'memories', 'episodes', 'retire', 0),
        ('acme', 'sum', 'bob-e', 'memories', 'episodes', 'retire', 0)"""
    )
    assert connection.pragma("user_version") == 1
    connection.close()
    return settings


real = migrate.migrations()


async def test_a_database_of_the_first_schema_is_brought_to_the_newest(first: Settings) -> None:
    """Deliver: numbered migrations. All is there, search finds it once it is indexed, and erasing it takes it all."""
    async with Expunge(settings=first, clock=ManualClock()) as expunge:
        whole = await dump(expunge)
        assert ids(whole) == {"ann-e", "ann-f", "bob-e", "bob-f", "sum"}
        assert set(whole["lineage"]) == {"sum<ann-e", "sum<bob-e"}
        async with Agent(expunge, org="acme", user_id="bob") as agent:
            assert await agent.memory.search("gooseberries", kinds=["episodes"]) == []
            indexed = await expunge.call("search.reindex")
            assert indexed.indexed == {"episodes": 2, "memories": 1, "facts": 2, "chunks": 0}
            assert sum((await expunge.call("search.reindex")).indexed.values()) == 0
            assert [hit.id for hit in await agent.memory.search("gooseberries", kinds=["episodes"])] == ["bob-e"]
            assert [fact.id for fact in await agent.memory.facts(predicate="lives in")] == ["bob-f"]
        answer = await expunge.erase("ann", purge=True)
        assert (answer.status, answer.removed["memories"], answer.removed["lineage"]) == ("completed", 1, 2)
        assert ids(await dump(expunge)) == {"bob-e", "bob-f"}
        entries = Statement("test.entries", "SELECT count(*) FROM search_docsize")
        assert await expunge.system.authority.read(lambda tx: tx.rows(entries)) == [(2,)]


async def test_it_takes_new_records_beside_the_old(first: Settings) -> None:
    """Deliver: numbered migrations. What is written after it has versions that follow those of before."""
    async with Expunge(settings=first, clock=ManualClock()) as expunge:
        await expunge.put([episode("new", "ann"), memory("sum2", "sum"), fact("f2", "bob", sources=["bob-e"])])
        found = await dump(expunge)
        assert ids(found) == {"ann-e", "ann-f", "bob-e", "bob-f", "sum", "new", "sum2", "f2"}
        async with Agent(expunge, org="acme") as agent:
            assert (await agent.memory.get("sum")).value == "value of sum2"
            assert [item.version for item in (await agent.memory.history("sum")).versions] == [2, 1]
