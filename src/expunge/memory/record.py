"""Reading a record: the fields of a line, their defaults, and what is wrong with it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from expunge.datamap import RECORDS, Collection, Column, Kind, Role, Rule
from expunge.errors import InputError
from expunge.model.identity import PARTS, Identity
from expunge.model.ids import check_id, shown
from expunge.model.instant import Instant, parse_instant
from expunge.search import Entry

_TIMES = ("created_at", "recorded_at", "updated_at")
TIMES = frozenset({"created_at", "recorded_at", "updated_at", "occurred_at", "expires_at", "due_at"})
"""Times that default to another moment, so a record that does not give them says nothing about them."""
_COMMON = frozenset({"collection", "id", "org", "sources", *PARTS, *_TIMES})
_BY_NAME = {
    collection.name: collection for collection in RECORDS if collection.written_by is None and collection.content
}
_BRINGS = {"episodes": {"attachments"}, "documents": {"text", "path"}}
"""Which fields bring bodies, and records of another collection, with them."""
_KNOWN = {
    name: _COMMON
    | {column.name for column in kind.content}
    | _BRINGS.get(name, set())
    | ({"lineage"} if kind.rules else set())
    for name, kind in _BY_NAME.items()
}
_EXPORTED = {kind.name: kind for kind in RECORDS}
_KNOWN_EXPORTED = {
    name: _COMMON
    | {column.name for column in kind.content}
    | ({"lineage"} if kind.rules else set())
    | ({"version"} if kind.versioned_by else set())
    | ({"bytes", "sha256"} if kind.body_in else set())
    for name, kind in _EXPORTED.items()
}
"""The same in an export, where what a record brings has records of its own, and versions and bodies are described."""


@dataclass(frozen=True, slots=True)
class _Form:
    """What a caller fills of a collection: its columns, those of them that it has to, and what stands in the rest.

    ``as_created`` are the times that are the one of its creation, when nothing else is said.
    """

    columns: dict[str, Column]
    required: tuple[str, ...]
    empty: dict[str, Any]
    as_created: tuple[str, ...]

    @classmethod
    def of(cls, kind: Collection) -> _Form:
        columns = {name: Column(name, Role.TIME, Kind.INSTANT) for name in _TIMES}
        columns |= {column.name: column for column in kind.content}
        return cls(
            columns,
            tuple(column.name for column in kind.content if column.required),
            {column.name: column.default for column in columns.values()},
            tuple(name for name in (*_TIMES[1:], "occurred_at", "due_at") if name in columns),
        )


_FORMS = {name: _Form.of(kind) for name, kind in _EXPORTED.items()}
_MOST_WHOLE = 2**53 - 1
"""Whole numbers above it are not the same in every reader of JSON."""


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
    max_body_bytes: int
    exported: bool = False
    """Whether the records come from an export."""


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
    """The paths of its attachments, or of its original, as they were given."""
    text: str | None = None
    """The text of a document."""
    rule: Rule | None = None
    """The lineage rule that its writer chose, instead of its collection's."""
    brings: tuple[Record, ...] = ()
    """Records that came with it and go with it, when it is rejected."""
    body: bytes | None = None
    """The bytes of its body, when they are not in a file."""
    entry: Entry | None = None
    """What the search index will know of it."""
    version: int | None = None
    """The version that an export says it is."""
    fresh: bool = False
    """Whether its id was made for it just now, so that nobody has to look whether it is there."""

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
    kinds, known = (_EXPORTED, _KNOWN_EXPORTED) if reading.exported else (_BY_NAME, _KNOWN)
    collection = kinds.get(fields["collection"]) if isinstance(fields.get("collection"), str) else None
    if collection is None:
        raise BadField("collection", f"must be one of {', '.join(kinds)}")
    if not raw.keys() <= known[collection.name]:
        name = next(name for name in raw if name not in known[collection.name])
        raise BadField(shown(name), f"is not a field of {collection.name}")
    record_id = _id(fields.get("id"), "id")
    values = _read_values(fields, collection, reading)
    identity = _read_identity(fields, reading.org, collection, record_id)
    sources, files = _read_sources(fields, record_id), _read_files(fields)
    record = Record(line, collection, record_id, identity, values, sources, frozenset(fields), files)
    record.rule = _read_rule(fields, collection)
    if reading.exported:
        _complete_exported(record, fields)
    if collection.name in _COMPLETED:
        _COMPLETED[collection.name](record, fields, reading)
    return record


def _read_values(fields: dict[str, Any], collection: Collection, reading: Reading) -> dict[str, Any]:
    form = _FORMS[collection.name]
    values = form.empty.copy()
    for name, value in fields.items():
        if name in form.columns:
            values[name] = _read_content(value, form.columns[name], reading.max_value_bytes)
    for name in form.required:
        if values[name] is None:
            raise BadField(name, "is missing")
    if values["created_at"] is None:
        values["created_at"] = reading.now
    for name in form.as_created:
        if values[name] is None:
            values[name] = values["created_at"]
    _check_order(values)
    return values


def _complete_exported(record: Record, fields: dict[str, Any]) -> None:
    if record.collection.versioned_by is not None:
        record.version = _whole(fields.get("version", 0), "version")
    if record.collection.body_in is not None:
        record.values["bytes"] = _whole(fields.get("bytes"), "bytes")
        record.values["sha256"] = fields.get("sha256")
        _check_text(record.values["sha256"], "sha256", 64)


def _complete_fact(record: Record, _fields: dict[str, Any], _reading: Reading) -> None:
    record.values["predicate_key"] = predicate_of(record.values["predicate"])


def _complete_answer(record: Record, _fields: dict[str, Any], _reading: Reading) -> None:
    if record.values["asked"] is None:
        record.values["asked"] = asked_as(record.identity, record.values["question"])


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_GAP = re.compile(r"[\s\-]+")


def predicate_of(text: str) -> str:
    """A predicate in the form in which two are compared: ``worksAt``, ``works at`` and ``works-at`` are one."""
    return _GAP.sub("_", _HUMP.sub("_", text.strip())).casefold()


def asked_as(identity: Identity, question: str, within: str = "") -> str:
    """What two spellings of one question have in common, for one identity and the records that it was put to."""
    words = " ".join(question.casefold().split())
    return hashlib.sha256("\0".join((*identity.stored(), within, words)).encode()).hexdigest()


def _id(value: object, field: str) -> str:
    if value is None:
        raise BadField(field, "is missing")
    try:
        return check_id(value, "it")
    except InputError as fault:
        raise BadField(field, fault.message) from None


def _read_identity(fields: dict[str, Any], org: str, collection: Collection, record_id: str) -> Identity:
    given, session = fields.get, fields.get("session_id")
    if collection.name == "sessions":
        session = given("session_id", record_id)
        if session != record_id:
            raise BadField("session_id", "differs from the id of the session")
    try:
        return identity_of(given("org", org), given("namespace"), given("agent"), given("user_id"), session)
    except (InputError, TypeError):  # of several that are bad the first is named, by its own check
        for name, value in {"org": org, **fields}.items():
            if name == "org" or name in PARTS:
                _id(value, name)
        raise


@lru_cache(maxsize=4096)
def identity_of(org: str, *parts: str | None) -> Identity:
    """An identity that many records share: its parts are checked once."""
    return Identity(org, *parts)


def _instant(value: object, name: str) -> Instant:
    try:
        return parse_instant(value, "it")
    except InputError as fault:
        raise BadField(name, fault.message) from None


def _read_content(value: object, column: Column, most: int) -> Any:
    name, kind = column.name, column.kind
    if kind is Kind.JSON:
        value = _as_json(value, name)
    elif kind is not Kind.TEXT:
        return _READ[kind](value, name)
    _check_text(value, name, most)
    if column.choices and value not in column.choices:
        raise BadField(name, f"must be one of {', '.join(column.choices)}")
    return value


def _check_text(value: object, name: str, most: int, setting: str = "max_value_bytes") -> None:
    if not isinstance(value, str):
        raise BadField(name, f"must be text, not {type(value).__name__}")
    if "\0" in value:
        raise BadField(name, "holds a NUL character, which not every authority can store")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise BadField(name, "holds a lone surrogate") from None
    if size > most:
        raise BadField(name, f"has {size} bytes, more than {most} ({setting})")


def _whole(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_WHOLE:
        raise BadField(name, "must be a whole number from 0")
    return value


def _share(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadField(name, "must be a number from 0 to 1")
    return float(value)


def _flag(value: object, name: str) -> int:
    if not isinstance(value, bool):
        raise BadField(name, "must be true or false")
    return int(value)


_READ: Mapping[Kind | None, Callable[[object, str], Any]] = {
    Kind.INSTANT: _instant,
    Kind.KEY: _id,
    Kind.NUMBER: _whole,
    Kind.SHARE: _share,
    Kind.FLAG: _flag,
}
_AS_JSON = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
"""Made once: to make one costs more than what it does."""


def _as_json(value: object, name: str) -> str:
    """NaN and the infinities are no JSON, although Python reads them; a caller may give what is none at all."""
    try:
        return _AS_JSON.encode(value)
    except (TypeError, ValueError, RecursionError):
        raise BadField(
            name, "is no JSON: NaN, infinite, circular, too deep, or of a kind that JSON does not have"
        ) from None


def _check_order(values: dict[str, Any]) -> None:
    start, end = values.get("valid_from"), values.get("valid_to")
    if start is not None and end is not None and end < start:
        raise BadField("valid_to", "is earlier than valid_from")


def _read_sources(fields: dict[str, Any], record_id: str) -> tuple[str, ...]:
    sources = fields.get("sources")
    if sources is None:
        return ()
    if not isinstance(sources, list):
        raise BadField("sources", f"must be a list of ids, not {type(sources).__name__}")
    read = tuple(_id(source, "sources") for source in sources)
    if record_id in read:
        raise BadField("sources", "names the record itself")
    return tuple(dict.fromkeys(read))


def _read_rule(fields: dict[str, Any], collection: Collection) -> Rule | None:
    if "lineage" not in fields:
        return None
    if fields["lineage"] not in collection.rules:
        raise BadField("lineage", f"must be one of {', '.join(collection.rules)}")
    return Rule(fields["lineage"])


def _read_original(record: Record, fields: dict[str, Any], reading: Reading) -> None:
    """A document comes as a text, as a file, or as a file with the text that somebody has read out of it."""
    if reading.exported:
        return
    record.text = fields.get("text")
    if record.text is not None:
        _check_text(record.text, "text", reading.max_body_bytes, "max_attachment_bytes")
    path = fields.get("path")
    if path is None and record.text is None and record.values["state"] == "live":
        raise BadField("text", "is missing, and so is path: a document comes as a text or as a file")
    if path is not None:
        record.files = _read_files({"attachments": [path]})
    if len(record.files) > 1 or (record.values["state"] != "live" and (record.files or record.text is not None)):
        raise BadField("state", "is not live, and such a version of a document has no content")


def _read_files(fields: dict[str, Any]) -> tuple[str, ...]:
    files = fields.get("attachments")
    if files is None:
        return ()
    if not isinstance(files, list) or not all(isinstance(name, str) and name for name in files):
        raise BadField("attachments", "must be a list of paths")
    if any("\ud800" <= char <= "\udfff" for name in files for char in name):
        raise BadField("attachments", "holds a lone surrogate")
    if len(set(files)) < len(files):
        raise BadField("attachments", "names a file twice")
    return tuple(files)


_COMPLETED: Mapping[str, Callable[[Record, dict[str, Any], Reading], None]] = {
    "documents": _read_original,
    "facts": _complete_fact,
    "answers": _complete_answer,
}
"""What follows from the fields of a record, beside what stands in them."""
