"""The data map itself. Steps, profile counts, the docs table and the load format derive from it.

The census does not (design 5): it has its own reviewed SQL, and a test compares the two lists.
"""

from __future__ import annotations

from expunge.datamap.collection import Act, Collection, Column, Kind, Parent, Role, Rule
from expunge.errors import InputError
from expunge.model.ids import shown

_OF_RECORDS = "until its owner is erased; no default lifetime"
_FOR_EVER = "for ever"

_COMMON = (
    Column("rid", Role.SYSTEM),
    Column("org", Role.ORG),
    Column("id", Role.ID),
    Column("namespace", Role.NAMESPACE),
    Column("agent", Role.AGENT),
    Column("user_id", Role.USER),
    Column("session_id", Role.SESSION),
    Column("created_at", Role.TIME),
    Column("recorded_at", Role.TIME),
    Column("updated_at", Role.TIME),
    Column("seq", Role.SYSTEM),
    Column("marked", Role.SYSTEM),
)


def _system(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, Role.SYSTEM) for name in names)


SESSIONS = Collection(
    name="sessions",
    purpose="A conversation; its id is the session id.",
    columns=_COMMON,
    act=Act.REMOVE,
    rule=Rule.RETIRE,
    lifetime=_OF_RECORDS,
)
EPISODES = Collection(
    name="episodes",
    purpose="One run of a session: what went in and what came out.",
    columns=(
        *_COMMON,
        Column("occurred_at", Role.TIME, Kind.INSTANT),
        Column("input", Role.CONTENT, Kind.TEXT),
        Column("output", Role.CONTENT, Kind.TEXT),
    ),
    act=Act.REMOVE,
    rule=Rule.RETIRE,
    time="occurred_at",
    lifetime=_OF_RECORDS,
)
EVENTS = Collection(
    name="events",
    purpose="One entry of an episode's transcript; it goes with its episode.",
    columns=(
        *_COMMON,
        Column("episode", Role.PARENT, Kind.KEY, required=True),
        Column("kind", Role.CONTENT, Kind.TEXT),
        Column("content", Role.CONTENT, Kind.TEXT),
    ),
    act=Act.REMOVE,
    rule=Rule.RETIRE,
    parent=Parent("episode", "episodes"),
    lifetime=_OF_RECORDS,
)
ATTACHMENTS = Collection(
    name="attachments",
    purpose="A file that came with an episode; its bytes lie in the object store, and go before this row.",
    columns=(
        *_COMMON,
        Column("episode", Role.PARENT, Kind.KEY, required=True),
        Column("path", Role.CONTENT, Kind.TEXT, required=True),
        Column("bytes", Role.CONTENT, Kind.NUMBER, required=True),
        Column("sha256", Role.CONTENT, Kind.TEXT, required=True),
        *_system("ref"),
    ),
    act=Act.REMOVE,
    rule=Rule.RETIRE,
    parent=Parent("episode", "episodes"),
    body_in="ref",
    written_by="episodes",
    lifetime=_OF_RECORDS,
)
MEMORIES = Collection(
    name="memories",
    purpose="A value under a key, each change a version; the newest one that is left is current.",
    columns=(
        *_COMMON,
        Column("key", Role.CONTENT, Kind.KEY, required=True),
        Column("version", Role.SYSTEM),
        Column("value", Role.CONTENT, Kind.JSON, required=True),
        Column("memory_type", Role.CONTENT, Kind.TEXT),
    ),
    act=Act.REMOVE,
    rule=Rule.RETIRE,
    time="updated_at",
    versioned_by="key",
    lifetime=_OF_RECORDS,
)
FACTS = Collection(
    name="facts",
    purpose="A statement about somebody, with the time for which it holds.",
    columns=(
        *_COMMON,
        Column("subject", Role.CONTENT, Kind.TEXT, required=True),
        Column("predicate", Role.CONTENT, Kind.TEXT, required=True),
        Column("object", Role.CONTENT, Kind.TEXT, required=True),
        Column("valid_from", Role.TIME, Kind.INSTANT),
        Column("valid_to", Role.TIME, Kind.INSTANT),
    ),
    act=Act.REMOVE,
    rule=Rule.DETACH,
    time="recorded_at",
    session_act=Act.VIA_SOURCES,
    session_keep="a fact outlives its session unless all that it rests on was said there",
    lifetime=_OF_RECORDS,
)
BLOCKS = Collection(
    name="blocks",
    purpose="A named piece of an agent's working memory; a block of the same name is its next version.",
    columns=(
        *_COMMON,
        Column("name", Role.CONTENT, Kind.KEY, required=True),
        Column("version", Role.SYSTEM),
        Column("content", Role.CONTENT, Kind.TEXT),
    ),
    act=Act.REMOVE,
    rule=Rule.RETIRE,
    time="updated_at",
    versioned_by="name",
    session_act=Act.VIA_SOURCES,
    session_keep="a block outlives the session that wrote it unless it was made from what was said there",
    lifetime=_OF_RECORDS,
)
LINEAGE = Collection(
    name="lineage",
    purpose="The edges from a source record to what was derived from it.",
    columns=(
        Column("org", Role.ORG),
        Column("derived", Role.PARENT),
        Column("source", Role.PARENT),
        *_system("derived_collection", "source_collection", "rule", "seq"),
    ),
    act=Act.VIA_PARENT,
    lifetime="as long as both of its ends",
)

RECORDS: tuple[Collection, ...] = (SESSIONS, EPISODES, EVENTS, ATTACHMENTS, MEMORIES, FACTS, BLOCKS)
"""The collections that hold records of subjects."""

_CONTROL: tuple[Collection, ...] = (
    Collection(
        name="requests",
        purpose="The working rows of erasures.",
        columns=(
            *_system("rid"),
            Column("id", Role.ID),
            Column("org", Role.ORG),
            Column("scope_type", Role.SYSTEM),
            Column("scope", Role.CLEAR_UNTIL_END),
            Column("before", Role.TIME),
            Column("subjects", Role.PSEUDONYM),
            Column("key_id", Role.SYSTEM),
            Column("actor", Role.ACTOR),
            Column("requester", Role.ACTOR),
            *_system("urgency", "external", "bound_plan", "exact"),
            *_system("purge", "status", "attempt", "current_step", "steps_completed", "plan_hash"),
            Column("restore_until", Role.TIME),
            *_system("fence_seq", "lowered_seq"),
            Column("requested_at", Role.TIME),
            Column("updated_at", Role.TIME),
            Column("verified_at", Role.TIME),
            *_system("failure_reason", "found", "hidden", "reversals", "removed", "effects", "deferred", "census"),
        ),
        act=Act.KEEP,
        keep="status and answer of the erasure; the clear scope is emptied once what is removed has been counted",
        lifetime="90 days, when it has ended",
    ),
    Collection(
        name="fences",
        purpose="What refuses writes into a scope while it is erased, and stale writes for ever after.",
        columns=(
            *_system("id"),
            Column("org", Role.ORG),
            *_system("request_id", "position"),
            *(Column(part, Role.PSEUDONYM) for part in ("user_pn", "namespace_pn", "session_pn", "agent_pn")),
            Column("before", Role.TIME),
            *_system("key_id", "seq", "lowered_seq"),
        ),
        act=Act.KEEP,
        keep="a unit of work that began before the erasure may end at any time after it (law 4)",
        lifetime=_FOR_EVER,
    ),
    Collection(
        name="marks",
        purpose="What an erasure that runs is about to remove, or one that can be restored from has hidden.",
        columns=(
            *_system("request"),
            Column("org", Role.ORG),
            *_system("collection"),
            Column("id", Role.CLEAR_UNTIL_END),
            *_system("rid", "position", "direct", "ref"),
        ),
        act=Act.KEEP,
        keep="needed until what is removed has been counted, and emptied then",
        lifetime="one erasure, with its restore window",
    ),
    Collection(
        name="holds",
        purpose="What refuses removal in a scope until it is released.",
        columns=(
            *_system("id"),
            Column("org", Role.ORG),
            Column("namespace", Role.NAMESPACE),
            Column("agent", Role.AGENT),
            Column("user_id", Role.USER),
            Column("session_id", Role.SESSION),
            Column("reason", Role.CONTENT),
            Column("placed_at", Role.TIME),
            Column("released_at", Role.TIME),
        ),
        act=Act.KEEP,
        keep="a hold stops the erasure of its scope; operations on holds come later",
        lifetime="until released",
    ),
    Collection(
        name="ledger",
        purpose="The permanent list of what was erased, by pseudonym: intents and signed receipts.",
        columns=(
            Column("org", Role.ORG),
            *_system("n", "kind", "request_id", "position"),
            Column("body", Role.PSEUDONYM),
        ),
        act=Act.KEEP,
        keep="the proof of erasure; it names nobody (law 14)",
        lifetime=_FOR_EVER,
    ),
    Collection(
        name="audit",
        purpose="Who did what, to which pseudonyms, with which outcome.",
        columns=(
            Column("org", Role.ORG),
            *_system("n"),
            Column("at", Role.TIME),
            Column("actor", Role.ACTOR),
            *_system("role", "operation", "outcome", "request_id"),
            Column("subjects", Role.PSEUDONYM),
            Column("detail", Role.SYSTEM),
        ),
        act=Act.KEEP,
        keep="accountability; it names nobody but the actor (law 14)",
        lifetime=_FOR_EVER,
    ),
    Collection(
        name="orgs",
        purpose="Each org's erasure counter and the head of its receipt chain.",
        columns=(Column("org", Role.ORG), *_system("seq", "ledger_length", "ledger_head")),
        act=Act.KEEP,
        keep="names no person",
        lifetime=_FOR_EVER,
    ),
    Collection(
        name="keys",
        purpose="The ids of the keys that this database relies on, with a value to recognise each.",
        columns=_system("id", "check_value"),
        act=Act.KEEP,
        keep="names no person",
        lifetime=_FOR_EVER,
    ),
)

COLLECTIONS: tuple[Collection, ...] = (*RECORDS, LINEAGE, *_CONTROL)
"""Everything that the database holds."""

_BY_NAME = {collection.name: collection for collection in COLLECTIONS}


def collection(name: str) -> Collection:
    """The collection of this name.

    Raises:
        InputError: there is none.

    """
    try:
        return _BY_NAME[name]
    except (KeyError, TypeError):
        raise InputError(f"{shown(name)} is not a collection") from None
