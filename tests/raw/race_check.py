"""What is wrong in a database that is written and erased in: for each line it is sent, one line of JSON.

Arguments: the database, and a JSON file that says which pseudonym is whose. Whoever asks does so between erasures.
"""

import json
import sqlite3
import sys
from pathlib import Path

RECORDS = (
    "sessions", "episodes", "events", "attachments", "memories", "facts", "blocks", "documents", "chunks", "answers",
    "jobs",
)  # fmt: skip
SEARCHED = {"episodes": 1, "memories": 2, "facts": 3, "chunks": 4}
NUMBERS = " UNION ALL ".join(f"SELECT rid * 8 + {code} FROM {name}" for name, code in SEARCHED.items())
ALL_IDS = " UNION ALL ".join(f"SELECT id FROM {name}" for name in RECORDS)


def lowered(connection, users):
    """By user, below which seq none of their rows may be."""
    found = {}
    for pseudonym, seq in connection.execute("SELECT user_pn, max(lowered_seq) FROM fences GROUP BY user_pn"):
        found[users[pseudonym]] = seq
    return found


def check(connection, users):
    connection.execute("BEGIN")
    ids = {row[0] for row in connection.execute(ALL_IDS)}
    told: dict = {"rows": len(ids), "older_than_fence": 0, "marked": 0}
    for user, seq in lowered(connection, users).items():
        for name in RECORDS:
            query = f"SELECT count(*) FROM {name} WHERE user_id = ? AND seq < ?"
            told["older_than_fence"] += connection.execute(query, (user, seq)).fetchone()[0]
    for name in RECORDS:
        told["marked"] += connection.execute(f"SELECT count(*) FROM {name} WHERE marked <> 0").fetchone()[0]
    edges = connection.execute("SELECT derived, source FROM lineage").fetchall()
    told["edges"] = len(edges)
    told["dangling"] = sum(derived not in ids or source not in ids for derived, source in edges)
    # What the search index knows, by its shadow table: this SQLite cannot use the index itself.
    there = {row[0] for row in connection.execute(NUMBERS)}
    for kind, number in (("search_docsize", "id"), ("vectors", "record")):
        found = {row[0] for row in connection.execute(f"SELECT {number} FROM {kind}")}
        told[f"{kind}_outlived"], told[f"{kind}_missing"] = len(found - there), len(there - found)
    told["marks"] = connection.execute("SELECT count(*) FROM marks").fetchone()[0]
    told["fences"] = connection.execute("SELECT count(*) FROM fences").fetchone()[0]
    told["fences_up"] = connection.execute("SELECT count(*) FROM fences WHERE lowered_seq IS NULL").fetchone()[0]
    of_erased = told["of_erased"] = []
    # A memory tells in its value from which records its words are; a fact, of which at least one has to be left.
    for record_id, value in connection.execute("SELECT id, value FROM memories"):
        if gone := [root for root in json.loads(value)["words_of"] if root not in ids]:
            of_erased.append([record_id, gone])
    for record_id, text in connection.execute("SELECT id, object FROM facts"):
        roots = json.loads(text)
        if roots and not ids.intersection(roots):
            of_erased.append([record_id, roots])
    told["requests"] = dict(connection.execute("SELECT status, count(*) FROM requests GROUP BY status"))
    told["of_users"] = {
        user: sum(
            connection.execute(f"SELECT count(*) FROM {name} WHERE user_id = ?", (user,)).fetchone()[0]
            for name in RECORDS
        )
        for user in users.values()
    }
    connection.execute("COMMIT")
    return told


def main():
    connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, isolation_level=None, timeout=30)
    users = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    for _ in sys.stdin:
        print(json.dumps(check(connection, users)), flush=True)
    connection.close()


if __name__ == "__main__":
    main()
