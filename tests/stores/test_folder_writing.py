"""Bodies in a folder: what is left behind, what is durable, and many at once."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import stat
import threading
from functools import partial
from pathlib import Path

import pytest

from expunge.errors import StoreFault
from expunge.stores.contract import AT, PERMIT, asked, bytes_of, filing, pieces
from expunge.stores.folder import FolderStore, names, writing
from expunge.stores.port import Found
from tests.crash.kit import CHILD_SECONDS, Child, Flag
from tests.stores.kit import U1, folders_in, folders_of_u1, run, written_until
from tests.support import files_of

# --- what is left behind ----------------------------------------------------------------------------------------


async def test_emptied_folders_go(store):
    """Law 14: with the last body of somebody go the folders that bear the pseudonyms, and no others."""
    both = {"user_id": "u1", "session_id": "s1"}
    first, second = [await store.put(filing(both), pieces(b"x")) for _ in range(2)]
    third = await store.put(filing(U1 | {"session_id": "s2"}), pieces(b"x"))
    other = await store.put(filing({"user_id": "u2"}), pieces(b"theirs"))
    was = folders_in(store)
    await store.remove([first], PERMIT)
    assert folders_in(store) == was
    await store.remove([second], PERMIT)
    assert folders_in(store) == [path for path in was if path != second.rpartition("/")[0]]
    await store.remove([third], PERMIT)
    user = "/".join(third.split("/")[:3])
    assert folders_in(store) == [path for path in was if not path.startswith(user)]
    assert await bytes_of(store, [other]) == {other: b"theirs"}
    await store.remove([other], PERMIT)
    assert folders_in(store) == []
    assert sorted(path.name for path in store.folder.iterdir()) == [".lock", *store.state().store_ids]


async def test_a_removal_that_was_killed_between_two_folders(store):
    """Law 14: the next removal of the same bodies takes the empty folders away that were left above."""
    ref = await store.put(filing(U1), pieces(b"x"))
    (store.folder / ref).unlink()
    (store.folder / ref).parent.rmdir()
    assert (await store.remove([ref], PERMIT)).gone == {ref}
    assert folders_in(store) == []


def test_what_a_killed_writer_left(store):
    """Law 16: a writer is killed half way; what it left is found as any body of that person, and goes."""
    other = asyncio.run(store.put(filing({"user_id": "u2"}), pieces(b"theirs")))
    begun = Flag()

    async def half():
        yield b"x" * writing.BATCH_BYTES
        begun.set()
        await asyncio.sleep(CHILD_SECONDS)

    child = Child(partial(run, store, half))
    assert begun.wait(child.answer)
    os.kill(child.pid, signal.SIGKILL)
    assert child.end().signal == signal.SIGKILL
    begun.close()

    async def after() -> None:
        (found,) = await store.find("attachments", asked(U1, before=AT + 1, seq=1))
        assert found.ref.endswith(".part")
        assert await store.find("attachments", asked(U1, before=AT)) == []
        assert await store.find("attachments", asked(U1, seq=0)) == []
        assert await store.present([found.ref]) == {found.ref}
        assert await bytes_of(store, [found.ref]) == {found.ref: b"x" * writing.BATCH_BYTES}
        assert (await store.remove([found.ref], PERMIT)).gone == {found.ref}
        assert await store.find("attachments", asked({})) == [Found(0, other)]
        assert await bytes_of(store, [other]) == {other: b"theirs"}

    asyncio.run(after())
    assert not list(store.folder.rglob("*.part"))


@pytest.mark.parametrize("size", [0, writing.BATCH_BYTES])
async def test_a_body_that_raises_leaves_no_folder(store, size):
    """Law 16: what the body raises is passed on as it is, even when it is an OSError, and nothing is left."""

    async def broken():
        yield b"x" * size
        raise OSError(errno.ENOSPC, "of the body")

    with pytest.raises(OSError, match="of the body"):
        await store.put(filing(U1), broken())
    assert folders_in(store) == []
    assert set(files_of(store.folder)) <= {".lock"}


async def test_a_body_that_is_erased_while_it_is_written(store):
    """Law 4: an erasure takes away what is half written, and its writer is told and does not bring it back."""
    begun, waiting = asyncio.Event(), asyncio.Event()
    put = asyncio.create_task(store.put(filing(U1), written_until(waiting, begun)))
    await begun.wait()
    (found,) = await store.find("attachments", asked(U1))
    assert (await store.remove([found.ref], PERMIT)).gone == {found.ref}
    waiting.set()
    with pytest.raises(StoreFault, match="while it was written"):
        await put
    assert folders_in(store) == []


@pytest.mark.parametrize("when", ["mkdir", "write", "waiting", "fsync", "rename"])
async def test_a_put_that_is_cancelled(store, monkeypatch, when):
    """Law 16: whoever gives up a body leaves nothing, whatever its thread is doing just then and goes on with."""
    kept = await store.put(filing({"user_id": "u2"}), pieces(b"kept"))
    reached, release, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    async def body():
        yield b"x" * writing.BATCH_BYTES
        if when == "waiting":
            reached.set()
            await asyncio.Event().wait()

    if when != "waiting":
        inner = getattr(os, when)

        def slow(*given, **at):
            loop.call_soon_threadsafe(reached.set)
            release.wait(CHILD_SECONDS)
            return inner(*given, **at)

        monkeypatch.setattr(os, when, slow)
    put = asyncio.create_task(store.put(filing(U1), body()))
    await reached.wait()
    put.cancel()
    loop.call_later(0.05, release.set)  # by then the clean-up waits for the thread
    with pytest.raises(asyncio.CancelledError):
        await put
    release.set()
    await loop.shutdown_default_executor()  # whatever still goes on in a thread ends
    monkeypatch.undo()
    assert folders_of_u1(store) == []
    assert set(files_of(store.folder)) == {".lock", kept}
    assert (store.folder / kept).read_bytes() == b"kept"


def test_a_body_that_was_given_up_is_not_begun(store):
    """Law 16: a thread that comes to its work after the clean-up leaves it."""
    given_up = writing.Writing(store.folder, None, names.folders_of(filing(U1)), names.new_name(filing(U1)))
    given_up._abandon()
    with pytest.raises(StoreFault, match="given up"):
        given_up._finish(bytearray(b"x"))
    assert not store.folder.exists()


async def test_restore(store):
    """A body that is put back is the same: name, bytes, mode; over one that is there as well."""
    ref = await store.put(filing(U1), pieces(b"old"))
    await store.remove([ref], PERMIT)
    for data in (b"once", b"twice"):
        await store.restore(ref, pieces(data))
        assert await store.find("attachments", asked(U1)) == [Found(0, ref)]
        assert await bytes_of(store, [ref]) == {ref: data}

    async def broken():
        yield b"x" * writing.BATCH_BYTES
        raise OSError

    with pytest.raises(OSError):
        await store.restore(ref, broken())
    assert await bytes_of(store, [ref]) == {ref: b"twice"}
    assert stat.S_IMODE((store.folder / ref).stat().st_mode) == 0o600


# --- durable -------------------------------------------------------------------------------------------------------


async def test_what_is_synced_before_a_put_answers(store, monkeypatch):
    """Law 2: the file is synced under its first name, then each folder from the body's up to the top."""
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        done.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    def renamed(old: str, new: str, **at: int) -> None:
        done.append("rename")
        rename(old, new, **at)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    ref = await store.put(filing(U1), pieces(b"x"))
    above = [str(path) for path in (store.folder / ref).parents][:7]
    assert done == [str(store.folder.parent), f"{store.folder / ref}.part", "rename", *above]
    done.clear()
    await store.remove([ref], PERMIT)
    assert done == [above[0], above[5]]


# --- many at once ----------------------------------------------------------------------------------------------------


def test_first_bodies_agree_on_a_store(tmp_path):
    """Processes that put their first bodies into one folder at once make one store."""
    for turn in range(5):
        store = FolderStore(tmp_path / f"objects{turn}")
        go = Flag()

        def first(store=store, go=go) -> str:
            go.wait()
            return run(store, partial(pieces, b"x"))

        children = [Child(first) for _ in range(4)]
        go.set()
        ended = [child.end() for child in children]
        assert [(end.signal, end.error) for end in ended] == [(0, "")] * 4
        refs = {end.value for end in ended}
        assert len(refs) == 4
        assert {ref.split("/")[0] for ref in refs} == set(store.state().store_ids)
        assert len(store.state().store_ids) == 1
        assert asyncio.run(store.present(refs)) == refs
        go.close()


async def test_bodies_come_in_while_their_folders_go(store):
    """Law 16: a removal that takes emptied folders away neither loses a body that comes in nor fails it."""

    async def come_and_go(number: int) -> str:
        for _ in range(30):
            ref = await store.put(filing(U1), pieces(b"%d" % number))
            assert (await store.remove([ref], PERMIT)).gone == {ref}
        return await store.put(filing(U1), pieces(b"%d" % number))

    kept = await asyncio.gather(*(come_and_go(number) for number in range(4)))
    assert {each.ref for each in await store.find("attachments", asked(U1))} == set(kept)
    assert await bytes_of(store, kept) == {ref: b"%d" % number for number, ref in enumerate(kept)}


async def test_500_targets_in_one_walk(store, monkeypatch):
    """Law 11: a list of 500 namespaces opens a folder once, and not 500 times; the first target tells the position."""
    refs = [await store.put(filing({"user_id": f"u{n}", "namespace": f"n{n}"}), pieces(b"x")) for n in range(20)]
    opens = 0
    inner = os.open

    def counted(*given, **at) -> int:
        nonlocal opens
        opens += 1
        return inner(*given, **at)

    question = asked(*({"namespace": f"n{n}"} for n in range(1, 501)))
    monkeypatch.setattr(os, "open", counted)
    found = await store.find("attachments", question)
    assert set(found) == {Found(n - 1, refs[n]) for n in range(1, 20)}
    assert opens < 5 * len(refs) + 10
