"""Making and checking the schema on a server: replicas that start at once, what is not ours, kills in the middle."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from expunge import Expunge, Settings
from expunge.authority.postgres import PostgresAuthority, PostgresPlace, migrate
from expunge.errors import (
    DatabaseBusy,
    DatabaseFault,
    DatabaseForeign,
    DatabaseMissing,
    DatabaseNewer,
    KeyMissing,
)
from tests.crash.kit import Child
from tests.eye import connected
from tests.support import episode

REPLICAS = 4
_PATIENCE_S = 20.0
_SCHEMAS = "SELECT count(*) FROM pg_namespace WHERE nspname = 'expunge'"
_BY_LANGUAGE = """SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'expunge'::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0
    AND a.attcollation NOT IN (0, (SELECT oid FROM pg_collation WHERE collname = 'C'))"""


def settings_of(url: str, folder: Path, keys: str = "expunge.keys", **fields: Any) -> Settings:
    """A database, with keys and bodies in a folder."""
    return Settings(db=url, keys_file=folder / keys, objects=folder / "expunge.objects", **fields)


def rows(url: str, query: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


async def opening(url: str, **options: Any) -> PostgresAuthority:
    return await PostgresAuthority.open(PostgresPlace.parse(url), **{"create": True, **options})


def written_by(settings: Settings, name: str, go: Callable[[], None]) -> list[str]:
    """Open the database as soon as the others do, write an episode, and give the ids of the keys."""

    async def work() -> list[str]:
        go()
        async with Expunge(settings=settings) as expunge:
            await expunge.put([episode(name, "ann")])
            return list(expunge.system.keys.check_values())

    return asyncio.run(work())


class Start:
    """Lets children begin at one moment: each waits until the pipe is closed."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def wait(self) -> None:
        os.close(self._writing)
        os.read(self._reading, 1)

    def give(self) -> None:
        os.close(self._writing)
        os.close(self._reading)


def at_once(jobs: Iterable[Callable[[Callable[[], None]], Any]]) -> list[Any]:
    """What jobs give back that run in a process each, or the text of what they raise."""
    start = Start()
    children = [Child(partial(job, start.wait)) for job in jobs]
    start.give()
    return [ended.value or ended.error for ended in (child.end() for child in children)]


async def test_replicas_that_start_at_once_have_one_schema_and_one_set_of_keys(tmp_path: Path, empty: str) -> None:
    """Issue: migrations under a lock. On an empty database all come up, and what each wrote is there."""
    settings = settings_of(empty, tmp_path)
    found = at_once(partial(written_by, settings, f"e{n}") for n in range(REPLICAS))
    assert len(found[0]) == 2  # one for pseudonyms, one for receipts
    assert found == [found[0]] * REPLICAS
    assert rows(empty, "SELECT version, application FROM expunge.schema_version") == [(1, "expunge")]
    assert rows(empty, "SELECT count(*) FROM expunge.store") == [(1,)]
    assert {name for (name,) in rows(empty, "SELECT id FROM expunge.keys")} == set(found[0])
    async with Expunge(settings=settings) as expunge:
        assert (await expunge.profile("ann")).counts["episodes"] == REPLICAS
        assert (await expunge.erase("ann", purge=True)).status == "completed"


async def test_of_two_first_starts_with_different_keys_one_is_refused(tmp_path: Path, empty: str) -> None:
    """Design 4: a database never relies on keys that only one of its replicas has; the one that came first goes on."""
    await (await opening(empty)).close()
    found = at_once(partial(written_by, settings_of(empty, tmp_path, f"keys-{n}"), f"e{n}") for n in range(2))
    refused = [text for text in found if isinstance(text, str)]
    (keys,) = [names for names in found if isinstance(names, list)]
    assert len(refused) == 1
    assert KeyMissing.__name__ in refused[0]
    assert {name for (name,) in rows(empty, "SELECT id FROM expunge.keys")} == set(keys)
    assert rows(empty, "SELECT count(*) FROM expunge.episodes") == [(1,)]


async def test_the_second_names_no_keys_though_it_had_looked_before_the_first(
    tmp_path: Path, empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with the one order made to happen that a look alone does not notice."""
    second = await opening(empty)
    read = second.read

    async def after_the_first(unit: Any) -> Any:
        found = await read(unit)
        monkeypatch.setattr(second, "read", read)
        async with Expunge(settings=settings_of(empty, tmp_path, "first")):
            return found

    monkeypatch.setattr(second, "read", after_the_first)
    with pytest.raises(KeyMissing):
        async with Expunge(settings=settings_of(empty, tmp_path, "second"), authority=second):
            pass
    async with Expunge(settings=settings_of(empty, tmp_path, "first"), create=False) as expunge:
        assert {name for (name,) in rows(empty, "SELECT id FROM expunge.keys")} == set(
            expunge.system.keys.check_values()
        )


async def test_a_newer_schema_is_refused_and_left_as_it_is(empty: str) -> None:
    await (await opening(empty)).close()
    with connected(empty) as connection:
        connection.execute("UPDATE schema_version SET version = 99")
        connection.execute("CREATE TABLE of_99 ()")
    with pytest.raises(DatabaseNewer, match="schema 99, and this version knows 1"):
        await opening(empty)
    assert rows(empty, "SELECT version FROM expunge.schema_version") == [(99,)]


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE expunge.theirs (id int)",
        "CREATE TABLE expunge.schema_version (version bigint)",
        "CREATE TABLE expunge.schema_version (version bigint, application text)",
        "CREATE TABLE expunge.schema_version AS SELECT 1::bigint AS version, 'another'::text AS application",
        "CREATE VIEW expunge.theirs AS SELECT 1 AS id",
    ],
)
async def test_a_schema_of_another_program_is_refused_and_left_as_it_is(empty: str, ddl: str) -> None:
    tables = "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'expunge'::regnamespace"
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE SCHEMA expunge")
        connection.execute(ddl)
        before = connection.execute(tables).fetchall()
    for _ in range(2):
        with pytest.raises(DatabaseForeign, match="another program"):
            await opening(empty)
    assert rows(empty, tables) == before


async def test_other_schemas_of_the_database_are_not_ours_to_look_at(tmp_path: Path, empty: str) -> None:
    """A table that is named as one of ours, in the schema that everybody has, is neither taken for it nor touched."""
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE TABLE public.schema_version (version text)")
        connection.execute("CREATE TABLE public.episodes AS SELECT 'theirs' AS id")
    async with Expunge(settings=settings_of(empty, tmp_path)) as expunge:
        await expunge.put([episode("e1", "ann")])
        assert (await expunge.erase("ann", purge=True)).status == "completed"
    assert rows(empty, "SELECT id FROM public.episodes") == [("theirs",)]


async def test_without_leave_to_make_one_no_schema_is_made(empty: str) -> None:
    with pytest.raises(DatabaseMissing):
        await opening(empty, create=False)
    assert rows(empty, _SCHEMAS) == [(0,)]


def test_an_older_server_is_refused() -> None:
    """PostgreSQL 14 lacks what the schema is made of; nothing is asked of it."""
    info = SimpleNamespace(server_version=140011, parameter_status=lambda _: "UTF8")
    connection: Any = SimpleNamespace(info=info)
    with pytest.raises(DatabaseFault, match="older than 15"):
        migrate.migrate(connection, PostgresPlace.parse("postgresql://h/d"), create=True)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_cannot_hold_every_text_is_refused(admin: psycopg.Connection, encoding: str) -> None:
    """Law 12: each character is kept as it is, and counted as one."""
    name = f"expunge_test_{encoding.lower()}"
    admin.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    url = f"postgresql://{admin.info.user}@/{name}?host={admin.info.host}"
    try:
        with pytest.raises(DatabaseFault, match=f"encoded in {encoding}"):
            await opening(url)
        assert rows(url, _SCHEMAS) == [(0,)]
    finally:
        admin.execute(f"DROP DATABASE {name}")


async def test_no_text_is_compared_by_the_language_of_the_database(empty: str) -> None:
    """Law 12: every column of every table and view says COLLATE "C", so that another locale changes nothing."""
    await (await opening(empty)).close()
    assert rows(empty, _BY_LANGUAGE) == []
    with connected(empty) as connection:
        connection.execute("ALTER TABLE episodes ADD COLUMN note text")
    assert rows(empty, _BY_LANGUAGE) == [("episodes", "note")]  # the query finds one


def _migrates_slowly(url: str) -> None:
    """Make the schema, and stand still before the commit."""
    slow = [*migrate.migrations(), (2, "SELECT pg_sleep(0.5)")]
    migrate.migrations = lambda: slow  # type: ignore[assignment]
    asyncio.run(opening(url))


async def test_a_kill_in_the_middle_leaves_nothing_half_made(tmp_path: Path, empty: str) -> None:
    """Issue: an interrupted first opening is as if it had not been, and the next one comes up."""
    child = Child(lambda: _migrates_slowly(empty))
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
    until = time.monotonic() + _PATIENCE_S
    while not rows(empty, asleep)[0][0]:
        assert time.monotonic() < until
        await asyncio.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    assert child.end().signal == signal.SIGKILL
    with pytest.raises(DatabaseMissing):  # and while its server process is still at it, nothing is seen
        await opening(empty, create=False)
    async with Expunge(settings=settings_of(empty, tmp_path)) as expunge:  # waits for what is still at it
        await expunge.put([episode("e1", "ann")])
    assert rows(empty, "SELECT version FROM expunge.schema_version") == [(1,)]


async def test_who_waits_too_long_for_another_that_migrates_says_so_and_makes_nothing(empty: str) -> None:
    with psycopg.connect(empty) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (migrate._LOCK,))
        began = time.monotonic()
        with pytest.raises(DatabaseBusy):
            await opening(empty, busy_timeout_s=0.3)
        assert time.monotonic() - began >= 0.3
    assert rows(empty, _SCHEMAS) == [(0,)]


async def test_a_schema_that_is_there_is_opened_while_another_holds_the_lock(empty: str) -> None:
    """A replica that has nothing to migrate waits for nobody."""
    await (await opening(empty)).close()
    with psycopg.connect(empty) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (migrate._LOCK,))
        await (await opening(empty, busy_timeout_s=0.3)).close()
