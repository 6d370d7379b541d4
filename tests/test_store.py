"""The SQLite authority: pragmas, migrations, files that are not ours, two processes, query plans."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from expunge import Expunge, Settings
from expunge.authority.port import AtHand, Statement, Tx
from expunge.authority.sqlite import Place, SqliteAuthority
from expunge.authority.sqlite.pages import without_stale_middle
from expunge.census.count import _DERIVED, _EDGES, _SOME_DERIVED, _identity_statement
from expunge.datamap import RECORDS
from expunge.datamap.selector import Selector, count_everywhere
from expunge.erasure import statements as saga
from expunge.errors import (
    DatabaseFault,
    DatabaseForeign,
    DatabaseMissing,
    DatabaseNewer,
    DatabaseUnreadable,
    KeyFault,
    SettingsError,
)
from expunge.memory import statements as memory_statements
from expunge.model.identity import PARTS
from expunge.model.scope import Scope
from tests.support import digests, dump, episode, ids, one_of_each

RAW = Path(__file__).parent / "raw"


def folder_of(path: Path) -> list[Path]:
    return sorted(path.iterdir())


async def read_pragma(expunge: Expunge, name: str) -> Any:
    statement = Statement("test.pragma", f"PRAGMA {name}")
    return (await expunge.system.authority.run(lambda tx: tx.rows(statement)))[0][0]


async def test_every_pragma_is_in_force(expunge: Expunge) -> None:
    """Deliver: WAL, FULL, foreign keys, secure_delete; temporary tables never reach a file."""
    wanted = {
        "journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1, "temp_store": 2,
        "auto_vacuum": 0, "application_id": 0x45585047, "user_version": 3,
    }  # fmt: skip
    assert {name: await read_pragma(expunge, name) for name in wanted} == wanted


async def test_the_files_are_the_owners_alone(expunge: Expunge, tmp_path: Path) -> None:
    """People's words lie in it: 0600 for the database, its WAL and the keys."""
    await expunge.put([episode("e", "ann")])
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder_of(tmp_path)} == {0o600}


@pytest.mark.parametrize("kind", ["text", "sqlite", "sqlite-empty-with-version", "folder"])
async def test_a_foreign_file_is_refused_and_left_as_it_is(tmp_path: Path, kind: str) -> None:
    """Deliver: a file that is not ours is refused, byte for byte untouched, and gets no key file beside it."""
    path = tmp_path / "other.db"
    if kind == "text":
        path.write_text("these are my notes, not a database\n" * 40)
    elif kind == "folder":
        path.mkdir()
    else:
        connection = apsw.Connection(str(path))
        connection.execute("PRAGMA user_version = 3" if kind != "sqlite" else "CREATE TABLE t (x)")
        connection.close()
    before = digests(tmp_path)
    with pytest.raises(DatabaseForeign):
        async with Expunge(settings=Settings(db=str(path))):
            pass
    assert digests(tmp_path) == before


async def test_a_newer_file_is_refused_and_left_as_it_is(settings: Settings, tmp_path: Path) -> None:
    """Deliver: a schema of a later version."""
    async with Expunge(settings=settings):
        pass
    connection = apsw.Connection(settings.db)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = digests(tmp_path)
    with pytest.raises(DatabaseNewer):
        async with Expunge(settings=settings):
            pass
    assert digests(tmp_path) == before


async def test_a_missing_file_is_not_made_by_reading(settings: Settings, tmp_path: Path) -> None:
    """Only a write makes a database."""
    with pytest.raises(DatabaseMissing):
        async with Expunge(settings=settings, create=False):
            pass
    assert folder_of(tmp_path) == []
    with pytest.raises((DatabaseFault, KeyFault)):
        async with Expunge(settings=Settings(db=str(tmp_path / "no" / "such" / "x.db"))):
            pass
    assert folder_of(tmp_path) == []


@pytest.mark.parametrize("name", ["a b.db", "x%41.db", "q?mode=ro.db", "h#1.db", "ü😂.db", "-x.db", "file:y.db"])
async def test_odd_file_names_are_file_names(tmp_path: Path, name: str) -> None:
    """Law 12 for paths: nothing in a file name is an instruction."""
    async with Expunge(settings=Settings(db=str(tmp_path / name))) as expunge:
        await expunge.put([episode("e", "ann")])
    assert (tmp_path / name).stat().st_size > 0


def test_places() -> None:
    """A path, sqlite:///PATH, :memory:; anything else is refused."""
    assert Place.parse("sqlite:///x/y.db").path == Path("x/y.db")
    assert Place.parse("sqlite:////x/y.db").path == Path("/x/y.db")
    assert Place.parse(":memory:").path is None
    for bad in ("mysql://x", "postgresql://localhost/x", "", "sqlite:///", "a\0b", "folder/"):
        with pytest.raises(SettingsError):
            Place.parse(bad)


async def test_memory_is_shared_by_its_connections_and_by_nobody_else(in_memory: Expunge) -> None:
    """Deliver: in memory by memdb; a census has a connection of its own, another system another memory."""
    await in_memory.put(one_of_each("ann", "a"))
    async with Expunge(settings=Settings(db=":memory:")) as other:
        assert ids(await dump(other)) == set()
    assert (await in_memory.erase("ann", purge=True)).status == "completed"


async def test_busy_memory_is_retried(in_memory: Expunge) -> None:
    """Deliver: memory has no busy handler, so `run` repeats the unit."""
    await asyncio.gather(*(in_memory.put([episode(f"e{n}", "ann")]) for n in range(50)), *(
        in_memory.profile("ann") for _ in range(50)
    ))  # fmt: skip
    assert len(ids(await dump(in_memory))) == 50


async def test_a_unit_that_raises_leaves_nothing(expunge: Expunge) -> None:
    """The authority port: all of a unit or nothing of it."""

    def unit(tx: Tx) -> None:
        tx.change(Statement("test.insert", "INSERT INTO orgs (org) VALUES ('x')"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await expunge.system.authority.run(unit)
    rows = Statement("test.orgs", "SELECT org FROM orgs")
    assert await expunge.system.authority.read(lambda tx: tx.rows(rows)) == []
    with pytest.raises(Exception, match="read-only"):
        await expunge.system.authority.read(lambda tx: tx.change(Statement("test.w", "DELETE FROM orgs")))


async def test_two_processes_on_one_file(settings: Settings, tmp_path: Path) -> None:
    """Deliver: a second process writes while this one has the file open; each sees the other's records."""
    script = """
import asyncio, sys
from expunge import Expunge, Settings
async def main():
    async with Expunge(settings=Settings(db=sys.argv[1])) as expunge:
        for n in range(50):
            await expunge.put([{"collection": "episodes", "id": f"theirs-{n}", "user_id": "ann"}])
asyncio.run(main())
"""
    async with Expunge(settings=settings) as expunge:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", script, settings.db)
        for n in range(50):
            await expunge.put([episode(f"ours-{n}", "ann")])
        assert await child.wait() == 0
        assert len(ids(await dump(expunge))) == 100
        answer = await expunge.erase("ann", purge=True)
        assert answer.removed["episodes"] == 100


@pytest.mark.parametrize("number", range(10))
async def test_first_starts_at_once_make_one_database_and_one_ring(tmp_path: Path, number: int) -> None:
    """Deliver: replicas that start together on nothing; repeated, since each order of their steps is a case."""
    settings = Settings(db=str(tmp_path / f"new{number}.db"))

    async def start() -> dict[str, str]:
        async with Expunge(settings=settings) as expunge:
            return expunge.system.keys.check_values()

    rings = await asyncio.gather(*(asyncio.to_thread(asyncio.run, start()) for _ in range(8)))
    assert all(ring == rings[0] for ring in rings)


SELECTORS = [
    Selector((part,), dated=dated, one=one) for part in PARTS for dated in (False, True) for one in (False, True)
]
PLANNED: list[Statement] = [
    *(count_everywhere(selector) for selector in SELECTORS),
    *(saga.find_in_scope(kind, selector) for selector in SELECTORS for kind in selector.reached),
    *(saga.page_in_scope(kind, selector) for selector in SELECTORS for kind in selector.reached),
    *(saga.find_rows(kind) for kind in RECORDS),
    *(saga.delete_in_scope(kind, selector) for selector in SELECTORS for kind in selector.reached),
    *(saga.find_linked(selector) for selector in SELECTORS),
    *(saga.mark_in_scope(kind, selector) for selector in SELECTORS for kind in selector.reached),
    *(saga.hide(kind) for kind in RECORDS),
    *(saga.hide_marked(kind) for kind in RECORDS),
    *(saga.unhide(kind) for kind in RECORDS),
    *(saga.delete_marked(kind) for kind in RECORDS),
    *(saga.find_children(kind, kind.parent.column) for kind in RECORDS if kind.parent),
    *(saga.settle_by_parent(kind, kind.parent.column) for kind in RECORDS if kind.parent),
    *(saga.count_revived(kind) for kind in RECORDS if kind.versioned_by),
    *(memory_statements.newest_versions(kind) for kind in RECORDS if kind.versioned_by),
    *(memory_statements.fetch(kind) for kind in RECORDS),
    saga.DERIVED_OF, saga.DETACHED, saga.CUT_FROM_DERIVED, saga.CUT_FROM_SOURCE, saga.PAGE_OF_MARKS, saga.DROP_MARKS, saga.MARKS_LEFT,
    saga.FREED, saga.RESTS_ON_HIDDEN, saga.RESTORABLE_FROM, saga.UNFOUNDED, saga.MARKS_NAMED, saga.DROP_OTHERS, saga.PUT_BESIDE, saga.DROP_SOME_MARKS,
    saga.COUNT_MARKS, saga.SETTLE_BY_EDGE, memory_statements.MARKED, memory_statements.LOCATE, memory_statements.EDGES_OF,
    *_DERIVED.values(), _SOME_DERIVED, _EDGES,
    *(_identity_statement((part,), dated=dated, live=live, one=one) for part in PARTS for dated in (False, True) for live in (False, True) for one in (False, True)),
]  # fmt: skip


@pytest.mark.parametrize("statement", PLANNED, ids=[statement.name for statement in PLANNED])
async def test_work_is_bound_by_the_subject(in_memory: Expunge, statement: Statement) -> None:
    """Design 6: no statement of put, erasure or census walks through a table of records or edges."""
    names = {part.strip("(),") for part in statement.text.replace(":", " :").split() if part.startswith(":")}
    values = {name[1:].rstrip("),"): "[]" for name in names} | {"size": 1}
    plan = Statement("test.plan", "EXPLAIN QUERY PLAN " + statement.text)
    rows = await in_memory.system.authority.run(lambda tx: tx.rows(plan, **values))
    steps = [row[3] for row in rows]
    allowed = (
        "SCAN CONSTANT ROW",
        "SCAN (subquery",
        "SCAN j",
        "SCAN t VIRTUAL",
        "SCAN json_each",
        "SCAN h USING",
        "SCAN grouped",
    )
    scans = [step for step in steps if step.startswith("SCAN") and not step.startswith(allowed)]
    by_org_alone = [step for step in steps if step.endswith("(org=?)") and " h " not in step]
    assert not scans + by_org_alone, steps


def test_a_scope_without_users_has_a_selector_too() -> None:
    """Scope, fence, plan and census take any conjunction, though only users are offered yet."""
    scope = Scope("default", namespaces=("n",), agent="a", session_id="s", before=5)
    assert Selector.of(scope) == Selector(("namespace", "agent", "session_id"), dated=True, one=True)
    assert scope.type == "session"


def page_of(kind: int, cells: list[bytes], *, start: int = 0, size: int = 512) -> bytes:
    """A b-tree page with rubbish in its middle."""
    page = bytearray(b"\xaa" * size)
    at = size
    header = 8 if kind in (10, 13) else 12
    for n, cell in enumerate(cells):
        at -= len(cell)
        page[at : at + len(cell)] = cell
        pointer = start + header + 2 * n
        page[pointer : pointer + 2] = at.to_bytes(2, "big")
    page[start] = kind
    page[start + 3 : start + 5] = len(cells).to_bytes(2, "big")
    page[start + 5 : start + 7] = at.to_bytes(2, "big")
    return bytes(page)


@pytest.mark.parametrize("kind", [2, 5, 10, 13])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_middle_of_a_page_is_zeroed_and_nothing_else(kind: int, *, is_first: bool) -> None:
    """pages.py: only the bytes between the pointers and the cells change."""
    start = 100 if is_first else 0
    page = page_of(kind, [b"cell one", b"cell two!"], start=start)
    clean = without_stale_middle(page, is_first=is_first)
    unused = start + (8 if kind in (10, 13) else 12) + 4
    first_cell = 512 - 17
    assert clean[:unused] == page[:unused]
    assert clean[first_cell:] == page[first_cell:]
    assert clean[unused:first_cell] == bytes(first_cell - unused)


@pytest.mark.parametrize("first", [0, 1, 3, 255])
def test_other_pages_are_left_alone(first: int) -> None:
    """pages.py: overflow, free-list and foreign pages, and b-tree pages that make no sense."""
    page = bytes([first]) + os.urandom(511)
    assert without_stale_middle(page, is_first=False) == page
    broken = bytes([13, 0, 0, 0xFF, 0xFF, 0, 9]) + os.urandom(505)
    assert without_stale_middle(broken, is_first=False) == broken


def test_the_process_has_one_sqlite(tmp_path: Path) -> None:
    """Design 2: opening, writing and erasing never loads Python's own sqlite3."""
    script = f"""
import asyncio, sys
from expunge import Expunge, Settings
async def main():
    async with Expunge(settings=Settings(db={str(tmp_path / "x.db")!r})) as expunge:
        await expunge.put([{{"collection": "episodes", "id": "e", "user_id": "ann"}}])
        await expunge.erase("ann", purge=True)
asyncio.run(main())
print("sqlite3" in sys.modules or "_sqlite3" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.strip().lower()) is False


async def test_an_authority_can_be_given(tmp_path: Path) -> None:
    """The port: a wrapper that speaks it takes the place of the real one."""
    authority = await SqliteAuthority.open(Place(tmp_path / "x.db"), create=True)
    async with Expunge(settings=Settings(db=str(tmp_path / "x.db")), authority=authority) as expunge:
        assert expunge.system.authority is authority


async def test_units_in_one_hop_are_committed_one_by_one(tmp_path: Path) -> None:
    """The port: what is read apart sees what was committed before it, and a unit that fails takes nothing else back."""
    authority = await SqliteAuthority.open(Place(tmp_path / "x.db"), create=True)
    seen: list[list[str]] = []

    def work(at_hand: AtHand) -> None:
        at_hand.run(lambda tx: tx.change(_ADD_ORG, org="first"))
        seen.append(at_hand.read_apart(_orgs))
        at_hand.run(_add_and_fail)

    try:
        with pytest.raises(ZeroDivisionError):
            await authority.in_one_hop(work)
        assert seen == [["first"]]
        assert await authority.read(_orgs) == ["first"]
        assert await authority.in_one_hop(lambda at_hand: at_hand.read_apart(_orgs)) == ["first"]
        with pytest.raises(DatabaseUnreadable):
            await authority.in_one_hop(lambda at_hand: at_hand.read_apart(lambda tx: tx.change(_ADD_ORG, org="read")))
    finally:
        await authority.close()


_ADD_ORG = Statement("test.add_org", "INSERT INTO orgs (org) VALUES (:org)")
_ORGS = Statement("test.orgs", "SELECT org FROM orgs ORDER BY org")


def _orgs(tx: Tx) -> list[str]:
    return [org for (org,) in tx.rows(_ORGS)]


def _add_and_fail(tx: Tx) -> None:
    tx.change(_ADD_ORG, org="second")
    raise ZeroDivisionError
