"""The profile: what is held on somebody, when, and what it rests on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from expunge import Expunge
from tests.shell import Shell
from tests.subject.kit import fill
from tests.support import episode, fact, memory

pytestmark = pytest.mark.authorities("sqlite", "postgres")


async def test_a_profile_tells_when_by_collection_and_shows_the_newest(expunge: Expunge, tmp_path: Path) -> None:
    """Profile: first and last by each collection's own time, and a few records of each, newest first and cut."""
    await fill(expunge, tmp_path)
    await expunge.put(
        [fact(f"f{n}", "ann", object="x" * 999, recorded_at=f"2026-0{n}-01T00:00:00Z") for n in range(1, 7)]
    )
    found = await expunge.profile("ann")
    assert (found.seen["episodes"].first, found.seen["facts"].last) == (
        "1955-11-05T06:15:00.000001Z",
        "2026-06-01T00:00:00Z",
    )
    assert (found.first_seen, found.last_seen) == ("1955-11-05T06:15:00.000001Z", "2026-06-01T00:00:00Z")
    facts = [item for item in found.samples if item.collection == "facts"]
    assert [item.id for item in facts] == ["f6", "f5", "f4"]
    assert {len(item.text) for item in facts} == {200}
    assert {item.collection for item in found.samples} == {"episodes", "memories", "facts", "blocks", "documents"}
    assert not any(item.id.startswith("b-") for item in found.samples)


async def test_lineage_is_counted_both_ways(expunge: Expunge) -> None:
    """Profile: what was made from theirs, and what theirs rests on, wherever it is; what is hidden is in neither."""
    await expunge.put([
        episode("a", "ann"),
        episode("b", "bob"),
        memory("of-a", "k", sources=["a"]),
        fact("of-both", "ann", sources=["a", "b"]),
    ])  # fmt: skip
    found = await expunge.profile("ann")
    assert (found.made_from, found.rests_on) == ({"memories": 1, "facts": 1}, {"episodes": 2})
    assert (await expunge.profile("bob")).rests_on == {}
    await expunge.erase("bob", purge=False)
    assert (await expunge.profile("ann")).rests_on == {"episodes": 1}


def test_the_page_can_be_read(tmp_path: Path) -> None:
    """The command: a page with counts, times, lineage and samples, in which nobody's text acts on the terminal."""
    shell = Shell(tmp_path)
    (tmp_path / "in.jsonl").write_text(json.dumps(episode("e", "ann", input="red \x1b[31m[bold]text")))
    shell.run("load", "in.jsonl")
    page = shell.run("profile", "ann").stdout.decode()
    assert "theirs rest on" in page
    assert "\x1b" not in page
    assert "red \\x1b[31m[bold]text" in page
    assert b"nothing found on nobody" in shell.run("profile", "nobody").stdout
