"""The embedded authority: SQLite through apsw, the only SQLite library in the process (design 2)."""

from expunge.authority.sqlite.engine import SqliteAuthority
from expunge.authority.sqlite.place import Place

__all__ = ["Place", "SqliteAuthority"]
