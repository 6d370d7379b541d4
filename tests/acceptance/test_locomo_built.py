"""What the conversations lack, built on two of them: shared evidence, derived data three deep, events, other owners."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge
from tests.acceptance.locomo import (
    Loaded,
    Record,
    adapted,
    as_lines,
    check,
    copy_store,
    erase,
    load,
    needs_locomo,
    put,
    settings_of,
)
from tests.support import block, episode, event, fact, memory

pytestmark = needs_locomo

ANN, MEL, BYSTANDER = "26-Caroline", "26-Melanie", "30-Gina"
A1, A2, M1, BOTH = "26/D1:1", "26/D1:3", "26/D1:2", "26/m1"
"""Two turns of one speaker, one of the other, and a summary made from all of them."""

WITH_ANN = {
    # facts: go with their last source, or with their person
    "b/f-a", "b/f-a-of-mel", "b/f-sum", "b/f-of-f-a", "b/f-deep", "b/f-event",
    # what was made from her words, three deep, goes whoever owns it
    "b/m-mixed", "b/m-of-mel", "b/a1", "b/a2", "b/a3", "b/s1", "b/s2", "b/s3", "b/m-event", "b/elsewhere",
    # an event goes with its episode, whoever is named in it; a derived episode takes its events along
    "b/v-a", "b/v-a-of-mel", "b/e-derived", "b/v-derived",
    "b/persona2",
    # what is hers goes, whatever it rests on and in whichever conversation it stands
    "b/m-of-ann", "b/e-ann-30",
}  # fmt: skip
WITH_MEL = {
    "b/f-m", "b/f-a-of-mel", "b/f-both-of-mel", "b/f-sum", "b/f-sum-m",
    "b/m-mixed", "b/m-of-mel", "b/m-of-ann", "b/s1", "b/s2", "b/s3",
    "b/v-m", "b/v-a-of-mel",
    "b/persona1",
}  # fmt: skip
DETACHED = {
    ANN: {"b/f-both": {M1}, "b/f-both3": {M1}, "b/f-both-of-mel": {M1}, "b/f-mixed": {M1}, "b/f-sum-m": {M1},
          "b/f-events": {"b/v-m"}},
    MEL: {"b/f-both": {A1}, "b/f-both3": {A1, A2}, "b/f-mixed": {"b/a3"}, "b/f-events": {"b/v-a"}},
}  # fmt: skip
"""What stays and loses sources, with those that are left."""


def built(words_of_ann: str) -> list[Record]:
    """Records that rest on the first session of conversation 26, so that each rule alone explains what happens."""
    records = [
        fact("b/f-both", sources=[A1, M1]),
        fact("b/f-both3", sources=[A1, A2, M1]),
        fact("b/f-a", sources=[A1, A2]),
        fact("b/f-m", sources=[M1]),
        fact("b/f-a-of-mel", MEL, sources=[A1]),
        fact("b/f-both-of-mel", MEL, sources=[A1, M1]),
        fact("b/f-nobody"),
        fact("b/f-sum", sources=[BOTH]),
        fact("b/f-sum-m", sources=[BOTH, M1]),
        fact("b/f-of-f-both", sources=["b/f-both"]),
        fact("b/f-of-f-a", sources=["b/f-a"]),
        memory("b/m-of-f-both", "digest/fact", sources=["b/f-both"]),
        memory("b/m-mixed", "digest/mixed", sources=[A1, M1]),
        memory("b/m-of-mel", "digest/own", MEL, sources=[A1]),
        memory("b/m-of-ann", "digest/own", ANN, sources=[M1]),
        memory("b/s1", "digest/s1", sources=[BOTH]),
        memory("b/s2", "digest/s2", sources=["b/s1"]),
        memory("b/s3", "digest/s3", sources=["b/s2"]),
        memory("b/a1", "digest/a1", sources=[A1]),
        memory("b/a2", "digest/a2", sources=["b/a1"]),
        memory("b/a3", "digest/a3", value={"said": ["“déjà vu”", 'a "quoted" word of b/a3']}, sources=["b/a2"]),
        fact("b/f-deep", sources=["b/a3"]),
        fact("b/f-mixed", sources=["b/a3", M1]),
        memory("b/elsewhere", "digest/26", namespace="30", sources=[A1]),
        event("b/v-a", A1),
        event("b/v-a-of-mel", A1, MEL),
        event("b/v-m", M1),
        memory("b/m-event", "digest/event", sources=["b/v-a"]),
        fact("b/f-event", sources=["b/v-a"]),
        fact("b/f-events", sources=["b/v-a", "b/v-m"]),
        episode("b/e-derived", sources=[A1]),
        event("b/v-derived", "b/e-derived"),
        block("b/persona1", "persona", sources=[M1]),
        block("b/persona2", "persona", sources=[A1]),
        episode("b/e-ann-30", ANN, namespace="30"),
        episode("b/e-same-words", BYSTANDER, namespace="30", input=f"She said: {words_of_ann} And left."),
        episode("b/e-lower", "26-caroline"),
        episode("b/e-shorter", "6-Caroline"),
    ]
    words = {"facts": "object", "events": "content"}  # the defaults that are a part of another's words
    return [
        record | {words[record["collection"]]: f"all that {record['id']} says"}
        if record["collection"] in words
        else record
        for record in records
    ]


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Two conversations and what was built on the first."""
    records = [record for record in adapted()[0] if record["namespace"] in {"26", "30"}]
    by_id = {record["id"]: record for record in records}
    assert [by_id[turn]["user_id"] for turn in (A1, A2, M1)] == [ANN, ANN, MEL]
    assert {A1, A2, M1} < set(by_id[BOTH]["sources"])
    return load([*records, *built(by_id[A1]["input"])], tmp_path_factory.mktemp("built"))


def of_built(found: dict[str, Any]) -> set[str]:
    """Those of the ids that go which this module built."""
    return {record_id for ids in found["goes"].values() for record_id in ids if record_id.startswith("b/")}


@pytest.mark.parametrize("batch_rows", [1000, 7])
@pytest.mark.parametrize(
    ("user", "goes", "revived", "exempt"), [(ANN, WITH_ANN, 1, 1), (MEL, WITH_MEL, 0, 0)], ids=["ann", "mel"]
)
async def test_each_rule_of_lineage(
    case: Loaded, tmp_path: Path, user: str, goes: set[str], revived: int, exempt: int, batch_rows: int
) -> None:
    """Laws 5, 6, 10: retire with any source, detach with the last, an event with its episode, one's own whatever."""
    folder = case.copy(tmp_path / "store")
    erased = await erase(folder, case.folder, case.source, [user], BYSTANDER, batch_rows=batch_rows)
    assert of_built(erased.found) == goes
    lost = {derived: set(sources) for derived, sources in DETACHED[user].items()}
    sources = {record["id"]: set(record.get("sources", ())) for record in case.records}
    cut = {(derived, source) for derived, left in lost.items() for source in sources[derived] - left}
    gone = {record_id for ids in erased.found["goes"].values() for record_id in ids}
    assert {(derived, source) for derived, source in erased.found["edges_gone"] if derived not in gone} == cut
    assert (erased.answer.effects["detached"], erased.answer.effects["revived"]) == (len(lost), revived)
    assert len(erased.found["exempt"]) == exempt
    assert erased.found["exempt_names"] == []


async def test_both_speakers_go_at_once(case: Loaded, tmp_path: Path) -> None:
    """Laws 6, 7: with both, what rested on the two of them goes too, and each has a receipt."""
    folder = case.copy(tmp_path / "store")
    erased = await erase(folder, case.folder, case.source, [ANN, MEL], BYSTANDER)
    assert {record["id"] for record in case.records if record["id"].startswith("b/")} - of_built(erased.found) == {
        "b/f-nobody", "b/e-same-words", "b/e-lower", "b/e-shorter"
    }  # fmt: skip
    assert erased.answer.effects["detached"] == 0
    assert erased.answer.receipt is not None
    assert len(erased.answer.receipt) == 2


async def test_what_was_detached_gets_its_sources_back_with_the_person(case: Loaded, tmp_path: Path) -> None:
    """Laws 4, 6: loading again restores the lost edges of what had stayed, so the next erasure follows them again."""
    folder = case.copy(tmp_path / "store")
    first = await erase(folder, case.folder, case.source, [ANN], BYSTANDER)
    gone = sum(first.answer.removed.values()) - first.answer.removed["lineage"]
    again = await put(folder, as_lines(case.records))
    assert (again.loaded, again.skipped, again.bad) == (gone, len(case.records) - gone, [])
    assert again.reattached == first.found["edges_back"] == 7
    back = copy_store(folder, tmp_path / "back")
    assert check(folder, back, case.source)["problems"] == []
    second = await erase(folder, back, case.source, [ANN], BYSTANDER)
    assert second.answer.removed == first.answer.removed


async def test_one_after_the_other_leaves_what_both_at_once_leave(case: Loaded, tmp_path: Path) -> None:
    """Law 6: a fact that the first erasure detached goes with its last source in the second."""
    folder = case.copy(tmp_path / "store")
    async with Expunge(settings=settings_of(folder), create=False) as expunge:
        answers = [await expunge.erase(user, purge=True) for user in (ANN, MEL)]
        found = check(folder, case.folder, case.source, ANN, MEL)
    assert found["problems"] == []
    assert [answer.status for answer in answers] == ["completed", "completed"]
    assert sum((Counter(answer.removed) for answer in answers), Counter()) == Counter(found["removed"])
