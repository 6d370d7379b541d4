"""The stores of this project keep the contract, and the contract catches those that do not."""

from __future__ import annotations

import dataclasses
import unittest
from pathlib import Path

import pytest

from expunge.errors import StoreFault, StoreUnable
from expunge.stores.contract import HOSTILE_IDS, StoreContract
from expunge.stores.faulty import Fault, Faulty
from expunge.stores.folder import FolderStore
from expunge.stores.memory import MemoryStore
from expunge.stores.port import Asked, BodyStore, Capabilities, Found
from expunge.stores.recording import Recording
from tests import support


class TestFolder(StoreContract):
    async def make_store(self, tmp_path: Path) -> BodyStore:
        return FolderStore(tmp_path / "objects")


class TestMemory(StoreContract):
    async def make_store(self, tmp_path: Path) -> BodyStore:
        return MemoryStore()


class TestRecording(StoreContract):
    async def make_store(self, tmp_path: Path) -> BodyStore:
        return Recording(FolderStore(tmp_path / "objects"))


class _Broken(StoreContract):
    """The contract on a store that fails; pytest does not collect it under this name."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    async def make_store(self, tmp_path: Path) -> BodyStore:
        return Faulty(FolderStore(tmp_path / "objects"), self.fault)


class _CannotFind(StoreContract):
    def __init__(self, honest: bool) -> None:
        self.honest = honest

    async def make_store(self, tmp_path: Path) -> BodyStore:
        return _Blind(tmp_path / "objects") if self.honest else _Quiet(tmp_path / "objects")


class _Blind(FolderStore):
    """A store that cannot list, and says so."""

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(super().capabilities, find=False, fence="none")

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        raise StoreUnable


class _Quiet(_Blind):
    """A store that cannot list, and answers that nothing is there."""

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        return []


@pytest.mark.parametrize("fault", [Fault.NO_OP, Fault.PART, Fault.RAISES, Fault.TIMES_OUT])
async def test_a_store_that_removes_too_little_is_caught(tmp_path, fault):
    """Law 7: a store that leaves a body, or does not answer, does not pass."""
    with pytest.raises((AssertionError, StoreFault, TimeoutError)):
        await _Broken(fault).test_u1_never_touches_u10(tmp_path)


async def test_a_store_that_stops_at_a_limit_is_caught(tmp_path):
    """Law 11: a store that lists only so many does not pass."""
    with pytest.raises(AssertionError):
        await _Broken(Fault.CAPPED).test_conjunctions(tmp_path)


async def test_what_a_store_cannot_do_is_skipped_when_it_says_so(tmp_path):
    """Law 16: a store that raises what it says that it cannot do passes; one that answers instead does not."""
    for name in ("remove", "find", "quiet"):
        (tmp_path / name).mkdir()
    await _Broken(Fault.CANNOT).test_says_what_it_cannot_do(tmp_path / "remove")
    with pytest.raises(unittest.SkipTest, match="cannot remove"):
        await _Broken(Fault.CANNOT).test_many_bodies(tmp_path / "remove")
    await _CannotFind(honest=True).test_says_what_it_cannot_do(tmp_path / "find")
    with pytest.raises(unittest.SkipTest, match="cannot find"):
        await _CannotFind(honest=True).test_before(tmp_path / "find")
    with pytest.raises(AssertionError):
        await _CannotFind(honest=False).test_says_what_it_cannot_do(tmp_path / "quiet")


def test_the_lists_of_hostile_ids_are_one():
    """Law 12: stores are tried with every id that the rest of the product is tried with."""
    assert HOSTILE_IDS == support.HOSTILE_IDS
    assert len(set(HOSTILE_IDS)) == len(HOSTILE_IDS)
