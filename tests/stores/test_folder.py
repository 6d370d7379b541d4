"""Bodies in a folder: who may read them, what names them, and what stands in their place."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from expunge.errors import StoreFault, StoreUnable
from expunge.model.identity import PARTS
from expunge.model.ids import NOBODY
from expunge.stores.contract import AT, HOSTILE_IDS, PERMIT, asked, bytes_of, filing, label, pieces
from expunge.stores.folder import FolderStore, names, writing
from expunge.stores.port import Asked, Filing, Found
from tests.stores.kit import U1, written_until
from tests.support import files_of


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# --- who may read, and what names ---------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0, 0o077, 0o777])
async def test_only_the_owner_may_read(store, umask):
    """Whatever the umask: folders 0700, files 0600, also the lock and what is half written."""
    was = os.umask(umask)
    try:
        ref = await store.put(filing(U1), pieces(b"x"))
        begun, waiting = asyncio.Event(), asyncio.Event()
        half = asyncio.create_task(store.put(filing({"user_id": "u2"}), written_until(waiting, begun)))
        await begun.wait()
        paths = [store.folder, *store.folder.rglob("*")]
        assert {mode(path) for path in paths if path.is_dir()} == {0o700}
        assert {mode(path) for path in paths if path.is_file()} == {0o600}
        assert sum(path.is_file() for path in paths) == 3
        waiting.set()
        assert await bytes_of(store, [ref]) == {ref: b"x"}
        assert len(await bytes_of(store, [await half])) == 1
    finally:
        os.umask(was)


async def test_a_folder_that_was_given_keeps_its_mode(store):
    store.folder.mkdir(mode=0o750)
    store.folder.chmod(0o750)
    await store.put(filing(U1), pieces(b"x"))
    assert mode(store.folder) == 0o750
    assert {mode(path) for path in store.folder.rglob("*") if path.is_dir()} == {0o700}


async def test_nothing_above_the_folder_is_made(tmp_path):
    """A name that is mistaken, or a disk that is not mounted, is a fault, and no new place for bodies."""
    store = FolderStore(tmp_path / "missing" / "objects")
    with pytest.raises(StoreFault, match="No such file") as caught:
        await store.put(filing(U1), pieces(b"x"))
    assert str(store.folder) in caught.value.message
    assert list(tmp_path.iterdir()) == []


async def test_no_clear_id_in_a_path(store):
    """Laws 12 and 14: paths are digits and the few letters of their form, whatever ids are; parts stand in order."""
    ids = [value for value in HOSTILE_IDS if len(value) > 3] + ["somebody@example.com"]
    refs = [await store.put(filing(dict.fromkeys(PARTS, value), value), pieces(b"x")) for value in ids]
    listed = "\n".join([*files_of(store.folder), *refs])
    assert set(listed) <= set("0123456789abcdef-/\n" + "st" + "p" + ".lock")
    assert [value for value in ids if value in listed and not set(value) <= set("0123456789abcdef")] == []
    _, _, user, namespace, agent, session, _ = refs[-1].split("/")
    assert [namespace, agent, user, session] == [label(ids[-1], part, ids[-1]) for part in PARTS]


async def test_labels_are_pseudonyms(store):
    """Law 12: what is no pseudonym is a mistake of the caller, and never a path."""
    for bad in ("u1", "../x", "", "AB", "a/b", "a\0", "-", "é", "ab\n"):
        parts = (*filing(U1).parts[:3], bad)
        with pytest.raises(ValueError, match="pseudonym"):
            await store.put(Filing("acme", parts, AT, 0), pieces(b"x"))
        with pytest.raises(ValueError, match="pseudonym"):
            await store.find("attachments", Asked("acme", ({"user_id": frozenset({bad})},), None, None, 9))
    with pytest.raises(ValueError):
        await store.put(Filing("acme", filing(U1).parts[:3], AT, 0), pieces(b"x"))
    with pytest.raises(ValueError):
        await store.put(filing(U1, seq=-1), pieces(b"x"))
    assert not store.folder.exists()


async def test_what_cannot_be_expressed_raises(store):
    """Law 1: a part by which nothing is filed, or another collection, is not left out of the question."""
    await store.put(filing(U1), pieces(b"x"))
    with pytest.raises(StoreUnable):
        await store.find("attachments", Asked("acme", ({"device": frozenset({"ab"})},), None, None, 9))
    with pytest.raises(StoreUnable):
        await store.find("episodes", asked(U1))
    for collections in (frozenset(), frozenset({"attachments", "uploads"})):
        with pytest.raises(ValueError, match="one collection"):
            FolderStore(store.folder, collections=collections)
    assert set(names.LEVELS) == set(PARTS)
    assert NOBODY not in names.LEVELS


# --- refs ---------------------------------------------------------------------------------------------------------


def malformed(ref: str) -> list[str]:
    """Refs that are nearly one: each is another way out of the folder, or another spelling."""
    parts = ref.split("/")
    return [
        "", "/", ".", "..", "../x", "/etc/passwd", ref + "\0", ref + "/", "/" + ref, "./" + ref, ref + "\n", ref + ".part.part",
        "/".join(parts[:-1]), "/".join([*parts, "x"]), "/".join([*parts[:2], "..", *parts[3:]]), ref.replace("/", "//", 1),
        "/".join([*parts[:-1], ".."]), "/".join([*parts[:-1], ".lock"]), ref.upper(), "x" + ref, ref.replace("-p", "--", 1),
        "/".join([parts[0], "%2e%2e", *parts[2:]]), ref[:-1], ref + "0", ref.replace("/0-p", "/00-p"), ref.replace("-p", "-m0", 1),
        "\N{ARABIC-INDIC DIGIT ONE}".join(ref.rsplit("1", 1)),
    ]  # fmt: skip


async def test_malformed_refs(store, tmp_path):
    """Law 12: a malformed ref is a fault, is not shown, and lets nothing happen, also not to the refs beside it."""
    ref = await store.put(filing(U1), pieces(b"x"))
    (tmp_path / "x").write_bytes(b"outside")
    before = files_of(tmp_path)
    for bad in malformed(ref):
        assert bad != ref
        for call in (store.present([ref, bad]), store.remove([ref, bad], PERMIT), bytes_of(store, [bad])):
            with pytest.raises(StoreFault) as caught:
                await call
            assert str(store.folder) in caught.value.message
            assert label("acme", "user_id", "u1") not in str(caught.value)
        with pytest.raises(StoreFault):
            await store.restore(bad, pieces(b"y"))
    assert files_of(tmp_path) == before


async def test_a_ref_of_another_folder(store, tmp_path):
    """Law 16: where the store of a ref is not, nothing is known of its bodies; an empty folder says that they went."""
    mine = await store.put(filing(U1), pieces(b"mine"))
    other = FolderStore(tmp_path / "other")
    ref = await other.put(filing(U1), pieces(b"x"))
    store_id = ref.split("/")[0]
    for call in (store.present([mine, ref]), store.remove([mine, ref], PERMIT), bytes_of(store, [ref])):
        with pytest.raises(StoreFault, match="does not hold the store") as caught:
            await call
        assert str(store.folder) in caught.value.message
        assert store_id in caught.value.next_step
        assert "empty folder" in caught.value.next_step
    assert await bytes_of(store, [mine]) == {mine: b"mine"}
    (store.folder / store_id).mkdir()
    assert await store.present([mine, ref]) == {mine}
    assert (await store.remove([ref], PERMIT)).gone == {ref}
    assert await bytes_of(other, [ref]) == {ref: b"x"}


async def test_a_folder_that_is_gone(store):
    """Law 16: bodies of a folder that is gone are not said to be gone; one that never was has none."""
    assert await store.find("attachments", asked(U1)) == []
    assert await store.present([]) == frozenset()
    assert (await store.remove([], PERMIT)).gone == frozenset()
    assert not store.folder.exists()
    ref = await store.put(filing(U1), pieces(b"x"))
    store.folder.rename(store.folder.with_name("away"))
    for call in (store.present([ref]), store.remove([ref], PERMIT), bytes_of(store, [ref])):
        with pytest.raises(StoreFault, match="does not hold the store"):
            await call
    assert await store.find("attachments", asked(U1)) == []


async def test_two_stores_in_one_folder(store, tmp_path):
    """Law 11: after two folders were restored into one, both stores are listed, and new bodies go into one of them."""
    other = FolderStore(tmp_path / "other")
    refs = {await store.put(filing(U1), pieces(b"a")), await other.put(filing(U1), pieces(b"b"))}
    (moved,) = other.folder.glob("st-*")
    moved.rename(store.folder / moved.name)
    found = await store.find("attachments", asked(U1))
    assert {each.ref for each in found} == refs
    assert len(store.state().store_ids) == 2
    assert (await store.put(filing(U1), pieces(b"c"))).split("/")[0] in store.state().store_ids
    assert (await store.remove(sorted(refs), PERMIT)).gone == refs
    assert len(await store.find("attachments", asked(U1))) == 1


async def test_a_body_that_is_not_there(store):
    ref = await store.put(filing(U1), pieces(b"x"))
    await store.remove([ref], PERMIT)
    with pytest.raises(StoreFault, match="is not in the objects folder"):
        await bytes_of(store, [ref])


async def test_a_body_that_goes_while_it_is_read(store):
    """Law 16: what is removed meanwhile is not served as if it ended there, and no handle is left open."""
    ref = await store.put(filing(U1), pieces(b"x" * (writing.BATCH_BYTES + 1)))
    handles = _handles()
    reading = store.read(ref)
    assert len(await anext(reading)) == 64 * 1024
    await store.remove([ref], PERMIT)
    with pytest.raises(StoreFault):
        async for _ in reading:
            pass
    assert _handles() == handles


def _handles() -> int:
    """How many handles this process holds."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize(
    "size", [0, 1, 65_536, 65_537, writing.BATCH_BYTES - 1, writing.BATCH_BYTES, writing.BATCH_BYTES + 1]
)
async def test_pieces(store, size):
    ref = await store.put(filing(U1), pieces(b"x" * size))
    lengths = [len(piece) async for piece in store.read(ref)]
    assert sum(lengths) == size
    assert all(length == 65_536 for length in lengths[:-1])


# --- links, and other things in our place ------------------------------------------------------------------------


@pytest.fixture
async def beside(store, tmp_path) -> tuple[str, str]:
    """A ref of u1 and one of u2, and a folder outside that looks like a user's."""
    refs = [await store.put(filing({"user_id": user}), pieces(b"x")) for user in ("u1", "u2")]
    return refs[0], refs[1]


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("what", ["link", "file"])
async def test_a_link_in_the_place_of_a_folder(store, beside, tmp_path, depth, what):
    """Law 10: no link is followed out of the folder, at any level; the rest is removed; nothing outside changes."""
    mine, other = beside
    at = store.folder / "/".join(mine.split("/")[: depth + 1])
    outside = tmp_path / "outside"
    at.rename(outside)
    if what == "link":
        at.symlink_to(outside)
    else:
        at.write_bytes(b"a file")
    before = files_of(outside)
    for call in (store.find("attachments", asked(U1)), store.present([mine]), bytes_of(store, [mine])):
        with pytest.raises(StoreFault, match="something else stands") as caught:
            await call
        assert str(store.folder) in caught.value.message
        assert mine.split("/")[2] not in str(caught.value)
    with pytest.raises(StoreFault, match="something else stands"):
        await store.remove([mine, other], PERMIT)
    assert files_of(outside) == before
    if depth > 1:
        assert await store.present([other]) == frozenset()
        assert [each.ref for each in await store.find("attachments", asked({"user_id": "u2"}))] == []
    with pytest.raises(StoreFault):
        await store.restore(mine, pieces(b"y"))
    assert files_of(outside) == before


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
async def test_something_else_in_the_place_of_a_body(store, beside, tmp_path, what):
    """Laws 8 and 16: what is no file is found, refused with a reason and left; the others go; nothing outside changes."""
    mine, other = beside
    path = store.folder / mine
    outside = tmp_path / "outside"
    path.rename(outside)
    {"link": lambda: path.symlink_to(outside), "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[what]()
    assert await store.find("attachments", asked(U1)) == [Found(0, mine)]
    assert await store.present([mine]) == {mine}
    with pytest.raises(StoreFault, match="something else stands"):
        await bytes_of(store, [mine])
    removal = await store.remove([mine, other], PERMIT)
    assert removal.gone == {other}
    assert list(removal.refused) == [mine]
    assert "something else" in removal.refused[mine]
    assert await store.present([mine, other]) == {mine}
    assert outside.read_bytes() == b"x"


async def test_the_folder_itself_may_be_a_link(store, tmp_path):
    """Whoever sets the folder may mean another disk by it."""
    (tmp_path / "disk").mkdir()
    store.folder.symlink_to(tmp_path / "disk")
    ref = await store.put(filing(U1), pieces(b"x"))
    assert (tmp_path / "disk" / ref).read_bytes() == b"x"
    assert (await store.remove([ref], PERMIT)).gone == {ref}


async def test_foreign_files_are_left_alone(store, beside):
    """Law 10: what is not ours is neither found nor removed, and keeps its folder."""
    mine, _ = beside
    leaf = (store.folder / mine).parent
    foreign = [leaf / "notes.txt", leaf / ".DS_Store", leaf.parent / "README", store.folder / "lost+found"]
    for path in foreign:
        path.write_bytes(b"foreign")
    assert await store.find("attachments", asked(U1)) == [Found(0, mine)]
    assert [each.ref for each in await store.find("attachments", asked({}))].count(mine) == 1
    assert (await store.remove([mine], PERMIT)).gone == {mine}
    assert {path.read_bytes() for path in foreign} == {b"foreign"}
