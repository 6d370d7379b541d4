"""Clocks: zones of machines, hours that come twice, and expiry that only a sweep would see."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.errors import InputError, NotRestorable
from expunge.model.instant import ManualClock
from tests.agents.kit import DAY_S, MICROSECOND
from tests.field.kit import QUESTION, answerer, as_user, rows
from tests.subject.kit import exported
from tests.support import dump, episode, ids

ZONES = ("UTC", "Asia/Shanghai", "America/Los_Angeles", "Europe/Berlin", "Pacific/Kiritimati")


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The zone of the machine."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "cutoff", ["2026-03-29T01:30:00+00:00", "2026-10-25T00:30:00+00:00", "2026-06-01T00:00:00+00:00"]
)
async def test_the_zone_of_the_machine_moves_no_cutoff(zone: str, cutoff: str) -> None:
    """Law 13: a local now beside a time in UTC moves what is old by the offset (69), or by an hour in spring (71)."""
    at = datetime.fromisoformat(cutoff)
    offsets = {"-8h": timedelta(hours=-8), "-1h": timedelta(hours=-1), "-1us": timedelta(microseconds=-1)}
    offsets |= {"at": timedelta(0), "+1h": timedelta(hours=1), "+8h": timedelta(hours=8)}
    said: tuple[str | datetime, ...] = (
        cutoff,
        at.astimezone(timezone(timedelta(hours=8))).isoformat(),
        at.astimezone(timezone(timedelta(hours=-7))),
        at.astimezone(),
    )
    for before in said:
        async with Expunge(settings=Settings(db=":memory:"), clock=ManualClock("2026-12-01T00:00:00Z")) as expunge:
            await expunge.put([episode(name, "ann", created_at=(at + by).isoformat()) for name, by in offsets.items()])
            answer = await expunge.erase("ann", purge=True, before=before)
            assert (answer.status, answer.removed["episodes"]) == ("completed", 3), zone
            assert ids(await dump(expunge)) == {"at", "+1h", "+8h"}
            with pytest.raises(InputError):
                await expunge.erase("ann", purge=True, before=at.replace(tzinfo=None))
            assert (await expunge.erase("ann", purge=True, before=before)).found is False


@pytest.mark.parametrize("start", ["2026-03-20T12:00:00Z", "2026-10-20T12:00:00Z"])
async def test_a_window_over_a_change_of_the_clocks_is_as_long_as_any(zone: str, start: str) -> None:
    """Law 13: days that are counted on a local clock are an hour longer or shorter twice a year (71)."""
    clock = ManualClock(start)
    async with Expunge(settings=Settings(db=":memory:"), clock=clock) as expunge, as_user(expunge) as ann:
        await ann.memory.set("k", "words", ttl_seconds=14 * DAY_S)
        await expunge.put([episode("e", "bob"), episode("c", "cat")])
        hidden = await expunge.erase("bob", purge=False)
        gone = await expunge.erase("cat", purge=False)
        clock.advance(14 * DAY_S - MICROSECOND)
        assert (await ann.memory.get("k")).found, zone
        await expunge.restore(hidden.request_id)
        clock.advance(MICROSECOND)
        assert not (await ann.memory.get("k")).found
        with pytest.raises(NotRestorable):
            await expunge.restore(gone.request_id)


async def test_what_has_expired_is_served_by_no_read_before_any_sweep(expunge: Expunge, clock: ManualClock) -> None:
    """Law 13: expired rows are served until a sweep has come (77). An export holds them: they are still kept."""
    word = "kanarienvogel"
    async with as_user(expunge) as ann:
        made = await ann.memory.set("expired", f"{word} expired", ttl_seconds=10)
        await ann.memory.set("stays", f"{word} stays")
        await ann.memory.ask(QUESTION + " " + word, answerer, ttl_seconds=10)
        given: list[str] = []

        async def reader(sources: Any) -> list[Any]:
            given.extend(source.text for source in sources)
            return []

        await ann.memory.consolidate(reader, sources=[made.memory_id])
        await ann.drain()
        assert given == [f"{word} expired"]
        clock.advance(10)
        await ann.memory.consolidate(reader, sources=[made.memory_id])
        await ann.drain()
        assert given == [f"{word} expired"]
        assert not (await ann.memory.get("expired")).found
        assert not (await ann.memory.delete("expired")).found
        assert (await ann.memory.touch("expired", ttl_seconds=99)).missing == ["expired"]
        for query, alpha in ((word, 1.0), (f"{word} expired", 0.0), ("", 0.5)):
            found = [hit.text for hit in await ann.memory.search(query, alpha=alpha)]
            assert found == [f"{word} stays"], (query, alpha)
        asked = await ann.memory.ask(QUESTION + " " + word, answerer)
        assert (asked.cached, asked.text) == (False, f"{word} stays")
        data, manifest = await exported(expunge, "ann", org="acme")
        assert (f"{word} expired".encode() in data, manifest["complete"]) == (True, True)
        assert await ann.memory.forget(user_id="ann") > 0
        assert await rows(expunge, "SELECT (SELECT count(*) FROM memories), (SELECT count(*) FROM answers)") == [(0, 0)]
