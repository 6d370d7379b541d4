-- Schema 3. A row says itself which erasure marks it: `marked` is the `rid` of that request, and 0 where none does.
-- So a mark is looked up by its record only where the row does not say it (`beside` = 1): another request had marked
-- the row before, the row is held, or it is gone or about to go in the same commit. Hiding is spared an index entry a
-- row, each of which fell on another page.

ALTER TABLE marks ADD COLUMN beside INTEGER NOT NULL DEFAULT 1;
DROP INDEX marks_record;
DROP INDEX requests_clear;  -- what it held is found by requests_open
CREATE INDEX marks_beside ON marks (id, org) WHERE beside = 1;

UPDATE sessions SET marked = m.request
FROM (SELECT rid, min(request) AS request FROM marks WHERE collection = 'sessions' GROUP BY rid) m
WHERE sessions.rid = m.rid AND sessions.marked = 1;
UPDATE episodes SET marked = m.request
FROM (SELECT rid, min(request) AS request FROM marks WHERE collection = 'episodes' GROUP BY rid) m
WHERE episodes.rid = m.rid AND episodes.marked = 1;
UPDATE events SET marked = m.request
FROM (SELECT rid, min(request) AS request FROM marks WHERE collection = 'events' GROUP BY rid) m
WHERE events.rid = m.rid AND events.marked = 1;
UPDATE attachments SET marked = m.request
FROM (SELECT rid, min(request) AS request FROM marks WHERE collection = 'attachments' GROUP BY rid) m
WHERE attachments.rid = m.rid AND attachments.marked = 1;
UPDATE memories SET marked = m.request
FROM (SELECT rid, min(request) AS request FROM marks WHERE collection = 'memories' GROUP BY rid) m
WHERE memories.rid = m.rid AND memories.marked = 1;
UPDATE facts SET marked = m.request
FROM (SELECT rid, min(request) AS request FROM marks WHERE collection = 'facts' GROUP BY rid) m
WHERE facts.rid = m.rid AND facts.marked = 1;
UPDATE blocks SET marked = m.request
FROM (SELECT rid, min(request) AS request FROM marks WHERE collection = 'blocks' GROUP BY rid) m
WHERE blocks.rid = m.rid AND blocks.marked = 1;
UPDATE documents SET marked = m.request
FROM (SELECT rid, min(request) AS request FROM marks WHERE collection = 'documents' GROUP BY rid) m
WHERE documents.rid = m.rid AND documents.marked = 1;
UPDATE chunks SET marked = m.request
FROM (SELECT rid, min(request) AS request FROM marks WHERE collection = 'chunks' GROUP BY rid) m
WHERE chunks.rid = m.rid AND chunks.marked = 1;
UPDATE answers SET marked = m.request
FROM (SELECT rid, min(request) AS request FROM marks WHERE collection = 'answers' GROUP BY rid) m
WHERE answers.rid = m.rid AND answers.marked = 1;
UPDATE jobs SET marked = m.request
FROM (SELECT rid, min(request) AS request FROM marks WHERE collection = 'jobs' GROUP BY rid) m
WHERE jobs.rid = m.rid AND jobs.marked = 1;

-- The audit as a chain, what its pseudonyms stand for apart from it, and views for an operator's own check.

-- What there was before the chain needs the keys to be chained, so it waits until the database is opened with them
-- (expunge.audit.adopt); then the table goes.
ALTER TABLE audit RENAME TO audit_unchained;

-- One entry: canonical JSON, and the HMAC over the org, the number, the entry before it and the body. There is no copy
-- of any of it beside the body. Led by nothing else, an entry is found by its number.
CREATE TABLE audit (
    org    TEXT NOT NULL,
    n      INTEGER NOT NULL CHECK (n >= 1),
    key_id TEXT NOT NULL,
    body   TEXT NOT NULL,
    mac    BLOB NOT NULL,
    PRIMARY KEY (org, n)
) STRICT, WITHOUT ROWID;

-- Who acted and who had asked, by pseudonym. It can go at any time, and the chain stays as it is.
CREATE TABLE audit_clear (
    pseudonym TEXT PRIMARY KEY,
    key_id    TEXT NOT NULL,
    org       TEXT NOT NULL,
    part      TEXT NOT NULL CHECK (part IN ('actor', 'requester')),
    name      TEXT NOT NULL,
    seq       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- The name stands before the org: led by the org, the planner takes a walk through all of it for as good as a search.
CREATE INDEX audit_clear_name ON audit_clear (name, org);

ALTER TABLE orgs ADD COLUMN audit_length INTEGER NOT NULL DEFAULT 0;
ALTER TABLE orgs ADD COLUMN audit_head BLOB;
CREATE INDEX requests_requester ON requests (requester, org) WHERE requester IS NOT NULL;

-- The views are for other programs: a column that stands here keeps its name and its meaning. '-' means nobody. Times
-- are ISO-8601 in UTC without the Z, with a fraction when there is one, so that they sort as text. What is added to them
-- and taken away again are the microseconds from the year 1 to 1970: a remainder of something negative would be negative.
CREATE VIEW sql_v1_memories AS
SELECT r.org, r.user_id, r.namespace, r.agent, r.session_id, r.id, r.key, r.version, r.value, r.memory_type,
    strftime('%Y-%m-%dT%H:%M:%S', (r.created_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE r.created_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (r.created_at + 62135596800000000) % 1000000) END AS created_at,
    strftime('%Y-%m-%dT%H:%M:%S', (r.recorded_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE r.recorded_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (r.recorded_at + 62135596800000000) % 1000000) END AS recorded_at,
    strftime('%Y-%m-%dT%H:%M:%S', (r.updated_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE r.updated_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (r.updated_at + 62135596800000000) % 1000000) END AS updated_at,
    strftime('%Y-%m-%dT%H:%M:%S', (r.expires_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE r.expires_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (r.expires_at + 62135596800000000) % 1000000) END AS expires_at
FROM memories r
WHERE r.marked = 0 AND r.state = 'live' AND NOT EXISTS (
    SELECT 1 FROM memories n
    WHERE n.key = r.key AND n.org = r.org AND n.namespace = r.namespace AND n.user_id = r.user_id
        AND n.agent = r.agent AND n.session_id = r.session_id AND n.marked = 0
        AND (n.updated_at, n.version) > (r.updated_at, r.version));

CREATE VIEW sql_v1_memory_history AS
SELECT r.org, r.user_id, r.namespace, r.agent, r.session_id, r.id, r.key, r.version, r.value, r.memory_type, r.state,
    r.marked <> 0 AS hidden,
    strftime('%Y-%m-%dT%H:%M:%S', (r.created_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE r.created_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (r.created_at + 62135596800000000) % 1000000) END AS created_at,
    strftime('%Y-%m-%dT%H:%M:%S', (r.recorded_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE r.recorded_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (r.recorded_at + 62135596800000000) % 1000000) END AS recorded_at,
    strftime('%Y-%m-%dT%H:%M:%S', (r.updated_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE r.updated_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (r.updated_at + 62135596800000000) % 1000000) END AS updated_at,
    strftime('%Y-%m-%dT%H:%M:%S', (r.expires_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE r.expires_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (r.expires_at + 62135596800000000) % 1000000) END AS expires_at
FROM memories r;

-- An entry of a transcript that names no user belongs to that of its episode (CROSS and + keep the planner from going
-- through all of nobody's).
CREATE VIEW sql_v1_conversations AS
SELECT r.org, r.user_id, r.namespace, r.agent, r.session_id, r.id AS episode, r.id, 'episode' AS kind, 0 AS position,
    r.input, r.output, NULL AS content,
    strftime('%Y-%m-%dT%H:%M:%S', (r.occurred_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE r.occurred_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (r.occurred_at + 62135596800000000) % 1000000) END AS occurred_at,
    strftime('%Y-%m-%dT%H:%M:%S', (r.recorded_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE r.recorded_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (r.recorded_at + 62135596800000000) % 1000000) END AS recorded_at
FROM episodes r WHERE r.marked = 0
UNION ALL
SELECT r.org, r.user_id, r.namespace, r.agent, r.session_id, r.episode, r.id, coalesce(r.kind, 'event'),
    coalesce(r.position, 0) + 1, NULL, NULL, r.content,
    strftime('%Y-%m-%dT%H:%M:%S', (coalesce(e.occurred_at, r.created_at) + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE coalesce(e.occurred_at, r.created_at) % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (coalesce(e.occurred_at, r.created_at) + 62135596800000000) % 1000000) END,
    strftime('%Y-%m-%dT%H:%M:%S', (r.recorded_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE r.recorded_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (r.recorded_at + 62135596800000000) % 1000000) END
FROM events r LEFT JOIN episodes e ON e.org = r.org AND e.id = r.episode WHERE r.marked = 0 AND r.user_id <> '-'
UNION ALL
SELECT e.org, e.user_id, e.namespace, e.agent, e.session_id, r.episode, r.id, coalesce(r.kind, 'event'),
    coalesce(r.position, 0) + 1, NULL, NULL, r.content,
    strftime('%Y-%m-%dT%H:%M:%S', (e.occurred_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE e.occurred_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (e.occurred_at + 62135596800000000) % 1000000) END,
    strftime('%Y-%m-%dT%H:%M:%S', (r.recorded_at + 62135596800000000) / 1000000 - 62135596800, 'unixepoch') ||
        CASE r.recorded_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', (r.recorded_at + 62135596800000000) % 1000000) END
FROM episodes e CROSS JOIN events r ON r.episode = e.id AND r.org = e.org WHERE r.marked = 0 AND +r.user_id = '-';

-- The store has a name of its own, by which an export tells where it came from. A copy of the file keeps it.

CREATE TABLE store (
    id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO store (id) VALUES ('st-' || lower(hex(randomblob(16))));
