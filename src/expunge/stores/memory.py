"""The store of bodies in memory: where they lie when the database lies there, and for no longer."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Sequence

from expunge.authority.port import Reclaimed
from expunge.errors import StoreFault, StoreUnable
from expunge.model.identity import PARTS
from expunge.stores.port import Asked, Capabilities, Filing, Found, Labels, Permit, Removal


class MemoryStore:
    """A store of some collections' bodies in this process."""

    def __init__(self, name: str = "memory", collections: frozenset[str] = frozenset({"attachments"})) -> None:
        self.name, self.collections = name, collections
        self._bodies: dict[str, tuple[Filing, bytes]] = {}

    @property
    def capabilities(self) -> Capabilities:
        """All that the port knows."""
        return Capabilities(find=True, fence="header", remove=True, physical="at_once")

    async def put(self, filing: Filing, body: AsyncIterator[bytes]) -> str:
        """Keep a body; its ref. What the body raises is passed on, and nothing is left behind."""
        data = b"".join([piece async for piece in body])
        ref = f"{self.name}/{secrets.token_hex(16)}"
        self._bodies[ref] = (filing, data)
        return ref

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        """The bodies in scope, each for the first target that it matches.

        Raises:
            StoreUnable: another collection's bodies, or a part by which nothing is filed.

        """
        if collection not in self.collections:
            raise StoreUnable(f"the store {self.name} holds no bodies of {collection}")
        if any(not labels.keys() <= set(PARTS) for labels in asked.labels):
            raise StoreUnable(f"the store {self.name} does not file bodies by all that the scope narrows")
        found: list[Found] = []
        for ref, (filing, _) in list(self._bodies.items()):
            if filing.org != asked.org or filing.seq >= asked.seq:
                continue
            if asked.before is not None and filing.dated >= asked.before:
                continue
            position = next((at for at, labels in enumerate(asked.labels) if _matches(filing, labels)), None)
            if position is not None:
                found.append(Found(position, ref))
        return found

    async def present(self, refs: Iterable[str]) -> frozenset[str]:
        """Which of these bodies are there."""
        return frozenset(ref for ref in refs if ref in self._bodies)

    async def read(self, ref: str) -> AsyncIterator[bytes]:
        """The bytes of a body.

        Raises:
            StoreFault: it is not there.

        """
        if ref not in self._bodies:
            raise StoreFault(f"a body is not in the store {self.name}")
        yield self._bodies[ref][1]

    async def remove(self, refs: Sequence[str], permit: Permit) -> Removal:  # noqa: ARG002 (memory needs no leave)
        """Let bodies go."""
        for ref in refs:
            self._bodies.pop(ref, None)
        return Removal(frozenset(refs))

    async def reclaim(self) -> Reclaimed:
        """Nothing is left to do."""
        return Reclaimed()


def _matches(filing: Filing, labels: Labels) -> bool:
    own = dict(zip(PARTS, filing.parts, strict=True))
    return all(own[part] in narrowed for part, narrowed in labels.items())
