"""The chain: each entry is an HMAC over its place, the entry before it, and its body.

The MAC of entry ``n`` of an org is HMAC-SHA-256, under a secret of its own that is derived from the pseudonym key, over
``expunge/audit/1``, the org, ``n`` in decimal and the id of the key, each followed by a NUL, then the 32 bytes of the
MAC before it (zeros before the first), then the body. Neither of the texts in front holds a NUL (law 12), so no two
entries give the same message.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from expunge.audit.clear import Name, file_names
from expunge.authority.orgs import audit_head, set_audit_head
from expunge.authority.port import Statement, Tx
from expunge.keys import KeyRing, PseudonymKey
from expunge.model.canonical import canonical_plain
from expunge.model.instant import Instant

START = bytes(32)
"""What stands in the place of the MAC before the first entry."""
_APPEND = Statement(
    "audit.append", "INSERT INTO audit (org, n, key_id, body, mac) VALUES (:org, :n, :key_id, :body, :mac)"
)
_CHAINED_TO = """SELECT audit_length, audit_head, seq, EXISTS (SELECT 1 FROM audit_clear WHERE pseudonym = :actor)
    FROM orgs WHERE org = :org"""
_BEFORE = Statement("audit.before", _CHAINED_TO, postgres=_CHAINED_TO + " FOR UPDATE")
"""What the next entry is chained to, and whether its actor is filed: one statement costs less than two.

Of two units that append at once the second waits here.
"""
_LATEST = Statement("audit.latest", "SELECT number_in(body, 'at') FROM audit WHERE org = :org ORDER BY n DESC LIMIT 1")


@dataclass(frozen=True, slots=True)
class Entry:
    """One happening. ``outcome`` is ``intent``, ``done``, ``refused``, ``read``, or what the operation ended as.

    ``actor`` is who did it, by clear id; where only their pseudonym is at hand, that is ``known_as``, and ``actor`` is
    empty. ``subjects`` are pseudonyms, under the key ``subjects_key`` (the current one unless it is given).
    ``actor`` and ``requester`` are filed in clear, apart from the chain. ``as_of`` is the org's erasure counter as it
    stood when the work began: nobody is named who was erased since (law 4).
    """

    org: str
    at: Instant
    actor: str
    role: str
    operation: str
    outcome: str
    request_id: str | None = None
    subjects: Sequence[Mapping[str, str]] = ()
    subjects_key: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    known_as: str | None = None
    requester: str | None = None
    as_of: int | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry of an org's chain, by which a cut of its end is told: how many there are, and its MAC in hex."""

    org: str
    n: int
    mac: str


def record(tx: Tx, keys: KeyRing, entry: Entry) -> None:
    """Append an entry, in the transaction of what it speaks of: neither is there without the other (law 2)."""
    key, org = keys.current, entry.org
    actor = _pseudonym_of_actor(key, org, entry.actor) if entry.actor else entry.known_as
    requester = None if entry.requester is None else key.pseudonym(org, "requester", entry.requester)
    tx.settle(org)
    rows = tx.rows(_BEFORE, org=org, actor=actor)
    length, previous, seq, filed = rows[0] if rows else (0, None, 0, 0)
    n, body = length + 1, canonical_plain(_body(entry, key.id, actor, requester)).decode()
    mac = link(chain_secret(key), (chain_of(org), n, key.id), previous or START, body)
    tx.send(_APPEND, org=org, n=n, key_id=key.id, body=body, mac=mac)
    set_audit_head(tx, org, n, mac)
    names = [Name(str(actor), "actor", entry.actor)] if entry.actor and not filed else []
    if entry.requester is not None:
        names.append(Name(str(requester), "requester", entry.requester))
    if names:
        file_names(tx, keys, org, names, at=entry.at, seq=seq, as_of=entry.as_of)


@lru_cache(maxsize=64)
def _pseudonym_of_actor(key: PseudonymKey, org: str, actor: str) -> str:
    """Few act, and each does much."""
    return key.pseudonym(org, "actor", actor)


def _body(entry: Entry, key_id: str, actor: str | None, requester: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "at": entry.at,
        "actor": actor,
        "role": entry.role,
        "operation": entry.operation,
        "outcome": entry.outcome,
        "request_id": entry.request_id,
        "subjects": list(entry.subjects),
        "detail": entry.detail,
    }
    if entry.subjects and entry.subjects_key not in (None, key_id):
        body["subjects_key"] = entry.subjects_key
    if requester is not None:
        body["requester"] = requester
    return body


def chain_of(org: str) -> bytes:
    """What the message of every entry of an org begins with."""
    return f"expunge/audit/1\0{org}\0".encode()


def link(secret: bytes, place: tuple[bytes, int, str], previous: bytes, body: str) -> bytes:
    """The MAC of an entry. Its place is ``chain_of`` its org, its number, and the id of its key."""
    chain, n, key_id = place
    return hmac.digest(secret, b"%b%d\0%b\0%b%b" % (chain, n, key_id.encode(), previous, body.encode()), "sha256")


@lru_cache
def chain_secret(key: PseudonymKey) -> bytes:
    """The secret of the chain under a key: of its own, so that no pseudonym can ever stand for a MAC."""
    return hmac.digest(key.secret, b"expunge/audit-chain/1", "sha256")


def head(tx: Tx, org: str) -> Head:
    """The head of an org's chain; of one that has no entries, 0 and 32 zero bytes."""
    length, mac, _ = audit_head(tx, org)
    return Head(org, length, (mac or START).hex())


def latest(tx: Tx, org: str) -> Instant | None:
    """When the last thing happened in an org."""
    rows = tx.rows(_LATEST, org=org)
    return rows[0][0] if rows else None
