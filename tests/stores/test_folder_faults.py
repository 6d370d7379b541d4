"""A folder whose disk is full or fails, that this user may not use, and what a doctor sees of it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
from functools import partial
from pathlib import Path

import pytest

from expunge.errors import DiskFull, EnvironmentFault, StoreFault
from expunge.stores.contract import PERMIT, asked, bytes_of, filing, label, pieces
from expunge.stores.folder import FolderState, FolderStore, disk
from expunge.stores.port import Found
from tests.crash.diskfull import fill, mount_small
from tests.crash.kit import forked
from tests.stores.kit import U1, folders_in, folders_of_u1, in_forked
from tests.support import files_of

SMALL_DISK = 1024 * 1024
NOBODY_UID = 65534


# --- disks that are full, and folders that do not let us -------------------------------------------------------------


async def _full(folder: Path) -> tuple[str, list[str], dict[str, bytes]]:
    """Fill a small disk; what that said, what is left, and whether a body comes in once there is room."""
    store = FolderStore(folder / "objects")
    kept = await store.put(filing({"user_id": "u2"}), pieces(b"kept"))
    filler = fill(folder, but=8)
    try:
        await store.put(filing(U1), pieces(*[b"x" * 65_536] * 32))
        said = "it went in"
    except DiskFull as fault:
        said = str(fault)
    left = [each.ref for each in await store.find("attachments", asked({}))]
    parts = [path.name for path in store.folder.rglob("*.part")] + folders_in(store)
    filler.unlink()
    await store.put(filing(U1), pieces(*[b"x" * 65_536] * 4))
    assert left == [kept]
    return said, parts, await bytes_of(store, left)


def _mounts() -> bool:
    return forked(partial(mount_small, Path("/tmp"), SMALL_DISK)).value is True


def test_a_full_disk(tmp_path):
    """Law 16: on a full disk nothing is stored, nothing is left behind, what is there stays, and there is a hint."""
    if not _mounts():
        return  # the next test has a limit of the process in its place

    async def job():
        assert mount_small(tmp_path, SMALL_DISK)
        return await _full(tmp_path)

    said, left, kept = in_forked(job)
    assert "is full" in said
    assert str(tmp_path / "objects") in said
    assert "free some space" in said
    assert [path for path in left if label("acme", "user_id", "u1") in path or path.endswith(".part")] == []
    assert set(kept.values()) == {b"kept"}


def test_a_file_that_may_not_grow(tmp_path):
    """Law 16: when a write fails half way, nothing is left behind, and what is there stays."""

    async def job():
        resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_DISK, SMALL_DISK))
        store = FolderStore(tmp_path / "objects")
        kept = await store.put(filing({"user_id": "u2"}), pieces(b"kept"))
        with pytest.raises(StoreFault, match="File too large") as caught:
            await store.put(filing(U1), pieces(*[b"x" * 65_536] * 64))
        return kept, str(caught.value), await bytes_of(store, [kept])

    kept, said, data = in_forked(job)
    assert str(tmp_path / "objects") in said
    assert data == {kept: b"kept"}
    store = FolderStore(tmp_path / "objects")
    assert asyncio.run(store.find("attachments", asked({}))) == [Found(0, kept)]
    assert folders_of_u1(store) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("what", ["fsync", "rename", "mkdir"])
async def test_a_fault_at_each_step_of_a_put(store, monkeypatch, code, what):
    """Law 16: whichever step fails, the error is of the tree, names the folder, and nothing is left behind."""
    kept = await store.put(filing({"user_id": "u2"}), pieces(b"kept"))
    inner = getattr(os, what)
    calls = 0

    def failing(*given, **at):
        nonlocal calls
        calls += 1
        if calls == turn:
            raise OSError(code, os.strerror(code))
        return inner(*given, **at)

    async def attempt() -> tuple[str, EnvironmentFault | None]:
        with monkeypatch.context() as patched:
            patched.setattr(os, what, failing)
            try:
                return await store.put(filing(U1), pieces(b"x")), None
            except EnvironmentFault as fault:
                return "", fault

    turn = 1
    ref, fault = await attempt()
    while fault is not None:
        assert type(fault) is (StoreFault if code == errno.EIO else DiskFull)
        assert str(store.folder) in fault.message
        assert label("acme", "user_id", "u1") not in str(fault)
        assert await store.find("attachments", asked({})) == [Found(0, kept)]
        assert folders_of_u1(store) == []
        turn, calls = turn + 1, 0
        ref, fault = await attempt()
    assert turn > 1
    assert await bytes_of(store, [kept, ref]) == {kept: b"kept", ref: b"x"}


async def test_a_removal_that_is_not_made_durable(store, monkeypatch):
    """Law 16: bodies whose removal was not synced are not said to be gone, and the rest is removed."""
    refs = [await store.put(filing({"user_id": f"u{n}"}), pieces(b"x")) for n in range(3)]
    fsync, calls = os.fsync, []

    def failing(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        with pytest.raises(StoreFault, match="cannot be emptied"):
            await store.remove(refs, PERMIT)
    assert await store.present(refs) == frozenset()
    assert (await store.remove(refs, PERMIT)).gone == set(refs)
    assert folders_in(store) == []


@contextlib.contextmanager
def _reachable(tmp_path: Path):
    """Let another user come through the folders that pytest makes for their owner alone."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    yield


def _without_rights(job):
    """A job of a user who is not root; whoever is not root has no rights to give up."""

    async def dropped():
        await asyncio.to_thread(os.getpid)
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY_UID)
            os.setuid(NOBODY_UID)
        return await job()

    return dropped


def _give_away(folder: Path) -> None:
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.lchown(path, NOBODY_UID, NOBODY_UID)


def test_bodies_that_may_not_be_removed(tmp_path):
    """Laws 8 and 16: what may not be removed is refused with the reason and stays; the others' refs are gone."""
    store = FolderStore(tmp_path / "objects")

    async def prepare() -> list[str]:
        return [await store.put(filing({"user_id": f"u{n}"}), pieces(b"x")) for n in range(4)]

    refs = asyncio.run(prepare())
    with _reachable(tmp_path):
        _give_away(store.folder)
        leaf = [(store.folder / ref).parent for ref in refs]
        leaf[0].chmod(0o500)
        leaf[1].chmod(0)
        try:

            async def job():
                removal = await store.remove(refs, PERMIT)
                again = await store.remove(refs[2:], PERMIT)
                return removal.gone, dict(removal.refused), again.gone

            gone, refused, again = in_forked(_without_rights(job))
        finally:
            leaf[0].chmod(0o700)
            leaf[1].chmod(0o700)
    assert gone == again == set(refs[2:])
    assert refused == dict.fromkeys(refs[:2], "Permission denied")
    assert asyncio.run(store.present(refs)) == set(refs[:2])
    assert asyncio.run(bytes_of(store, refs[:2])) == dict.fromkeys(refs[:2], b"x")


@pytest.mark.parametrize("bits", [0o500, 0])
def test_a_folder_that_is_read_only(tmp_path, bits):
    """Law 16: where this user may not write, or not even look, every call says so and names the folder."""
    store = FolderStore(tmp_path / "objects")

    async def prepare() -> str:
        return await store.put(filing(U1), pieces(b"x"))

    ref = asyncio.run(prepare())
    with _reachable(tmp_path):
        _give_away(store.folder)
        (store.folder / ref.split("/")[0]).chmod(bits)
        before = files_of(store.folder) if os.geteuid() == 0 else {}

        async def job():
            said = {}
            calls = {
                "put": lambda: store.put(filing({}, "other"), pieces(b"y")),
                "find": lambda: store.find("attachments", asked(U1)),
                "present": lambda: store.present([ref]),
                "read": lambda: bytes_of(store, [ref]),
            }
            for name, call in calls.items():
                try:
                    said[name] = await call()
                except StoreFault as fault:
                    said[name] = str(fault)
            return said

        said = in_forked(_without_rights(job))
        (store.folder / ref.split("/")[0]).chmod(0o700)
    assert "Permission denied" in said["put"]
    assert str(store.folder) in said["put"]
    if bits:
        assert said["find"] == [Found(0, ref)]
        assert said["read"] == {ref: b"x"}
    else:
        assert all(str(store.folder) in text and "Permission denied" in text for text in said.values())
    assert before in ({}, files_of(store.folder))


# --- what a doctor sees -------------------------------------------------------------------------------------------


async def test_state(store, tmp_path):
    """What is seen changes nothing: a folder is not made by being looked at."""
    assert store.state() == FolderState(store.folder, False, None, True, ())
    assert not store.folder.exists()
    assert FolderStore(tmp_path / "a" / "b").state() == FolderState(tmp_path / "a" / "b", False, None, False, ())
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "file").chmod(0o700)
    assert FolderStore(tmp_path / "file").state() == FolderState(tmp_path / "file", False, None, False, ())
    ref = await store.put(filing(U1), pieces(b"x"))
    assert store.state() == FolderState(store.folder, True, 0o700, True, (ref.split("/")[0],))


def test_state_of_a_folder_that_does_not_let_us(tmp_path):
    store = FolderStore(tmp_path / "objects")
    store.folder.mkdir()
    with _reachable(tmp_path):
        _give_away(store.folder)
        store.folder.chmod(0o100)

        async def job():
            return store.state()

        state = in_forked(_without_rights(job))
        store.folder.chmod(0o700)
    assert state == FolderState(store.folder, True, 0o100, False, ())


def test_a_fault_without_words():
    assert disk.reason_of(OSError()) == "OSError"
