"""Second thoughts: what is hidden, how it comes back, and what its window ends with (laws 4 to 7, 10, 14, 16)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.authority.port import Statement
from expunge.datamap import RECORDS
from expunge.erasure import open_erasure
from expunge.errors import (
    ErasedSince,
    ErasureInProgress,
    HiddenByErasure,
    InputError,
    NotRestorable,
    UnknownRequest,
)
from expunge.memory.statements import stored_columns
from expunge.model.instant import ManualClock
from expunge.operations.erasure import Answer
from expunge.proof import verify
from tests.crash.kit import everything
from tests.eye import changed, holding
from tests.support import audited, block, dump, episode, event, fact, ids, memory, one_of_each, purge_order, session

pytestmark = pytest.mark.authorities("sqlite", "postgres", every=3)

DAY_S = 86_400
WINDOW_S = 14 * DAY_S
ANN, BOB, CEM, DORA = (f"user<{number:05}>" for number in range(1, 5))
NOTES, OTHER = "notes<00001>", "notes<00002>"
NOTHING = dict.fromkeys((*(kind.name for kind in RECORDS), "lineage"), 0)
Dump = dict[str, dict[str, tuple[Any, ...]]]

WORLD = [
    *one_of_each(ANN, "<ann>"),
    *one_of_each(BOB, "<bob>"),
    memory("<both>", "both", sources=["<ann>-e", "<bob>-e"]),
    memory("<deep>", "deep", DORA, sources=["<both>"]),
    fact("<shared>", BOB, sources=["<ann>-e", "<bob>-e"]),
    fact("<lost>", BOB, sources=["<ann>-e"]),
    memory("<of-lost>", "of lost", sources=["<lost>"]),
    memory("<w1>", "weather", DORA),
    memory("<w2>", "weather", DORA, sources=["<ann>-e"]),
    memory("<m2>", "likes", ANN),
]
"""Two people, what was made of their words, alone and together, and what goes on without them."""
IN_SCOPE = {f"<ann>-{letter}" for letter in "semfb"} | {"<m2>"}
WITH_IT = {"<ann>-v", "<ann>-sum", "<ann>-sum2", "<both>", "<deep>", "<lost>", "<of-lost>", "<w2>"}


async def hide(expunge: Expunge, *users: str, **scope: Any) -> Answer:
    answer = await expunge.erase(*users, purge=False, **scope)
    assert (answer.status, answer.purge, answer.residue_count) == ("completed", False, 0)
    return answer


def marked(dumped: Dump) -> set[str]:
    """The ids of what is kept and not served."""
    return {key for name, rows in dumped.items() if name != "lineage" for key, row in rows.items() if row[0]}


def seqs(dumped: Dump) -> dict[str, int]:
    """When each record was written, by the org's counter."""
    at = {kind.name: 1 + stored_columns(kind).index("seq") for kind in RECORDS}
    return {key: row[at[name]] for name, rows in dumped.items() if name in at for key, row in rows.items()}


def but_seq(dumped: Dump, changed: set[str]) -> Dump:
    """A dump without the counter of some records."""
    at = {kind.name: 1 + stored_columns(kind).index("seq") for kind in RECORDS}
    return {
        name: {
            key: (*row[: at[name]], *row[at[name] + 1 :]) if name in at and key in changed else row
            for key, row in rows.items()
        }
        for name, rows in dumped.items()
    }


async def count(expunge: Expunge, text: str, **values: Any) -> Any:
    """The one number that a statement answers."""
    rows = await expunge.system.authority.read(lambda tx: tx.rows(Statement("test.count", text), **values))
    return rows[0][0]


async def checked(expunge: Expunge, request_id: str) -> dict[str, str]:
    """The newest receipts of a request pass against the ledger; what the first says of each thing."""
    bodies = (await expunge.call("erasure.receipts", request_id=request_id)).receipts
    book = "\n".join((await expunge.call("ledger.export")).lines).encode() + b"\n"
    keys = {key.id: key.private.public_key() for key in expunge.system.keys.signing_keys}
    found = [verify(body.encode(), keys, book) for body in bodies]
    assert all(check.passed for checks in found for check in checks), found
    return {check.name: check.detail for check in found[0]}


# --- hiding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_rows", [1, 3, 1000])
async def test_what_is_hidden_is_kept_and_not_served(settings: Settings, batch_rows: int) -> None:
    """Laws 6, 7 and 10: rows and edges stay as they were but for the mark, others stay served; counts and effects."""
    async with Expunge(settings=changed(settings, batch_rows=batch_rows)) as expunge:
        await expunge.put(WORLD)
        before = await dump(expunge)
        answer = await hide(expunge, ANN)
        after = await dump(expunge)
        assert marked(after) == IN_SCOPE | WITH_IT
        assert after["lineage"] == before["lineage"]
        for name, rows in after.items():
            for key, row in rows.items():
                assert row == ((1, *before[name][key][1:]) if key in IN_SCOPE | WITH_IT else before[name][key])
        assert answer.hidden == NOTHING | {
            "sessions": 1, "episodes": 1, "events": 1, "memories": 8, "facts": 2, "blocks": 1,
        }  # fmt: skip
        assert answer.removed == NOTHING
        assert answer.effects == {"derived": len(WITH_IT), "detached": 1, "revived": 1, "rebuilt": 0}
        assert (answer.found, answer.reversals_count) == (True, 0)
        assert not (await expunge.profile(ANN)).found
        assert sum((await expunge.profile(ANN)).counts.values()) == 0
        assert (await expunge.profile(BOB)).counts["facts"] == 2
        assert (await expunge.profile(BOB)).made_from == {"memories": 1, "facts": 2}


async def test_what_is_derived_from_others_and_hidden_is_in_no_profile(expunge: Expunge) -> None:
    """Law 1: a record that is hidden does not count among what was made of somebody's either."""
    await expunge.put([episode("e", ANN), fact("f", BOB, sources=["e"])])
    assert (await expunge.profile(ANN)).made_from == {"facts": 1}
    hidden = await hide(expunge, BOB)
    assert (await expunge.profile(ANN)).made_from == {}
    await expunge.restore(hidden.request_id)
    assert (await expunge.profile(ANN)).made_from == {"facts": 1}


async def test_nothing_is_written_from_or_over_what_is_hidden(expunge: Expunge) -> None:
    """Law 5: what would rest on a hidden record, or take its id, is refused with HIDDEN and nothing is written."""
    await expunge.put(WORLD)
    await hide(expunge, ANN)
    before = await everything(expunge)
    for record in (
        memory("new", "k", sources=["<ann>-e"]),
        memory("new", "k", DORA, sources=["<both>"]),
        fact("new", BOB, sources=["<bob>-e", "<ann>-e"]),
        event("new", "<ann>-e", BOB),
        episode("<ann>-e", ANN, session_id="<ann>-s"),
        memory("<both>", "both", sources=["<ann>-e", "<bob>-e"]),
        memory("<both>", "both", value="made anew"),
    ):
        for skip_bad in (False, True):
            with pytest.raises(HiddenByErasure) as refused:
                await expunge.put([episode("beside", BOB), record], skip_bad=skip_bad)
            assert (refused.value.code, refused.value.exit_code) == ("HIDDEN", 3)
    assert await everything(expunge) == before
    await expunge.put([episode("back", ANN), memory("m3", "likes", ANN), memory("w3", "weather", DORA)])
    profile = await expunge.profile(ANN)
    assert (profile.counts["episodes"], profile.counts["memories"]) == (1, 1)


async def test_a_receipt_says_hidden_and_not_gone(expunge: Expunge, clock: ManualClock) -> None:
    """Law 16: purge false, until when, what is hidden and that nothing of it is served; and it can be verified."""
    await expunge.put(WORLD)
    clock.advance(5)
    answer = await hide(expunge, ANN, BOB, requester="desk")
    assert (answer.restore_until, answer.requester) == ("2026-01-15T00:00:05Z", "desk")
    said = await checked(expunge, answer.request_id)
    assert said["bytes"].startswith("HIDDEN, NOT GONE")
    assert "2026-01-15T00:00:05Z" in said["bytes"]
    assert "are hidden, 0 are served" in said["census"]
    assert "chain of 2 receipts" in said["ledger"]
    for receipt in answer.receipts:
        assert (receipt["purge"], receipt["restore_until"]) == (False, answer.restore_until)
        assert (receipt["removed"], receipt["reversals"]) == (NOTHING, 0)
        assert set(receipt["census"].values()) == {0}
    for name, number in answer.hidden.items():
        assert sum(receipt["hidden"][name] for receipt in answer.receipts) == number
    counted = await expunge.call("erasure.census", request_id=answer.request_id)
    assert counted.residue_count == 0
    status = await expunge.call("erasure.status", request_id=answer.request_id)
    assert status == answer


async def test_an_unknown_subject_is_nothing_hidden(expunge: Expunge) -> None:
    """Law 16: nothing found, nothing hidden; still a receipt, and nothing comes back."""
    await expunge.put(one_of_each(BOB, "<bob>"))
    answer = await hide(expunge, ANN)
    assert (answer.found, answer.hidden, len(answer.receipts)) == (False, NOTHING, 1)
    restored = await expunge.restore(answer.request_id)
    assert (restored.restored, restored.reversals_count, restored.still_hidden) == ({}, 0, 0)


# --- restoring -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_rows", [1, 4, 1000])
async def test_all_that_was_hidden_comes_back_as_it_was(settings: Settings, batch_rows: int) -> None:
    """Laws 4 and 10: every row and edge is as before, but written as of now; what was in scope is a reversal."""
    async with Expunge(settings=changed(settings, batch_rows=batch_rows)) as expunge:
        await expunge.put(WORLD)
        before, as_of = await dump(expunge), await expunge.as_of()
        answer = await hide(expunge, ANN)
        restored = await expunge.restore(answer.request_id)
        after = await dump(expunge)
        back = IN_SCOPE | WITH_IT
        assert but_seq(after, back) == but_seq(before, back)
        now = (await expunge.as_of())["default"]
        assert {seqs(after)[key] for key in back} == {now}
        assert now > as_of.get("default", 0)
        assert sum(restored.restored.values()) == len(back)
        assert restored.restored == {name: number for name, number in answer.hidden.items() if number}
        assert (restored.reversals_count, restored.still_hidden) == (len(IN_SCOPE), 0)
        status = await expunge.call("erasure.status", request_id=answer.request_id)
        assert (status.status, status.reversals_count, status.hidden) == ("completed", len(IN_SCOPE), NOTHING)
        assert sum((await expunge.profile(ANN)).counts.values()) == len(IN_SCOPE)
        with pytest.raises(ErasedSince):  # whoever read before may hold words that were hidden since
            await expunge.put([memory("stale", "k", sources=["<ann>-e"])], as_of=as_of)
        await expunge.put([memory("fresh", "k", sources=["<ann>-e"])])
        assert await count(expunge, "SELECT count(*) FROM marks") == 0


@pytest.mark.parametrize(
    ("key", "direct", "derived"),
    [
        # An event goes with its episode and comes back with it; what was made of it by `retire` and by `detach`, too.
        ("<ann>-e", {"<ann>-e"}, WITH_IT),
        ("<ann>-s", {"<ann>-s"}, set()),
        ("<ann>-b", {"<ann>-b"}, set()),
        ("persona", {"<ann>-b"}, set()),
        ("likes", {"<ann>-m", "<m2>"}, set()),
        ("<m2>", {"<m2>"}, set()),
    ],
)
async def test_a_key_brings_back_what_it_names_and_what_was_made_of_it(
    expunge: Expunge, key: str, direct: set[str], derived: set[str]
) -> None:
    """Law 6: an id, a memory's key or a block's name; what rests on hidden records no more comes back with it."""
    await expunge.put(WORLD)
    before = await dump(expunge)
    answer = await hide(expunge, ANN)
    restored = await expunge.restore(answer.request_id, key)
    after, back = await dump(expunge), direct | derived
    assert marked(after) == (IN_SCOPE | WITH_IT) - back
    assert but_seq(after, back) == but_seq(
        {name: {k: (1, *row[1:]) if k in marked(after) else row for k, row in rows.items()} for name, rows in before.items()},
        back,
    )  # fmt: skip
    assert sum(restored.restored.values()) == len(back)
    assert (restored.reversals_count, restored.still_hidden) == (len(direct), len(IN_SCOPE | WITH_IT) - len(back))
    again = await expunge.restore(answer.request_id, *(["<ann>-f"] if key == "<ann>-e" else ["<ann>-e"]))
    rest = await expunge.restore(answer.request_id)
    assert rest.still_hidden == 0
    assert restored.reversals_count + again.reversals_count + rest.reversals_count == len(IN_SCOPE)
    assert but_seq(await dump(expunge), IN_SCOPE | WITH_IT) == but_seq(before, IN_SCOPE | WITH_IT)


async def test_several_keys_and_an_id_that_is_a_key_elsewhere(expunge: Expunge) -> None:
    """Law 12: each key brings back all that it names, and only in this erasure and org."""
    records = [memory("likes", "x", ANN), memory("<a>", "likes", ANN), block("<b>", "likes", ANN), episode("<c>", ANN)]
    await expunge.put([*records, memory("<o>", "likes", BOB)])
    await expunge.put([memory("<a>", "likes", ANN)], org="elsewhere")
    answer, other = await hide(expunge, ANN), await hide(expunge, BOB)
    away = await hide(expunge, ANN, org="elsewhere")
    restored = await expunge.restore(answer.request_id, "likes", "likes", "<c>")
    assert (restored.restored, restored.reversals_count) == ({"memories": 2, "blocks": 1, "episodes": 1}, 4)
    assert await count(expunge, "SELECT count(*) FROM marks") == 2
    for request_id, org in ((away.request_id, "default"), (other.request_id, "elsewhere")):
        with pytest.raises(UnknownRequest):
            await expunge.restore(request_id, org=org)


async def test_attachments_and_events_come_back_with_their_episode(settings: Settings, tmp_path: Path) -> None:
    """Law 6: what belongs to a record comes back with it, the bytes of attachments as they were."""
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a.txt").write_bytes(b"attached<00001>")
    async with Expunge(settings=settings) as expunge:
        records = [episode("<e>", ANN, attachments=["a.txt"]), event("<v>", "<e>", BOB), episode("<e2>", ANN)]
        await expunge.put(records, attachments_from=tmp_path / "given")
        before = await dump(expunge)
        answer = await hide(expunge, ANN)
        assert answer.hidden == NOTHING | {"episodes": 2, "events": 1, "attachments": 1}
        restored = await expunge.restore(answer.request_id, "<e>")
        assert (restored.restored, restored.reversals_count, restored.still_hidden) == (
            {"episodes": 1, "events": 1, "attachments": 1}, 2, 1,
        )  # fmt: skip
        await expunge.restore(answer.request_id)
        back = ids(before)
        assert but_seq(await dump(expunge), back) == but_seq(before, back)
        assert len([name for name in holding(settings, ["attached<00001>"]) if "objects" in name]) == 1


@pytest.mark.parametrize(
    "keys",
    [
        # Derived and not in scope; in scope and derived all the same; deep; what belongs to a hidden record.
        ["<ann>-sum"], ["<both>"], ["<lost>"], ["<ann>-f"], ["<ann>-sum2"], ["<deep>"], ["<ann>-v"],
        ["<ann>-b", "<of-lost>"], ["<ann>-sum", "<ann>-sum2"],
        # Nothing of that name is hidden.
        ["nothing"], ["<ann>-e", "nothing"], ["<bob>-e"], ["%"], ["weather", "<w1>"],
    ],
)  # fmt: skip
async def test_what_cannot_be_restored_restores_nothing(expunge: Expunge, keys: list[str]) -> None:
    """Law 5: a record does not come back while what it was made from, or belongs to, is hidden; nor do the others."""
    await expunge.put(WORLD)
    answer = await hide(expunge, ANN)
    before = await everything(expunge)
    with pytest.raises(InputError) as refused:
        await expunge.restore(answer.request_id, *keys)
    assert (refused.value.code, refused.value.exit_code) == ("INVALID_INPUT", 2)
    assert await everything(expunge) == before
    restored = await expunge.restore(answer.request_id)
    assert (restored.reversals_count, restored.still_hidden) == (len(IN_SCOPE), 0)


async def test_a_derived_record_comes_back_with_the_last_hidden_source(expunge: Expunge) -> None:
    """Law 6: `retire` returns when no source stays hidden, `detach` with the first."""
    await expunge.put([episode("<a1>", ANN), episode("<a2>", ANN), episode("<b>", BOB)])
    await expunge.put([memory("<sum>", "s", sources=["<a1>", "<a2>", "<b>"]), fact("<f>", sources=["<a1>", "<a2>"])])
    await expunge.put([memory("<of-f>", "f", sources=["<f>"]), memory("<two>", "t", sources=["<sum>", "<f>"])])
    answer = await hide(expunge, ANN)
    assert marked(await dump(expunge)) == {"<a1>", "<a2>", "<sum>", "<f>", "<of-f>", "<two>"}
    first = await expunge.restore(answer.request_id, "<a1>")
    assert first.restored == {"episodes": 1, "facts": 1, "memories": 1}
    assert marked(await dump(expunge)) == {"<a2>", "<sum>", "<two>"}
    for keys in (["<sum>"], ["<two>"]):
        with pytest.raises(InputError):
            await expunge.restore(answer.request_id, *keys)
    second = await expunge.restore(answer.request_id, "<a2>")
    assert (second.restored, second.reversals_count) == ({"episodes": 1, "memories": 2}, 1)
    assert marked(await dump(expunge)) == set()


async def test_a_named_record_comes_back_together_with_what_it_was_made_from(expunge: Expunge) -> None:
    """Law 5: named beside its sources a derived record is no error, and is no reversal unless it is in scope."""
    await expunge.put(WORLD)
    answer = await hide(expunge, ANN)
    restored = await expunge.restore(answer.request_id, "<both>", "<ann>-f", "<ann>-e")
    assert restored.reversals_count == 2
    assert marked(await dump(expunge)) == IN_SCOPE - {"<ann>-e", "<ann>-f"}


async def test_a_fact_in_scope_comes_back_alone_when_a_source_of_it_is_served(expunge: Expunge) -> None:
    """Law 6: `detach` rests on any of its sources; the hidden one stays hidden."""
    await expunge.put([*WORLD, fact("<mixed>", ANN, sources=["<ann>-e", "<bob>-e"])])
    answer = await hide(expunge, ANN)
    restored = await expunge.restore(answer.request_id, "<mixed>")
    assert (restored.restored, restored.reversals_count) == ({"facts": 1}, 1)
    assert marked(await dump(expunge)) == IN_SCOPE | WITH_IT


async def test_a_restore_under_a_fence_is_refused(expunge: Expunge) -> None:
    """Law 4: while another erasure of the scope runs nothing of it is served again, its own or what comes along."""
    await expunge.put([*WORLD, episode("<n>", ANN, namespace=NOTES)])
    answer = await hide(expunge, ANN)
    running = [
        await open_erasure(expunge.system, purge_order(user), actor="t", role="operator") for user in (ANN, DORA)
    ]
    for keys in ([], ["<ann>-b"]):
        with pytest.raises(ErasureInProgress):
            await expunge.restore(answer.request_id, *keys)
    assert (await expunge.resume(running[0].id)).status == "completed"
    assert (await expunge.resume(running[1].id)).status == "completed"
    gone = await expunge.restore(answer.request_id)
    assert (gone.restored, gone.reversals_count, gone.still_hidden) == ({}, 0, 0)


async def test_what_comes_along_is_guarded_too(expunge: Expunge) -> None:
    """Law 4: a record of somebody who is being erased does not come back with the words it was made from."""
    await expunge.put([episode("<e>", ANN), memory("<d>", "k", DORA, sources=["<e>"]), block("<b>", "x", ANN)])
    answer = await hide(expunge, ANN)
    running = await open_erasure(expunge.system, purge_order(DORA), actor="t", role="operator")
    before = await everything(expunge)
    with pytest.raises(ErasureInProgress):
        await expunge.restore(answer.request_id, "<e>")
    assert await everything(expunge) == before
    assert (await expunge.restore(answer.request_id, "x")).restored == {"blocks": 1}
    await expunge.resume(running.id)
    assert (await expunge.restore(answer.request_id, "<e>")).restored == {"episodes": 1}
    assert ids(await dump(expunge)) == {"<e>", "<b>"}


@pytest.mark.parametrize(("late", "allowed"), [(-1, True), (0, False), (1, False)])
async def test_the_window_is_fourteen_days(expunge: Expunge, clock: ManualClock, late: int, allowed: bool) -> None:
    """Bad input: a second before 14 days are over all comes back; at 14 days, and after, nothing does."""
    await expunge.put(WORLD)
    clock.advance(100)
    answer = await hide(expunge, ANN)
    clock.advance(WINDOW_S + late)
    if allowed:
        assert (await expunge.restore(answer.request_id)).reversals_count == len(IN_SCOPE)
        return
    before = await everything(expunge)
    for keys in ([], ["<ann>-e"], ["nothing"]):
        with pytest.raises(NotRestorable) as refused:
            await expunge.restore(answer.request_id, *keys)
        assert (refused.value.code, refused.value.exit_code) == ("NOT_RESTORABLE", 3)
    assert await everything(expunge) == before


async def test_only_what_hides_can_be_restored_from(expunge: Expunge, clock: ManualClock) -> None:
    """Law 16: a purge, an erasure that runs or failed, and one whose window has ended are all NOT_RESTORABLE."""
    await expunge.put([*WORLD, episode("<c>", CEM)])
    purged = await expunge.erase(CEM, purge=True)
    running = await open_erasure(expunge.system, purge_order(DORA), actor="t", role="operator")
    hidden = await hide(expunge, ANN)
    clock.advance(WINDOW_S)
    assert len((await expunge.call("erasure.resume_due")).erasures) == 1
    before = await everything(expunge)
    for request_id in (purged.request_id, running.id, hidden.request_id):
        with pytest.raises(NotRestorable):
            await expunge.restore(request_id)
    with pytest.raises(UnknownRequest):
        await expunge.restore("er-nobody")
    assert await everything(expunge) == before


async def test_a_second_restore_finds_nothing_to_do(expunge: Expunge) -> None:
    """Law 16: no key, and nothing comes back twice or counts twice; a key that hides nothing any more is an error."""
    await expunge.put(WORLD)
    answer = await hide(expunge, ANN)
    await expunge.restore(answer.request_id)
    before = await dump(expunge)
    again = await expunge.restore(answer.request_id)
    assert (again.restored, again.reversals_count, again.still_hidden) == ({}, 0, 0)
    assert await dump(expunge) == before
    with pytest.raises(InputError):
        await expunge.restore(answer.request_id, "<ann>-e")
    status = await expunge.call("erasure.status", request_id=answer.request_id)
    assert (status.reversals_count, status.hidden) == (len(IN_SCOPE), NOTHING)


async def test_the_audit_says_who_restored_what(expunge: Expunge) -> None:
    """Law 14: an entry of each restore, with counts and pseudonyms and no clear id; none of a refused one."""
    await expunge.put(WORLD)
    answer = await hide(expunge, ANN)
    await expunge.restore(answer.request_id, "likes")
    with pytest.raises(InputError):
        await expunge.restore(answer.request_id, "nothing")
    await expunge.restore(answer.request_id)

    rows = await audited(expunge, operation="erasure.restore")
    actor = expunge.system.keys.current.pseudonym("default", "actor", "operator")
    assert [(row["actor"], row["outcome"], row["request_id"]) for row in rows] == [
        (actor, "done", answer.request_id)
    ] * 2
    assert [row["detail"] for row in rows] == [
        {"restored": {"memories": 2}, "reversals": 2},
        {"restored": {"sessions": 1, "episodes": 1, "events": 1, "memories": 6, "facts": 2, "blocks": 1}, "reversals": 4},
    ]  # fmt: skip
    assert rows[0]["subjects"] == [answer.receipts[0]["scope"]["pseudonyms"]]
    assert ANN not in str(rows)


async def test_a_restored_version_is_current_again(expunge: Expunge) -> None:
    """Law 10: a version that superseded another does so again, and a newer one stays current."""
    await expunge.put([episode("<e>", ANN), memory("<v1>", "plan"), memory("<v2>", "plan", sources=["<e>"])])
    before = await dump(expunge)
    answer = await hide(expunge, ANN)
    assert answer.effects["revived"] == 1
    await expunge.put([memory("<v3>", "plan")])
    await expunge.restore(answer.request_id)
    after = await dump(expunge)
    version = 1 + stored_columns(next(kind for kind in RECORDS if kind.name == "memories")).index("version")
    assert {key: row[version] for key, row in after["memories"].items()} == {"<v1>": 1, "<v2>": 2, "<v3>": 3}
    del after["memories"]["<v3>"]
    assert but_seq(after, ids(before)) == but_seq(before, ids(before))


async def test_what_came_back_is_erased_like_anything_else(expunge: Expunge) -> None:
    """Laws 4 and 7: a restored record is as new: a later purge takes it, and a later hide hides it again."""
    await expunge.put(WORLD)
    first = await hide(expunge, ANN)
    await expunge.restore(first.request_id)
    second = await hide(expunge, ANN)
    assert second.hidden == first.hidden
    await expunge.restore(second.request_id, "<ann>-e")
    purged = await expunge.erase(ANN, purge=True)
    assert sum(purged.removed.values()) > 0
    assert ids(await dump(expunge)) == ids_of(WORLD) - IN_SCOPE - WITH_IT


def ids_of(records: list[dict[str, Any]]) -> set[str]:
    return {record["id"] for record in records}


async def test_restored_under_a_date_and_a_session(expunge: Expunge) -> None:
    """Law 1: what a session or a date selected comes back; what had outlived it was never away."""
    old, new = "2025-01-01T00:00:00Z", "2025-12-01T00:00:00Z"
    await expunge.put(
        [
            session("<s>", ANN), episode("<e>", ANN, session_id="<s>", created_at=old), episode("<n>", ANN, created_at=new),
            fact("<stays>", ANN, session_id="<s>"), fact("<goes>", ANN, session_id="<s>", sources=["<e>"]),
            block("<b>", "x", ANN, session_id="<s>"),
        ]
    )  # fmt: skip
    before = await dump(expunge)
    by_session = await hide(expunge, session_id="<s>")
    assert marked(await dump(expunge)) == {"<s>", "<e>", "<goes>"}
    restored = await expunge.restore(by_session.request_id)
    assert (restored.reversals_count, restored.still_hidden) == (2, 0)
    by_date = await hide(expunge, ANN, before="2025-06-01T00:00:00Z")
    assert marked(await dump(expunge)) == {"<e>", "<goes>"}
    assert (await expunge.restore(by_date.request_id)).reversals_count == 1
    assert but_seq(await dump(expunge), ids(before)) == but_seq(before, ids(before))
