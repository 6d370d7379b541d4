"""Proof: what names somebody, what can be guessed, what ends before the claim does, what says done and was not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.model.canonical import canonical_plain
from expunge.model.instant import ManualClock
from expunge.proof import verify
from expunge.stores.faulty import Fault, Faulty
from expunge.stores.memory import MemoryStore
from tests.agents.kit import DAY_S
from tests.field.kit import as_user, rows
from tests.support import dump, episode, files_of, ids

GUESSES = 100_000
WHO = "u-42"
WORDS = b"words that can be guessed"
_TABLES = ("ledger", "audit", "requests", "fences", "orgs", "keys", "marks")


def _keyless(text: bytes) -> set[str]:
    """What anybody can compute of a text, in the lengths that pseudonyms, keys and names are cut to."""
    made = [hashlib.new(name, text).hexdigest() for name in ("sha256", "sha1", "md5", "blake2b", "sha512")]
    made.append(hashlib.blake2b(text, digest_size=16).hexdigest())
    return {digits[:size] for digits in made for size in (12, 16, 24, 32, 40, 64)}


def _spelled(user: str) -> list[bytes]:
    return [
        user.encode(),
        f"default\0user_id\0{user}".encode(),
        f"expunge/pseudonym/1\0default\0user_id\0{user}".encode(),
    ]


async def _what_stays(expunge: Expunge, folder: Path) -> str:
    """All that outlives an erasure, but for the keys: the control plane, the ledger, names of files."""
    kept = [str(await rows(expunge, f"SELECT * FROM {table}")) for table in _TABLES]
    return "\n".join([*kept, *(await expunge.call("ledger.export")).lines, *files_of(folder)])


async def test_no_id_and_no_content_can_be_guessed_from_what_stays(tmp_path: Path) -> None:
    """Law 14: an unsalted hash is found by trying a hundred thousand ids (127), one of content confirms a guess (131)."""
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "note.txt").write_bytes(WORDS)
    async with Expunge(settings=Settings(db=str(tmp_path / "x.db")), clock=ManualClock()) as expunge:
        made = [episode("e", WHO, input=WORDS.decode(), attachments=["note.txt"]), episode("b", "bob")]
        await expunge.put(made, attachments_from=tmp_path / "given")
        async with as_user(expunge, WHO, org="default") as agent:
            await agent.memory.add_document("Title", text=WORDS.decode(), idempotency_key="once")
            await agent.memory.set("k", WORDS.decode(), idempotency_key="once")
        names = "\n".join(files_of(tmp_path))  # also of what has bodies now
        answer = await expunge.erase(WHO, purge=True)
        kept = names + await _what_stays(expunge, tmp_path)
        pseudonym = answer.receipts[0]["scope"]["pseudonyms"]["user_id"]
    assert pseudonym in kept  # what is looked for would be seen
    assert expunge.system.keys.current.pseudonym("default", "user_id", WHO) == pseudonym
    assert WHO not in kept
    guessed = {f"u-{n}" for n in range(GUESSES)}
    hits = [user for user in guessed for text in _spelled(user) if hashlib.sha256(text).hexdigest()[:12] in kept]
    assert hits == []
    told = [*_spelled(WHO), WORDS, b"Title", b"note.txt", b"once", canonical_plain(["e", "note.txt"])]
    assert [text for text in told if any(digits in kept for digits in _keyless(text))] == []


@pytest.mark.parametrize("days", [91, 3650])
async def test_the_proof_outlives_the_request(tmp_path: Path, days: int) -> None:
    """Law 14: the row that proves an erasure ends after 90 days (129): receipts and ledger are there and verify."""
    settings, clock = Settings(db=str(tmp_path / "x.db")), ManualClock()
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put([episode("e", "ann"), episode("b", "bob")])
        answer = await expunge.erase("ann", purge=True)
    clock.advance(days * DAY_S)
    async with Expunge(settings=settings, clock=clock) as expunge:
        assert await rows(expunge, "SELECT count(*) FROM requests") == [(0,)]
        (body,) = (await expunge.call("erasure.receipts", request_id=answer.request_id)).receipts
        book = "\n".join((await expunge.call("ledger.export")).lines).encode() + b"\n"
        keys: dict[str, Any] = {key.id: key.private.public_key() for key in expunge.system.keys.signing_keys}
        assert json.loads(body) == answer.receipts[0]
        assert all(check.passed for check in verify(body.encode(), keys, book))
        assert not all(check.passed for check in verify(body.replace('"ann"', "").encode()[:-2], keys, book))
        assert ids(await dump(expunge)) == {"b"}


async def test_free_text_of_a_request_is_in_no_proof(expunge: Expunge) -> None:
    """Law 14: a note about a person is copied into what stays for ever (65). Who asked stands in the request alone.

    (The audit holds it too, today: docs/field-reports.md.)
    """
    note = "Alice Liddell called, born 1852"
    await expunge.put([episode("e", "alice"), episode("b", "bob")])
    for purge in (False, True):
        answer = await expunge.erase("alice", purge=purge, requester=note)
        assert answer.requester == note
        body = (await expunge.call("erasure.receipts", request_id=answer.request_id)).receipts
        told = [*body, *(await expunge.call("ledger.export")).lines, *await rows(expunge, "SELECT * FROM fences")]
        assert "Liddell" not in str(told)
    assert ids(await dump(expunge)) == {"b"}


async def test_a_store_that_removes_nothing_is_no_success(clock: ManualClock) -> None:
    """Law 16: a loop that meets the same batch again stops with a note in a log and says deleted (135, 87)."""
    store = Faulty(MemoryStore("documents", frozenset({"documents"})), Fault.NO_OP)
    async with (
        Expunge(settings=Settings(db=":memory:"), clock=clock, bodies=store) as expunge,
        as_user(expunge, org="default") as ann,
        as_user(expunge, "bob", org="default") as bob,
    ):
        for agent in (ann, bob):
            await agent.memory.add_document("T", text="words")
        answer = await expunge.erase("ann", purge=True)
        assert (answer.status, answer.receipts) == ("failed", [])
        assert "documents" in str(answer.failure_reason)
        assert await rows(expunge, "SELECT count(*) FROM documents") == [(2,)]
        assert (await expunge.resume(answer.request_id)).status == "failed"
        store.heal()
        done = await expunge.resume(answer.request_id)
        assert (done.status, done.removed["documents"], len(done.receipts)) == ("completed", 1, 1)
        assert await bob.memory.original("T") == b"words"
