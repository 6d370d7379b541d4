"""Where restore windows end, and where erasures of the same records meet (laws 4, 6, 7, 10, 14, 16)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.erasure import list_due
from expunge.erasure.opening import take_due
from expunge.errors import InputError, NotRestorable
from expunge.model.instant import ManualClock
from expunge.operations.erasure import Answer
from tests.crash.kit import everything
from tests.eye import bytes_of, changed, holding, is_served, reclaims
from tests.support import block, dump, episode, event, fact, ids, memory
from tests.test_erasure import hold, release
from tests.test_restore import (
    ANN,
    BOB,
    CEM,
    DAY_S,
    DORA,
    IN_SCOPE,
    NOTES,
    NOTHING,
    OTHER,
    WINDOW_S,
    WITH_IT,
    WORLD,
    but_seq,
    checked,
    count,
    hide,
    ids_of,
    marked,
    seqs,
)

pytestmark = pytest.mark.authorities("sqlite", "postgres", every=4)


async def due(expunge: Expunge) -> list[Answer]:
    """Purge what was hidden and not restored in time."""
    ended: list[Answer] = (await expunge.call("erasure.resume_due")).erasures
    return ended


async def ledger_of(expunge: Expunge, request_id: str) -> list[dict[str, Any]]:
    """Every receipt of a request in the order of the ledger."""
    lines = [json.loads(line) for line in (await expunge.call("ledger.export")).lines[1:]]
    return [line["receipt"] for line in lines if line.get("receipt", {}).get("request_id") == request_id]


# --- the end of a window -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch_rows", "rotated"), [(1, False), (3, True), (1000, False), (1000, True)])
async def test_the_end_of_a_window(settings: Settings, batch_rows: int, rotated: bool) -> None:
    """Laws 7, 10 and 14: what was not restored goes, with a second receipt; who came back and what did stays."""
    settings = changed(settings, batch_rows=batch_rows)
    clock = ManualClock()
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put([*WORLD, episode("<ann-2>", ANN), fact("<kept>", DORA, sources=["<ann-2>"])])
        answer = await hide(expunge, ANN)
        (first,) = answer.receipts
        if rotated:
            await expunge.call("keys.rotate")
        await expunge.put([episode("<back>", ANN), memory("<back-m>", "likes", ANN, sources=["<back>"])])
        assert (await expunge.restore(answer.request_id, "<ann-2>")).restored == {"episodes": 1, "facts": 1}
        if rotated:
            await expunge.call("keys.rotate")
        before = await dump(expunge)
        clock.advance(WINDOW_S - 1)
        assert await due(expunge) == []
        assert await dump(expunge) == before
        clock.advance(1)
        (ended,) = await due(expunge)
        after = await dump(expunge)
        gone = IN_SCOPE | WITH_IT
        assert ids(after) == ids(before) - gone
        for name, rows in after.items():
            assert all(row == before[name][key] for key, row in rows.items())
        assert {"<back-m><<back>", "<kept><<ann-2>"} <= set(after["lineage"])
        assert not [edge for edge in after["lineage"].values() if {*edge[:2]} & gone]
        assert (ended.status, ended.purge, ended.residue_count) == ("completed", True, 0)
        assert ended.removed == NOTHING | {
            "sessions": 1, "episodes": 1, "events": 1, "memories": 8, "facts": 2, "blocks": 1, "lineage": 10,
        }  # fmt: skip
        assert (ended.hidden, ended.reversals_count) == (NOTHING, 1)
        said = "what was removed had been reclaimed" if reclaims(settings) else "DEFERRED"
        assert (await checked(expunge, answer.request_id))["bytes"].startswith(said)
        receipts = await ledger_of(expunge, answer.request_id)
        assert receipts == [first, ended.receipt]
        assert [receipt["purge"] for receipt in receipts] == [False, True]
        assert (receipts[1]["restore_until"], receipts[1]["reversals"]) == (None, 1)
        assert receipts[1]["requested_at"] == receipts[0]["requested_at"]
        assert receipts[1]["plan_hash"] == receipts[0]["plan_hash"]
        assert await count(expunge, "SELECT count(*) FROM marks") == 0
        assert await count(expunge, "SELECT count(*) FROM requests WHERE scope IS NOT NULL") == 0
        counted = await expunge.call("erasure.census", request_id=answer.request_id)
        assert counted.residue_count == 0
        assert holding(settings, sorted(gone)) == {}
        ended_as = await everything(expunge)
        assert await due(expunge) == []
        assert await expunge.resume(answer.request_id) == ended
        assert await everything(expunge) == ended_as
        with pytest.raises(NotRestorable):
            await expunge.restore(answer.request_id)
        assert (await expunge.profile(ANN)).counts["episodes"] == 2


async def test_a_window_that_has_ended_is_purged_when_the_store_is_opened(settings: Settings) -> None:
    """Design 4: whoever opens the store after 14 days ends it; nothing of the person is in any byte afterwards."""
    clock = ManualClock()
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert expunge.ended == []
        await expunge.put(WORLD)
        answer = await hide(expunge, ANN)
    clock.advance(WINDOW_S - 1)
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert expunge.ended == []
        assert marked(await dump(expunge)) == IN_SCOPE | WITH_IT
    where = {name.partition(" ")[0] for name in holding(settings, [ANN])}
    assert where == {"table" if is_served(settings.db) else "expunge.db"}
    clock.advance(1)
    async with Expunge(settings=settings, clock=clock) as expunge:
        (ended,) = expunge.ended
        assert (ended.request_id, ended.status, ended.purge) == (answer.request_id, "completed", True)
        assert ids(await dump(expunge)) == ids_of(WORLD) - IN_SCOPE - WITH_IT
        assert holding(settings, [ANN, *sorted(IN_SCOPE | WITH_IT)]) == {}
        await checked(expunge, answer.request_id)
        left = await everything(expunge)
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert expunge.ended == []
        assert await everything(expunge) == left
    assert holding(settings, [ANN]) == {}


async def test_the_end_of_a_window_whose_records_all_came_back(expunge: Expunge, clock: ManualClock) -> None:
    """Laws 7 and 10: nothing is left to purge; the second receipt says that nothing went, and of nobody else either."""
    await expunge.put(WORLD)
    answer = await hide(expunge, ANN)
    assert answer.effects == {"derived": len(WITH_IT), "detached": 1, "revived": 1, "rebuilt": 0}
    await expunge.restore(answer.request_id)
    before = await dump(expunge)
    clock.advance(WINDOW_S)
    (ended,) = await due(expunge)
    assert (ended.status, ended.removed, ended.reversals_count) == ("completed", NOTHING, len(IN_SCOPE))
    assert await dump(expunge) == before
    assert ended.effects == {"derived": 0, "detached": 0, "revived": 0, "rebuilt": 0}
    assert ended.receipts[0]["effects"] == ended.effects


async def test_a_second_receipt_counts_the_effects_of_what_goes(expunge: Expunge, clock: ManualClock) -> None:
    """Law 10: what was restored loses nothing, and a newer version that came since leaves nothing to be revived."""
    await expunge.put(
        [*WORLD, fact("<own>", DORA, sources=["<ann>-b"]), memory("<x1>", "x"), memory("<x2>", "x", sources=["<m2>"])]
    )
    answer = await hide(expunge, ANN)
    assert answer.effects == {"derived": len(WITH_IT) + 2, "detached": 1, "revived": 2, "rebuilt": 0}
    await expunge.restore(answer.request_id, "<ann>-b")
    await expunge.put([memory("<w3>", "weather", DORA)])
    clock.advance(WINDOW_S)
    (ended,) = await due(expunge)
    assert ended.effects == {"derived": len(WITH_IT) + 1, "detached": 1, "revived": 1, "rebuilt": 0}
    assert "<own>" in ids(await dump(expunge))


async def test_urgent_ones_are_purged_first(settings: Settings) -> None:
    """The worker's order: urgent erasures first, then by age, over every org."""
    clock = ManualClock()
    asked: list[tuple[str, str, str]] = []
    async with Expunge(settings=settings, clock=clock) as expunge:
        for number, (org, urgency) in enumerate(
            [("one", "normal"), ("two", "urgent"), ("one", "urgent"), ("two", "normal")]
        ):
            await expunge.put([episode(f"<e{number}>", ANN)], org=org)
            answer = await hide(expunge, ANN, org=org, urgency=urgency)
            asked.append((answer.request_id, answer.org, answer.urgency))
            clock.advance(60)
        clock.advance(WINDOW_S)
        ended = await due(expunge)
        assert [(answer.request_id, answer.org, answer.urgency) for answer in ended] == [asked[n] for n in (1, 2, 0, 3)]
        assert {answer.status for answer in ended} == {"completed"}
        assert ids(await dump(expunge)) == set()


async def test_a_hold_at_the_end_of_a_window(expunge: Expunge, clock: ManualClock) -> None:
    """Laws 7 and 8: a held record stays hidden, the rest goes; failed until the hold is released and it is resumed."""
    await expunge.put([episode("<e>", ANN), episode("<n>", ANN, namespace=NOTES), fact("<f>", DORA, sources=["<n>"])])
    answer = await hide(expunge, ANN)
    await hold(expunge, namespace=NOTES)
    clock.advance(WINDOW_S)
    (ended,) = await due(expunge)
    assert (ended.status, ended.residue) == ("failed", {"episodes": 1})
    assert ids(await dump(expunge)) == {"<n>"}
    with pytest.raises(NotRestorable):
        await expunge.restore(answer.request_id)
    async with Expunge(settings=expunge.settings, clock=clock) as another:
        assert another.ended == []  # whoever opens the store has not asked for it
    (again,) = await due(expunge)
    assert (again.status, again.residue, again.attempts) == ("failed", {"episodes": 1}, 3)
    await release(expunge)
    done = await expunge.resume(answer.request_id)
    assert (done.status, done.removed["episodes"], done.removed["facts"]) == ("completed", 2, 1)
    assert ids(await dump(expunge)) == set()
    assert await due(expunge) == []


@pytest.mark.parametrize("asked", [True, False])
async def test_the_end_of_a_window_whose_runner_has_died(settings: Settings, asked: bool) -> None:
    """Law 16: it is gone on with when somebody resumes it, or when it has stood still for ten minutes."""
    clock = ManualClock()
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put(WORLD)
        answer = await hide(expunge, ANN)
        clock.advance(WINDOW_S)
        now = clock.now()
        (found,) = await expunge.system.authority.read(lambda tx: list_due(tx, now))
        await take_due(expunge.system, found, role="operator")
    clock.advance(599)
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert expunge.ended == []
        status = await expunge.call("erasure.status", request_id=answer.request_id)
        assert (status.status, status.purge) == ("in_progress", True)
        with pytest.raises(NotRestorable):
            await expunge.restore(answer.request_id)
        assert await due(expunge) == []
        if asked:
            assert (await expunge.resume(answer.request_id)).status == "completed"
    clock.advance(1)
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert [item.status for item in expunge.ended] == ([] if asked else ["completed"])
        assert ids(await dump(expunge)) == ids_of(WORLD) - IN_SCOPE - WITH_IT
        await checked(expunge, answer.request_id)


async def test_a_clock_that_jumped(settings: Settings) -> None:
    """Law 13: more than 30 days after the last happening nobody's window ends until somebody has looked."""
    clock = ManualClock()
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put(WORLD)
        await hide(expunge, ANN)
    clock.advance(30 * DAY_S + 1)
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert expunge.ended == []
        assert marked(await dump(expunge)) == IN_SCOPE | WITH_IT
        assert [item.status for item in await due(expunge)] == ["completed"]
        assert ids(await dump(expunge)) == ids_of(WORLD) - IN_SCOPE - WITH_IT


async def test_a_failed_end_of_a_window_does_not_take_what_was_restored(expunge: Expunge, clock: ManualClock) -> None:
    """Law 16: resumed after a failure, an erasure goes on with what it had left hidden, and with nothing else."""
    await expunge.put([episode("<e>", ANN), episode("<n>", ANN, namespace=NOTES), fact("<f>", DORA, sources=["<e>"])])
    answer = await hide(expunge, ANN)
    await expunge.restore(answer.request_id, "<e>")
    await expunge.put([episode("<back>", ANN, namespace=NOTES)])
    await hold(expunge, namespace=NOTES)
    clock.advance(WINDOW_S)
    (ended,) = await due(expunge)
    assert (ended.status, ended.residue) == ("failed", {"episodes": 1})
    await release(expunge)
    assert (await expunge.resume(answer.request_id)).removed == NOTHING | {"episodes": 1}
    assert ids(await dump(expunge)) == {"<e>", "<f>", "<back>"}
    assert marked(await dump(expunge)) == set()


# --- two that hide the same --------------------------------------------------------------------------------------------

BOTH = [
    episode("<mine>", ANN),
    episode("<ours>", ANN, namespace=NOTES),
    event("<ours-v>", "<ours>"),
    episode("<theirs>", BOB, namespace=NOTES),
    memory("<sum>", "sum", sources=["<mine>", "<theirs>"]),
    memory("<of-ours>", "of ours", sources=["<ours>"]),
    fact("<fact>", DORA, sources=["<mine>", "<theirs>"]),
    memory("<of-fact>", "of fact", DORA, sources=["<fact>"]),
    episode("<else>", BOB),
    fact("<free>", DORA, sources=["<mine>", "<else>"]),
]
"""What user ``ANN`` and namespace ``NOTES`` have, each alone and both, and what was made of it."""
OF_USER = {"<mine>", "<ours>", "<ours-v>", "<sum>", "<of-ours>"}
OF_NOTES = {"<ours>", "<ours-v>", "<theirs>", "<sum>", "<of-ours>"}
OF_BOTH = OF_USER | OF_NOTES | {"<fact>", "<of-fact>"}


@pytest.mark.parametrize("batch_rows", [2, 1000])
@pytest.mark.parametrize("user_first", [True, False])
@pytest.mark.parametrize("user_back", [True, False])
async def test_restoring_one_leaves_what_another_hides(
    settings: Settings, batch_rows: int, user_first: bool, user_back: bool
) -> None:
    """Law 6: what two hide comes back with the second; what was made of both when nothing it rests on is hidden."""
    async with Expunge(settings=changed(settings, batch_rows=batch_rows)) as expunge:
        await expunge.put(BOTH)
        before = await dump(expunge)
        order = [{"users": [ANN]}, {"namespaces": [NOTES]}]
        found = [
            await hide(expunge, *scope.pop("users", []), **scope) for scope in (order if user_first else order[::-1])
        ]
        of_user, of_notes = found if user_first else found[::-1]
        assert marked(await dump(expunge)) == OF_BOTH
        one, other = (of_user, of_notes) if user_back else (of_notes, of_user)
        first = await expunge.restore(one.request_id)
        left = OF_NOTES if user_back else OF_USER
        assert marked(await dump(expunge)) == left
        assert first.reversals_count == 1
        again = await expunge.restore(one.request_id)
        assert (again.restored, again.reversals_count, again.still_hidden) == ({}, 0, 0)
        assert (await expunge.call("erasure.status", request_id=one.request_id)).hidden == NOTHING
        second = await expunge.restore(other.request_id)
        assert (second.reversals_count, second.still_hidden) == (2, 0)
        back = ids(before)
        assert marked(await dump(expunge)) == set()
        assert but_seq(await dump(expunge), back) == but_seq(before, back)
        assert await count(expunge, "SELECT count(*) FROM marks") == 0


@pytest.mark.parametrize("user_first", [True, False])
@pytest.mark.parametrize("user_back", [True, False])
async def test_one_comes_back_and_the_window_of_the_other_ends(
    settings: Settings, user_first: bool, user_back: bool
) -> None:
    """Laws 6 and 10: what is purged then is what the other hides; a fact with a source that came back stays."""
    clock = ManualClock()
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put(BOTH)
        before = await dump(expunge)
        found: dict[bool, Answer] = {}
        for of_user in (user_first, not user_first):
            found[of_user] = await (hide(expunge, ANN) if of_user else hide(expunge, namespaces=[NOTES]))
        await expunge.restore(found[user_back].request_id)
        clock.advance(WINDOW_S)
        ended = {answer.request_id: answer for answer in await due(expunge)}
        assert {answer.status for answer in ended.values()} == {"completed"}, ended
        goes = OF_NOTES if user_back else OF_USER
        after = await dump(expunge)
        assert ids(after) == ids(before) - goes
        assert marked(after) == set()
        assert ended[found[user_back].request_id].removed == NOTHING
        removed = ended[found[not user_back].request_id].removed
        assert sum(number for name, number in removed.items() if name != "lineage") == len(goes)
        assert after["lineage"] == {key: edge for key, edge in before["lineage"].items() if not {*edge[:2]} & goes}


async def test_a_fact_of_two_that_are_hidden_is_a_reversal_when_it_was_in_scope(expunge: Expunge) -> None:
    """Law 6: hidden by one for whose it is, and by another for its last source, it comes back when that does."""
    await expunge.put([episode("<a>", ANN), episode("<b>", BOB), fact("<f>", ANN, sources=["<a>", "<b>"])])
    of_ann, of_bob = await hide(expunge, ANN), await hide(expunge, BOB)
    assert (of_ann.hidden["facts"], of_bob.hidden["facts"]) == (1, 1)
    restored = await expunge.restore(of_ann.request_id)
    assert (restored.restored, restored.reversals_count, restored.still_hidden) == ({"episodes": 1, "facts": 1}, 2, 0)
    assert marked(await dump(expunge)) == {"<b>"}
    assert (await expunge.call("erasure.status", request_id=of_bob.request_id)).hidden == NOTHING | {"episodes": 1}


@pytest.mark.parametrize("restored", [[], ["<ours>"]])
async def test_the_window_of_one_ends_while_another_still_hides_what_it_gave_back(
    settings: Settings, tmp_path: Path, restored: list[str]
) -> None:
    """Laws 10 and 16: what one gave back and another hides is no residue of the first, whole with its bytes."""
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a.txt").write_bytes(b"attached<00001>")
    clock = ManualClock()
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put(
            [episode("<ours>", ANN, namespace=NOTES, attachments=["a.txt"])], attachments_from=tmp_path / "given"
        )
        await expunge.put(
            [event("<ours-v>", "<ours>"), episode("<mine>", ANN), memory("<sum>", "s", sources=["<mine>"])]
        )
        before = await dump(expunge)
        of_user = await hide(expunge, ANN)
        clock.advance(5 * DAY_S)
        of_notes = await hide(expunge, namespaces=[NOTES])
        given = await expunge.restore(of_user.request_id, *restored)
        assert given.reversals_count == (0 if restored else 1)
        clock.advance(9 * DAY_S)
        (ended,) = await due(expunge)
        assert (ended.request_id, ended.status, ended.residue) == (of_user.request_id, "completed", {})
        assert (await expunge.restore(of_notes.request_id)).still_hidden == 0
        after = await dump(expunge)
        assert ids(after) == ids(before) - ({"<mine>", "<sum>"} if restored else set())
        assert marked(after) == set()
        assert len([name for name in holding(settings, ["attached<00001>"]) if "objects" in name]) == 1
        counted = await expunge.call("erasure.census", request_id=of_user.request_id)
        assert counted.residue_count == 0
        clock.advance(5 * DAY_S)
        (last,) = await due(expunge)
        assert (last.request_id, last.status, last.removed) == (of_notes.request_id, "completed", NOTHING)
        assert await dump(expunge) == after


async def test_what_two_hide_goes_with_the_first_window_that_ends(expunge: Expunge, clock: ManualClock) -> None:
    """Law 16: what is gone cannot be given back, and the second erasure does not say that it still hides it."""
    await expunge.put(BOTH)
    of_user = await hide(expunge, ANN)
    clock.advance(DAY_S)
    of_notes = await hide(expunge, namespaces=[NOTES])
    clock.advance(13 * DAY_S)
    (ended,) = await due(expunge)
    assert (ended.request_id, ended.status) == (of_user.request_id, "completed")
    status = await expunge.call("erasure.status", request_id=of_notes.request_id)
    assert sum(status.hidden.values()) == await count(expunge, "SELECT count(*) FROM marks")
    assert status.hidden["episodes"] == 1
    with pytest.raises(InputError):
        await expunge.restore(of_notes.request_id, "<ours>")
    restored = await expunge.restore(of_notes.request_id)
    assert (restored.restored["episodes"], restored.still_hidden) == (1, 0)
    after = await dump(expunge)
    assert not ids(after) & OF_USER
    assert {"<theirs>", "<else>", "<free>"} <= ids(after)
    assert marked(after) == set()


# --- a purge after a hide ----------------------------------------------------------------------------------------------

HIDES: dict[str, dict[str, Any]] = {
    "the same": {"users": [ANN]},
    "a list": {"users": [BOB, ANN]},
    "a namespace": {"namespaces": [NOTES]},
    "namespaces": {"namespaces": [NOTES, OTHER]},
    "user in namespace": {"users": [ANN], "namespaces": [NOTES]},
    "an agent": {"agent": "writer<00001>"},
    "the org": {"whole_org": True},
}


def people() -> list[dict[str, Any]]:
    """Two people in two namespaces, whose ids stand in nothing that is not theirs."""
    records: list[dict[str, Any]] = []
    for name, user in (("ann", ANN), ("bob", BOB)):
        at = {"namespace": NOTES, "agent": "writer<00001>"}
        records += [
            episode(f"<{name}-e>", user, **at),
            event(f"<{name}-v>", f"<{name}-e>", namespace=NOTES),
            memory(f"<{name}-m>", "likes", user, **at),
            block(f"<{name}-b>", "persona", user, **at),
            fact(f"<{name}-f>", user, sources=[f"<{name}-e>"], **at),
            memory(f"<{name}-sum>", f"sum/{name}", sources=[f"<{name}-e>"]),
        ]
    return [*records, episode("<ann-else>", ANN, namespace=OTHER, agent="writer<00001>"), episode("<cem>", CEM)]


@pytest.mark.parametrize(("batch_rows", "rotated"), [(2, False), (1000, True)])
@pytest.mark.parametrize("scope", HIDES)
async def test_a_purge_of_who_was_hidden(settings: Settings, scope: str, batch_rows: int, rotated: bool) -> None:
    """Laws 7 and 14: the purged one stands in no byte of any file, and the others can still be restored."""
    settings = changed(settings, batch_rows=batch_rows)
    hidden = {name: list(value) if isinstance(value, list) else value for name, value in HIDES[scope].items()}
    async with Expunge(settings=settings, clock=(clock := ManualClock())) as expunge:
        await expunge.put(people())
        before = await dump(expunge)
        answer = await hide(expunge, *hidden.pop("users", []), **hidden)
        others = {key for key in marked(await dump(expunge)) if not key.startswith("<ann-")}
        if rotated:
            await expunge.call("keys.rotate")
        purged = await expunge.erase(ANN, purge=True)
        assert (purged.status, purged.residue_count) == ("completed", 0)
        gone = {record["id"] for record in people() if record["id"].startswith("<ann-")}
        assert ids(await dump(expunge)) == ids(before) - gone
        assert marked(await dump(expunge)) == others
        assert holding(settings, [ANN, *sorted(gone)]) == {}
        status = await expunge.call("erasure.status", request_id=answer.request_id)
        assert (status.status, sum(status.hidden.values())) == ("completed", len(others))
        with pytest.raises(InputError):
            await expunge.restore(answer.request_id, "<ann-e>")
        restored = await expunge.restore(answer.request_id)
        assert (sum(restored.restored.values()), restored.still_hidden) == (len(others), 0)
        after = await dump(expunge)
        assert marked(after) == set()
        left = {name: {key: row for key, row in rows.items() if "<ann-" not in key} for name, rows in before.items()}
        assert but_seq(after, others) == but_seq(left, others)
        clock.advance(WINDOW_S)
        (ended,) = await due(expunge)
        assert (ended.status, ended.removed) == ("completed", NOTHING)
        assert await dump(expunge) == after
        for receipt in (*purged.receipts, *ended.receipts):
            assert set(receipt["census"].values()) == {0}
    assert holding(settings, [ANN]) == {}


@pytest.mark.parametrize("scope", HIDES)
async def test_the_window_of_the_others_ends_after_a_purge(settings: Settings, scope: str) -> None:
    """Laws 7 and 14: by marks and pseudonyms alone the rest is purged, and who came back since is left alone."""
    hidden = {name: list(value) if isinstance(value, list) else value for name, value in HIDES[scope].items()}
    clock = ManualClock()
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put(people())
        answer = await hide(expunge, *hidden.pop("users", []), **hidden)
        await expunge.erase(ANN, purge=True)
        others = marked(await dump(expunge))
        await expunge.put([episode("<back>", ANN, namespace=NOTES, agent="writer<00001>")])
        clock.advance(WINDOW_S)
        (ended,) = await due(expunge)
        assert (ended.request_id, ended.status, ended.residue) == (answer.request_id, "completed", {})
        after = await dump(expunge)
        assert "<back>" in ids(after)
        assert not ids(after) & others
        assert marked(after) == set()
        assert holding(settings, sorted(others)) == {}
        assert await count(expunge, "SELECT count(*) FROM requests WHERE scope IS NOT NULL") == 0


@pytest.mark.parametrize("wider", [{"whole_org": True}, {"namespaces": [NOTES, OTHER]}, {"agent": "writer<00001>"}])
async def test_a_wider_purge_of_who_was_hidden(settings: Settings, wider: dict[str, Any]) -> None:
    """Law 14: when all that an erasure had hidden has gone by another, nothing names its subject any more."""
    async with Expunge(settings=settings) as expunge:
        await expunge.put(people())
        answer = await hide(expunge, ANN)
        session = await hide(expunge, BOB, namespaces=[NOTES])
        purged = await expunge.erase(purge=True, **wider)
        assert (purged.status, purged.residue_count) == ("completed", 0)
        assert ids(await dump(expunge)) <= {"<cem>"}
        assert holding(settings, [ANN, BOB]) == {}
        for request in (answer, session):
            assert (await expunge.restore(request.request_id)).restored == {}


async def test_a_failed_end_of_a_window_after_a_purge_can_be_resumed(expunge: Expunge, clock: ManualClock) -> None:
    """Law 16: an erasure whose clear scope is forgotten goes on by its marks, also after a failure."""
    await expunge.put(people())
    answer = await hide(expunge, ANN, BOB)
    await expunge.erase(ANN, purge=True)
    await hold(expunge, namespace=NOTES)
    clock.advance(WINDOW_S)
    (ended,) = await due(expunge)
    assert ended.status == "failed"
    assert set(ended.residue) >= {"episodes", "memories"}
    await release(expunge)
    done = await expunge.resume(answer.request_id)
    assert (done.status, done.residue_count) == ("completed", 0)
    assert ids(await dump(expunge)) == {"<cem>"}


async def test_a_fact_of_two_people_when_one_is_hidden_and_the_other_purged(
    expunge: Expunge, clock: ManualClock
) -> None:
    """Law 6: no record of this kind is served without a source, and it goes for good at the latest with the last."""
    await expunge.put([episode("<a>", ANN), episode("<b>", BOB), fact("<f>", DORA, sources=["<a>", "<b>"])])
    await hide(expunge, ANN)
    purged = await expunge.erase(BOB, purge=True)
    assert purged.status == "completed"
    after = await dump(expunge)
    assert "<f>" not in ids(after) - marked(after)
    clock.advance(WINDOW_S)
    assert [answer.status for answer in await due(expunge)] == ["completed"]
    assert ids(await dump(expunge)) == set()


async def test_the_bytes_of_what_was_hidden_twice_are_gone(settings: Settings) -> None:
    """Law 14: hidden, restored and hidden again, the words are in no byte after the last window."""
    clock = ManualClock()
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put(people())
        for _ in range(3):
            answer = await hide(expunge, ANN)
            await expunge.restore(answer.request_id)
            clock.advance(DAY_S)
        answer = await hide(expunge, ANN)
        hidden = seqs(await dump(expunge))
        assert hidden["<ann-e>"] > hidden["<bob-e>"]
        clock.advance(WINDOW_S)
        ended = await due(expunge)
        assert [one.status for one in ended] == ["completed"] * 4
        assert [sum(one.removed.values()) > 0 for one in ended] == [False, False, False, True]
        assert holding(settings, [ANN, "<ann-e>", "<ann-sum>"]) == {}
        assert any(b"<bob-e>" in data for data in bytes_of(settings).values())
        assert await count(expunge, "SELECT count(*) FROM fences WHERE lowered_seq IS NULL") == 0
