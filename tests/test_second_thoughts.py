"""What an erasure does when something else happens between its steps: clocks, other erasures, late bodies, restores."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from expunge import Expunge, Settings
from expunge.authority.port import Statement
from expunge.erasure import Saga, open_erasure, purge_due
from expunge.erasure.opening import take_due
from expunge.erasure.order import Order
from expunge.erasure.planning import plan_to_hide
from expunge.erasure.request import find_request
from expunge.errors import DiskFull, ErasureInterrupted, InputError, InvalidScope
from expunge.memory.attachments import _open_below
from expunge.model.instant import ManualClock
from expunge.model.scope import Scope
from expunge.stores import Asked
from expunge.stores.port import Filing
from tests.crash import kit
from tests.eye import changed
from tests.support import audited, dump, episode, fact, files_of, ids, one_of_each

pytestmark = pytest.mark.authorities("sqlite", "postgres")

DAY_S = 86_400
_HOLD = Statement("test.hold", "INSERT INTO holds (org, user_id, placed_at) VALUES ('default', :user, 0)")
_RELEASE = Statement("test.release", "UPDATE holds SET released_at = 1")
_MARKS = Statement("test.marks", "SELECT id FROM marks")


async def hold(expunge: Expunge, user: str) -> None:
    await expunge.system.authority.run(lambda tx: tx.change(_HOLD, user=user))


async def release_holds(expunge: Expunge) -> None:
    await expunge.system.authority.run(lambda tx: tx.change(_RELEASE))


async def marked(expunge: Expunge) -> set[str]:
    return {record_id for (record_id,) in await expunge.system.authority.read(lambda tx: tx.rows(_MARKS))}


async def test_a_clock_that_jumped_ends_no_restore_window_by_itself(settings: Settings, clock: ManualClock) -> None:
    """Law 13: an opening with a clock of the year 2099 removes nothing; somebody has to ask for it."""
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put([episode("a", "ann"), episode("b", "bob")])
        hidden = await expunge.erase("ann", purge=False)
    async with Expunge(settings=settings, clock=ManualClock("2099-01-01T00:00:00Z")) as expunge:
        assert (expunge.ended, ids(await dump(expunge))) == ([], {"a", "b"})
        report = await expunge.call("system.doctor")
        assert [item.next for item in report.findings if hidden.request_id in item.name] == ["expunge resume --due"]
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert (await expunge.restore(hidden.request_id)).reversals_count == 1
        assert (await expunge.profile("ann")).found


async def test_what_is_due_is_purged_when_somebody_asks_whatever_the_clock_says(
    expunge: Expunge, clock: ManualClock
) -> None:
    """Law 13: the question is asked once; an answer is an answer."""
    await expunge.put([episode("a", "ann"), episode("b", "bob")])
    await expunge.erase("ann", purge=False)
    clock.advance(400 * DAY_S)
    ended = await purge_due(expunge.system, role="operator")
    assert ([request.status for request in ended], ids(await dump(expunge))) == (["completed"], {"b"})
    assert await purge_due(expunge.system, role="operator") == []


async def test_a_hide_that_stopped_half_way_hides_nothing_that_has_gone(settings: Settings, clock: ManualClock) -> None:
    """Laws 14 and 16: stopped after its marks, overtaken by a purge, resumed: it names nobody and counts nothing."""
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put([*one_of_each("ann-secret", "a-secret"), episode("b", "bob")])
        scope = Scope.of_users("default", ["ann-secret"])
        opened = await open_erasure(expunge.system, Order(scope, "user_id", purge=False), actor="t", role="operator")
        saga = Saga(expunge.system, opened, role="operator")
        await saga._commit(partial(plan_to_hide, system=expunge.system))
        assert (await expunge.erase("ann-secret", purge=True)).status == "completed"
        answer = await expunge.resume(opened.id)
        assert (answer.status, sum(answer.hidden.values()), answer.residue_count) == ("completed", 0, 0)
        assert await marked(expunge) == set()
        assert ids(await dump(expunge)) == {"b"}
        await expunge.system.authority.reclaim()
        folder = Path(settings.db).parent
        assert not [name for name, data in files_of(folder).items() if b"ann-secret" in data or b"a-secret" in data]


@pytest.mark.parametrize("stops", ["run", "count"])
async def test_a_small_hide_that_cannot_be_ended_says_so_and_is_resumed(
    settings: Settings, clock: ManualClock, stops: str
) -> None:
    """Law 16: the disk is full when it is to be counted, or signed for: what is hidden stays so, and a resume ends it."""
    full: list[tuple[str, int]] = []

    async def gate(what: str, number: int) -> None:
        if full and what == stops and number > full[0][1]:
            raise DiskFull("the disk is full")

    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put([episode("a", "ann"), episode("b", "bob")])
    watched = await kit.watched(settings, gate=gate)
    async with Expunge(settings=settings, clock=clock, authority=watched) as expunge:
        full.append((stops, watched.begun(stops) + (stops == "run")))  # the commit that opens and hides has room
        with pytest.raises(ErasureInterrupted) as fault:
            await expunge.erase("ann", purge=False)
        full.clear()
        (listed,) = (await expunge.call("erasure.list")).erasures
        assert (listed.status, f"expunge resume {listed.request_id}" in str(fault.value)) == ("in_progress", True)
        assert await marked(expunge) == {"a"}
        answer = await expunge.resume(listed.request_id)
        assert (answer.status, answer.hidden["episodes"], answer.residue_count) == ("completed", 1, 0)
        assert (await expunge.restore(listed.request_id)).reversals_count == 1


async def test_a_resume_does_not_take_what_has_a_served_source_again(expunge: Expunge) -> None:
    """Law 6: marked because its last source was hidden by another; that one was restored before this one went on."""
    await expunge.put(
        [episode("a", "ann"), episode("b", "bob"), fact("f", "cleo", sources=["a", "b"]), episode("h", "ann")]
    )
    hides = await expunge.erase("bob", purge=False)
    held = Statement(
        "test.hold", "INSERT INTO holds (org, user_id, session_id, placed_at) VALUES ('default', 'ann', 's', 0)"
    )
    await expunge.put([episode("kept", "ann", session_id="s")])
    await expunge.system.authority.run(lambda tx: tx.change(held))
    async with Expunge(settings=expunge.settings.model_copy(update={"batch_rows": 1}), clock=ManualClock()) as other:
        failed = await other.erase("ann", purge=False)
        assert (failed.status, "f" in await marked(other)) == ("failed", True)
        await expunge.restore(hides.request_id)
        await release_holds(other)
        done = await other.resume(failed.request_id)
    assert done.status == "completed"
    served = {name for rows in (await dump(expunge)).values() for name, row in rows.items() if row[0] == 0}
    assert {"f", "b"} <= served
    assert not {"a", "h", "kept"} & served


async def test_an_abandoned_erasure_that_marks_something_is_not_forgotten(
    settings: Settings, clock: ManualClock
) -> None:
    """Laws 11 and 16: after 90 days it is still listed, and the doctor names it."""
    settings = changed(settings, max_attempts=2)
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put([episode("a", "ann"), episode("b", "bob")])
        hidden = await expunge.erase("ann", "bob", purge=False)
        await expunge.erase("bob", purge=True)
        await hold(expunge, "ann")
    clock.advance(15 * DAY_S)
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert [answer.status for answer in expunge.ended] == ["failed"]
        clock.advance(90 * DAY_S)
        await purge_due(expunge.system, role="operator")
        listed = (await expunge.call("erasure.list")).erasures
        assert [(item.request_id, item.status) for item in listed] == [(hidden.request_id, "abandoned")]
        assert [item for item in (await expunge.call("system.doctor")).findings if hidden.request_id in item.name]
        await release_holds(expunge)
        assert (await expunge.erase("ann", purge=True)).status == "completed"
        assert (ids(await dump(expunge)), await marked(expunge)) == (set(), set())


async def test_a_purge_that_was_due_and_died_is_taken_up_again(settings: Settings, clock: ManualClock) -> None:
    """Law 16: its runner was killed after it had begun; the next opening after ten minutes goes on with it."""
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put([episode("a", "ann"), episode("b", "bob")])
        hidden = await expunge.erase("ann", purge=False)
        clock.advance(14 * DAY_S)
        found = await expunge.system.authority.read(
            lambda tx: find_request(tx, "default", hidden.request_id, clock.now())
        )
        await take_due(expunge.system, found, role="operator")
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert expunge.ended == []  # its runner may be alive
    clock.advance(601)
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert [answer.status for answer in expunge.ended] == ["completed"]
        assert ids(await dump(expunge)) == {"b"}


async def test_a_body_that_came_too_late_goes_by_a_resume(expunge: Expunge, tmp_path: Path) -> None:
    """Law 4: a loader that began before stores its bytes after the erasure, and is killed before its row."""
    await expunge.put([episode("a", "ann"), episode("b", "bob")])
    before = (await expunge.as_of()).get("default", 0)
    answer = await expunge.erase("ann", purge=True)
    store, keys = expunge.system.bodies["attachments"], expunge.system.keys
    assert store is not None

    async def body():
        yield b"late words"

    parts = {user: tuple(keys.current.pseudonym("default", part, value) for part, value in (
        ("namespace", "-"), ("agent", "-"), ("user_id", user), ("session_id", "-"))) for user in ("ann", "bob")}  # fmt: skip
    late = await store.put(Filing("default", parts["ann"], 0, before), body())
    kept = await store.put(Filing("default", parts["bob"], 0, before), body())
    assert (await expunge.call("erasure.census", request_id=answer.request_id)).residue_count == 1
    assert (await expunge.resume(answer.request_id)).receipt == answer.receipt
    rows = await audited(expunge, request_id=answer.request_id)
    assert [row["outcome"] for row in rows] == ["intent", "completed", "swept"]
    assert await store.present([late, kept]) == {kept}
    assert (await expunge.call("erasure.census", request_id=answer.request_id)).residue_count == 0
    whole = Asked("default", ({},), None, None, 1 << 62)
    assert [found.ref for found in await store.find("attachments", whole)] == [kept]


def test_no_link_is_followed_when_a_file_is_opened(tmp_path: Path) -> None:
    """Bad input: a folder that is exchanged for a link between the check and the opening leads nowhere."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("not yours")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "y").symlink_to(tmp_path / "out" / "a.txt")
    for parts in (("x", "a.txt"), ("y",)):
        with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
            _open_below(tmp_path / "in", parts)


async def test_what_a_caller_means_is_not_guessed(expunge: Expunge) -> None:
    """Bad input: a text where a list is meant, a word that is none, a system that is not open; nothing is done."""
    await expunge.put([episode("a", "ann", namespace="ab"), episode("b", "bob", namespace="a")])
    with pytest.raises(InvalidScope, match="namespaces is one text"):
        await expunge.preview(namespaces="ab")
    with pytest.raises(InvalidScope, match="namespace says nothing"):
        await expunge.preview("ann", namespace="ab")
    with pytest.raises(InputError, match="records is one text"):
        await expunge.put("{}")
    with pytest.raises(InputError, match="not open"):
        await Expunge(settings=expunge.settings).profile("ann")
    with pytest.raises(InputError, match="as_of"):
        await expunge.put([episode("c", "ann")], as_of="x")  # type: ignore[arg-type]
    assert ids(await dump(expunge)) == {"a", "b"}


async def test_a_subject_of_whom_nothing_is_found_is_told(expunge: Expunge) -> None:
    """Law 16: two are asked for and one of them is mistyped: preview and answer say so."""
    await expunge.put([episode("a", "ann"), episode("b", "bob")])
    shown = await expunge.preview("ann", "bbo")
    assert (shown.subjects, shown.subjects_found) == (2, 1)
    answer = await expunge.erase("ann", "bbo", purge=True)
    assert (answer.subjects, answer.subjects_found, len(answer.receipts)) == (2, 1, 2)
    assert ids(await dump(expunge)) == {"b"}


async def test_lines_of_text_are_lines(expunge: Expunge) -> None:
    """Deliver: records as JSON objects, or as lines, of text or of bytes."""
    line = '{"collection": "episodes", "id": "%s", "user_id": "ann"}'
    answer = await expunge.put([line % "a", (line % "b").encode(), ""])
    assert answer.loaded == 2
    assert ids(await dump(expunge)) == {"a", "b"}
