"""The SQL of the census, written out and reviewed by hand.

It shares no query with the erasure and does not derive from the data map: when one of them is wrong, the other
shows it. A test compares the list of collections with the map. Two ways of counting: by identity, and (for what
was derived from the subject's records and names nobody) by the ids that the erasure had marked.
"""

from __future__ import annotations

COUNTED = (
    "sessions", "episodes", "events", "attachments", "memories", "facts", "blocks", "documents", "chunks", "answers",
    "jobs", "lineage", "search", "vectors",
)  # fmt: skip

BY_IDENTITY = {
    "sessions": """
        SELECT t.key, 'sessions', count(*) FROM json_each(:targets) t CROSS JOIN sessions c
        WHERE c.org = :org AND c.seq < :seq{identity}{created}{live} GROUP BY t.key
    """,
    "episodes": """
        SELECT t.key, 'episodes', count(*) FROM json_each(:targets) t CROSS JOIN episodes c
        WHERE c.org = :org AND c.seq < :seq{identity}{occurred}{live} GROUP BY t.key
    """,
    "events": """
        SELECT t.key, 'events', count(*) FROM json_each(:targets) t CROSS JOIN events c
        WHERE c.org = :org AND c.seq < :seq{identity}{created}{live} GROUP BY t.key
    """,
    "attachments": """
        SELECT t.key, 'attachments', count(*) FROM json_each(:targets) t CROSS JOIN attachments c
        WHERE c.org = :org AND c.seq < :seq{identity}{created}{live} GROUP BY t.key
    """,
    "memories": """
        SELECT t.key, 'memories', count(*) FROM json_each(:targets) t CROSS JOIN memories c
        WHERE c.org = :org AND c.seq < :seq{identity}{updated}{live} GROUP BY t.key
    """,
    "facts": """
        SELECT t.key, 'facts', count(*) FROM json_each(:targets) t CROSS JOIN facts c
        WHERE c.org = :org AND c.seq < :seq{identity}{recorded}{live} GROUP BY t.key
    """,
    "blocks": """
        SELECT t.key, 'blocks', count(*) FROM json_each(:targets) t CROSS JOIN blocks c
        WHERE c.org = :org AND c.seq < :seq{identity}{updated}{live} GROUP BY t.key
    """,
    "documents": """
        SELECT t.key, 'documents', count(*) FROM json_each(:targets) t CROSS JOIN documents c
        WHERE c.org = :org AND c.seq < :seq{identity}{updated}{live} GROUP BY t.key
    """,
    "chunks": """
        SELECT t.key, 'chunks', count(*) FROM json_each(:targets) t CROSS JOIN chunks c
        WHERE c.org = :org AND c.seq < :seq{identity}{created}{live} GROUP BY t.key
    """,
    "answers": """
        SELECT t.key, 'answers', count(*) FROM json_each(:targets) t CROSS JOIN answers c
        WHERE c.org = :org AND c.seq < :seq{identity}{created}{live} GROUP BY t.key
    """,
    "jobs": """
        SELECT t.key, 'jobs', count(*) FROM json_each(:targets) t CROSS JOIN jobs c
        WHERE c.org = :org AND c.seq < :seq{identity}{created}{live} GROUP BY t.key
    """,
}

_ORPHAN = """
    AND NOT EXISTS (SELECT 1 FROM episodes r WHERE {number} % 8 = 1 AND r.rid = {number} / 8)
    AND NOT EXISTS (SELECT 1 FROM memories r WHERE {number} % 8 = 2 AND r.rid = {number} / 8)
    AND NOT EXISTS (SELECT 1 FROM facts r WHERE {number} % 8 = 3 AND r.rid = {number} / 8)
    AND NOT EXISTS (SELECT 1 FROM chunks r WHERE {number} % 8 = 4 AND r.rid = {number} / 8)
"""
SEARCH = f"""
    SELECT t.key, 'search', count(*) FROM json_each(:owned) t CROSS JOIN search c
    WHERE c.search MATCH t.value{_ORPHAN.format(number="c.rowid")} GROUP BY t.key
"""
"""Entries of the search index that outlived their record, found by the hash of whose they are."""
VECTORS = f"""
    SELECT t.key, 'vectors', count(*) FROM json_each(:targets) t CROSS JOIN vectors c
    WHERE c.org = :org{{identity}}{_ORPHAN.format(number="c.record")} GROUP BY t.key
"""
"""Vectors that outlived their record."""

OUTLIVE_A_SESSION = ("facts", "blocks", "jobs")
"""What belongs to a session and stays when it goes, unless it was made from what goes: counted by its mark alone."""

IDENTITY = {
    "namespace": " AND c.namespace = json_extract(t.value, '$.namespace') AND c.namespace <> '-'",
    "agent": " AND c.agent = json_extract(t.value, '$.agent') AND c.agent <> '-'",
    "user_id": " AND c.user_id = json_extract(t.value, '$.user_id')",
    "session_id": " AND c.session_id = json_extract(t.value, '$.session_id') AND c.session_id <> '-'",
}

DATED = {
    "created": " AND c.created_at < :before",
    "occurred": " AND c.occurred_at < :before",
    "updated": " AND c.updated_at < :before",
    "recorded": " AND c.recorded_at < :before",
}

DERIVED = """
    SELECT m.position, 'sessions', count(*) FROM marks m JOIN sessions c ON c.rid = m.rid AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'sessions' AND m.direct = 0{live} GROUP BY m.position
    UNION ALL
    SELECT m.position, 'episodes', count(*) FROM marks m JOIN episodes c ON c.rid = m.rid AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'episodes' AND m.direct = 0{live} GROUP BY m.position
    UNION ALL
    SELECT m.position, 'events', count(*) FROM marks m JOIN events c ON c.rid = m.rid AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'events' AND m.direct = 0{live} GROUP BY m.position
    UNION ALL
    SELECT m.position, 'attachments', count(*) FROM marks m JOIN attachments c ON c.rid = m.rid AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'attachments' AND m.direct = 0{live} GROUP BY m.position
    UNION ALL
    SELECT m.position, 'memories', count(*) FROM marks m JOIN memories c ON c.rid = m.rid AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'memories' AND m.direct = 0{live} GROUP BY m.position
    UNION ALL
    SELECT m.position, 'facts', count(*) FROM marks m JOIN facts c ON c.rid = m.rid AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'facts' AND m.direct = 0{live} GROUP BY m.position
    UNION ALL
    SELECT m.position, 'documents', count(*) FROM marks m JOIN documents c ON c.rid = m.rid AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'documents' AND m.direct = 0{live} GROUP BY m.position
    UNION ALL
    SELECT m.position, 'chunks', count(*) FROM marks m JOIN chunks c ON c.rid = m.rid AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'chunks' AND m.direct = 0{live} GROUP BY m.position
    UNION ALL
    SELECT m.position, 'answers', count(*) FROM marks m JOIN answers c ON c.rid = m.rid AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'answers' AND m.direct = 0{live} GROUP BY m.position
    UNION ALL
    SELECT m.position, 'jobs', count(*) FROM marks m JOIN jobs c ON c.rid = m.rid AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'jobs' AND m.direct = 0{live} GROUP BY m.position
    UNION ALL
    SELECT m.position, 'blocks', count(*) FROM marks m JOIN blocks c ON c.rid = m.rid AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'blocks' AND m.direct = 0{live} GROUP BY m.position
"""

EDGES = """
    SELECT m.position, 'lineage', count(*) FROM marks m JOIN lineage c ON c.org = :org AND c.source = m.id
    WHERE m.request = :request AND c.seq < :seq GROUP BY m.position
    UNION ALL
    SELECT m.position, 'lineage', count(*) FROM marks m JOIN lineage c ON c.org = :org AND c.derived = m.id
    WHERE m.request = :request AND c.seq < :seq GROUP BY m.position
"""
"""The edges of what was marked. They are kept with what is hidden, and served with neither of their ends."""

LIVE_SUBJECTS = {
    "namespace": """
        SELECT namespace FROM sessions WHERE org = :org UNION SELECT namespace FROM episodes WHERE org = :org
        UNION SELECT namespace FROM events WHERE org = :org UNION SELECT namespace FROM attachments WHERE org = :org
        UNION SELECT namespace FROM memories WHERE org = :org
        UNION SELECT namespace FROM facts WHERE org = :org UNION SELECT namespace FROM blocks WHERE org = :org
        UNION SELECT namespace FROM documents WHERE org = :org UNION SELECT namespace FROM chunks WHERE org = :org
        UNION SELECT namespace FROM answers WHERE org = :org UNION SELECT namespace FROM jobs WHERE org = :org
        UNION SELECT namespace FROM vectors WHERE org = :org
    """,
    "agent": """
        SELECT agent FROM sessions WHERE org = :org UNION SELECT agent FROM episodes WHERE org = :org
        UNION SELECT agent FROM events WHERE org = :org UNION SELECT agent FROM attachments WHERE org = :org
        UNION SELECT agent FROM memories WHERE org = :org
        UNION SELECT agent FROM facts WHERE org = :org UNION SELECT agent FROM blocks WHERE org = :org
        UNION SELECT agent FROM documents WHERE org = :org UNION SELECT agent FROM chunks WHERE org = :org
        UNION SELECT agent FROM answers WHERE org = :org UNION SELECT agent FROM jobs WHERE org = :org
        UNION SELECT agent FROM vectors WHERE org = :org
    """,
    "user_id": """
        SELECT user_id FROM sessions WHERE org = :org UNION SELECT user_id FROM episodes WHERE org = :org
        UNION SELECT user_id FROM events WHERE org = :org UNION SELECT user_id FROM attachments WHERE org = :org
        UNION SELECT user_id FROM memories WHERE org = :org
        UNION SELECT user_id FROM facts WHERE org = :org UNION SELECT user_id FROM blocks WHERE org = :org
        UNION SELECT user_id FROM documents WHERE org = :org UNION SELECT user_id FROM chunks WHERE org = :org
        UNION SELECT user_id FROM answers WHERE org = :org UNION SELECT user_id FROM jobs WHERE org = :org
        UNION SELECT user_id FROM vectors WHERE org = :org
    """,
    "session_id": """
        SELECT session_id FROM sessions WHERE org = :org UNION SELECT session_id FROM episodes WHERE org = :org
        UNION SELECT session_id FROM events WHERE org = :org UNION SELECT session_id FROM attachments WHERE org = :org
        UNION SELECT session_id FROM memories WHERE org = :org
        UNION SELECT session_id FROM facts WHERE org = :org UNION SELECT session_id FROM blocks WHERE org = :org
        UNION SELECT session_id FROM documents WHERE org = :org UNION SELECT session_id FROM chunks WHERE org = :org
        UNION SELECT session_id FROM answers WHERE org = :org UNION SELECT session_id FROM jobs WHERE org = :org
        UNION SELECT session_id FROM vectors WHERE org = :org
    """,
}

NAMED_BODIES = {
    "attachments": """
        SELECT c.ref FROM json_each(:refs) t CROSS JOIN attachments c
        WHERE c.ref = t.value AND c.org = :org AND (c.marked = 0 OR c.seq >= :seq)
    """,
    "documents": """
        SELECT c.ref FROM json_each(:refs) t CROSS JOIN documents c
        WHERE c.ref = t.value AND c.org = :org AND (c.marked = 0 OR c.seq >= :seq)
    """,
}
"""Of the bodies that a store listed, those that a record names which is served (it is held), or newer (restored)."""
