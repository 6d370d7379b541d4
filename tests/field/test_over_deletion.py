"""Over-deletion: what goes although somebody else still has a right to it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge
from expunge.datamap import RECORDS
from expunge.model.instant import ManualClock
from tests.agents.kit import DAY_S
from tests.field.kit import as_user, place_hold, rows
from tests.subject.kit import person
from tests.support import dump, episode, fact, ids, memory

pytestmark = pytest.mark.authorities("sqlite", "postgres")

ORDERS = tuple(itertools.permutations(["ann-e", "bob-e", "nobody-e"]))
EPISODES = [episode("ann-e", "ann"), episode("bob-e", "bob"), episode("nobody-e")]


@pytest.mark.authorities("memory", "postgres")
@pytest.mark.parametrize("sources", ORDERS, ids="-".join)
async def test_the_order_of_sources_decides_nothing(expunge: Expunge, sources: tuple[str, ...]) -> None:
    """Law 6: an edge that goes when its first source goes, and stays when a later one does (57, 59, 133)."""
    await expunge.put(
        [*EPISODES, fact("fact", sources=list(sources)), memory("summary", "k", sources=list(sources)),
         fact("of-bob", sources=["bob-e"])]
    )  # fmt: skip
    before = await dump(expunge)
    answer = await expunge.erase("ann", purge=True)
    assert (answer.status, answer.effects["derived"], answer.effects["detached"]) == ("completed", 1, 1)
    left = await dump(expunge)
    assert ids(left) == {"bob-e", "nobody-e", "fact", "of-bob"}
    assert left["facts"] == before["facts"]
    assert set(left["lineage"]) == {"fact<bob-e", "fact<nobody-e", "of-bob<bob-e"}
    assert (await expunge.erase("ann", purge=True)).found is False
    assert await dump(expunge) == left
    await expunge.erase("bob", purge=True)
    assert ids(await dump(expunge)) == {"nobody-e", "fact"}


@pytest.mark.authorities("memory", "postgres")
async def test_sources_that_are_none_or_look_false_are_read_as_they_are(expunge: Expunge) -> None:
    """Law 6: a list of sources that is empty, or an id that a language takes for false, decides whose it is (19)."""
    false = ["0", "False", "None", "null", "[]", "{}"]
    await expunge.put(
        [
            fact("bobs", "bob", sources=[]),
            fact("nobodys", sources=[]),
            memory("nobodys-m", "k", sources=[]),
            *(episode(name, "ann") for name in false),
            *(memory(f"from {name}", f"k{name}", sources=[name]) for name in false),
            *(fact(f"of {name}", sources=[name]) for name in false),
        ]
    )
    answer = await expunge.erase("ann", purge=True)
    assert (answer.status, answer.removed["memories"], answer.removed["facts"]) == ("completed", 6, 6)
    assert ids(await dump(expunge)) == {"bobs", "nobodys", "nobodys-m"}
    assert (await expunge.erase("bob", purge=True)).removed["facts"] == 1
    assert ids(await dump(expunge)) == {"nobodys", "nobodys-m"}


async def test_a_document_that_two_have_stays_with_the_other(expunge: Expunge, tmp_path: Path) -> None:
    """Law 6: deleting one owner deletes the original that another still needs (105): the same bytes, the same name."""
    (tmp_path / "same.bin").write_bytes(b"\0the same bytes" * 100)
    async with as_user(expunge) as ann, as_user(expunge, "bob") as bob, as_user(expunge, None) as team:
        for agent in (ann, bob, team):
            await agent.memory.add_document("Same", path=tmp_path / "same.bin", text="the same text")
        assert (await ann.memory.forget(user_id="ann")) == 2
        assert await ann.memory.original("Same") is None
        for agent in (bob, team):
            assert await agent.memory.original("Same") == (tmp_path / "same.bin").read_bytes()
            assert (await agent.memory.document("Same")).text == "the same text"
        assert (await bob.memory.forget(user_id="bob")) == 2
        assert await team.memory.original("Same") is not None
    assert len([path for path in (tmp_path / "expunge.originals").rglob("*") if path.stat().st_size > 1000
                and path.is_file()]) == 1  # fmt: skip


@pytest.mark.parametrize("kind", [kind.name for kind in RECORDS])
async def test_a_hold_binds_in_each_collection(expunge: Expunge, tmp_path: Path, kind: str) -> None:
    """Law 8: a sort of record is not asked for holds (79, 81): what is held stays and is named, the rest goes."""
    (tmp_path / "note.bin").write_bytes(b"note" * 100)
    await expunge.put(person("ann", "held", namespace="legal"), attachments_from=tmp_path)
    await expunge.put(person("ann", "free", namespace="chat"), attachments_from=tmp_path)
    await place_hold(expunge, namespace="legal")
    held = await rows(expunge, f"SELECT * FROM {kind} WHERE namespace = 'legal' ORDER BY rid")
    assert held
    for _ in range(2):
        answer = await expunge.erase("ann", purge=True)
        assert answer.status == "failed"
        assert answer.residue[kind] == len(held)
        assert await rows(expunge, f"SELECT * FROM {kind} ORDER BY rid") == held
    assert (await expunge.erase(namespaces=["legal"], purge=True)).status == "blocked"
    assert (await expunge.erase(whole_org=True, purge=True)).status == "failed"
    assert await rows(expunge, f"SELECT * FROM {kind} ORDER BY rid") == held


async def test_an_end_of_life_that_comes_by_itself_asks_for_holds(expunge: Expunge, clock: ManualClock) -> None:
    """Law 8: what comes by itself (expiry, end of a restore window) looks at dates alone (79): held records stay."""
    async with as_user(expunge) as ann:
        for name in ("tombstone", "demote", "anonymize"):
            await ann.memory.set(name, "held words", ttl_seconds=10, on_expire=name)
        await place_hold(expunge, org="acme", user_id="ann")
        clock.advance(10)
        swept = await ann.memory.sweep_expired()
        assert (swept.expired, swept.done["held"]) == (3, 1)
        kept = await rows(expunge, "SELECT value FROM memories WHERE value LIKE '%held words%'")
        assert len(kept) == 4  # each value, and the demoted one in its next version
    await expunge.put([episode("e", "bob")])
    hidden = await expunge.erase("bob", purge=False)
    await place_hold(expunge, user_id="bob")
    clock.advance(15 * DAY_S)
    (ended,) = (await expunge.call("erasure.resume_due")).erasures
    assert (ended.request_id, ended.status) == (hidden.request_id, "failed")
    assert "e" in ids(await dump(expunge))


@pytest.mark.authorities("memory", "postgres")
async def test_who_is_erased_leaves_each_other_row_as_it_was(expunge: Expunge) -> None:
    """Law 10: a filtered delete ends by resetting the store for everybody (3, 39): all else is as it was, twice."""
    users: list[Any] = ["u1", "u10", "u", "U1", None]
    await expunge.put(
        [record for number, user in enumerate(users) for record in _of(user, number)], attachments_from=None
    )
    entries = "SELECT (SELECT count(*) FROM search_docsize), (SELECT count(*) FROM vectors)"
    ((words, vectors),) = await rows(expunge, entries)
    before = await dump(expunge)
    for _ in range(2):
        await expunge.erase("u1", purge=True)
        left = await dump(expunge)
        assert {
            name: {k: v for k, v in there.items() if not k.startswith("0-")} for name, there in before.items()
        } == left
        assert await rows(expunge, entries) == [(words - 2, vectors - 2)]


def _of(user: str | None, number: int) -> list[dict[str, Any]]:
    return [episode(f"{number}-e", user), memory(f"{number}-m", "k", user, sources=[f"{number}-e"])]
