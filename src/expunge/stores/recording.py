"""A store that notes what it was asked, for tests of what asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from expunge.authority.port import Reclaimed
from expunge.errors import StoreUnable
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


class Recording:
    """A store in front of another; ``calls`` has each call, in order and before the other answers.

    A call is its name and what was given: ``put`` the filing, ``find`` the collection and what was asked, ``present``
    the refs, ``read`` the ref, ``remove`` the refs and the permit, ``reclaim`` and ``files`` nothing.
    """

    def __init__(self, inner: Lifecycle | BodyStore) -> None:
        self.inner, self.name, self.collections = inner, inner.name, inner.collections
        self.calls: list[tuple[str, Any]] = []

    @property
    def capabilities(self) -> Capabilities:
        """Those of the other."""
        return self.inner.capabilities

    async def put(self, filing: Filing, body: AsyncIterator[bytes]) -> str:
        """As the other. Raises StoreUnable when it takes no bodies."""
        self.calls.append(("put", filing))
        return await put_into(self.inner, filing, body)

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        """As the other."""
        self.calls.append(("find", (collection, asked)))
        return await self.inner.find(collection, asked)

    async def present(self, refs: Iterable[str]) -> frozenset[str]:
        """As the other."""
        given = tuple(refs)
        self.calls.append(("present", given))
        return await self.inner.present(given)

    def read(self, ref: str) -> AsyncIterator[bytes]:
        """As the other."""
        self.calls.append(("read", ref))
        return self.inner.read(ref)

    async def remove(self, refs: Sequence[str], permit: Permit) -> Removal:
        """As the other."""
        self.calls.append(("remove", (tuple(refs), permit)))
        return await self.inner.remove(refs, permit)

    async def reclaim(self) -> Reclaimed:
        """As the other."""
        self.calls.append(("reclaim", None))
        return await self.inner.reclaim()

    async def files(self) -> list[StoredFile]:
        """As the other. Raises StoreUnable when it has none."""
        self.calls.append(("files", None))
        return await files_of(self.inner)


async def put_into(inner: Lifecycle | BodyStore, filing: Filing, body: AsyncIterator[bytes]) -> str:
    """Put a body into a store that may take none.

    Raises:
        StoreUnable: it takes none.

    """
    put = getattr(inner, "put", None)
    if put is None:
        raise StoreUnable(f"the store {inner.name} takes no bodies")
    ref: str = await put(filing, body)
    return ref
