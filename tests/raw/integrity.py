"""What SQLite's own check says of a database file: prints ``ok``."""

import sqlite3
import sys

connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
print(*[row[0] for row in connection.execute("PRAGMA integrity_check")], sep="\n")
connection.close()
