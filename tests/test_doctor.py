"""`system.doctor`: what it finds in order, what it warns of, what it fails on, and that it changes nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from expunge import Expunge, Settings
from expunge.authority.sqlite import SqliteAuthority
from expunge.erasure import open_erasure
from expunge.errors import Abandoned
from expunge.model.instant import ManualClock
from expunge.operations.doctor import DoctorOutput, Finding
from expunge.proof.receipt import NOT_COVERED
from expunge.stores import BodyStore, Capabilities
from expunge.stores.faulty import Fault, Faulty
from expunge.stores.folder import FolderStore
from expunge.stores.recording import Recording
from tests.crash.kit import control
from tests.house import ANN, BOB, WINDOW_S, hold, told, without_rights, write_files
from tests.shell import Shell
from tests.support import digests, dump, episode, purge_order


async def examined(expunge: Expunge) -> DoctorOutput:
    """What the doctor says, who must not have changed a row or a byte."""
    assert isinstance(expunge.system.authority, SqliteAuthority)
    path = expunge.system.authority.place.path
    rows = (await dump(expunge), await control(expunge))
    files = {} if path is None else digests(path.parent)
    modes = {} if path is None else {file: file.stat().st_mode for file in path.parent.rglob("*")}
    found: DoctorOutput = await expunge.call("system.doctor")
    assert (await dump(expunge), await control(expunge)) == rows
    if path is not None:
        shared = {name for name in files if name.endswith("-shm")}  # the readers' own bookkeeping
        assert {name: data for name, data in digests(path.parent).items() if name not in shared} == {
            name: data for name, data in files.items() if name not in shared
        }
        assert {file: file.stat().st_mode for file in path.parent.rglob("*")} == modes
    return found


def wanting(found: DoctorOutput) -> list[Finding]:
    """The findings that are not in order."""
    return [item for item in found.findings if item.state != "ok"]


def only(found: DoctorOutput) -> Finding:
    """The one finding that is not in order."""
    (item,) = wanting(found)
    return item


def of(found: DoctorOutput, name: str) -> Finding:
    (item,) = [item for item in found.findings if item.name == name]
    return item


# --- in order -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "memory"])
async def test_a_fresh_installation_is_healthy(settings: Settings, clock: ManualClock, kind: str) -> None:
    """Deliver: versions, pragmas, files, stores, keys and what is not covered; all in order, and nothing to do."""
    chosen = settings if kind == "file" else Settings(db=":memory:")
    async with Expunge(settings=chosen, clock=clock) as expunge:
        found = await examined(expunge)
        keys = expunge.system.keys
    assert found.healthy
    assert wanting(found) == []
    assert {item.next for item in found.findings} == {None}
    assert list(found.versions) == ["expunge", "python", "sqlite", "apsw", "schema"]
    assert found.versions["sqlite"] == apsw.sqlite_lib_version()
    assert all(found.versions.values())
    pragmas = {item.name.removeprefix("setting "): item.found for item in found.findings if "setting" in item.name}
    assert pragmas["journal_mode"] == ("wal" if kind == "file" else "memory")
    assert (pragmas["synchronous"], pragmas["secure_delete"], pragmas["foreign_keys"]) == ("2", "1", "1")
    assert keys.current.id in of(found, "keys").found
    assert keys.signer.id in of(found, "keys").found
    assert set(NOT_COVERED) < set(found.not_covered)
    names = {item.name for item in found.findings}
    if kind == "memory":
        assert "in memory" in of(found, "store objects").found
    else:
        assert {settings.db, str(Path(settings.db).with_name("expunge.keys")), "store objects"} <= names
        assert "(not made yet)" in of(found, "store objects").found
    assert {"erasures", "clock", "write-ahead log"} <= names


async def test_a_used_installation_is_healthy(expunge: Expunge, tmp_path: Path) -> None:
    """Law 16: what has ended well wants no hand: rows, bodies, purged, hidden and restored erasures, rotated keys."""
    write_files(tmp_path / "given", "a", "b", "c")
    records = [told("a", ANN), told("b", BOB), told("c", "cat")]
    await expunge.put(records, attachments_from=tmp_path / "given")
    await expunge.erase(ANN, purge=True)
    hidden = await expunge.erase(BOB, purge=False)
    await expunge.restore(hidden.request_id)
    await expunge.erase("cat", purge=False)
    await expunge.call("keys.rotate")
    found = await examined(expunge)
    assert (found.healthy, wanting(found)) == (True, [])
    assert of(found, "keys").found.startswith("2 for pseudonyms and 2 for signing")
    folder = of(found, "store objects").found
    assert folder == f"{tmp_path / 'expunge.objects'}; fence header, bytes go at_once"


# --- what fails -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pragma", "value", "found"),
    [("synchronous", "off", "0"), ("secure_delete", "0", "0"), ("foreign_keys", "0", "0"), ("trusted_schema", "1", "1"),
     ("temp_store", "1", "1"), ("cache_size", "-64", "-64"), ("max_page_count", "1000", "1000")],
)  # fmt: skip
async def test_a_pragma_that_is_not_as_wanted(expunge: Expunge, pragma: str, value: str, found: str) -> None:
    """Design 2: every setting is read back, and one that is not as it has to be fails."""
    assert isinstance(expunge.system.authority, SqliteAuthority)
    expunge.system.authority._writer.execute(f"PRAGMA {pragma} = {value}").fetchall()
    said = await examined(expunge)
    item = only(said)
    assert (said.healthy, item.name, item.state) == (False, f"setting {pragma}", "fail")
    assert item.found.startswith(f"{found} instead of ")
    assert item.next == "open the database again"


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604, 0o700 | 0o001])
@pytest.mark.parametrize("what", ["expunge.db", "expunge.db-wal", "expunge.keys", "expunge.objects"])
async def test_what_others_can_reach(expunge: Expunge, tmp_path: Path, what: str, mode: int) -> None:
    """Law 14: what holds words, pseudonyms or keys is its owner's alone; the finding says how to close it again."""
    write_files(tmp_path / "given", "a")
    await expunge.put([told("a", ANN)], attachments_from=tmp_path / "given")
    path = tmp_path / what
    was = path.stat().st_mode
    path.chmod(mode)
    said = await examined(expunge)
    item = only(said)
    assert (said.healthy, item.name, item.state) == (False, str(path), "fail")
    assert f"{mode:04o}" in item.found
    assert item.next == f"chmod {mode & 0o700:04o} {path}"
    path.chmod(was)
    assert (await examined(expunge)).healthy


@pytest.mark.parametrize("what", ["expunge.db", "expunge.keys"])
async def test_what_is_not_there_any_more(expunge: Expunge, tmp_path: Path, what: str) -> None:
    """Law 16: a file that went while the database is open is found, and does not end the examination."""
    assert (await examined(expunge)).healthy
    # Both readers are open: one that has yet to be opened would find no database.
    await asyncio.gather(*(expunge.system.authority.read(lambda tx: time.sleep(0.05)) for _ in range(2)))
    (tmp_path / what).unlink()
    said = await examined(expunge)
    item = only(said)
    assert (said.healthy, item.name, item.state) == (False, str(tmp_path / what), "fail")
    assert "No such file" in item.found
    assert item.next


def test_an_objects_folder_that_is_not_writable(tmp_path: Path) -> None:
    """Bad input: where no body can be stored or removed, whoever may not write is told, before an erasure fails."""
    home = tmp_path / "home"
    objects = home / "objects"
    objects.mkdir(parents=True)
    settings = Settings(db=str(home / "expunge.db"), objects=objects)

    async def job() -> list[Finding]:
        async with Expunge(settings=settings) as expunge:
            objects.chmod(0o500)
            closed = only(await examined(expunge))
            objects.chmod(0o700)
            objects.rmdir()
            assert (await examined(expunge)).healthy
            objects.write_bytes(b"no folder")
            objects.chmod(0o600)
            return [closed, only(await examined(expunge))]

    for item in without_rights(home, job):
        assert (item.name, item.state) == ("store objects", "fail")
        assert item.found == f"{objects} cannot be written to"
        assert item.next


class Poor(Recording):
    """A store that lacks something."""

    def __init__(self, inner: BodyStore, **lacks: Any) -> None:
        super().__init__(inner)
        self.lacks = lacks

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(self.inner.capabilities, **self.lacks)


@pytest.mark.parametrize("cannot", ["find", "remove"])
async def test_a_store_that_cannot_be_emptied(settings: Settings, tmp_path: Path, cannot: str) -> None:
    """Law 7: with a store that cannot list or remove no erasure would ever complete, so it is found beforehand."""
    store = Poor(FolderStore(tmp_path / "objects"), **{cannot: False})
    async with Expunge(settings=settings, bodies=store) as expunge:
        said = await examined(expunge)
    item = only(said)
    assert (said.healthy, item.name, item.state) == (False, "store objects", "fail")
    assert "it cannot be emptied" in item.found
    assert item.next == "use another store"
    assert store.calls == []


async def test_a_store_that_can_be_emptied(settings: Settings, tmp_path: Path) -> None:
    """Design 2: what a store says of itself is shown; a store without fence is none that fails."""
    store = Poor(FolderStore(tmp_path / "objects"), fence="none", physical="later", settle_s=5)
    async with Expunge(settings=settings, bodies=store) as expunge:
        said = await examined(expunge)
    assert of(said, "store objects").found == "fence none, bytes go later"
    assert wanting(said) == []


async def test_a_clock_that_stands_before_the_newest_erasure(expunge: Expunge, clock: ManualClock) -> None:
    """Law 13: a clock that went back is found, because dates and windows would be wrong."""
    await expunge.erase(ANN, purge=True)
    clock.advance(-1)
    said = await examined(expunge)
    item = only(said)
    assert (said.healthy, item.name, item.state, item.next) == (False, "clock", "fail", "set the clock")
    clock.advance(1)
    assert (await examined(expunge)).healthy


# --- what wants a hand ----------------------------------------------------------------------------------------------


async def test_a_fence_that_stands(settings: Settings, clock: ManualClock, tmp_path: Path) -> None:
    """Law 16: a failed erasure of a namespace keeps writers out, and says which commands end that."""
    store = Faulty(FolderStore(tmp_path / "objects"), Fault.RAISES)
    async with Expunge(settings=settings, clock=clock, bodies=store) as expunge:
        write_files(tmp_path / "given", "a")
        await expunge.put([told("a", ANN, namespace="chat")], attachments_from=tmp_path / "given")
        answer = await expunge.erase(purge=True, namespaces=["chat"])
        assert answer.status == "failed"
        said = await examined(expunge)
        assert said.healthy  # to be done by a person, and nothing is broken
        standing, unfinished = wanting(said)
        assert (standing.name, standing.state) == (f"erasure {answer.request_id}", "warn")
        assert standing.found == "its fence still stands in org default"
        assert standing.next == f"expunge resume {answer.request_id}, or: expunge release {answer.request_id}"
        assert (unfinished.found, unfinished.next) == ("failed in org default", f"expunge erasure {answer.request_id}")
        await expunge.call("erasure.release", request_id=answer.request_id)
        assert only(await examined(expunge)) == unfinished
        store.heal()
        assert (await expunge.resume(answer.request_id)).status == "completed"
        assert wanting(await examined(expunge)) == []


async def test_erasures_that_have_not_ended(expunge: Expunge) -> None:
    """Law 16: what runs (or was killed), is blocked or has failed, in any org, is named with what to run next."""
    await expunge.put([episode("e", ANN), episode("f", BOB, namespace="legal"), episode("g", BOB)])
    running = await open_erasure(expunge.system, purge_order(ANN, org="another"), actor="t", role="operator")
    await hold(expunge, user_id=ANN)
    blocked = await expunge.erase(ANN, purge=True)
    await hold(expunge, namespace="legal")
    failed = await expunge.erase(BOB, purge=True)
    await expunge.erase("cat", purge=True)
    said = await examined(expunge)
    assert said.healthy
    assert [(item.name, item.found, item.next) for item in wanting(said)] == [
        (f"erasure {running.id}", "in_progress in org another", f"expunge erasure {running.id}"),
        (f"erasure {blocked.request_id}", "blocked in org default", f"expunge erasure {blocked.request_id}"),
        (f"erasure {failed.request_id}", "failed in org default", f"expunge erasure {failed.request_id}"),
    ]
    assert {item.state for item in wanting(said)} == {"warn"}


async def test_an_erasure_that_was_given_up(settings: Settings, clock: ManualClock, tmp_path: Path) -> None:
    """Design 4: after its last attempt an erasure waits for a person, who is told, until another one clears it."""
    store = Faulty(FolderStore(tmp_path / "objects"), Fault.RAISES)
    once = settings.model_copy(update={"max_attempts": 1})
    async with Expunge(settings=once, clock=clock, bodies=store) as expunge:
        write_files(tmp_path / "given", "a")
        await expunge.put([told("a", ANN)], attachments_from=tmp_path / "given")
        answer = await expunge.erase(ANN, purge=True)
        with pytest.raises(Abandoned):
            await expunge.resume(answer.request_id)
        item = only(await examined(expunge))
        assert (item.name, item.state) == (f"erasure {answer.request_id}", "warn")
        assert (item.found, item.next) == ("abandoned in org default", f"expunge erasure {answer.request_id}")
        store.heal()
        assert (await expunge.erase(ANN, purge=True)).status == "completed"
        assert wanting(await examined(expunge)) == []


async def test_a_window_that_has_ended(expunge: Expunge, clock: ManualClock) -> None:
    """Design 4: what was hidden and not restored is due after 14 days, and not before."""
    await expunge.put([episode("e", ANN)])
    answer = await expunge.erase(ANN, purge=False)
    clock.advance(WINDOW_S - 1)
    assert wanting(await examined(expunge)) == []
    clock.advance(1)
    item = only(await examined(expunge))
    assert (item.name, item.state) == (f"erasure {answer.request_id}", "warn")
    assert (item.found, item.next) == ("its restore window has ended in org default", "expunge resume --due")
    await expunge.call("erasure.resume_due")
    assert wanting(await examined(expunge)) == []


async def test_bytes_that_were_not_reclaimed(tmp_path: Path, clock: ManualClock) -> None:
    """Law 16: an open reader keeps removed pages; whoever looks is told, and a resume settles it."""
    settings = Settings(db=str(tmp_path / "expunge.db"), reclaim_wait_s=0.05)
    async with Expunge(settings=settings, clock=clock) as expunge:
        await expunge.put([episode("e", ANN)])
        reader = apsw.Connection(settings.db, flags=apsw.SQLITE_OPEN_READONLY)
        reader.execute("BEGIN; SELECT count(*) FROM episodes").fetchall()
        answer = await expunge.erase(ANN, purge=True)
        assert (answer.status, [item["store"] for item in answer.deferred]) == ("completed", ["authority"])
        item = only(await examined(expunge))
        assert (item.name, item.state) == (f"erasure {answer.request_id}", "warn")
        assert item.found == "some bytes were not reclaimed in org default"
        assert item.next == f"expunge resume {answer.request_id}"
        reader.close()
        assert (await expunge.resume(answer.request_id)).deferred == []
        assert wanting(await examined(expunge)) == []


async def test_a_long_write_ahead_log(expunge: Expunge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 11: a limit is named, and reaching it is in the answer."""
    await expunge.put([episode("e", ANN)])
    monkeypatch.setattr("expunge.operations.doctor._LONG_WAL_BYTES", 1000)
    item = only(await examined(expunge))
    assert (item.name, item.state) == ("write-ahead log", "warn")
    assert "bytes wait" in item.found
    assert item.next


async def test_findings_name_no_person(expunge: Expunge, clock: ManualClock) -> None:
    """Law 14: what is said of erasures names their ids and orgs, and nobody whom they are about."""
    await expunge.put([episode("e", ANN)])
    await expunge.erase(ANN, purge=False)
    await open_erasure(expunge.system, purge_order(ANN), actor="t", role="operator")
    clock.advance(WINDOW_S)
    said = await examined(expunge)
    assert len(wanting(said)) == 2
    assert ANN not in said.model_dump_json()


# --- the command line -----------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    """`doctor`: exit 0 when all is as it has to be, 1 when not; words for people, `--json` for programs."""

    def doctor(*words: str) -> subprocess.CompletedProcess[bytes]:
        return Shell(tmp_path).call("doctor", *words)

    missing = doctor("--json")
    assert (missing.returncode, json.loads(missing.stderr)["detail"]["code"]) == (4, "DATABASE_MISSING")
    assert list(tmp_path.iterdir()) == []

    async def make() -> None:
        async with Expunge(str(tmp_path / "expunge.db")) as expunge:
            await expunge.put([episode("e", ANN)])

    asyncio.run(make())
    good = doctor("--json")
    assert (good.returncode, good.stderr) == (0, b"")
    said = json.loads(good.stdout)
    assert (said["healthy"], {item["state"] for item in said["findings"]}) == (True, {"ok"})
    assert list(said) == ["healthy", "versions", "findings", "not_covered"]
    (tmp_path / "expunge.db").chmod(0o644)
    bad = doctor()
    words = bad.stdout.decode()
    assert bad.returncode == 1
    assert "fail  expunge.db: mode 0644: other users of this machine can reach it" in words
    assert "next: chmod 0600 expunge.db" in words
    assert "not covered by any receipt:" in words
    assert all(text in words for text in said["not_covered"])
