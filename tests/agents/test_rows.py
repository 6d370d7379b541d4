"""Memory rows: versions, tombstones, expiry, and who may write what over what."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.errors import IdempotencyConflict, InputError, VersionConflict
from expunge.memory.rows import Expired, expired_rows
from expunge.model.instant import ManualClock
from expunge.operations.memory import _end_page
from expunge.operations.registry import Actor, Call
from expunge.stores.faulty import Fault, Faulty
from expunge.stores.memory import MemoryStore
from tests.agents.kit import DAY_S, MICROSECOND, NAMESPACE, ORG, after, as_user, count, hold, read, texts
from tests.eye import is_served

pytestmark = pytest.mark.authorities("sqlite", "postgres")


@pytest.mark.authorities("memory", "postgres")
async def test_each_change_is_a_version(expunge: Expunge, clock: ManualClock) -> None:
    """Law 2: a change of a key stands as a version of its own, a tombstone too, and history pages to the end."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        written = []
        for value in ("one", {"two": [2, None]}, None):
            written.append(await memory.set("k", value, tags=["t"], confidence=0.5, memory_type="note"))
            clock.advance(1)
        assert [item.version for item in written] == [1, 2, 3]
        assert len({item.memory_id for item in written}) == 3
        await memory.delete("k")
        await memory.set("k", "four")
        await memory.set("other", "stays")
        found = await memory.history("k")
        assert [(item.version, item.state, item.value) for item in found.versions] == [
            (5, "live", "four"),
            (4, "tombstoned", None),
            (3, "live", None),
            (2, "live", {"two": [2, None]}),
            (1, "live", "one"),
        ]
        assert not found.more
        first = await memory.history("k", limit=2)
        rest = await memory.history("k", limit=3, before_version=first.versions[-1].version)
        assert first.more
        assert not rest.more
        assert [*first.versions, *rest.versions] == found.versions
        assert found.versions[-1].tags == ["t"]
        assert (found.versions[-1].confidence, found.versions[-1].memory_type) == (0.5, "note")
        assert (await memory.get("k")).value == "four"


@pytest.mark.authorities("memory", "postgres")
async def test_any_json_comes_back_as_it_was(expunge: Expunge) -> None:
    """Bad input: any JSON is an ordinary value, ``None`` and what looks like it too."""
    values: list[Any] = [None, "", 0, False, [], {}, "a\0b", 2**70, 1.5, {"ключ": ["😂", "\n"]}, "null"]
    async with as_user(expunge) as agent:
        for value in values:
            await agent.memory.set("k", value)
            got = await agent.memory.get("k")
            assert got.found
            assert got.value == value
            assert type(got.value) is type(value)
        assert not (await agent.memory.get("K")).found


@pytest.mark.authorities("memory", "postgres")
async def test_delete_and_restore_say_what_they_did(expunge: Expunge, clock: ManualClock) -> None:
    """Law 16: nothing is called deleted or restored that was not; another's key stays as it is."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.set("k", "mine", tags=["t"])
        await memory.set("k", "theirs", user_id="bob")
        deleted = await memory.delete("k")
        assert (deleted.found, deleted.tombstoned, deleted.version) == (True, True, 2)
        again = await memory.delete("k")
        assert (again.found, again.tombstoned, again.version) == (False, False, None)
        assert not (await memory.get("k")).found
        assert texts(await memory.search("mine theirs", user_id="bob")) == ["theirs"]
        assert await memory.search("mine") == []
        clock.advance(14 * DAY_S - 1)
        back = await memory.restore("k")
        assert (back.found, back.restored, back.expired, back.version) == (True, True, False, 3)
        got = await memory.get("k")
        assert got.memory is not None
        assert (got.value, got.memory.tags) == ("mine", ["t"])
        assert texts(await memory.search("mine")) == ["mine"]
        for key in ("k", "never"):
            nothing = await memory.restore(key)
            assert (nothing.found, nothing.restored, nothing.expired) == (False, False, False)
        assert (await memory.get("k", user_id="bob")).value == "theirs"


@pytest.mark.authorities("memory", "postgres")
async def test_after_14_days_a_tombstone_is_for_good(expunge: Expunge, clock: ManualClock) -> None:
    """Design 4: restorable for 14 days; then ``expired`` is said, and nothing comes back."""
    async with as_user(expunge) as agent:
        await agent.memory.set("k", "gone")
        await agent.memory.set("stays", "here")
        await agent.memory.delete("k")
        clock.advance(14 * DAY_S + 1)
        late = await agent.memory.restore("k")
        assert (late.found, late.restored, late.expired, late.version) == (True, False, True, None)
        assert not (await agent.memory.get("k")).found
        assert (await agent.memory.get("stays")).found
        assert (await agent.memory.set("k", "new")).version == 3


@pytest.mark.authorities("memory", "postgres")
async def test_expiry_hides_at_the_very_microsecond(expunge: Expunge, clock: ManualClock) -> None:
    """Law 13: what expires is hidden the instant that passes, before any sweep, in every read."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        by_ttl = await memory.set("ttl", "apple", ttl_seconds=60)
        by_time = await memory.set("time", "apple", valid_to=after(seconds=60))
        await memory.set("ever", "apple")
        assert by_ttl.expires_at == by_time.expires_at == after(seconds=60)
        clock.advance(60 - MICROSECOND)
        assert len(await memory.search("apple")) == 3
        assert (await memory.get("ttl")).found
        clock.advance(MICROSECOND)
        for key, stands in (("ttl", False), ("time", False), ("ever", True)):
            assert (await memory.get(key)).found is stands
            assert (await memory.touch(key, clear_expiry=True)).touched == [key] * stands
        assert texts(await memory.search("apple")) == ["apple"]
        assert len(await memory.search("")) == 1
        assert (await memory.delete("ttl")).found is False
        assert [item.state for item in (await memory.history("ttl")).versions] == ["live"]


@pytest.mark.authorities("memory", "postgres")
async def test_an_edit_keeps_a_live_expiry(expunge: Expunge, clock: ManualClock) -> None:
    """An edit keeps the expiry that lives; it goes when it is taken away, or has passed."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.set("k", 1, ttl_seconds=60, on_expire="demote")
        kept = await memory.set("k", 2)
        assert kept.expires_at == after(seconds=60)
        row = (await memory.get("k")).memory
        assert row is not None
        assert row.on_expire == "demote"
        assert (await memory.set("k", 3, clear_expiry=True)).expires_at is None
        assert (await memory.set("k", 4, ttl_seconds=1)).expires_at == after(seconds=1)
        clock.advance(2)
        assert (await memory.set("k", 5)).expires_at is None
        assert (await memory.get("k")).value == 5


@pytest.mark.authorities("memory", "postgres")
async def test_one_way_to_say_an_expiry(expunge: Expunge) -> None:
    """Bad input: a ttl and a time contradict each other, also beside ``clear_expiry``; nothing is written."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.set("k", "old", ttl_seconds=60)
        both: list[dict[str, Any]] = [
            {"ttl_seconds": 60, "valid_to": after(seconds=60)},
            {"ttl_seconds": 60, "clear_expiry": True},
            {"valid_to": after(seconds=60), "clear_expiry": True},
        ]
        for options in both:
            with pytest.raises(InputError):
                await memory.set("k", "new", **options)
            with pytest.raises(InputError):
                await memory.touch("k", **options)
        with pytest.raises(InputError):
            await memory.touch("k")
        got = await memory.get("k")
        assert got.memory is not None
        assert (got.value, got.memory.version, got.memory.expires_at) == ("old", 1, after(seconds=60))


@pytest.mark.authorities("memory", "postgres")
async def test_touch_changes_the_expiry_and_nothing_else(expunge: Expunge, clock: ManualClock) -> None:
    """A touch is a version that says the same, found by the same words; keys that are not there are named."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        source = (await memory.set("from", "source")).memory_id
        await memory.derive("k", "apple pie", sources=[source], memory_type="note")
        touched = await memory.touch("k", "nowhere", ttl_seconds=60, on_expire="anonymize")
        assert (touched.touched, touched.missing) == (["k"], ["nowhere"])
        row = (await memory.get("k")).memory
        assert row is not None
        assert (row.value, row.version, row.memory_type) == ("apple pie", 2, "note")
        assert (row.expires_at, row.on_expire) == (after(seconds=60), "anonymize")
        assert texts(await memory.search("appel pie")) == ["apple pie"]
        assert (await memory.touch("k", valid_to=after(seconds=5))).touched == ["k"]
        assert (await memory.touch("k", clear_expiry=True)).touched == ["k"]
        clock.advance(100)
        assert (await memory.get("k")).found
        edges = await read(expunge, "SELECT count(*) FROM lineage WHERE source = :id", id=source)
        assert edges == [(4,)]  # every version rests on what the first rested on (law 5)


@pytest.mark.authorities("memory", "postgres")
async def test_the_sweep_does_what_the_writer_said(expunge: Expunge, clock: ManualClock) -> None:
    """Law 8: expired rows are tombstoned, demoted or anonymized, with their history and search entries; others stay."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        for act in ("tombstone", "demote", "anonymize"):
            await memory.set(act, f"secret {act} first", confidence=0.8, tags=["t"])
            await memory.set(act, f"secret {act}", confidence=0.8, ttl_seconds=10, on_expire=act)
        await memory.set("later", "secret later", ttl_seconds=100)
        await memory.set("edited", "secret edited", ttl_seconds=10)
        await memory.touch("edited", clear_expiry=True)
        elsewhere = agent.at(namespace="other").memory
        await elsewhere.set("k", "secret elsewhere", ttl_seconds=10)
        clock.advance(10)
        dry = await memory.sweep_expired(dry_run=True)
        assert (dry.expired, dry.done, dry.dry_run) == (3, {}, True)
        assert (await memory.history("tombstone")).versions[0].state == "live"
        swept = await memory.sweep_expired()
        assert (swept.expired, swept.done) == (3, {"tombstone": 1, "demote": 1, "anonymize": 1})
        assert (await memory.sweep_expired()).expired == 0
        assert [item.state for item in (await memory.history("tombstone")).versions] == ["tombstoned", "live", "live"]
        demoted = (await memory.get("demote")).memory
        assert demoted is not None
        assert (demoted.value, demoted.confidence, demoted.expires_at) == ("secret demote", 0.4, None)
        nobody = (await memory.history("anonymize")).versions
        assert {(item.value, item.state, tuple(item.tags)) for item in nobody} == {("[anonymized]", "anonymized", ())}
        assert len(nobody) == 2
        assert not (await memory.get("anonymize")).found
        assert sorted(texts(await memory.search("secret"))) == ["secret demote", "secret edited", "secret later"]
        left = "SELECT r.key FROM memories r WHERE r.rid * 8 + 2 IN ({}) AND r.key = 'anonymize'"
        assert await read(expunge, left.format("SELECT record FROM vectors")) == []
        entry = "record" if is_served(expunge.settings.db) else "id"
        assert await read(expunge, left.format(f"SELECT {entry} FROM search_docsize")) == []
        assert (await elsewhere.sweep_expired()).done == {"tombstone": 1}


@pytest.mark.authorities("memory", "postgres")
async def test_a_hold_stops_the_anonymizing_sweep(expunge: Expunge, clock: ManualClock) -> None:
    """Law 8: the delete re-checks: what a hold covers keeps its words, and the sweep says so."""
    async with as_user(expunge) as agent:
        await agent.memory.set("k", "held words", ttl_seconds=10, on_expire="anonymize")
        await agent.memory.set("k", "free words", ttl_seconds=10, on_expire="anonymize", user_id="bob")
        await hold(expunge, "ann")
        clock.advance(10)
        swept = await agent.memory.sweep_expired()
        assert (swept.expired, swept.done) == (2, {"held": 1, "anonymize": 1})
        assert [item.value for item in (await agent.memory.history("k")).versions] == ["held words"]
        theirs = await agent.memory.history("k", user_id="bob")
        assert [item.value for item in theirs.versions] == ["[anonymized]"]
        assert not (await agent.memory.get("k")).found
        assert (await agent.memory.sweep_expired()).done == {"held": 1}


@pytest.mark.authorities("memory", "postgres")
async def test_a_sweep_leaves_what_was_written_meanwhile(expunge: Expunge, clock: ManualClock) -> None:
    """Law 8: the sweep re-checks in its write: a value set after the page was read is not swept with the old one."""
    async with as_user(expunge) as agent:
        await agent.memory.set("k", "old", ttl_seconds=10)
        await agent.memory.set("gone", "old", ttl_seconds=10)
        clock.advance(10)
        asked = Expired(ORG, NAMESPACE, clock.now())
        page = await expunge.system.authority.read(lambda tx: expired_rows(tx, asked, 10))
        assert len(page) == 2
        await agent.memory.set("k", "new")
        call = Call(Actor("test"), await expunge.as_of())
        unit = partial(_end_page, system=expunge.system, call=call, page=page, org=ORG)
        assert await expunge.system.authority.run(unit) == ["tombstone"]
        assert (await agent.memory.get("k")).value == "new"
        assert (await agent.memory.history("gone")).versions[0].state == "tombstoned"


async def test_a_fence_over_one_row_does_not_stop_the_sweep(clock: ManualClock) -> None:
    """Law 8: one row that cannot be swept now does not stop the rest."""
    store = Faulty(MemoryStore("documents", frozenset({"documents"})), Fault.RAISES)
    async with (
        Expunge(settings=Settings(db=":memory:"), clock=clock, bodies=store) as opened,
        as_user(opened, namespace=None) as agent,
    ):
        memory = agent.memory
        await memory.add_document("T", text="x", namespace="a")
        for namespace in ("a", "b"):
            await memory.set("k", namespace, namespace=namespace, user_id="bob", ttl_seconds=5)
        await hold(opened, "bob")
        assert (await agent.erasure.request(namespaces=["a"], purge=True)).status == "failed"  # its fence stays up
        clock.advance(5)
        assert (await memory.sweep_expired()).done["tombstone"] == 1
        states = await read(opened, "SELECT namespace, state FROM memories ORDER BY version, namespace")
        assert states == [("a", "live"), ("b", "live"), ("b", "tombstoned")]


@pytest.mark.authorities("memory", "postgres")
async def test_an_idempotency_key_writes_once(expunge: Expunge, clock: ManualClock) -> None:
    """Law 16: a repeat is answered with what the first call wrote, on every write; another write is a conflict."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        first = await memory.set("k", "v", ttl_seconds=60, idempotency_key="i1")
        clock.advance(1)
        again = await memory.set("k", "v", ttl_seconds=60, idempotency_key="i1")
        assert (again.memory_id, again.version, again.expires_at) == (first.memory_id, 1, first.expires_at)
        assert (first.replayed, again.replayed) == (False, True)
        for key, value in (("k", "w"), ("l", "v")):
            with pytest.raises(IdempotencyConflict):
                await memory.set(key, value, ttl_seconds=60, idempotency_key="i1")
        theirs = await memory.set("k", "w", idempotency_key="i1", user_id="bob")
        assert not theirs.replayed
        many = [{"key": "k", "value": "v", "ttl_seconds": 60, "idempotency_key": "i1"}, {"key": "m", "value": 1}]
        assert [item.replayed for item in await memory.set_many(many)] == [True, False]
        touched = [await memory.touch("k", clear_expiry=True, idempotency_key="i1") for _ in range(2)]
        assert [item.touched for item in touched] == [["k"], ["k"]]
        deleted = [await memory.delete("k", idempotency_key="i1") for _ in range(2)]
        assert [(item.tombstoned, item.version) for item in deleted] == [(True, 3), (True, 3)]
        with pytest.raises(IdempotencyConflict):
            await memory.delete("m", idempotency_key="i1")
        restored = [await memory.restore("k", idempotency_key="i1") for _ in range(2)]
        assert [(item.restored, item.version) for item in restored] == [(True, 4), (True, 4)]
        assert [item.version for item in (await memory.history("k")).versions] == [4, 3, 2, 1]
        assert (await memory.get("k", user_id="bob")).value == "w"


@pytest.mark.authorities("memory", "postgres")
async def test_an_idempotency_key_of_another_write(expunge: Expunge) -> None:
    """Law 16: what differs in its sources, or in its expiry, is another write, and is not answered as done."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        source = (await memory.set("from", "x")).memory_id
        await memory.set("k", "v", valid_to=after(days=1), idempotency_key="i1")
        with pytest.raises(IdempotencyConflict):
            await memory.set("k", "v", valid_to=after(days=1), sources=[source], idempotency_key="i1")
        with pytest.raises(IdempotencyConflict):
            await memory.set("k", "v", valid_to=after(days=2), idempotency_key="i1")
        await memory.touch("k", valid_to=after(days=3), idempotency_key="i2")
        with pytest.raises(IdempotencyConflict):
            await memory.touch("k", valid_to=after(days=4), idempotency_key="i2")
        row = (await memory.get("k")).memory
        assert row is not None
        assert (row.version, row.expires_at) == (2, after(days=3))


@pytest.mark.authorities("memory", "postgres")
async def test_one_idempotency_key_twice_in_one_call(expunge: Expunge) -> None:
    """Law 16: two different writes under one key in one call are a conflict, and none is lost in silence."""
    async with as_user(expunge) as agent:
        items = [{"key": "a", "value": 1, "idempotency_key": "i"}, {"key": "b", "value": 2, "idempotency_key": "i"}]
        with pytest.raises(InputError):
            await agent.memory.set_many(items)
        assert await count(expunge, "memories") == {"memories": 0}


@pytest.mark.authorities("memory", "postgres")
async def test_a_version_is_only_followed_by_who_saw_it(expunge: Expunge) -> None:
    """``if_version`` refuses a write over what its writer has not seen; 0 asks that nothing stands there."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        assert (await memory.set("k", 1, if_version=0)).version == 1
        with pytest.raises(VersionConflict):
            await memory.set("k", 2, if_version=0)
        assert (await memory.set("k", 2, if_version=1)).version == 2
        for wrong in (1, 3):
            with pytest.raises(VersionConflict):
                await memory.set("k", 3, if_version=wrong)
        got = await memory.get("k")
        assert got.memory is not None
        assert (got.value, got.memory.version) == (2, 2)


@pytest.mark.authorities("memory", "postgres")
async def test_a_version_inside_of_one_call(expunge: Expunge) -> None:
    """``if_version`` sees what the same call has written before it."""
    async with as_user(expunge) as agent:
        with pytest.raises(VersionConflict):
            await agent.memory.set_many([{"key": "k", "value": n, "if_version": 0} for n in (1, 2)])
        assert not (await agent.memory.get("k")).found
        written = await agent.memory.set_many([{"key": "k", "value": n, "if_version": n} for n in (0, 1)])
        assert [item.version for item in written] == [1, 2]


async def test_writers_on_one_key(expunge: Expunge) -> None:
    """Two writers on one key: both versions stand, one after the other; of those that follow a version one wins."""
    async with as_user(expunge) as one, as_user(expunge) as two:
        await asyncio.gather(*(agent.memory.set("k", n) for n in range(5) for agent in (one, two)))
        history = (await one.memory.history("k")).versions
        assert [item.version for item in history] == list(range(10, 0, -1))
        assert sorted(item.value for item in history) == sorted([*range(5), *range(5)])
        raced = await asyncio.gather(
            *(agent.memory.set("k", "won", if_version=10) for agent in (one, two)), return_exceptions=True
        )
        assert sorted(type(item).__name__ for item in raced) == ["SetOutput", "VersionConflict"]
        assert (await one.memory.history("k")).versions[0].version == 11


@pytest.mark.authorities("memory", "postgres")
async def test_set_many_is_all_or_nothing(expunge: Expunge) -> None:
    """Law 16: one item that does not fit keeps all of them out; a mapping is taken by key, in order."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        written = await memory.set_many({"a": 1, "b": 2})
        assert [(item.key, item.version) for item in written] == [("a", 1), ("b", 1)]
        wrong: list[dict[str, Any]] = [
            {"key": "c", "value": float("nan")},
            {"key": "", "value": 1},
            {"key": "c", "value": 1, "colour": "red"},
            {"key": "c", "value": 1, "if_version": 7},
            {"key": "c", "value": 1, "sources": ["nowhere"]},
            {"key": "c"},
        ]
        for item in wrong:
            with pytest.raises(Exception, match=r".") as caught:
                await memory.set_many([{"key": "a", "value": "new"}, item])
            assert type(caught.value).__module__ == "expunge.errors", item
        assert (await memory.get("a")).value == 1
        assert await count(expunge, "memories") == {"memories": 2}
        same = await memory.set_many([{"key": "a", "value": n} for n in range(3)])
        assert [item.version for item in same] == [2, 3, 4]
        assert (await memory.get("a")).value == 2


@pytest.mark.authorities("memory", "postgres")
async def test_a_clock_that_steps_back(expunge: Expunge, clock: ManualClock) -> None:
    """Law 13: what is written last stands, whatever the clock says; expiries go by the clock as it is."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.set("k", "old")
        await memory.set("gone", "old")
        clock.advance(-3600)
        await memory.set("k", "new", ttl_seconds=60)
        assert (await memory.get("k")).value == "new"
        assert texts(await memory.search("new old", kinds=["memories"])) == ["new", "old"]
        assert (await memory.delete("gone")).tombstoned
        assert not (await memory.get("gone")).found
        assert (await memory.restore("gone")).restored
        assert (await memory.touch("k", clear_expiry=True)).touched == ["k"]
        assert [item.version for item in (await memory.history("k")).versions] == [3, 2, 1]
        assert (await memory.forget(user_id="ann")) == 6
        assert not (await memory.get("k")).found


@pytest.mark.authorities("memory", "postgres")
async def test_what_an_erasure_hides_is_not_served(expunge: Expunge) -> None:
    """Law 6: hidden rows are in no read, and cannot be changed; restored they are there again."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.set("k", "apple")
        await memory.set("k", "apple", user_id="bob")
        hidden = await agent.erasure.request_user_id("ann", requester="ann herself")
        assert hidden.status == "completed"
        assert not (await memory.get("k")).found
        assert (await memory.history("k")).versions == []
        assert await memory.search("apple") == []
        assert (await memory.touch("k", clear_expiry=True)).missing == ["k"]
        assert not (await memory.delete("k")).found
        assert not (await memory.restore("k")).found
        assert (await memory.get("k", user_id="bob")).found
        await agent.erasure.restore(hidden.request_id)
        assert (await memory.get("k")).value == "apple"
        assert texts(await memory.search("apple")) == ["apple"]
