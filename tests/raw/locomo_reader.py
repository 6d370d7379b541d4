"""A stranger's process: keeps a connection open, reads, says READY, and reads again for every word it is given.

    python -I -S locomo_reader.py DATABASE QUESTIONS [PACKAGES]

DATABASE is a path, or the URL of a server, whose driver is in PACKAGES. QUESTIONS is a JSON object of questions by name, as the check has them (``columns``, ``before``). Each answer is a line
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


def asked_of_server(question: dict[str, Any]) -> tuple[str, list[Any]]:
    """The same in the SQL of a server."""
    columns = question.get("columns", {})
    terms, values = ["org = %s", *(f"{column} = ANY(%s)" for column in columns)], [ORG, *columns.values()]
    if before := question.get("before"):
        terms.append("occurred_at < 1000000 * extract(epoch FROM %s::timestamptz)")
        values.append(before)
    return f"SELECT id, input FROM episodes WHERE {' AND '.join(terms)} ORDER BY rid", values


def served(url: str, packages: str) -> Any:
    """A connection to a server, by its driver in a folder."""
    sys.path.append(packages)
    import psycopg

    return psycopg.connect(url, autocommit=True, options="-c search_path=expunge")


def main() -> None:
    """Answer until standard input ends."""
    if len(sys.argv) > 3:
        connection: Any = served(sys.argv[1], sys.argv[3])
        statements = {name: asked_of_server(question) for name, question in json.loads(sys.argv[2]).items()}
    else:
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
