"""Reading the audit: entries newest first, narrowed by pseudonyms under every key there has been."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from expunge.audit.clear import names_of
from expunge.authority.port import Statement, Tx
from expunge.errors import DatabaseFault
from expunge.keys import KeyRing
from expunge.model.instant import Instant

_LIST = Statement(
    "audit.list",
    """SELECT n, key_id, body FROM audit WHERE org = :org AND n < :below AND n >= 1
    AND (CAST(:actors AS TEXT) IS NULL OR text_in(body, 'actor') IN (SELECT value FROM each_text(:actors)))
    AND (CAST(:users AS TEXT) IS NULL OR EXISTS (
        SELECT 1 FROM each_text(:users) u WHERE instr(body, u.value) > 0 AND EXISTS (
            SELECT 1 FROM each_object(text_in(body, 'subjects')) s WHERE text_in(s.value, 'user_id') = u.value)))
    AND (CAST(:request_id AS TEXT) IS NULL OR text_in(body, 'request_id') = :request_id)
    AND (CAST(:since AS BIGINT) IS NULL OR number_in(body, 'at') >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR number_in(body, 'at') < :until)
    ORDER BY n DESC LIMIT :size""",
)
"""A walk from the newest entry on: nothing stands beside the bodies that could say something else than they do."""
_NEWEST = 1 << 62


@dataclass(frozen=True, slots=True)
class Filter:
    """What entries are narrowed to. ``since`` is the earliest time, ``until`` the first that is too late."""

    user_id: str | None = None
    actor: str | None = None
    request_id: str | None = None
    since: Instant | None = None
    until: Instant | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry: its number, the key it was made with, its body, what its pseudonyms stand for, while known."""

    n: int
    key_id: str
    body: dict[str, Any]
    names: dict[str, str]


def page(
    tx: Tx, keys: KeyRing, org: str, narrowed: Filter, *, limit: int, below: int | None = None
) -> tuple[list[Listed], bool]:
    """Entries with lower numbers than ``below``, newest first, and whether there are more (law 11).

    Raises:
        DatabaseFault: somebody changed an entry so that it cannot be read.

    """

    def under_every_key(part: str, value: str | None) -> str | None:
        if value is None:
            return None
        return json.dumps([key.pseudonym(org, part, value) for key in keys.pseudonym_keys])

    rows = tx.rows(
        _LIST,
        org=org,
        below=_NEWEST if below is None else below,
        actors=under_every_key("actor", narrowed.actor),
        users=under_every_key("user_id", narrowed.user_id),
        request_id=narrowed.request_id,
        since=narrowed.since,
        until=narrowed.until,
        size=limit + 1,
    )
    bodies = [(n, key_id, _read(n, body)) for n, key_id, body in rows[:limit]]
    names = names_of(tx, org, {pseudonym for _, _, body in bodies for pseudonym in _pseudonyms(body)})
    entries = [
        Listed(n, key_id, body, {p: names[p] for p in _pseudonyms(body) if p in names}) for n, key_id, body in bodies
    ]
    return entries, len(rows) > limit


def unreadable(n: int) -> DatabaseFault:
    """The error for an entry that is none of ours; ``verify`` tells what else was changed."""
    return DatabaseFault(
        f"entry {n} of the audit cannot be read: it was changed",
        hint=f"see: expunge audit verify; and what is older: expunge audit list --after {n}",
    )


def _read(n: int, text: str) -> dict[str, Any]:
    try:
        body: dict[str, Any] = json.loads(text)
        if not all(isinstance(name, str) for name in _pseudonyms(body)):
            raise unreadable(n)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise unreadable(n) from None
    return body


def _pseudonyms(body: dict[str, Any]) -> list[str]:
    return [name for name in (body["actor"], body.get("requester")) if name is not None]
