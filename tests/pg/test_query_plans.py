"""Design 6 on PostgreSQL: what is asked about one user is bound by the user's rows, and never reads a table through."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from expunge import Expunge, Settings
from expunge.authority.port import Statement, Tx
from expunge.authority.postgres.spelling import spelled
from expunge.authority.postgres.transaction import PostgresTx
from expunge.datamap import RECORDS
from expunge.datamap.views import VIEWS
from expunge.model.instant import ManualClock
from tests.agents.kit import HELPER, NAMESPACE, ORG, as_user
from tests.agents.test_plans import do_everything
from tests.eye import connected
from tests.pg.server import drop_database, fresh_database

pytestmark = pytest.mark.authorities("postgres")

ROWS, USERS = 20_000, 2_000
"""Of each table. In a small one the planner is right to read it through."""
BIG = {*(kind.name for kind in RECORDS), "lineage", "search", "vectors"}
WALKS = {
    "records.next_rid": "a row for each table",
    "records.has_ties": "ends at the first",
    "export.last_rids": "the end of each index",
    "jobs.take": "from what is due first",
    "jobs.done": "an index of the few that are not",
}
"""Statements that walk through a table, and why."""
_OF_SOMEBODY = {
    "org": f"'{ORG}'",
    "id": "'id-' || n",
    "user_id": f"'user-' || n % {USERS}",
    "namespace": f"'{NAMESPACE}'",
    "agent": f"'{HELPER}'",
    "session_id": f"'session-' || n % {USERS}",
    "seq": "0",
    "status": "'done'",
    "state": "'live'",
    "episode": "'id-' || n",
    "document": "'id-' || n",
}
_BY_TYPE = {
    "bigint": "n",
    "text": "'word-' || n || repeat(' filler', 40)",
    "double precision": "0.5",
    "bytea": "'\\x00'",
}
_NARROW = ("key", "name", "title", "kind", "predicate", "predicate_key", "subject", "deriver", "ref", "sha256", "asked")
_FILL = {
    "lineage": """INSERT INTO lineage SELECT :org, 'id-' || n, 'source-' || n, 'memories', 'episodes', 'retire', 0
        FROM generate_series(1, 4 * :rows) n""",
    "search": """INSERT INTO search SELECT n * 8 + 1, ARRAY['o' || n % :users], ARRAY['w' || n % 997, 'v' || n % 89, repeat('x', 400)]
        FROM generate_series(1, :rows) n""",
    "vectors": """INSERT INTO vectors SELECT n * 8 + 1, :org, '-', '-', 'user-' || n % :users, '-', 'm',
        array_fill(0.1::real, ARRAY[256])::public.halfvec
        FROM generate_series(1, :rows) n""",
}


def _fill(connection: psycopg.Connection) -> None:
    """Rows of many users in every table, written past the product."""
    columns = """SELECT column_name, data_type FROM information_schema.columns
        WHERE table_schema = 'expunge' AND table_name = %s AND is_nullable = 'NO' AND is_identity = 'NO'
        AND column_default IS NULL ORDER BY ordinal_position"""
    for kind in RECORDS:
        given: dict[str, str] = dict(connection.execute(columns, (kind.name,)).fetchall())
        values = {
            name: _OF_SOMEBODY.get(name) or ("'word-' || n" if name in _NARROW else _BY_TYPE[of_type])
            for name, of_type in given.items()
        }
        text = f"INSERT INTO {kind.name} ({', '.join(values)}) SELECT {', '.join(values.values())}"
        connection.execute(f"{text} FROM generate_series(1, {ROWS}) n")
    connection.execute("UPDATE documents SET ref = 'ref-' || rid WHERE user_id <> 'user-7'")
    for text in _FILL.values():
        connection.execute(spelled(Statement("test.fill", text)), {"org": ORG, "rows": ROWS, "users": USERS})
    connection.execute("DELETE FROM attachments WHERE user_id = 'user-7'")  # no file is there that they would name
    connection.execute("ANALYZE")


@pytest.fixture(scope="module")
def filled(postgres_server: str, postgres_template: str) -> Iterator[str]:
    url = fresh_database(postgres_server, postgres_template)
    with connected(url) as connection:
        _fill(connection)
    yield url
    drop_database(url)


@pytest.fixture
async def expunge(filled: str, settings: Settings) -> AsyncIterator[Expunge]:
    changed = settings.model_copy(update={"db": filled})
    async with Expunge(settings=changed, clock=ManualClock()) as opened:
        yield opened


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Statement, dict[str, Any]]]:
    """Every statement that was run, with the last values."""
    found: dict[str, tuple[Statement, dict[str, Any]]] = {}
    for name in ("rows", "ask", "change", "ask_change"):
        real = getattr(PostgresTx, name)

        def noting(self: PostgresTx, statement: Statement, /, real: Any = real, **values: Any) -> Any:
            found[statement.name + str(hash(statement.text))] = (statement, values)
            return real(self, statement, **values)

        monkeypatch.setattr(PostgresTx, name, noting)
    return found


def walking(tx: Tx, run: dict[str, tuple[Statement, dict[str, Any]]]) -> dict[str, set[str]]:
    """The big tables that a statement would read through, by its name."""
    found: dict[str, set[str]] = {}
    for statement, values in run.values():
        explained = Statement("test.plan", f"EXPLAIN (FORMAT JSON) {statement.postgres or statement.text}")
        ((plans,),) = tx.rows(explained, **values)
        walked = {node["Relation Name"] for node in _nodes(plans[0]["Plan"]) if _walks(node)} & BIG
        if walked and statement.name not in WALKS:
            found.setdefault(statement.name, set()).update(walked)
    return found


def unordered(tx: Tx, run: dict[str, tuple[Statement, dict[str, Any]]]) -> dict[str, set[str]]:
    """The pages of an export that no index of a user gives in their order: it would be cheap to walk by number."""
    found: dict[str, set[str]] = {}
    pages = {name: given for name, given in run.items() if given[0].name.endswith(".export")}
    assert len(pages) == len(RECORDS)
    for statement, values in pages.values():
        ((plans,),) = tx.rows(Statement("test.plan", f"EXPLAIN (FORMAT JSON) {statement.postgres}"), **values)
        nodes = list(_nodes(plans[0]["Plan"]))
        used = {node["Index Name"] for node in nodes if "Index Name" in node}
        kind = statement.name.removesuffix(".export")
        if any(node["Node Type"] == "Sort" for node in nodes) or f"{kind}_user" not in used:
            found[kind] = used
    return found


def _walks(node: dict[str, Any]) -> bool:
    """A table read through, or one of its indexes: nothing in the condition says what a key is equal to."""
    if "Index" in node["Node Type"] and "Relation Name" in node:
        return "=" not in node.get("Index Cond", "").replace("<=", "").replace(">=", "")
    return bool(node["Node Type"] == "Seq Scan")


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


async def test_nothing_that_is_asked_of_a_user_reads_a_table_through(
    expunge: Expunge, seen: dict[str, tuple[Statement, dict[str, Any]]]
) -> None:
    """Design 6: the plan of every statement that an agent, a profile, an export, an erasure and a census run."""
    async with as_user(expunge) as agent:
        await do_everything(agent)
    words: dict[str, Any] = {"org": ORG, "user_id": "user-7"}
    await expunge.call("subject.profile", **words)
    found = await expunge.call("subject.export", **words)
    assert b"".join([piece async for piece in found.pieces()])
    asked: dict[str, Any] = {"org": ORG, "scope_type": "user_id", "scope_value": "user-7"}
    await expunge.call("erasure.request", dry_run=True, purge=True, **asked)
    hidden = await expunge.call("erasure.request", purge=False, **asked)
    await expunge.call("erasure.restore", org=ORG, request_id=hidden.request_id)
    gone = await expunge.call("erasure.request", purge=True, **asked)
    assert (gone.status, gone.residue) == ("completed", {})
    assert gone.removed["episodes"] == ROWS // USERS
    run = dict(seen)
    assert len(run) > 200
    assert await expunge.system.authority.rehearse(lambda tx: walking(tx, run)) == {}
    assert await expunge.system.authority.rehearse(lambda tx: unordered(tx, run)) == {}


def test_a_count_of_one_user_reads_no_view_through(filled: str) -> None:
    """Design 6: the views for an operator's own check are bound by the user's rows."""
    with connected(filled) as connection:
        for view in VIEWS:
            text = f"SELECT count(*) FROM {view.name} WHERE org = '{ORG}' AND user_id = 'user-8'"
            ((plans,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {text}").fetchall()
            nodes = list(_nodes(plans[0]["Plan"]))
            assert [node for node in nodes if node["Node Type"] == "Seq Scan"] == [], view.name
            assert any("Index" in node["Node Type"] for node in nodes)
