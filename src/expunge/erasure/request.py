"""The working row of an erasure: read at the start of each commit, written at its end (design 4)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from expunge.authority.port import Statement, Tx
from expunge.datamap import COLLECTIONS, LINEAGE, RECORDS, Act
from expunge.errors import RunnerSuperseded, UnknownRequest
from expunge.model.canonical import to_json
from expunge.model.ids import shown
from expunge.model.instant import DAY, Instant
from expunge.model.scope import Scope, type_of


class Status(StrEnum):
    """How an erasure stands."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    ABANDONED = "abandoned"
    BLOCKED = "blocked"


class Step(StrEnum):
    """The steps, in order. Steps for sources and external systems join when there are any."""

    OPEN = "open"
    FENCE = "fence"
    PLAN = "plan"
    MARK = "mark"
    LOWER = "lower"
    STORES = "stores"
    PURGE = "purge"
    CENSUS = "census"
    FORGET = "forget"
    RECLAIM = "reclaim"
    FINISH = "finish"


_STEPS = tuple(Step)
REMOVED = tuple(collection.name for collection in (*RECORDS, LINEAGE))
"""The collections that answers and receipts give numbers of what was removed for."""
COUNTED = tuple(collection.name for collection in COLLECTIONS if collection.act is not Act.KEEP)
"""Those that the census has to have counted: also what goes with its record."""

Tally = dict[str, Counter[int]]
"""Counts by name and by the position of the subject."""
Counts = list[dict[str, int]]
"""The same the other way round, as a census has it: by position of the subject, and there by name."""

_COLUMNS = (
    "rid, id, org, scope_type, scope, before, subjects, key_id, actor, requester, urgency, external, bound_plan, "
    "exact, purge, status, attempt, current_step, steps_completed, plan_hash, restore_until, fence_seq, lowered_seq, "
    "requested_at, updated_at, verified_at, failure_reason, found, hidden, reversals, removed, effects, deferred, "
    "census"
)
_NAMES = _COLUMNS.replace(" ", "").split(",")
_FIXED = frozenset(
    {
        "rid", "id", "org", "scope_type", "before", "subjects", "key_id", "actor", "requester", "urgency", "external",
        "bound_plan", "exact", "requested_at",
    }
)  # fmt: skip
"""What a request is opened with. To set it again would write its index entries again in every commit."""
_CHANGING = [name for name in _NAMES if name not in _FIXED]
_FIND = Statement("requests.find", f"SELECT {_COLUMNS} FROM requests WHERE id = :id AND org = :org")
_LIST = Statement(
    "requests.list",
    f"""SELECT {_COLUMNS} FROM requests WHERE org = :org AND rid < :below
    AND (CAST(:status AS TEXT) IS NULL OR status = :status) ORDER BY rid DESC LIMIT :size""",
)
_CLEAR = Statement(
    "requests.clear",
    f"""SELECT {_COLUMNS} FROM requests WHERE org = :org AND (status <> 'completed' OR purge = 0)
    AND scope IS NOT NULL AND status <> 'in_progress'""",
)
"""Once it has purged, a request knows no clear scope: so those that do are found among the open ones."""
_DUE = Statement(
    "requests.due",
    f"""SELECT {_COLUMNS} FROM requests WHERE restore_until <= :now AND (
        (purge = 0 AND status = 'completed') OR (purge = 1 AND status = 'failed' AND :again = 1)
        OR (purge = 1 AND status = 'in_progress' AND updated_at <= :idle))
    ORDER BY urgency DESC, rid""",
)
_IDLE: Instant = 600_000_000
"""After ten minutes without a commit the runner of a purge that was due is taken to be dead."""
_EXPIRED = """requested_at <= :since AND purge = 1 AND scope IS NULL AND status IN ('completed', 'abandoned')
    AND NOT EXISTS (SELECT 1 FROM marks m WHERE m.request = requests.rid)"""
_EXPIRE = Statement("requests.expire", f"DELETE FROM requests WHERE {_EXPIRED}")
_SOME_EXPIRED = Statement("requests.some_expired", f"SELECT EXISTS (SELECT 1 FROM requests WHERE {_EXPIRED})")
_INSERT = Statement(
    "requests.insert",
    f"INSERT INTO requests ({_COLUMNS}) VALUES ({', '.join(':' + name for name in _NAMES)})",
)
_SAVE = Statement(
    "requests.save",
    f"""UPDATE requests SET {", ".join(f"{name} = :{name}" for name in _CHANGING)}
    WHERE rid = :rid AND attempt = :mine AND status = :held""",
)
_JSON = ("scope", "subjects", "steps_completed", "hidden", "reversals", "removed", "effects", "deferred", "census")
_TALLIES = ("hidden", "removed", "effects")
_FLAGS = ("purge", "external", "exact", "found")
READABLE_DAYS = 89
"""For so long after it was asked for, an erasure that has ended is shown (seed page Loom, "Operations")."""
KEPT_DAYS = 90
"""Then its row goes; ledger and receipts stay."""
_PAGE_ROWS = 500
_NEWEST = 1 << 62


def no_effects() -> Tally:
    """The effects on others of an erasure that has none (law 10)."""
    return {"derived": Counter(), "detached": Counter(), "revived": Counter(), "rebuilt": Counter()}


@dataclass(slots=True)
class Request:
    """One request. ``scope`` is clear until it is forgotten, and then ``None``; ``census`` is by subject.

    ``purge`` is whether records are removed: of one that hides, it becomes true when its restore window has ended.
    """

    id: str
    org: str
    scope_type: str
    scope: Scope | None
    subjects: list[dict[str, str]]
    key_id: str
    actor: str
    requested_at: Instant
    before: Instant | None = None
    requester: str | None = None
    urgency: str = "normal"
    external: bool = True
    bound_plan: str | None = None
    exact: bool = False
    purge: bool = True
    rid: int = 0
    status: Status = Status.IN_PROGRESS
    attempt: int = 1
    current_step: Step | None = None
    steps_completed: list[Step] = field(default_factory=list)
    plan_hash: str | None = None
    restore_until: Instant | None = None
    fence_seq: int | None = None
    lowered_seq: int | None = None
    updated_at: Instant = 0
    verified_at: Instant | None = None
    failure_reason: str | None = None
    found: bool | None = None
    hidden: Tally = field(default_factory=dict)
    reversals: Counter[int] = field(default_factory=Counter)
    removed: Tally = field(default_factory=dict)
    effects: Tally = field(default_factory=no_effects)
    deferred: list[dict[str, str]] = field(default_factory=list)
    census: list[dict[str, int]] | None = None
    acting: str | None = None
    """Who acts just now, by clear id, for the audit. It is not stored: ``actor`` is who asked, by pseudonym."""

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

    @property
    def lowers_early(self) -> bool:
        """Whether the fence comes down once all is marked: that of a wider scope stays up until the end (design 4)."""
        return type_of(self.subjects[0]) in {"user_id", "session"}

    @property
    def hides(self) -> bool:
        """Whether it has hidden records that can still be restored, or wait for their purge."""
        return self.status is Status.COMPLETED and not self.purge

    @property
    def subjects_found(self) -> int:
        """Of how many subjects something was found."""
        tallies = (counts for tally in (self.hidden, self.removed) for counts in tally.values())
        return len({position for counts in tallies for position, count in counts.items() if count})

    @property
    def reversals_count(self) -> int:
        """How many records in scope were restored."""
        return self.reversals.total()

    def copy(self) -> Request:
        """A request that a unit of work may change, and change again when the unit is repeated."""
        return replace(
            self,
            steps_completed=list(self.steps_completed),
            hidden=_copied(self.hidden),
            reversals=Counter(self.reversals),
            removed=_copied(self.removed),
            effects=_copied(self.effects),
        )

    def done(self, step: Step) -> None:
        """Note a step as finished; those that are stand in their order, whichever path was taken."""
        if step not in self.steps_completed:
            self.steps_completed = [one for one in _STEPS if one is step or one in self.steps_completed]

    def totals(self, tally: Tally) -> dict[str, int]:
        """A tally summed over the subjects, with a zero for every collection that has none."""
        return dict.fromkeys(REMOVED, 0) | {name: sum(counts.values()) for name, counts in tally.items()}

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


def _copied(tally: Tally) -> Tally:
    return {name: Counter(counts) for name, counts in tally.items()}


def in_store(counts: Mapping[str, int], store: str) -> dict[str, int]:
    """Counts keyed ``store.collection``; what is counted outside the authority says so by itself."""
    return {name if "." in name else f"{store}.{name}": count for name, count in counts.items()}


def next_rid(tx: Tx) -> int:
    """The row number of a new request: what is hidden at once is marked, by this number, before the row is written."""
    return tx.ask_numbers("requests", 1)()[0]


def insert(tx: Tx, request: Request) -> None:
    """Write a new request."""
    tx.send(_INSERT, **_as_values(request))


def save(tx: Tx, request: Request, *, was: Request, now: Instant) -> None:
    """Write a request back, if it still stands at the attempt and status that it was read with.

    Raises:
        RunnerSuperseded: another runner has taken it over or ended it.

    """
    request.updated_at = now
    values = _as_values(request, ("rid", *_CHANGING))
    if tx.change(_SAVE, mine=was.attempt, held=was.status, **values) != 1:
        raise RunnerSuperseded(f"erasure {request.id} was taken over or ended by another runner")


def find_request(tx: Tx, org: str, request_id: str, now: Instant) -> Request:
    """The request of this id.

    Raises:
        UnknownRequest: the org has none of this id, or it ended and was asked for 89 days ago or earlier.

    """
    rows = tx.rows(_FIND, id=request_id, org=org)
    if not rows:
        raise UnknownRequest(f"there is no erasure {shown(request_id)} in org {shown(org)}")
    request = _from_row(rows[0])
    if _is_past(request, now):
        raise UnknownRequest(
            f"erasure {request.id} was asked for more than {READABLE_DAYS} days ago and is not shown any more",
            hint="its receipts stay: expunge receipt ID",
        )
    return request


def list_requests(tx: Tx, org: str, now: Instant, status: Status | None = None) -> list[Request]:
    """The requests of an org that are still shown, newest first (law 11: to the end)."""
    found: list[Request] = []
    below = _NEWEST
    while page := tx.rows(_LIST, org=org, below=below, size=_PAGE_ROWS, status=status):
        found += [request for row in page if not _is_past(request := _from_row(row), now)]
        below = page[-1][0]
    return found


def list_clear(tx: Tx, org: str) -> list[Request]:
    """The requests of an org that do not run and still know their clear scope: stopped short, or hiding."""
    return [_from_row(row) for row in tx.rows(_CLEAR, org=org)]


def list_due(tx: Tx, now: Instant, *, again: bool = False) -> list[Request]:
    """The requests of every org whose restore window has ended, urgent ones first; also where a runner has died.

    With ``again`` those whose purge has failed, too.
    """
    return [_from_row(row) for row in tx.rows(_DUE, now=now, idle=now - _IDLE, again=again)]


def some_expired(tx: Tx, now: Instant) -> bool:
    """Whether ``expire_requests`` would remove anything."""
    return bool(tx.rows(_SOME_EXPIRED, since=now - KEPT_DAYS * DAY)[0][0])


def expire_requests(tx: Tx, now: Instant) -> int:
    """Remove the rows of erasures that ended and were asked for 90 days ago; how many."""
    return tx.change(_EXPIRE, since=now - KEPT_DAYS * DAY)


def _is_past(request: Request, now: Instant) -> bool:
    has_ended = request.purge and request.status is Status.COMPLETED
    return has_ended and request.requested_at <= now - READABLE_DAYS * DAY


def _as_values(request: Request, names: Sequence[str] = _NAMES) -> dict[str, Any]:
    values = {name: getattr(request, name) for name in names}
    values["scope"] = None if request.scope is None else request.scope.as_json()
    for name in _JSON:
        if values.get(name) is not None:
            values[name] = to_json(values[name])
    return values


def _from_row(row: tuple[Any, ...]) -> Request:
    values = dict(zip(_NAMES, row, strict=True))
    for name in _JSON:
        values[name] = None if values[name] is None else json.loads(values[name])
    values["scope"] = None if values["scope"] is None else Scope.from_json(values["scope"])
    values["status"] = Status(values["status"])
    values["current_step"] = None if values["current_step"] is None else Step(values["current_step"])
    values["steps_completed"] = [Step(step) for step in values["steps_completed"]]
    for name in _FLAGS:
        values[name] = None if values[name] is None else bool(values[name])
    values["reversals"] = _by_position(values["reversals"])
    for name in _TALLIES:
        values[name] = {key: _by_position(counts) for key, counts in values[name].items()}
    return Request(**values)


def _by_position(counts: dict[str, int]) -> Counter[int]:
    return Counter({int(position): count for position, count in counts.items()})
