"""The SQL of the census, written out and reviewed by hand.

It shares no query with the erasure and does not derive from the data map: when one of them is wrong, the other
shows it. A test compares the list of collections with the map. Two ways of counting: by identity, and (for what
was derived from the subject's records and names nobody) by the ids that the erasure had marked.
"""

from __future__ import annotations

COUNTED = ("sessions", "episodes", "events", "memories", "facts", "blocks", "lineage")

BY_IDENTITY = """
    SELECT 'sessions', count(*) FROM sessions WHERE org = :org AND seq < :seq{identity}{created}
    UNION ALL
    SELECT 'episodes', count(*) FROM episodes WHERE org = :org AND seq < :seq{identity}{occurred}
    UNION ALL
    SELECT 'events', count(*) FROM events WHERE org = :org AND seq < :seq{identity}{created}
    UNION ALL
    SELECT 'memories', count(*) FROM memories WHERE org = :org AND seq < :seq{identity}{updated}
    UNION ALL
    SELECT 'facts', count(*) FROM facts WHERE org = :org AND seq < :seq{identity}{recorded}
    UNION ALL
    SELECT 'blocks', count(*) FROM blocks WHERE org = :org AND seq < :seq{identity}{updated}
"""

IDENTITY = {
    "namespace": " AND namespace = :namespace",
    "agent": " AND agent = :agent",
    "user_id": " AND user_id = :user_id",
    "session_id": " AND session_id = :session_id",
}

DATED = {
    "created": " AND created_at < :before",
    "occurred": " AND occurred_at < :before",
    "updated": " AND updated_at < :before",
    "recorded": " AND recorded_at < :before",
}

DERIVED = """
    SELECT m.position, 'sessions', count(*) FROM marks m JOIN sessions c ON c.org = :org AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'sessions' AND m.direct = 0 AND c.seq < :seq GROUP BY m.position
    UNION ALL
    SELECT m.position, 'episodes', count(*) FROM marks m JOIN episodes c ON c.org = :org AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'episodes' AND m.direct = 0 AND c.seq < :seq GROUP BY m.position
    UNION ALL
    SELECT m.position, 'events', count(*) FROM marks m JOIN events c ON c.org = :org AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'events' AND m.direct = 0 AND c.seq < :seq GROUP BY m.position
    UNION ALL
    SELECT m.position, 'memories', count(*) FROM marks m JOIN memories c ON c.org = :org AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'memories' AND m.direct = 0 AND c.seq < :seq GROUP BY m.position
    UNION ALL
    SELECT m.position, 'facts', count(*) FROM marks m JOIN facts c ON c.org = :org AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'facts' AND m.direct = 0 AND c.seq < :seq GROUP BY m.position
    UNION ALL
    SELECT m.position, 'blocks', count(*) FROM marks m JOIN blocks c ON c.org = :org AND c.id = m.id
    WHERE m.request = :request AND m.collection = 'blocks' AND m.direct = 0 AND c.seq < :seq GROUP BY m.position
    UNION ALL
    SELECT m.position, 'lineage', count(*) FROM marks m JOIN lineage c ON c.org = :org AND c.source = m.id
    WHERE m.request = :request AND c.seq < :seq GROUP BY m.position
    UNION ALL
    SELECT m.position, 'lineage', count(*) FROM marks m JOIN lineage c ON c.org = :org AND c.derived = m.id
    WHERE m.request = :request AND c.seq < :seq GROUP BY m.position
"""

LIVE_SUBJECTS = {
    "namespace": """
        SELECT namespace FROM sessions WHERE org = :org UNION SELECT namespace FROM episodes WHERE org = :org
        UNION SELECT namespace FROM events WHERE org = :org UNION SELECT namespace FROM memories WHERE org = :org
        UNION SELECT namespace FROM facts WHERE org = :org UNION SELECT namespace FROM blocks WHERE org = :org
    """,
    "agent": """
        SELECT agent FROM sessions WHERE org = :org UNION SELECT agent FROM episodes WHERE org = :org
        UNION SELECT agent FROM events WHERE org = :org UNION SELECT agent FROM memories WHERE org = :org
        UNION SELECT agent FROM facts WHERE org = :org UNION SELECT agent FROM blocks WHERE org = :org
    """,
    "user_id": """
        SELECT user_id FROM sessions WHERE org = :org UNION SELECT user_id FROM episodes WHERE org = :org
        UNION SELECT user_id FROM events WHERE org = :org UNION SELECT user_id FROM memories WHERE org = :org
        UNION SELECT user_id FROM facts WHERE org = :org UNION SELECT user_id FROM blocks WHERE org = :org
    """,
    "session_id": """
        SELECT session_id FROM sessions WHERE org = :org UNION SELECT session_id FROM episodes WHERE org = :org
        UNION SELECT session_id FROM events WHERE org = :org UNION SELECT session_id FROM memories WHERE org = :org
        UNION SELECT session_id FROM facts WHERE org = :org UNION SELECT session_id FROM blocks WHERE org = :org
    """,
}
