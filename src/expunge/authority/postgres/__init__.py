"""The served authority: PostgreSQL 15 or later through psycopg, for several processes at once (design 2, 6)."""

from expunge.authority.postgres.engine import PostgresAuthority
from expunge.authority.postgres.place import PostgresPlace

__all__ = ["PostgresAuthority", "PostgresPlace"]
