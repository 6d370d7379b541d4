"""A server that is away, full, slow or in the way: the error says so, nothing is written by half, and it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg import errors, sql

from expunge import Expunge, Settings
from expunge.authority.port import Statement, Tx
from expunge.authority.postgres import PostgresAuthority, PostgresPlace
from expunge.authority.postgres.connection import faults
from expunge.errors import (
    DatabaseAway,
    DatabaseBusy,
    DatabaseFault,
    DatabaseUnreadable,
    DiskFull,
    ErasureInterrupted,
    SettingsError,
)
from tests.crash.kit import opened, watched
from tests.eye import connected
from tests.pg.keeper import Server
from tests.pg.proxy import Loss, Proxy
from tests.pg.server import drop_database, fresh_database
from tests.shell import Shell
from tests.support import dump, episode, ids, memory, one_of_each

BUSY_S = 1.0
SECRET = "s3cret/@:% ?word"
_EPISODES = "SELECT id FROM expunge.episodes ORDER BY id"


@pytest.fixture(scope="module")
def template(server: Server) -> Iterator[str]:
    """A database on the server of this module with our schema."""
    url = fresh_database(server.url)
    asyncio.run(_made(url))
    yield url
    drop_database(url)


async def _made(url: str) -> None:
    await (await PostgresAuthority.open(PostgresPlace.parse(url), create=True)).close()


@pytest.fixture
def place(server: Server, template: str) -> Iterator[str]:
    """A database with our schema, of its own."""
    url = fresh_database(server.url, template)
    yield url
    drop_database(url)


@pytest.fixture
def settings(place: str, tmp_path: Path) -> Settings:
    return at(place, tmp_path)


@pytest.fixture
def limited(admin: psycopg.Connection, place: str) -> Iterator[str]:
    """The name of a role that owns the database's schema, and that a test may set limits for."""
    name = "limited"
    admin.execute(f"CREATE ROLE {name} LOGIN SUPERUSER")
    yield name
    with connected(place) as connection:
        connection.execute(f"DROP OWNED BY {name}")
    admin.execute(f"DROP ROLE {name}")


@pytest.fixture
def locked(server: Server, admin: psycopg.Connection) -> Iterator[str]:
    """The name of a role that has to say a password."""
    admin.execute(sql.SQL("CREATE ROLE locked LOGIN SUPERUSER PASSWORD {}").format(SECRET))
    file = server.folder / "data" / "pg_hba.conf"
    was = file.read_text(encoding="utf-8")
    file.write_text("local all locked scram-sha-256\n" + was, encoding="utf-8")
    admin.execute("SELECT pg_reload_conf()")
    yield "locked"
    file.write_text(was, encoding="utf-8")
    admin.execute("SELECT pg_reload_conf()")
    admin.execute("DROP ROLE locked")


def at(url: str, folder: Path, **fields: Any) -> Settings:
    """A database, with keys and bodies in a folder, and little patience."""
    words: dict[str, Any] = {"busy_timeout_s": BUSY_S, "keys_file": folder / "k.keys", "objects": folder / "k.objects"}
    return Settings(db=url, **(words | fields))


def as_role(url: str, role: str) -> str:
    """The same database for another role."""
    return url.replace("postgres@", f"{role}@")


def rows(url: str, query: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


def run(text: str) -> Callable[[Tx], Any]:
    """A unit of one statement."""
    return lambda tx: tx.rows(Statement("test.run", text))


# How to connect


@pytest.mark.parametrize(
    "form",
    [
        "postgresql://postgres@/{name}?host={socket}",
        "postgres://postgres@/{name}?host={socket}",
        "postgresql:///{name}?host={socket}&user=postgres",
        "postgresql://postgres@{quoted}/{name}",
        "postgresql://postgres@/{name}?host={socket}&sslmode=prefer&connect_timeout=3",
        "postgresql://postgres@/{name}?host=/nowhere,{socket}",
        "postgresql://postgres@/{name}?host={socket}&client_encoding=latin1",
        "postgresql://postgres@/{name}?host={socket}&options=-c%20search_path%3Dpublic%20-c%20row_security%3Doff",
    ],
)
async def test_forms_of_a_url(place: str, server: Server, tmp_path: Path, form: str) -> None:
    """Each leads to the same database, also where it sets what the product has to set by itself."""
    name, socket = place.partition("?")[0].rpartition("/")[2], f"{server.folder}/socket"
    url = form.format(name=name, socket=socket, quoted=quote(socket, safe=""))
    async with Expunge(settings=at(url, tmp_path)) as expunge:
        await expunge.put([episode("e\N{DECIDUOUS TREE}", "ann")])
    assert rows(place, _EPISODES) == [("e\N{DECIDUOUS TREE}",)]


async def test_what_the_url_or_the_environment_sets_stays(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "SELECT current_setting('work_mem'), current_setting('application_name'), current_setting('search_path')"
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=7MB")
    async with Expunge(settings=at(place, tmp_path)) as expunge:
        assert await expunge.system.authority.read(run(asked)) == [("7MB", "expunge", "expunge")]
    url = place + "&application_name=mine&options=-c%20work_mem%3D9MB"
    async with Expunge(settings=at(url, tmp_path)) as expunge:
        assert await expunge.system.authority.read(run(asked)) == [("9MB", "mine", "expunge")]


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@h/d",
        "postgresql://ann:s3cret@word@h/d",
        "postgresql://ann:s3cret/word@h/d",
        "postgresql://ann:a?s3cret@word@h/d",
        "postgresql://ann:a@s3cret/word@h/d",
        "postgresql://ann:s3cret@h/d?nonsense=s3cret",
        "postgresql://ann:s3cret%zz@h/d",
        "postgresql://[::1:s3cret/d",
        "POSTGRESQL://ann:s3cret@h/d",
        "postgresql+psycopg://ann:s3cret@h/d",
        "mysql://ann:s3cret@h/d",
    ],
)
async def test_a_url_that_cannot_be_read_is_refused_and_not_repeated(tmp_path: Path, url: str) -> None:
    """Bad input: nothing is repaired, and a message holds no part of a password."""
    with pytest.raises(SettingsError) as refused:
        async with Expunge(settings=at(url, tmp_path)):
            pass
    assert "s3cret" not in str(refused.value)
    assert "word" not in str(refused.value).replace("password", "")


async def test_a_password_with_every_sign_lets_in_when_it_is_escaped(place: str, locked: str, tmp_path: Path) -> None:
    url = place.replace("postgres@", f"{locked}:{quote(SECRET, safe='')}@")
    async with Expunge(settings=at(url, tmp_path)) as expunge:
        assert not (await expunge.profile("ann")).found


def _wrong(place: str, locked: str) -> dict[str, tuple[str, str]]:
    """URLs that lead nowhere, and what is said of each."""
    where = place.partition("?")[2]
    return {
        "password": (place.replace("postgres@", f"{locked}:wr0ng@"), "password authentication failed"),
        "no password": (place.replace("postgres@", f"{locked}@"), "no password supplied"),
        "role": (place.replace("postgres@", "nobody1:wr0ng@"), "role … does not exist"),
        "database": (f"postgresql://postgres:wr0ng@/nosuch?{where}", "database … does not exist"),
        "host": ("postgresql://nobody1:wr0ng@nosuch.invalid/d", "failed to resolve host …"),
        "port": ("postgresql://nobody1:wr0ng@127.0.0.1:1/d", "Connection refused"),
        "socket": ("postgresql://nobody1:wr0ng@/d?host=/nowhere", "No such file or directory"),
    }


@pytest.mark.parametrize("what", _wrong("", ""))
async def test_who_is_not_let_in_is_told_why_and_nothing_secret(
    place: str, locked: str, tmp_path: Path, what: str
) -> None:
    """Law 14 of messages: why, and neither the password nor who it was."""
    url, why = _wrong(place, locked)[what]
    with pytest.raises(DatabaseAway) as away:
        async with Expunge(settings=at(url, tmp_path)):
            pass
    assert why in str(away.value)
    assert not any(name in str(away.value) for name in ("wr0ng", "nobody1", locked))


def test_the_command_says_it_in_one_line(place: str, locked: str, tmp_path: Path) -> None:
    """Also what the driver would log by itself stays out of it."""
    url = _wrong(place, locked)["password"][0]
    done = Shell(tmp_path).run("profile", "ann", exits=4, EXPUNGE_DB=url)
    said = (done.stdout + done.stderr).decode()
    assert "password authentication failed" in said
    assert "wr0ng" not in said
    assert locked not in said


# A server that goes away


async def test_a_server_that_comes_back_is_used_again(
    server: Server, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    """Away at start and in the middle: an answer in time, then the first call works though every connection is dead."""
    authority_busy = settings.model_copy(update={"connections": 4})
    async with Expunge(settings=authority_busy) as expunge:
        await expunge.put([episode("e1", "ann")])
        sleeps = [expunge.system.authority.read(run("SELECT pg_sleep(0.1)")) for _ in range(4)]
        await asyncio.gather(*sleeps, expunge.system.authority.read_apart(run("SELECT 1")))
        server.stop()
        began = time.monotonic()
        with pytest.raises(DatabaseAway, match="cannot be reached: "):
            await expunge.put([episode("e2", "ann")])
        assert BUSY_S <= time.monotonic() - began < 4 * BUSY_S  # it may come back any moment
        with pytest.raises(DatabaseAway):
            async with Expunge(settings=settings):
                pass
        server.start_again()
        await expunge.put([episode("e3", "ann")])
        server.stop()
        server.start_again()
        assert (await expunge.profile("ann")).counts["episodes"] == 2
        server.stop()
        server.start_again()
        assert (await expunge.erase("ann", purge=True)).status == "completed"
    assert capfd.readouterr() == ("", "")


async def test_a_call_outlives_a_restart_that_is_shorter_than_its_patience(server: Server, settings: Settings) -> None:
    patient = settings.model_copy(update={"busy_timeout_s": 20.0})
    async with Expunge(settings=patient) as expunge:
        await expunge.put([episode("e1", "ann")])
        server.stop()
        calls = asyncio.gather(
            expunge.put([episode("e2", "ann")]), expunge.profile("ann"), *(expunge.as_of() for _ in range(20))
        )
        await asyncio.sleep(0.2)
        assert not calls.done()
        server.start_again()
        began = time.monotonic()
        await calls
        assert time.monotonic() - began < 5.0
        assert (await expunge.profile("ann")).counts["episodes"] == 2


@pytest.fixture
def proxy(server: Server, tmp_path: Path) -> Iterator[Proxy]:
    folder = tmp_path / "p"
    folder.mkdir()
    proxy = Proxy(folder, server.folder / "socket")
    yield proxy
    proxy.close()


@pytest.mark.parametrize("loses", ["commit", "answer"])
async def test_a_commit_without_an_answer_is_said_to_be_unknown(
    server: Server, proxy: Proxy, settings: Settings, loses: Loss
) -> None:
    """Law 16: nobody knows whether it was written, and this is what is said; repeated, it is there once."""
    through = settings.model_copy(update={"db": settings.db.replace(f"{server.folder}/socket", str(proxy.folder))})
    async with Expunge(settings=through) as expunge:
        proxy.lose(loses)
        with pytest.raises(DatabaseAway, match="broke while it committed"):
            await expunge.put([episode("e1", "ann"), memory("m1", "likes", "ann")])
        assert rows(settings.db, _EPISODES) == ([("e1",)] if loses == "answer" else [])
        await expunge.put([episode("e1", "ann"), memory("m1", "likes", "ann")])
        assert ids(await dump(expunge)) == {"e1", "m1"}


@pytest.mark.parametrize("loses", ["commit", "answer"])
async def test_an_erasure_goes_on_from_every_commit_that_was_lost(
    server: Server, proxy: Proxy, settings: Settings, loses: Loss
) -> None:
    """Law 2: whatever became of the commit, the erasure is found and resumed, or was never begun."""
    db = settings.db.replace(f"{server.folder}/socket", str(proxy.folder))
    async with Expunge(
        settings=settings.model_copy(update={"db": db, "batch_rows": 3, "max_attempts": 100})
    ) as expunge:
        answer = None
        for number in range(1, 40):
            await expunge.put(one_of_each("ann", f"a{number}"))
            proxy.lose(loses, number)
            try:
                answer = await expunge.erase("ann", purge=True)
                break
            except (ErasureInterrupted, DatabaseAway):
                for listed in (await expunge.call("erasure.list")).erasures:
                    if listed.status != "completed":
                        await expunge.resume(listed.request_id)
        assert answer is not None
        assert answer.status == "completed"
        assert number > 5  # that many commits were lost
        assert ids(await dump(expunge)) == set()
        assert (await expunge.call("audit.verify")).ok


@pytest.mark.parametrize("kind", ["run", "read", "read_apart", "rehearse"])
async def test_a_unit_whose_connection_is_ended_is_run_again(settings: Settings, kind: str) -> None:
    turns: list[int] = []

    def unit(tx: Tx) -> list[Any]:
        turns.append(1)
        if len(turns) <= 2:
            tx.rows(Statement("test.end", "SELECT pg_terminate_backend(pg_backend_pid())"))
        return tx.rows(Statement("test.one", "SELECT 1"))

    async with Expunge(settings=settings) as expunge:
        assert await getattr(expunge.system.authority, kind)(unit) == [(1,)]
    assert len(turns) == 3


async def test_an_erasure_whose_connections_are_ended_before_every_commit(
    settings: Settings, admin: psycopg.Connection
) -> None:
    """Each commit once finds its connection ended; the erasure stops, is resumed, and completes."""
    name = settings.db.partition("?")[0].rpartition("/")[2]
    seen: set[int] = set()

    def end(what: str, number: int, when: str) -> None:
        if (what, when) == ("run", "before") and number not in seen:
            seen.add(number)
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))

    async with Expunge(settings=settings) as expunge:
        await expunge.put(one_of_each("ann", "a") + one_of_each("bob", "b"))
    stops, answer = 0, None
    for _ in range(30):
        authority = await watched(settings)
        authority.watch = end
        async with opened(settings.model_copy(update={"batch_rows": 3, "max_attempts": 100}), authority) as expunge:
            with contextlib.suppress(DatabaseAway, ErasureInterrupted):
                begun = (await expunge.call("erasure.list")).erasures
                answer = await (expunge.resume(begun[0].request_id) if begun else expunge.erase("ann", purge=True))
                break
        stops += 1
    assert stops >= 1
    assert answer is not None
    assert answer.status == "completed"
    async with Expunge(settings=settings) as expunge:
        assert (await expunge.profile("ann")).counts["memories"] == 0
        assert (await expunge.profile("bob")).counts["memories"] == 1


# Limits


async def test_more_tasks_than_the_role_may_connect(
    limited: str, settings: Settings, admin: psycopg.Connection
) -> None:
    """A limit below ``connections`` is no error as long as there is one; when others hold them all, it is told."""
    fewer = settings.model_copy(update={"db": as_role(settings.db, limited), "connections": 8, "busy_timeout_s": 5.0})
    admin.execute(f"ALTER ROLE {limited} NOSUPERUSER CONNECTION LIMIT 3")
    with connected(settings.db) as connection:
        for kind in ("TABLES", "SEQUENCES"):
            connection.execute(f"GRANT ALL ON ALL {kind} IN SCHEMA expunge TO {limited}")
        connection.execute(f"GRANT USAGE ON SCHEMA expunge TO {limited}")
    async with Expunge(settings=fewer) as expunge:
        await asyncio.gather(*(expunge.put([episode(f"e{n}", f"u{n}")]) for n in range(24)))
        assert len(ids(await dump(expunge))) == 24
    left(admin, limited)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(psycopg.connect(fewer.db))
        with pytest.raises(DatabaseAway, match="too many connections for role …"):
            async with Expunge(settings=fewer):
                pass
    left(admin, limited)
    async with Expunge(settings=fewer) as expunge:
        assert (await expunge.profile("u1")).found


def left(admin: psycopg.Connection, role: str) -> None:
    """Wait until the server has noticed that the connections of a role were closed."""
    until = time.monotonic() + 10
    while admin.execute("SELECT FROM pg_stat_activity WHERE usename = %s", (role,)).fetchall():
        assert time.monotonic() < until
        time.sleep(0.01)


async def test_one_connection_serves_many_tasks(settings: Settings) -> None:
    """A pool of one: tasks take turns, also beside an erasure, a census and a preview."""
    async with Expunge(settings=settings.model_copy(update={"connections": 1})) as expunge:
        await expunge.put(one_of_each("ann", "a") + one_of_each("bob", "b"))
        erasing = asyncio.create_task(expunge.erase("ann", purge=True))
        await asyncio.gather(
            expunge.preview("bob"),
            *(expunge.put([episode(f"e{n}", f"u{n}")]) for n in range(20)),
            *(expunge.profile("bob") for _ in range(20)),
        )
        assert (await erasing).status == "completed"
        assert ids(await dump(expunge)) >= {f"e{n}" for n in range(20)} | {"b-e"}


async def test_a_statement_that_takes_too_long_for_the_role(
    limited: str, settings: Settings, admin: psycopg.Connection
) -> None:
    admin.execute(f"ALTER ROLE {limited} SET statement_timeout = '200ms'")
    async with Expunge(settings=settings.model_copy(update={"db": as_role(settings.db, limited)})) as expunge:

        def unit(tx: Tx) -> None:
            tx.change(Statement("test.write", "INSERT INTO orgs (org) VALUES ('slow')"))
            tx.rows(Statement("test.sleep", "SELECT pg_sleep(5)"))

        with pytest.raises(DatabaseBusy, match="statement_timeout"):
            await expunge.system.authority.run(unit)
        await expunge.put([episode("e1", "ann")])
    assert rows(settings.db, "SELECT org FROM expunge.orgs WHERE org = 'slow'") == []


async def test_a_lock_is_waited_for_as_long_as_is_said(settings: Settings) -> None:
    """``busy_timeout_s``: not sooner, and nothing is written; then the connection is as good as before."""
    async with Expunge(settings=settings) as expunge:
        await expunge.put([episode("e0", "ann")])
        with connected(settings.db) as connection, connection.transaction():
            connection.execute("LOCK TABLE episodes IN EXCLUSIVE MODE")
            began = time.monotonic()
            with pytest.raises(DatabaseBusy, match="did not answer in time"):
                await expunge.put([memory("m1", "likes", "ann"), episode("e1", "ann")])
            assert BUSY_S <= time.monotonic() - began < 3 * BUSY_S
        assert ids(await dump(expunge)) == {"e0"}
        await expunge.put([memory("m1", "likes", "ann"), episode("e1", "ann")])
        assert ids(await dump(expunge)) == {"e0", "e1", "m1"}


async def test_two_units_that_wait_for_each_other_are_both_written(settings: Settings) -> None:
    """A deadlock that the server finds: one of the two is run again, and the caller sees nothing of it."""
    async with Expunge(settings=settings) as expunge:
        await expunge.put([episode("e1", "ann"), episode("e2", "bob")])
        both, turns = threading.Barrier(2), {"one": 0, "two": 0}

        def unit(tx: Tx, name: str, first: str, then: str) -> None:
            turns[name] += 1
            for record_id in (first, then):
                text = "UPDATE episodes SET output = coalesce(output, '') || :name WHERE id = :id"
                tx.change(Statement("test.append", text), id=record_id, name=name)
                if turns[name] == 1 and record_id == first:
                    both.wait(20)

        await asyncio.gather(
            expunge.system.authority.run(lambda tx: unit(tx, "one", "e1", "e2")),
            expunge.system.authority.run(lambda tx: unit(tx, "two", "e2", "e1")),
        )
    written = rows(settings.db, "SELECT output FROM expunge.episodes")
    assert [sorted((text[:3], text[3:])) for (text,) in written] == [["one", "two"]] * 2
    assert sum(turns.values()) == 3


async def test_a_unit_that_cannot_be_put_in_order_is_run_again(settings: Settings) -> None:
    """A serialization failure, made by the one thing that makes them: a row that changed since the snapshot."""
    async with Expunge(settings=settings) as expunge:
        await expunge.put([episode("e1", "ann")])
        turns: list[int] = []

        def unit(tx: Tx) -> None:
            turns.append(1)
            tx.change(Statement("test.level", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            tx.rows(Statement("test.look", "SELECT id FROM episodes"))
            if len(turns) <= 2:
                with connected(settings.db) as connection:
                    connection.execute("UPDATE episodes SET output = coalesce(output, '') || 'x'")
            tx.change(Statement("test.append", "UPDATE episodes SET output = output || 'y'"))

        await expunge.system.authority.run(unit)
    assert len(turns) == 3
    assert rows(settings.db, "SELECT output FROM expunge.episodes") == [("xxy",)]


@pytest.mark.parametrize("ends", [True, False])
async def test_a_transaction_that_stood_idle_for_too_long_is_run_again(
    limited: str, settings: Settings, admin: psycopg.Connection, ends: bool
) -> None:
    """The server ended it in the middle or before its commit. It had not committed, so it can be repeated."""
    admin.execute(f"ALTER ROLE {limited} SET idle_in_transaction_session_timeout = '100ms'")
    async with Expunge(settings=settings.model_copy(update={"db": as_role(settings.db, limited)})) as expunge:
        turns: list[int] = []

        def unit(tx: Tx, slow: int) -> None:
            turns.append(1)
            tx.change(Statement("test.write", "INSERT INTO orgs (org) VALUES (:org)"), org=f"late {slow}")
            if len(turns) <= slow:
                time.sleep(0.3)
            if not ends:
                tx.rows(Statement("test.one", "SELECT 1"))

        await expunge.system.authority.run(lambda tx: unit(tx, 1))
        assert len(turns) == 2
        turns.clear()
        with pytest.raises(DatabaseBusy, match="idle_in_transaction_session_timeout"):
            await expunge.system.authority.run(lambda tx: unit(tx, 99))
    assert rows(settings.db, "SELECT org FROM expunge.orgs WHERE org LIKE 'late%'") == [("late 1",)]


async def test_a_role_that_may_only_read_reads_and_writes_nothing(
    limited: str, settings: Settings, admin: psycopg.Connection
) -> None:
    async with Expunge(settings=settings) as expunge:
        await expunge.put([episode("e1", "ann")])
    admin.execute(f"ALTER ROLE {limited} SET default_transaction_read_only = on")
    async with Expunge(settings=settings.model_copy(update={"db": as_role(settings.db, limited)})) as expunge:
        assert (await expunge.profile("ann")).counts["episodes"] == 1
        with pytest.raises(DatabaseUnreadable, match="takes no writes"):
            await expunge.put([episode("e2", "ann")])
        with pytest.raises(DatabaseUnreadable):
            await expunge.erase("ann", purge=True)
        assert (await expunge.profile("ann")).counts["episodes"] == 1


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("08006", DatabaseAway),
        ("28P01", DatabaseAway),
        ("57P03", DatabaseAway),
        ("40001", DatabaseBusy),
        ("40P01", DatabaseBusy),
        ("55P03", DatabaseBusy),
        ("53100", DiskFull),
        ("42501", DatabaseUnreadable),
        ("25006", DatabaseUnreadable),
        ("53200", DatabaseFault),
        ("54000", DatabaseFault),
        ("58030", DatabaseFault),
        ("XX000", DatabaseFault),
        ("22P05", DatabaseFault),
    ],
)
def test_an_error_is_told_as_what_it_is(state: str, kind: type[DatabaseFault]) -> None:
    """Only what says so is told as a server that is away: who hears that tries again."""
    with pytest.raises(DatabaseFault) as told, faults(PostgresPlace.parse("postgresql://h/d")):
        raise errors.lookup(state)("a value")
    assert type(told.value) is kind
    assert "a value" not in str(told.value)
