"""Another program that has the database open: reads once, and again for each line it is sent, until ``end``.

With ``snapshot`` as its second argument it reads inside one transaction, which ends when it is told ``commit``.
"""

import sqlite3
import sys

connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, isolation_level=None)
if sys.argv[2:] == ["snapshot"]:
    connection.execute("BEGIN")
while True:
    (count,) = connection.execute("SELECT count(*) FROM episodes").fetchone()
    print(count, flush=True)
    said = sys.stdin.readline().strip()
    if said in ("", "end"):
        break
    if said == "commit":
        connection.execute("COMMIT")
connection.close()
