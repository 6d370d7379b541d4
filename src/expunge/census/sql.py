"""The SQL of the census, written out and reviewed by hand.

It shares no query with the erasure and does not derive from the data map: when one of them is wrong, the other
shows it. A test compares the list of collections with the map. Two ways of counting: by identity, and (for what
was derived from the subject's records and names nobody) by the ids that the erasure had marked.
"""

from __future__ import annotations

COUNTED = (
    "sessions", "episodes", "events", "attachments", "memories", "facts", "blocks", "documents", "chunks", "answers",
    "jobs", "lineage", "search", "vectors", "audit_clear",
)  # fmt: skip

BY_IDENTITY = {
    "sessions": """
        SELECT count(*) FROM sessions c
        WHERE c.org = :org AND c.seq < :seq{identity}{created}{live}
    """,
    "episodes": """
        SELECT count(*) FROM episodes c
        WHERE c.org = :org AND c.seq < :seq{identity}{occurred}{live}
    """,
    "events": """
        SELECT count(*) FROM events c
        WHERE c.org = :org AND c.seq < :seq{identity}{created}{live}
    """,
    "attachments": """
        SELECT count(*) FROM attachments c
        WHERE c.org = :org AND c.seq < :seq{identity}{created}{live}
    """,
    "memories": """
        SELECT count(*) FROM memories c
        WHERE c.org = :org AND c.seq < :seq{identity}{updated}{live}
    """,
    "facts": """
        SELECT count(*) FROM facts c
        WHERE c.org = :org AND c.seq < :seq{identity}{recorded}{live}
    """,
    "blocks": """
        SELECT count(*) FROM blocks c
        WHERE c.org = :org AND c.seq < :seq{identity}{updated}{live}
    """,
    "documents": """
        SELECT count(*) FROM documents c
        WHERE c.org = :org AND c.seq < :seq{identity}{updated}{live}
    """,
    "chunks": """
        SELECT count(*) FROM chunks c
        WHERE c.org = :org AND c.seq < :seq{identity}{created}{live}
    """,
    "answers": """
        SELECT count(*) FROM answers c
        WHERE c.org = :org AND c.seq < :seq{identity}{created}{live}
    """,
    "jobs": """
        SELECT count(*) FROM jobs c
        WHERE c.org = :org AND c.seq < :seq{identity}{created}{live}
    """,
}

_ORPHAN = """
    AND CASE {number} % 8
        WHEN 1 THEN (SELECT 1 FROM episodes r WHERE r.rid = {number} / 8)
        WHEN 2 THEN (SELECT 1 FROM memories r WHERE r.rid = {number} / 8)
        WHEN 3 THEN (SELECT 1 FROM facts r WHERE r.rid = {number} / 8)
        WHEN 4 THEN (SELECT 1 FROM chunks r WHERE r.rid = {number} / 8)
    END IS NULL
"""
"""Looked up for each entry: as conditions of a join, a planner that expects many entries reads all four tables."""
SEARCH = f"""
    SELECT t.key, 'search', count(*) FROM each_text(:owned) t CROSS JOIN search c
    WHERE c.search MATCH 'owner : (' || t.value || ')'{_ORPHAN.format(number="c.rowid")} GROUP BY t.key
"""
SEARCH_IN_POSTGRES = f"""
    SELECT t.key, 'search', count(*) FROM each_text(:owned) t CROSS JOIN search c
    WHERE c.owner @> string_to_array(t.value, ' '){_ORPHAN.format(number="c.record")} GROUP BY t.key
"""
"""Entries of the search index that outlived their record, found by the hash of whose they are."""
VECTORS = f"""
    SELECT t.key, 'vectors', count(*) FROM each_object(:targets) t CROSS JOIN vectors c
    WHERE c.org = :org{{identity}}{_ORPHAN.format(number="c.record")} GROUP BY t.key
"""
"""Vectors that outlived their record."""
_NUMBER = """m.rid * 8 + CASE m.collection
    WHEN 'episodes' THEN 1 WHEN 'memories' THEN 2 WHEN 'facts' THEN 3 WHEN 'chunks' THEN 4 END"""
_MARKED_ENTRIES = f"""
    SELECT m.position, 'search', count(*) FROM marks m CROSS JOIN search c ON {{entry}} = {_NUMBER}
    WHERE m.request = :request AND m.direct = 0{_ORPHAN.format(number="{entry}")} GROUP BY m.position
    UNION ALL
    SELECT m.position, 'vectors', count(*) FROM marks m CROSS JOIN vectors c ON c.record = {_NUMBER}
    WHERE m.request = :request AND m.direct = 0{_ORPHAN.format(number="c.record")} GROUP BY m.position
"""
MARKED_ENTRIES = _MARKED_ENTRIES.format(entry="c.rowid")
MARKED_ENTRIES_IN_POSTGRES = _MARKED_ENTRIES.format(entry="c.record")
"""The same of what was derived: its entry belongs to whom it belongs to, and maybe to nobody."""

NAMES = """
    SELECT t.key, 'audit_clear', count(*) FROM each_object(:targets) t CROSS JOIN audit_clear c
    WHERE c.name = text_in(t.value, 'user_id') AND c.org = :org AND c.seq < :seq GROUP BY t.key
"""
"""The names of erased users beside the audit: as who acted or who had asked."""
NAMES_OF_ORG = "SELECT 0, 'audit_clear', count(*) FROM audit_clear c WHERE c.org = :org AND c.seq < :seq"
"""The same of a whole org."""

ALL_BY_IDENTITY = "SELECT t.key, {counts} FROM each_object(:targets) t"
"""One row for each target: its number, and each count of ``BY_IDENTITY`` as a sub-select."""

ONE_BY_IDENTITY = "SELECT 0, {counts}"
"""The same for a single target, which is a parameter of its own: a join with one row costs more than the counts."""

OUTLIVE_A_SESSION = ("facts", "blocks", "jobs")
"""What belongs to a session and stays when it goes, unless it was made from what goes: counted by its mark alone."""

IDENTITY = {
    "namespace": " AND c.namespace = text_in({target}, 'namespace') AND c.namespace <> '-'",
    "agent": " AND c.agent = text_in({target}, 'agent') AND c.agent <> '-'",
    "user_id": " AND c.user_id = text_in({target}, 'user_id')",
    "session_id": " AND c.session_id = text_in({target}, 'session_id') AND c.session_id <> '-'",
}

DATED = {
    "created": " AND c.created_at < :before",
    "occurred": " AND c.occurred_at < :before",
    "updated": " AND c.updated_at < :before",
    "recorded": " AND c.recorded_at < :before",
}

SOME_DERIVED = "SELECT EXISTS (SELECT 1 FROM marks m WHERE m.request = :request AND m.direct = 0)"

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
        UNION SELECT name FROM audit_clear WHERE org = :org
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
        SELECT c.ref FROM each_text(:refs) t CROSS JOIN attachments c
        WHERE c.ref = t.value AND c.org = :org AND (c.marked = 0 OR c.seq >= :seq)
    """,
    "documents": """
        SELECT c.ref FROM each_text(:refs) t CROSS JOIN documents c
        WHERE c.ref = t.value AND c.org = :org AND (c.marked = 0 OR c.seq >= :seq)
    """,
}
"""Of the bodies that a store listed, those that a record names which is served (it is held), or newer (restored)."""
