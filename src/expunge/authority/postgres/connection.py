"""Connections: how values go to the server and come back, and what its errors mean."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper
from psycopg_pool import PoolTimeout, TooManyRequests

from expunge.authority.postgres.locks import Again
from expunge.authority.postgres.place import SCHEMA, PostgresPlace
from expunge.authority.postgres.schema import Schema
from expunge.authority.postgres.vectors import adapt
from expunge.errors import DatabaseAway, DatabaseBusy, DatabaseFault, DatabaseUnreadable, DiskFull, ExpungeError

OLDEST = 15
"""The oldest server that this runs on."""
CUT_OFF = (errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout)
"""The server ended a session that was in a transaction, before it was told to commit: nothing of it was written."""
REPEATED = (errors.SerializationFailure, errors.DeadlockDetected, errors.UniqueViolation)
"""A unit that ends so is run again: it waited for another in a circle, or another has written what it found missing."""


class _FlagDumper(Dumper):
    """A truth value goes as 1 or 0, as flags are stored."""

    oid = psycopg.adapters.types["int8"].oid

    def dump(self, obj: bool) -> Buffer:  # noqa: FBT001 (the driver's own signature)
        return b"1" if obj else b"0"


class _WholeLoader(Loader):
    """Sums come as numbers of any size; ours are whole."""

    def load(self, data: Buffer) -> int:
        return int(bytes(data))


_PREPARED_AFTER, _MOST_PREPARED = 1, 500
"""There are some hundred statements, and each comes again: one is prepared when it is run for the second time, and
none makes room for another."""


def prepare(connection: psycopg.Connection, schema: Schema) -> None:
    """Let values go as what they are in our schema: whole numbers of 64 bits, texts that are texts, and vectors."""
    connection.prepare_threshold, connection.prepared_max = _PREPARED_AFTER, _MOST_PREPARED
    if schema.halves is not None:
        adapt(connection, schema.halves)
    connection.adapters.register_dumper(bool, _FlagDumper)
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(str, StrDumper)
    connection.adapters.register_loader("numeric", _WholeLoader)
    seen = weakref.ref(connection)
    connection.add_notice_handler(lambda said: _remember(seen(), said))


_ENDED_BY: weakref.WeakKeyDictionary[psycopg.Connection, str] = weakref.WeakKeyDictionary()
"""Why the server ended a connection: what it says between two statements the driver tells to nobody."""


def _remember(connection: psycopg.Connection | None, said: psycopg.errors.Diagnostic) -> None:
    if connection is not None and said.severity_nonlocalized == "FATAL" and said.sqlstate:
        _ENDED_BY[connection] = said.sqlstate


def what_it_was(connection: psycopg.Connection, fault: BaseException) -> BaseException:
    """The error by which the server ended a connection, where the driver has only seen that it ended."""
    if isinstance(fault, psycopg.OperationalError) and not fault.sqlstate:
        with suppress(KeyError):
            return errors.lookup(_ENDED_BY[connection])()
    return fault


_NO_ANSWER_S = {"connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
"""Without these a host that has gone silent is waited for for minutes or hours. Who connects may set others."""
_OF_ENVIRONMENT = {"connect_timeout": "PGCONNECT_TIMEOUT", "options": "PGOPTIONS"}


def options(place: PostgresPlace, *, lock_timeout_s: float) -> dict[str, Any]:
    """How to connect: to our schema alone, with times in UTC, and no wait for a lock without an end.

    What the URL or the environment set stays, but for the few settings that the product relies on.
    """
    settings = {
        "search_path": SCHEMA,
        "TimeZone": "UTC",
        "lock_timeout": f"{max(1, round(lock_timeout_s * 1000))}",
        "default_transaction_isolation": "read\\ committed",
        "row_security": "on",
        "client_min_messages": "warning",
    }
    asked: dict[str, Any] = {name: os.environ[label] for name, label in _OF_ENVIRONMENT.items() if label in os.environ}
    asked |= conninfo_to_dict(place.url)
    ours = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return {
        **_NO_ANSWER_S,
        **asked,
        "autocommit": True,
        "fallback_application_name": "expunge",
        "client_encoding": "utf8",
        "options": f"{asked.get('options', '')} {ours}".strip(),
    }


@contextmanager
def faults(place: PostgresPlace) -> Iterator[None]:
    """Turn the driver's errors into ours. Theirs may hold values, so only their kind is told."""
    try:
        yield
    except (psycopg.Error, Again) as fault:
        raise _ours(place, fault) from fault


_MEANINGS: tuple[tuple[tuple[type[Exception], ...], type[DatabaseFault], str, str | None], ...] = (
    ((errors.LockNotAvailable, PoolTimeout, TooManyRequests), DatabaseBusy, "{} did not answer in time", None),
    (
        (errors.QueryCanceled,),
        DatabaseBusy,
        "{} ended a statement that took too long, or somebody did",
        "try again, or raise statement_timeout for this role",
    ),
    (
        CUT_OFF,
        DatabaseBusy,
        "{} ended a transaction that took too long",
        "raise idle_in_transaction_session_timeout and transaction_timeout for this role",
    ),
    ((*REPEATED, Again), DatabaseBusy, "{}: others were in the way at every attempt", None),
    ((errors.DiskFull,), DiskFull, "the disk of {} is full, so it was not changed", None),
    (
        (errors.InsufficientPrivilege,),
        DatabaseUnreadable,
        "{} does not let this role do it",
        "grant it what docs/postgres.md names, or use another role",
    ),
    (
        (errors.ReadOnlySqlTransaction,),
        DatabaseUnreadable,
        "{} takes no writes",
        "connect to the primary, with a role that is not set to read only",
    ),
)
"""What an error of the driver is told as, and the hint where it is not the one of its kind."""


def _ours(place: PostgresPlace, fault: psycopg.Error | Again) -> ExpungeError:
    for kinds, ours, text, hint in _MEANINGS:
        if isinstance(fault, kinds):
            return ours(text.format(place.shown), hint=hint)
    if is_away(fault):
        return DatabaseAway(f"{place.shown} cannot be reached{_reason(fault)}")
    return DatabaseFault(f"{place.shown}: {type(fault).__name__}")


_CLASSES_AWAY = ("08", "28", "57P")
"""Of SQLSTATE: the connection, who may connect, a server that shuts down or starts."""


def is_away(fault: BaseException) -> bool:
    """Whether an error says that there is no connection, or no more. The driver's own have no SQLSTATE."""
    return isinstance(fault, psycopg.OperationalError) and (fault.sqlstate or "08").startswith(_CLASSES_AWAY)


_NAMES = re.compile(r"\".*\"|'.*'")


def _reason(fault: psycopg.Error | Again) -> str:
    """Why no connection was made, in the words of the server or the system, without the names in it."""
    said = str(fault)
    if getattr(fault, "pgconn", None) is None and not said.startswith("failed to resolve"):
        return ""
    lines = [line.rpartition("failed: ")[2] for line in said.splitlines() if "failed" in line]
    return ": " + _NAMES.sub("…", lines[-1].removeprefix("FATAL:").strip()) if lines else ""
