"""A store that fails in a way that is chosen, for tests that nothing says success that was not (laws 7 and 16)."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterable, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

from expunge.authority.port import Reclaimed
from expunge.errors import StoreFault, StoreUnable
from expunge.stores.port import (
    Asked,
    BodyStore,
    Capabilities,
    Filing,
    Found,
    Lifecycle,
    Permit,
    Removal,
    StoredFile,
    files_of,
)
from expunge.stores.recording import put_into

CAP = 3
"""How many bodies a capped store handles at a time."""


class Fault(StrEnum):
    """How a store fails."""

    RAISES = "raises"
    """A removal raises StoreFault before it does anything."""
    TIMES_OUT = "times_out"
    """A removal is done, and then raises TimeoutError."""
    NO_OP = "no_op"
    """A removal does nothing and says that all are gone."""
    PART = "part"
    """A removal takes the first half, rounded down, and says that all are gone."""
    COMES_BACK = "comes_back"
    """A removal is done; with the next ``reclaim`` the bodies are there again under their refs."""
    CAPPED = "capped"
    """``find`` tells of the first three bodies only, and a removal of more is refused with StoreFault."""
    CANNOT = "cannot"
    """The store cannot remove, and says so."""
    FIND_RAISES = "find_raises"
    """``find`` raises StoreFault."""


@runtime_checkable
class Restorable(Protocol):
    """A store that takes a body back under the ref that it had, which is what ``COMES_BACK`` needs."""

    async def restore(self, ref: str, body: AsyncIterator[bytes]) -> None:
        """Put a body back under its ref."""
        ...


class Faulty:
    """A store in front of another that fails as ``fault`` says; ``None`` is not at all. It may be set at any time."""

    def __init__(self, inner: Lifecycle | BodyStore, fault: Fault | None) -> None:
        self.inner, self.name, self.collections = inner, inner.name, inner.collections
        self.fault = fault
        self._kept: dict[str, bytes] = {}

    def heal(self) -> None:
        """Behave from now on; what was kept to come back is let go."""
        self.fault = None
        self._kept.clear()

    @property
    def capabilities(self) -> Capabilities:
        """Those of the other, but for what this one says that it cannot do."""
        if self.fault is Fault.CANNOT:
            return dataclasses.replace(self.inner.capabilities, remove=False)
        return self.inner.capabilities

    async def put(self, filing: Filing, body: AsyncIterator[bytes]) -> str:
        """As the other. Raises StoreUnable when it takes no bodies."""
        return await put_into(self.inner, filing, body)

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        """As the other, unless FIND_RAISES or CAPPED."""
        if self.fault is Fault.FIND_RAISES:
            raise StoreFault(f"the store {self.name} does not list")
        found = await self.inner.find(collection, asked)
        return found[:CAP] if self.fault is Fault.CAPPED else found

    async def present(self, refs: Iterable[str]) -> frozenset[str]:
        """As the other."""
        return await self.inner.present(refs)

    def read(self, ref: str) -> AsyncIterator[bytes]:
        """As the other."""
        return self.inner.read(ref)

    async def remove(self, refs: Sequence[str], permit: Permit) -> Removal:
        """As the other, unless a fault is of removals."""
        if self.fault is Fault.CANNOT:
            raise StoreUnable(f"the store {self.name} cannot remove")
        if self.fault is Fault.RAISES:
            raise StoreFault(f"the store {self.name} does not remove")
        if self.fault is Fault.CAPPED and len(refs) > CAP:
            raise StoreFault(f"the store {self.name} was given {len(refs)} bodies, more than {CAP}")
        if self.fault is Fault.NO_OP:
            return Removal(frozenset(refs))
        if self.fault is Fault.PART:
            await self.inner.remove(refs[: len(refs) // 2], permit)
            return Removal(frozenset(refs))
        if self.fault is Fault.COMES_BACK:
            await self._keep(refs)
        removal = await self.inner.remove(refs, permit)
        if self.fault is Fault.TIMES_OUT:
            raise TimeoutError
        return removal

    async def reclaim(self) -> Reclaimed:
        """As the other; what was kept comes back before."""
        if self.fault is Fault.COMES_BACK:
            kept, self._kept = self._kept, {}
            for ref, data in kept.items():
                await self._restorable().restore(ref, _once(data))
        return await self.inner.reclaim()

    async def files(self) -> list[StoredFile]:
        """As the other. Raises StoreUnable when it has none."""
        return await files_of(self.inner)

    async def _keep(self, refs: Sequence[str]) -> None:
        self._restorable()
        for ref in sorted(await self.inner.present(refs)):
            self._kept[ref] = b"".join([piece async for piece in self.inner.read(ref)])

    def _restorable(self) -> Restorable:
        if not isinstance(self.inner, Restorable):
            raise TypeError("this store takes no body back under its ref, so none can come back")
        return self.inner


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
