"""Attachments: files that come with an episode, all of them or nothing, and none from outside their folder."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import stat
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.authority.port import Statement
from expunge.erasure import open_erasure
from expunge.errors import ErasedSince, ErasureInProgress, ExpungeError, InputError, InvalidRecords, StoreFault
from expunge.model.canonical import canonical_plain
from expunge.model.instant import ManualClock
from expunge.stores import BodyStore, Filing
from expunge.stores.faulty import Fault, Faulty
from expunge.stores.folder import FolderStore
from expunge.stores.recording import Recording
from tests.crash.kit import watched
from tests.eye import changed
from tests.house import without_rights
from tests.shell import Shell
from tests.support import dump, episode, event, files_of, ids, memory, purge_order

BOTH = pytest.mark.authorities("sqlite", "postgres")
"""What is about rows, and not about files alone."""

LIMIT = 3 * 1024 * 1024
LARGE = b"0123456789abcdef" * (LIMIT // 16)
HOSTILE_NAMES = (
    "%", "*", "?", "[a-z]", "a\nb", "\t", "\x1b[31mred", "-rf", "--", "--purge", "😂", "a b", " lead", "trail ", "...",
    "..x", "~", "$HOME", "C:\\x", "\\", "'", '"', ";", "%00", "%2e%2e%2f", "\u202e1", "jürgen", "ju\u0308rgen", "A", "a",
    "x" * 255, "sub folder/deep er/file", "sub folder/-rf", ".hidden", "./dot",
)  # fmt: skip
"""Ordinary file names that naive code trips over."""


class Given:
    """A folder of files, beside one file that is not to be reached."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.secret = folder / "given", folder / "secret.txt"
        self.folder.mkdir()
        self.secret.write_bytes(b"not for you")
        self.write("good.txt", b"good bytes")

    def write(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return name


@pytest.fixture
def given(tmp_path: Path) -> Given:
    return Given(tmp_path)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return changed(settings, max_attachment_bytes=LIMIT)


def told(name: str, *files: Any, user: str | None = "ann", **fields: Any) -> dict[str, Any]:
    return episode(name, user, attachments=list(files), **fields)


async def bodies(expunge: Expunge) -> dict[str, bytes]:
    """Every body in the objects folder by ref, also those that are half written or that no row names."""
    store = expunge.system.bodies["attachments"]
    while isinstance(store, Recording | Faulty):
        store = store.inner  # type: ignore[assignment]
    assert isinstance(store, FolderStore)
    return {name: data for name, data in files_of(store.folder).items() if name != ".lock"}


async def attached(expunge: Expunge) -> dict[tuple[str, str], bytes]:
    """The bytes of every attachment as it is stored, by episode and path; the row tells their size and hash."""
    text = Statement("test.attached", "SELECT episode, path, bytes, sha256, ref FROM attachments")
    rows = await expunge.system.authority.read(lambda tx: tx.rows(text))
    store = expunge.system.bodies["attachments"]
    assert store is not None
    found: dict[tuple[str, str], bytes] = {}
    for name, path, size, digest, ref in rows:
        data = b"".join([piece async for piece in store.read(ref)])
        assert (size, digest) == (len(data), hashlib.sha256(data).hexdigest())
        found[name, path] = data
    assert len(await bodies(expunge)) == len(found)
    return found


async def refused(expunge: Expunge, given: Given, *records: Any) -> InvalidRecords:
    """What is said of records that are refused; nothing of them may be written, no row and no body."""
    rows, kept = await dump(expunge), await bodies(expunge)
    with pytest.raises(InvalidRecords) as caught:
        await asyncio.wait_for(expunge.put(records, attachments_from=given.folder), timeout=30)
    assert await dump(expunge) == rows
    assert await bodies(expunge) == kept
    return caught.value


# --- what comes in --------------------------------------------------------------------------------------------------


@BOTH
async def test_files_come_in_with_their_episode(expunge: Expunge, given: Given) -> None:
    """The load format: the bytes of each file are kept under its episode, whose identity they share."""
    files = [given.write("one.txt", b"one"), given.write("deep/er/two.bin", bytes(range(256)))]
    fields = {"namespace": "n", "session_id": "s", "agent": "g"}
    answer = await expunge.put([told("e", *files, **fields), told("f", "one.txt")], attachments_from=given.folder)
    assert (answer.loaded, answer.collections) == (5, {"episodes": 2, "attachments": 3})
    assert await attached(expunge) == {
        ("e", "one.txt"): b"one", ("e", "deep/er/two.bin"): bytes(range(256)), ("f", "one.txt"): b"one",
    }  # fmt: skip
    text = "SELECT DISTINCT org, namespace, agent, user_id, session_id, created_at, seq FROM {} {}"

    def whose(table: str, where: str) -> Statement:
        return Statement("test.whose", text.format(table, where))

    read = expunge.system.authority.read
    parents = await read(lambda tx: tx.rows(whose("episodes", "WHERE id = 'e'")))
    assert await read(lambda tx: tx.rows(whose("attachments", "WHERE episode = 'e'"))) == parents
    assert (await expunge.profile("ann")).counts["attachments"] == 3


@pytest.mark.parametrize("data", [b"", b"\0", LARGE], ids=["empty", "nul", "3 MiB"])
async def test_files_of_every_size(expunge: Expunge, given: Given, data: bytes) -> None:
    """Bad input: an empty file and one of just `max_attachment_bytes` are ordinary."""
    await expunge.put([told("e", given.write("file", data))], attachments_from=given.folder)
    assert await attached(expunge) == {("e", "file"): data}
    assert (await expunge.erase("ann", purge=True)).status == "completed"
    assert await bodies(expunge) == {}


@BOTH
async def test_file_names_are_opaque(expunge: Expunge, given: Given) -> None:
    """Law 12: each hostile name is another file; kept as it is, and erased without touching another."""
    names = [given.write(name, f"bytes of {name}".encode()) for name in HOSTILE_NAMES]
    await expunge.put([told("e", *names), told("f", *names, user="bob")], attachments_from=given.folder)
    wanted = {(name, path): f"bytes of {path}".encode() for name in ("e", "f") for path in HOSTILE_NAMES}
    assert await attached(expunge) == wanted
    assert (await expunge.put([told("e", *names)], attachments_from=given.folder)).skipped == len(names) + 1
    answer = await expunge.erase("ann", purge=True)
    assert (answer.status, answer.removed["objects.attachments"]) == ("completed", len(names))
    assert await attached(expunge) == {key: data for key, data in wanted.items() if key[0] == "f"}
    assert {name: (given.folder / name).read_bytes() for name in names} == {
        name: f"bytes of {name}".encode() for name in names
    }


async def test_the_objects_folder_tells_nobody(expunge: Expunge, given: Given) -> None:
    """Law 14: no id and no file name stands in a path, and all of it is its owner's alone."""
    user, org = "ann-who-is-to-be-found", "org-who-is-to-be-found"
    words = {"namespace": "namespace-to-find", "session_id": "session-to-find", "agent": "agent-to-find", "org": org}
    name = given.write("name-to-find/file-to-find.txt", b"x")
    old = os.umask(0)
    try:
        await expunge.put([told("episode-to-find", name, user=user, **words)], attachments_from=given.folder)
    finally:
        os.umask(old)
    store = expunge.system.bodies["attachments"]
    assert isinstance(store, FolderStore)
    paths = [store.folder, *store.folder.rglob("*")]
    assert len(paths) > 7
    assert not [path for path in paths if "find" in str(path.relative_to(store.folder))]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}


@BOTH
async def test_the_same_again_is_skipped_and_other_bytes_are_an_error(expunge: Expunge, given: Given) -> None:
    """The load format: same id, same content is skipped; other bytes under a name are other content."""
    record = told("e", "good.txt", given.write("more.txt", b"more"))
    await expunge.put([record], attachments_from=given.folder)
    kept = await attached(expunge)
    answer = await expunge.put([record, told("e", "good.txt")], attachments_from=given.folder)
    assert (answer.loaded, answer.skipped) == (0, 5)
    assert await attached(expunge) == kept
    given.write("more.txt", b"MORE")
    fault = await refused(expunge, given, told("new", "good.txt"), record)
    assert [(item["line"], item["field"]) for item in fault.data["bad"]] == [(2, "attachments")]
    assert "'more.txt' is stored with other content" in fault.message
    assert await attached(expunge) == kept


async def test_an_episode_that_was_there_gets_attachments(expunge: Expunge, given: Given) -> None:
    """The load format: attachments that an episode is now said to have are added to it, and go with it."""
    await expunge.put([told("e"), told("f", "good.txt")], attachments_from=given.folder)
    answer = await expunge.put([told("e", "good.txt")], attachments_from=given.folder)
    assert (answer.loaded, answer.skipped, answer.collections) == (1, 1, {"attachments": 1})
    more = await expunge.put([told("f", "good.txt", given.write("2", b"2"))], attachments_from=given.folder)
    assert (more.loaded, more.skipped) == (1, 2)
    assert set(await attached(expunge)) == {("e", "good.txt"), ("f", "good.txt"), ("f", "2")}
    assert (await expunge.erase("ann", purge=True)).removed["objects.attachments"] == 3
    assert await bodies(expunge) == {}


@BOTH
async def test_an_episode_that_comes_twice_brings_what_either_brings(expunge: Expunge, given: Given) -> None:
    """Law 16: a line that says the same of an episode but for its files adds those that it has."""
    given.write("more.txt", b"more")
    records = [told("e", "good.txt"), told("e", "good.txt", "more.txt"), told("e")]
    answer = await expunge.put(records, attachments_from=given.folder)
    assert (answer.loaded, answer.skipped) == (3, 3)
    assert set(await attached(expunge)) == {("e", "good.txt"), ("e", "more.txt")}


@BOTH
async def test_an_episode_that_is_hidden_gets_none(expunge: Expunge, given: Given) -> None:
    """Law 5: nothing is added to what an erasure hides, and no body is left behind."""
    await expunge.put([told("e")], attachments_from=given.folder)
    await expunge.erase("ann", purge=False)
    with pytest.raises(ExpungeError) as caught:
        await expunge.put([told("e", "good.txt")], attachments_from=given.folder)
    assert caught.value.code == "HIDDEN"
    assert await bodies(expunge) == {}


@BOTH
async def test_two_at_once(expunge: Expunge, given: Given) -> None:
    """Law 16: of two that bring the same file at once one is skipped, and each row has its one body."""
    puts = [expunge.put([told("e", "good.txt")], attachments_from=given.folder) for _ in range(4)]
    answers = await asyncio.gather(*puts)
    assert sorted(answer.loaded for answer in answers) == [0, 0, 0, 2]
    assert await attached(expunge) == {("e", "good.txt"): b"good bytes"}


@BOTH
async def test_one_file_of_two_episodes(expunge: Expunge, given: Given) -> None:
    """Law 10: a file that two people brought is two bodies, and one of them going leaves the other byte-equal."""
    records = [told("e", "good.txt"), told("f", "good.txt", user="bob"), told("g", "good.txt", org="other")]
    await expunge.put(records, attachments_from=given.folder)
    await expunge.erase("ann", purge=True)
    assert await attached(expunge) == dict.fromkeys([("f", "good.txt"), ("g", "good.txt")], b"good bytes")


# --- bad input ------------------------------------------------------------------------------------------------------


def linked(folder: Path, name: str, to: str | Path) -> str:
    (folder / name).symlink_to(to)
    return name


def piped(folder: Path, name: str) -> str:
    os.mkfifo(folder / name)
    return name


def foldered(folder: Path) -> str:
    (folder / "sub").mkdir()
    return "sub"


def loop_of_links(folder: Path) -> str:
    linked(folder, "ring", "ring2")
    return linked(folder, "ring2", "ring")


def listening(folder: Path) -> str:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(folder)  # the path of a socket is short
        try:
            made.bind("socket")
        finally:
            os.chdir(here)
    return "socket"


def no_text(folder: Path) -> str:
    """A file whose name is no UTF-8, by the name that Python has for it."""
    (folder / os.fsdecode(b"\x80")).write_bytes(b"x")
    return os.fsdecode(b"\x80")


INSIDE, OUT, GONE = "is not a path inside the folder", "leads out of the folder", "cannot be read: No such file"
LIST = "must be a list of paths"
BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "up": (lambda _: ["../secret.txt"], INSIDE),
    "up and down": (lambda _: ["deep/../good.txt"], INSIDE),
    "up in the middle": (lambda _: ["deep/../../secret.txt"], INSIDE),
    "absolute": (lambda folder: [str(folder.parent / "secret.txt")], INSIDE),
    "absolute, inside": (lambda folder: [str(folder / "good.txt")], INSIDE),
    "nul": (lambda _: ["good.txt\0"], INSIDE),
    "the folder": (lambda _: ["."], INSIDE),
    "empty": (lambda _: [""], LIST),
    "a link out": (lambda folder: [linked(folder, "link", "../secret.txt")], OUT),
    "a link to a device": (lambda folder: [linked(folder, "zero", "/dev/zero")], OUT),
    "a folder that leads out": (lambda folder: [linked(folder, "away", "..") + "/secret.txt"], OUT),
    "a loop of links": (lambda folder: [loop_of_links(folder)], "cannot be read: Too many levels of symbolic"),
    "a link to nothing": (lambda folder: [linked(folder, "dangling", "nowhere")], GONE),
    "a folder": (lambda folder: [foldered(folder)], "is not a file"),
    "a pipe": (lambda folder: [piped(folder, "pipe")], "is not a file"),
    "a socket": (lambda folder: [listening(folder)], "cannot be read: "),
    "nothing": (lambda _: ["nothing.txt"], GONE),
    "below a file": (lambda _: ["good.txt/x"], "cannot be read: Not a directory"),
    "too large": (lambda folder: [(folder / "big").write_bytes(LARGE + b"x") and "big"], "has more than 3145728 bytes"),
    "twice": (lambda _: ["good.txt", "good.txt"], "names a file twice"),
    "text": (lambda _: "good.txt", LIST),
    "number": (lambda _: 7, LIST),
    "object": (lambda _: {"good.txt": 1}, LIST),
    "true": (lambda _: True, LIST),
    "numbers": (lambda _: [7], LIST),
    "lists": (lambda _: [["good.txt"]], LIST),
    "null in it": (lambda _: [None], LIST),
    "a lone surrogate": (lambda _: ["\ud800"], "holds a lone surrogate"),
    "a name that is no text": (lambda folder: [no_text(folder)], "holds a lone surrogate"),
    "over 4096 bytes": (lambda _: ["x" * 4097], "cannot be read: File name too long"),
    "over 4096 bytes of folders": (lambda _: ["x/" * 2500 + "y"], "cannot be read: "),
    "over 255 bytes": (lambda _: ["é" * 128], "cannot be read: File name too long"),
}


@pytest.mark.parametrize("bad", BAD)
async def test_a_bad_attachment_is_named_and_nothing_is_written(expunge: Expunge, given: Given, bad: str) -> None:
    """Bad input: line, field and reason; no row and no body of the call, and with `skip_bad` its episode stays out."""
    make, reason = BAD[bad]
    records = [told("good", "good.txt"), episode("bad", "ann", attachments=make(given.folder)), event("v", "bad")]
    fault = await refused(expunge, given, *records[:2])
    (said,) = fault.data["bad"]
    assert (said["line"], said["field"]) == (2, "attachments")
    assert reason in said["reason"]
    assert len(said["reason"]) < 200
    assert fault.code == "INVALID_RECORDS"
    answer = await expunge.put(records, attachments_from=given.folder, skip_bad=True)
    assert (answer.loaded, sorted(item.line for item in answer.bad)) == (2, [2, 3])
    assert set((await dump(expunge))["episodes"]) == {"good"}
    assert await attached(expunge) == {("good", "good.txt"): b"good bytes"}
    assert given.secret.read_bytes() == b"not for you"


@pytest.mark.parametrize("record", [memory("m", "k", attachments=["good.txt"]), event("v", "e", attachments=[])])
async def test_only_episodes_have_attachments(expunge: Expunge, given: Given, record: dict[str, Any]) -> None:
    """Bad input: on another collection it is no field, and attachments are not written alone."""
    fault = await refused(expunge, given, told("e", "good.txt"), record)
    assert [(item["line"], item["field"]) for item in fault.data["bad"]] == [(2, "'attachments'")]
    alone = {"collection": "attachments", "id": "a", "episode": "e", "path": "good.txt", "bytes": 1, "sha256": "x"}
    fault = await refused(expunge, given, alone)
    assert [(item["line"], item["field"]) for item in fault.data["bad"]] == [(1, "collection")]


async def test_without_a_folder_there_are_no_paths(expunge: Expunge, given: Given, tmp_path: Path) -> None:
    """Bad input: no path is relative to wherever the process happens to be."""
    with pytest.raises(InvalidRecords) as caught:
        await expunge.put([told("e", "good.txt")])
    assert "attachments_from" in caught.value.message
    with pytest.raises(InvalidRecords) as caught:
        await expunge.put([told("e", "good.txt")], attachments_from=tmp_path / "nowhere")
    assert (caught.value.data["bad"][0]["line"], caught.value.data["bad"][0]["field"]) == (1, "attachments")
    assert ids(await dump(expunge)) == set()
    assert (await expunge.put([told("e")])).loaded == 1


@BOTH
async def test_an_attachment_takes_no_id_of_another_record(expunge: Expunge, given: Given) -> None:
    """Law 16: a record whose id is the one of an attachment is named as bad, and never lost in silence."""
    taken = "at-" + hashlib.sha256(canonical_plain(["e", "good.txt"])).hexdigest()[:32]
    one, other = memory(taken, "k"), told("e", "good.txt")
    for records, field in (((one, other), "attachments"), ((other, one), "id")):
        fault = await refused(expunge, given, *records)
        assert [(item["line"], item["field"]) for item in fault.data["bad"]] == [(2, field)]
        assert "stands on line 1 with other content" in fault.message
    answer = await expunge.put([one, other], attachments_from=given.folder, skip_bad=True)
    assert (answer.loaded, [item.line for item in answer.bad]) == (1, [2])
    assert ids(await dump(expunge)) == {taken}
    fault = await refused(expunge, given, told("e", "good.txt"))
    assert [(item["line"], item["field"]) for item in fault.data["bad"]] == [(1, "attachments")]
    assert "stored with other content" in fault.message


def test_files_and_folders_that_may_not_be_used(tmp_path: Path) -> None:
    """Bad input: a file that this user may not read is bad; an objects folder that is not writable is a fault."""
    home = tmp_path / "home"
    home.mkdir()
    given = Given(home)
    closed = given.write("closed.txt", b"x")
    behind = given.write("closed/behind.txt", b"x")
    objects = home / "objects"
    objects.mkdir()
    settings = Settings(db=str(home / "expunge.db"), objects=objects)

    async def job() -> tuple[list[Any], str, int, int]:
        (given.folder / "closed.txt").chmod(0)
        (given.folder / "closed").chmod(0)
        objects.chmod(0o500)
        async with Expunge(settings=settings) as expunge:
            faults = [
                await refused(expunge, given, told("e", "good.txt"), told("f", name)) for name in (closed, behind)
            ]
            said = [(item["line"], item["field"], item["reason"]) for fault in faults for item in fault.data["bad"]]
            with pytest.raises(StoreFault) as caught:
                await expunge.put([told("e", "good.txt")], attachments_from=given.folder)
            rows = len(ids(await dump(expunge)))
            objects.chmod(0o700)
            await expunge.put([told("e", "good.txt")], attachments_from=given.folder)
            return said, str(caught.value), caught.value.exit_code, rows

    said, text, code, rows = without_rights(home, job)
    assert [(line, field) for line, field, _ in said] == [(2, "attachments")] * 2
    assert all("cannot be read: Permission denied" in reason for _, _, reason in said)
    assert f"the objects folder {objects} cannot be written: Permission denied; see that this user may write" in text
    assert (code, rows) == (4, 0)
    assert list(files_of(objects).values()).count(b"good bytes") == 1


# --- what happens in between ----------------------------------------------------------------------------------------


class Meddling(Recording):
    """A store before whose second body something else happens, or after it."""

    def __init__(self, inner: BodyStore) -> None:
        super().__init__(inner)
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], Awaitable[object]] | None = None

    async def put(self, filing: Filing, body: AsyncIterator[bytes]) -> str:
        if len(self.calls) == 1:
            self.before()
        ref = await super().put(filing, body)
        if self.after is not None and len(self.calls) == 2:
            await self.after()
        return ref


def instead(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "other bytes": lambda path: path.write_bytes(b"y" * len(LARGE)),
    "one byte more": lambda path: path.write_bytes(LARGE + b"!"),
    "one byte less": lambda path: path.write_bytes(LARGE[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "vanished": lambda path: path.unlink(),
    "a folder": lambda path: instead(path, Path.mkdir),
    "a pipe": lambda path: instead(path, os.mkfifo),
    "a link out": lambda path: instead(path, lambda made: made.symlink_to("../secret.txt")),
    "a loop of links": lambda path: instead(path, lambda made: made.symlink_to(made.name)),
}


@BOTH
@pytest.mark.parametrize("change", CHANGES)
async def test_a_file_that_changes_while_it_is_read(
    settings: Settings, clock: ManualClock, given: Given, tmp_path: Path, change: str
) -> None:
    """Law 16: what is stored is what was read; a file that changed or vanished in between refuses the whole call."""
    store = Meddling(FolderStore(tmp_path / "objects"))
    given.write("large.bin", LARGE)
    store.before = lambda: CHANGES[change](given.folder / "large.bin")
    async with Expunge(settings=settings, clock=clock, bodies=store) as expunge:
        with pytest.raises(InputError) as caught:
            await asyncio.wait_for(
                expunge.put([told("e", "good.txt"), told("f", "large.bin")], attachments_from=given.folder), timeout=30
            )
        assert caught.value.message == "nothing was written: line 2: 'large.bin' vanished or has changed"
        assert caught.value.next_step
        assert [name for name, _ in store.calls] == ["put", "put", "remove"]
        assert ids(await dump(expunge)) == set()
        assert await bodies(expunge) == {}


@BOTH
async def test_a_store_that_takes_one_body_and_not_the_next(
    settings: Settings, clock: ManualClock, given: Given, tmp_path: Path
) -> None:
    """Law 16: when a body cannot be stored, the error is the store's, and those before it are taken away again."""
    store = Meddling(FolderStore(tmp_path / "objects"))

    def fail() -> None:
        raise StoreFault("the store objects is tired")

    store.before = fail
    async with Expunge(settings=settings, clock=clock, bodies=store) as expunge:
        with pytest.raises(StoreFault, match="tired"):
            await expunge.put([told("e", "good.txt"), told("f", "good.txt")], attachments_from=given.folder)
        assert ids(await dump(expunge)) == set()
        assert await bodies(expunge) == {}


@BOTH
async def test_a_unit_that_is_refused_stores_nothing(
    settings: Settings, clock: ManualClock, given: Given, tmp_path: Path
) -> None:
    """Law 4: before, during and after: a refused unit leaves no body, nor does it write one into a fenced scope."""
    store = Recording(FolderStore(tmp_path / "objects"))
    async with Expunge(settings=settings, clock=clock, bodies=store) as expunge:
        await expunge.put([told("b", "good.txt", user="bob")], attachments_from=given.folder)
        before, kept = await expunge.as_of(), await bodies(expunge)
        request = await open_erasure(expunge.system, purge_order("ann"), actor="t", role="operator")
        during = await expunge.as_of()
        store.calls.clear()
        for as_of in (before, during, None):
            with pytest.raises(ErasureInProgress):
                await expunge.put([told("e", "good.txt")], as_of=as_of, attachments_from=given.folder)
        assert (await expunge.resume(request.id)).status == "completed"
        for as_of in (before, during):
            with pytest.raises(ErasedSince):
                await expunge.put([told("e", "good.txt")], as_of=as_of, attachments_from=given.folder)
        assert "put" not in dict(store.calls)
        assert await bodies(expunge) == kept
        await expunge.put([told("e", "good.txt")], attachments_from=given.folder)
        assert set(await attached(expunge)) == {("b", "good.txt"), ("e", "good.txt")}


@BOTH
async def test_a_fence_that_goes_up_while_bodies_are_stored(
    settings: Settings, clock: ManualClock, given: Given, tmp_path: Path
) -> None:
    """Law 4: the check that counts is the one in the write's own transaction; the stored bodies are taken away."""
    store = Meddling(FolderStore(tmp_path / "objects"))
    async with Expunge(settings=settings, clock=clock, bodies=store) as expunge:

        async def erase() -> None:
            await open_erasure(expunge.system, purge_order("ann"), actor="t", role="operator")
            assert len(await bodies(expunge)) == 2

        store.after = erase
        with pytest.raises(ErasureInProgress):
            await expunge.put([told("e", "good.txt"), told("f", "good.txt")], attachments_from=given.folder)
        assert ids(await dump(expunge)) == set()
        assert await bodies(expunge) == {}


async def test_what_the_store_finds_bad_leaves_no_body(expunge: Expunge, given: Given) -> None:
    """Law 16: what turns out to be bad in the transaction leaves no body; with `skip_bad` the others have theirs."""
    records = [told("e", "good.txt"), told("f", "good.txt", sources=["nowhere"])]
    fault = await refused(expunge, given, *records)
    assert [(item["line"], item["field"]) for item in fault.data["bad"]] == [(2, "sources")]
    answer = await expunge.put(records, attachments_from=given.folder, skip_bad=True)
    assert (answer.loaded, [(item.line, item.field) for item in answer.bad]) == (2, [(2, "sources")])
    assert set(await attached(expunge)) == {("e", "good.txt")}


@BOTH
@pytest.mark.parametrize("fault", [Fault.RAISES, Fault.TIMES_OUT, Fault.NO_OP])
async def test_a_body_that_cannot_be_taken_away_again(
    settings: Settings, clock: ManualClock, given: Given, tmp_path: Path, fault: Fault
) -> None:
    """Laws 4 and 16: the error stays that of the records, and what is left behind goes with the next erasure."""
    store = Faulty(FolderStore(tmp_path / "objects"), fault)
    async with Expunge(settings=settings, clock=clock, bodies=store) as expunge:
        with pytest.raises(InvalidRecords):
            await expunge.put([told("f", "good.txt", sources=["nowhere"])], attachments_from=given.folder)
        left = len(await bodies(expunge))
        assert left == (0 if fault is Fault.TIMES_OUT else 1)
        store.heal()
        answer = await expunge.erase("ann", purge=True)
        assert (answer.status, answer.removed.get("objects.attachments", 0)) == ("completed", left)
        assert await bodies(expunge) == {}


async def test_a_put_that_is_cancelled_in_its_commit(settings: Settings, given: Given, clock: ManualClock) -> None:
    """Law 16: a unit that has begun goes on when its caller is cancelled, and its rows find their bodies."""
    async with Expunge(settings=settings, clock=clock):
        pass
    begun, go_on = threading.Event(), threading.Event()

    def watch(what: str, number: int, when: str) -> None:
        if (what, when) == ("run", "before") and not begun.is_set():
            begun.set()
            go_on.wait(30)

    async with Expunge(settings=settings, clock=clock, authority=await watched(settings, watch=watch)) as expunge:
        put = asyncio.create_task(expunge.put([told("e", "good.txt")], attachments_from=given.folder))
        await asyncio.to_thread(begun.wait, 30)
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        go_on.set()
        await expunge.put([told("f", "good.txt", user="bob")], attachments_from=given.folder)
        assert set(await attached(expunge)) == {("e", "good.txt"), ("f", "good.txt")}
        assert (await expunge.erase("ann", purge=True)).removed["objects.attachments"] == 1


# --- the command line -----------------------------------------------------------------------------------------------


def test_load_reads_files_beside_its_own(tmp_path: Path, given: Given) -> None:
    """`load FILE`: paths are relative to the file's folder, wherever the command runs; a bad one makes no database."""
    given.write("files/a.txt", b"from the command line")

    def load(name: str, *records: dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
        (given.folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
        return Shell(tmp_path).call("load", f"given/{name}", "--json")

    bad = load("bad.jsonl", told("e", "files/a.txt"), told("f", "../secret.txt"))
    assert (bad.returncode, bad.stdout) == (2, b"")
    detail = json.loads(bad.stderr)["detail"]
    assert (detail["code"], detail["bad"][0]["line"], detail["bad"][0]["field"]) == (
        "INVALID_RECORDS",
        2,
        "attachments",
    )
    assert not list(tmp_path.glob("expunge*"))
    good = load("good.jsonl", told("e", "files/a.txt"))
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["collections"] == {"episodes": 1, "attachments": 1}
    stored = files_of(tmp_path / "expunge.objects")
    assert [data for name, data in stored.items() if name != ".lock"] == [b"from the command line"]
