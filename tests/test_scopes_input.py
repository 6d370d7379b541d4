"""What is a scope and what is none: as operations, as Python and as the command line take it (laws 12, 15, 16)."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge
from expunge.cli.app import app
from expunge.errors import ExpungeError, InputError, InvalidId, InvalidInstant, InvalidScope
from expunge.model.instant import ManualClock
from tests.scopes_support import NOW, served_episodes, state
from tests.shell import Shell
from tests.support import AT, dump, episode, ids


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def of_everybody() -> list[dict[str, Any]]:
    """Episodes under every mix of two values of each part, named by them: `ann-n-a-s`, `bob-n-a-s`, and so on."""
    made = []
    for user in ("ann", "bob"):
        for namespace in ("n", "m"):
            for agent in ("a", "z"):
                for spoken in ("s", "t"):
                    parts = {"user_id": user, "namespace": namespace, "agent": agent, "session_id": spoken}
                    made.append(episode("-".join(parts.values()), **parts))
    return made


def matching(*words: str) -> set[str]:
    """The ids of the episodes that match one of some patterns, such as `ann-n--` for what is of ann and in n."""
    found = set()
    for record in of_everybody():
        parts = record["id"].split("-")
        for word in words:
            if all(wanted in ("", part) for wanted, part in zip(word.split("-"), parts, strict=True)):
                found.add(record["id"])
    return found


GOOD: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"scope_type": "user_id", "scope_value": "ann"}, ("ann---",)),
    (
        {"scope_type": "user_id", "scope_value": "ann", "namespace": "n", "agent": "a", "session_id": "t"},
        ("ann-n-a-t",),
    ),
    ({"scope_type": "user_list", "scope_value": ["ann"]}, ("ann---",)),
    ({"scope_type": "user_list", "scope_value": '["ann", "bob"]', "agent": "z"}, ("--z-",)),
    ({"scope_type": "user_list", "scope_value": ["bob", "nobody"], "session_id": "s"}, ("bob---s",)),
    ({"scope_type": "namespace", "scope_value": "n"}, ("-n--",)),
    ({"scope_type": "namespace", "scope_value": "n", "user_id": "bob"}, ("bob-n--",)),
    ({"scope_type": "namespace_list", "scope_value": ["n", "m"], "user_id": "bob"}, ("bob---",)),
    ({"scope_type": "namespace_list", "scope_value": ' ["n"] '}, ("-n--",)),
    ({"scope_type": "namespace_list", "scope_value": {"namespaces": ["m", "x"]}}, ("-m--",)),
    ({"scope_type": "namespace_list", "scope_value": '{"namespaces": ["m"], "purge": null}'}, ("-m--",)),
    ({"scope_type": "agent", "scope_value": "a", "session_id": "s"}, ("--a-s",)),
    ({"scope_type": "session", "scope_value": "s"}, ("---s",)),
    ({"scope_type": "session", "scope_value": "t", "user_id": "ann", "namespace": "m"}, ("ann-m--t",)),
    ({"scope_type": "org"}, ("---",)),
    ({"scope_type": "org", "scope_value": "default", "before": AT}, ()),
    ({"scope_type": "org", "before": "2026-01-01T01:00:00.000001+01:00"}, ("---",)),
    ({"scope_type": "agent", "scope_value": "a", "before": datetime(2026, 1, 2, tzinfo=UTC)}, ("--a-",)),
]


@pytest.mark.parametrize(("words", "patterns"), GOOD)
@pytest.mark.parametrize("purge", [True, False, None])
async def test_each_scope_type_takes_what_it_names(
    in_memory: Expunge, words: dict[str, Any], patterns: tuple[str, ...], purge: bool | None
) -> None:
    """Issue 3, scopes: what each type and each narrowing selects; without a word of purge it hides."""
    await in_memory.put(of_everybody())
    everybody = ids(await dump(in_memory))
    answer = await in_memory.call("erasure.request", **words, purge=purge)
    assert (answer.status, answer.scope_type, answer.purge) == ("completed", words["scope_type"], bool(purge))
    gone = matching(*patterns)
    assert answer.found == bool(gone)
    assert (answer.removed if purge else answer.hidden)["episodes"] == len(gone)
    assert await served_episodes(in_memory) == everybody - gone
    assert ids(await dump(in_memory)) == (everybody - gone if purge else everybody)
    assert all(receipt["scope"].get("before") is not None for receipt in answer.receipts) == ("before" in words)


def listed(count: int, what: str = "user_list") -> dict[str, Any]:
    return {"scope_type": what, "scope_value": [f"u{n}" for n in range(count)]}


USER = {"scope_type": "user_id", "scope_value": "ann"}
NAMESPACES = {"scope_type": "namespace_list", "scope_value": ["n", "m"]}
A_HASH = "sha256:" + "0" * 64 + ":0.0.0.0.0.0.0"
BAD: dict[str, tuple[dict[str, Any], type[ExpungeError]]] = {
    "no type": ({"scope_value": "ann"}, InputError),
    "a type that is none": ({"scope_type": "users", "scope_value": "ann"}, InputError),
    "a field that is none": (USER | {"agents": ["a"]}, InputError),
    "no users": (listed(0), InvalidScope),
    "no users as text": ({"scope_type": "user_list", "scope_value": "[]"}, InvalidScope),
    "no namespaces": ({"scope_type": "namespace_list", "scope_value": {"namespaces": []}}, InvalidScope),
    "501 users": (listed(501), InvalidScope),
    "501 users as text": ({"scope_type": "user_list", "scope_value": json.dumps(listed(501)["scope_value"])}, InvalidScope),
    "501 namespaces": (listed(501, "namespace_list"), InvalidScope),
    "a user twice": ({"scope_type": "user_list", "scope_value": ["ann", "bob", "ann"]}, InvalidScope),
    "a namespace twice": ({"scope_type": "namespace_list", "scope_value": '["n", "\\u006e"]'}, InvalidScope),
    "a list for a user": ({"scope_type": "user_id", "scope_value": ["ann"]}, InvalidScope),
    "an object for a user": ({"scope_type": "user_id", "scope_value": {"user_id": "ann"}}, InvalidScope),
    "no value": ({"scope_type": "user_id"}, InvalidScope),
    "no value of a list": ({"scope_type": "user_list"}, InvalidScope),
    "nobody": ({"scope_type": "user_id", "scope_value": "-"}, InvalidId),
    "no namespace": ({"scope_type": "namespace", "scope_value": "-"}, InvalidId),
    "no agent": ({"scope_type": "agent", "scope_value": "-"}, InvalidId),
    "no session": ({"scope_type": "session", "scope_value": "-"}, InvalidId),
    "nobody in a list": ({"scope_type": "user_list", "scope_value": ["ann", "-"]}, InvalidId),
    "narrowed to nobody": (USER | {"session_id": "-"}, InvalidId),
    "empty": ({"scope_type": "agent", "scope_value": ""}, InvalidId),
    "empty text for a list": ({"scope_type": "user_list", "scope_value": ""}, InvalidScope),
    "blank": ({"scope_type": "namespace", "scope_value": " \t"}, InvalidId),
    "narrowed to a blank": (USER | {"namespace": "\u3000"}, InvalidId),
    "narrowed to what is empty": (USER | {"agent": ""}, InvalidId),
    "a number": ({"scope_type": "session", "scope_value": 7}, InvalidId),
    "a truth": ({"scope_type": "user_id", "scope_value": True}, InvalidId),
    "a number for a list": ({"scope_type": "user_list", "scope_value": 7}, InvalidScope),
    "a number in a list": ({"scope_type": "user_list", "scope_value": ["ann", 7]}, InvalidId),
    "a list in a list": ({"scope_type": "user_list", "scope_value": [["ann"]]}, InvalidId),
    "null in a list": ({"scope_type": "namespace_list", "scope_value": "[null]"}, InvalidId),
    "narrowed to a number": (USER | {"agent": 7}, InputError),
    "NUL": ({"scope_type": "user_id", "scope_value": "a\0b"}, InvalidId),
    "a lone surrogate": ({"scope_type": "user_list", "scope_value": '["\\ud800"]'}, InvalidId),
    "257 bytes": ({"scope_type": "user_id", "scope_value": "x" * 257}, InvalidId),
    "not JSON": ({"scope_type": "user_list", "scope_value": "ann, bob"}, InvalidScope),
    "half JSON": ({"scope_type": "namespace_list", "scope_value": '["n"'}, InvalidScope),
    "deep JSON": ({"scope_type": "user_list", "scope_value": "[" * 100_000}, InvalidScope),
    "a text in JSON": ({"scope_type": "user_list", "scope_value": '"ann"'}, InvalidScope),
    "an object for users": ({"scope_type": "user_list", "scope_value": {"namespaces": ["n"]}}, InvalidScope),
    "an object without namespaces": ({"scope_type": "namespace_list", "scope_value": {"purge": True}}, InvalidScope),
    "an object with more": (
        {"scope_type": "namespace_list", "scope_value": {"namespaces": ["n"], "external": False}}, InvalidScope
    ),
    "purge as text": (
        {"scope_type": "namespace_list", "scope_value": {"namespaces": ["n"], "purge": "yes"}}, InvalidScope
    ),
    "purge inside, not outside": (
        {"scope_type": "namespace_list", "scope_value": {"namespaces": ["n"], "purge": True}, "purge": False},
        InvalidScope,
    ),
    "purge outside, not inside": (
        {"scope_type": "namespace_list", "scope_value": '{"namespaces": ["n"], "purge": false}', "purge": True},
        InvalidScope,
    ),
    "a user twice named": (USER | {"user_id": "ann"}, InvalidScope),
    "two users": (USER | {"user_id": "bob"}, InvalidScope),
    "users and a user": (listed(2) | {"user_id": "bob"}, InvalidScope),
    "a session twice named": ({"scope_type": "session", "scope_value": "s", "session_id": "s"}, InvalidScope),
    "an agent twice named": ({"scope_type": "agent", "scope_value": "a", "agent": "z"}, InvalidScope),
    "namespaces and a namespace": (NAMESPACES | {"namespace": "n"}, InvalidScope),
    "two lists": (NAMESPACES | {"user_id": ["ann", "bob"]}, InputError),
    "an org and a user": ({"scope_type": "org", "user_id": "ann"}, InvalidScope),
    "an org and a session": ({"scope_type": "org", "session_id": "s"}, InvalidScope),
    "another org": ({"scope_type": "org", "scope_value": "acme"}, InvalidScope),
    "orgs": ({"scope_type": "org", "scope_value": ["default"]}, InvalidScope),
    "external for a user": (USER | {"external": False}, InvalidScope),
    "external for a namespace": ({"scope_type": "namespace", "scope_value": "n", "external": False}, InvalidScope),
    "external for an org": ({"scope_type": "org", "external": False}, InvalidScope),
    "external as text": (NAMESPACES | {"external": "false"}, InputError),
    "before without zone": (USER | {"before": "2026-01-01T00:00:00"}, InvalidInstant),
    "a day": (USER | {"before": "2026-01-01"}, InvalidInstant),
    "a datetime without zone": (USER | {"before": datetime(2026, 1, 1)}, InvalidInstant),  # noqa: DTZ001
    "no time": (USER | {"before": "yesterday"}, InvalidInstant),
    "an empty time": (USER | {"before": ""}, InvalidInstant),
    "a number for a time": (USER | {"before": 0}, InputError),
    "in the future": (USER | {"before": "2026-06-01T00:00:00.000001Z"}, InvalidScope),
    "in the future by its zone": (USER | {"before": "2026-06-01T00:30:00-01:00"}, InvalidScope),
    "exact without a hash": (USER | {"exact": True}, InputError),
    "exact as a number": (USER | {"exact": 1, "plan_hash": A_HASH}, InputError),
    "a hash that is none": (USER | {"plan_hash": "sha256:abc"}, InputError),
    "nobody asked": (USER | {"requester": " "}, InvalidId),
    "an urgency that is none": (USER | {"urgency": "soon"}, InputError),
    "purge as a number": (USER | {"purge": 1}, InputError),
    "no org": (USER | {"org": "-"}, InvalidId),
}  # fmt: skip


@pytest.fixture
async def kept(in_memory: Expunge) -> Expunge:
    """A store that nothing may change: records, a request and its ledger."""
    await in_memory.put(of_everybody())
    await in_memory.erase("zoe", purge=True)
    return in_memory


async def test_bad_input_is_refused_and_nothing_is_written(kept: Expunge) -> None:
    """Bad input: each is an error of the tree, as a preview and as an erasure, and no row of any table is another."""
    before = await state(kept)
    for name, (words, error) in BAD.items():
        for dry_run in (False, True):
            if dry_run and name == "exact without a hash":  # that is how an exact hash is asked for
                continue
            with pytest.raises(error) as refused:
                await kept.call("erasure.request", **{"purge": True} | words, dry_run=dry_run)
            assert type(refused.value) is error, name
            assert refused.value.exit_code == 2
            assert await state(kept) == before, name


@pytest.mark.parametrize(
    ("users", "words", "error"),
    [
        (("ann", "bob"), {"namespaces": ["n", "m"]}, InvalidScope),
        ((), {}, InvalidScope),
        ((), {"namespaces": []}, InvalidScope),
        ((), {"before": AT}, InvalidScope),
        ((), {"whole_org": False}, InvalidScope),
        (("ann",), {"whole_org": True}, InvalidScope),
        ((), {"whole_org": True, "agent": "a"}, InvalidScope),
        ((), {"whole_org": True, "session_id": "s"}, InvalidScope),
        ((), {"whole_org": True, "namespaces": ["n"]}, InvalidScope),
        (("ann", "ann"), {}, InvalidScope),
        (("-",), {}, InvalidId),
        ((), {"session_id": "-"}, InvalidId),
        ((), {"agent": ""}, InvalidId),
        ((), {"namespaces": ["n", "n"]}, InvalidScope),
        ((), {"namespaces": ["n"], "namespace": "m"}, InvalidScope),
    ],
)
async def test_a_conjunction_that_says_nothing_or_too_much_is_refused(
    kept: Expunge, users: tuple[str, ...], words: dict[str, Any], error: type[ExpungeError]
) -> None:
    """Bad input: an empty conjunction is not the whole org, and the whole org is nothing beside it."""
    before = await state(kept)
    for ask_for in (kept.erase(*users, purge=True, **words), kept.preview(*users, **words)):
        with pytest.raises(error):
            await ask_for
    assert await state(kept) == before


async def test_500_namespaces_are_one_erasure(in_memory: Expunge) -> None:
    """Issue 3, scopes: up to 500 of a list, as JSON text, narrowed by a user; a receipt for each."""
    names = [f"n{n}" for n in range(500)]
    await in_memory.put([episode(f"{who}-{name}", who, namespace=name) for name in names for who in ("ann", "bob")])
    words: dict[str, Any] = {"scope_value": json.dumps({"namespaces": names, "purge": True}), "user_id": "ann"}
    answer = await in_memory.call("erasure.request", scope_type="namespace_list", **words, external=False)
    assert (answer.status, answer.purge, answer.external, len(answer.receipts)) == ("completed", True, False, 500)
    assert {receipt["removed"]["episodes"] for receipt in answer.receipts} == {1}
    assert all("which were left out on request" in str(receipt["not_covered"]) for receipt in answer.receipts)
    assert ids(await dump(in_memory)) == {f"bob-{name}" for name in names}


async def test_a_date_is_strict_and_may_be_this_moment(in_memory: Expunge) -> None:
    """Design 4: `before` the present is no future, and what is dated at it stays."""
    just_before = (datetime.fromisoformat(NOW) - timedelta(microseconds=1)).isoformat()
    await in_memory.put([episode("now", "ann", created_at=NOW), episode("older", "ann", created_at=just_before)])
    answer = await in_memory.erase("ann", purge=True, before=NOW)
    assert (answer.status, answer.removed["episodes"]) == ("completed", 1)
    assert answer.receipts[0]["scope"]["before"] == NOW
    assert ids(await dump(in_memory)) == {"now"}


# --- the command line --------------------------------------------------------------------------------------------


def run(folder: Path, *words: str, exits: int = 0) -> Any:
    """What the command says as JSON; or its error, when it is to end otherwise than with 0."""
    done = Shell(folder).run(*words, "--json", exits=exits)
    return json.loads(done.stderr)["detail"] if exits else json.loads(done.stdout)


async def test_the_flags_of_erase_narrow_each_other(tmp_path: Path) -> None:
    """Issue 3, scopes: users, namespace, session, agent and a date together; and without --purge it hides."""
    db = str(tmp_path / "expunge.db")
    old = [record | {"id": record["id"] + "-old", "created_at": "2025-01-01T00:00:00Z"} for record in of_everybody()]
    async with Expunge(db) as expunge:
        await expunge.put([*of_everybody(), *old])
        everybody = await served_episodes(expunge)
    flags = ["--user", "ann", "--user", "bob", "--namespace", "n", "--session", "s", "--agent", "a", "--before", AT]
    preview = run(tmp_path, "erase", *flags, "--dry-run")
    assert (preview["scope_type"], preview["goes"]["episodes"]["direct"]) == ("user_list", 2)
    hidden = run(tmp_path, "erase", *flags, "--plan", preview["plan_hash"], "--yes")
    assert (hidden["status"], hidden["purge"], hidden["hidden"]["episodes"]) == ("completed", False, 2)
    purged = run(tmp_path, "erase", "--namespace", "n", "--namespace", "m", "--session", "t", "--purge", "--yes")
    assert (purged["scope_type"], purged["removed"]["episodes"]) == ("namespace_list", 16)
    async with Expunge(db) as expunge:
        gone = {name + more for name in matching("---t") for more in ("", "-old")}
        served = everybody - gone - {name + "-old" for name in matching("-n-a-s")}
        assert await served_episodes(expunge) == served
        assert ids(await dump(expunge)) == everybody - gone


def test_flags_that_contradict_each_other_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad input: an empty conjunction, the whole org and more, two lists, and a session of nobody."""

    async def filled() -> Any:
        async with Expunge(str(tmp_path / "expunge.db")) as expunge:
            await expunge.put(of_everybody())
            return await state(expunge)

    before = asyncio.run(filled())
    monkeypatch.chdir(tmp_path)
    refused: list[tuple[list[str], type[ExpungeError]]] = [
        ([], InvalidScope),
        (["--before", AT], InvalidScope),
        (["--whole-org", "--user", "ann"], InvalidScope),
        (["--whole-org", "--namespace", "n"], InvalidScope),
        (["--whole-org", "--session", "s"], InvalidScope),
        (["--whole-org", "--agent", "a"], InvalidScope),
        (["--user", "a", "--user", "b", "--namespace", "n", "--namespace", "m"], InvalidScope),
        (["--session", "-"], InvalidId),
        (["--agent", ""], InvalidId),
        (["--whole-org", "--before", "2026-01-01"], InvalidInstant),
        (["--whole-org", "--before", "9999-01-01T00:00:00Z"], InvalidScope),
        (["--user", "ann", "--exact"], InputError),
        (["--user", "ann", "--plan", "sha256:abc"], InputError),
    ]
    for flags, error in refused:
        for more in (["--purge"], ["--dry-run"]):
            if flags[-1:] == ["--exact"] and more == ["--dry-run"]:  # that is how an exact hash is asked for
                continue
            with pytest.raises(error) as fault:
                app(["erase", *flags, *more, "--yes"], standalone_mode=False)
            assert type(fault.value) is error
    assert run(tmp_path, "erase", "--session", "-", "--purge", "--yes", exits=2)["code"] == "INVALID_ID"

    async def look() -> Any:
        async with Expunge(str(tmp_path / "expunge.db")) as expunge:
            return await state(expunge)

    assert asyncio.run(look()) == before
