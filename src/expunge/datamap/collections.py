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


STATES = ("live", "tombstoned", "anonymized")
"""What a version of a key says of it: this is its value; it was deleted; its value was taken away by its expiry."""

SESSIONS = Collection(
    name="sessions",
    purpose="A conversation.",
    columns=(
        *_COMMON,
        Column("status", Role.CONTENT, Kind.TEXT, choices=("open", "ended"), default="open"),
        Column("ended_at", Role.TIME, Kind.INSTANT),
    ),
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
        Column("tool_calls", Role.CONTENT, Kind.JSON),
        Column(
            "status",
            Role.CONTENT,
            Kind.TEXT,
            choices=("running", "completed", "failed", "cancelled"),
            default="completed",
        ),
    ),
    act=Act.REMOVE,
    rule=Rule.RETIRE,
    time="occurred_at",
    searched=("input", "output"),
    search_code=1,
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
        Column("data", Role.CONTENT, Kind.JSON),
        Column("position", Role.CONTENT, Kind.NUMBER),
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
        Column("state", Role.CONTENT, Kind.TEXT, choices=STATES, default="live"),
        Column("tags", Role.CONTENT, Kind.JSON),
        Column("confidence", Role.CONTENT, Kind.SHARE),
        Column("expires_at", Role.TIME, Kind.INSTANT),
        Column("on_expire", Role.CONTENT, Kind.TEXT, choices=("tombstone", "demote", "anonymize"), default="tombstone"),
        Column("deriver", Role.CONTENT, Kind.KEY),
    ),
    act=Act.REMOVE,
    rule=Rule.RETIRE,
    rules=(Rule.RETIRE, Rule.REBUILD, Rule.DETACH),
    time="updated_at",
    versioned_by="key",
    searched=("key", "value"),
    search_code=2,
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
        Column("exclusive", Role.CONTENT, Kind.FLAG, default=0),
        Column("confidence", Role.CONTENT, Kind.SHARE),
        *_system("predicate_key"),
    ),
    act=Act.REMOVE,
    rule=Rule.DETACH,
    rules=(Rule.RETIRE, Rule.DETACH),
    time="recorded_at",
    session_act=Act.VIA_SOURCES,
    session_keep="a fact outlives its session unless all that it rests on was said there",
    searched=("subject", "predicate", "object"),
    search_code=3,
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
        Column("state", Role.CONTENT, Kind.TEXT, choices=STATES, default="live"),
        Column("pinned_order", Role.CONTENT, Kind.NUMBER),
    ),
    act=Act.REMOVE,
    rule=Rule.RETIRE,
    time="updated_at",
    versioned_by="name",
    session_act=Act.VIA_SOURCES,
    session_keep="a block outlives the session that wrote it unless it was made from what was said there",
    lifetime=_OF_RECORDS,
)
DOCUMENTS = Collection(
    name="documents",
    purpose="A document under a title, each change a version; its original lies in a store, and goes before this row.",
    columns=(
        *_COMMON,
        Column("title", Role.CONTENT, Kind.KEY, required=True),
        Column("version", Role.SYSTEM),
        Column("state", Role.CONTENT, Kind.TEXT, choices=STATES, default="live"),
        Column("media_type", Role.CONTENT, Kind.TEXT),
        Column("pinned", Role.CONTENT, Kind.FLAG, default=0),
        *_system("bytes", "sha256", "ref"),
    ),
    act=Act.REMOVE,
    rule=Rule.RETIRE,
    time="updated_at",
    versioned_by="title",
    body_in="ref",
    lifetime=_OF_RECORDS,
)
CHUNKS = Collection(
    name="chunks",
    purpose="A piece of a document's text, which search finds; it goes with its document.",
    columns=(
        *_COMMON,
        Column("document", Role.PARENT, Kind.KEY, required=True),
        Column("position", Role.CONTENT, Kind.NUMBER, required=True),
        Column("text", Role.CONTENT, Kind.TEXT, required=True),
    ),
    act=Act.REMOVE,
    rule=Rule.DETACH,
    parent=Parent("document", "documents"),
    written_by="documents",
    searched=("text",),
    search_code=4,
    lifetime=_OF_RECORDS,
)
ANSWERS = Collection(
    name="answers",
    purpose="An answer that was given, kept to be given again; it goes with any record that it quotes.",
    columns=(
        *_COMMON,
        Column("question", Role.CONTENT, Kind.TEXT, required=True),
        Column("answer", Role.CONTENT, Kind.TEXT, required=True),
        Column("asked", Role.CONTENT, Kind.KEY),
        Column("expires_at", Role.TIME, Kind.INSTANT),
    ),
    act=Act.REMOVE,
    rule=Rule.RETIRE,
    lifetime="as its writer says, a day by default",
)
JOBS = Collection(
    name="jobs",
    purpose="Something that is to be derived: by what, from which sources (its lineage), and into what.",
    columns=(
        *_COMMON,
        Column("deriver", Role.CONTENT, Kind.KEY, required=True),
        Column("key", Role.CONTENT, Kind.KEY),
        Column("status", Role.CONTENT, Kind.TEXT, choices=("waiting", "running", "failed", "done"), default="waiting"),
        Column("attempts", Role.CONTENT, Kind.NUMBER, default=0),
        Column("due_at", Role.TIME, Kind.INSTANT),
        Column("claimed_until", Role.TIME, Kind.INSTANT),
        Column("failure", Role.CONTENT, Kind.TEXT),
    ),
    act=Act.REMOVE,
    rule=Rule.DETACH,
    session_act=Act.VIA_SOURCES,
    session_keep="a job goes with the last record that it was to read",
    lifetime="until it is done",
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

RECORDS: tuple[Collection, ...] = (
    SESSIONS, EPISODES, EVENTS, ATTACHMENTS, MEMORIES, FACTS, BLOCKS, DOCUMENTS, CHUNKS, ANSWERS, JOBS,
)  # fmt: skip
"""The collections that hold records of subjects."""
SEARCHED = tuple(kind for kind in RECORDS if kind.searched)
"""Those whose words the search index finds."""
CODES = 8
"""The index knows a record by ``rid * CODES + search_code``."""

SEARCH = Collection(
    name="search",
    purpose="The search index: keyed hashes of words and of identities, and never a word.",
    columns=(Column("owner", Role.PSEUDONYM), *_system("words")),
    act=Act.VIA_PARENT,
    lifetime="as long as its record",
)
VECTORS = Collection(
    name="vectors",
    purpose="The vector of a record, by which what means the same is found.",
    columns=(
        *_system("record"),
        Column("org", Role.ORG),
        Column("namespace", Role.NAMESPACE),
        Column("agent", Role.AGENT),
        Column("user_id", Role.USER),
        Column("session_id", Role.SESSION),
        *_system("model"),
        Column("vector", Role.CONTENT),
    ),
    act=Act.VIA_PARENT,
    lifetime="as long as its record",
)
AUDIT_CLEAR = Collection(
    name="audit_clear",
    purpose="Who acted and who had asked, for their pseudonyms in the audit; the chain needs none of it.",
    columns=(
        Column("pseudonym", Role.PSEUDONYM),
        *_system("key_id"),
        Column("org", Role.ORG),
        *_system("part"),
        Column("name", Role.ACTOR),
        *_system("seq"),
    ),
    act=Act.REMOVE,
    lifetime="until whom it names is erased",
)

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
            Column("actor", Role.PSEUDONYM),
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
            *_system("rid", "position", "direct", "ref", "beside"),
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
        purpose="Who did what, to which pseudonyms, with which outcome: a chain of entries.",
        columns=(
            Column("org", Role.ORG),
            *_system("n", "key_id"),
            Column("body", Role.PSEUDONYM),
            *_system("mac"),
        ),
        act=Act.KEEP,
        keep="accountability; it names nobody (law 14)",
        lifetime=_FOR_EVER,
    ),
    Collection(
        name="orgs",
        purpose="Each org's erasure counter, and the heads of its receipt chain and of its audit.",
        columns=(
            Column("org", Role.ORG),
            *_system("seq", "ledger_length", "ledger_head", "audit_length", "audit_head"),
        ),
        act=Act.KEEP,
        keep="names no person",
        lifetime=_FOR_EVER,
    ),
    Collection(
        name="store",
        purpose="The name of the store, by which an export tells where it came from.",
        columns=_system("id"),
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

COLLECTIONS: tuple[Collection, ...] = (*RECORDS, LINEAGE, SEARCH, VECTORS, AUDIT_CLEAR, *_CONTROL)
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
