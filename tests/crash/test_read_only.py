"""Folders and files that this user may not write or read: refused as such, and left as they are."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from expunge import Expunge, Settings
from expunge.errors import EXIT_ENVIRONMENT, DatabaseUnreadable, EnvironmentFault, KeyFault
from tests.crash.kit import forked
from tests.crash.story import DORA, Prepared, prepare, small
from tests.support import digests, episode

pytestmark = pytest.mark.crash

NOBODY = 65534
_IS_ROOT = os.geteuid() == 0
"""Root may do everything, so its children give their rights up. Another user has none to give up."""
Use = Callable[[Expunge], Awaitable[object]]


async def nothing(expunge: Expunge) -> None:
    """Opening is enough."""


async def put(expunge: Expunge) -> None:
    await expunge.put([episode("e<new>", DORA)])


async def erase(expunge: Expunge) -> None:
    await expunge.erase(DORA, purge=True)


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """A database whose files belong to the user without rights."""
    # The folders that pytest makes are for their owner alone, and somebody else has to come through them.
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    prepared = prepare(small(), tmp_path / "prepared")
    give_away(prepared.folder, *prepared.folder.iterdir())
    return prepared


def give_away(*paths: Path) -> None:
    if _IS_ROOT:
        for path in paths:
            os.chown(path, NOBODY, NOBODY)


@contextlib.contextmanager
def allowing(mode: int, path: Path) -> Iterator[None]:
    """A path that for the moment allows no more than a mode says."""
    was = path.stat().st_mode
    path.chmod(mode)
    try:
        yield
    finally:
        path.chmod(was)


def refused(settings: Settings, use: Use) -> EnvironmentFault:
    """What somebody without rights is told who opens a system and uses it."""

    async def job() -> None:
        async with Expunge(settings=settings) as expunge:
            await use(expunge)

    def child() -> Exception | None:
        # Import all that is imported late: the Python of this machine may lie where the other user cannot read it.
        asyncio.run(_warm_up())
        if _IS_ROOT:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        try:
            asyncio.run(job())
        except Exception as fault:  # noqa: BLE001 (which one it is, the parent looks at)
            return fault
        return None

    ended = forked(child)
    assert (ended.signal, ended.error) == (0, "")
    fault = ended.value
    assert isinstance(fault, EnvironmentFault), repr(fault)
    assert fault.exit_code == EXIT_ENVIRONMENT
    assert fault.next_step, f"no hint: {fault}"
    return fault


async def _warm_up() -> None:
    async with Expunge(settings=Settings(db=":memory:")) as expunge:
        await put(expunge)
        await erase(expunge)


def test_a_database_that_may_not_be_read(prepared):
    """Law 16: a database that this user may not read is refused, and nothing is written."""
    before = digests(prepared.folder)
    with allowing(0, prepared.folder / "expunge.db"):
        fault = refused(prepared.story.settings(prepared.folder), nothing)
    assert isinstance(fault, DatabaseUnreadable)
    assert digests(prepared.folder) == before


@pytest.mark.parametrize("use", [nothing, put, erase])
def test_a_database_in_a_folder_that_is_read_only(prepared, use):
    """Law 16: without room for the WAL beside it a database is refused, and nothing is written."""
    before = digests(prepared.folder)
    with allowing(0o555, prepared.folder):
        fault = refused(prepared.story.settings(prepared.folder), use)
    assert isinstance(fault, DatabaseUnreadable)
    assert digests(prepared.folder) == before


@pytest.mark.parametrize("use", [put, erase])
def test_a_file_that_is_read_only(prepared, use):
    """Law 16: a read-only file is refused as such, and the file stays as it is."""
    before = digests(prepared.folder)
    with allowing(0o444, prepared.folder / "expunge.db"):
        fault = refused(prepared.story.settings(prepared.folder), use)
    assert isinstance(fault, DatabaseUnreadable)
    after = digests(prepared.folder)
    assert {name: after[name] for name in before} == before
    assert set(after) <= {*before, "expunge.db-wal", "expunge.db-shm"}


def test_keys_that_may_not_be_read(prepared):
    """Law 16: a database is not used without its keys, and nothing is written."""
    before = digests(prepared.folder)
    with allowing(0, prepared.folder / "expunge.keys"):
        fault = refused(prepared.story.settings(prepared.folder), put)
    assert isinstance(fault, KeyFault)
    assert digests(prepared.folder) == before


def test_a_database_in_a_folder_that_does_not_open(prepared):
    """Law 16: a folder that this user may not enter is a fault of the machine with a hint, and nothing is written."""
    before = digests(prepared.folder)
    with allowing(0, prepared.folder):
        fault = refused(prepared.story.settings(prepared.folder), nothing)
    assert isinstance(fault, DatabaseUnreadable | KeyFault)
    assert digests(prepared.folder) == before


@pytest.mark.parametrize("mode", [0o555, 0])
@pytest.mark.parametrize("keys", ["beside", "elsewhere"])
def test_a_new_database_where_nothing_may_be_written(tmp_path, prepared, mode, keys):
    """Law 16: a database that may not be made is refused, and nothing is written, whether the folder opens or not."""
    folder, keys_folder = tmp_path / "new", tmp_path / "keys"
    folder.mkdir()
    keys_folder.mkdir()
    give_away(folder, keys_folder)
    settings = Settings(
        db=str(folder / "expunge.db"), keys_file=None if keys == "beside" else keys_folder / "expunge.keys"
    )
    with allowing(mode, folder):
        fault = refused(settings, put)
    assert isinstance(fault, DatabaseUnreadable | KeyFault)
    assert digests(folder) == {}
