"""A stranger's process: keeps a connection open, reads, says READY, and reads again for every word it is given.

    python -I -S locomo_reader.py DATABASE USER...

Each answer is a line of JSON: per user, how many episodes there are and the first of them. The statements are read
to their end, so no transaction stays open; the connection, with its hold on the WAL's files, does.
"""

from __future__ import annotations

import json
import sqlite3
import sys


def main() -> None:
    """Answer until standard input ends."""
    path, *users = sys.argv[1:]
    connection = sqlite3.connect(path, isolation_level=None)

    def answer() -> str:
        found = {}
        for user in users:
            rows = connection.execute(
                "SELECT id, input FROM episodes WHERE user_id = ? ORDER BY rid", (user,)
            ).fetchall()
            found[user] = [len(rows), rows[0] if rows else None]
        return json.dumps(found)

    print("READY", answer(), flush=True)
    for _word in sys.stdin:
        print(answer(), flush=True)
    connection.close()


main()
