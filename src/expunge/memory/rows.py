"""Memory rows: a value under a key of an identity, each change a version of it (seed page Loom, "Deleting memory")."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from expunge.authority.port import Statement, Tx
from expunge.datamap import CODES, MEMORIES, Rule
from expunge.errors import IdempotencyConflict, VersionConflict
from expunge.holds import not_held
from expunge.memory.drafts import again, new_id
from expunge.memory.prepare import texts_of
from expunge.memory.record import Record
from expunge.memory.versions import (
    RESTORABLE_FOR,
    Row,
    Work,
    by_id,
    current,
    later,
    sources_of,
    standing,
    vector_of,
    versions,
    written,
)
from expunge.model.identity import PARTS, Identity
from expunge.model.instant import Instant
from expunge.search import Entry
from expunge.search.index import drop_entries
from expunge.search.served import is_current

DEMOTED_BY = 0.5
"""What the confidence of a demoted row is multiplied with."""
LEAST_CONFIDENCE = 0.05
_CONTENT = ("key", "value", "memory_type", "tags", "confidence", "on_expire", "deriver")


class Setting(NamedTuple):
    """A version to be written.

    ``expiry`` says whether the caller gave one, or took one away; otherwise a live one stays. ``if_version`` is the
    version that it is to follow (0: none). ``keyed`` says whether its id is that of an idempotency key.
    """

    record: Record
    expiry: bool = False
    if_version: int | None = None
    keyed: bool = False


class Written(NamedTuple):
    """A version that stands now, and whether an earlier call with the same idempotency key has written it."""

    row: Row
    replayed: bool = False


def is_live(row: Row | None, now: Instant) -> bool:
    """Whether reads serve a version: not deleted, not expired. It is hidden the instant the expiry passes."""
    return row is not None and row["state"] == "live" and (row["expires_at"] is None or row["expires_at"] > now)


def set_rows(tx: Tx, work: Work, settings: Sequence[Setting]) -> list[Written]:
    """Write versions, all or nothing.

    Raises:
        IdempotencyConflict: an idempotency key has written something else.
        VersionConflict: the newest version is not the one that was to be followed.
        Refused: as ``put_records``.

    """
    now = work.system.clock.now()
    work.hold(
        tx, MEMORIES, [given.record.values["key"] for given in settings], [g.record.id for g in settings if g.keyed]
    )
    replayed = [_replayed(tx, given) for given in settings]
    keys = {given.record.values["key"]: None for given, row in zip(settings, replayed, strict=True) if row is None}
    newest = standing(tx, MEMORIES, work.identity, list(keys))
    fresh: list[Record] = []
    rows: list[Row] = []
    for given, row in zip(settings, replayed, strict=True):
        if row is None:
            key = given.record.values["key"]
            record = _following(given, newest.get(key), now)
            fresh.append(record)
            rows.append(record.values)
            newest[key] = record.values
        else:
            rows.append(row)
    if fresh:
        given_versions = work.put(tx, fresh).versions
        for record in fresh:  # each a copy of this attempt's, see again()
            record.values |= {"id": record.id, "version": given_versions[record.id]}
    return [Written(row, was is not None) for row, was in zip(rows, replayed, strict=True)]


def _following(given: Setting, before: Row | None, now: Instant) -> Record:
    """The draft as the version after the one that is current, as far as reads see it; writing it gives the number."""
    version = 0 if before is None else before["version"]
    if given.if_version is not None and version != given.if_version:
        raise VersionConflict(f"the newest version is {version or 'none'}, not {given.if_version or 'none'}")
    if before is not None and not given.expiry and is_live(before, now):
        kept = {"expires_at": before["expires_at"], "on_expire": before["on_expire"]}
        return again(given.record, updated_at=later(before, now), version=version + 1, **kept)
    return again(given.record, updated_at=later(before, now), version=version + 1)


def _replayed(tx: Tx, given: Setting) -> Row | None:
    if not given.keyed:
        return None
    row = by_id(tx, MEMORIES, given.record.org, given.record.id)
    if row is not None and not _says(tx, row, given):
        raise IdempotencyConflict
    return row


def _says(tx: Tx, row: Row, given: Setting) -> bool:
    """Whether a stored version is what a repeat would write. One that is detached may have lost sources since."""
    compared = [name for name in _CONTENT if given.expiry or name != "on_expire"]
    compared += ["expires_at"] if "expires_at" in given.record.given else []
    sources, rule = sources_of(tx, row["org"], row["id"])
    lost = set(given.record.sources) - set(sources)
    rests = set(sources) <= set(given.record.sources) and (not lost or rule is Rule.DETACH or row["state"] != "live")
    if lost and given.record.rule is Rule.DETACH:
        rests = set(sources) <= set(given.record.sources)
    return rests and all(row[name] == given.record.values[name] for name in compared)


def get_row(tx: Tx, identity: Identity, key: str, now: Instant) -> Row | None:
    """The current version of a key, if it is served."""
    row = current(tx, MEMORIES, identity, key)
    return row if is_live(row, now) else None


def delete_row(tx: Tx, work: Work, key: str, record_id: str | None) -> tuple[bool, Row | None]:
    """Write a tombstone over a key: whether a live row was found, and the tombstone (law 2: it is its version row)."""
    work.hold(tx, MEMORIES, [key], [] if record_id is None else [record_id])
    if record_id is not None and (done := by_id(tx, MEMORIES, work.identity.org, record_id)) is not None:
        if done["state"] != "tombstoned" or done["key"] != key:
            raise IdempotencyConflict
        return True, done
    now = work.system.clock.now()
    row = current(tx, MEMORIES, work.identity, key)
    if row is None or not is_live(row, now):
        return False, None
    return True, _replace(tx, work, row, record_id, state="tombstoned", value="null", tags=None, memory_type=None)


@dataclass(frozen=True, slots=True)
class Restoring:
    """What became of a restore: whether there is a tombstone, whether it is too old, and the version that came back."""

    found: bool
    expired: bool = False
    row: Row | None = None


def restore_row(tx: Tx, work: Work, key: str, record_id: str | None) -> Restoring:
    """Bring the value under a tombstone back as its next version, for 14 days; without an expiry."""
    work.hold(tx, MEMORIES, [key], [] if record_id is None else [record_id])
    if record_id is not None and (done := by_id(tx, MEMORIES, work.identity.org, record_id)) is not None:
        if done["state"] != "live" or done["key"] != key:
            raise IdempotencyConflict
        return Restoring(found=True, row=done)
    now = work.system.clock.now()
    top = current(tx, MEMORIES, work.identity, key)
    if top is None or top["state"] != "tombstoned":
        return Restoring(found=False)
    if now >= top["updated_at"] + RESTORABLE_FOR:
        return Restoring(found=True, expired=True)
    earlier = versions(tx, MEMORIES, work.identity, key, limit=1000, below=top["version"])
    last = next((row for row in earlier if row["state"] == "live"), None)
    if last is None:
        return Restoring(found=False)
    last = last | {"updated_at": top["updated_at"]}
    return Restoring(found=True, row=_replace(tx, work, last, record_id, expires_at=None))


@dataclass(frozen=True, slots=True)
class Touch:
    """A new expiry for a row: when (``None``: never) and what then, if that is to change."""

    expires_at: Instant | None
    on_expire: str | None
    is_date: bool
    """Whether it was given as a date: a repeat of a time to live comes to another one."""


def touch_row(tx: Tx, work: Work, key: str, touch: Touch, record_id: str | None) -> Row | None:
    """Change the expiry of a live row, by a version that is otherwise the same; ``None`` when there is none."""
    work.hold(tx, MEMORIES, [key], [] if record_id is None else [record_id])
    if record_id is not None and (done := by_id(tx, MEMORIES, work.identity.org, record_id)) is not None:
        asked = (touch.expires_at is None, touch.on_expire or done["on_expire"])
        same = asked == (done["expires_at"] is None, done["on_expire"])
        if done["key"] != key or not same or (touch.is_date and touch.expires_at != done["expires_at"]):
            raise IdempotencyConflict
        return done
    row = current(tx, MEMORIES, work.identity, key)
    if row is None or not is_live(row, work.system.clock.now()):
        return None
    on_expire = touch.on_expire or row["on_expire"]
    return _replace(tx, work, row, record_id, expires_at=touch.expires_at, on_expire=on_expire)


def _replace(tx: Tx, work: Work, row: Row, record_id: str | None, **changes: Any) -> Row:
    """Write the next version of a row with some values changed. It rests on what the row rested on (law 5)."""
    now = work.system.clock.now()
    identity = Identity(row["org"], *(None if row[part] == "-" else row[part] for part in PARTS))
    values = {column.name: row[column.name] for column in MEMORIES.content} | changes
    times = {"created_at": row["created_at"], "recorded_at": now, "updated_at": later(row, now)}
    sources, rule = sources_of(tx, row["org"], row["id"]) if values["state"] == "live" else ((), None)
    name = record_id or new_id(MEMORIES)
    record = Record(
        1, MEMORIES, name, identity, times | values, sources, frozenset(), rule=rule, fresh=record_id is None
    )
    if values["state"] == "live":
        model, vector = vector_of(tx, MEMORIES, row)
        words = work.system.words
        entry = Entry(words.owner(identity.stored()), words.hashed(identity.org, texts_of(record)), model, vector)
        record = replace(record, entry=entry)
    work.put(tx, [record])
    return written(tx, MEMORIES, record)


_EXPIRED = Statement(
    "memories.expired",
    f"""SELECT r.rid, r.id FROM memories r WHERE unindexed(r.org) = :org AND r.expires_at IS NOT NULL
    AND (r.expires_at, r.rid) > (:after, :rid) AND r.expires_at <= :now AND r.marked = 0 AND r.state = 'live'
    AND (CAST(:namespace AS TEXT) IS NULL OR r.namespace = :namespace)
    AND {is_current(MEMORIES)}
    ORDER BY r.expires_at, r.rid LIMIT :size""",
)
_ANONYMIZE = Statement(
    "memories.anonymize",
    f"""UPDATE memories AS r SET value = '"[anonymized]"', tags = NULL, memory_type = NULL, state = 'anonymized',
    expires_at = NULL, deriver = NULL
    WHERE r.org = :org AND r.namespace = :namespace AND r.user_id = :user_id AND r.agent = :agent
    AND r.session_id = :session_id AND r.key = :key AND r.state <> 'anonymized' AND {not_held("memories")}
    RETURNING rid""",
)


@dataclass(frozen=True, slots=True)
class Expired:
    """Which expired rows: of an org, or of one namespace of it, by when, and after which expiry and row number."""

    org: str
    namespace: str | None
    now: Instant
    after: tuple[Instant, int] = (-(2**62), 0)


def expired_rows(tx: Tx, asked: Expired, size: int) -> list[Row]:
    """A page of the current rows whose expiry has passed, in the order of that."""
    org, bounds = asked.org, {"after": asked.after[0], "rid": asked.after[1], "now": asked.now, "size": size}
    found = tx.rows(_EXPIRED, org=org, namespace=asked.namespace, **bounds)
    return [row for _, record_id in found if (row := by_id(tx, MEMORIES, org, record_id)) is not None]


def end_row(tx: Tx, work: Work, row: Row) -> str:
    """Do to an expired row what its writer said: tombstone, demote or anonymize. What was done, or ``held``."""
    act = str(row["on_expire"])
    if act == "tombstone":
        last = row | {"updated_at": row["updated_at"]}
        _replace(tx, work, last, None, state="tombstoned", value="null", tags=None, memory_type=None, expires_at=None)
    elif act == "demote":
        confidence = 1.0 if row["confidence"] is None else row["confidence"]
        lower = max(confidence * DEMOTED_BY, LEAST_CONFIDENCE)
        _replace(tx, work, row, None, confidence=lower, expires_at=None)
    else:
        values = {name: row[name] for name in ("org", *PARTS, "key")}
        went = tx.rows(_ANONYMIZE, **values)
        if not went:
            return "held"
        drop_entries(tx, json.dumps([rid * CODES + MEMORIES.search_code for (rid,) in went]))
    return act
