"""What is left of a person on real conversations, looked for by the product in its own files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge
from expunge.operations.residue import ResidueOutput
from expunge.residue.given import content_of
from tests.acceptance.locomo import Loaded, needs_locomo, settings_of
from tests.residue.kit import merge_index
from tests.subject.kit import exported

pytestmark = needs_locomo


def texts_of(records: list[dict[str, Any]], user: str) -> list[str]:
    """What records of others say that were made from theirs, steps away too, and retire."""
    going = {record["id"] for record in records if record.get("user_id") == user}
    while more := {record["id"] for record in records if going & set(record.get("sources", ()))} - going:
        going |= more
    derived = [r for r in records if r["id"] in going and r.get("user_id") != user and r["collection"] != "facts"]
    texts = {text for record in derived for text in content_of(record["collection"], record) if len(text) > 20}
    return sorted(texts)


async def before_and_after(folder: Path, user: str, derived: list[str]) -> tuple[ResidueOutput, ...]:
    """What is found of a person before their purge, after it, and when the search index has been merged."""
    async with Expunge(settings=settings_of(folder)) as expunge:
        export, _ = await exported(expunge, user, format="zip")
        before = await expunge.call("system.residue", export=export)
        assert (await expunge.erase(user, purge=True)).status == "completed"
        after = await expunge.call("system.residue", export=export)
        await merge_index(expunge)
        merged = await expunge.call("system.residue", export=export)
        return before, after, merged, await expunge.call("system.residue", texts=derived)


@pytest.mark.parametrize("user", ["26-Caroline", "43-Tim"])
def test_after_a_purge_every_hit_is_another_s_record(conversations: Loaded, tmp_path: Path, user: str) -> None:
    """Law 7: of hundreds of texts of a person nothing is left in any byte but what stands in others' records."""
    derived = texts_of(conversations.records, user)
    found = asyncio.run(before_and_after(conversations.copy(tmp_path / "store"), user, derived))
    before, after, merged, made = found
    assert before.verdict == "accounted"
    assert len(before.found) == before.texts > 300
    assert {hit.form for hit in after.shown if hit.standing == "nothing"} == {"hashes of its words"}
    assert (merged.verdict, merged.residue, merged.unknown) == ("accounted", 0, [])
    assert len(merged.found) < before.texts / 4
    assert user not in json.dumps([hit.model_dump() for hit in merged.shown])
    assert len(derived) > 3
    assert (made.verdict, made.residue) in (("nothing", 0), ("accounted", 0))
