-- Schema 2: what agents do with their memory. The rules of schema 1 hold here as well.

ALTER TABLE sessions ADD COLUMN status TEXT NOT NULL DEFAULT 'open';
ALTER TABLE sessions ADD COLUMN ended_at INTEGER;
ALTER TABLE episodes ADD COLUMN tool_calls TEXT;
ALTER TABLE episodes ADD COLUMN status TEXT NOT NULL DEFAULT 'completed';
ALTER TABLE events ADD COLUMN data TEXT;
ALTER TABLE events ADD COLUMN position INTEGER;
ALTER TABLE memories ADD COLUMN state TEXT NOT NULL DEFAULT 'live';
ALTER TABLE memories ADD COLUMN tags TEXT;
ALTER TABLE memories ADD COLUMN confidence REAL;
ALTER TABLE memories ADD COLUMN expires_at INTEGER;
ALTER TABLE memories ADD COLUMN on_expire TEXT NOT NULL DEFAULT 'tombstone';
ALTER TABLE memories ADD COLUMN deriver TEXT;
ALTER TABLE facts ADD COLUMN exclusive INTEGER NOT NULL DEFAULT 0;
ALTER TABLE facts ADD COLUMN confidence REAL;
-- The form in which predicates are compared; of facts that came before it, the words as they are.
ALTER TABLE facts ADD COLUMN predicate_key TEXT NOT NULL DEFAULT '';
UPDATE facts SET predicate_key = lower(replace(replace(trim(predicate), ' ', '_'), '-', '_'));
ALTER TABLE blocks ADD COLUMN state TEXT NOT NULL DEFAULT 'live';
ALTER TABLE blocks ADD COLUMN pinned_order INTEGER;
CREATE INDEX memories_expiry ON memories (expires_at, org) WHERE expires_at IS NOT NULL;
CREATE INDEX facts_stated ON facts (subject, org, user_id, predicate_key) WHERE exclusive = 1;

-- The version that is current is the newest by its time, so the time stands before the number.
DROP INDEX memories_key;
DROP INDEX blocks_name;
-- The key stands before the org: led by the org, the planner takes a walk through all of it for as good as a search.
CREATE UNIQUE INDEX memories_key
    ON memories (key, org, namespace, user_id, agent, session_id, updated_at, version);
CREATE UNIQUE INDEX blocks_name ON blocks (name, org, namespace, user_id, agent, session_id, updated_at, version);

-- An edge knows a third rule; a check cannot be altered, so the table is made anew.
DROP INDEX lineage_source;
ALTER TABLE lineage RENAME TO lineage_1;
CREATE TABLE lineage (
    org                TEXT NOT NULL,
    derived            TEXT NOT NULL,
    source             TEXT NOT NULL,
    derived_collection TEXT NOT NULL,
    source_collection  TEXT NOT NULL,
    rule               TEXT NOT NULL CHECK (rule IN ('retire', 'rebuild', 'detach')),
    seq                INTEGER NOT NULL,
    PRIMARY KEY (derived, org, source)
) STRICT, WITHOUT ROWID;
INSERT INTO lineage SELECT org, derived, source, derived_collection, source_collection, rule, seq FROM lineage_1;
DROP TABLE lineage_1;
CREATE INDEX lineage_source ON lineage (source, org);

CREATE TABLE documents (
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
    title       TEXT NOT NULL,
    version     INTEGER NOT NULL,
    state       TEXT NOT NULL,
    media_type  TEXT,
    pinned      INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    sha256      TEXT NOT NULL,
    ref         TEXT,
    UNIQUE (org, id)
) STRICT;
CREATE INDEX documents_user ON documents (org, user_id, seq);
CREATE INDEX documents_namespace ON documents (org, namespace) WHERE namespace <> '-';
CREATE INDEX documents_agent ON documents (org, agent) WHERE agent <> '-';
CREATE INDEX documents_session ON documents (org, session_id) WHERE session_id <> '-';
CREATE UNIQUE INDEX documents_title
    ON documents (title, org, namespace, user_id, agent, session_id, updated_at, version);
CREATE INDEX documents_ref ON documents (ref) WHERE ref IS NOT NULL;

CREATE TABLE chunks (
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
    document    TEXT NOT NULL,
    position    INTEGER NOT NULL,
    text        TEXT NOT NULL,
    UNIQUE (org, id)
) STRICT;
CREATE INDEX chunks_user ON chunks (org, user_id, seq);
CREATE INDEX chunks_namespace ON chunks (org, namespace) WHERE namespace <> '-';
CREATE INDEX chunks_agent ON chunks (org, agent) WHERE agent <> '-';
CREATE INDEX chunks_session ON chunks (org, session_id) WHERE session_id <> '-';
CREATE INDEX chunks_document ON chunks (document, org);

CREATE TABLE answers (
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
    question    TEXT NOT NULL,
    answer      TEXT NOT NULL,
    asked       TEXT NOT NULL,
    expires_at  INTEGER,
    UNIQUE (org, id)
) STRICT;
CREATE INDEX answers_user ON answers (org, user_id, seq);
CREATE INDEX answers_namespace ON answers (org, namespace) WHERE namespace <> '-';
CREATE INDEX answers_agent ON answers (org, agent) WHERE agent <> '-';
CREATE INDEX answers_session ON answers (org, session_id) WHERE session_id <> '-';
CREATE INDEX answers_asked ON answers (asked, org);

CREATE TABLE jobs (
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
    deriver     TEXT NOT NULL,
    key         TEXT,
    status      TEXT NOT NULL CHECK (status IN ('waiting', 'running', 'failed', 'done')),
    attempts    INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    claimed_until INTEGER,
    failure     TEXT,
    UNIQUE (org, id)
) STRICT;
CREATE INDEX jobs_user ON jobs (org, user_id, seq);
CREATE INDEX jobs_namespace ON jobs (org, namespace) WHERE namespace <> '-';
CREATE INDEX jobs_agent ON jobs (org, agent) WHERE agent <> '-';
CREATE INDEX jobs_session ON jobs (org, session_id) WHERE session_id <> '-';
CREATE INDEX jobs_due ON jobs (due_at) WHERE status IN ('waiting', 'running');

-- The search index knows a record by rid * 8 + a number for its collection. It holds keyed hashes and no word, and no
-- content of its own (design 6). A record that goes takes its entry and its vector with it, whichever statement removes it.
CREATE VIRTUAL TABLE search USING fts5(owner, words, content='', contentless_delete=1, tokenize='ascii');

CREATE TABLE vectors (
    record     INTEGER PRIMARY KEY,
    org        TEXT NOT NULL,
    namespace  TEXT NOT NULL,
    agent      TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    session_id TEXT NOT NULL,
    model      TEXT NOT NULL,
    vector     BLOB NOT NULL
) STRICT;
CREATE INDEX vectors_user ON vectors (org, user_id);
CREATE INDEX vectors_namespace ON vectors (org, namespace) WHERE namespace <> '-';
CREATE INDEX vectors_agent ON vectors (org, agent) WHERE agent <> '-';
CREATE INDEX vectors_session ON vectors (org, session_id) WHERE session_id <> '-';

CREATE TRIGGER episodes_leave AFTER DELETE ON episodes BEGIN
    DELETE FROM search WHERE rowid = old.rid * 8 + 1;
    DELETE FROM vectors WHERE record = old.rid * 8 + 1;
END;
CREATE TRIGGER memories_leave AFTER DELETE ON memories BEGIN
    DELETE FROM search WHERE rowid = old.rid * 8 + 2;
    DELETE FROM vectors WHERE record = old.rid * 8 + 2;
END;
CREATE TRIGGER facts_leave AFTER DELETE ON facts BEGIN
    DELETE FROM search WHERE rowid = old.rid * 8 + 3;
    DELETE FROM vectors WHERE record = old.rid * 8 + 3;
END;
CREATE TRIGGER chunks_leave AFTER DELETE ON chunks BEGIN
    DELETE FROM search WHERE rowid = old.rid * 8 + 4;
    DELETE FROM vectors WHERE record = old.rid * 8 + 4;
END;
