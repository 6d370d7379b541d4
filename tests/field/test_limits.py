"""Limits: what is cut at a page or a number of parameters, what a size makes slow, and settings that mean nothing."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.errors import InputError, SettingsError
from expunge.model.instant import ManualClock
from tests.field.kit import as_user, rows
from tests.support import dump, episode, fact, ids, memory

MANY = 33_000
"""More than SQLite takes parameters (32,766)."""


@pytest.mark.parametrize("number", [10, 11, 99, 100, 101, 250, 999, 1000, 1001])
@pytest.mark.parametrize("batch_rows", [100, 20_000])
async def test_no_page_ends_an_erasure_early(number: int, batch_rows: int) -> None:
    """Law 11: a helper lists 10 or 100 and the delete removes those (1, 41, 51, 103); all of it goes, by any batch."""
    async with Expunge(settings=Settings(db=":memory:", embedder="none", batch_rows=batch_rows)) as expunge:
        await expunge.put([memory(f"m{n}", f"k{n}", "ann") for n in range(number)] + [memory("bobs", "k", "bob")])
        hidden = await expunge.erase("ann", purge=False)
        assert hidden.hidden["memories"] == number
        assert (await expunge.erase("ann", purge=True)).removed["memories"] == number
        assert ids(await dump(expunge)) == {"bobs"}


async def test_what_was_made_from_very_many_records_is_looked_at_once() -> None:
    """Laws 6, 11: bound parameters end at 32,766 (43), and 33,000 sources looked at for each of them never end.

    A fact of all that somebody ever said, a summary of it, and one of two people: hidden, restored by name, and purged,
    each in seconds; this test would take hours if the work grew with the square.
    """
    async with Expunge(settings=Settings(db=":memory:", embedder="none")) as expunge:
        said = [f"e{n}" for n in range(MANY)]
        await expunge.put(
            [
                *(episode(name, "ann") for name in said),
                episode("bobs", "bob"),
                fact("hers", sources=said),
                memory("summary", "s", sources=said),
                fact("both", sources=[*said[:9], "bobs"]),
            ]
        )
        expected = {"episodes": MANY, "facts": 1, "memories": 1}
        hidden = await expunge.erase("ann", purge=False)
        assert {name: n for name, n in hidden.hidden.items() if n} == expected
        back = await expunge.restore(hidden.request_id, *said)
        assert (back.restored, back.reversals_count, back.still_hidden) == (expected, MANY, 0)
        gone = await expunge.erase("ann", purge=True)
        assert (gone.status, gone.effects["derived"], gone.effects["detached"]) == ("completed", 2, 1)
        assert {name: n for name, n in gone.removed.items() if n and name != "lineage"} == expected
        left = await dump(expunge)
        assert (ids(left), set(left["lineage"])) == ({"bobs", "both"}, {"both<bobs"})


async def test_very_many_keys_are_restored_in_one_pass(in_memory: Expunge) -> None:
    """Law 11: what is named by many keys is looked for once, and each key that names nothing is told (43)."""
    keys = [f"k{n}" for n in range(5_000)]
    await in_memory.put([memory(f"m{n}", key, "ann") for n, key in enumerate(keys)])
    hidden = await in_memory.erase("ann", purge=False)
    with pytest.raises(InputError, match="hides nothing under 'k-none'"):
        await in_memory.restore(hidden.request_id, *keys[:100], "k-none")
    back = await in_memory.restore(hidden.request_id, *keys[:-1])
    assert (back.restored, back.still_hidden) == ({"memories": 4_999}, 1)


async def test_a_sweep_goes_to_the_end_of_what_has_expired(in_memory: Expunge, clock: ManualClock) -> None:
    """Law 11: a sweep stops at a page, skips every other one, or counts a row twice when several run (41, 45, 119)."""
    number = 3_001
    async with as_user(in_memory) as ann:
        for start in range(0, number, 1000):
            items = [
                {
                    "key": f"k{n}",
                    "value": n,
                    "ttl_seconds": 10,
                    "on_expire": ("tombstone", "demote", "anonymize")[n % 3],
                }
                for n in range(start, min(start + 1000, number))
            ]
            await ann.memory.set_many(items)
        await ann.memory.set("later", 1, ttl_seconds=11)
        clock.advance(10)
        swept = await asyncio.gather(*(ann.memory.sweep_expired() for _ in range(8)))
        done = {act: sum(one.done.get(act, 0) for one in swept) for act in ("tombstone", "demote", "anonymize")}
        assert done == {"tombstone": 1001, "demote": 1000, "anonymize": 1000}
        assert (await ann.memory.sweep_expired()).expired == 0
        assert (await ann.memory.get("later")).found
        assert await rows(in_memory, "SELECT count(*) FROM memories WHERE state = 'live' AND expires_at <= 10") == [
            (0,)
        ]


NUMBERS = [name for name, field in Settings.model_fields.items() if field.annotation in (int, float)]
NONSENSE: list[Any] = [
    -1,
    "",
    " ",
    "never",
    "0x10",
    "1e400",
    "nan",
    "inf",
    math.nan,
    math.inf,
    -math.inf,
    10**30,
    [],
    {},
    True,
]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_limit_that_says_nothing_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 13: nothing, less than nothing and no number are taken for everything or for ever (73); here for an error."""
    monkeypatch.chdir(tmp_path)
    fits_zero = name == "reclaim_wait_s"  # to wait for no reader at all is a wish like another
    wrong = NONSENSE + ([] if fits_zero else [0, "0", 0.0, "-0"])
    for value in wrong:
        with pytest.raises(SettingsError):
            Settings.load(environ={}, **{name: value})
        if isinstance(value, str):
            with pytest.raises(SettingsError):
                Settings.load(environ={f"EXPUNGE_{name.upper()}": value})
    for text in ("nan", "inf", "-inf", "-1", '""', "[]", "true", *([] if fits_zero else ["0", "0.0"])):
        (tmp_path / "expunge.toml").write_text(f"{name} = {text}\n")
        with pytest.raises(SettingsError):
            Settings.load(environ={})
    (tmp_path / "expunge.toml").write_text(f"{name} = 7\n")
    assert getattr(Settings.load(environ={}), name) == 7


@pytest.mark.parametrize("value", [*NONSENSE, 0, "0", "1", 1.5, 1e9])
async def test_a_time_to_live_or_a_limit_that_says_nothing_is_refused(in_memory: Expunge, value: Any) -> None:
    """Law 13: the same for what a call gives (73): nothing is written, and nothing that stands is changed."""
    async with as_user(in_memory) as ann:
        await ann.memory.set("k", 1, ttl_seconds=60)
        before = await dump(in_memory)
        calls = [
            ann.memory.set("k", 2, ttl_seconds=value),
            ann.memory.touch("k", ttl_seconds=value),
            ann.memory.history("k", limit=value),
            ann.memory.recall("", limit=value),
            ann.memory.facts(limit=value),
            ann.memory.documents(limit=value),
            ann.memory.sessions(limit=value),
            ann.memory.session_messages("s", limit=value),
            in_memory.call("jobs.run", org="acme", limit=value),
            in_memory.call("answers.keep", question="q", answer="a", quotes=["x"], ttl_seconds=value),
        ]
        for call in calls:
            with pytest.raises(InputError):
                await call
        assert await dump(in_memory) == before
        assert (await ann.memory.get("k")).found
