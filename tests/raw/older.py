"""What of somebody is of before a moment: texts say ``<name>@<nanoseconds>@``, when the work that wrote them began.

For each line on standard input, JSON with ``name``, ``before`` and ``files`` (whether to look into the folder as well):
by column or file, how many such tags are older, and an example. It opens the database anew each time.
"""

import json
import re
import sqlite3
import sys
from pathlib import Path


def note(found, where, data, tag, before):
    old = [began for began in map(int, tag.findall(data)) if began < before]
    if old:
        count, example = found.get(where, (0, max(old)))
        found[where] = (count + len(old), max(example, *old))


def look(folder, asked):
    tag = re.compile(re.escape(asked["name"]).encode() + rb"@(\d+)@")
    found: dict = {}
    rows, tags = 0, set[int]()
    connection = sqlite3.connect(f"file:{folder / 'expunge.db'}?mode=ro", uri=True, isolation_level=None, timeout=30)
    connection.text_factory = bytes
    connection.execute("BEGIN")
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    for (table,) in connection.execute(tables).fetchall():
        cursor = connection.execute(f'SELECT * FROM "{table.decode()}"')
        names = [column[0] for column in cursor.description]
        for row in cursor:
            rows += 1
            for name, value in zip(names, row, strict=True):
                if isinstance(value, bytes) and value:
                    note(found, f"{table.decode()}.{name}", value, tag, asked["before"])
                    tags.update(map(int, tag.findall(value)))
    dangling = connection.execute(
        """SELECT count(*) FROM lineage l WHERE NOT EXISTS (SELECT 1 FROM episodes e WHERE e.id = l.source)
        AND NOT EXISTS (SELECT 1 FROM memories m WHERE m.id = l.source)"""
    ).fetchone()[0]
    facts = connection.execute(
        """SELECT count(*) FROM facts f WHERE f.predicate = 'said'
        AND NOT EXISTS (SELECT 1 FROM lineage l WHERE l.derived = f.id)"""
    ).fetchone()[0]
    doubled = connection.execute(
        """SELECT count(*) FROM (SELECT 1 FROM facts f JOIN lineage l ON l.derived = f.id WHERE f.predicate = 'said'
        GROUP BY l.source HAVING count(*) > 1)"""
    ).fetchone()[0]
    connection.execute("COMMIT")
    connection.close()
    if asked["files"]:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                note(found, str(path.relative_to(folder)), path.read_bytes(), tag, asked["before"])
    return {
        "older": found,
        "rows": rows,
        "tags": sorted(tags),
        "dangling": dangling,
        "unfounded": facts,
        "doubled": doubled,
    }


def main():
    for line in sys.stdin:
        print(json.dumps(look(Path(sys.argv[1]), json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
