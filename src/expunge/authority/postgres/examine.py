"""What a server says of itself: versions, and the settings that decide what survives, where, and who reads it."""

from __future__ import annotations

from expunge.authority.port import Examined, Setting, Statement, Tx

_SETTINGS = Statement(
    "server.settings",
    "SELECT name, setting FROM pg_settings WHERE name IN (SELECT value FROM each_text(:names)) ORDER BY name",
)
_VERSION = Statement("server.version", "SELECT current_setting('server_version'), version FROM schema_version")
_STANDBYS = Statement("server.standbys", "SELECT count(*) FROM pg_stat_replication")
_WANTED = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_parameter_max_length": "0",
    "archive_mode": "off",
    "wal_recycle": "off",
}
"""What a server has to say for commits to be durable, and no copy of what people said to lie where nobody looks."""


def examine(tx: Tx) -> Examined:
    """Look at the server, and change nothing."""
    names = "[" + ", ".join(f'"{name}"' for name in _WANTED) + "]"
    found: dict[str, str] = dict(tx.rows(_SETTINGS, names=names))
    server, schema = tx.rows(_VERSION)[0]
    settings = [Setting(name, wanted, found.get(name, "unknown")) for name, wanted in _WANTED.items()]
    settings.append(Setting("standbys", "0", str(tx.rows(_STANDBYS)[0][0])))
    return Examined(
        versions={"postgresql": str(server), "schema": str(schema)}, settings=settings, files=[], waiting_bytes=0
    )
