"""``memory.*``: values under keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from expunge import audit
from expunge.authority.port import Tx
from expunge.datamap import MEMORIES
from expunge.errors import InputError, Refused
from expunge.memory import prepare
from expunge.memory.drafts import Drafts, id_for
from expunge.memory.rows import (
    Expired,
    Setting,
    Touch,
    Written,
    delete_row,
    end_row,
    expired_rows,
    get_row,
    restore_row,
    set_rows,
    touch_row,
)
from expunge.memory.versions import Row, Work, as_value, current, versions
from expunge.model.identity import PARTS, Identity
from expunge.model.instant import from_datetime, to_datetime
from expunge.operations.registry import Call, Input, Instants, Number, OrgId, Output, Text, Who, id_of
from expunge.system import System

MOST_AT_ONCE = 1000
Key = Annotated[str, id_of("key")]
IdempotencyKey = Annotated[str, id_of("idempotency_key")]
Ttl = Annotated[int, Field(gt=0, le=100 * 366 * 86_400)]
OnExpire = Literal["tombstone", "demote", "anonymize"]


class Item(Input):
    """A value and what is said of it. Times to live are in seconds; ``confidence`` is from 0 to 1."""

    key: Key
    value: Any
    memory_type: Text | None = None
    tags: list[Text] | None = None
    confidence: float | None = None
    ttl_seconds: Ttl | None = Field(None, description="Served for so many seconds from now.")
    valid_to: Instants | None = Field(None, description="Served until then; instead of ttl_seconds.")
    on_expire: OnExpire | None = Field(None, description="What the sweep does then; tombstone when nothing is said.")
    clear_expiry: bool = Field(default=False, description="Take a live expiry away; otherwise an edit keeps it.")
    sources: Sequence[str] = Field(default=(), description="The ids of the records that it was made from.")
    lineage: Literal["retire", "rebuild", "detach"] | None = Field(
        None, description="Whether it goes with any source (retire, rebuild) or with the last one (detach)."
    )
    deriver: Annotated[str, id_of("deriver")] | None = Field(None, description="What derives it afresh (rebuild).")
    if_version: Number | None = Field(None, description="The version that it has to follow; 0 for none.")
    idempotency_key: IdempotencyKey | None = None


class SetInput(Who, Item):
    """Whose value it is, and the value."""


class SetManyInput(Who):
    """Whose values they are, and 1 to 1,000 of them."""

    items: Annotated[list[Item], Field(min_length=1, max_length=MOST_AT_ONCE)]


class SetOutput(Output):
    """The version that was written; ``replayed`` when an earlier call with the idempotency key has written it."""

    memory_id: str
    key: str
    version: int
    updated_at: datetime
    expires_at: datetime | None
    replayed: bool


class SetManyOutput(Output):
    """The versions that were written, in the order in which they were given."""

    written: list[SetOutput]


async def set_one(system: System, call: Call, given: SetInput) -> SetOutput:
    """Write a value under a key as its next version."""
    return (await _set(system, call, given, [given]))[0]


async def set_many(system: System, call: Call, given: SetManyInput) -> SetManyOutput:
    """Write values, all or nothing."""
    return SetManyOutput(written=await _set(system, call, given, given.items))


async def _set(system: System, call: Call, who: Who, items: list[Any]) -> list[SetOutput]:
    work = Work(system, who.identity, call.as_of)
    drafts = Drafts(system, MEMORIES, work.identity)
    settings = [_setting(drafts, item, line) for line, item in enumerate(items, start=1)]
    await prepare(system, (setting.record for setting in settings))
    written = await system.authority.run(partial(set_rows, work=work, settings=settings))
    return [_set_output(item) for item in written]


def _setting(drafts: Drafts, item: Item, line: int) -> Setting:
    if (item.ttl_seconds is not None) + (item.valid_to is not None) + item.clear_expiry > 1:
        raise InputError("ttl_seconds, valid_to and clear_expiry contradict each other", hint="give one of them")
    fields = {name: getattr(item, name) for name in item.model_fields_set & _AS_GIVEN}
    fields["value"] = 0 if item.value is None else item.value
    fields["id"] = id_for(MEMORIES, drafts.identity, item.idempotency_key)
    record = drafts.make(fields, line=line)
    if item.value is None:
        record.values["value"] = "null"
    if item.ttl_seconds is not None:
        record.values["expires_at"] = drafts.now + item.ttl_seconds * 1_000_000
    elif item.valid_to is not None:
        record.values["expires_at"] = from_datetime(item.valid_to, "valid_to")
        record.given |= {"expires_at"}
    expiry = item.clear_expiry or record.values["expires_at"] is not None
    return Setting(record, expiry=expiry, if_version=item.if_version, keyed=item.idempotency_key is not None)


_AS_GIVEN = {"key", "memory_type", "tags", "confidence", "on_expire", "sources", "lineage", "deriver"}


def _set_output(written: Written) -> SetOutput:
    row = written.row
    return SetOutput(  # pydantic makes a flat answer sooner than model_construct does
        memory_id=row["id"],
        key=row["key"],
        version=row["version"],
        updated_at=to_datetime(row["updated_at"]),
        expires_at=moment(row["expires_at"]),
        replayed=written.replayed,
    )


def moment(instant: int | None) -> datetime | None:
    """An instant as answers give it."""
    return None if instant is None else to_datetime(instant)


class KeyInput(Who):
    """Whose key."""

    key: Key


class KeyWriteInput(KeyInput):
    """Whose key is changed."""

    idempotency_key: IdempotencyKey | None = None


class Memory(Output):
    """A version of a value."""

    memory_id: str
    key: str
    value: Any
    version: int
    memory_type: str | None
    state: str
    tags: list[str]
    confidence: float | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    on_expire: str
    namespace: str | None
    agent: str | None
    user_id: str | None
    session_id: str | None


def memory_of(row: Row) -> Memory:
    """A row as answers give it."""
    values: dict[str, Any] = {name: row[name] for name in _AS_THEY_ARE}
    values |= {"memory_id": row["id"], "value": as_value(row["value"]), "tags": as_value(row["tags"]) or []}
    values |= {"created_at": to_datetime(row["created_at"]), "updated_at": to_datetime(row["updated_at"])}
    values |= {"expires_at": moment(row["expires_at"])}
    return Memory.model_construct(**values, **owner(row))


_AS_THEY_ARE = ("key", "version", "memory_type", "state", "confidence", "on_expire")


def owner(row: Row) -> dict[str, Any]:
    """Whose a row is, as answers give it."""
    return {part: None if row[part] == "-" else row[part] for part in PARTS}


class GetOutput(Output):
    """The value that stands under a key; not ``found`` when there is none, or it was deleted, expired or erased."""

    found: bool
    memory: Memory | None

    @property
    def value(self) -> Any:
        """The value, or ``None`` when there is none."""
        return None if self.memory is None else self.memory.value


async def get(system: System, _call: Call, given: KeyInput) -> GetOutput:
    """Read what stands under a key."""
    now = system.clock.now()
    row = await system.authority.glance(lambda tx: get_row(tx, given.identity, given.key, now))
    return GetOutput.model_construct(found=row is not None, memory=None if row is None else memory_of(row))


class DeleteOutput(Output):
    """Whether something stood under the key, and whether it is deleted now: not ``tombstoned`` is never success."""

    found: bool
    tombstoned: bool
    version: int | None


async def delete(system: System, call: Call, given: KeyWriteInput) -> DeleteOutput:
    """Write a tombstone over a key: reads stop at once, earlier versions stay and can be restored for 14 days."""
    work = Work(system, given.identity, call.as_of)
    name = _repeatable(given, "delete")
    found, row = await system.authority.run(partial(delete_row, work=work, key=given.key, record_id=name))
    return DeleteOutput(found=found, tombstoned=row is not None, version=None if row is None else row["version"])


def _repeatable(given: KeyWriteInput, what: str) -> str | None:
    if given.idempotency_key is None:
        return None
    return id_for(MEMORIES, given.identity, f"{what}\n{given.idempotency_key}")


class RestoreRowOutput(Output):
    """Whether a deleted value was found, whether that was more than 14 days ago, and the version that came back."""

    found: bool
    restored: bool
    expired: bool
    version: int | None


async def restore(system: System, call: Call, given: KeyWriteInput) -> RestoreRowOutput:
    """Bring back what was deleted under a key, within 14 days."""
    work = Work(system, given.identity, call.as_of)
    name = _repeatable(given, "restore")
    done = await system.authority.run(partial(restore_row, work=work, key=given.key, record_id=name))
    version = None if done.row is None else done.row["version"]
    return RestoreRowOutput(found=done.found, restored=done.row is not None, expired=done.expired, version=version)


class HistoryInput(KeyInput):
    """Whose key, and how many of its versions, below a version if one is given."""

    limit: int = Field(50, ge=1, le=MOST_AT_ONCE)
    before_version: Number | None = None


class HistoryOutput(Output):
    """Versions, newest first, tombstones too; ``more`` when there are earlier ones."""

    versions: list[Memory]
    more: bool


async def history(system: System, _call: Call, given: HistoryInput) -> HistoryOutput:
    """Read the versions of a key."""
    limit, below = given.limit + 1, given.before_version
    rows = await system.authority.read(
        lambda tx: versions(tx, MEMORIES, given.identity, given.key, limit=limit, below=below)
    )
    return HistoryOutput(versions=[memory_of(row) for row in rows[: given.limit]], more=len(rows) > given.limit)


class TouchInput(Who):
    """Whose keys (1 to 1,000), and their new expiry."""

    keys: Annotated[list[Key], Field(min_length=1, max_length=MOST_AT_ONCE)]
    ttl_seconds: Ttl | None = None
    valid_to: Instants | None = None
    clear_expiry: bool = False
    on_expire: OnExpire | None = None
    idempotency_key: IdempotencyKey | None = None


class TouchOutput(Output):
    """The keys that were touched, and those under which nothing stands."""

    touched: list[str]
    missing: list[str]


async def touch(system: System, call: Call, given: TouchInput) -> TouchOutput:
    """Change the expiry of values, and nothing else of them."""
    if (given.ttl_seconds is not None) + (given.valid_to is not None) + given.clear_expiry != 1:
        raise InputError("touch takes one of ttl_seconds, valid_to and clear_expiry")
    expires = None if given.valid_to is None else from_datetime(given.valid_to, "valid_to")
    if given.ttl_seconds is not None:
        expires = system.clock.now() + given.ttl_seconds * 1_000_000
    work, change = Work(system, given.identity, call.as_of), Touch(expires, given.on_expire, given.valid_to is not None)

    def unit(tx: Tx) -> list[str]:
        done: list[str] = []
        for key in dict.fromkeys(given.keys):
            name = given.idempotency_key and id_for(MEMORIES, given.identity, f"touch\n{key}\n{given.idempotency_key}")
            if touch_row(tx, work, key, change, name) is not None:
                done.append(key)
        return done

    touched = await system.authority.run(unit)
    return TouchOutput(touched=touched, missing=[key for key in dict.fromkeys(given.keys) if key not in touched])


class SweepInput(Input):
    """Which namespace of an org, or all of it; a dry run changes nothing."""

    org: OrgId
    namespace: Annotated[str, id_of("namespace")] | None = None
    dry_run: bool = False


class SweepOutput(Output):
    """How many expired values there were, and what became of them: by what their writer said, or held."""

    expired: int
    done: dict[str, int]
    dry_run: bool


_PAGE = 200


async def sweep_expired(system: System, call: Call, given: SweepInput) -> SweepOutput:
    """Do to expired values what their writers said. They were hidden from the moment of their expiry on."""
    now = system.clock.now()
    asked, done, total = Expired(given.org, given.namespace, now), dict[str, int](), 0
    while page := await system.authority.read(lambda tx: expired_rows(tx, asked, _PAGE)):  # noqa: B023 (awaited)
        total += len(page)
        for act in [] if given.dry_run else await _end_expired(system, call, given.org, page):
            done[act] = done.get(act, 0) + 1
        asked = Expired(given.org, given.namespace, now, (page[-1]["expires_at"], page[-1]["rid"]))
    return SweepOutput(expired=total, done=done, dry_run=given.dry_run)


async def _end_expired(system: System, call: Call, org: str, page: list[Row]) -> list[str]:
    """End the rows of a page in one commit; where one is refused each by itself, so that it stops no other (law 8)."""
    end = partial(_end_page, system=system, call=call, org=org)
    try:
        return await system.authority.run(partial(end, page=page))
    except Refused:
        acts: list[str] = []
        for row in page:
            try:
                acts += await system.authority.run(partial(end, page=[row]))
            except Refused:
                acts.append("refused")
        return acts


def _end_page(tx: Tx, *, system: System, call: Call, page: list[Row], org: str) -> list[str]:
    acts: list[str] = []
    for row in page:
        identity = Identity(org, **owner(row))
        now = current(tx, MEMORIES, identity, row["key"])
        if now is not None and now["id"] == row["id"]:  # nothing was written meanwhile
            acts.append(end_row(tx, Work(system, identity, call.as_of), row))
    entry = audit.Entry(
        org=org,
        at=system.clock.now(),
        actor=call.actor.id,
        role=call.actor.role.name.lower(),
        operation="memory.sweep_expired",
        outcome="done",
        detail={act: acts.count(act) for act in set(acts)},
        as_of=call.as_of.get(org, 0),
    )
    audit.record(tx, system.keys, entry)
    return acts
