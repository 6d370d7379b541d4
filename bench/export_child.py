"""One export in a process of its own, so that its memory is its own: ``python -m bench.export_child WHO DB USER OUT``.

``WHO`` is ``ours`` or ``hand``. By hand the same rows are read on the same driver with one statement for each table,
with their sources, and each is written as a line of JSON by the same library, without times in words and hashes. What
it took, and the most memory that the process ever had, goes to stdout as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import apsw
import orjson

from bench.build import ORG, settings
from expunge import Expunge
from expunge.datamap import RECORDS
from expunge.memory.statements import stored_columns


async def ours(database: Path, user: str, out: Path) -> float:
    """The product."""
    async with Expunge(settings=settings(database.parent)) as expunge:
        begun = time.perf_counter()
        await expunge.export_to(out, user, format="jsonl")
        return time.perf_counter() - begun


def hand(database: Path, user: str, out: Path) -> float:
    """The same rows, read and written by hand."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    begun = time.perf_counter()
    with out.open("wb") as file:
        for kind in RECORDS:
            names = (*stored_columns(kind), "sources")
            columns = ", ".join(f"r.{name}" for name in stored_columns(kind))
            rows = connection.execute(
                f"""SELECT {columns},
                    (SELECT json_group_array(source) FROM lineage WHERE derived = r.id AND org = r.org)
                FROM {kind.name} r WHERE r.org = ? AND r.user_id = ? AND r.marked = 0""",
                (ORG, user),
            )
            for row in rows:
                file.write(orjson.dumps(dict(zip(names, row, strict=True))))
                file.write(b"\n")
    return time.perf_counter() - begun


def main(who: str, database: Path, user: str, out: Path) -> None:
    """Do it, and tell."""
    taken = asyncio.run(ours(database, user, out)) if who == "ours" else hand(database, user, out)
    status = Path("/proc/self/status").read_text(encoding="utf-8")  # what rusage tells begins with the parent's
    most = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps({"seconds": taken, "memory_mib": most, "bytes": out.stat().st_size}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
