"""What the tests of the folder store share."""

from __future__ import annotations

import asyncio
from typing import Any

from expunge.stores.contract import filing, label
from expunge.stores.folder import FolderStore, writing
from tests.crash.kit import forked

U1 = {"user_id": "u1"}


def folders_in(store: FolderStore) -> list[str]:
    """The folders below the store's, by which somebody's pseudonyms would stay behind."""
    return sorted(str(path.relative_to(store.folder)) for path in store.folder.glob("st-*/**/*") if path.is_dir())


def folders_of_u1(store: FolderStore) -> list[str]:
    """Those of them that bear the pseudonym of u1."""
    return [folder for folder in folders_in(store) if label("acme", "user_id", "u1") in folder]


def in_forked(job) -> Any:
    """What a coroutine gives, in a child of its own."""
    ended = forked(lambda: asyncio.run(job()))
    assert (ended.signal, ended.error) == (0, "")
    return ended.value


async def written_until(event: asyncio.Event, begun: asyncio.Event):
    """A body of which so much is given that it is begun to be written, and which ends when it is told to."""
    yield b"x" * writing.BATCH_BYTES
    begun.set()
    await event.wait()


def run(store: FolderStore, body) -> str:
    """Put a body of u1 in an event loop of its own."""

    async def job() -> str:
        return await store.put(filing(U1), body())

    return asyncio.run(job())
