"""The audit: who did what, in a chain that shows every change, and names nobody who has been erased."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from expunge import Expunge, Settings, audit
from expunge.audit import clear
from expunge.authority.port import Statement
from expunge.errors import AuthInsufficient, DiskFull, InputError, NotRestorable, PlanChanged, Refused
from expunge.model.instant import ManualClock
from expunge.operations import OPERATIONS, Actor, Role, perform
from tests.audit_support import ORG, as_actor, ask, erase_as, happened, holding, listed, names, verified
from tests.support import HOSTILE_IDS, audited, episode, one_of_each
from tests.test_erasure import hold

pytestmark = pytest.mark.authorities("sqlite", "postgres")

# --- what is in it --------------------------------------------------------------------------------------------------


async def test_all_that_is_done_is_an_entry_and_the_chain_verifies(expunge: Expunge) -> None:
    """Law 2: writes, requests, reversals, a release, a rotation and reads of somebody's data, in one unbroken chain."""
    await expunge.put([*one_of_each("ann", "a"), *one_of_each("bob", "b"), episode("x", "cem")])
    hidden = await expunge.erase("ann", purge=False)
    await expunge.restore(hidden.request_id)
    await hold(expunge, "cem")
    blocked = await expunge.erase("cem", purge=True)
    await expunge.call("keys.rotate")
    gone = await expunge.erase("ann", purge=True)
    assert (blocked.status, gone.status) == ("blocked", "completed")
    await expunge.profile("bob")
    assert happened(await listed(expunge)) == [
        ("records.put", "done"),
        ("erasure.request", "intent"),
        ("erasure.request", "hidden"),
        ("erasure.restore", "done"),
        ("erasure.request", "blocked"),
        ("keys.rotate", "done"),
        ("erasure.request", "intent"),
        ("erasure.request", "completed"),
        ("subject.profile", "read"),
    ]
    verdict = await verified(expunge)
    assert (verdict.ok, verdict.entries, verdict.fault) == (True, 9, None)
    assert verdict.head == await expunge.call("audit.head")
    keys = {key for (key,) in await ask(expunge, "SELECT DISTINCT key_id FROM audit")}
    assert keys == {key.id for key in expunge.system.keys.pseudonym_keys}
    (read,) = await listed(expunge, user_id="bob")
    assert read.detail["held"]["episodes"] == 1


async def test_whoever_acts_is_the_actor_and_not_who_had_asked(expunge: Expunge) -> None:
    """Deliver: actor and subject are different fields; a restore or a release by another person names that person."""
    await expunge.put([episode("e", "ann")])
    hidden = await erase_as(expunge, "alice", "ann", purge=False)
    await as_actor(expunge, "boris", "erasure.restore", request_id=hidden.request_id)
    entries = await listed(expunge)
    assert [(entry.outcome, entry.names[entry.actor or ""]) for entry in reversed(entries)][1:] == [
        ("intent", "alice"), ("hidden", "alice"), ("done", "boris"),
    ]  # fmt: skip
    assert [entry.n for entry in await listed(expunge, actor="boris")] == [4]
    assert [entry.n for entry in await listed(expunge, actor="alice")] == [3, 2]
    assert await listed(expunge, actor="ann") == []
    assert {entry.n for entry in await listed(expunge, user_id="ann")} == {2, 3, 4}
    assert await listed(expunge, user_id="alice") == []


async def test_refusals_are_entries(expunge: Expunge, clock: ManualClock) -> None:
    """Law 15: what is refused for want of a role, or because it cannot be done, is written down below every surface."""
    await expunge.put([*one_of_each("ann", "a"), *one_of_each("bob", "b")])
    with pytest.raises(AuthInsufficient):
        await perform(
            expunge.system,
            OPERATIONS["erasure.request"],
            {"org": ORG, "scope_type": "user_id", "scope_value": "ann"},
            actor=Actor("mallory", Role.WRITER),
        )
    with pytest.raises(AuthInsufficient):
        await perform(expunge.system, OPERATIONS["keys.rotate"], {}, actor=Actor("mallory", Role.ADMIN))
    with pytest.raises(AuthInsufficient):
        await as_actor(expunge, "mallory", "erasure.restore", Role.VIEWER, request_id="ann@example.com")
    other = (await expunge.preview("bob")).plan_hash
    with pytest.raises(PlanChanged):
        await expunge.erase("ann", purge=True, plan_hash=other)
    hidden = await expunge.erase("bob", purge=False)
    clock.advance(15 * 86400)
    with pytest.raises(NotRestorable):
        await expunge.restore(hidden.request_id)
    with pytest.raises(Refused):
        await expunge.call("erasure.release", request_id=hidden.request_id)
    refused = [entry for entry in reversed(await listed(expunge)) if entry.outcome == "refused"]
    assert [(entry.operation, entry.detail["code"], entry.request_id) for entry in refused] == [
        ("erasure.request", "AUTH_INSUFFICIENT", None),
        ("keys.rotate", "AUTH_INSUFFICIENT", None),
        ("erasure.restore", "AUTH_INSUFFICIENT", None),
        ("erasure.request", "PLAN_CHANGED", None),
        ("erasure.restore", "NOT_RESTORABLE", hidden.request_id),
        ("erasure.release", "REFUSED", hidden.request_id),
    ]
    assert [entry.names[entry.actor or ""] for entry in refused] == ["mallory"] * 3 + ["operator"] * 3
    for user in ("ann", "bob"):
        assert [entry.outcome for entry in await listed(expunge, user_id=user)].count("refused") == 2, user
    assert (await verified(expunge)).ok
    assert "example.com" not in str(await audited(expunge))


async def test_a_refusal_stays_one_where_nothing_can_be_written(
    expunge: Expunge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 2: no audit sink, no erasure; and a refusal that cannot be written down is still that refusal."""
    await expunge.put([episode("e", "ann")])

    def full(*_: object) -> None:
        raise DiskFull

    monkeypatch.setattr(audit, "record", full)
    with pytest.raises(AuthInsufficient):
        await as_actor(expunge, "mallory", "erasure.request", Role.VIEWER, scope_type="user_id", scope_value="ann")
    with pytest.raises(DiskFull):
        await expunge.erase("ann", purge=True)
    assert (await expunge.profile("ann")).found is True
    assert await ask(expunge, "SELECT count(*) FROM episodes WHERE marked = 0") == [(1,)]


# --- who is named ---------------------------------------------------------------------------------------------------


async def test_erasing_the_actor_leaves_no_clear_id_and_the_chain(expunge: Expunge) -> None:
    """Law 14: somebody who acted is erased; nothing names them in any byte, and the chain is as it was (row 63)."""
    actor, other = "ann-the-admin", "bob-the-other"
    await expunge.put([episode("e", actor), episode("f", other), episode("g", "gus")])
    await erase_as(expunge, actor, "gus", requester=other)
    await as_actor(expunge, "operator", "subject.profile", user_id=actor)
    await erase_as(expunge, other, "gus", requester=actor)
    assert await names(expunge) == {"operator", actor, other}
    before = await ask(expunge, "SELECT * FROM audit ORDER BY n")
    asked = await expunge.call("erasure.list")
    gone = await erase_as(expunge, "operator", actor)
    assert (gone.status, gone.census["authority.audit_clear"]) == ("completed", 0)
    assert holding(expunge.settings, actor, other) == [other]
    assert await names(expunge) == {"operator", other}
    assert (await ask(expunge, "SELECT * FROM audit ORDER BY n"))[: len(before)] == before
    assert (await verified(expunge)).ok
    assert len(await listed(expunge, actor=actor)) == 2  # whoever holds the keys finds what they did, by the guess
    statuses = [await expunge.call("erasure.status", request_id=item.request_id) for item in asked.erasures]
    assert [status.requester for status in statuses] == [None, other]


async def test_the_name_goes_in_batches_too(settings: Settings, clock: ManualClock) -> None:
    """Law 14: in a purge of many commits, and in one at the end of a window whose clear scope is forgotten."""
    actor = "ann-the-admin"
    async with Expunge(settings=settings.model_copy(update={"batch_rows": 2}), clock=clock) as expunge:
        await expunge.put([*one_of_each(actor, "a"), *one_of_each("bob", "b")])
        await as_actor(expunge, actor, "subject.profile", user_id="bob")
        hidden = await erase_as(expunge, "operator", actor, purge=False)
        assert actor in await names(expunge)
        gone = await erase_as(expunge, "operator", actor)
        assert (gone.status, gone.attempts) == ("completed", 1)
        assert holding(settings, actor) == []
        await as_actor(expunge, actor, "subject.profile", user_id="bob")  # somebody of that name came back
        await expunge.put([episode("again", "cem")])
        assert await names(expunge) == {"operator", actor}
        clock.advance(15 * 86400)
        await expunge.call("erasure.resume_due")
        assert (await expunge.call("erasure.status", request_id=hidden.request_id)).purge is True
        assert await names(expunge) == {"operator"}
        assert (await verified(expunge)).ok


@pytest.mark.parametrize("requester", ["ann-the-subject", "ann-the-subject called, and was in tears"])
@pytest.mark.parametrize("purge", [True, False])
async def test_an_erasure_of_oneself_leaves_nothing(
    expunge: Expunge, clock: ManualClock, requester: str, purge: bool
) -> None:
    """Law 14: the actor, the subject and who asked are one; no entry of the erasure brings the name back (row 65)."""
    ann = "ann-the-subject"
    await expunge.put([episode("e", ann), episode("f", "bob")])
    answer = await erase_as(expunge, ann, ann, requester=requester, purge=purge)
    if not purge:
        assert answer.requester == requester
        clock.advance(15 * 86400)
        ended = await expunge.call("erasure.resume_due")
        assert [item.status for item in ended.erasures] == ["completed"]
    assert holding(expunge.settings, ann) == []
    status = await expunge.call("erasure.status", request_id=answer.request_id)
    assert (status.status, status.purge, status.requester) == ("completed", True, None)
    assert (await verified(expunge)).ok
    assert await ask(expunge, "SELECT user_id FROM episodes") == [("bob",)]
    assert {entry.request_id for entry in await listed(expunge, user_id=ann)} == {answer.request_id}


async def test_a_whole_org_is_forgotten_and_another_stays(expunge: Expunge) -> None:
    """Law 14: with an org every name of its audit goes, and none of another's."""
    for org in ("one", "two"):
        await as_actor(expunge, "alice", "records.put", org=org, records=[episode("e", "ann")])
    gone = await expunge.erase(whole_org=True, purge=True, org="one")
    assert gone.status == "completed"
    assert (await names(expunge, "one"), await names(expunge, "two")) == (set(), {"alice"})
    assert [(await verified(expunge, org=org)).ok for org in ("one", "two")] == [True, True]


async def test_looking_after_somebody_who_is_gone_does_not_bring_them_back(expunge: Expunge) -> None:
    """Law 14: a read is an entry by pseudonym alone."""
    await expunge.put([episode("e", "ann-the-subject")])
    await expunge.erase("ann-the-subject", purge=True)
    await expunge.profile("ann-the-subject")
    assert holding(expunge.settings, "ann-the-subject") == []
    assert [entry.outcome for entry in await listed(expunge, user_id="ann-the-subject")] == [
        "read",
        "completed",
        "intent",
    ]


async def test_a_name_is_not_filed_by_work_that_began_before_the_erasure(expunge: Expunge) -> None:
    """Law 4: what an actor does who was erased meanwhile is an entry, by pseudonym alone."""
    await expunge.put([episode("e", "ann-the-actor"), episode("f", "bob")])
    began = await expunge.as_of()
    await expunge.erase("ann-the-actor", purge=True)
    stale = Actor("ann-the-actor")
    values = {"org": ORG, "records": [episode("g", "bob")]}
    await perform(expunge.system, OPERATIONS["records.put"], values, actor=stale, as_of=began or {ORG: 0})
    assert "ann-the-actor" not in await names(expunge)
    assert len(await listed(expunge, actor="ann-the-actor")) == 1
    await as_actor(expunge, "ann-the-actor", "records.put", records=[episode("h", "bob")])
    assert "ann-the-actor" in await names(expunge)  # who came back and acts


async def test_the_census_counts_a_name_that_is_left(expunge: Expunge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 7: mutation `no-op` of what takes the names out turns it red, and a resume heals it."""
    await expunge.put([episode("e", "ann"), episode("f", "bob")])
    for actor in ("ann", "bob"):
        await as_actor(expunge, actor, "subject.profile", user_id="bob")
    with monkeypatch.context() as patched:
        patched.setattr(
            clear, "_REMOVE", Statement("test.no_op", "DELETE FROM audit_clear WHERE :names IS NULL AND org = :org")
        )
        answer = await expunge.erase("ann", purge=True)
    assert (answer.status, answer.residue) == ("failed", {"audit_clear": 1})
    answer = await expunge.resume(answer.request_id)
    assert (answer.status, answer.residue) == ("completed", {})
    assert await names(expunge) == {"operator", "bob"}
    back = Statement(
        "test.back",
        "INSERT INTO audit_clear (pseudonym, key_id, org, part, name, seq) VALUES ('p', 'k', 'default', 'actor', 'ann', 0)",
    )
    await expunge.system.authority.run(lambda tx: tx.change(back))
    again = await expunge.call("erasure.census", request_id=answer.request_id)
    assert {name: count for name, count in again.census.items() if count} == {"authority.audit_clear": 1}


async def test_nobody_is_found_by_trying_ids(expunge: Expunge) -> None:
    """Law 14: ten thousand ids are tried against all that the chain holds, without the key; with it, one fits (row 127)."""
    await expunge.put([episode("e", "u-4242")])
    await expunge.erase("u-4242", purge=True)
    rows = await ask(expunge, "SELECT key_id, body, mac FROM audit")
    held = " ".join(f"{key} {body} {mac.hex()}" for key, body, mac in rows)
    ids = [f"u-{number}" for number in range(10_000)]

    def guesses(value: str) -> list[str]:
        plain = [value, f"{ORG}\0user_id\0{value}"]
        plain += [f"expunge/pseudonym/1\0{ORG}\0{part}\0{value}" for part in ("user_id", "actor")]
        data = [text.encode() for text in plain]
        hashed = [hashlib.sha256(one).hexdigest() for one in data]
        hashed += [hmac.digest(secret, one, "sha256").hex() for one in data for secret in (b"", ORG.encode())]
        return [one[:16] for one in hashed]  # long enough not to stand there by chance

    assert [value for value in ids if value in held or any(guess in held for guess in guesses(value))] == []
    key = expunge.system.keys.current
    assert [value for value in ids if key.pseudonym(ORG, "user_id", value) in held] == ["u-4242"]


# --- finding --------------------------------------------------------------------------------------------------------


async def test_somebody_is_found_before_and_after_a_rotation(expunge: Expunge) -> None:
    """Law 14: by pseudonym, under every key there has been; also by actor, and by the erasure."""
    await expunge.put([episode("e", "ann"), episode("f", "bob")])
    first = await expunge.erase("ann", purge=True)
    hidden = await expunge.erase("bob", purge=False)
    await expunge.call("keys.rotate")
    await expunge.put([episode("g", "ann")])
    second = await expunge.erase("ann", purge=True)
    await expunge.restore(hidden.request_id)  # entered under the new key, with pseudonyms under the old one
    assert {entry.request_id for entry in await listed(expunge, user_id="ann")} == {first.request_id, second.request_id}
    found = await listed(expunge, user_id="bob")
    assert [entry.outcome for entry in found] == ["done", "hidden", "intent"]
    assert len({entry.key_id for entry in found}) == 1
    assert [entry.outcome for entry in await listed(expunge, request_id=second.request_id)] == ["completed", "intent"]
    assert len(await listed(expunge, actor="operator")) == len(await listed(expunge))
    assert (await verified(expunge)).ok


async def test_pages_go_to_the_end_and_times_narrow(expunge: Expunge, clock: ManualClock) -> None:
    """Law 11: a page says that there are more; law 13: `since` is the first time, `until` the first that is too late."""
    for number in range(7):
        await expunge.put([episode(f"e{number}", "ann")])
        clock.advance(60)
    seen: list[int] = []
    after = None
    while True:
        page = await expunge.call("audit.list", limit=3, after=after)
        seen += [entry.n for entry in page.entries]
        if (after := page.next) is None:
            break
    assert seen == [7, 6, 5, 4, 3, 2, 1]
    entries = await listed(expunge, since="2026-01-01T00:02:00Z", until="2026-01-01T00:04:00Z")
    assert [entry.n for entry in entries] == [4, 3]
    for wrong in ({"limit": 0}, {"limit": 1001}, {"since": "2026-01-01"}, {"user_id": ""}, {"after": -1}):
        with pytest.raises(InputError):
            await expunge.call("audit.list", **wrong)


async def test_hostile_ids_are_other_people(in_memory: Expunge) -> None:
    """Law 12: as a user and as an actor, each id finds its own entries and nobody else's."""
    ids = HOSTILE_IDS[::3]
    for number, user in enumerate(ids):
        await as_actor(in_memory, user, "records.put", records=[episode(f"e{number}", user)])
        await as_actor(in_memory, user, "subject.profile", user_id=user)
    for number, user in enumerate(ids):
        assert [entry.n for entry in await listed(in_memory, user_id=user)] == [2 * number + 2], user
        mine = await listed(in_memory, actor=user)
        assert [(entry.n, entry.names[entry.actor or ""]) for entry in mine] == [
            (2 * number + 2, user), (2 * number + 1, user),
        ]  # fmt: skip
    assert (await verified(in_memory)).ok


async def test_two_orgs_of_the_same_ids_do_not_mix(expunge: Expunge) -> None:
    """Law 1: each org has its chain and its pseudonyms."""
    answers = {}
    for org in ("one", "two"):
        await expunge.put([episode("e", "ann")], org=org)
        answers[org] = await expunge.erase("ann", purge=True, org=org)
    for org, answer in answers.items():
        entries = await listed(expunge, org=org, user_id="ann")
        assert [entry.n for entry in entries] == [3, 2]
        assert {entry.request_id for entry in entries} == {answer.request_id}
    pseudonyms = [(await audited(expunge, org=org))[1]["subjects"] for org in answers]
    assert pseudonyms[0] != pseudonyms[1]
