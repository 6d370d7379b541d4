"""Another program that changes a database: runs the statements that it is told on standard input, as a JSON array."""

import json
import sqlite3
import sys

connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN")
for statement in json.load(sys.stdin):
    connection.execute(statement)
connection.execute("COMMIT")
connection.close()
