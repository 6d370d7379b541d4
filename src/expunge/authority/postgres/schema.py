"""The schema as it is on this server: the types of its columns, and what binds the role that serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg

from expunge.authority.postgres.place import SCHEMA

_BYTES = psycopg.adapters.types["bytea"].oid
_COLUMNS = """SELECT c.relname, a.attname, a.atttypid FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = %s::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped"""
_WALLED = "SELECT row_security_active('sessions')"


@dataclass(frozen=True, slots=True)
class Schema:
    """What does not change while a server is up."""

    types: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The type of each column of each table, by the server's numbers."""
    walled: bool = False
    """Whether row-level security binds the role. Then the server takes no rows by COPY."""

    @classmethod
    def read(cls, connection: psycopg.Connection) -> Schema:
        """Look at the schema that is there."""
        types: dict[str, dict[str, int]] = {}
        for table, column, oid in connection.execute(_COLUMNS, (SCHEMA,)):
            types.setdefault(table, {})[column] = oid
        ((walled,),) = connection.execute(_WALLED).fetchall()
        return cls(types, walled)

    @property
    def halves(self) -> int | None:
        """The type that pgvector has given vectors; ``None`` where they are bytes."""
        oid = self.types.get("vectors", {}).get("vector", _BYTES)
        return None if oid == _BYTES else oid
