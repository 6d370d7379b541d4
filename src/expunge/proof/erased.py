"""What a ledger file says was erased after a moment: how records from another store are checked (law 4)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from expunge.errors import InputError
from expunge.keys import KeyRing
from expunge.model.identity import PARTS, Identity
from expunge.model.instant import Instant, parse_instant
from expunge.proof.ledger import FORMAT


@dataclass(frozen=True, slots=True)
class Erased:
    """One subject that an erasure took, by pseudonyms, and how old its records had to be."""

    key_id: str
    pseudonyms: dict[str, str]
    before: Instant | None


class ErasedIn:
    """The subjects of a ledger, to be asked whether a record is of one of them."""

    def __init__(self, keys: KeyRing, org: str, erased: Iterable[Erased]) -> None:
        """Raises KeyMissing when the ring lacks a key that the ledger was written with: nothing could be matched."""
        self._erased = [(keys.pseudonym_key(item.key_id), item) for item in erased]
        self._org = org

    def holds(self, identity: Identity, dated: Instant) -> bool:
        """Whether a record of this identity and date was erased."""
        parts = dict(zip(PARTS, identity.stored()[1:], strict=True))
        return any(
            (item.before is None or dated < item.before)
            and all(key.pseudonym(self._org, part, parts[part]) == name for part, name in item.pseudonyms.items())
            for key, item in self._erased
        )


def erased_since(lines: bytes, org: str, since: Instant, keys: KeyRing) -> ErasedIn:
    """What a ledger file says was asked to be erased or hidden after ``since``; what was restored counts too.

    Raises:
        InputError: it is not a ledger file, or one of another org.
        KeyMissing: it was written with a pseudonym key that the ring does not hold.

    """
    return ErasedIn(keys, org, _read(lines, org, since))


def _read(lines: bytes, org: str, since: Instant) -> Iterator[Erased]:
    try:
        header, *entries = [json.loads(line) for line in lines.split(b"\n") if line.strip()]
        if header["format"] != FORMAT or header["org"] != org:
            raise InputError(
                f"the ledger is not one of org {org!r}"[:200], hint="export it with: expunge ledger -o FILE"
            )
        receipts = [entry["receipt"] for entry in entries if "receipt" in entry]
        ended = {receipt["request_id"] for receipt in receipts}
        intents = [entry["intent"] for entry in entries if "intent" in entry]
        for said in (*receipts, *(intent for intent in intents if intent["request_id"] not in ended)):
            if parse_instant(said["requested_at"], "requested_at") > since:
                yield from _subjects(said["scope"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError("the file is not a ledger", hint="export it with: expunge ledger -o FILE") from None


def _subjects(scope: dict[str, Any]) -> Iterator[Erased]:
    before = None if scope.get("before") is None else parse_instant(scope["before"], "before")
    for pseudonyms in scope["subjects"] if "subjects" in scope else [scope["pseudonyms"]]:
        yield Erased(scope["key_id"], {part: str(pseudonyms[part]) for part in PARTS if part in pseudonyms}, before)
