"""Which of some words stand in which files below a folder, and in which columns of a database, shadow tables too.

It is told on standard input, as JSON: ``folder``, ``database``, ``words`` and ``blobs`` (pieces of bytes, as hex).
"""

import json
import sqlite3
import sys
from pathlib import Path


def has(data, piece):
    """Also where a text was folded, or is held in two bytes a letter."""
    folded = piece.lower()
    return folded in data.lower() or folded.decode().encode("utf-16-le") in data.lower()


def in_files(folder, words, blobs):
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            here = [word for word in words if has(data, word.encode())]
            here += [f"blob {number}" for number, blob in enumerate(blobs) if blob in data]
            names = [word for word in words if word.lower() in str(path.relative_to(folder)).lower()]
            if here or names:
                found[str(path.relative_to(folder))] = here + names
    return found


def in_columns(database, words):
    if database is None:  # it lies on a server, and is looked at from there
        return {}
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    connection.text_factory = bytes
    found: dict = {}
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    for (table,) in connection.execute(tables).fetchall():
        cursor = connection.execute(f'SELECT * FROM "{table.decode()}"')
        names = [column[0] for column in cursor.description]
        for row in cursor:
            for name, value in zip(names, row, strict=True):
                if isinstance(value, bytes):
                    for word in words:
                        if has(value, word.encode()):
                            found.setdefault(f"{table.decode()}.{name}", []).append(word)
    connection.close()
    return found


def main():
    asked = json.load(sys.stdin)
    words, blobs = asked["words"], [bytes.fromhex(blob) for blob in asked["blobs"]]
    print(
        json.dumps({"files": in_files(asked["folder"], words, blobs), "columns": in_columns(asked["database"], words)})
    )


if __name__ == "__main__":
    main()
