"""Verification without a database: the form, the pinned key, the signature, the count, and the chain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from expunge.keys.ring import signature_is_valid
from expunge.model.canonical import canonical, digest
from expunge.proof.ledger import FORMAT
from expunge.proof.receipt import FIELDS, VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, whether it holds, and in words."""

    name: str
    passed: bool
    detail: str


def _passed(name: str, detail: str) -> Check:
    return Check(name, passed=True, detail=detail)


def _failed(name: str, detail: str) -> Check:
    return Check(name, passed=False, detail=detail)


def verify(data: bytes, pinned: Mapping[str, Ed25519PublicKey], ledger: bytes | None = None) -> list[Check]:
    """Check one receipt. ``pinned`` are the keys that the verifier trusts, by id; without one nothing passes.

    The checks stop at the first that fails, since the later ones would speak of a document that is not trusted.
    """
    checks: list[Check] = []
    for check in _checks(data, pinned, ledger):
        checks.append(check)
        if not check.passed:
            break
    return checks


def _checks(data: bytes, pinned: Mapping[str, Ed25519PublicKey], ledger: bytes | None) -> Iterator[Check]:
    receipt = _canonical_object(data)
    if receipt is None or not _is_receipt(receipt):
        yield _failed("form", f"this is not a receipt of version {VERSION} in canonical JSON")
        return
    yield _passed("form", "canonical JSON with every field of a receipt")
    yield _pinned_key(receipt, pinned)
    yield _signature(receipt, pinned[receipt["key_id"]])
    yield _count(receipt)
    yield _bytes(receipt)
    if ledger is not None:
        yield _chain(data, receipt, pinned, ledger)


def _canonical_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object, if the bytes are exactly its canonical form: then no byte can change unnoticed."""
    try:
        value = json.loads(data)
        is_canonical = isinstance(value, dict) and canonical(value) == data
    except (ValueError, RecursionError, rfc8785.CanonicalizationError):
        return None
    return value if is_canonical else None


def _is_receipt(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == FIELDS
        and value["version"] == VERSION
        and all(isinstance(value[name], str) for name in ("key_id", "signature", "org", "request_id"))
        and isinstance(value["deferred"], list)
    )


def _bytes(receipt: dict[str, Any]) -> Check:
    """Not a failure: the rows are gone, or hidden as was asked. But whoever reads the receipt has to see it."""
    if not receipt["purge"]:
        until = receipt["restore_until"]
        return _passed("bytes", f"HIDDEN, NOT GONE: the records are kept and can be restored until {until}")
    if receipt["deferred"]:
        return _passed("bytes", "DEFERRED: some removed bytes were not reclaimed yet when this was signed")
    return _passed("bytes", "what was removed had been reclaimed when this was signed")


def _pinned_key(receipt: dict[str, Any], pinned: Mapping[str, Ed25519PublicKey]) -> Check:
    if not pinned:
        return _failed("key", "no key is pinned: give one with --key, or --db for the database's own")
    if receipt["key_id"] not in pinned:
        return _failed("key", "the receipt names a signing key that is not pinned")
    return _passed("key", f"the pinned key {receipt['key_id']}")


def _signature(receipt: dict[str, Any], key: Ed25519PublicKey) -> Check:
    unsigned = {name: value for name, value in receipt.items() if name != "signature"}
    if not signature_is_valid(key, str(receipt["signature"]), canonical(unsigned)):
        return _failed("signature", "the signature does not fit what the receipt says")
    return _passed("signature", "made with that key over exactly these bytes")


def _count(receipt: dict[str, Any]) -> Check:
    census, removed, hidden = (receipt[name] for name in ("census", "removed", "hidden"))
    if not all(isinstance(counts, dict) for counts in (census, removed, hidden)) or not census or any(census.values()):
        return _failed("census", "the receipt does not say that nothing is left")
    if not {*removed, *hidden} <= {*census, *(name.rpartition(".")[2] for name in census)}:
        return _failed("census", "something went from a collection that was not counted")
    if any((hidden if receipt["purge"] else removed).values()):
        return _failed("census", "the receipt does not say whether its records are hidden or gone")
    left = "0 records are left" if receipt["purge"] else f"{sum(hidden.values())} are hidden, 0 are served"
    if receipt["reversals"]:
        left += f"; {receipt['reversals']} had been restored"
    return _passed("census", f"{len(census)} collections were counted, {left}")


def _chain(data: bytes, receipt: dict[str, Any], pinned: Mapping[str, Ed25519PublicKey], ledger: bytes) -> Check:
    lines = [_canonical_object(line) for line in ledger.splitlines()]
    header, entries = (lines[0] if lines else None), [line for line in lines[1:] if line is not None]
    if header is None or header.get("format") != FORMAT or len(entries) < len(lines) - 1:
        return _failed("ledger", "the file is not a ledger in canonical JSON lines")
    if header.get("org") != receipt["org"]:
        return _failed("ledger", "the ledger is of another org")
    chain, fault = _walk(entries, pinned)
    if fault is None and (header.get("head"), header.get("length")) != (
        digest(chain[-1]) if chain else None,
        len(entries),
    ):
        fault = "the ledger's end does not fit its header"
    if fault is None and data not in chain:
        fault = "the receipt does not stand in the ledger"
    if fault is None and any(_follows(json.loads(body), receipt) for body in chain[chain.index(data) + 1 :]):
        fault = "a later receipt of the same request and subject stands in the ledger, and takes its place"
    if fault is not None:
        return _failed("ledger", fault)
    return _passed("ledger", f"the receipt stands in an unbroken chain of {len(chain)} receipts")


def _follows(later: dict[str, Any], receipt: dict[str, Any]) -> bool:
    return all(later[name] == receipt[name] for name in ("request_id", "scope"))


def _walk(entries: Sequence[dict[str, Any]], pinned: Mapping[str, Ed25519PublicKey]) -> tuple[list[bytes], str | None]:
    """The receipts of a ledger in canonical form, and the first thing that is wrong with their chain."""
    chain: list[bytes] = []
    for number, entry in enumerate(entries, start=1):
        if entry.get("n") != number:
            return chain, "the ledger's entries are not numbered without a gap"
        if "receipt" not in entry:
            continue
        fault = _link_fault(entry["receipt"], digest(chain[-1]) if chain else None, pinned)
        if fault is not None:
            return chain, f"entry {number} {fault}"
        chain.append(canonical(entry["receipt"]))
    return chain, None


def _link_fault(receipt: Any, head: str | None, pinned: Mapping[str, Ed25519PublicKey]) -> str | None:
    if not _is_receipt(receipt):
        return "is not a receipt"
    if receipt["previous"] != head:
        return "does not follow the receipt before it"
    key = pinned.get(receipt["key_id"])
    if key is None:
        return "is signed with a key that is not pinned"
    if not _signature(receipt, key).passed:
        return "has a signature that does not fit"
    return None
