"""Changes a closed database behind everybody's back: ``plant.py FILE WHAT``, with what it needs as JSON on standard input.

``removed``: rows are written and deleted without ``secure_delete``, so that their bytes stay in free pages and in the
unused space of pages. ``logged``: rows are written and deleted in two commits that stay in the log. ``resized``: all
pages get another size.
"""

import json
import os
import sqlite3
import sys


def rows_of(asked):
    for number, text in enumerate(asked["texts"]):
        yield (f"planted-{number}", text)


# Blocks, because search does not find them: the trigger of what it finds asks for a newer SQLite than this one may be.
INSERT = """INSERT INTO blocks (org, id, namespace, agent, user_id, session_id, created_at, recorded_at, updated_at, seq,
    name, version, content) VALUES ('default', ?1, '-', '-', 'planter', '-', 0, 0, 0, 0, ?1, 1, ?2)"""
DELETE = "DELETE FROM blocks WHERE user_id = 'planter'"


def main():
    file, what = sys.argv[1:]
    asked = json.load(sys.stdin)
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute(f"PRAGMA secure_delete = {0 if what == 'removed' else 1}")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    if what == "resized":
        connection.execute("PRAGMA journal_mode = delete")
        connection.execute(f"PRAGMA page_size = {asked['bytes']}")
        connection.execute("VACUUM")
        connection.execute("PRAGMA journal_mode = wal")
        assert connection.execute("PRAGMA page_size").fetchone()[0] == asked["bytes"]
    else:
        connection.executemany(INSERT, rows_of(asked))
        connection.execute(DELETE)
    if what == "logged":
        os._exit(0)  # a close would empty the log
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


if __name__ == "__main__":
    main()
