"""The locks of units on PostgreSQL: which wait for which, in which order, and that none wait in a circle."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from expunge import Expunge, Settings
from expunge.audit import verify
from expunge.authority.orgs import ensure_org
from expunge.authority.port import GuardKey, Statement, Tx
from expunge.authority.postgres.connection import options
from expunge.authority.postgres.locks import MOST_STRIPES, Again, Locks
from expunge.authority.postgres.place import PostgresPlace
from expunge.authority.postgres.schema import Schema
from expunge.authority.postgres.sending import Sending
from expunge.authority.postgres.transaction import PostgresTx
from expunge.erasure.preview import _rehearse
from expunge.errors import DatabaseBusy, UnknownRun
from expunge.memory.jobs import take_job
from tests.agents.kit import read
from tests.support import episode, memory, purge_order

pytestmark = pytest.mark.timeout(60)

ORG = "acme"
PATIENCE_S = 10.0
_ARRIVED = Statement("test.arrived", "SELECT 1")
"""Its answer comes after those of all that was sent before: a lock alone is not waited for."""


def key(**named: str) -> GuardKey:
    """The key of a writer: a part that is not named is nobody's."""
    parts = (named.get(part, "-") for part in ("namespace", "agent", "user_id", "session_id"))
    return GuardKey(ORG, tuple((f"{part}",) for part in parts), 0)


def scope(**named: str) -> GuardKey:
    """The key of a scope: a part that is not named has no pseudonym."""
    parts = (named.get(part) for part in ("namespace", "agent", "user_id", "session_id"))
    return GuardKey(ORG, tuple(() if part is None else (part,) for part in parts), 0)


class Unit:
    """A transaction on a connection of its own, on a thread of its own."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(**options(PostgresPlace.parse(url), lock_timeout_s=PATIENCE_S))
        self.connection.execute("BEGIN")
        self.locks = Locks(Sending(self.connection, along=False))
        self._thread = ThreadPoolExecutor(1)

    def begin(self, call: Callable[..., Any], *given: Any, **named: Any) -> Future[Any]:
        return self._thread.submit(call, *given, **named)

    def waits(self, other: psycopg.Connection) -> bool:
        """Whether the server says that this connection waits for a lock."""
        text = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
        return bool(other.execute(text, (self.connection.info.backend_pid,)).fetchall()[0][0])

    def end(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self._thread.shutdown()
        self.connection.close()


class Two:
    """Two units, and a connection that looks at them."""

    def __init__(self, url: str) -> None:
        self.one, self.other = Unit(url), Unit(url)
        self.looking = psycopg.connect(url, autocommit=True)

    def waits(self, unit: Unit, call: Future[None]) -> bool:
        """Whether a call comes to wait for the other unit."""
        while not call.done():
            if unit.waits(self.looking):
                return True
        call.result()
        return False


@pytest.fixture
def served(postgres_place: str, tmp_path: Any) -> Settings:
    return Settings(db=postgres_place, keys_file=tmp_path / "expunge.keys", busy_timeout_s=1.0)


@pytest.fixture
def two(postgres_place: str) -> Iterator[Two]:
    found = Two(postgres_place)
    yield found
    for unit in (found.one, found.other):
        unit.end()
    for unit in (found.one, found.other):
        unit.close()
    found.looking.close()


WRITER = {"namespace": "n", "agent": "a", "user_id": "u", "session_id": "s"}


@pytest.mark.parametrize(
    ("sealed", "meets"),
    [
        ({}, True),
        ({"user_id": "u"}, True),
        ({"namespace": "n"}, True),
        ({"agent": "a"}, True),
        ({"session_id": "s"}, True),
        ({"user_id": "u", "namespace": "n"}, True),
        ({"user_id": "v"}, False),
        ({"namespace": "m"}, False),
        ({"session_id": "t"}, False),
    ],
)
def test_a_seal_waits_for_who_writes_into_its_scope_and_for_nobody_else(two: Two, sealed: dict[str, str], meets: bool):
    """Law 4: whatever part of an identity a scope names, its seal and the writer meet in one lock, either way round."""
    two.one.locks.enter([key(**WRITER)])
    sealing = two.other.begin(two.other.locks.lead, ORG, sealing=[scope(**sealed)])
    assert two.waits(two.other, sealing) is meets
    two.one.end()
    sealing.result(PATIENCE_S)
    entering = two.one.begin(Locks(Sending(two.one.connection, along=False)).enter, [key(**WRITER)])
    assert two.waits(two.one, entering) is meets
    two.other.end()
    entering.result(PATIENCE_S)


def test_a_seal_waits_for_who_writes_into_very_many_scopes(two: Two):
    """A unit of more scopes than it takes locks for is met by every seal."""
    many = [key(user_id=f"u{number}") for number in range(3 * MOST_STRIPES)]
    two.one.locks.enter(many)
    assert len(two.one.locks._held) == 1
    sealing = two.other.begin(two.other.locks.lead, ORG, sealing=[scope(user_id="u1")])
    assert two.waits(two.other, sealing)
    two.one.end()
    sealing.result(PATIENCE_S)


def test_writers_are_beside_each_other_and_erasures_are_not(two: Two):
    two.one.locks.enter([key(**WRITER)])
    assert not two.waits(two.other, two.other.begin(two.other.locks.enter, [key(**WRITER)]))
    two.one.locks.lead(ORG)
    assert two.waits(two.other, two.other.begin(two.other.locks.lead, ORG))


def test_units_that_take_scopes_and_names_one_after_the_other_do_not_wait_in_a_circle(two: Two):
    """What is asked for later is taken when it is free, and else the unit begins anew: nobody is in a deadlock."""
    for locks, first in ((two.one.locks, "a"), (two.other.locks, "b")):
        locks.hold_names(ORG, [first])
    waiting = two.one.begin(two.one.locks.hold_names, ORG, ["b"])
    with pytest.raises(Again):
        waiting.result(PATIENCE_S / 2)
    with pytest.raises(Again):
        two.other.locks.hold_names(ORG, ["a"])


def test_names_of_two_orgs_are_not_waited_for_in_a_circle(two: Two):
    two.one.locks.hold_names("one", ["a"])
    two.other.locks.hold_names("two", ["a"])
    waiting = two.one.begin(two.one.locks.hold_names, "two", ["a"])
    with pytest.raises(Again):
        waiting.result(PATIENCE_S / 2)


def test_who_holds_a_few_names_and_then_very_many_holds_those_too(two: Two):
    """The lock for all names is shared by who has a few: having it so is not having it alone."""
    many = [f"name {number}" for number in range(5 * MOST_STRIPES)]
    two.one.locks.hold_names(ORG, ["a"])
    two.one.locks.hold_names(ORG, many)
    assert two.waits(two.other, two.other.begin(two.other.locks.hold_names, ORG, [many[-1]]))


def test_very_many_names_and_a_few_wait_for_each_other(two: Two):
    two.one.locks.hold_names(ORG, [f"name {number}" for number in range(5 * MOST_STRIPES)])
    assert two.waits(two.other, two.other.begin(two.other.locks.hold_names, ORG, ["other"]))


def test_who_entered_a_scope_and_seals_it_has_it_alone(two: Two):
    two.one.locks.enter([key(**WRITER)])
    two.one.locks.seal([scope(user_id="u")])
    assert two.waits(two.other, two.other.begin(two.other.locks.enter, [key(**WRITER)]))


def test_who_has_rows_comes_to_the_row_of_the_org_only_while_no_erasure_works(two: Two):
    """An erasure has that row and waits for rows: a unit that has those may not wait for it."""
    two.one.locks.lead(ORG)
    two.other.locks.settle(ORG, has_rows=False)
    with pytest.raises(Again):
        two.other.locks.settle(ORG, has_rows=True)
    two.one.end()
    two.other.locks.settle(ORG, has_rows=True)


async def _hop(expunge: Expunge, unit: Callable[[Tx], None], *, rehearses: bool) -> None:
    authority = expunge.system.authority
    await (authority.rehearse(unit) if rehearses else authority.run(unit))


async def test_who_has_changed_a_row_has_it(served: Settings, two: Two) -> None:
    """What a statement changes is held, as what was asked for is: an erasure may wait for it."""
    async with Expunge(settings=served) as expunge:
        await expunge.put([episode("e<1>", "ann")], org=ORG)
    two.one.locks.lead(ORG)
    writer = PostgresTx(Sending(two.other.connection, along=False), Schema())
    writer.settle(ORG)
    writer.change(Statement("test.change", "UPDATE episodes SET status = status WHERE org = :org"), org=ORG)
    with pytest.raises(Again):
        writer.settle(ORG)


async def test_only_an_erasure_waits_for_rows(served: Settings, two: Two) -> None:
    """A writer holds scopes and names that an erasure may wait for: where a row is taken, it begins anew."""
    async with Expunge(settings=served) as expunge:
        await expunge.put([episode("e<1>", "ann")], org=ORG)
    PostgresTx(Sending(two.one.connection, along=False), Schema()).hold_rows("episodes", ORG, ["e<1>"], alone=True)
    writer, eraser = (
        PostgresTx(Sending(two.other.connection, along=False), Schema()),
        PostgresTx(Sending(two.other.connection, along=False), Schema()),
    )
    with pytest.raises(Again):
        writer.hold_rows("episodes", ORG, ["e<1>"], alone=False)
    two.other.end()
    two.other.connection.execute("BEGIN")
    eraser.lead(ORG)
    assert two.waits(two.other, two.other.begin(eraser.hold_rows, "episodes", ORG, ["e<1>"], alone=True))


@contextmanager
def inside(expunge: Expunge, work: Callable[[Tx], Any], *, rehearses: bool = False) -> Iterator[None]:
    """A unit that does something and stays open, on a thread of its own."""
    working, goes_on = threading.Event(), threading.Event()

    def unit(tx: Tx) -> None:
        work(tx)
        tx.rows(_ARRIVED)
        working.set()
        assert goes_on.wait(PATIENCE_S)

    thread = threading.Thread(target=lambda: asyncio.run(_hop(expunge, unit, rehearses=rehearses)))
    thread.start()
    assert working.wait(PATIENCE_S)
    try:
        yield
    finally:
        goes_on.set()
        thread.join()


async def test_who_is_in_the_way_all_the_time_makes_the_database_busy(served: Settings):
    """A unit that begins anew in vain says so in our words."""
    async with Expunge(settings=served) as expunge, Expunge(settings=served) as other:

        def twice(tx: Tx) -> None:
            tx.hold_names(ORG, ["a"])
            tx.hold_names(ORG, ["b"])

        with inside(other, lambda tx: tx.hold_names(ORG, ["b"])), pytest.raises(DatabaseBusy):
            await expunge.system.authority.run(twice)


async def test_reading_units_wait_for_nobody(served: Settings):
    """A guard of a unit that only reads holds nothing: it may be asked for one identity after the other."""
    async with Expunge(settings=served) as expunge, Expunge(settings=served) as other:

        def guards(tx: Tx) -> int:
            for name in ("u", "v", "u"):
                tx.guard([key(user_id=name)], 0)
            return 1

        with inside(other, lambda tx: tx.lead(ORG, sealing=[scope(user_id="v")])):
            assert await expunge.system.authority.read(guards) == 1
            assert await expunge.system.authority.rehearse(guards) == 1


async def test_a_writer_does_not_wait_for_who_changes_the_row_of_its_org(served: Settings):
    """The first write of an org gives it its row; every other finds it, and waits for nobody who is changing it."""
    async with Expunge(settings=served) as expunge, Expunge(settings=served) as other:
        await expunge.put([episode("e<1>", "ann")], org=ORG)

        def raises(tx: Tx) -> None:
            tx._sending.connection.execute("UPDATE orgs SET seq = seq WHERE org = 'acme'")  # type: ignore[attr-defined]

        def writes(tx: Tx) -> None:
            ensure_org(tx, ORG)

        with inside(other, raises):
            await asyncio.wait_for(expunge.system.authority.run(writes), 0.9)


async def test_one_connection_serves_many_tasks(served: Settings):
    """A pool of one connection: units wait for their turn, and none for a second connection that it holds up itself."""
    async with Expunge(settings=served.model_copy(update={"connections": 1, "busy_timeout_s": 10.0})) as expunge:
        users = [f"user {number}" for number in range(6)]
        await asyncio.gather(*(expunge.call("memory.set", org=ORG, user_id=user, key="k", value="v") for user in users))
        answers = await asyncio.gather(*(expunge.erase(f"user {n}", purge=True, org=ORG) for n in range(3)))
        assert [answer.status for answer in answers] == ["completed"] * 3


async def test_versions_of_a_key_that_are_written_at_once_have_numbers_of_their_own(served: Settings):
    async with Expunge(settings=served) as one, Expunge(settings=served) as other:
        who: dict[str, Any] = {"org": ORG, "user_id": "ann"}
        sets = [system.call("memory.set", key="k", value=n, **who) for n, system in enumerate([one, other] * 10)]
        written = await asyncio.gather(*sets)
        puts = [system.put([memory(f"m<{n}>", "p", "ann")], org=ORG) for n, system in enumerate([one, other] * 10)]
        await asyncio.gather(*puts)
        assert sorted(item.version for item in written) == list(range(1, 21))
        versions = await read(one, "SELECT version FROM memories WHERE key = 'p' ORDER BY 1")
        assert versions == [(number,) for number in range(1, 21)]


async def test_the_audit_of_an_org_has_one_end_whoever_appends(served: Settings):
    """Law 2: entries of units at once stand one behind the other; also the first ones of an org."""
    async with Expunge(settings=served) as one, Expunge(settings=served) as other:
        puts = [system.put([episode(f"e<{n}>", "ann")], org="fresh") for n, system in enumerate([one, other] * 10)]
        await asyncio.gather(*puts)
        keys = one.system.keys
        verdict = await one.system.authority.read(lambda tx: verify(tx, keys, "fresh"))
        assert (verdict.entries, verdict.fault) == (20, None)
        assert await read(one, "SELECT count(*), max(n) FROM audit WHERE org = 'fresh'") == [(20, 20)]


async def test_previews_of_one_scope_do_not_wait_for_each_other(served: Settings):
    """Each rehearses under a number of its own, and takes back what it marked."""
    order = purge_order("ann", org=ORG)
    async with Expunge(settings=served) as one, Expunge(settings=served) as other:
        await one.put([episode("e<1>", "ann"), memory("m<1>", "sum", sources=["e<1>"])], org=ORG)
        with inside(other, lambda tx: _rehearse(tx, other.system, order), rehearses=True):
            found = await asyncio.wait_for(one.preview("ann", org=ORG), 0.9)
        assert found.goes["episodes"]["direct"] == found.goes["memories"]["derived"] == 1
        assert await read(one, "SELECT count(*) FROM marks") == [(0,)]


async def test_a_job_is_taken_once(served: Settings):
    async with Expunge(settings=served) as one, Expunge(settings=served) as other:
        source = (await one.call("memory.set", org=ORG, user_id="ann", key="k", value="v")).memory_id
        for _ in range(12):
            await one.call("jobs.add", deriver="digest", sources=[source], org=ORG, user_id="ann")
        now = one.system.clock.now()

        def take(tx: Tx) -> str | None:
            job = take_job(tx, ORG, ["digest"], now, 60_000_000)
            return None if job is None else job.id

        authorities = [one.system.authority, other.system.authority]
        taken = await asyncio.gather(*(authorities[n % 2].run(take) for n in range(16)))
        assert Counter(Counter(taken).values()) == {1: 12, 4: 1}
        assert taken.count(None) == 4


async def test_a_run_does_not_end_in_what_an_erasure_has_taken_meanwhile(served: Settings):
    """Law 5: who ends a run has its row first and then looks at it; nothing is written beside a row that has gone."""
    async with Expunge(settings=served) as one, Expunge(settings=served) as other:
        run = await one.call("chat.begin_run", org=ORG, user_id="ann", input="said")

        def takes(tx: Tx) -> None:
            tx.lead(ORG)
            tx._sending.connection.execute("UPDATE episodes SET marked = 1 WHERE org = 'acme'")  # type: ignore[attr-defined]

        with inside(other, takes):
            given = {"org": ORG, "user_id": "ann", "run_id": run.run_id, "output": "answered", "status": "completed"}
            ending = asyncio.create_task(one.call("chat.end_run", **given))
            await asyncio.sleep(0.2)
            assert not ending.done()
        with pytest.raises(UnknownRun):
            await ending
        assert await read(one, "SELECT output, status FROM episodes") == [(None, "running")]
