"""The receipt: what was erased for one subject, what an independent count found left, and what is not promised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from expunge.keys import SigningKey
from expunge.model.canonical import canonical_plain
from expunge.model.instant import Instant, to_text

VERSION = 1
NOT_COVERED = (
    "backups and other copies of the files",
    "blocks below the file system",
    "memory of clients and of processes that have read the data",
    "what the records of others say about the subject, unless they name its records as sources",
)
"""What no receipt of this authority covers (design 4, "not promised, and said")."""

FIELDS = frozenset(
    {
        "version", "request_id", "batch_id", "org", "scope", "purge", "restore_until", "plan_hash",
        "requested_at", "verified_at", "removed", "effects", "census", "deferred", "unfenced",
        "not_configured", "not_covered", "previous", "key_id", "signature",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a receipt says before it is chained and signed; ``census`` is by ``store.collection``, zeros too."""

    request_id: str
    batch_id: str
    org: str
    scope_type: str
    pseudonyms: dict[str, str]
    pseudonym_key_id: str
    before: Instant | None
    purge: bool
    plan_hash: str
    requested_at: Instant
    verified_at: Instant
    removed: dict[str, int]
    effects: dict[str, int]
    census: dict[str, int]
    deferred: list[dict[str, str]] = field(default_factory=list)


def said_by(receipt: Receipt) -> dict[str, Any]:
    """What a receipt says, before it is chained and signed."""
    scope: dict[str, Any] = {
        "type": receipt.scope_type,
        "pseudonyms": receipt.pseudonyms,
        "key_id": receipt.pseudonym_key_id,
    }
    if receipt.before is not None:
        scope["before"] = to_text(receipt.before)
    return {
        "version": VERSION,
        "request_id": receipt.request_id,
        "batch_id": receipt.batch_id,
        "org": receipt.org,
        "scope": scope,
        "purge": receipt.purge,
        "restore_until": None,
        "plan_hash": receipt.plan_hash,
        "requested_at": to_text(receipt.requested_at),
        "verified_at": to_text(receipt.verified_at),
        "removed": receipt.removed,
        "effects": receipt.effects,
        "census": receipt.census,
        "deferred": receipt.deferred,
        "unfenced": [],
        "not_configured": [],
        "not_covered": list(NOT_COVERED),
    }


def sign(said: dict[str, Any], previous: str | None, key: SigningKey) -> tuple[dict[str, Any], bytes]:
    """A receipt, and its RFC 8785 canonical JSON, with the hash of the one before it in its org and the signature.

    The signature is over the canonical form without the field ``signature``.
    """
    signed = said | {"previous": previous, "key_id": key.id}
    signed.pop("signature", None)
    signed["signature"] = key.sign(canonical_plain(signed))
    return signed, canonical_plain(signed)
