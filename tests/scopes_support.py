"""Generated records and scopes, what the rules say of them in plain Python, and a store to try them on."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from expunge import Expunge, Settings
from expunge.authority.places import open_authority, place_of
from expunge.authority.port import Statement, Tx
from expunge.datamap import RECORDS
from expunge.model.instant import Clock, ManualClock, parse_instant
from expunge.model.scope import Scope
from tests.crash.kit import Gate, Watched, everything

KINDS = tuple(kind.name for kind in RECORDS)
TIMES = {
    "sessions": "created_at",
    "episodes": "occurred_at",
    "events": "created_at",
    "attachments": "created_at",
    "memories": "updated_at",
    "facts": "recorded_at",
    "blocks": "updated_at",
    "documents": "updated_at",
    "chunks": "created_at",
    "answers": "created_at",
    "jobs": "created_at",
}
"""What `before` compares in each collection (design 4)."""
OUTLIVE_A_SESSION = ("facts", "blocks", "jobs")
DETACHED = ("facts", "chunks", "jobs")
"""What goes with the last source, and not with any."""
PARTS = ("user_id", "namespace", "agent", "session_id")
NOW = "2026-06-01T00:00:00Z"
"""Later than every date that is written here."""
_RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where a folder costs no waiting for a disk."""

HOLD = Statement(
    "test.hold",
    """INSERT INTO holds (org, namespace, agent, user_id, session_id, placed_at)
    VALUES ('default', :namespace, :agent, :user_id, :session_id, 0)""",
)
RELEASE = Statement("test.release", "UPDATE holds SET released_at = 1")


async def hold(expunge: Expunge, **parts: str) -> None:
    """Place a hold: its operations come later."""
    values = dict.fromkeys(PARTS) | parts
    await expunge.system.authority.run(lambda tx: tx.change(HOLD, **values))


async def release(expunge: Expunge) -> None:
    """Release every hold."""
    await expunge.system.authority.run(lambda tx: tx.change(RELEASE))


async def ask(expunge: Expunge, text: str, **values: Any) -> list[tuple[Any, ...]]:
    """Rows of a statement."""

    def unit(tx: Tx) -> list[tuple[Any, ...]]:
        return tx.rows(Statement("test.ask", text), **values)

    return await expunge.system.authority.read(unit)


async def served_episodes(expunge: Expunge) -> set[str]:
    """The episodes that are not hidden, in every org."""
    return {record_id for (record_id,) in await ask(expunge, "SELECT id FROM episodes WHERE marked = 0")}


def ids_served(dumped: dict[str, dict[str, tuple[Any, ...]]]) -> set[str]:
    """The ids of what is not hidden."""
    return {key for name in KINDS for key, row in dumped[name].items() if row[0] == 0}


async def state(expunge: Expunge) -> dict[str, Any]:
    """Every row of the database: where nothing was written, it is the same before and after."""
    return await everything(expunge)


Places = Callable[[], AbstractContextManager[str]]
"""What the fixture `places` gives."""


@asynccontextmanager
async def opened(
    places: Places, *, batch_rows: int = 20_000, gate: Gate | None = None, clock: Clock | None = None
) -> AsyncIterator[tuple[Expunge, Path]]:
    """A system on a database of its own with an object folder, and a folder that holds the file `a.txt` to attach."""
    with tempfile.TemporaryDirectory(dir=_RAM) as name, places() as db:
        folder = Path(name)
        (folder / "a.txt").write_bytes(b"attached")
        keys = None if db == ":memory:" else folder / "expunge.keys"
        settings = Settings(db=db, keys_file=keys, objects=folder / "objects", batch_rows=batch_rows)
        authority = None
        if gate is not None:
            authority = Watched(await open_authority(place_of(db), settings, create=True), gate=gate)
        async with Expunge(settings=settings, authority=authority, clock=clock or ManualClock(NOW)) as expunge:
            yield expunge, folder


def examples(most: int) -> Any:
    """How many examples a test takes. What it is given as a fixture makes a database of its own for each."""
    return hypothesis_settings(
        max_examples=most, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )


def at(day: int) -> str:
    """A day of January 2026."""
    return f"2026-01-{day:02}T00:00:00Z"


def instant(day: int) -> int:
    """The same as an instant."""
    return parse_instant(at(day), "day")


# --- generated ---------------------------------------------------------------------------------------------------

USERS = ("u1", "u10", "U1", "%")
POOL = {"user_id": USERS, "namespace": ("n", "n2", "*"), "agent": ("a", "a_"), "session_id": ("s", "s/../s")}
days = st.integers(min_value=1, max_value=9)
_mostly = st.sampled_from((True, True, True, True, False))
_identity = st.fixed_dictionaries({part: st.sampled_from((*values, None)) for part, values in POOL.items()})
_OWN: dict[str, tuple[dict[str, Any], ...]] = {
    "sessions": ({},),
    "episodes": ({"input": "words"}, {"input": "words", "attachments": ["a.txt"]}),
    "events": ({"content": "called"},),
    "memories": ({"key": "k", "value": 1},),
    "facts": ({"subject": "s", "predicate": "p", "object": "o"},),
    "blocks": ({"name": "x"},),
    "answers": ({"question": "q", "answer": "a"},),
    "jobs": ({"deriver": "d"},),
}
_KINDS = (*_OWN, "memories", "facts", "memories", "facts")


@st.composite
def record_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Records of every collection under a few identities, many resting on up to three earlier ones.

    The time by which a collection is dated differs from its other times.
    """
    made: list[dict[str, Any]] = []
    taken: set[str] = set()
    shared = draw(st.lists(_identity, min_size=2, max_size=3, unique_by=str))
    for n in range(draw(st.integers(min_value=5, max_value=12))):
        kind = draw(st.sampled_from(_KINDS))
        episodes = [item["id"] for item in made if item["collection"] == "episodes"]
        if kind == "events" and not episodes:
            kind = "episodes"
        record: dict[str, Any] = {"collection": kind, "id": f"r{n}"} | draw(st.sampled_from(_OWN[kind]))
        record |= {part: value for part, value in draw(st.sampled_from(shared)).items() if value is not None}
        if kind == "sessions":
            free = record.pop("session_id", None)
            if free is not None and free not in taken:
                record["id"] = free
        taken.add(record["id"])
        record |= dict.fromkeys(("created_at", "recorded_at", "updated_at"), at(draw(days)))
        record[TIMES[kind]] = at(draw(days))
        if kind == "events":
            record["episode"] = draw(st.sampled_from(episodes))
        if n > 0 and draw(_mostly):
            sources = draw(st.lists(st.sampled_from([item["id"] for item in made]), min_size=1, max_size=3))
            record["sources"] = sorted(set(sources))
        made.append(record)
    return made


@st.composite
def scopes_over(draw: st.DrawFn, made: list[dict[str, Any]]) -> Scope:
    """Any conjunction that a scope can say, about one of some records: lists, dates, the whole org."""
    about = draw(st.sampled_from(made))
    parts = sorted(part for part in PARTS if part in about)
    named: set[str] = set()
    is_named, is_listed = draw(_mostly), draw(st.booleans())
    if parts and is_named:
        named = draw(st.sets(st.sampled_from(parts), min_size=1, max_size=2))
    listed: dict[str, list[str]] = {part: [about[part]] if part in named else [] for part in ("user_id", "namespace")}
    lists = [part for part, values in listed.items() if values]
    if lists and is_listed:
        part = draw(st.sampled_from(lists))
        others = [value for value in POOL[part] if value != about[part]]
        listed[part] = draw(st.permutations([about[part], *others]))[: draw(st.integers(min_value=2, max_value=3))]
    before = draw(st.none() | st.integers(min_value=4, max_value=10))
    return Scope(
        org="default",
        user_ids=tuple(listed["user_id"]),
        namespaces=tuple(listed["namespace"]),
        agent=about["agent"] if "agent" in named else None,
        session_id=about["session_id"] if "session_id" in named else None,
        before=None if before is None else instant(before),
    )


@st.composite
def words_for(draw: st.DrawFn, scope: Scope) -> dict[str, Any]:
    """A scope in the words of `erasure.request`: with any scope type that fits, a list as a list or as JSON text."""
    words: dict[str, Any] = {"agent": scope.agent, "session_id": scope.session_id}
    words["before"] = None if scope.before is None else at(1 + (scope.before - instant(1)) // 86_400_000_000)
    listed = {"user_id": scope.user_ids, "namespace": scope.namespaces}
    words |= {part: values[0] if len(values) == 1 else None for part, values in listed.items()}
    lists = {"user_list": scope.user_ids, "namespace_list": scope.namespaces}
    several = [name for name, values in lists.items() if len(values) > 1]
    parts = {"user_id": "user_id", "namespace": "namespace", "agent": "agent", "session": "session_id"}
    single = [name for name, part in parts.items() if words[part] is not None]
    name = several[0] if several else draw(st.sampled_from(single or ["org"]))
    if name in {"user_id", "namespace"} and draw(st.booleans()):
        name = {"user_id": "user_list", "namespace": "namespace_list"}[name]
    if name in lists:
        words[{"user_list": "user_id", "namespace_list": "namespace"}[name]] = None
        value: Any = list(lists[name])
        words["scope_value"] = json.dumps(value, ensure_ascii=draw(st.booleans())) if draw(st.booleans()) else value
    elif name in parts:
        words["scope_value"], words[parts[name]] = words[parts[name]], None
    return {"scope_type": name} | {word: value for word, value in words.items() if value is not None}


# --- the rules, said once more -----------------------------------------------------------------------------------


@dataclass
class Expected:
    """What an erasure of a scope does, by the rules of design 4; a number after an id is the place of its subject."""

    direct: dict[str, int] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    edges: Counter[int] = field(default_factory=Counter)
    """How many edges go, by subject."""
    kept_edges: set[str] = field(default_factory=set)
    detached: Counter[int] = field(default_factory=Counter)
    revived: Counter[int] = field(default_factory=Counter)
    outliving: dict[str, int] = field(default_factory=dict)
    """Facts and blocks of a session that stay when it goes."""

    def count(self, ids: dict[str, int], place: int | None = None) -> dict[str, int]:
        """How many of some records there are in each collection, of one subject or of all."""
        found = Counter(self.kinds[item] for item, at_ in ids.items() if place in (None, at_))
        return {kind: found[kind] for kind in KINDS}

    def removed(self, place: int | None = None) -> dict[str, int]:
        """The same of all that goes, with the edges."""
        edges = self.edges.total() if place is None else self.edges[place]
        return self.count(self.gone, place) | {"lineage": edges}

    @property
    def derived(self) -> dict[str, int]:
        """What goes for what it was made from."""
        return {item: place for item, place in self.gone.items() if item not in self.direct}

    def effects(self, place: int | None = None) -> dict[str, int]:
        """The effects on others, of one subject or of all."""
        counted = {"derived": Counter(self.derived.values()), "detached": self.detached, "revived": self.revived}
        counted["rebuilt"] = Counter()
        return {name: counts.total() if place is None else counts[place] for name, counts in counted.items()}


def with_attachments(made: list[dict[str, Any]], attached: dict[str, str]) -> list[dict[str, Any]]:
    """The records with those that their attachments are; `attached` gives the id of the attachment of an episode."""
    whole: list[dict[str, Any]] = []
    for record in made:
        whole.append(record)
        if record["id"] in attached:
            brought = {part: record[part] for part in PARTS if part in record}
            brought |= {"collection": "attachments", "id": attached[record["id"]], "episode": record["id"]}
            whole.append(brought | {"created_at": record["occurred_at"]})
    return whole


def expect(records: list[dict[str, Any]], scope: Scope) -> Expected:
    """What goes of some records, in which each stands after all that it rests on."""
    told = Expected(kinds={record["id"]: record["collection"] for record in records})
    for record in records:
        place = _selected_by(record, scope)
        if place is not None and (scope.session_id is None or record["collection"] not in OUTLIVE_A_SESSION):
            told.direct[record["id"]] = place
    told.gone = dict(told.direct)
    for record in records:
        rests_on = set(record.get("sources", ()))
        parent = {record["episode"]} & told.gone.keys() if "episode" in record else set()
        sources = rests_on & told.gone.keys()
        # What is detached goes with the last source, what is retired with any; and an event with its episode.
        by_lineage = bool(sources) and (record["collection"] not in DETACHED or sources == rests_on)
        if record["id"] not in told.gone and (by_lineage or parent):
            told.gone[record["id"]] = min(told.gone[item] for item in parent | sources)
    for record in records:
        _note_edges(told, record)
        if record["collection"] in OUTLIVE_A_SESSION and scope.session_id is not None:
            stays = record["id"] not in told.gone and _selected_by(record, scope) is not None
            told.outliving[record["collection"]] = told.outliving.get(record["collection"], 0) + stays
    _note_revived(told, records)
    return told


def _selected_by(record: dict[str, Any], scope: Scope) -> int | None:
    """The place of the target that selects a record."""
    session = record["id"] if record["collection"] == "sessions" else record.get("session_id")
    dated = parse_instant(record[TIMES[record["collection"]]], "time")
    fits = (scope.agent in (None, record.get("agent"))) and (scope.session_id in (None, session))
    if not fits or (scope.before is not None and dated >= scope.before):
        return None
    for place, target in enumerate(scope.targets):
        wanted = {"user_id": target.user_id, "namespace": target.namespace}
        if all(value in (None, record.get(part)) for part, value in wanted.items()):
            return place
    return None


def _note_edges(told: Expected, record: dict[str, Any]) -> None:
    places = [told.gone[source] for source in record.get("sources", ()) if source in told.gone]
    for source in record.get("sources", ()):
        if record["id"] in told.gone:
            told.edges[told.gone[record["id"]]] += 1
        elif source in told.gone:
            told.edges[told.gone[source]] += 1
        else:
            told.kept_edges.add(f"{record['id']}<{source}")
    if record["id"] not in told.gone and places:
        told.detached[min(places)] += 1


def _note_revived(told: Expected, records: list[dict[str, Any]]) -> None:
    """Of each key or name whose newest version goes while an older one stays."""
    versions: dict[tuple[Any, ...], list[tuple[str, int, str]]] = {}
    for number, record in enumerate(records):
        name = record.get("key", record.get("name"))
        if name is not None:
            key = (record["collection"], name, *(record.get(part) for part in PARTS))
            versions.setdefault(key, []).append((record["updated_at"], number, record["id"]))
    for found in versions.values():
        newest = max(found)[2]
        if newest in told.gone and any(item[2] not in told.gone for item in found):
            told.revived[told.gone[newest]] += 1
