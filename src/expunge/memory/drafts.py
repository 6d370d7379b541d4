"""Drafts: records that a call writes, checked as those of a file are, and with ids of our own making."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import replace
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


def draft(system: System, kind: Collection, identity: Identity, fields: Mapping[str, Any], *, line: int = 1) -> Record:
    """A record of a collection from the fields that a caller gave, with an id of our own unless they have one.

    Raises:
        InputError: a field does not fit; its name and why.

    """
    settings = system.settings
    reading = Reading(identity.org, system.clock.now(), settings.max_value_bytes, settings.max_attachment_bytes)
    given = {name: value for name, value in fields.items() if value is not None}
    for part in PARTS:
        if (value := getattr(identity, part)) is not None:
            given[part] = value
    given |= {
        "sources": list(given.get("sources", ())),
        "collection": kind.name,
        "id": fields.get("id") or new_id(kind),
    }
    try:
        record = read_record(given, line, reading)
    except BadField as fault:
        raise InputError(f"nothing was written: {fault.field} {fault.reason}") from None
    record.fresh = fields.get("id") is None
    return record


def again(record: Record, **values: Any) -> Record:
    """A copy of a draft with other values: a unit of work may be repeated, and a draft is never changed."""
    return replace(record, values=record.values | values)
