"""Issue 6: an owner that is no superuser can do everything, and a role without rights on the schema can serve."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from expunge import Expunge, Settings
from expunge.model.instant import ManualClock
from tests.pg import server as pg
from tests.support import one_of_each

GRANTS = Path(__file__).parents[2] / "docs" / "postgres.md"


@pytest.fixture
def roles(postgres_server: str) -> Iterator[tuple[str, str]]:
    """URLs of one database: of a role that owns it, and of one that has nothing yet."""
    names = [f"expunge_{what}_{secrets.token_hex(4)}" for what in ("owner", "serving")]
    url = pg.fresh_database(postgres_server)
    database = urlsplit(url).path.removeprefix("/")
    with psycopg.connect(postgres_server, autocommit=True) as server:
        for name in names:
            server.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        owner = sql.Identifier(names[0])
        server.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(sql.Identifier(database), owner))
    net = urlsplit(url).netloc
    first, second = (url.replace(net, f"{name}@{net.rpartition('@')[2]}", 1) for name in names)
    yield first, second
    pg.drop_database(url)
    with psycopg.connect(postgres_server, autocommit=True) as server:
        for name in names:
            server.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def granted(page: Path, role: str) -> list[str]:
    """The grants that the page names for the role that serves."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.endswith("TO expunge;")]
    assert len(lines) == 3
    return [line.replace("TO expunge;", f'TO "{role}"') for line in lines]


async def test_the_grants_of_the_page_are_enough(roles: tuple[str, str], tmp_path: Path) -> None:
    """A role without DDL rights serves: it writes, erases, counts and signs; its reclaim says why the bytes wait."""
    owner, serving = roles
    files: Any = {"keys_file": tmp_path / "expunge.keys", "objects": tmp_path / "objects"}
    async with Expunge(settings=Settings(db=owner, **files), clock=ManualClock()) as expunge:
        await expunge.put(one_of_each("bob", "b"))
    with psycopg.connect(owner, autocommit=True) as connection:
        for grant in granted(GRANTS, str(urlsplit(serving).username)):
            connection.execute(grant.encode())
    async with Expunge(settings=Settings(db=serving, **files), clock=ManualClock()) as expunge:
        await expunge.put(one_of_each("ann", "a"))
        said = await expunge.erase("ann", purge=True)
        assert (said.status, said.residue_count, [item["store"] for item in said.deferred]) == (
            "completed",
            0,
            ["authority"],
        )
        assert (await expunge.call("audit.verify")).ok
        assert "does not own" in (await expunge.call("system.reclaim")).deferred
        assert (await expunge.profile("bob")).counts["episodes"] == 1
    async with Expunge(settings=Settings(db=owner, **files), clock=ManualClock()) as expunge:
        answer = await expunge.call("system.reclaim")
        assert "samples" in str(answer.deferred)
        found = await expunge.call("erasure.status", request_id=said.request_id)
        assert [item["reason"] for item in found.deferred] == [answer.deferred]


async def test_a_superusers_reclaim_settles_what_waited(postgres_place: str, tmp_path: Path) -> None:
    """Design 4: a settled ``deferred`` gets a signed follow-up; what the server's log still holds is said with it."""
    settings = Settings(db=postgres_place, keys_file=tmp_path / "expunge.keys", objects=tmp_path / "objects")
    async with Expunge(settings=settings, clock=ManualClock()) as expunge:
        await expunge.put(one_of_each("ann", "a"))
        said = await expunge.erase("ann", purge=True)
        before = (await expunge.call("erasure.receipts", request_id=said.request_id)).receipts
        answer = await expunge.call("system.reclaim")
        found = await expunge.call("erasure.status", request_id=said.request_id)
        assert [item["reason"] for item in found.deferred] == ([] if answer.deferred is None else [answer.deferred])
        after = (await expunge.call("erasure.receipts", request_id=said.request_id)).receipts
        assert (len(after), after != before) == (len(before), True)  # the newest of each subject
        await expunge.call("system.reclaim")
        assert (await expunge.call("erasure.receipts", request_id=said.request_id)).receipts == after
