"""A stranger's process: keeps a connection open, reads, says READY, and reads again for every word it is given.

    python -I -S locomo_reader.py DATABASE QUESTIONS

QUESTIONS is a JSON object of questions by name, as the check has them (``columns``, ``before``). Each answer is a line
of JSON: by name, how many episodes there are and the first of them. The statements are read to their end, so no
transaction stays open; the connection, with its hold on the WAL's files, does.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any

ORG = "default"


def asked(question: dict[str, Any]) -> tuple[str, list[str]]:
    """A question in SQL, and what is bound in it."""
    columns = question.get("columns", {})
    terms = ["org = ?", *(f"{column} IN (SELECT value FROM json_each(?))" for column in columns)]
    values = [ORG, *map(json.dumps, columns.values())]
    if before := question.get("before"):
        terms.append("occurred_at < 1000000 * strftime('%s', ?)")
        values.append(before)
    return f"SELECT id, input FROM episodes WHERE {' AND '.join(terms)} ORDER BY rid", values


def main() -> None:
    """Answer until standard input ends."""
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    statements = {name: asked(question) for name, question in json.loads(sys.argv[2]).items()}

    def answer() -> str:
        found = {}
        for name, (statement, values) in statements.items():
            rows = connection.execute(statement, values).fetchall()
            found[name] = [len(rows), rows[0] if rows else None]
        return json.dumps(found)

    print("READY", answer(), flush=True)
    for _word in sys.stdin:
        print(answer(), flush=True)
    connection.close()


main()
