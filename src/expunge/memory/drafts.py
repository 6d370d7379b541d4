"""Drafts: records that a call writes, checked as those of a file are, and with ids of our own making."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from expunge.datamap import Collection
from expunge.errors import InputError
from expunge.memory.record import BadField, Reading, Record, read_record
from expunge.model.canonical import canonical_plain
from expunge.model.identity import PARTS, Identity
from expunge.system import System

_ID_BYTES = 16


def new_id(kind: Collection) -> str:
    """An id that nobody else makes."""
    return f"{kind.name[:2]}-{secrets.token_hex(_ID_BYTES)}"


def id_for(kind: Collection, identity: Identity, idempotency_key: str | None) -> str | None:
    """The id that an idempotency key gives to what a call writes, so that a repeat finds what is there.

    It goes with its record when that is erased, and nothing else remembers the key. Without one: ``None``, a new id.
    """
    if idempotency_key is None:
        return None
    made = hashlib.sha256(canonical_plain([kind.name, *identity.stored(), idempotency_key]))
    return f"{kind.name[:2]}-{made.hexdigest()[: 2 * _ID_BYTES]}"


class Drafts:
    """The drafts of one call: of one collection and identity, all of one moment."""

    def __init__(self, system: System, kind: Collection, identity: Identity) -> None:
        self.identity, self.now, self._kind = identity, system.clock.now(), kind
        most = system.settings
        self._reading = Reading(identity.org, self.now, most.max_value_bytes, most.max_attachment_bytes)
        self._common = {part: getattr(identity, part) for part in PARTS} | {"collection": kind.name}

    def make(self, said: Mapping[str, Any], *, line: int = 1) -> Record:
        """A record from the fields that a caller gave, with an id of our own unless they have one.

        Raises:
            InputError: a field does not fit; its name and why.

        """
        given = {**said, **self._common}
        fresh = not given.get("id")
        if fresh:
            given["id"] = new_id(self._kind)
        if given.get("sources") is not None:
            given["sources"] = list(given["sources"])
        try:
            record = read_record(given, line, self._reading)
        except BadField as fault:
            raise InputError(f"nothing was written: {fault.field} {fault.reason}") from None
        record.fresh = fresh
        return record


def draft(system: System, kind: Collection, identity: Identity, said: Mapping[str, Any], *, line: int = 1) -> Record:
    """The only draft of a call, or of an identity in it.

    Raises:
        InputError: a field does not fit; its name and why.

    """
    return Drafts(system, kind, identity).make(said, line=line)


def again(record: Record, **values: Any) -> Record:
    """A copy of a draft with other values: a unit of work may be repeated, and a draft is never changed."""
    twin = Record(*_all_of(record))
    twin.values = record.values | values
    return twin


_all_of = attrgetter(*(part.name for part in fields(Record)))
