"""What a server says of itself: versions, and the settings that decide what is durable and who else keeps a copy."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from expunge.authority.port import Examined, Row, Setting

_DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
"""Without these a commit that was answered may be lost, and with it the fence or the mark of an erasure (law 2)."""
_COPIES = {
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_min_duration_sample": "-1",
    "log_parameter_max_length": "0",
    "log_error_verbosity": "terse",
    "archive_mode": "off",
    "wal_recycle": "off",
}
"""What makes copies of what is written. Ids and texts go as parameters, never as a part of a statement's text."""
_SETTINGS = "SELECT " + ", ".join(f"current_setting('{name}')" for name in (*_DURABLE, *_COPIES))
_COUNTS = "(SELECT count(*) FROM pg_stat_replication), (SELECT count(*) FROM pg_replication_slots)"
COPYING = f"{_SETTINGS}, {_COUNTS}"
"""The settings, and who else reads the log, in one trip: a receipt is waiting."""
_VERSIONS = """SELECT current_setting('server_version'), version,
    (SELECT extversion FROM pg_extension WHERE extname = 'vector'), to_regproc('nearness') IS NOT NULL
    FROM schema_version"""
_ADVICE = {
    "log_statement": "receipts say that the server's log is not covered",
    "log_min_duration_statement": "receipts say that the server's log is not covered",
    "log_min_duration_sample": "receipts say that the server's log is not covered",
    "log_parameter_max_length": "set it to 0, so that logged statements come without their parameters",
    "log_error_verbosity": "set it to terse, so that an error is logged without the row that it is about",
    "archive_mode": "receipts say that archived logs are not covered",
    "wal_recycle": "set it to off, so that removed files of the log are not kept for another use",
}


def examine(connection: psycopg.Connection) -> Examined:
    """Look at the server, and change nothing."""
    found = _found(connection)
    settings = [
        Setting(name, wanted, found[name], next=f"set {name} to {wanted} for this database or its role")
        for name, wanted in _DURABLE.items()
    ]
    settings += [
        Setting(name, wanted, found[name], severity="warn", next=_ADVICE[name]) for name, wanted in _COPIES.items()
    ]
    for name, count in zip(("standbys", "replication slots"), _others(connection), strict=True):
        settings.append(
            Setting(name, "0", str(count), severity="warn", next="receipts say that standbys are not covered")
        )
    settings.append(_wall(connection))
    ((server, schema, pgvector, compares),) = connection.execute(_VERSIONS).fetchall()
    versions = {"postgresql": str(server), "psycopg": psycopg.__version__, "schema": str(schema)}
    if pgvector is not None:
        versions["pgvector"] = pgvector if compares else f"{pgvector}, not used: the schema was made without it"
    said = uncovered(connection.execute(COPYING.encode()).fetchall())
    return Examined(versions=versions, settings=settings, files=[], waiting_bytes=None, uncovered=said)


def _wall(connection: psycopg.Connection) -> Setting:
    """Whether the server itself keeps one org from another, or the role is above that."""
    ((active,),) = connection.execute("SELECT row_security_active('sessions')").fetchall()
    found = "on" if active else "passed over, since the role is a superuser or has BYPASSRLS"
    return Setting("row-level security", "on", found, severity="warn", next="serve with a role that has no such right")


def uncovered(rows: list[Row]) -> list[str]:
    """What the settings let others keep, in the words of a receipt, by what ``COPYING`` has answered."""
    ((*row, standbys, slots),) = rows
    found, others = dict(zip((*_DURABLE, *_COPIES), map(str, row), strict=True)), bool(standbys or slots)
    said = []
    if _logs_values(found):
        said.append("the database server's log, which by its settings holds what was written")
    if found["log_error_verbosity"] != "terse":
        said.append("the database server's log of errors, which may hold ids")
    if found["archive_mode"] != "off":
        said.append("archives of the database server's write-ahead log")
    if others:
        said.append("standbys of the database server, and whatever else reads its write-ahead log")
    return said


def _logs_values(found: Mapping[str, str]) -> bool:
    """A logged statement comes with its parameters, unless their length is 0."""
    timed = any(found[name] != "-1" for name in ("log_min_duration_statement", "log_min_duration_sample"))
    return (timed or found["log_statement"] in ("mod", "all")) and found["log_parameter_max_length"] != "0"


def _found(connection: psycopg.Connection) -> dict[str, str]:
    (row,) = connection.execute(_SETTINGS).fetchall()
    return dict(zip((*_DURABLE, *_COPIES), map(str, row), strict=True))


def _others(connection: psycopg.Connection) -> tuple[int, int]:
    ((standbys, slots),) = connection.execute(f"SELECT {_COUNTS}".encode()).fetchall()
    return standbys, slots
