"""The one PostgreSQL server of a test run, and databases on it that belong to a single test."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from tests.pg import keeper

GIVEN = "EXPUNGE_TEST_POSTGRES_URL"
"""Names the server to use; it may hold databases of others, which the tests leave alone."""

PREFIX = "expunge_test_"
_MEMORY, _ROOM = Path("/dev/shm"), 1 << 30
_FOLDER = pytest.StashKey[Path]()
_EXPECTED = 2 * keeper.PATIENCE + 10
"""Seconds within which a keeper has either a server or a reason."""


def _place() -> Path:
    """Where the server's folder lies: in memory if that has room and lets programs run, as they may be copied there.

    Measured on one machine: start 0.33 s instead of 0.50, a database from a template 5 ms instead of 18. TMPDIR is
    not asked, since it may be closed to the user whom the server runs as.
    """
    roomy = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM
    if roomy and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
        return _MEMORY
    return Path("/tmp")


class ServerOfRun:
    """The plugin that gives every process of a run the same folder, and in the end sees the server out.

    Only the process that began the run is registered with it, not the workers. Until a test asks for the server, a
    run costs a folder with two empty files.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="expunge-pg-", dir=_place()))
        self.folder.chmod(0o711)
        self._kept = os.open(self.folder / "kept", os.O_RDWR | os.O_CREAT, 0o600)
        self._alive = keeper.locked(self.folder / "alive", wait=True)
        config.stash[_FOLDER] = self.folder

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of xdist."""
        node.workerinput["postgres_folder"] = str(self.folder)

    def pytest_unconfigure(self) -> None:
        """Let the keeper end the server, and wait until it has: nothing is left when the run returns."""
        if self._alive is not None:
            os.close(self._alive)
        # One that was started but has not come so far will find that the folder is gone.
        fcntl.lockf(self._kept, fcntl.LOCK_EX)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._kept)
        for process in _started:
            process.wait()


def configure(config: pytest.Config) -> None:
    """Make ready for a server, without starting it."""
    if hasattr(config, "workerinput"):
        config.stash[_FOLDER] = Path(config.workerinput["postgres_folder"])
    else:
        config.pluginmanager.register(ServerOfRun(config))


def server_of(config: pytest.Config) -> str:
    """The URL of the server, which the first to ask starts.

    :raises RuntimeError: it cannot be started; never a skip, which would hide it.
    """
    return os.environ.get(GIVEN) or _asked(config.stash[_FOLDER])


@contextmanager
def own_server(config: pytest.Config, **settings: str) -> Iterator[keeper.Server]:
    """A server for a test that stops it, or makes things of the whole server; never the one that is given."""
    folder = config.stash[_FOLDER]
    _asked(folder)  # whose keeper ends this one, too, when the run is killed
    own = Path(tempfile.mkdtemp(prefix="own-", dir=folder))
    own.chmod(0o711)
    server = keeper.Server(own, None, **settings)
    server.run_from(Path((folder / "binaries").read_text(encoding="utf-8")))
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(own, ignore_errors=True)


_started: list[subprocess.Popen[bytes]] = []


@cache
def _asked(folder: Path) -> str:
    with (folder / "start").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # the workers come one by one; a crash gives up the turn
        url, failed = folder / "url", folder / "failed"
        process = None if url.exists() or failed.exists() else _keeper(folder)
        until = time.monotonic() + _EXPECTED
        while not url.exists() and not failed.exists():
            if (process and process.poll()) or time.monotonic() > until:
                said = (folder / "keeper.log").read_text(errors="replace")
                raise RuntimeError(f"the keeper of the PostgreSQL server has ended or hangs:\n{said}")
            time.sleep(0.01)
    if failed.exists():
        raise RuntimeError(f"no PostgreSQL server for the tests:\n{failed.read_text(encoding='utf-8')}")
    return url.read_text(encoding="utf-8")


def _keeper(folder: Path) -> subprocess.Popen[bytes]:
    """Start it in a session of its own: an interrupt from the keyboard, or the end of a worker, is not for it."""
    with (folder / "keeper.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, keeper.__file__, folder],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _started.append(process)
    return process


@contextmanager
def another_server() -> Iterator[str]:
    """A server beside that of the run, for tests that read its files or change its settings; it ends in the same way."""
    folder = Path(tempfile.mkdtemp(prefix="expunge-pg-", dir=_place()))
    folder.chmod(0o711)
    alive = keeper.locked(folder / "alive", wait=True)
    assert alive is not None
    try:
        yield _asked(folder)
    finally:
        os.close(alive)
        for process in _started:
            if process.args[-1] == folder:  # type: ignore[index]
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def fresh_database(server_url: str, template: str | None = None, *, pgvector: bool = True) -> str:
    """Make a database with a name of its own, and give its URL.

    :param template: the URL of a database on the same server to copy, to which nobody may be connected meanwhile;
        without it the new one is empty.
    :param pgvector: whether an empty one has that extension, where the server has it.
    """
    name = PREFIX + secrets.token_hex(8)
    source = "template0" if template is None else urlsplit(template).path.removeprefix("/")
    # Its checkpoints cost little without fsync: 5.2 ms for a template of 40 tables, where wal_log takes 10.1.
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(source)))
    url = _with_database(server_url, name)
    if template is None and pgvector:
        with psycopg.connect(url, autocommit=True) as connection:
            if connection.execute("SELECT FROM pg_available_extensions WHERE name = 'vector'").fetchall():
                connection.execute("CREATE EXTENSION vector")
    return url


def drop_database(url: str) -> None:
    """Drop a database that ``fresh_database`` made, and end who is still connected to it.

    :raises ValueError: the database is not one of ours.
    """
    name = urlsplit(url).path.removeprefix("/")
    if not name.startswith(PREFIX):
        raise ValueError(f"not a database that the tests made: {name!r}")
    with psycopg.connect(_with_database(url, "postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _with_database(url: str, name: str) -> str:
    parts = urlsplit(url)
    if not parts.scheme:
        raise ValueError(f"{GIVEN} must be a URL: postgresql://user@host/database")
    # Put together by hand: urlunsplit drops the slashes of an empty host.
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}/{name}{query}"
