"""A full disk at each write: before step 1 nothing is written, later the erasure says that it can be resumed."""

from __future__ import annotations

import gc
import secrets
import shutil
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from expunge import Expunge
from expunge.authority.sqlite.connection import faults
from expunge.authority.sqlite.place import Place
from expunge.errors import DiskFull, EnvironmentFault, ErasureInterrupted, ExpungeError
from expunge.subject.export import FORMATS, ExportFile
from tests.crash.diskfull import Quota, fill, install, mount_small
from tests.crash.kit import copied, everything, forked, in_child, opened, raw
from tests.crash.story import DORA, Prepared, Story, large, outcome, prepare, small
from tests.support import episode

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

_SMALL_DISK = 8 * 1024 * 1024
_WITHOUT = ("audit", "ledger")


def _mounts() -> bool:
    """Whether a process may mount a small disk for itself here; where not, the file layer alone is tested."""
    folder = Path("/tmp")
    return forked(partial(mount_small, folder, _SMALL_DISK)).value is True


DISKS = ["layer", "tmpfs"] if _mounts() else ["layer"]


class Disk:
    """A disk of this process that lets so many writes (or pages) through from a moment on, and then is full."""

    def __init__(self, kind: str, prepared: Prepared, mount: Path) -> None:
        self.kind, self.quota = kind, Quota()
        if kind == "tmpfs":
            assert mount_small(mount, _SMALL_DISK)
        else:
            self._layer = install(self.quota)
        self.folder = copied(prepared.folder, mount / "run")
        self._filler = mount / "filler"

    def fills_after(self, number: int) -> None:
        if self.kind == "tmpfs":
            fill(self._filler.parent, but=number)
        else:
            self.quota.limit(number)

    def has_room_again(self) -> None:
        self.quota.limit(None)
        self._filler.unlink(missing_ok=True)


def writes_of(prepared: Prepared, mount: Path) -> tuple[int, dict[str, Any]]:
    """How many writes an erasure needs that nothing disturbs, and its outcome."""

    async def job() -> tuple[int, dict[str, Any]]:
        disk = Disk("layer", prepared, mount)
        async with opened(prepared.story.settings(disk.folder)) as expunge:
            disk.quota.limit(None)
            answer = await expunge.erase(*prepared.story.erased, purge=True)
            return disk.quota.seen, await outcome(expunge, answer.request_id, prepared)

    return in_child(job)


async def attempt(expunge: Expunge, prepared: Prepared) -> tuple[DiskFull | ErasureInterrupted | None, str]:
    """Erase, if the disk lets us; what came in the way, and what that means."""
    try:
        await expunge.erase(*prepared.story.erased, purge=True)
    except ErasureInterrupted as fault:
        return fault, "interrupted"
    except DiskFull as fault:
        return fault, "nothing written"
    return None, "went through"


def full_after(kind: str, number: int, prepared: Prepared, mount: Path) -> tuple[str, dict[str, Any]]:
    """Erase on a disk that is full after so many writes; what that said, and the outcome once there is room again."""

    async def job() -> tuple[str, dict[str, Any]]:
        disk = Disk(kind, prepared, mount)
        async with opened(prepared.story.settings(disk.folder)) as expunge:
            disk.fills_after(number)
            fault, said = await attempt(expunge, prepared)
            disk.has_room_again()
            listed = (await expunge.call("erasure.list")).erasures
            if isinstance(fault, DiskFull):
                assert await everything(expunge) == prepared.was, "the disk was full, and yet something was written"
                answer = await expunge.erase(*prepared.story.erased, purge=True)
            else:
                request_id = listed[0].request_id
                if fault is not None:
                    assert f"expunge resume {request_id}" in str(fault)
                    assert f"{request_id} is still {listed[0].status}" in str(fault)
                    said += f", {listed[0].status}"
                answer = await expunge.resume(request_id)
            assert answer.status == "completed"
        async with opened(prepared.story.settings(disk.folder)) as expunge:
            told = await outcome(expunge, answer.request_id, prepared)
        assert raw("integrity.py", disk.folder / "expunge.db").strip() == "ok"
        return said, told

    return in_child(job)


def assert_full_everywhere(story: Story, kind: str, tmp_path: Path, *, step: int) -> None:
    prepared = prepare(story, tmp_path / "prepared")
    mount = tmp_path / "mount"
    mount.mkdir()
    writes, expected = writes_of(prepared, mount)
    said: Counter[str] = Counter()
    number, most = 0, 10 * writes
    while number <= most:
        what, told = full_after(kind, number, prepared, mount)
        said[what] += 1
        assert told == expected, (number, what)
        if what == "went through":
            break
        number += step
    print(f"{kind}: {writes} writes undisturbed; full after each of 0 to {number}: {dict(said)}")
    assert said["nothing written"] > 0
    assert said["interrupted, in_progress"] > 0
    assert said["went through"] == 1


@pytest.mark.parametrize("kind", DISKS)
def test_one_person_on_a_disk_that_is_full_at_each_write(tmp_path, kind):
    """Law 16, small path: before step 1 nothing is written, later the request can be resumed, and resume completes."""
    assert_full_everywhere(small(), kind, tmp_path, step=1)


@pytest.mark.parametrize(("kind", "step"), [(kind, {"layer": 7, "tmpfs": 3}[kind]) for kind in DISKS])
def test_several_people_on_a_disk_that_is_full_at_each_write(tmp_path, kind, step):
    """Law 16, batched path: before step 1 nothing is written, later it can be resumed, and resume completes."""
    assert_full_everywhere(large(), kind, tmp_path, step=step)


@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize("records", [1, 300])
def test_loading_on_a_full_disk_writes_nothing(tmp_path, kind, records):
    """Law 16: a load that the disk has no room for is refused whole, and goes through when there is room again."""
    prepared = prepare(small(), tmp_path / "prepared")
    mount = tmp_path / "mount"
    mount.mkdir()
    batch = [episode(f"e<new-{n}>", DORA, input="x" * 2000) for n in range(records)]

    def load(number: int) -> str:
        async def job() -> str:
            disk = Disk(kind, prepared, mount)
            async with opened(prepared.story.settings(disk.folder)) as expunge:
                disk.fills_after(number)
                try:
                    await expunge.put(batch)
                    said = "went through"
                except DiskFull:
                    said = "refused"
                disk.has_room_again()
                if said == "refused":
                    assert await everything(expunge) == prepared.was
                    await expunge.put(batch)
            async with opened(prepared.story.settings(disk.folder)) as expunge:
                assert len((await everything(expunge))["records"]["episodes"]) == records + 2
            assert raw("integrity.py", disk.folder / "expunge.db").strip() == "ok"
            return said

        return in_child(job)

    said = [load(number) for number in range(0, 20 if records == 1 else 400, 1 if records == 1 else 16)]
    print(f"{kind}, {records} records: {Counter(said)}")
    assert said[0] == "refused"
    assert "went through" in said or kind == "layer"


@pytest.mark.parametrize("kind", DISKS)
def test_what_a_load_says_of_a_full_disk_is_what_it_did(tmp_path, kind):
    """Law 16: no load that was refused for a full disk is in the store, also when only the checkpoint had no room."""
    prepared = prepare(small(), tmp_path / "prepared")
    mount = tmp_path / "mount"
    mount.mkdir()

    async def job() -> tuple[dict[int, str], list[int], str]:
        disk = Disk(kind, prepared, mount)
        said: dict[int, str] = {}
        async with opened(prepared.story.settings(disk.folder)) as expunge:
            database = disk.folder / "expunge.db"
            if kind == "layer":
                disk.quota.only_growth_of(database)
            else:
                # Enough for the WAL until SQLite checkpoints of itself (1,000 pages), and then not for the file.
                disk.fills_after(1100)
            for number in range(350):
                try:
                    await expunge.put([episode(f"e<new-{number}>", DORA, input="x" * 9000)])
                    said[number] = "loaded"
                except ExpungeError as fault:
                    said[number] = fault.code
            there = (await everything(expunge))["records"]["episodes"]
            disk.has_room_again()
            await expunge.put([episode("e<more>", DORA)])
        wrong = [n for n in said if (f"e<new-{n}>" in there) != (said[n] == "loaded")]
        return said, wrong, raw("integrity.py", database).strip()

    said, wrong, integrity = in_child(job)
    print(f"{kind}: {Counter(said.values())}")
    if kind == "tmpfs":  # the layer only refuses growth of the file itself, which no commit waits for
        assert "DISK_FULL" in said.values()
    assert "loaded" in said.values()
    assert integrity == "ok"
    assert wrong == [], f"{len(wrong)} loads were refused, and are there: {wrong[:10]}"


@pytest.mark.parametrize("kind", DISKS)
def test_closing_on_a_full_disk(tmp_path, kind):
    """Law 16: when only the checkpoint of the close has no room, nothing is lost, and nobody sees the driver's error."""
    prepared = prepare(small(), tmp_path / "prepared")
    mount = tmp_path / "mount"
    mount.mkdir()

    async def job() -> None:
        disk = Disk(kind, prepared, mount)
        async with opened(prepared.story.settings(disk.folder)) as expunge:
            await expunge.put([episode(f"e<new-{n}>", DORA, input="x" * 9000) for n in range(20)])
            disk.fills_after(0)
        disk.has_room_again()
        async with opened(prepared.story.settings(disk.folder)) as expunge:
            assert len((await everything(expunge))["records"]["episodes"]) == 22
        assert raw("integrity.py", disk.folder / "expunge.db").strip() == "ok"

    in_child(job)


@pytest.mark.parametrize("kind", DISKS)
def test_a_new_database_on_a_full_disk(tmp_path, kind):
    """Law 16: a database that could not be made for want of room says so, and is made when there is room again."""
    prepared = prepare(small(), tmp_path / "prepared")
    mount = tmp_path / "mount"
    mount.mkdir()

    def make(number: int) -> str:
        async def job() -> str:
            disk = Disk(kind, prepared, mount)
            shutil.rmtree(disk.folder)
            disk.folder.mkdir()
            disk.fills_after(number)
            try:
                async with opened(prepared.story.settings(disk.folder)):
                    said = "made"
            except EnvironmentFault as fault:
                # Without room for the -shm file SQLite speaks of an I/O error.
                said = fault.code
            disk.has_room_again()
            async with opened(prepared.story.settings(disk.folder)) as expunge:
                await expunge.put(prepared.story.records)
            assert raw("integrity.py", disk.folder / "expunge.db").strip() == "ok"
            return said

        return in_child(job)

    said: list[str] = []
    while "made" not in said and len(said) < 200:
        said.append(make(5 * len(said)))
    print(f"{kind}: {Counter(said)}")
    assert said[0] == "DISK_FULL"
    assert "DISK_FULL" in said[1:]
    assert "made" in said


def test_no_room_for_shared_memory_is_a_full_disk():
    """Law 16: SQLite's own word for it, as a full disk gives it to whoever opens a database."""

    class NoRoom(apsw.IOError):
        extendedresult = apsw.SQLITE_IOERR_SHMSIZE

    with pytest.raises(DiskFull, match="cannot be opened"), faults(Place(Path("x.db"))):
        raise NoRoom


def opened_on_a_full_disk(prepared: Prepared, mount: Path, pages: int) -> str:
    """What somebody is told who reads on a disk that has room for so few pages, and can afterwards."""

    async def job() -> str:
        disk = Disk("tmpfs", prepared, mount)
        disk.fills_after(pages)
        with pytest.raises(DiskFull) as refused:
            async with opened(prepared.story.settings(disk.folder)) as expunge:
                await expunge.profile(DORA)
        disk.has_room_again()
        async with opened(prepared.story.settings(disk.folder)) as expunge:
            assert await everything(expunge) == prepared.was
        return refused.value.next_step or ""

    return in_child(job)


def exported_on_a_full_disk(prepared: Prepared, mount: Path, form: str) -> list[str]:
    """What Python complains of when an export has no room, whose old file stays, and which then goes through."""

    async def job() -> list[str]:
        disk = Disk("tmpfs", prepared, mount)
        file = disk.folder / f"dora.{form}"
        complaints: list[str] = []
        sys.unraisablehook = lambda said: complaints.append(str(said.exc_value))
        async with opened(prepared.story.settings(disk.folder)) as expunge:
            await expunge.put([episode(f"e<new-{n}>", DORA, input=secrets.token_hex(50_000)) for n in range(5)])
            file.write_bytes(b"as it was")
            before = sorted(path.name for path in disk.folder.iterdir())
            for pages in (16, 60):
                disk.fills_after(pages)
                with pytest.raises(DiskFull, match=f"{form} was not written"):
                    await expunge.export_to(file, DORA)
                disk.has_room_again()
                gc.collect()
                assert file.read_bytes() == b"as it was"
                assert sorted(path.name for path in disk.folder.iterdir()) == before
            assert (await expunge.export_to(file, DORA))["complete"]
            assert len(ExportFile.read(file.read_bytes()).lines) >= 5
        return complaints

    return in_child(job)


@pytest.mark.parametrize("kind", DISKS)
def test_reading_and_exporting_on_a_full_disk(tmp_path, kind):
    """Law 16: who has no room to open a database, or to write an export, is told so; nothing is half there."""
    prepared = prepare(small(), tmp_path / "prepared")
    mount = tmp_path / "mount"
    mount.mkdir()
    if kind == "tmpfs":
        for pages in (0, 1, 4, 6):
            assert "free some space" in opened_on_a_full_disk(prepared, mount, pages)
        for form in FORMATS:
            assert exported_on_a_full_disk(prepared, mount, form) == []
        return

    async def job() -> None:  # the layer is under the database alone; this device is full on every machine
        async with opened(prepared.story.settings(copied(prepared.folder, mount / "run"))) as expunge:
            for form in FORMATS:
                with pytest.raises(DiskFull):
                    await expunge.export_to("/dev/full", DORA, format=form)

    in_child(job)
