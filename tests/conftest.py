"""Shared fixtures, and the rule that a skip in CI is a failure."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from expunge import Expunge, Settings
from expunge.authority.postgres import PostgresAuthority, PostgresPlace
from expunge.model.instant import ManualClock
from tests.crash.kit import copied
from tests.house import House
from tests.pg import server as pg

AUTHORITIES = ("sqlite", "memory", "postgres")
"""What a test may name that is marked ``authorities``: a SQLite file, SQLite in memory, PostgreSQL."""

_skipped: list[str] = []
_MEMORY, _ROOM = Path("/dev/shm"), 2 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fail-on-skip", action="store_true", help="count a skipped test as a failed run")
    parser.addoption("--authority", default="sqlite", choices=AUTHORITIES, help="what tests run on that name none")


def pytest_configure(config: pytest.Config) -> None:
    """Let the folders of tests lie in memory where it has room: a third of their time is waiting for a disk.

    The tests marked ``crash``, which are about disks, keep to one; PYTEST_DEBUG_TEMPROOT=/tmp sends the rest there too.
    """
    if config.option.markexpr != "crash" and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    pg.configure(config)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--fail-on-skip") and _skipped and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that is marked ``authorities`` on each that the mark names, on all when it names none."""
    marker = metafunc.definition.get_closest_marker("authorities")
    if marker is not None and "authority" in metafunc.fixturenames:
        metafunc.parametrize("authority", marker.args or AUTHORITIES, indirect=True, scope="function")


@pytest.hookimpl(tryfirst=True)  # before what `-m` leaves out is left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test whose mark says ``every=n``, the last authority that it names runs each n-th at once.

    The others are for `make test-crash`.
    """
    seen: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("authorities")
        every = marker.kwargs.get("every", 1) if marker else 1
        given = getattr(getattr(item, "callspec", None), "params", {})
        if marker and every > 1 and given.get("authority") == marker.args[-1]:
            name = item.nodeid.partition("[")[0]
            if seen[name] % every:
                item.add_marker("crash")
            seen[name] += 1


@pytest.fixture
def authority(request: pytest.FixtureRequest) -> str:
    """What the test runs on."""
    return str(getattr(request, "param", None) or request.config.getoption("--authority"))


@pytest.fixture
def settings(authority: str, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    if authority == "memory":
        return Settings(db=":memory:")
    if authority == "sqlite":
        return Settings(db=str(tmp_path / "expunge.db"))
    return Settings(
        db=request.getfixturevalue("postgres_place"),
        keys_file=tmp_path / "expunge.keys",
        objects=tmp_path / "expunge.objects",
    )


@pytest.fixture
def places(authority: str, request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[str]]:
    """Gives one more database each time, for a test that needs many: each is gone when it is let go of."""
    server = template = ""
    if authority == "postgres":
        server, template = (request.getfixturevalue(name) for name in ("postgres_server", "postgres_template"))

    @contextmanager
    def place() -> Iterator[str]:
        if server:
            url = pg.fresh_database(server, template)
            yield url
            pg.drop_database(url)
        elif authority == "memory":
            yield ":memory:"
        else:
            with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
                yield str(Path(folder) / "expunge.db")

    return place


@pytest.fixture
async def expunge(settings: Settings, clock: ManualClock) -> AsyncIterator[Expunge]:
    """A system on a database file of its own."""
    async with Expunge(settings=settings, clock=clock) as opened:
        yield opened


@pytest.fixture
async def in_memory(clock: ManualClock) -> AsyncIterator[Expunge]:
    """A system in memory."""
    async with Expunge(settings=Settings(db=":memory:"), clock=clock) as opened:
        yield opened


@pytest.fixture(scope="session")
def prepared_house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The house that every test has a copy of."""
    house = House(tmp_path_factory.mktemp("prepared") / "house")
    asyncio.run(house.fill())
    return house.folder


@pytest.fixture(scope="session")
def prepared_served_house(
    postgres_server: str, postgres_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[House]:
    """The same on a server."""
    url = pg.fresh_database(postgres_server, postgres_template)
    house = House(tmp_path_factory.mktemp("prepared") / "house", url)
    asyncio.run(house.fill())
    yield house
    pg.drop_database(url)


@pytest.fixture
def house(authority: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    """A copy of the filled house, to be changed."""
    if authority != "postgres":
        yield House(copied(request.getfixturevalue("prepared_house"), tmp_path / "house"))
        return
    prepared: House = request.getfixturevalue("prepared_served_house")
    url = pg.fresh_database(request.getfixturevalue("postgres_server"), prepared.db)
    yield House(copied(prepared.folder, tmp_path / "house"), url)
    pg.drop_database(url)


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> str:
    """The URL of a PostgreSQL server, shared by the run."""
    return pg.server_of(pytestconfig)


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> Iterator[str]:
    """The URL of a database with our schema and nothing in it, to which nobody connects: what is copied."""
    url = pg.fresh_database(postgres_server)
    asyncio.run(_migrated(url))
    yield url
    pg.drop_database(url)


async def _migrated(url: str) -> None:
    await (await PostgresAuthority.open(PostgresPlace.parse(url), create=True)).close()


@pytest.fixture
def postgres_place(postgres_server: str, postgres_template: str) -> Iterator[str]:
    """A PostgreSQL database of its own, with our schema."""
    url = pg.fresh_database(postgres_server, postgres_template)
    yield url
    pg.drop_database(url)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """An empty PostgreSQL database of its own."""
    url = pg.fresh_database(postgres_server)
    yield url
    pg.drop_database(url)
