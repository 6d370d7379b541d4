"""Every scope, hiding, restoring and waiting, on real conversations, seen from processes that are not ours."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge
from expunge.errors import InputError, NotRestorable
from expunge.model.canonical import digest
from expunge.model.instant import DAY, ManualClock, to_text
from tests.acceptance.conftest import Loading
from tests.acceptance.locomo import (
    BOTH_LONG,
    DATABASE,
    KINDS,
    REMOVED,
    Conjunction,
    Loaded,
    Proofs,
    Record,
    adapted,
    assert_answer,
    assert_hidden,
    assert_preview,
    assert_receipts,
    check_scope,
    copy_store,
    erase_scope,
    needs_locomo,
    on_both,
    reading,
    settings_of,
)
from tests.support import block, episode, event, fact, memory

pytestmark = needs_locomo

ANN, MEL = "26-Caroline", "26-Melanie"
DAY_ONE, EARLY = "2023-05-08T14:00:00Z", "2022-03-27T00:43:20Z"
"""The moments of turns: in the first session of conversation 26, and in the third of 47, when 42 had begun as well."""
WINDOW_S = 14 * DAY / 1_000_000


@dataclass(frozen=True)
class Case:
    """A scope of all ten conversations, somebody outside it, and what goes with it."""

    scope: Conjunction
    bystander: Conjunction | None
    removed: tuple[int, int, int, int, int]
    """Sessions, episodes, memories, facts, edges."""
    derived: int
    exempt: int
    """How many of the texts that go stand in what stays as well."""
    exempt_ids: int = 0
    """The same of the ids: ``26/D1:1`` stands in ``26/D1:12``."""
    named: tuple[str, ...] = ()
    """In what the scope is named and what stays is named as well."""
    detached: int = 0
    exact: bool = False
    batch_rows: int = 20_000

    def counts(self) -> dict[str, int]:
        """What goes, by collection."""
        names = ("sessions", "episodes", "memories", "facts", "lineage")
        return dict.fromkeys(REMOVED, 0) | dict(zip(names, self.removed, strict=True))


CASES = {
    "a session": Case(
        Conjunction(session_id="26/s8"),
        Conjunction(session_id="26/s9"),
        (1, 39, 1, 12, 51),
        derived=13,
        exempt=0,
        exempt_ids=1,
    ),
    "a session of a speaker": Case(
        Conjunction((ANN,), ("26",), session_id="26/s8"),
        Conjunction((MEL,), session_id="26/s8"),
        (0, 20, 1, 6, 45),
        derived=7,
        exempt=0,
        exempt_ids=2,
        named=("26-Caroline", "26/s8", "default26"),
        exact=True,
    ),
    "a conversation": Case(
        Conjunction(namespaces=("26",)), Conjunction(namespaces=("30",)), (19, 419, 19, 184, 603), derived=0, exempt=0
    ),
    "two conversations": Case(
        Conjunction(namespaces=("30", "26")),
        Conjunction(namespaces=("50",)),
        (38, 788, 38, 353, 1142),
        derived=0,
        exempt=6,
        batch_rows=200,
    ),
    "a conversation before a date": Case(
        Conjunction(namespaces=("26",), before=DAY_ONE),
        Conjunction(session_id="26/s2"),
        (1, 12, 1, 4, 22),
        derived=1,
        exempt=0,
        exempt_ids=7,
        named=("default26",),
    ),
    "everything before a date": Case(
        Conjunction(whole_org=True, before=EARLY),
        Conjunction(namespaces=("43",)),
        (9, 197, 9, 71, 283),
        derived=1,
        detached=1,
        exempt=0,
        exempt_ids=56,
        batch_rows=100,
    ),
    "everything": Case(Conjunction(whole_org=True), None, (272, 5882, 272, 2541, 8443), derived=0, exempt=0),
}
"""The numbers of episodes are also counted in the conversations themselves, by `turns_of`."""


def turns_of(scope: Conjunction) -> int:
    """How many turns of the input a scope has, counted on the ids and dates that they were given."""
    turns = [record for record in adapted()[0] if record["collection"] == "episodes"]
    return sum(
        (not scope.users or turn["user_id"] in scope.users)
        and (not scope.namespaces or turn["id"].partition("/")[0] in scope.namespaces)
        and (scope.session_id is None or turn["id"].partition(":")[0] == scope.session_id.replace("/s", "/D"))
        and (scope.before is None or turn["created_at"] < scope.before)
        for turn in turns
    )


@on_both(CASES, "a session of a speaker", "a conversation before a date", "a session", "a conversation", "everything")
async def test_a_scope_is_purged_and_nothing_else(conversations: Loaded, tmp_path: Path, name: str) -> None:
    """Laws 1, 5, 6, 7, 10, 11, 14: preview, purge, receipts and census of a scope are what the input says, to the byte.

    The lineage rule reaches what was made from it, and everybody outside is as before in every column. A small batch
    makes the scope go in many commits.
    """
    case = CASES[name]
    folder = conversations.copy(tmp_path / "store")
    erased = await erase_scope(
        folder, conversations.folder, conversations.source, case.scope, case.bystander,
        exact=case.exact, settings={"batch_rows": case.batch_rows},
    )  # fmt: skip
    assert erased.answer.removed == case.counts()
    assert erased.answer.removed["episodes"] == erased.read_before["scope"][0] == turns_of(case.scope)
    assert erased.answer.effects == {"derived": case.derived, "detached": case.detached, "revived": 0, "rebuilt": 0}
    assert len(erased.found["exempt"]) == case.exempt
    assert erased.found["exempt_names"] == list(case.named)
    assert len(erased.found["exempt_ids"]) == case.exempt_ids


SCOUT, SCRIBE = "scout", "scribe"
FIRST = "26/s1"
A1, A3, M1, OTHER = "26/D1:1", "26/D1:3", "26/D1:2", "26/D2:1"
"""Turns of the first session, two of one speaker and one of the other, and a turn of the second session."""


def built() -> list[Record]:
    """Records that rest on the first two sessions of conversation 26, so that each rule alone explains what happens."""
    here, own = {"namespace": "26"}, {"namespace": "26", "session_id": FIRST}
    records = [
        # facts and blocks outlive their session, unless all that they rest on (or any, for a block) was said there
        fact("x/f-said", sources=[A1, M1], **own),
        fact("x/f-two", sources=[A1, OTHER], **own),
        fact("x/f-other", sources=[OTHER], **own),
        fact("x/f-told", **own),
        block("x/b-told", "persona", **own),
        block("x/b-said", "persona", sources=[A1], **own),
        # what else belongs to a session goes with it
        memory("x/m-own", "note", **own),
        event("x/v", A1, **here),
        event("x/v-late", OTHER, **own),
        # what was made from it, across sessions and two deep
        memory("x/m-two", "digest/two", sources=[A1, OTHER], **here),
        memory("x/m-deep", "digest/deep", sources=["x/m-two"], **here),
        fact("x/f-deep", sources=["x/m-deep"], **here),
        # one speaker in two conversations, and what one conversation knows from another
        episode("x/e-30", ANN, namespace="30", session_id="30/s1", occurred_at=DAY_ONE),
        fact("x/f-30", ANN, namespace="30"),
        fact("x/f-26", ANN, sources=[M1], **here),
        memory("x/m-elsewhere", "digest/26", namespace="30", sources=[A3]),
        fact("x/f-elsewhere", namespace="30", sources=[A3, "x/e-30"]),
        # the works of an agent
        memory("x/m-scout", "map", agent=SCOUT, **here),
        fact("x/f-scout", agent=SCOUT, sources=[M1], **here),
        block("x/b-scout", "plan", agent=SCOUT, namespace="30"),
    ]
    words = {"facts": "object", "events": "content"}  # the defaults that are a part of another's words
    return [
        record | {words[record["collection"]]: f"all that {record['id']} says"}
        if record["collection"] in words
        else record
        for record in records
    ]


def with_agents(record: Record) -> Record:
    """A record as two agents would have left it: one led the second sessions, the other wrote the summaries."""
    if record["collection"] == "memories":
        return record | {"agent": SCRIBE}
    return record | {"agent": SCOUT} if record.get("session_id", "").endswith("/s2") else record


def of_another_org(records: list[Record]) -> list[Record]:
    """The turns of a conversation under names that somebody of our org has, in an org of their own."""
    users = {"41-John": ANN, "41-Maria": MEL}
    return [
        record | {
            "org": "other", "id": f"o/{record['id']}", "user_id": users[record["user_id"]], "namespace": "26",
            "session_id": FIRST, "agent": SCOUT,
        }
        for record in records
        if record.get("session_id") == "41/s1"
    ]  # fmt: skip


@pytest.fixture
def case(loaded: Loading) -> Loaded:
    """Two conversations with agents, what was built on them, and another org that uses the same names."""
    return loaded("scopes", two_conversations)


def two_conversations() -> list[Record]:
    everything = adapted()[0]
    two = [with_agents(record) for record in everything if record["namespace"] in {"26", "30"}]
    by_id = {record["id"]: record for record in two}
    assert [by_id[turn]["user_id"] for turn in (A1, A3, M1, OTHER)] == [ANN, ANN, MEL, MEL]
    assert by_id["26/D1:13"]["created_at"] == DAY_ONE
    return [*two, *built(), *of_another_org(everything)]


FROM_A1 = {"x/b-said", "x/v", "x/m-two", "x/m-deep", "x/f-deep", "x/m-elsewhere"}
"""What goes with the first turn, of one speaker, or with the second of theirs."""
IN_30 = {"x/e-30", "x/f-30"}


@dataclass(frozen=True)
class Built:
    """A scope of two conversations, and what goes of what was built on them; ``outlives`` is what a preview names."""

    scope: Conjunction
    goes: set[str]
    detached: int = 0
    revived: int = 1
    outlives: dict[str, int] = field(default_factory=dict)
    exempt: int = 0
    bystander: Conjunction | None = field(default_factory=lambda: Conjunction(session_id="30/s5"))


BUILT = {
    "session": Built(
        Conjunction(session_id=FIRST),
        FROM_A1 | {"x/f-said", "x/m-own", "x/v-late", "x/f-26", "x/f-scout"},
        detached=2,
        outlives={"facts": 3, "blocks": 1},
    ),
    "session of a speaker": Built(Conjunction((ANN,), session_id=FIRST), FROM_A1, detached=3),
    "speaker in a conversation": Built(Conjunction((ANN,), ("26",)), FROM_A1 | {"x/f-26"}, detached=3),
    "speaker in the other conversation": Built(Conjunction((ANN,), ("30",)), IN_30, detached=1, revived=0),
    "speaker in both": Built(Conjunction((ANN,)), FROM_A1 | IN_30 | {"x/f-26", "x/f-elsewhere"}, detached=2),
    "conversation": Built(
        Conjunction(namespaces=("26",)),
        {record["id"] for record in built() if record["namespace"] == "26"} | {"x/m-elsewhere"},
        detached=1,
        revived=0,
    ),
    "agent": Built(
        Conjunction(agent=SCOUT),
        {"x/m-scout", "x/f-scout", "x/b-scout", "x/f-other", "x/v-late", "x/m-two", "x/m-deep", "x/f-deep"},
        detached=1,
        revived=0,
    ),
    "agent in a conversation": Built(Conjunction(namespaces=("30",), agent=SCOUT), {"x/b-scout"}, revived=0),
    "agent that wrote summaries": Built(Conjunction(agent=SCRIBE), set(), revived=0),
    "speaker before a date": Built(Conjunction((ANN,), before=DAY_ONE), FROM_A1, detached=3),
    "everything": Built(Conjunction(whole_org=True), {record["id"] for record in built()}, revived=0, bystander=None),
}


@on_both(BUILT, "session", "speaker in both", "agent", "agent in a conversation", "speaker before a date")
async def test_each_rule_of_scopes(case: Loaded, tmp_path: Path, name: str) -> None:
    """Laws 1, 5, 6, 10: each part of a conjunction narrows it; what was built on the conversations shows each rule.

    A session leaves facts with other or no sources and blocks; a date is compared strictly; an agent's works go with
    what was made from them; another org that uses the same names is left alone.
    """
    rule = BUILT[name]
    folder = case.copy(tmp_path / "store")
    erased = await erase_scope(folder, case.folder, case.source, rule.scope, rule.bystander)
    gone = {record_id for ids in erased.found["goes"].values() for record_id in ids}
    assert {record_id for record_id in gone if record_id.startswith("x/")} == rule.goes
    assert (erased.answer.effects["detached"], erased.answer.effects["revived"]) == (rule.detached, rule.revived)
    assert {kind: count for kind, count in erased.found["outlives"].items() if count} == rule.outlives
    assert len(erased.found["exempt"]) == rule.exempt
    assert not [record_id for record_id in gone if record_id.startswith("o/")]


@pytest.mark.authorities("sqlite", "postgres")
async def test_a_scope_of_nobody_is_nothing_found(case: Loaded, tmp_path: Path) -> None:
    """Law 16: a speaker narrowed to a conversation without them is "nothing found", and all stays as it was."""
    folder, scope = case.copy(tmp_path / "store"), Conjunction((MEL,), ("30",))
    async with Expunge(settings=settings_of(folder), create=False) as expunge:
        answer = await expunge.erase(*scope.users, purge=True, **scope.words())
        found = check_scope(folder, case.folder, case.source, scope)
        assert_answer(answer, found)
        assert_receipts(await Proofs.of(expunge, answer), scope, found)
    assert (answer.found, set(answer.removed.values()), found["stays"]) == (False, {0}, len(case.records))


def speakers_of(conversations: Loaded) -> set[str]:
    """Everybody who has an episode."""
    return {record["user_id"] for record in conversations.records if "user_id" in record}


async def profiles(expunge: Expunge, users: set[str]) -> dict[str, dict[str, Any]]:
    """All that is served of everybody."""
    return {user: (await expunge.profile(user)).model_dump() for user in users}


def nothing_of(user: str) -> dict[str, Any]:
    """The profile of a person of whom nothing is served."""
    counts = dict.fromkeys(KINDS, 0)
    return {
        "org": "default", "user_id": user, "found": False, "counts": counts, "seen": {}, "made_from": {}, "rests_on": {},
        "first_seen": None, "last_seen": None, "namespaces": [], "session_count": 0, "recent_sessions": [], "samples": [],
    }  # fmt: skip


async def profiles_after_purge(folder: Path, scope: Conjunction, users: set[str]) -> dict[str, dict[str, Any]]:
    """What is served of everybody once the scope has been purged from a store."""
    async with Expunge(settings=settings_of(folder), create=False) as expunge:
        await expunge.erase(*scope.users, purge=True, **scope.words())
        return await profiles(expunge, users)


HIDDEN = {
    "a conversation": (Conjunction(namespaces=("30",)), {"30-Gina", "30-Jon"}, Conjunction(namespaces=("26",)), 100),
    "a speaker": (Conjunction(("47-John",)), {"47-John"}, Conjunction(("47-James",)), 20_000),
}
"""A scope, whose records are all in it, somebody outside, and how many rows go in one commit."""


@on_both(HIDDEN, "a conversation")
async def test_what_is_hidden_is_not_served_and_comes_back_as_it_was(
    conversations: Loaded, tmp_path: Path, name: str
) -> None:
    """Laws 1, 7, 10, 16: what is hidden is kept and not served; restored, it is in every column as it was but for seq.

    To everybody else it makes no difference whether a scope is hidden or purged. Neither its rows nor its edges are
    touched, and when the window has ended nothing is purged that was restored.
    """
    scope, theirs, bystander, batch_rows = HIDDEN[name]
    users, clock = speakers_of(conversations), ManualClock()
    folder, before, source = conversations.copy(tmp_path / "store"), conversations.folder, conversations.source
    purged = await profiles_after_purge(conversations.copy(tmp_path / "purged"), scope, users)
    settings = settings_of(folder, batch_rows=batch_rows)
    with reading(folder, bystander=bystander) as reader:
        async with Expunge(settings=settings, clock=clock, create=False) as expunge:
            was = await profiles(expunge, users)
            shown = await expunge.preview(*scope.users, purge=False, **scope.words())
            answer = await expunge.erase(*scope.users, purge=False, plan_hash=shown.plan_hash, **scope.words())
            hidden = check_scope(folder, before, source, scope, hidden=True)
            assert_preview(shown, hidden)
            assert_hidden(answer, hidden)
            assert answer.restore_until == to_text(clock.now() + 14 * DAY)
            assert_receipts(await Proofs.of(expunge, answer), scope, hidden, hidden=True)
            assert (await expunge.call("erasure.census", request_id=answer.request_id)).residue_count == 0

            now = await profiles(expunge, users)
            assert {user: now[user] for user in theirs} == {user: nothing_of(user) for user in theirs}
            assert now == purged

            restored = await expunge.restore(answer.request_id)
            found = check_scope(folder, before, source, scope, hidden=True, restored=True)
            assert found["problems"] == []
            assert Counter(restored.restored) == Counter(found["back"])
            assert Counter(found["back"]) == Counter(answer.hidden)
            assert (restored.reversals_count, restored.still_hidden) == (sum(found["direct"].values()), 0)
            assert await profiles(expunge, users) == was
        assert reader.ask() == reader.first

        clock.advance(WINDOW_S)
        async with Expunge(settings=settings, clock=clock, create=False) as expunge:
            assert [set(ended.removed.values()) for ended in expunge.ended] == [{0}]
            assert check_scope(folder, before, source, scope, hidden=True, restored=True)["problems"] == []
            assert await profiles(expunge, users) == was


@BOTH_LONG
async def test_one_session_is_restored_by_its_ids_and_the_rest_is_purged_in_time(
    conversations: Loaded, tmp_path: Path
) -> None:
    """Laws 5, 6, 10: what comes back by id brings what was made from it, and nothing that rests on what stays hidden.

    The summary of the session comes back with the last of its turns, the partner's facts with any; the speaker's own
    facts were in scope themselves, and stay hidden. When the window has ended, the rest goes, and that alone.
    """
    scope, clock = Conjunction((ANN,)), ManualClock()
    folder, before, source = conversations.copy(tmp_path / "store"), conversations.folder, conversations.source
    keys = [
        record["id"]
        for record in conversations.records
        if (record.get("user_id"), record.get("session_id")) == (ANN, "26/s17")
    ]
    async with Expunge(settings=settings_of(folder), clock=clock, create=False) as expunge:
        answer = await expunge.erase(ANN, purge=False)
        with pytest.raises(InputError):
            await expunge.restore(answer.request_id, "26/m17")  # it rests on turns that stay hidden
        assert_hidden(answer, check_scope(folder, before, source, scope, hidden=True))

        restored = await expunge.restore(answer.request_id, *keys)
        found = check_scope(folder, before, source, scope, hidden=True, restored=keys)
        assert found["problems"] == []
        assert Counter(restored.restored) == Counter(found["back"]) == Counter(episodes=13, memories=1, facts=1)
        assert (restored.reversals_count, restored.still_hidden) == (len(keys), sum(answer.hidden.values()) - 15)
        assert found["reversals"] == len(keys) == 13
        assert (await expunge.profile(ANN)).counts == nothing_of(ANN)["counts"] | {"episodes": 13}
    kept = copy_store(folder, tmp_path / "kept")

    clock.advance(WINDOW_S)
    async with Expunge(settings=settings_of(folder), clock=clock, create=False) as expunge:
        [ended] = expunge.ended
        found = check_scope(folder, kept, source, scope, restored=keys)
        assert_answer(ended, found, attempts=2)
        proofs = await Proofs.of(expunge, ended)
        assert_receipts(proofs, scope, found)
        assert [json.loads(receipt)["reversals"] for receipt in proofs.receipts] == [13]
    assert ended.removed == dict.fromkeys(REMOVED, 0) | {"episodes": 198, "facts": 103, "memories": 18, "lineage": 496}
    assert ended.effects == {"derived": 19, "detached": 0, "revived": 0, "rebuilt": 0}
    assert (len(found["exempt"]), found["exempt_names"]) == (0, [ANN])


@BOTH_LONG
async def test_what_was_hidden_is_purged_at_opening_when_its_window_has_ended(
    conversations: Loaded, tmp_path: Path
) -> None:
    """Laws 2, 7, 13, 14, 16: not a second before 14 days have passed, and then to the byte, with a second receipt.

    The second follows the first in the chain and takes its place, and from then on nothing can be restored.
    """
    scope, clock = Conjunction(namespaces=("30",)), ManualClock()
    folder, before, source = conversations.copy(tmp_path / "store"), conversations.folder, conversations.source
    with reading(folder, scope=scope, bystander=Conjunction(namespaces=("26",))) as reader:
        async with Expunge(settings=settings_of(folder), clock=clock, create=False) as expunge:
            hidden = await expunge.erase(purge=False, **scope.words())
            [first] = (await Proofs.of(expunge, hidden)).receipts

        clock.advance(WINDOW_S - 1)
        async with Expunge(settings=settings_of(folder), clock=clock, create=False) as expunge:
            assert expunge.ended == []
            assert_hidden(hidden, check_scope(folder, before, source, scope, hidden=True))

        clock.advance(1)
        async with Expunge(settings=settings_of(folder), clock=clock, create=False) as expunge:
            [answer] = expunge.ended
            found = check_scope(folder, before, source, scope)
            read_after = reader.ask()
            proofs = await Proofs.of(expunge, answer)
            again = await expunge.call("erasure.census", request_id=answer.request_id)
            with pytest.raises(NotRestorable):
                await expunge.restore(answer.request_id)
    assert_answer(answer, found, attempts=2)
    assert (answer.request_id, answer.removed["episodes"]) == (hidden.request_id, reader.first["scope"][0])
    assert (again.residue_count, again.census) == (0, answer.census)
    assert read_after == reader.first | {"scope": [0, None]}
    assert (len(found["exempt"]), found["exempt_names"]) == (7, [])
    assert_receipts(proofs, scope, found)
    [second] = proofs.receipts
    assert json.loads(second)["previous"] == digest(first)
    assert "ledger" not in proofs.passed(first)


@pytest.mark.authorities("sqlite", "postgres")
async def test_what_was_restored_can_be_purged(conversations: Loaded, tmp_path: Path) -> None:
    """Laws 4, 7: a purge after a restore leaves nothing, the clear scope that the first request had kept included."""
    scope, theirs, bystander, batch_rows = HIDDEN["a conversation"]
    folder, source = conversations.copy(tmp_path / "store"), conversations.source
    async with Expunge(settings=settings_of(folder), create=False) as expunge:
        hidden = await expunge.erase(purge=False, **scope.words())
        await expunge.restore(hidden.request_id)
    restored = copy_store(folder, tmp_path / "restored")
    erased = await erase_scope(folder, restored, source, scope, bystander, settings={"batch_rows": batch_rows})
    assert erased.answer.removed == hidden.hidden | {"lineage": 539}
    assert (len(erased.found["exempt"]), erased.found["exempt_names"]) == (7, [])
    async with Expunge(settings=settings_of(folder), create=False) as expunge:
        assert await profiles(expunge, theirs) == {user: nothing_of(user) for user in theirs}


async def test_the_check_sees_what_was_not_done(case: Loaded, tmp_path: Path) -> None:
    """Law 16: the check of this module is no formality: it finds what is not hidden, not restored, or only hidden."""
    folder, scope = case.copy(tmp_path / "store"), Conjunction(namespaces=("26",))
    untouched = check_scope(folder, case.folder, case.source, scope, hidden=True)
    gone = sum(len(ids) for ids in untouched["goes"].values())
    assert len(untouched["problems"]) == gone == 657

    async with Expunge(settings=settings_of(folder), create=False) as expunge:
        await expunge.erase(purge=False, **scope.words())
        assert check_scope(folder, case.folder, case.source, scope, hidden=True)["problems"] == []
        restored = check_scope(folder, case.folder, case.source, scope, hidden=True, restored=True)
        assert len(restored["problems"]) == gone
    in_bytes = [
        problem.removeprefix(f"{DATABASE} holds ")
        for problem in check_scope(folder, case.folder, case.source, scope)["problems"]
        if problem.startswith(f"{DATABASE} holds ")
    ]
    assert "the name '\"26\"'" in in_bytes  # of what the request keeps until its window ends
    assert len([problem for problem in in_bytes if problem.startswith("the erased text")]) == 638
