"""Migrations: a database of the first schema is brought to the newest, and nothing in it is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from expunge import Agent, Expunge, Settings
from expunge.authority.port import Statement
from expunge.authority.sqlite import migrate
from expunge.errors import HiddenByErasure
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


_AS_SCHEMA_2 = """
    DROP TABLE store;
    DROP VIEW sql_v1_memories;
    DROP VIEW sql_v1_memory_history;
    DROP VIEW sql_v1_conversations;
    DROP INDEX requests_requester;
    DROP TABLE audit_clear;
    DROP TABLE audit;
    CREATE TABLE audit (
        org TEXT NOT NULL, n INTEGER NOT NULL, at INTEGER NOT NULL, actor TEXT NOT NULL, role TEXT NOT NULL,
        operation TEXT NOT NULL, outcome TEXT NOT NULL, request_id TEXT, subjects TEXT NOT NULL, detail TEXT NOT NULL,
        PRIMARY KEY (org, n)
    ) STRICT, WITHOUT ROWID;
    ALTER TABLE orgs DROP COLUMN audit_length;
    ALTER TABLE orgs DROP COLUMN audit_head;
    DROP INDEX marks_beside;
    ALTER TABLE marks DROP COLUMN beside;
    CREATE INDEX marks_record ON marks (id, org);
    CREATE INDEX requests_clear ON requests (org) WHERE scope IS NOT NULL;
    UPDATE episodes SET marked = 1 WHERE marked <> 0;
    UPDATE memories SET marked = 1 WHERE marked <> 0;
    UPDATE facts SET marked = 1 WHERE marked <> 0;
    PRAGMA user_version = 2
"""


def served(dumped: dict[str, dict[str, tuple[Any, ...]]]) -> set[str]:
    """The ids of what is not hidden."""
    return {key for name, rows in dumped.items() if name != "lineage" for key, row in rows.items() if row[0] == 0}


async def test_what_the_second_schema_had_hidden_names_who_hides_it(tmp_path: Path) -> None:
    """Laws 5 and 10: what two erasures hide comes back with the second of them, and nothing is made from it before."""
    settings = Settings(db=str(tmp_path / "old.db"), org="acme")
    world = [
        episode("ann-e", "ann"),
        episode("ann-e2", "ann", session_id="s"),
        fact("ann-f", "ann"),
        episode("bob-e", "bob", session_id="s"),
        memory("sum", "sum", sources=["ann-e2", "bob-e"]),
    ]
    async with Expunge(settings=settings, clock=ManualClock()) as expunge:
        await expunge.put(world)
        of_ann = await expunge.erase("ann", purge=False)
        of_session = await expunge.erase(session_id="s", purge=False)
        hidden = await dump(expunge)
    connection = apsw.Connection(settings.db)
    connection.execute(_AS_SCHEMA_2).fetchall()
    connection.close()
    async with Expunge(settings=settings, clock=ManualClock()) as expunge:
        assert await dump(expunge) == hidden
        for source in ("ann-e", "ann-e2", "bob-e"):
            with pytest.raises(HiddenByErasure):
                await expunge.put([memory("new", "new", sources=[source])])
        await expunge.restore(of_ann.request_id)
        assert served(await dump(expunge)) == {"ann-e", "ann-f"}
        await expunge.restore(of_session.request_id)
        assert served(await dump(expunge)) == ids(hidden)
        assert (await expunge.erase("ann", purge=True)).removed["episodes"] == 2
        assert ids(await dump(expunge)) == {"bob-e"}
