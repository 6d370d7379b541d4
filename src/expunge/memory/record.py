"""Reading a record: the fields of a line, their defaults, and what is wrong with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from expunge.datamap import RECORDS, Collection, Kind
from expunge.errors import InputError
from expunge.model.identity import PARTS, Identity
from expunge.model.ids import check_id, shown
from expunge.model.instant import Instant, parse_instant

_TIMES = ("created_at", "recorded_at", "updated_at")
_COMMON = frozenset({"collection", "id", "org", "sources", *PARTS, *_TIMES})
_BY_NAME = {collection.name: collection for collection in RECORDS if collection.written_by is None}
_BRINGS = {collection.written_by: collection.name for collection in RECORDS if collection.written_by}
"""Which fields bring records of another collection with them."""


class BadField(Exception):
    """What is wrong with one field; a batch collects these into ``InvalidRecords``."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field, self.reason = field, reason


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A line that was not taken: its number (from 1), the field, and why."""

    line: int
    field: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}, field {self.field}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading a record needs to know of its call."""

    org: str
    now: Instant
    max_value_bytes: int


@dataclass(slots=True)
class Record:
    """A record that is valid by itself. ``values`` holds its stored columns, ``given`` the fields it came with."""

    line: int
    collection: Collection
    id: str
    identity: Identity
    values: dict[str, Any]
    sources: tuple[str, ...]
    given: frozenset[str]
    files: tuple[str, ...] = ()
    """The paths of its attachments, as they were given."""
    brings: list[Record] = field(default_factory=list)
    """Records that came with it and go with it, when it is rejected."""

    @property
    def org(self) -> str:
        """The org that it belongs to."""
        return self.identity.org

    @property
    def key(self) -> tuple[str, str]:
        """What it is known by: its org and id."""
        return self.identity.org, self.id

    @property
    def dated(self) -> Instant:
        """The time by which its collection is dated."""
        return int(self.values[self.collection.time])

    @property
    def needs(self) -> tuple[str, ...]:
        """The ids that must be there before it: its sources and its parent."""
        parent = self.collection.parent
        return self.sources if parent is None else (*self.sources, self.values[parent.column])


def read_line(line: bytes) -> object:
    """Decode one line of JSON.

    Raises:
        BadField: not UTF-8, not JSON, a name given twice, or nested too deep; the field is ``line``.

    """
    try:
        return json.loads(line.decode(), object_pairs_hook=_distinct)
    except UnicodeDecodeError:
        raise BadField("line", "is not UTF-8") from None
    except RecursionError:
        raise BadField("line", "is nested too deep") from None
    except ValueError as fault:
        where = f" (column {fault.colno})" if isinstance(fault, json.JSONDecodeError) else ""
        raise BadField("line", f"is not JSON{where}") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise BadField(shown(next(name for name in names if names.count(name) > 1)), "is given twice")
    return fields


def read_record(raw: object, line: int, reading: Reading) -> Record:
    """Read a record from its JSON form.

    Raises:
        BadField: the first field that is unknown, missing or not valid.

    """
    if not isinstance(raw, dict):
        raise BadField("line", f"must be an object, not {type(raw).__name__}")
    fields = {name: value for name, value in raw.items() if value is not None}
    collection = _BY_NAME.get(fields["collection"]) if isinstance(fields.get("collection"), str) else None
    if collection is None:
        raise BadField("collection", f"must be one of {', '.join(_BY_NAME)}")
    known = _COMMON | {column.name for column in collection.content} | {_BRINGS.get(collection.name, "id")}
    for name in raw:
        if name not in known:
            raise BadField(shown(name), f"is not a field of {collection.name}")
    record_id = _id(fields.get("id"), "id")
    values = _read_times(fields, reading)
    for column in collection.content:
        values[column.name] = _read_content(fields, column.name, column.kind, reading.max_value_bytes)
        if column.required and values[column.name] is None:
            raise BadField(column.name, "is missing")
    if "occurred_at" in values and values["occurred_at"] is None:
        values["occurred_at"] = values["created_at"]
    _check_order(values)
    identity = _read_identity(fields, reading.org, collection, record_id)
    sources, files = _read_sources(fields, record_id), _read_files(fields)
    return Record(line, collection, record_id, identity, values, sources, frozenset(fields), files)


def _id(value: object, field: str) -> str:
    if value is None:
        raise BadField(field, "is missing")
    try:
        return check_id(value, "it")
    except InputError as fault:
        raise BadField(field, fault.message) from None


def _read_identity(fields: dict[str, Any], org: str, collection: Collection, record_id: str) -> Identity:
    parts = {name: _id(fields[name], name) for name in PARTS if name in fields}
    if collection.name == "sessions" and parts.setdefault("session_id", record_id) != record_id:
        raise BadField("session_id", "differs from the id of the session")
    return Identity(org=_id(fields.get("org", org), "org"), **parts)


def _read_times(fields: dict[str, Any], reading: Reading) -> dict[str, Any]:
    created = _instant(fields, "created_at")
    if created is None:
        created = reading.now
    values: dict[str, Any] = {"created_at": created}
    for name in _TIMES[1:]:
        given = _instant(fields, name)
        values[name] = created if given is None else given
    return values


def _instant(fields: dict[str, Any], name: str) -> Instant | None:
    if name not in fields:
        return None
    try:
        return parse_instant(fields[name], "it")
    except InputError as fault:
        raise BadField(name, fault.message) from None


def _read_content(fields: dict[str, Any], name: str, kind: Kind | None, most: int) -> Any:
    if name not in fields:
        return None
    if kind is Kind.INSTANT:
        return _instant(fields, name)
    if kind is Kind.KEY:
        return _id(fields[name], name)
    value = fields[name]
    if kind is Kind.JSON:
        value = _as_json(value, name)
    elif not isinstance(value, str):
        raise BadField(name, f"must be text, not {type(value).__name__}")
    elif "\0" in value:
        raise BadField(name, "holds a NUL character, which not every authority can store")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise BadField(name, "holds a lone surrogate") from None
    if size > most:
        raise BadField(name, f"has {size} bytes, more than {most} (max_value_bytes)")
    return value


def _as_json(value: object, name: str) -> str:
    """NaN and the infinities are no JSON, although Python reads them; a caller may give what is none at all."""
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise BadField(
            name, "is no JSON: NaN, infinite, circular, too deep, or of a kind that JSON does not have"
        ) from None


def _check_order(values: dict[str, Any]) -> None:
    start, end = values.get("valid_from"), values.get("valid_to")
    if start is not None and end is not None and end < start:
        raise BadField("valid_to", "is earlier than valid_from")


def _read_sources(fields: dict[str, Any], record_id: str) -> tuple[str, ...]:
    sources = fields.get("sources", [])
    if not isinstance(sources, list):
        raise BadField("sources", f"must be a list of ids, not {type(sources).__name__}")
    read = tuple(_id(source, "sources") for source in sources)
    if record_id in read:
        raise BadField("sources", "names the record itself")
    return tuple(dict.fromkeys(read))


def _read_files(fields: dict[str, Any]) -> tuple[str, ...]:
    files = fields.get("attachments", [])
    if not isinstance(files, list) or not all(isinstance(name, str) and name for name in files):
        raise BadField("attachments", "must be a list of paths")
    if any("\ud800" <= char <= "\udfff" for name in files for char in name):
        raise BadField("attachments", "holds a lone surrogate")
    if len(set(files)) < len(files):
        raise BadField("attachments", "names a file twice")
    return tuple(files)
