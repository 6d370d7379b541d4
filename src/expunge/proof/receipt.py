"""The receipt: what was erased for one subject, what an independent count found left, and what is not promised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
EXTERNAL_LEFT_OUT = "external systems, which were left out on request"
"""What no receipt of this authority covers (design 4, "not promised, and said")."""

FIELDS = frozenset(
    {
        "version", "request_id", "batch_id", "org", "scope", "purge", "restore_until", "plan_hash",
        "requested_at", "verified_at", "hidden", "reversals", "removed", "effects", "census", "deferred", "unfenced",
        "not_configured", "not_covered", "previous", "key_id", "signature",
    }
)  # fmt: skip

_AFTER_SIGNATURE = b',"unfenced":'


@dataclass(frozen=True, slots=True)
class Occasion:
    """What all receipts of one request say alike."""

    request_id: str
    batch_id: str
    org: str
    pseudonym_key_id: str
    before: Instant | None
    purge: bool
    restore_until: Instant | None
    plan_hash: str
    requested_at: Instant
    verified_at: Instant
    deferred: list[dict[str, str]] = field(default_factory=list)
    unfenced: list[str] = field(default_factory=list)
    uncovered: list[str] = field(default_factory=list)
    """What the authority's own settings let others keep."""
    external: bool = True


@dataclass(frozen=True, slots=True)
class Subject:
    """What one of them says of its own subject; ``census`` is by ``store.collection``, zeros too."""

    scope_type: str
    pseudonyms: dict[str, str]
    hidden: dict[str, int]
    reversals: int
    removed: dict[str, int]
    effects: dict[str, int]
    census: dict[str, int]


def said_by(occasion: Occasion, subjects: Iterable[Subject]) -> Iterator[dict[str, Any]]:
    """What the receipts of a request say, one for each subject, before they are chained and signed."""
    dated = {} if occasion.before is None else {"before": to_text(occasion.before)}
    shared = {
        "version": VERSION,
        "request_id": occasion.request_id,
        "batch_id": occasion.batch_id,
        "org": occasion.org,
        "purge": occasion.purge,
        "restore_until": None if occasion.restore_until is None else to_text(occasion.restore_until),
        "plan_hash": occasion.plan_hash,
        "requested_at": to_text(occasion.requested_at),
        "verified_at": to_text(occasion.verified_at),
        "deferred": occasion.deferred,
        "unfenced": occasion.unfenced,
        "not_configured": [],
        "not_covered": [*NOT_COVERED, *occasion.uncovered, *(() if occasion.external else (EXTERNAL_LEFT_OUT,))],
    }
    for subject in subjects:
        scope = {"type": subject.scope_type, "pseudonyms": subject.pseudonyms, "key_id": occasion.pseudonym_key_id}
        yield shared | {
            "scope": scope | dated,
            "hidden": subject.hidden,
            "reversals": subject.reversals,
            "removed": subject.removed,
            "effects": subject.effects,
            "census": subject.census,
        }


def sign(said: dict[str, Any], previous: str | None, key: SigningKey) -> tuple[dict[str, Any], bytes]:
    """A receipt, and its RFC 8785 canonical JSON, with the hash of the one before it in its org and the signature.

    The signature is over the canonical form without the field ``signature``; it is put into that form at its place in
    the order of names, which no text inside it can look like, because a quote inside a text is escaped.
    """
    signed = said | {"previous": previous, "key_id": key.id}
    signed.pop("signature", None)
    unsigned = canonical_plain(signed)
    signed["signature"] = signature = key.sign(unsigned)
    before, after, rest = unsigned.rpartition(_AFTER_SIGNATURE)
    return signed, b'%b,"signature":"%b"%b%b' % (before, signature.encode(), after, rest)
