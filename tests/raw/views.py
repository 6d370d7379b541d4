"""Another program that reads a database: the rows of the statements on standard input, a JSON array of texts, as JSON."""

import json
import sqlite3
import sys

connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
print(json.dumps([connection.execute(text).fetchall() for text in json.load(sys.stdin)]))
connection.close()
