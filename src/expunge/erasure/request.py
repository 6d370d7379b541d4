"""The working row of an erasure: read at the start of each commit, written at its end (design 4)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from expunge.authority.port import Statement, Tx
from expunge.datamap import LINEAGE, RECORDS
from expunge.errors import RunnerSuperseded, UnknownRequest
from expunge.model.ids import shown
from expunge.model.instant import Instant
from expunge.model.scope import Scope


class Status(StrEnum):
    """How an erasure stands."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    ABANDONED = "abandoned"
    BLOCKED = "blocked"


class Step(StrEnum):
    """The steps, in order. Steps for sources, stores and external systems join when there are any."""

    OPEN = "open"
    FENCE = "fence"
    PLAN = "plan"
    MARK = "mark"
    LOWER = "lower"
    PURGE = "purge"
    CENSUS = "census"
    FORGET = "forget"
    RECLAIM = "reclaim"
    FINISH = "finish"


COUNTED = tuple(collection.name for collection in (*RECORDS, LINEAGE))
"""The collections that answers and receipts give numbers for."""

Tally = dict[str, Counter[int]]
"""Counts by name and by the position of the subject."""

_COLUMNS = (
    "rid, id, org, scope_type, scope, before, subjects, key_id, actor, purge, status, attempt, current_step, "
    "steps_completed, plan_hash, fence_seq, lowered_seq, requested_at, updated_at, verified_at, failure_reason, "
    "found, removed, effects, deferred, census"
)
_NAMES = _COLUMNS.replace(" ", "").split(",")
_FIXED = frozenset({"rid", "id", "org", "scope_type", "before", "subjects", "key_id", "actor", "purge", "requested_at"})
"""What a request is opened with. To set it again would write its index entries again in every commit."""
_CHANGING = [name for name in _NAMES if name not in _FIXED]
_FIND = Statement("requests.find", f"SELECT {_COLUMNS} FROM requests WHERE id = :id AND org = :org")
_LIST = Statement(
    "requests.list",
    f"SELECT {_COLUMNS} FROM requests WHERE org = :org AND rid < :below ORDER BY rid DESC LIMIT :size",
)
_STOPPED = Statement(
    "requests.stopped",
    f"""SELECT {_COLUMNS} FROM requests
    WHERE org = :org AND scope IS NOT NULL AND status IN ('failed', 'abandoned', 'blocked')""",
)
_INSERT = Statement(
    "requests.insert",
    f"""INSERT INTO requests ({_COLUMNS.removeprefix("rid, ")})
    VALUES ({", ".join(":" + name for name in _NAMES[1:])}) RETURNING rid""",
)
_SAVE = Statement(
    "requests.save",
    f"""UPDATE requests SET {", ".join(f"{name} = :{name}" for name in _CHANGING)}
    WHERE rid = :rid AND attempt = :mine AND status = :held""",
)
_JSON = ("scope", "subjects", "steps_completed", "removed", "effects", "deferred", "census")
_PAGE_ROWS = 500
_NEWEST = 1 << 62


def no_effects() -> Tally:
    """The effects on others of an erasure that has none (law 10)."""
    return {"derived": Counter(), "detached": Counter(), "revived": Counter()}


@dataclass(slots=True)
class Request:
    """One request. ``scope`` is clear until it is forgotten, and then ``None``; ``census`` is by subject."""

    id: str
    org: str
    scope_type: str
    scope: Scope | None
    subjects: list[dict[str, str]]
    key_id: str
    actor: str
    requested_at: Instant
    before: Instant | None = None
    purge: bool = True
    rid: int = 0
    status: Status = Status.IN_PROGRESS
    attempt: int = 1
    current_step: Step | None = None
    steps_completed: list[Step] = field(default_factory=list)
    plan_hash: str | None = None
    fence_seq: int | None = None
    lowered_seq: int | None = None
    updated_at: Instant = 0
    verified_at: Instant | None = None
    failure_reason: str | None = None
    found: bool | None = None
    removed: Tally = field(default_factory=dict)
    effects: Tally = field(default_factory=no_effects)
    deferred: list[dict[str, str]] = field(default_factory=list)
    census: list[dict[str, int]] | None = None

    @property
    def clear_scope(self) -> Scope:
        """The scope by clear ids, until it is forgotten.

        Raises:
            RunnerSuperseded: another runner has come further, and nobody knows the clear ids any more.

        """
        if self.scope is None:
            raise RunnerSuperseded(f"erasure {self.id} has been counted and its scope forgotten")
        return self.scope

    @property
    def batch_id(self) -> str:
        """What the receipts of one request share."""
        return "batch-" + self.id.removeprefix("er-")

    def copy(self) -> Request:
        """A request that a unit of work may change, and change again when the unit is repeated."""
        removed = {name: Counter(counts) for name, counts in self.removed.items()}
        return replace(self, steps_completed=list(self.steps_completed), removed=removed)

    def done(self, step: Step) -> None:
        """Note a step as finished."""
        if step not in self.steps_completed:
            self.steps_completed.append(step)

    def totals(self, tally: Tally) -> dict[str, int]:
        """A tally summed over the subjects, with a zero for every collection that has none."""
        return dict.fromkeys(COUNTED, 0) | {name: sum(counts.values()) for name, counts in tally.items()}

    @property
    def residue(self) -> dict[str, int]:
        """What the last census found left, by collection."""
        left: Counter[str] = Counter()
        for counts in self.census or ():
            if any(counts.values()):
                left.update(counts)
        return {name: count for name, count in left.items() if count}

    @property
    def uncounted(self) -> list[str]:
        """The collections that the last census did not count for some subject: completed means none (law 7)."""
        counted = [set(counts) for counts in self.census or ()]
        return [name for name in COUNTED if not all(name in names for names in counted)]


def insert(tx: Tx, request: Request) -> int:
    """Write a new request; its row number."""
    values = _as_values(request)
    del values["rid"]
    return int(tx.rows(_INSERT, **values)[0][0])


def save(tx: Tx, request: Request, *, was: Request, now: Instant) -> None:
    """Write a request back, if it still stands at the attempt and status that it was read with.

    Raises:
        RunnerSuperseded: another runner has taken it over or ended it.

    """
    request.updated_at = now
    values = _as_values(request, ("rid", *_CHANGING))
    if tx.change(_SAVE, mine=was.attempt, held=was.status, **values) != 1:
        raise RunnerSuperseded(f"erasure {request.id} was taken over or ended by another runner")


def find_request(tx: Tx, org: str, request_id: str) -> Request:
    """The request of this id.

    Raises:
        UnknownRequest: the org has none of this id.

    """
    rows = tx.rows(_FIND, id=request_id, org=org)
    if not rows:
        raise UnknownRequest(f"there is no erasure {shown(request_id)} in org {shown(org)}")
    return _from_row(rows[0])


def list_requests(tx: Tx, org: str) -> list[Request]:
    """Every request of an org, newest first (law 11: to the end)."""
    found: list[Request] = []
    below = _NEWEST
    while page := tx.rows(_LIST, org=org, below=below, size=_PAGE_ROWS):
        found += [_from_row(row) for row in page]
        below = page[-1][0]
    return found


def list_stopped(tx: Tx, org: str) -> list[Request]:
    """The requests of an org that stopped short and still know their clear scope."""
    return [_from_row(row) for row in tx.rows(_STOPPED, org=org)]


def _as_values(request: Request, names: Sequence[str] = _NAMES) -> dict[str, Any]:
    values = {name: getattr(request, name) for name in names}
    values["scope"] = None if request.scope is None else request.scope.as_json()
    for name in _JSON:
        if values.get(name) is not None:
            values[name] = json.dumps(values[name], ensure_ascii=False)
    return values


def _from_row(row: tuple[Any, ...]) -> Request:
    values = dict(zip(_NAMES, row, strict=True))
    for name in _JSON:
        values[name] = None if values[name] is None else json.loads(values[name])
    values["scope"] = None if values["scope"] is None else Scope.from_json(values["scope"])
    values["status"] = Status(values["status"])
    values["current_step"] = None if values["current_step"] is None else Step(values["current_step"])
    values["steps_completed"] = [Step(step) for step in values["steps_completed"]]
    values["purge"] = bool(values["purge"])
    values["found"] = None if values["found"] is None else bool(values["found"])
    for name in ("removed", "effects"):
        values[name] = {
            key: Counter({int(position): count for position, count in counts.items()})
            for key, counts in values[name].items()
        }
    return Request(**values)
