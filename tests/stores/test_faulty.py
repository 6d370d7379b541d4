"""Each fault does what it says and nothing else, and heals; a recording notes every call."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from expunge.authority.port import Reclaimed
from expunge.errors import StoreFault, StoreUnable
from expunge.stores.contract import AT, PERMIT, asked, bytes_of, filing, pieces
from expunge.stores.faulty import CAP, Fault, Faulty
from expunge.stores.folder import FolderStore
from expunge.stores.port import Asked, Capabilities, Found, Removal
from expunge.stores.recording import Recording

MINE = asked({"user_id": "u1"})


class Foreign:
    """A store of somebody else's: it takes no bodies from us, in whatever way."""

    def __init__(self):
        self.name, self.collections = "foreign", frozenset({"traces"})
        self.refs = {"a", "b"}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(find=False, fence="none", remove=True, physical="unknown", settle_s=2.5)

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        raise StoreUnable

    async def present(self, refs) -> frozenset[str]:
        return frozenset(refs) & self.refs

    async def read(self, ref: str) -> AsyncIterator[bytes]:
        yield ref.encode()

    async def remove(self, refs, permit) -> Removal:
        self.refs -= set(refs)
        return Removal(frozenset(refs))

    async def reclaim(self) -> Reclaimed:
        return Reclaimed("later")


@pytest.fixture
def folder(tmp_path):
    return FolderStore(tmp_path / "objects")


@pytest.fixture
async def refs(folder):
    """Five bodies of one person and, the last, one of another, each saying which it is."""
    mine = [await folder.put(filing({"user_id": "u1"}), pieces(b"mine %d" % n)) for n in range(5)]
    return [*mine, await folder.put(filing({"user_id": "u10"}), pieces(b"theirs"))]


async def heals(store: Faulty, refs: list[str]) -> None:
    """Law 16: healed, the store removes what is asked and leaves the other's body as it was."""
    store.heal()
    assert store.fault is None
    assert store.capabilities == store.inner.capabilities
    found = [each.ref for each in await store.find("attachments", MINE)]
    assert set(found) == await store.inner.present(refs[:5])
    assert (await store.remove(refs[:5], PERMIT)).gone == set(refs[:5])
    assert await store.reclaim() == Reclaimed()
    assert await store.find("attachments", MINE) == []
    assert await store.inner.present(refs) == {refs[5]}
    assert await bytes_of(store.inner, refs[5:]) == {refs[5]: b"theirs"}


@pytest.mark.parametrize(("fault", "error"), [(Fault.RAISES, StoreFault), (Fault.CANNOT, StoreUnable)])
async def test_a_removal_that_raises(folder, refs, fault, error):
    """Law 16: the removal raises, and everything is still there."""
    store = Faulty(folder, fault)
    with pytest.raises(StoreFault) as caught:
        await store.remove(refs[:5], PERMIT)
    assert type(caught.value) is error
    assert await folder.present(refs) == set(refs)
    assert store.capabilities.remove is (fault is not Fault.CANNOT)
    await heals(store, refs)


async def test_a_removal_that_times_out(folder, refs):
    """Law 16: the removal is done, and nobody is told."""
    store = Faulty(folder, Fault.TIMES_OUT)
    with pytest.raises(TimeoutError):
        await store.remove(refs[:5], PERMIT)
    assert await folder.present(refs) == {refs[5]}
    await heals(store, refs)


@pytest.mark.parametrize(("fault", "goes"), [(Fault.NO_OP, 0), (Fault.PART, 2)])
async def test_a_removal_that_does_less_than_it_says(folder, refs, fault, goes):
    """Law 16: all are said to be gone; some are there."""
    store = Faulty(folder, fault)
    assert await store.remove(refs[:5], PERMIT) == Removal(frozenset(refs[:5]))
    assert await store.present(refs) == set(refs[goes:])
    await heals(store, refs)


async def test_bodies_that_come_back(folder, refs):
    """Law 16: what is gone is there again after a reclaim, under its ref and with its bytes, once for each removal."""
    store = Faulty(folder, Fault.COMES_BACK)
    was = await bytes_of(folder, refs)
    for _ in range(2):
        assert (await store.remove(refs[:5], PERMIT)).gone == set(refs[:5])
        assert await store.present(refs) == {refs[5]}
        assert await store.reclaim() == Reclaimed()
        assert await bytes_of(folder, refs) == was
    await store.remove(refs[:5], PERMIT)
    await heals(store, refs)


async def test_a_body_cannot_come_back_where_it_cannot_be_put_back():
    store = Faulty(Foreign(), Fault.COMES_BACK)
    with pytest.raises(TypeError):
        await store.remove(["a"], PERMIT)
    assert await store.present(["a", "b"]) == {"a", "b"}


async def test_a_capped_store(folder, refs):
    """Law 11: three bodies are told of, and no more than three can be removed at a time."""
    store = Faulty(folder, Fault.CAPPED)
    assert await store.find("attachments", MINE) == (await folder.find("attachments", MINE))[:CAP]
    assert len(await store.find("attachments", MINE)) == CAP
    with pytest.raises(StoreFault):
        await store.remove(refs[: CAP + 1], PERMIT)
    assert await store.present(refs) == set(refs)
    assert (await store.remove(refs[:CAP], PERMIT)).gone == set(refs[:CAP])
    assert await store.present(refs) == set(refs[CAP:])
    await heals(store, refs)


async def test_a_find_that_raises(folder, refs):
    store = Faulty(folder, Fault.FIND_RAISES)
    with pytest.raises(StoreFault):
        await store.find("attachments", MINE)
    assert (await store.remove(refs[:1], PERMIT)).gone == {refs[0]}
    await heals(store, refs)


async def test_faults_can_be_set(folder, refs):
    store = Faulty(folder, None)
    store.fault = Fault.NO_OP
    await store.remove(refs[:1], PERMIT)
    assert refs[0] in await folder.present(refs)
    store.fault = Fault.TIMES_OUT
    with pytest.raises(TimeoutError):
        await store.remove(refs[:1], PERMIT)
    assert refs[0] not in await folder.present(refs)


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_fault_leaves_the_rest_of_the_port_alone(folder, refs, fault):
    """Whatever fails, bodies come in, are present, and are read."""
    store = Faulty(folder, fault)
    assert (store.name, store.collections) == (folder.name, folder.collections)
    ref = await store.put(filing({"user_id": "u2"}), pieces(b"new"))
    assert await store.present([ref, *refs]) == {ref, *refs}
    assert await bytes_of(store, [ref]) == {ref: b"new"}
    assert await store.reclaim() == Reclaimed()
    assert await bytes_of(folder, [ref, refs[5]]) == {ref: b"new", refs[5]: b"theirs"}


async def test_a_recording_notes_every_call(folder):
    store = Recording(folder)
    told = filing({"user_id": "u1"}, dated=AT)
    ref = await store.put(told, pieces(b"x"))
    assert await store.find("attachments", MINE) == [Found(0, ref)]
    assert await store.present(iter([ref])) == {ref}
    assert await bytes_of(store, [ref]) == {ref: b"x"}
    assert await store.remove([ref], PERMIT) == Removal(frozenset([ref]))
    assert await store.reclaim() == Reclaimed()
    assert store.calls == [
        ("put", told),
        ("find", ("attachments", MINE)),
        ("present", (ref,)),
        ("read", ref),
        ("remove", ((ref,), PERMIT)),
        ("reclaim", None),
    ]
    assert (store.name, store.collections) == (folder.name, folder.collections)
    assert store.capabilities == folder.capabilities


async def test_a_recording_notes_what_fails():
    """A call is noted before it is made; a store that takes no bodies takes none through a wrapper either."""
    for make in (Recording, lambda inner: Faulty(inner, None)):
        store = make(Foreign())
        with pytest.raises(StoreUnable):
            await store.put(filing({}), pieces())
        with pytest.raises(StoreUnable):
            await store.find("traces", MINE)
        assert store.capabilities.settle_s == 2.5
        assert await store.reclaim() == Reclaimed("later")
        if isinstance(store, Recording):
            assert [call for call, _ in itertools.islice(store.calls, 2)] == ["put", "find"]
