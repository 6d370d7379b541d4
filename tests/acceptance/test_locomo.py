"""Erasure on real conversations: 20 people, each erased out of a fresh copy, seen from processes that are not ours."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge
from expunge.errors import ErasedSince
from tests.acceptance.locomo import (
    BOTH_LONG,
    LOCOMO,
    REMOVED,
    Conjunction,
    Loaded,
    adapted,
    as_lines,
    check,
    check_scope,
    copy_store,
    erase,
    erase_naively,
    needs_locomo,
    on_both,
    put,
    settings_of,
)

pytestmark = needs_locomo


@dataclass(frozen=True)
class Share:
    """What of the data goes with a speaker, and how many of the texts that go stand in what stays as well."""

    episodes: int
    facts: int
    memories: int
    lineage: int
    derived: int
    exempt: int


SHARES = {
    "26-Caroline": Share(211, 104, 19, 523, 21, 0),
    "26-Melanie": Share(208, 82, 19, 501, 19, 0),
    "30-Gina": Share(184, 85, 19, 454, 21, 2),
    "30-Jon": Share(185, 89, 19, 459, 22, 5),
    "41-John": Share(335, 177, 32, 840, 37, 0),
    "41-Maria": Share(328, 153, 32, 816, 33, 0),
    "42-Joanna": Share(313, 150, 29, 779, 33, 0),
    "42-Nate": Share(316, 122, 29, 751, 31, 5),
    "43-John": Share(336, 147, 29, 827, 35, 0),
    "43-Tim": Share(344, 129, 29, 812, 32, 1),
    "44-Andrew": Share(337, 128, 28, 808, 31, 0),
    "44-Audrey": Share(338, 154, 28, 831, 30, 1),
    "47-James": Share(343, 138, 31, 828, 35, 2),
    "47-John": Share(346, 138, 31, 828, 35, 3),
    "48-Deborah": Share(341, 144, 30, 827, 32, 5),
    "48-Jolene": Share(340, 154, 30, 837, 35, 8),
    "49-Evan": Share(256, 125, 25, 634, 26, 1),
    "49-Sam": Share(253, 120, 25, 630, 29, 0),
    "50-Calvin": Share(285, 144, 30, 712, 38, 1),
    "50-Dave": Share(283, 121, 30, 691, 32, 1),
}
"""Measured from the data by `share_of`, which shares no code with the adapter or the check."""


def partner_of(user: str) -> str:
    """Give the other speaker of a conversation."""
    conversation = user.partition("-")[0] + "-"
    return next(other for other in SHARES if other.startswith(conversation) and other != user)


@cache
def _rows() -> list[dict[str, Any]]:
    with Path(LOCOMO).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _text(row: dict[str, Any]) -> str:
    caption = row.get("image_caption")
    return f"{row['text']} [image: {caption}]" if caption else str(row["text"])


def share_of(conversation: str, speaker: str) -> Share:
    """Work out from the conversations themselves what goes: no fact there rests on both speakers."""
    voices = {
        row["id"]: row["speaker"] for row in _rows() if (row["kind"], row["conversation"]) == ("turn", conversation)
    }
    goes: list[dict[str, Any]] = []
    stays: list[dict[str, Any]] = []
    derived = lineage = 0
    for row in _rows():
        heard = {voices[turn] for turn in row.get("evidence", row.get("built_from", [])) if turn in voices}
        here = row["conversation"] == conversation
        own = here and speaker in (row.get("speaker"), row.get("about"))
        made = here and (heard == {speaker} if row["kind"] == "observation" else speaker in heard)
        (goes if own or made else stays).append(row)
        derived += made and not own
        lineage += len(row.get("evidence", row.get("built_from", []))) if own or made else 0
    kinds = Counter(row["kind"] for row in goes)
    left = "\n\0\n".join(
        json.dumps(row["text"], ensure_ascii=False) if row["kind"] == "summary" else _text(row) for row in stays
    )
    exempt = {text for text in map(_text, goes) if text in left}
    return Share(kinds["turn"], kinds["observation"], kinds["summary"], lineage, derived, len(exempt))


def test_everything_is_loaded(conversations: Loaded) -> None:
    """Law 16: the load says what it took, and it took what the data hold."""
    records, counts = adapted()
    sizes = ("turns", "observations", "summaries", "sessions", "speakers", "conversations")
    assert [counts[name] for name in sizes] == [5882, 2541, 272, 272, 20, 10]
    assert sum(counts.values()) == sum(counts[name] for name in sizes)  # nothing in the data surprised the adapter
    answer = conversations.answer
    assert answer.collections == {"sessions": 272, "episodes": 5882, "facts": 2541, "memories": 272}
    assert (answer.loaded, answer.skipped, answer.reattached, answer.bad) == (len(records), 0, 0, [])
    assert {record["user_id"] for record in records if "user_id" in record} == SHARES.keys()


@pytest.mark.authorities("sqlite", "postgres")
def test_the_loaded_store_is_the_input(conversations: Loaded, tmp_path: Path) -> None:
    """Law 10: before anybody is erased, every row is what the input says, column by column."""
    found = check(conversations.copy(tmp_path / "store"), conversations.folder, conversations.source)
    assert (found["problems"], found["stays"], found["texts"]) == ([], 8967, 0)


@on_both(SHARES, "26-Caroline", "30-Jon", "43-John", "48-Jolene")
async def test_a_speaker_is_erased_and_nothing_else(conversations: Loaded, tmp_path: Path, name: str) -> None:
    """Laws 5, 6, 7, 10, 14: a speaker goes with all that was made from them alone, down to the bytes of every file.

    The partner's turns, everybody in the other conversations, and the edges between them stay as they were.
    """
    folder, user = conversations.copy(tmp_path / "store"), name
    erased = await erase(folder, conversations.folder, conversations.source, [user], partner_of(user))
    share, found = SHARES[user], erased.found
    assert share_of(*user.split("-", 1)) == share
    expected = dict.fromkeys(REMOVED, 0) | {
        "episodes": share.episodes,
        "facts": share.facts,
        "memories": share.memories,
        "lineage": share.lineage,
    }
    assert erased.answer.removed == expected
    assert erased.answer.effects == {"derived": share.derived, "detached": 0, "revived": 0, "rebuilt": 0}
    assert len(found["exempt"]) == share.exempt
    assert found["exempt_names"] == []
    assert len(found["exempt_ids"]) < 0.2 * len([record for ids in found["goes"].values() for record in ids])
    assert erased.read_before["scope"][0] == share.episodes
    there = {"expunge.url"} if found["served"] else {"expunge.db", "expunge.db-wal", "expunge.db-shm"}
    assert there | {"expunge.keys"} <= found["files"].keys()


def test_the_numbers_differ_and_add_up() -> None:
    """Law 16: every turn and every observation goes with exactly one of the twenty, bar those that two people own."""
    assert sum(share.episodes for share in SHARES.values()) == 5882
    assert sum(share.memories for share in SHARES.values()) == 2 * 272
    assert sum(share.facts for share in SHARES.values()) == 2541 + 63
    assert sum(share.exempt for share in SHARES.values()) == 35
    assert len({astuple(share) for share in SHARES.values()}) == 20


@pytest.mark.authorities("sqlite", "postgres")
async def test_a_big_scope_goes_in_many_batches(conversations: Loaded, tmp_path: Path) -> None:
    """Law 11: in batches of 50 rows the same goes as in one, to the end of every page."""
    folder = conversations.copy(tmp_path / "store")
    erased = await erase(
        folder, conversations.folder, conversations.source, ["47-John"], partner_of("47-John"), batch_rows=50
    )
    assert erased.answer.removed["episodes"] == SHARES["47-John"].episodes
    assert len(erased.found["exempt"]) == SHARES["47-John"].exempt


@pytest.mark.authorities("sqlite", "postgres")
def test_the_check_sees_a_person_who_was_not_erased(conversations: Loaded, tmp_path: Path) -> None:
    """Law 16: the check of this module is no formality: on an untouched store it finds all that had to go."""
    folder = conversations.copy(tmp_path / "store")
    found = check(folder, conversations.folder, conversations.source, "26-Caroline")
    problems = Counter(problem.partition(" ")[0] for problem in found["problems"])
    assert problems["episodes"] == SHARES["26-Caroline"].episodes
    assert problems["facts"] == SHARES["26-Caroline"].facts
    assert problems["memories"] == SHARES["26-Caroline"].memories
    assert problems["edge"] == SHARES["26-Caroline"].lineage
    found_by_search = problems["episodes"] + problems["facts"] + problems["memories"]
    assert problems["entry"] == problems["vector"] == found_by_search
    where = "table episodes" if found["served"] else "expunge.db"
    in_bytes = [problem for problem in found["problems"] if " holds the " in problem]
    assert f"{where} holds the name '26-Caroline'" in in_bytes
    assert len([problem for problem in in_bytes if "the erased text" in problem]) >= found["texts"]


def test_the_check_sees_what_a_plain_delete_leaves(conversations: Loaded, tmp_path: Path) -> None:
    """Law 7: rows that a plain DELETE removed are gone for every query, and the check still finds their bytes."""
    folder = conversations.copy(tmp_path / "store")
    plan = check(folder, conversations.folder, conversations.source, "26-Caroline")
    erase_naively(folder, plan)
    problems = check(folder, conversations.folder, conversations.source, "26-Caroline")["problems"]
    assert [problem for problem in problems if not problem.startswith("expunge.db holds")] == []
    for what in ("the erased text", "the piece", "the id", "the name"):
        assert [problem for problem in problems if problem.startswith(f"expunge.db holds {what}")]


@BOTH_LONG
async def test_a_person_who_is_loaded_again_is_back_and_can_go_again(conversations: Loaded, tmp_path: Path) -> None:
    """Law 4: a load that begins after the erasure is new, and can be erased again; one that began before is refused."""
    user, source = "26-Caroline", conversations.source
    folder = conversations.copy(tmp_path / "store")
    first = await erase(folder, conversations.folder, source, [user], partner_of(user))
    gone = sum(first.answer.removed.values()) - first.answer.removed["lineage"]

    with pytest.raises(ErasedSince):
        await put(folder, as_lines(conversations.records), as_of={"default": 0})
    assert check(folder, conversations.folder, source, user)["problems"] == []

    again = await put(folder, as_lines(conversations.records))
    assert (again.loaded, again.skipped, again.reattached, again.bad) == (gone, 8967 - gone, 0, [])
    back = copy_store(folder, tmp_path / "back")
    assert check(folder, back, source)["problems"] == []

    second = await erase(folder, back, source, [user], partner_of(user))
    assert second.answer.removed == first.answer.removed
    assert second.answer.request_id != first.answer.request_id


@pytest.mark.crash
@pytest.mark.authorities("postgres")
async def test_the_files_of_a_server_hold_nothing_after_a_reclaim(conversations: Loaded, tmp_path: Path) -> None:
    """Law 7, physically: until a vacuum the receipt says that bytes wait; after `reclaim` no file of the database does.

    Its log excepted: that is the server's, for all of its databases.
    """
    user, before, source = "26-Caroline", conversations.folder, conversations.source
    folder = conversations.copy(tmp_path / "store")
    async with Expunge(settings=settings_of(folder), create=False) as expunge:
        await expunge.erase(user, purge=True)
        waiting = check_scope(folder, before, source, Conjunction((user,)), files=True)["problems"]
        assert [problem for problem in waiting if not problem.startswith("file ")] == []
        for what in ("the erased text", "the piece", "the id", "the name"):
            assert [problem for problem in waiting if f" holds {what}" in problem]
        await expunge.call("system.reclaim")
        assert check_scope(folder, before, source, Conjunction((user,)), files=True)["problems"] == []
