-- Schema 3: a row says itself which erasure marks it: `marked` is the `rid` of that request, and 0 where none does.
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
