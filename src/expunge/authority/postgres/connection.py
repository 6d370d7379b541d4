"""Connections: how values go to the server and come back, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper
from psycopg_pool import PoolTimeout, TooManyRequests

from expunge.authority.postgres.locks import Again
from expunge.authority.postgres.place import SCHEMA, PostgresPlace
from expunge.errors import DatabaseAway, DatabaseBusy, DatabaseFault, DatabaseUnreadable, DiskFull

OLDEST = 15
"""The oldest server that this runs on."""
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


def prepare(connection: psycopg.Connection) -> None:
    """Let values go as what they are in our schema: whole numbers of 64 bits, and texts that are texts."""
    connection.adapters.register_dumper(bool, _FlagDumper)
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(str, StrDumper)
    connection.adapters.register_loader("numeric", _WholeLoader)


def options(place: PostgresPlace, *, lock_timeout_s: float) -> dict[str, Any]:
    """How to connect: to our schema alone, with times in UTC, and no wait for a lock without an end."""
    settings = {
        "search_path": SCHEMA,
        "TimeZone": "UTC",
        "lock_timeout": f"{max(1, round(lock_timeout_s * 1000))}",
        "default_transaction_isolation": "read\\ committed",
        "client_min_messages": "warning",
    }
    return {
        "conninfo": place.url,
        "autocommit": True,
        "application_name": "expunge",
        "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
    }


@contextmanager
def faults(place: PostgresPlace) -> Iterator[None]:
    """Turn the driver's errors into ours. Theirs may hold values, so only their kind is told."""
    try:
        yield
    except (errors.LockNotAvailable, errors.QueryCanceled, PoolTimeout, TooManyRequests) as fault:
        raise DatabaseBusy(f"{place.shown} did not answer in time") from fault
    except errors.TooManyConnections as fault:
        raise DatabaseBusy(f"{place.shown} takes no more connections") from fault
    except errors.DiskFull as fault:
        raise DiskFull(f"the disk of {place.shown} is full, so it was not changed") from fault
    except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as fault:
        raise DatabaseUnreadable(
            f"{place.shown} does not let this role do it", hint="grant it what the docs name, or use another role"
        ) from fault
    except (*REPEATED, Again) as fault:
        raise DatabaseBusy(f"{place.shown}: others were in the way at every attempt") from fault
    except psycopg.OperationalError as fault:
        raise DatabaseAway(f"{place.shown} cannot be reached") from fault
    except psycopg.Error as fault:
        raise DatabaseFault(f"{place.shown}: {type(fault).__name__}") from fault
