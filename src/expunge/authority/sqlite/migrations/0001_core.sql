-- Schema 1. Every table and column is declared in the data map; the schema test compares the two (law 3).
-- Times are microseconds since 1970 UTC. '-' in an identity column means nobody. `seq` is the org's erasure
-- counter as it stood when the unit of work that wrote the row began. `marked` is 1 while an erasure is about
-- to remove the row, or keeps it hidden: nothing serves it, and nothing may be derived from it. A `rid` is never used again
-- (AUTOINCREMENT): marks name rows by it, and may outlive them. Only the index by user holds the rows of nobody, too.

CREATE TABLE orgs (
    org           TEXT PRIMARY KEY,
    seq           INTEGER NOT NULL DEFAULT 0,
    ledger_length INTEGER NOT NULL DEFAULT 0,
    ledger_head   TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
    id          TEXT PRIMARY KEY,
    check_value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    rid         INTEGER PRIMARY KEY AUTOINCREMENT,
    org         TEXT NOT NULL,
    id          TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    agent       TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    marked      INTEGER NOT NULL DEFAULT 0,
    UNIQUE (org, id)
) STRICT;
CREATE INDEX sessions_user ON sessions (org, user_id, seq);
CREATE INDEX sessions_namespace ON sessions (org, namespace) WHERE namespace <> '-';
CREATE INDEX sessions_agent ON sessions (org, agent) WHERE agent <> '-';
CREATE INDEX sessions_session ON sessions (org, session_id) WHERE session_id <> '-';

CREATE TABLE episodes (
    rid         INTEGER PRIMARY KEY AUTOINCREMENT,
    org         TEXT NOT NULL,
    id          TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    agent       TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    marked      INTEGER NOT NULL DEFAULT 0,
    occurred_at INTEGER NOT NULL,
    input       TEXT,
    output      TEXT,
    UNIQUE (org, id)
) STRICT;
CREATE INDEX episodes_user ON episodes (org, user_id, seq);
CREATE INDEX episodes_namespace ON episodes (org, namespace) WHERE namespace <> '-';
CREATE INDEX episodes_agent ON episodes (org, agent) WHERE agent <> '-';
CREATE INDEX episodes_session ON episodes (org, session_id) WHERE session_id <> '-';

CREATE TABLE events (
    rid         INTEGER PRIMARY KEY AUTOINCREMENT,
    org         TEXT NOT NULL,
    id          TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    agent       TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    marked      INTEGER NOT NULL DEFAULT 0,
    episode     TEXT NOT NULL,
    kind        TEXT,
    content     TEXT,
    UNIQUE (org, id)
) STRICT;
CREATE INDEX events_user ON events (org, user_id, seq);
CREATE INDEX events_namespace ON events (org, namespace) WHERE namespace <> '-';
CREATE INDEX events_agent ON events (org, agent) WHERE agent <> '-';
CREATE INDEX events_session ON events (org, session_id) WHERE session_id <> '-';
CREATE INDEX events_episode ON events (org, episode);

CREATE TABLE attachments (
    rid         INTEGER PRIMARY KEY AUTOINCREMENT,
    org         TEXT NOT NULL,
    id          TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    agent       TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    marked      INTEGER NOT NULL DEFAULT 0,
    episode     TEXT NOT NULL,
    path        TEXT NOT NULL,
    bytes       INTEGER NOT NULL,
    sha256      TEXT NOT NULL,
    ref         TEXT NOT NULL,
    UNIQUE (org, id)
) STRICT;
CREATE INDEX attachments_user ON attachments (org, user_id, seq);
CREATE INDEX attachments_namespace ON attachments (org, namespace) WHERE namespace <> '-';
CREATE INDEX attachments_agent ON attachments (org, agent) WHERE agent <> '-';
CREATE INDEX attachments_session ON attachments (org, session_id) WHERE session_id <> '-';
CREATE INDEX attachments_episode ON attachments (org, episode);
CREATE INDEX attachments_ref ON attachments (ref);

CREATE TABLE memories (
    rid         INTEGER PRIMARY KEY AUTOINCREMENT,
    org         TEXT NOT NULL,
    id          TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    agent       TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    marked      INTEGER NOT NULL DEFAULT 0,
    key         TEXT NOT NULL,
    version     INTEGER NOT NULL,
    value       TEXT NOT NULL,
    memory_type TEXT,
    UNIQUE (org, id)
) STRICT;
CREATE INDEX memories_user ON memories (org, user_id, seq);
CREATE INDEX memories_namespace ON memories (org, namespace) WHERE namespace <> '-';
CREATE INDEX memories_agent ON memories (org, agent) WHERE agent <> '-';
CREATE INDEX memories_session ON memories (org, session_id) WHERE session_id <> '-';
CREATE UNIQUE INDEX memories_key ON memories (org, namespace, user_id, agent, session_id, key, version);

CREATE TABLE facts (
    rid         INTEGER PRIMARY KEY AUTOINCREMENT,
    org         TEXT NOT NULL,
    id          TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    agent       TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    marked      INTEGER NOT NULL DEFAULT 0,
    subject     TEXT NOT NULL,
    predicate   TEXT NOT NULL,
    object      TEXT NOT NULL,
    valid_from  INTEGER,
    valid_to    INTEGER,
    UNIQUE (org, id)
) STRICT;
CREATE INDEX facts_user ON facts (org, user_id, seq);
CREATE INDEX facts_namespace ON facts (org, namespace) WHERE namespace <> '-';
CREATE INDEX facts_agent ON facts (org, agent) WHERE agent <> '-';
CREATE INDEX facts_session ON facts (org, session_id) WHERE session_id <> '-';

CREATE TABLE blocks (
    rid         INTEGER PRIMARY KEY AUTOINCREMENT,
    org         TEXT NOT NULL,
    id          TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    agent       TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    marked      INTEGER NOT NULL DEFAULT 0,
    name        TEXT NOT NULL,
    version     INTEGER NOT NULL,
    content     TEXT,
    UNIQUE (org, id)
) STRICT;
CREATE INDEX blocks_user ON blocks (org, user_id, seq);
CREATE INDEX blocks_namespace ON blocks (org, namespace) WHERE namespace <> '-';
CREATE INDEX blocks_agent ON blocks (org, agent) WHERE agent <> '-';
CREATE INDEX blocks_session ON blocks (org, session_id) WHERE session_id <> '-';
CREATE UNIQUE INDEX blocks_name ON blocks (org, namespace, user_id, agent, session_id, name, version);

-- The id stands before the org in both keys: led by the org, the planner takes a search by it alone for as good.
CREATE TABLE lineage (
    org                TEXT NOT NULL,
    derived            TEXT NOT NULL,
    source             TEXT NOT NULL,
    derived_collection TEXT NOT NULL,
    source_collection  TEXT NOT NULL,
    rule               TEXT NOT NULL CHECK (rule IN ('retire', 'detach')),
    seq                INTEGER NOT NULL,
    PRIMARY KEY (derived, org, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX lineage_source ON lineage (source, org);

-- The working row of an erasure. `scope` holds the clear ids and is emptied when the erasure ends.
CREATE TABLE requests (
    rid             INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT NOT NULL UNIQUE,
    org             TEXT NOT NULL,
    scope_type      TEXT NOT NULL,
    scope           TEXT,
    before          INTEGER,
    subjects        TEXT NOT NULL,
    key_id          TEXT NOT NULL,
    actor           TEXT NOT NULL,
    requester       TEXT,
    urgency         TEXT NOT NULL CHECK (urgency IN ('normal', 'urgent')),
    external        INTEGER NOT NULL,
    bound_plan      TEXT,
    exact           INTEGER NOT NULL,
    purge           INTEGER NOT NULL,
    status          TEXT NOT NULL,
    attempt         INTEGER NOT NULL,
    current_step    TEXT,
    steps_completed TEXT NOT NULL,
    plan_hash       TEXT,
    restore_until   INTEGER,
    fence_seq       INTEGER,
    lowered_seq     INTEGER,
    requested_at    INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    verified_at     INTEGER,
    failure_reason  TEXT,
    found           INTEGER,
    hidden          TEXT NOT NULL,
    reversals       TEXT NOT NULL,
    removed         TEXT NOT NULL,
    effects         TEXT NOT NULL,
    deferred        TEXT NOT NULL,
    census          TEXT
) STRICT;
CREATE INDEX requests_org ON requests (org, rid);
CREATE INDEX requests_open ON requests (org) WHERE (status <> 'completed' OR purge = 0);
CREATE INDEX requests_due ON requests (restore_until) WHERE restore_until IS NOT NULL;
CREATE INDEX requests_age ON requests (requested_at);
CREATE INDEX requests_clear ON requests (org) WHERE scope IS NOT NULL;

-- One row per target of a request. The parts are pseudonyms; '' matches everything. The row stays for ever,
-- because a unit of work that began before the fence came down may end at any time after it.
CREATE TABLE fences (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    org          TEXT NOT NULL,
    request_id   TEXT NOT NULL,
    position     INTEGER NOT NULL,
    user_pn      TEXT NOT NULL,
    namespace_pn TEXT NOT NULL,
    session_pn   TEXT NOT NULL,
    agent_pn     TEXT NOT NULL,
    before       INTEGER,
    key_id       TEXT NOT NULL,
    seq          INTEGER NOT NULL,
    lowered_seq  INTEGER,
    UNIQUE (request_id, position)
) STRICT;
CREATE INDEX fences_standing ON fences (org) WHERE lowered_seq IS NULL;
CREATE INDEX fences_match ON fences (org, user_pn, namespace_pn, session_pn, agent_pn);

-- What an erasure that runs is about to remove, or one in its restore window has hidden: direct = 1 for a record in
-- scope, 0 for one derived from it. `ref` is where the body of a record lies that has one outside the database.
CREATE TABLE marks (
    request    INTEGER NOT NULL,
    org        TEXT NOT NULL,
    collection TEXT NOT NULL,
    id         TEXT NOT NULL,
    rid        INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    direct     INTEGER NOT NULL,
    ref        TEXT,
    PRIMARY KEY (request, collection, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX marks_record ON marks (id, org);

-- The scope of a hold is clear text, because what it protects is not erased; NULL matches everything.
CREATE TABLE holds (
    id          INTEGER PRIMARY KEY,
    org         TEXT NOT NULL,
    namespace   TEXT,
    agent       TEXT,
    user_id     TEXT,
    session_id  TEXT,
    reason      TEXT,
    placed_at   INTEGER NOT NULL,
    released_at INTEGER
) STRICT;
CREATE INDEX holds_standing ON holds (org) WHERE released_at IS NULL;

-- The permanent list of what was erased: an intent when an erasure opens, a receipt per subject when it ends.
CREATE TABLE ledger (
    org        TEXT NOT NULL,
    n          INTEGER NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('intent', 'receipt')),
    request_id TEXT NOT NULL,
    position   INTEGER NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (org, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX ledger_request ON ledger (request_id, org, kind, position);

CREATE TABLE audit (
    org        TEXT NOT NULL,
    n          INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    actor      TEXT NOT NULL,
    role       TEXT NOT NULL,
    operation  TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    request_id TEXT,
    subjects   TEXT NOT NULL,
    detail     TEXT NOT NULL,
    PRIMARY KEY (org, n)
) STRICT, WITHOUT ROWID;
