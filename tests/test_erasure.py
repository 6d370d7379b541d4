"""Who goes and who stays: ids, lineage, versions, batches, holds (laws 4 to 8, 10, 11, 12, 16)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.authority.port import Statement, Tx
from expunge.erasure import open_erasure
from expunge.errors import (
    Abandoned,
    AuthInsufficient,
    ErasedSince,
    ErasureInProgress,
    InputError,
    InvalidRecords,
    InvalidScope,
    UnknownRequest,
)
from expunge.model.instant import ManualClock
from expunge.operations import OPERATIONS, Actor, Role, perform
from tests.eye import bytes_of, changed
from tests.support import (
    HOSTILE_IDS,
    audited,
    block,
    dump,
    episode,
    event,
    fact,
    ids,
    memory,
    one_of_each,
    purge_order,
)

pytestmark = pytest.mark.authorities("sqlite", "postgres", every=4)

HOLD = Statement(
    "test.hold", "INSERT INTO holds (org, user_id, namespace, placed_at) VALUES ('default', :user_id, :namespace, 0)"
)
RELEASE = Statement("test.release", "UPDATE holds SET released_at = 1")


async def hold(expunge: Expunge, user_id: str | None = None, namespace: str | None = None) -> None:
    await expunge.system.authority.run(lambda tx: tx.change(HOLD, user_id=user_id, namespace=namespace))


async def release(expunge: Expunge) -> None:
    await expunge.system.authority.run(lambda tx: tx.change(RELEASE))


async def fence_rows(expunge: Expunge) -> list[tuple[Any, ...]]:
    text = "SELECT request_id, seq, lowered_seq FROM fences ORDER BY id"
    return await expunge.system.authority.read(lambda tx: tx.rows(Statement("test.fences", text)))


async def test_each_hostile_id_goes_alone(settings: Settings) -> None:
    """Law 12: every id of the list is another person; erased in turn, each takes its own records and no other's."""
    async with Expunge(settings=settings) as expunge:
        people = {user: one_of_each(user, f"r{n:03}") for n, user in enumerate(HOSTILE_IDS)}
        await expunge.put([record for records in people.values() for record in records])
        left = await dump(expunge)
        for n, user in enumerate(HOSTILE_IDS):
            assert sum((await expunge.profile(user)).counts.values()) == 5
            answer = await expunge.erase(user, purge=True)
            assert (answer.status, answer.found) == ("completed", True)
            prefix = f"r{n:03}-"
            left = {
                name: {key: row for key, row in rows.items() if not key.startswith(prefix)}
                for name, rows in left.items()
            }
            assert await dump(expunge) == left
        assert ids(left) == set()


@pytest.mark.parametrize("user", [user for user in HOSTILE_IDS if len(user.encode()) > 6 and user != "user_id"])
async def test_a_clear_id_stands_nowhere_afterwards(settings: Settings, user: str) -> None:
    """Law 14: after a completed purge the id is in no byte of any file (ids long enough not to occur by chance)."""
    async with Expunge(settings=settings) as expunge:
        await expunge.put([*one_of_each(user, "a"), *one_of_each("bob", "b")])
        await expunge.erase(user, purge=True)
        raw = bytes_of(settings)
        assert not [name for name, data in raw.items() if user.encode() in data]
        assert any(b"bob" in data for data in raw.values())
    assert not [name for name, data in bytes_of(settings).items() if user.encode() in data]


async def test_the_lineage_rule(expunge: Expunge) -> None:
    """Laws 5, 6 and 10: `retire` goes with any source, `detach` with the last; three deep; others stay as they were."""
    await expunge.put(
        [
            episode("a1", "ann"), episode("a2", "ann"), episode("b1", "bob"),
            fact("both", "bob", sources=["a1", "b1"]), fact("only-a", "bob", sources=["a1", "a2"]),
            fact("only-b", "bob", sources=["b1"]), fact("of-ann", "ann", sources=["b1"]), fact("free", "bob"),
            memory("sum", "s", sources=["a1", "b1"]), memory("sum-b", "s-b", sources=["b1"]),
            memory("deep2", "d2", sources=["sum"]), memory("deep3", "d3", sources=["deep2", "sum-b"]),
            memory("from-both", "fb", sources=["both"]), memory("from-only-a", "fa", sources=["only-a"]),
            fact("of-sum", "bob", sources=["sum", "b1"]), fact("of-deep3", sources=["deep3"]),
            episode("reply", "bob", sources=["a1"]), block("blk", "persona", "bob", sources=["a2"]),
            event("b1-v", "b1", "ann"), event("a1-v", "a1", "bob"), event("a2-v", "a2", "ann"),
        ]
    )  # fmt: skip
    before = await dump(expunge)
    preview = await expunge.preview("ann")
    answer = await expunge.erase("ann", purge=True)
    gone = {
        "a1", "a2", "of-ann", "only-a", "sum", "deep2", "deep3", "from-only-a", "of-deep3", "reply", "blk", "b1-v", "a1-v", "a2-v",
    }  # fmt: skip
    after = await dump(expunge)
    assert ids(before) - ids(after) == gone
    for name, rows in after.items():
        assert all(before[name][key] == row for key, row in rows.items())
    assert set(after["lineage"]) == {
        "both<b1", "only-b<b1", "sum-b<b1", "of-sum<b1", "from-both<both",
    }  # fmt: skip
    assert answer.effects == {"derived": 9, "detached": 2, "revived": 0, "rebuilt": 0}
    assert preview.effects == answer.effects
    goes = {name: sum(counts.values()) for name, counts in preview.goes.items()}
    assert goes == {name: count for name, count in answer.removed.items() if name != "lineage"}
    assert answer.receipts[0]["effects"] == answer.effects


async def test_an_older_version_becomes_current_again(expunge: Expunge) -> None:
    """Law 10: what the erased version had superseded is valid again, and counted."""
    await expunge.put([episode("a1", "ann"), episode("b1", "bob")])
    await expunge.put([memory("v1", "plan", sources=["b1"]), memory("v2", "plan", sources=["a1"])])
    await expunge.put([memory("w1", "other", sources=["a1"]), memory("w2", "other", sources=["b1"])])
    answer = await expunge.erase("ann", purge=True)
    assert answer.effects == {"derived": 2, "detached": 0, "revived": 1, "rebuilt": 0}
    assert set((await dump(expunge))["memories"]) == {"v1", "w2"}


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 7, 1000])
async def test_batches_change_nothing(settings: Settings, batch_rows: int) -> None:
    """Laws 11 and 16: the same users erased in one commit or in many leave the same rows, counts and effects."""
    async with Expunge(settings=changed(settings, batch_rows=batch_rows)) as expunge:
        records = [record for n in range(6) for record in one_of_each(f"user{n}", f"p{n}")]
        records += [episode(f"more{n}", "user0") for n in range(10)]
        records += [memory("shared", "all", sources=[f"p{n}-e" for n in range(6)])]
        records += [fact("kept", "user5", sources=[f"p{n}-e" for n in range(6)])]
        await expunge.put(records)
        answer = await expunge.erase("user0", "user1", "user2", purge=True)
        assert answer.status == "completed"
        kept = {record["id"] for n in (3, 4, 5) for record in one_of_each(f"user{n}", f"p{n}")} | {"kept"}
        assert ids(await dump(expunge)) == kept
        assert answer.removed == {
            "sessions": 3, "episodes": 13, "events": 3, "attachments": 0, "memories": 10, "facts": 3, "blocks": 3, "lineage": 18,
            "documents": 0, "chunks": 0, "answers": 0, "jobs": 0,
        }  # fmt: skip
        assert answer.effects == {"derived": 10, "detached": 1, "revived": 0, "rebuilt": 0}
        assert len(answer.receipts) == 3
        assert {receipt["batch_id"] for receipt in answer.receipts} == {answer.receipts[0]["batch_id"]}
        for name, count in answer.removed.items():
            assert sum(receipt["removed"][name] for receipt in answer.receipts) == count
        assert {receipt["scope"]["type"] for receipt in answer.receipts} == {"user_id"}
        assert answer.scope_type == "user_list"


@pytest.mark.authorities("memory", "postgres")
async def test_nothing_is_capped(expunge: Expunge) -> None:
    """Law 11: 10,001 records of one user go, and the receipt counts them."""
    await expunge.put([episode(f"e{n}", "ann") for n in range(10_001)])
    answer = await expunge.erase("ann", purge=True)
    assert (answer.status, answer.removed["episodes"]) == ("completed", 10_001)


async def test_an_unknown_subject_is_nothing_found(expunge: Expunge) -> None:
    """Law 16: completed, all zeros, and `found` is false; it still has a receipt."""
    await expunge.put(one_of_each("ann", "a"))
    answer = await expunge.erase("nobody", purge=True)
    assert (answer.status, answer.found) == ("completed", False)
    assert set(answer.removed.values()) == set((answer.census or {}).values()) == {0}
    assert answer.receipts[0]["census"] == answer.census
    assert len(ids(await dump(expunge))) == 8


async def test_an_org_does_not_touch_another(expunge: Expunge) -> None:
    """Law 10: two orgs with the same ids everywhere; one's erasure leaves the other byte-equal."""
    await expunge.put(one_of_each("ann", "a"), org="one")
    await expunge.put(one_of_each("ann", "a"), org="two")
    answer = await expunge.erase("ann", purge=True, org="one")
    assert answer.removed["episodes"] == 1
    assert not (await expunge.profile("ann", org="one")).found
    assert sum((await expunge.profile("ann", org="two")).counts.values()) == 5
    with pytest.raises(UnknownRequest):
        await expunge.call("erasure.status", request_id=answer.request_id, org="two")


async def test_a_write_that_began_before_or_during_is_refused(expunge: Expunge) -> None:
    """Law 4: before, during and after; direct and derived, under the subject's id and under nobody's."""
    await expunge.put([*one_of_each("ann", "a"), episode("b-e", "bob")])
    before = await expunge.as_of()
    request = await open_erasure(expunge.system, purge_order("ann"), actor="t", role="operator")
    during = await expunge.as_of()
    late = [episode("late", "ann"), memory("late", "k", sources=["a-e"]), event("late", "a-e")]
    for record in late:
        for as_of in (before, during, None):
            with pytest.raises(ErasureInProgress):
                await expunge.put([record], as_of=as_of)
    await expunge.put([episode("b-2", "bob")], as_of=before)
    done = await expunge.resume(request.id)
    assert done.status == "completed"
    for as_of in (before, during):
        with pytest.raises(ErasedSince):
            await expunge.put([episode("late", "ann")], as_of=as_of)
    await expunge.put([episode("new", "ann")])
    assert ids(await dump(expunge)) == {"b-e", "b-2", "new"}
    assert [row[2] > row[1] for row in await fence_rows(expunge)] == [True]


async def test_a_derived_write_during_the_erasure_goes_too(expunge: Expunge) -> None:
    """Law 5: what was derived from a still unmarked summary of nobody while the fence is up is found by the closure."""
    await expunge.put(one_of_each("ann", "a"))
    request = await open_erasure(expunge.system, purge_order("ann"), actor="t", role="operator")
    await expunge.put([memory("echo", "k", sources=["a-sum2"])])
    answer = await expunge.resume(request.id)
    assert (answer.status, answer.removed["memories"]) == ("completed", 4)
    assert ids(await dump(expunge)) == set()


async def test_a_marked_source_or_id_is_refused(expunge: Expunge) -> None:
    """Law 5: nothing may rest on, or replace, a record that is being erased."""
    await expunge.put([episode("a", "ann"), memory("m", "k", sources=["a"])])
    await expunge.system.authority.run(lambda tx: tx.change(Statement("test.mark", "UPDATE memories SET marked = 1")))
    for record in (fact("f", sources=["m"]), memory("m", "k", sources=["a"])):
        with pytest.raises(ErasureInProgress):
            await expunge.put([record])


async def test_a_held_scope_is_blocked_until_it_is_released(expunge: Expunge) -> None:
    """Law 8: a hold stops an erasure; nothing is fenced or removed, and a resume after the release completes."""
    await expunge.put([*one_of_each("ann", "a"), *one_of_each("bob", "b")])
    await hold(expunge, user_id="ann")
    before = await dump(expunge)
    answer = await expunge.erase("ann", purge=True)
    assert (answer.status, answer.receipt) == ("blocked", None)
    assert await dump(expunge) == before
    await expunge.put([episode("a-more", "ann")])
    assert (await expunge.resume(answer.request_id)).status == "blocked"
    await release(expunge)
    done = await expunge.resume(answer.request_id)
    assert (done.status, done.removed["episodes"]) == ("completed", 2)
    assert ids(await dump(expunge)) == {record["id"] for record in one_of_each("bob", "b")}


async def test_a_partly_held_scope_fails_with_its_residue(expunge: Expunge) -> None:
    """Laws 7 and 8: the held records stay and are served, the others go; never completed while one is left."""
    await expunge.put([episode("kept", "ann", namespace="legal"), episode("goes", "ann", namespace="chat")])
    await expunge.put([memory("sum", "s", namespace="legal", sources=["goes"])])
    await hold(expunge, namespace="legal")
    answer = await expunge.erase("ann", purge=True)
    assert (answer.status, answer.residue) == ("failed", {"episodes": 1, "memories": 1})
    assert ids(await dump(expunge)) == {"kept", "sum"}
    assert (await expunge.profile("ann")).counts["episodes"] == 1
    await release(expunge)
    done = await expunge.resume(answer.request_id)
    assert (done.status, done.removed["episodes"], done.removed["memories"]) == ("completed", 2, 1)
    assert ids(await dump(expunge)) == set()


async def test_five_attempts_and_then_a_person(settings: Settings) -> None:
    """Design 4: attempts are counted, and the last one gives the request up."""
    settings = changed(settings, max_attempts=3)
    async with Expunge(settings=settings) as expunge:
        await expunge.put([episode("kept", "ann", namespace="legal"), episode("goes", "ann")])
        await hold(expunge, namespace="legal")
        answer = await expunge.erase("ann", purge=True)
        for attempt in (2, 3):
            answer = await expunge.resume(answer.request_id)
            assert (answer.status, answer.attempts) == ("failed", attempt)
        with pytest.raises(Abandoned):
            await expunge.resume(answer.request_id)
        status = await expunge.call("erasure.status", request_id=answer.request_id)
        assert status.status == "abandoned"
        assert ids(await dump(expunge)) == {"kept"}


async def test_completed_is_answered_as_it_is(expunge: Expunge) -> None:
    """Law 16: resuming what is done changes nothing."""
    await expunge.put(one_of_each("ann", "a"))
    answer = await expunge.erase("ann", purge=True)
    assert await expunge.resume(answer.request_id) == answer
    assert len(await fence_rows(expunge)) == 1


async def test_intent_is_durable_before_anything_goes(expunge: Expunge) -> None:
    """Law 2: opening writes ledger row, audit intent and fence in one commit; no audit, no erasure."""
    await expunge.put(one_of_each("ann", "a"))
    drop = Statement("test.drop", "ALTER TABLE audit RENAME TO audit_away")
    await expunge.system.authority.run(lambda tx: tx.change(drop))
    before = await dump(expunge)
    with pytest.raises(Exception, match=r"no such table|UndefinedTable"):
        await expunge.erase("ann", purge=True)
    assert await dump(expunge) == before
    assert await fence_rows(expunge) == []

    def counts(tx: Tx) -> tuple[int, int]:
        ledger = tx.rows(Statement("test.count", "SELECT count(*) FROM ledger"))
        requests = tx.rows(Statement("test.count", "SELECT count(*) FROM requests"))
        return ledger[0][0], requests[0][0]

    assert await expunge.system.authority.read(counts) == (0, 0)


@pytest.mark.parametrize("count", [0, 501])
async def test_one_to_five_hundred_users(expunge: Expunge, count: int) -> None:
    """Bad input: 0 and 501 users, or one twice, are refused with nothing written."""
    await expunge.put(one_of_each("ann", "a"))
    with pytest.raises(InvalidScope):
        await expunge.erase(*(f"u{n}" for n in range(count)), purge=True)
    with pytest.raises(InvalidScope):
        await expunge.erase("ann", "ann", purge=True)
    assert (await expunge.call("erasure.list")).erasures == []
    assert len(ids(await dump(expunge))) == 8


@pytest.mark.authorities("memory", "postgres")
async def test_five_hundred_users_get_a_receipt_each(expunge: Expunge) -> None:
    """Design 4: one request, one pass per collection, a receipt per subject."""
    users = [f"user-{n}" for n in range(500)]
    await expunge.put([*(episode(f"e-{user}", user) for user in users), episode("stays", "bob")])
    answer = await expunge.erase(*users, purge=True)
    assert (answer.status, answer.removed["episodes"], len(answer.receipts)) == ("completed", 500, 500)
    assert {receipt["removed"]["episodes"] for receipt in answer.receipts} == {1}
    assert ids(await dump(expunge)) == {"stays"}


async def test_each_call_has_a_role(expunge: Expunge, clock: ManualClock) -> None:
    """Law 15: the role is checked below every surface."""
    for name, operation in OPERATIONS.items():
        weak = Actor("someone", Role(operation.role - 1)) if operation.role > Role.VIEWER else None
        if weak is not None:
            with pytest.raises(AuthInsufficient, match=name):
                await perform(expunge.system, operation, {}, actor=weak)
    with pytest.raises(InputError):
        await expunge.call("no.such.operation")
    with pytest.raises(InputError):
        await expunge.call("subject.profile", user_id="ann", extra=1)


async def test_the_audit_names_the_actor_and_no_subject(expunge: Expunge) -> None:
    """Law 14: actor and subject are different fields; the subject is a pseudonym."""
    await expunge.put(one_of_each("ann-the-subject", "a"))
    answer = await expunge.erase("ann-the-subject", purge=True)
    rows = await audited(expunge)
    assert [(row["operation"], row["outcome"]) for row in rows] == [
        ("records.put", "done"), ("erasure.request", "intent"), ("erasure.request", "completed"),
    ]  # fmt: skip
    assert {row["actor"] for row in rows} == {expunge.system.keys.current.pseudonym("default", "actor", "operator")}
    assert rows[1]["request_id"] == answer.request_id
    assert "ann-the-subject" not in str(rows)
    assert answer.receipts[0]["scope"]["pseudonyms"] == rows[1]["subjects"][0]


@pytest.mark.parametrize(
    "as_of", [{"default": 10**6}, {"default": -1}, {"default": 1.0}, {"default": "0"}, {"default": True}]
)
async def test_a_counter_that_cannot_be_is_refused(expunge: Expunge, as_of: Any) -> None:
    """Law 4: rows are stamped by the engine; an `as_of` from elsewhere would hide them from every erasure."""
    with pytest.raises(InputError):
        await expunge.put([episode("e", "ann")], as_of=as_of)
    assert ids(await dump(expunge)) == set()


async def test_put_takes_its_counter_first(expunge: Expunge) -> None:
    """Law 4: what comes out of an iterable while the person is erased began before."""
    await expunge.put([episode("e", "ann")])

    def slow() -> Iterator[Any]:
        yield episode("late", "ann")
        erased = threading.Thread(target=lambda: asyncio.run(other_process()))
        erased.start()
        erased.join()

    async def other_process() -> None:
        async with Expunge(settings=expunge.settings) as other:
            await other.erase("ann", purge=True)

    with pytest.raises(ErasedSince):
        await expunge.put(slow())
    assert ids(await dump(expunge)) == set()


async def test_a_source_that_came_back_under_its_id_is_another(expunge: Expunge) -> None:
    """Laws 4 and 5: a summary made afresh under the same id is not the one that a stale unit has read."""
    await expunge.put([episode("a", "ann"), episode("b", "bob"), memory("sum", "s", sources=["a", "b"])])
    stale = await expunge.as_of()
    await expunge.erase("ann", purge=True)
    await expunge.put([memory("sum", "s", sources=["b"])])
    with pytest.raises(ErasedSince):
        await expunge.put([memory("sum2", "s2", sources=["sum"])], as_of=stale)
    await expunge.put([memory("sum2", "s2", sources=["sum"])])
    assert ids(await dump(expunge)) == {"b", "sum", "sum2"}


async def test_nothing_is_derived_from_a_held_record_that_is_to_go(expunge: Expunge) -> None:
    """Laws 5 and 8: a held derived record is served, but it is marked, so nothing new may rest on it."""
    await expunge.put([episode("a", "ann"), memory("m1", "k", "bob", sources=["a"])])
    await hold(expunge, user_id="bob")
    answer = await expunge.erase("ann", purge=True)
    assert (answer.status, answer.residue) == ("failed", {"memories": 1})
    with pytest.raises(ErasureInProgress):
        await expunge.put([memory("m2", "k2", sources=["m1"])])
    await release(expunge)
    assert (await expunge.resume(answer.request_id)).status == "completed"
    assert ids(await dump(expunge)) == set()


async def test_naming_more_sources_cannot_close_a_circle(expunge: Expunge) -> None:
    """The load format: a cycle of sources is an error, also one that closes through what is stored."""
    await expunge.put([episode("e", "ann"), fact("f1", sources=["e"]), fact("f2", sources=["f1"])])
    before = await dump(expunge)
    with pytest.raises(InvalidRecords, match="cycle"):
        await expunge.put([fact("f1", sources=["e", "f2"])])
    assert await dump(expunge) == before
    await expunge.erase("ann", purge=True)
    assert ids(await dump(expunge)) == set()


async def test_a_later_erasure_clears_what_a_stopped_one_left(settings: Settings) -> None:
    """Laws 14 and 16: after a completed erasure neither the clear id nor a fence of an abandoned one stays."""
    user = "ann-who-was-given-up"
    async with Expunge(settings=changed(settings, max_attempts=1)) as expunge:
        await expunge.put(one_of_each(user, "a"))
        request = await open_erasure(expunge.system, purge_order(user), actor="t", role="operator")
        with pytest.raises(Abandoned):
            await expunge.resume(request.id)
        answer = await expunge.erase(user, purge=True)
        assert answer.status == "completed"
        assert not [name for name, data in bytes_of(settings).items() if user.encode() in data]
        await expunge.put([episode("back", user)])
        old = await expunge.call("erasure.status", request_id=request.id)
        assert (old.status, answer.request_id in str(old.failure_reason)) == ("abandoned", True)


@pytest.mark.parametrize("batch_rows", [5, 1000])
async def test_held_records_do_not_stop_the_rest(settings: Settings, batch_rows: int) -> None:
    """Law 8: with more held records than fit into a batch, the free ones go, and keep no edge; the held ones stay."""
    async with Expunge(settings=changed(settings, batch_rows=batch_rows)) as expunge:
        await expunge.put([episode(f"held{n}", "ann", namespace="legal") for n in range(6)])
        await expunge.put([episode(f"free{n}", "ann") for n in range(4)])
        await expunge.put([fact("f", "bob", sources=["free0", "held0"])])
        await hold(expunge, namespace="legal")
        answer = await expunge.erase("ann", purge=True)
        assert (answer.status, answer.residue) == ("failed", {"episodes": 6})
        after = await dump(expunge)
        assert ids(after) == {*(f"held{n}" for n in range(6)), "f"}
        assert set(after["lineage"]) == {"f<held0"}


async def test_a_later_erasure_does_not_forget_what_a_hold_keeps_of_an_earlier_one(expunge: Expunge) -> None:
    """Laws 5, 7 and 8: what was made from the subject's words and is held stays known, and goes when the hold ends."""
    hold = Statement("test.hold", "INSERT INTO holds (org, user_id, placed_at) VALUES ('default', 'bob', 0)")
    await expunge.put([episode("a", "ann"), memory("m", "k", "bob", sources=["a"]), episode("b", "bob")])
    await expunge.system.authority.run(lambda tx: tx.change(hold))
    first = await expunge.erase("ann", purge=True)
    assert (first.status, first.residue) == ("failed", {"memories": 1})
    assert (await expunge.erase("ann", purge=True)).status == "completed"
    still = await expunge.call("erasure.status", request_id=first.request_id)
    assert still.status == "failed"
    await expunge.system.authority.run(
        lambda tx: tx.change(Statement("test.release", "UPDATE holds SET released_at = 1"))
    )
    answer = await expunge.resume(first.request_id)
    assert (answer.status, answer.removed["memories"]) == ("completed", 1)
    assert ids(await dump(expunge)) == {"b"}
