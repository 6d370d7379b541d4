"""Law 12: two orgs that share every other id. No read, count, export or delete crosses from one to the other."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from expunge import Expunge, Settings
from expunge.authority.port import ONE_ORG, Statement, Tx
from expunge.datamap import COLLECTIONS
from expunge.errors import DatabaseUnreadable
from expunge.model.instant import ManualClock
from tests.pg import server as pg
from tests.scopes_support import Places, ask, examples, opened
from tests.subject.kit import exported
from tests.support import one_of_each
from tests.test_properties import records

OURS, THEIRS = "acme", "zeta-of-others"
OWNED = [kind.name for kind in COLLECTIONS if "org" in {column.name for column in kind.columns}]
CASES = st.sampled_from(
    [
        {"users": ("u1",)},
        {"users": ("u1", "u10")},
        {"namespaces": ("n",)},
        {"agent": "a"},
        {"session_id": "s"},
        {"before": "2026-01-05T00:00:00Z"},
        {"whole_org": True},
    ]
)


@pytest.mark.authorities("memory", "postgres")
@examples(12)
@given(records(), CASES, st.booleans())
def test_nothing_crosses(places: Places, made: list[dict[str, Any]], scope: dict[str, Any], purge: bool) -> None:
    """Laws 12 and 10: what is asked of one org says nothing of the other, and what goes from it takes nothing there."""

    async def work() -> None:
        async with opened(places) as (expunge, _):
            await expunge.put([record | {"org": OURS} for record in made])
            alone = await answers(expunge, scope)
            await expunge.put([record | {"org": THEIRS} for record in made])
            theirs = await rows_of(expunge, THEIRS)
            assert await answers(expunge, scope) == alone
            said = await expunge.erase(*scope.get("users", ()), org=OURS, purge=purge, **without_users(scope))
            assert (said.status, said.residue_count) == ("completed", 0)
            assert await expunge.call("erasure.list", org=THEIRS) == await expunge.call("erasure.list", org=THEIRS)
            assert await rows_of(expunge, THEIRS) == theirs
            again = await expunge.erase(*scope.get("users", ()), org=OURS, purge=purge, **without_users(scope))
            assert not purge or not again.found
            assert await rows_of(expunge, THEIRS) == theirs

    asyncio.run(work())


async def answers(expunge: Expunge, scope: dict[str, Any]) -> list[Any]:
    """All that can be asked about a scope and its people in one org."""
    shown = await expunge.preview(*scope.get("users", ()), org=OURS, **without_users(scope))
    said: list[Any] = [shown.goes, shown.effects, shown.stays]
    for user in ("u1", "%"):
        said.append((await expunge.profile(user, org=OURS)).model_dump(exclude={"as_of"}))
        data, _ = await exported(expunge, user, org=OURS, format="jsonl")
        assert THEIRS.encode() not in data
        said.append(data.split(b'"origin"')[0])
        found = await expunge.call("search.find", org=OURS, query="s p 1", where={"user_id": user}, limit=50)
        said.append([hit.record["id"] for hit in found.hits])
    return said


def without_users(scope: dict[str, Any]) -> dict[str, Any]:
    """The words of a scope but for its users."""
    return {name: value for name, value in scope.items() if name != "users"}


async def rows_of(expunge: Expunge, org: str) -> dict[str, list[Any]]:
    """Every row of an org, in every table that has one."""
    return {
        name: sorted(map(repr, await ask(expunge, f"SELECT * FROM {name} WHERE org = :org", org=org))) for name in OWNED
    }


@pytest.fixture
def plain_place(postgres_server: str) -> Iterator[str]:
    """A database of its own that belongs to a role which row-level security binds."""
    role = f"expunge_plain_{secrets.token_hex(4)}"
    url = pg.fresh_database(postgres_server)
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        name = urlsplit(url).path.removeprefix("/")
        server.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(sql.Identifier(name), sql.Identifier(role)))
    host = urlsplit(url).netloc.rpartition("@")[2]
    yield url.replace(urlsplit(url).netloc, f"{role}@{host}", 1)
    pg.drop_database(url)
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.fixture
async def walled(plain_place: str, tmp_path: Path) -> AsyncIterator[Expunge]:
    """A system that serves with such a role; two orgs hold a record of every collection, under the same ids."""
    settings = Settings(db=plain_place, keys_file=tmp_path / "expunge.keys", objects=tmp_path / "objects")
    async with Expunge(settings=settings, clock=ManualClock()) as expunge:
        for org in (OURS, THEIRS):
            await expunge.put([record | {"org": org} for record in one_of_each("ann", "a")])
            await expunge.erase("bob", org=org, purge=True)
        yield expunge


@pytest.mark.parametrize("table", OWNED)
async def test_the_server_keeps_a_statement_without_an_org_to_one(walled: Expunge, table: str) -> None:
    """Issue 6: where the role allows it, row-level security is a second wall, for reads, changes and deletes."""
    orgs = f"SELECT DISTINCT org FROM {table}"
    everybody = {org for (org,) in await ask(walled, orgs)}
    about = ONE_ORG.set(OURS)
    try:
        assert {org for (org,) in await ask(walled, orgs)} == everybody & {OURS}

        def unit(tx: Tx) -> None:
            tx.change(Statement("test.delete", f"DELETE FROM {table}"))

        await walled.system.authority.run(unit)
    finally:
        ONE_ORG.reset(about)
    assert {org for (org,) in await ask(walled, orgs)} == everybody - {OURS}


async def test_nothing_is_written_into_another_org(walled: Expunge) -> None:
    """The wall stands for what is written as well."""
    about = ONE_ORG.set(OURS)
    try:
        with pytest.raises(DatabaseUnreadable):
            await walled.system.authority.run(
                lambda tx: tx.change(Statement("test.add", "INSERT INTO orgs (org, seq) VALUES ('third', 0)"))
            )
    finally:
        ONE_ORG.reset(about)


async def test_a_role_that_is_bound_does_all_that_another_does(walled: Expunge) -> None:
    """Many rows come in without COPY, which the server refuses such a role; erasures, receipts and the audit go on."""
    many = [{"collection": "memories", "id": f"m{n}", "key": f"k{n}", "value": n, "user_id": "ann"} for n in range(300)]
    assert (await walled.put([record | {"org": OURS} for record in many])).loaded == 300
    said = await walled.erase("ann", org=OURS, purge=True)
    assert (said.status, said.removed["memories"] > 300, said.residue_count) == ("completed", True, 0)
    assert (await walled.call("audit.verify", org=OURS)).whole
    assert (await walled.profile("ann", org=THEIRS)).counts["memories"] == 1
    assert [item.found for item in (await walled.call("system.doctor")).findings if item.name.endswith("security")] == [
        "on"
    ]
