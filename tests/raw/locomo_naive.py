"""What a program does that thinks a DELETE is an erasure: the rows go, the bytes stay.

    python -I -S locomo_naive.py DATABASE < plan

The plan is a JSON object: ``rows`` to delete, as collection -> ids, and ``edges`` as [derived, source] pairs. The
search index is emptied of them by hand: this SQLite cannot use it, so the triggers that do it are dropped.
"""

from __future__ import annotations

import json
import sqlite3
import sys

SEARCHED = {"episodes": 1, "memories": 2, "facts": 3, "chunks": 4}


def main() -> None:
    """Delete, and empty the WAL."""
    plan = json.load(sys.stdin)
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("PRAGMA secure_delete = 0")
    for table, ids in plan["rows"].items():
        if code := SEARCHED.get(table):
            connection.execute(f"DROP TRIGGER {table}_leave")
            numbers = f"SELECT rid * 8 + {code} FROM {table} WHERE id IN (SELECT value FROM json_each(?))"
            for index, number in (("search_docsize", "id"), ("vectors", "record")):
                connection.execute(f"DELETE FROM {index} WHERE {number} IN ({numbers})", [json.dumps(ids)])
        connection.executemany(f"DELETE FROM {table} WHERE id = ?", [(record_id,) for record_id in ids])
    connection.executemany("DELETE FROM lineage WHERE derived = ? AND source = ?", plan["edges"])
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


main()
