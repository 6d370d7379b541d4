"""Ids that are taken for patterns, paths, or one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from expunge import Agent, Expunge, Settings
from expunge.model.identity import PARTS
from tests.field.kit import as_user
from tests.support import HOSTILE_IDS, dump, episode, files_of, ids, memory

pytestmark = pytest.mark.authorities("sqlite", "postgres")

SCOPES = ("org", "namespace", "agent", "session_id")
"""What ``tests/test_erasure.py`` does for users is done here for the other parts of an identity."""


def _scope(part: str, value: str) -> dict[str, Any]:
    scopes: dict[str, dict[str, Any]] = {
        "org": {"whole_org": True, "org": value},
        "namespace": {"namespaces": [value]},
        "agent": {"agent": value},
        "session_id": {"session_id": value},
    }
    return scopes[part]


@pytest.mark.authorities("memory", "postgres")
@pytest.mark.parametrize("part", SCOPES)
async def test_each_id_is_one_scope_and_no_pattern(expunge: Expunge, part: str) -> None:
    """Law 12: ``%``, ``*``, ``[`` or a common beginning widens what goes (31, 33, 37); each takes its own alone."""
    values = [*HOSTILE_IDS, "users.u1", "users.u10", "users.u1.x", "users"]
    records = [memory(f"r{n:03}", "k", **{part: value}) for n, value in enumerate(values)]
    await expunge.put(records)
    left = await dump(expunge)
    for n, value in enumerate(values):
        answer = await expunge.erase(**_scope(part, value), purge=True)
        assert (answer.status, answer.removed["memories"]) == ("completed", 1), value
        del left["memories"][f"r{n:03}"]
        assert await dump(expunge) == left
    assert ids(left) == set()


@pytest.mark.authorities("memory", "postgres")
async def test_a_word_of_a_pattern_finds_no_more_than_its_own(expunge: Expunge) -> None:
    """Law 12: a pattern as key, title, name or page mark reads or restores what it is not (33, 37)."""
    patterns = ["%", "_", "*", "?", "[a-z]", "\\", "k%", "k*"]
    async with as_user(expunge) as ann:
        for name in ("k1", "k2"):
            await ann.memory.set(name, "v")
            await ann.memory.add_document(name, text="v")
            await ann.memory.update_block(name, "v")
        for pattern in patterns:
            assert not (await ann.memory.get(pattern)).found
            assert not (await ann.memory.delete(pattern)).found
            assert (await ann.memory.touch(pattern, clear_expiry=True)).missing == [pattern]
            assert not (await ann.memory.document(pattern)).found
            assert not await ann.memory.delete_document(pattern)
            assert not await ann.memory.delete_block(pattern)
            assert await ann.memory.facts(subject=pattern) == []
            assert await ann.memory.session_messages(pattern) == []
            assert not (await ann.memory.profile(pattern)).found
            assert (await expunge.erase(pattern, purge=True)).found is False
        assert len((await ann.memory.documents()).documents) == len(await ann.memory.working()) == 2
        assert (await ann.memory.get("k1")).found


@pytest.mark.parametrize("part", ["user_id", "title", "org", "session_id"])
async def test_no_id_leads_out_of_the_folders_of_bodies(tmp_path: Path, part: str) -> None:
    """Law 12: an id that is joined to a path reads or removes what lies elsewhere (109), for originals as for all."""
    paths = ["../../victim", "..%2F..%2Fvictim", str(tmp_path / "victim"), "C:\\victim", ".", "..", "~", "%2e%2e%2f"]
    house = tmp_path / "deep" / "house"
    house.mkdir(parents=True)
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_bytes(b"victim")
    async with Expunge(settings=Settings(db=str(house / "x.db"))) as expunge:
        for path in paths:
            who: dict[str, Any] = {name: path if name == part else "x" for name in PARTS if name != "agent"}
            async with Agent(expunge, org=path if part == "org" else "x", **who) as agent:
                await agent.memory.add_document(path if part == "title" else "T", text=f"text of {path}")
        made = {name for name in files_of(tmp_path) if not name.startswith("deep/house/")}
        assert made == {"victim/file"}
        names = "\n".join(name for name in files_of(house) if name.startswith("x.originals"))
        assert names
        assert "victim" not in names
        for path in paths:
            user, org = (path if part == name else "x" for name in ("user_id", "org"))
            await expunge.erase(user, purge=True, org=org)
        assert [name for name in files_of(house / "x.originals") if name.count("/") > 1] == []
    assert files_of(tmp_path / "victim") == {"file": b"victim"}


@pytest.mark.authorities("memory", "postgres")
async def test_spellings_of_one_name_are_several_people(expunge: Expunge) -> None:
    """Law 12: ``ü`` as one sign or as two, or a capital, is merged in silence (67): each goes alone, whoever is like it."""
    alike = ["j\u00fcrgen", "ju\u0308rgen", "J\u00fcrgen", "j\u00fcrgen "]
    await expunge.put([episode(f"e{n}", user) for n, user in enumerate(alike)])
    for n, user in enumerate(alike):
        answer = await expunge.erase(user, purge=True)
        assert answer.removed["episodes"] == 1
        assert ids(await dump(expunge)) == {f"e{m}" for m in range(n + 1, len(alike))}
