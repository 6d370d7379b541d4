"""A server for tests that stop it, fill it, or make roles on it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.pg.keeper import Server
from tests.pg.server import drop_database, fresh_database, own_server


@pytest.fixture(scope="module")
def server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """A server of its own."""
    with own_server(pytestconfig, deadlock_timeout="100ms") as server:
        yield server


@pytest.fixture
def admin(server: Server) -> Iterator[psycopg.Connection]:
    """A connection to it of who may do everything."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def empty(server: Server) -> Iterator[str]:
    """An empty database on it."""
    url = fresh_database(server.url)
    yield url
    drop_database(url)
