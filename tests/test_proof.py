"""Receipts, their chain, keys (law 14, design 4)."""

from __future__ import annotations

import json
import stat
import string
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from expunge import Expunge, Settings
from expunge.errors import ErasedSince, InputError, KeyExposed, KeyMalformed, KeyMissing
from expunge.keys import KeyRing, load_key_file, open_key_file
from expunge.keys.ring import read_public_pem, signing_key_id
from expunge.model.canonical import canonical
from expunge.proof import verify
from expunge.proof.receipt import FIELDS
from tests.support import digests, one_of_each


def pinned(expunge: Expunge) -> dict[str, Any]:
    return {key.id: key.private.public_key() for key in expunge.system.keys.signing_keys}


async def receipts(expunge: Expunge, *users: str) -> list[bytes]:
    answer = await expunge.erase(*users, purge=True)
    found = await expunge.call("erasure.receipts", request_id=answer.request_id)
    return [body.encode() for body in found.receipts]


async def ledger(expunge: Expunge) -> bytes:
    return "\n".join((await expunge.call("ledger.export")).lines).encode() + b"\n"


def passes(data: bytes, keys: dict[str, Any], book: bytes | None = None) -> bool:
    return all(check.passed for check in verify(data, keys, book))


async def test_a_receipt_passes_and_every_changed_byte_is_seen(expunge: Expunge) -> None:
    """Bad input: a receipt with one byte changed does not pass, whichever byte it is."""
    await expunge.put(one_of_each("ann", "a"))
    (body,) = await receipts(expunge, "ann")
    keys = pinned(expunge)
    assert set(json.loads(body)) == FIELDS
    assert passes(body, keys, await ledger(expunge))
    for at in range(len(body)):
        for flip in (1, 0x20):
            changed = body[:at] + bytes([body[at] ^ flip]) + body[at + 1 :]
            assert not passes(changed, keys), at
    for changed in (body + b" ", body[:-1], b"", b"{}", b"[]", json.dumps(json.loads(body)).encode()):
        assert not passes(changed, keys)


async def test_a_signature_has_one_spelling(expunge: Expunge) -> None:
    """Bad input: base64 that decodes to the same signature is still another receipt."""
    (body,) = await receipts(expunge, "ann")
    document = json.loads(body)
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
    signature = document["signature"]
    last = alphabet[alphabet.index(signature[-3]) ^ 1]
    assert not passes(canonical(document | {"signature": signature[:-3] + last + "=="}), pinned(expunge))
    for name in ("key_id", "signature", "census", "deferred", "removed"):
        wrong: list[Any] = [[], {}, 7, None, ["x"]]
        for value in wrong:
            if document[name] != value:
                assert not passes(canonical(document | {name: value}), pinned(expunge)), (name, value)


async def test_rotation_keeps_to_the_kept_file(settings: Settings, tmp_path: Path) -> None:
    """Design 4: a link to the key file stays a link, and a file that lacks the database's keys is not rotated."""
    async with Expunge(settings=settings) as expunge:
        kept, link = tmp_path / "kept", tmp_path / "expunge.keys"
        link.rename(kept)
        link.symlink_to(kept)
        await expunge.call("keys.rotate")
        assert link.is_symlink()
        assert len(load_key_file(kept).signing_keys) == 2
        kept.unlink()
        open_key_file(kept)
        before = kept.read_bytes()
        with pytest.raises(KeyMissing):
            await expunge.call("keys.rotate")
        assert kept.read_bytes() == before


async def test_without_a_pinned_key_nothing_passes(expunge: Expunge) -> None:
    """Design 4: the key in a receipt's own name is not trusted."""
    (body,) = await receipts(expunge, "ann")
    assert not passes(body, {})
    other = Ed25519PrivateKey.generate().public_key()
    assert not passes(body, {signing_key_id(other): other})
    assert not passes(body, {json.loads(body)["key_id"]: other})


async def test_the_chain_is_checked_against_a_ledger(expunge: Expunge) -> None:
    """Design 4: cut, reordered, renumbered, edited or foreign ledgers are seen; a batch chains its receipts."""
    await expunge.put([record for n in range(3) for record in one_of_each(f"u{n}", f"p{n}")])
    first, second = await receipts(expunge, "u0", "u1")
    (third,) = await receipts(expunge, "u2")
    keys, book = pinned(expunge), await ledger(expunge)
    for body in (first, second, third):
        assert passes(body, keys, book)
    assert json.loads(first)["previous"] is None
    lines = book.splitlines()
    edited = lines[2].replace(
        b'"blocks":1,"chunks":0,"documents":0,"episodes"', b'"blocks":0,"chunks":0,"documents":0,"episodes"'
    )
    assert edited != lines[2]
    broken = [
        lines[:-1], [lines[0], *lines[2:]], [lines[0], lines[2], lines[1], *lines[3:]], [*lines[:2], edited, *lines[3:]],
        lines[1:], [], [lines[0].replace(b'"org":"default"', b'"org":"other"'), *lines[1:]], [b"x", *lines[1:]],
        [lines[0], b"", *lines[1:]],
    ]  # fmt: skip
    for wrong in broken:
        assert not passes(first, keys, b"\n".join(wrong))
    (fourth,) = await receipts(expunge, "u3")
    assert not passes(fourth, keys, book)


async def test_a_receipt_cannot_be_matched_without_the_key(expunge: Expunge) -> None:
    """Law 14: with another key, no id of the whole range of ids gives the pseudonym."""
    (body,) = await receipts(expunge, "u-42")
    pseudonym = json.loads(body)["scope"]["pseudonyms"]["user_id"]
    ring = expunge.system.keys
    assert ring.current.pseudonym("default", "user_id", "u-42") == pseudonym
    assert ring.current.pseudonym("other", "user_id", "u-42") != pseudonym
    strange = KeyRing.new().current
    assert pseudonym not in {strange.pseudonym("default", "user_id", f"u-{n}") for n in range(10_000)}
    assert b"u-42" not in body
    assert b"u-42" not in await ledger(expunge)


async def test_rotated_keys_sign_what_comes_and_match_what_was(expunge: Expunge) -> None:
    """Design 4: old keys stay: old receipts verify, and a write that began before the rotation is still refused."""
    stale = await expunge.as_of()
    (old,) = await receipts(expunge, "ann")
    await expunge.call("keys.rotate")
    (new,) = await receipts(expunge, "bob")
    keys, book = pinned(expunge), await ledger(expunge)
    assert json.loads(old)["key_id"] != json.loads(new)["key_id"]
    assert passes(old, keys, book)
    assert passes(new, keys, book)
    for user in ("ann", "bob"):
        with pytest.raises(Exception, match="after the work began"):
            await expunge.put(one_of_each(user, "x"), as_of=stale)
    listed = (await expunge.call("erasure.list")).erasures
    for item in listed:
        assert (await expunge.call("erasure.census", request_id=item.request_id)).residue_count == 0


async def test_a_rotation_elsewhere_is_noticed(settings: Settings) -> None:
    """Law 4: a process that was open before another one rotated the keys still refuses what that one has fenced."""
    async with Expunge(settings=settings) as early, Expunge(settings=settings) as late:
        stale = await early.as_of()
        await late.call("keys.rotate")
        answer = await late.erase("ann", purge=True)
        with pytest.raises(ErasedSince):
            await early.put(one_of_each("ann", "x"), as_of=stale)
        assert (await early.call("erasure.census", request_id=answer.request_id)).residue_count == 0
        await early.put(one_of_each("ann", "x"))
        second = await early.erase("ann", purge=True)
        assert second.removed["episodes"] == 1
        assert second.receipts[0]["key_id"] == answer.receipts[0]["key_id"]


async def test_a_database_whose_key_is_lost_is_refused_and_left_alone(settings: Settings, tmp_path: Path) -> None:
    """Bad input: a lost, empty, damaged, foreign or exposed key file; never a new key for an old database."""
    async with Expunge(settings=settings):
        pass
    path = tmp_path / "expunge.keys"
    good = path.read_bytes()
    document = json.loads(good)
    document["pseudonym"][0]["secret"] = ""
    empty_key = json.dumps(document).encode()
    swapped = json.loads(good)
    swapped["pseudonym"][0]["secret"] = "A" * 43 + "="
    cases: list[tuple[bytes | None, type[Exception]]] = [
        (None, KeyMissing), (b"", KeyMalformed), (b"  \n", KeyMalformed), (b"{}", KeyMalformed), (b"[1]", KeyMalformed),
        (good[: len(good) // 2], KeyMalformed), (empty_key, KeyMalformed), (json.dumps(swapped).encode(), KeyMissing),
    ]  # fmt: skip
    for data, error in cases:
        path.unlink(missing_ok=True)
        if data is not None:
            path.write_bytes(data)
            path.chmod(0o600)
        before = digests(tmp_path)
        with pytest.raises(error):
            async with Expunge(settings=settings):
                pass
        assert digests(tmp_path) == before
    path.unlink()
    open_key_file(path)
    with pytest.raises(KeyMissing):
        async with Expunge(settings=settings):
            pass
    path.write_bytes(good)
    path.chmod(0o644)
    with pytest.raises(KeyExposed):
        async with Expunge(settings=settings):
            pass
    path.chmod(0o600)
    async with Expunge(settings=settings) as expunge:
        assert (await expunge.erase("ann", purge=True)).status == "completed"


def test_the_key_file_is_the_owners_alone_and_made_once(tmp_path: Path) -> None:
    """Design 4: 0600, and a second first start reads what the first has made."""
    path = tmp_path / "k"
    ring = open_key_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert open_key_file(path).check_values() == ring.check_values() == load_key_file(path).check_values()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["k", "k.lock"]


def test_secrets_are_not_shown() -> None:
    """Law 14: a ring can be printed."""
    ring = KeyRing.new()
    assert ring.current.secret.hex() not in repr(ring)
    assert repr(ring.current.secret) not in repr(ring)


@pytest.mark.parametrize("data", [b"", b"x", b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"])
def test_a_key_that_is_none_is_named(data: bytes) -> None:
    """Bad input: `--key` wants PEM of an Ed25519 public key."""
    with pytest.raises(InputError):
        read_public_pem(data)


def test_public_halves_round_trip() -> None:
    """The exported PEM is the key that receipts name."""
    key = KeyRing.new().signer
    assert signing_key_id(read_public_pem(key.public_pem.encode())) == key.id
