"""Making the bytes of removed rows go from a server's files: vacuum, new indexes, and a log that has moved on.

Measured on PostgreSQL 18: a plain vacuum moves the rows of a page together and leaves what stood behind them, and
their keys in the pages of indexes; statistics keep values until they are made anew. The write-ahead log has all of it
until its files are removed, or used again and written over.
"""

from __future__ import annotations

from contextlib import suppress

import psycopg
from psycopg import errors, sql

from expunge.authority.port import Reclaimed
from expunge.authority.postgres.place import SCHEMA

DEFERRED = Reclaimed(
    "removed rows stay in tables, indexes and the planner's samples until those are written anew, and in the "
    "write-ahead log",
    "expunge reclaim",
)
"""What an erasure says: to do it each time would cost the whole of every table, whatever was removed of it."""
_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r' ORDER BY relname"
_OURS = """SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class
    WHERE relnamespace = %s::regnamespace AND relkind = 'r'"""
_DEAD = "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_all_tables WHERE schemaname = %s OR relid IN ({})"
_TOAST = "SELECT reltoastrelid FROM pg_class WHERE relnamespace = %s::regnamespace AND reltoastrelid <> 0"
_SAMPLES_ARE_OURS = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
_DROP_SAMPLES = """DELETE FROM pg_catalog.pg_statistic s USING pg_class c
    WHERE c.oid = s.starelid AND c.relnamespace = %s::regnamespace"""
"""Those of a table that is empty now would stay: to analyse it changes nothing."""
_HERE = "SELECT pg_walfile_name(pg_current_wal_insert_lsn())"
_RECYCLED = "SELECT current_setting('wal_recycle') = 'on'"
_OLDEST_LOG = "SELECT min(substr(name, 9)) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'"


def compact(connection: psycopg.Connection) -> Reclaimed:
    """Write every table of ours and its indexes anew, and let the log move on as far as the role may.

    Each table is locked while it is written, so this is for a quiet hour.

    The answer is read from the server and not taken for granted: rows that somebody can still see stay, and a role
    that does not own the tables can do nothing.
    """
    if not connection.execute(_OURS, (SCHEMA,)).fetchall()[0][0]:
        return Reclaimed("this role does not own the tables, so it cannot write them anew",
                         "their owner runs expunge reclaim")  # fmt: skip
    ((here,),) = connection.execute(_HERE).fetchall()
    try:
        _vacuum(connection)
    except (errors.LockNotAvailable, errors.DeadlockDetected):
        return Reclaimed("somebody works on a table for long, so not every one was written anew", "expunge reclaim")
    if _dead(connection):
        return Reclaimed("somebody reads an older state, or changes rows meanwhile, so removed rows stay",
                         "expunge reclaim")  # fmt: skip
    if not connection.execute(_SAMPLES_ARE_OURS).fetchall()[0][0]:
        return Reclaimed("old samples of the planner hold values of removed rows, and only a superuser may drop them",
                         "a superuser runs expunge reclaim")  # fmt: skip
    return Reclaimed() if _log_has_gone(connection, here) else Reclaimed(
        "the server's write-ahead log keeps what was written until its files are removed or written over",
        "its files as of now are gone (with wal_recycle off: at a checkpoint in a later file), and expunge reclaim",
    )  # fmt: skip


def _vacuum(connection: psycopg.Connection) -> None:
    if connection.execute(_SAMPLES_ARE_OURS).fetchall()[0][0]:
        connection.execute(_DROP_SAMPLES, (SCHEMA,))
    for (name,) in connection.execute(_TABLES, (SCHEMA,)).fetchall():
        table = sql.Identifier(SCHEMA, name)
        # A plain vacuum moves rows together and leaves what stood behind them in the page until it is written over.
        connection.execute(sql.SQL("VACUUM (FULL) {}").format(table))
        connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(table))  # counts what is left, and samples it anew
    connection.execute("VACUUM (FULL) pg_catalog.pg_statistic")  # the server only warns who may not


def _dead(connection: psycopg.Connection) -> int:
    """Rows that the vacuum has had to leave, by the server's own count."""
    ((dead,),) = connection.execute(_DEAD.format(_TOAST), (SCHEMA, SCHEMA)).fetchall()
    return int(dead)


def _log_has_gone(connection: psycopg.Connection, here: str) -> bool:
    """Whether every file of the log is younger than the one that was written when we began.

    Files that the server uses again hold old bytes under new names, so with them nobody can tell.
    """
    for step in ("SELECT pg_switch_wal()", "CHECKPOINT"):
        with suppress(errors.InsufficientPrivilege):  # the server takes these steps by itself in time
            connection.execute(step)
    with suppress(errors.InsufficientPrivilege):  # who may not look cannot tell
        if not connection.execute(_RECYCLED).fetchall()[0][0]:
            ((oldest,),) = connection.execute(_OLDEST_LOG).fetchall()
            return str(oldest) > here[8:]
    return False
