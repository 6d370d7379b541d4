"""Where a served database is: a URL, which may hold a password and so is never shown whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from expunge.errors import SettingsError

SCHEMES = ("postgresql://", "postgres://")
SCHEMA = "expunge"
"""The schema that all tables lie in, so that a database may serve other programs beside."""


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """A database on a server."""

    url: str = field(repr=False)
    shown: str
    """The place as messages name it: host and database, and nothing of who connects."""

    @classmethod
    def parse(cls, url: str) -> PostgresPlace:
        """Read a database setting.

        Raises:
            SettingsError: the URL cannot be read.

        """
        try:
            parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            raise SettingsError(
                "the database URL cannot be read", hint="write it as postgresql://USER@HOST:PORT/DATABASE"
            ) from None
        if any("@" in (part := str(parts.get(name, ""))) and part in url for name in ("host", "dbname")):
            # The rest of a password, up to which the driver has read one with an @ or a / in it.
            raise SettingsError(
                "the database URL has an @ where none can be",
                hint="write @ as %40 and / as %2F in a user, a password or a database",
            )
        host, name = parts.get("host") or parts.get("hostaddr") or "local", parts.get("dbname") or "default"
        return cls(url, f"PostgreSQL database {name} at {host}")

    def exists(self) -> bool:
        """Whether there is a database. Who connects finds out; nothing is made to find out here."""
        return True

    def beside(self, end: str) -> Path:
        """A file in the working folder: a server's own folder is no place for ours."""
        return Path(end if not end.startswith(".") else SCHEMA + end)
