"""What is wrong in a database that is written and erased in: for each line it is sent, one line of JSON.

Arguments: the path of a SQLite file or the URL of a PostgreSQL database, and a JSON file that says what each pseudonym
stands for. A line is ``check``, at any time; ``quiet``, when no erasure runs; or ``written`` and a JSON file of rows
``[id, user, namespace, session, seq]`` that writers were told had been written.
"""

import json
import sys
from pathlib import Path

TIMES = {
    "sessions": "created_at", "episodes": "occurred_at", "events": "created_at", "attachments": "created_at",
    "memories": "updated_at", "facts": "recorded_at", "blocks": "updated_at", "documents": "updated_at",
    "chunks": "created_at", "answers": "created_at", "jobs": "created_at",
}  # fmt: skip
NOT_OF_SESSIONS = {"facts", "blocks", "jobs"}
"""What stays when a session is erased."""
SEARCHED = {"episodes": 1, "memories": 2, "facts": 3, "chunks": 4}
NUMBERS = " UNION ALL ".join(f"SELECT rid * 8 + {code} FROM {name}" for name, code in SEARCHED.items())
ROWS = " UNION ALL ".join(
    f"""SELECT id, user_id, namespace, {"'-'" if name in NOT_OF_SESSIONS else "session_id"}, seq, marked, {time}
    FROM {name}"""
    for name, time in TIMES.items()
)
FENCES = """SELECT f.user_pn, f.namespace_pn, f.session_pn, f.before, f.seq, f.lowered_seq, q.status, q.purge
    FROM fences f JOIN requests q ON q.id = f.request_id"""


class Limits:
    """Below which seq no row of a scope may be. A scope is named by its user, namespace and session, '' being all."""

    def __init__(self, fences):
        self.of: dict = {}
        for user, namespace, session, before, seq in fences:
            scope = (user, namespace, session)
            self.of[scope, before] = max(seq, self.of.get((scope, before), 0))
        self.shapes = {tuple(bool(part) for part in scope) for scope, _ in self.of}
        self.dates = {before for _, before in self.of}

    def below(self, row, seq, time):
        for shape in self.shapes:
            user, namespace, session = (value if named else "" for value, named in zip(row, shape, strict=True))
            for before in self.dates:
                if (before is None or (time is not None and time < before)) and seq < self.of.get(
                    ((user, namespace, session), before), 0
                ):
                    return True
        return False


def fences_of(connection, names):
    """The fences by clear names: scope, before, seq, lowered_seq, and what became of their requests."""
    return [(*(names.get(pn, "") for pn in row[:3]), *row[3:]) for row in connection.execute(FENCES).fetchall()]


def check(connection, names, *, quiet=False):
    rows, fences = connection.execute(ROWS).fetchall(), fences_of(connection, names)
    down = [fence for fence in fences if fence[5] is not None]
    served = Limits((*fence[:4], fence[5]) for fence in down)
    gone = Limits((*fence[:4], fence[5]) for fence in down if fence[6] == "completed" and fence[7])
    ids = {row[0] for row in rows}
    told: dict = {"rows": len(rows), "older_than_fence": [], "of_erased": of_erased(connection, ids)}
    for row in rows:
        _, user, namespace, session, seq, marked, time = row
        who = (user, namespace, session)
        if gone.below(who, seq, time) or (not marked and served.below(who, seq, time)):
            told["older_than_fence"].append(row)
    edges = connection.execute("SELECT derived, source, rule FROM lineage").fetchall()
    told["edges"] = len(edges)
    told["dangling"] = sum(derived not in ids or source not in ids for derived, source, _ in edges)
    told.update(of_index(connection))
    if quiet:
        told.update(of_quiet(connection, rows, edges))
        told["requests"] = dict(connection.execute("SELECT status, count(*) FROM requests GROUP BY status").fetchall())
        told["fences"], told["fences_up"] = len(fences), sum(fence[5] is None for fence in fences)
        users = [row[1] for row in rows if not row[5]]
        told["of_users"] = {name: users.count(name) for name in names.values() if name.startswith("user")}
    return told


def of_erased(connection, ids):
    """A memory tells in its value from which records its words are; a fact, of which at least one has to be left."""
    found = []
    for record_id, value in connection.execute("SELECT id, value FROM memories WHERE marked = 0").fetchall():
        if gone := [root for root in json.loads(value)["words_of"] if root not in ids]:
            found.append([record_id, gone])
    for record_id, text in connection.execute("SELECT id, object FROM facts WHERE marked = 0").fetchall():
        roots = json.loads(text)
        if roots and not ids.intersection(roots):
            found.append([record_id, roots])
    return found


def of_index(connection):
    """What the search index knows; that of SQLite by its shadow table, since this SQLite cannot use the index."""
    served = hasattr(connection, "info")
    there = {row[0] for row in connection.execute(NUMBERS).fetchall()}
    told = {}
    for kind, query in (
        ("search", "SELECT record FROM search" if served else "SELECT id FROM search_docsize"),
        ("vectors", "SELECT record FROM vectors"),
    ):
        found = {row[0] for row in connection.execute(query).fetchall()}
        told[f"{kind}_outlived"], told[f"{kind}_missing"] = len(found - there), len(there - found)
    return told


def of_quiet(connection, rows, edges):
    """What is only right when nothing runs: marks are of erasures that hide, and what is served rests on the served."""
    hiding = "SELECT rid FROM requests WHERE status = 'completed' AND purge = 0"
    hides = {row[0] for row in connection.execute(hiding).fetchall()}
    marks = connection.execute("SELECT request, id FROM marks").fetchall()
    hidden = {row[0] for row in rows if row[5]}
    return {
        "marks_left": sum(request not in hides for request, _ in marks),
        "marked_left": sum(row[5] not in hides for row in rows if row[5]),
        "marked_unsaid": len(hidden - {record_id for _, record_id in marks}),
        "rests_on_hidden": sum(
            derived not in hidden and source in hidden for derived, source, rule in edges if rule != "detach"
        ),
    }


def missing(connection, names, written):
    """What was written and is not there, though no fence was raised after it that would have taken it."""
    ids = {row[0] for row in connection.execute(ROWS).fetchall()}
    raised = Limits(fence[:5] for fence in fences_of(connection, names))
    return [row for row in written if row[0] not in ids and not raised.below(tuple(row[1:4]), row[4], None)]


def opened(place):
    """A connection that only reads, to whichever database it is; how a snapshot begins; and whose deadlocks it counts."""
    if place.startswith("postgres"):
        import psycopg

        connection = psycopg.connect(place, autocommit=True, options="-c search_path=expunge")
        return connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    import sqlite3

    return sqlite3.connect(f"file:{place}?mode=ro", uri=True, isolation_level=None, timeout=30), "BEGIN"


def main():
    connection, begin = opened(sys.argv[1])
    names = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    for line in sys.stdin:
        what, _, file = line.strip().partition(" ")
        connection.execute(begin)
        if what == "written":
            told = missing(connection, names, json.loads(Path(file).read_text(encoding="utf-8")))
        else:
            told = check(connection, names, quiet=what == "quiet")
        connection.execute("COMMIT")
        if what == "quiet" and hasattr(connection, "info"):
            count = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            told["deadlocks"] = connection.execute(count).fetchone()[0]
        print(json.dumps(told), flush=True)
    connection.close()


if __name__ == "__main__":
    main()
