"""The store of bodies in a folder.

It is our own code because a body has to be durable (the file and its folders synced) before the row that names it
commits, and to be readable by its owner alone; the local backends of the object store libraries promise neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from expunge.authority.port import Reclaimed
from expunge.errors import StoreFault, StoreUnable
from expunge.stores.folder import disk
from expunge.stores.folder.names import BODY, folders_of, is_asked, is_ref, new_name, org_digest, split_ref
from expunge.stores.folder.walk import Wanted, leaves
from expunge.stores.folder.writing import BATCH_BYTES, Writing
from expunge.stores.port import Asked, Capabilities, Filing, Found, Permit, Removal, StoredFile

PIECE_BYTES = 64 * 1024
"""How much of a body ``read`` gives at once."""


@dataclass(frozen=True, slots=True)
class FolderState:
    """What is seen of a folder without changing it, as far as this user may know.

    ``mode`` are the permission bits, ``None`` when there is no folder. ``writable``: whether a body could be put,
    which makes the folder when that alone is missing. ``store_ids`` are more than one after some restores.
    """

    path: Path
    exists: bool
    mode: int | None
    writable: bool
    store_ids: tuple[str, ...]


class FolderStore:
    """A store of one collection's bodies in a folder, which is made (0700, but nothing above it) with the first body.

    A folder that is there keeps the mode that somebody gave it; everything in it is for its owner alone.
    """

    def __init__(
        self, folder: Path, name: str = "objects", collections: frozenset[str] = frozenset({"attachments"})
    ) -> None:
        """Raises ValueError for more than one collection: no ref tells of which it is, so ``find`` would widen."""
        if len(collections) != 1:
            raise ValueError("a folder holds the bodies of one collection")
        self.folder, self.name, self.collections = folder, name, collections

    @property
    def capabilities(self) -> Capabilities:
        """All that the port knows: a body carries its ``seq``, and a removed file is gone."""
        return Capabilities(find=True, fence="header", remove=True, physical="at_once")

    async def put(self, filing: Filing, body: AsyncIterator[bytes]) -> str:
        """Store a body durably; its ref. What the body raises is passed on, and nothing is left behind.

        Raises:
            DiskFull: there was no room; nothing of it is left behind.
            StoreFault: it was not stored; nothing of it is left behind.

        """
        return await Writing(self.folder, None, folders_of(filing), new_name(filing)).take(body)

    async def restore(self, ref: str, body: AsyncIterator[bytes]) -> None:
        """Put a body back under the ref that it had, as bringing back a copy of the folder does; errors as in ``put``.

        The product never calls it: with it tests see what an erasure says when bytes come back.
        """
        path, name = split_ref(self.folder, ref)
        store, *folders = path.split("/")
        await Writing(self.folder, store, tuple(folders), name).take(body)

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        """The bodies in scope, each for the first target that it matches, and what killed writers left half written.

        Raises:
            StoreUnable: another collection's bodies, or a part by which nothing is filed.
            StoreFault: the folder did not let us look, or something else stands where a folder of bodies belongs.

        """
        if collection not in self.collections:
            raise StoreUnable(f"the store {self.name} holds no bodies of {collection}")
        wanted = [Wanted.of(position, labels) for position, labels in enumerate(asked.labels)]
        if not wanted or self._is_unmade():
            return []  # where nothing was ever put, no erasure needs a thread to find that out
        return await asyncio.to_thread(self._find, asked, wanted)

    async def present(self, refs: Iterable[str]) -> frozenset[str]:
        """Which of these bodies are there, or something else in their place.

        Raises:
            StoreFault: a ref is malformed or of another folder, or the folder did not let us look.

        """
        return await asyncio.to_thread(self._present, list(refs))

    async def read(self, ref: str) -> AsyncIterator[bytes]:
        """The bytes of a body, in pieces of 64 KiB.

        Each hop opens the file anew: whoever stops half way leaves no handle open, and a body that is removed
        meanwhile is not served to its end.

        Raises:
            StoreFault: it is not there, is no file, or is of another folder.

        """
        offset, ended = 0, False
        while not ended:
            data = await asyncio.to_thread(self._read, ref, offset)
            for start in range(0, len(data), PIECE_BYTES):
                yield data[start : start + PIECE_BYTES]
            offset += len(data)
            ended = len(data) < BATCH_BYTES

    async def remove(self, refs: Sequence[str], permit: Permit) -> Removal:  # noqa: ARG002 (a file needs no leave)
        """Remove bodies durably, and the folders that this empties, whose names are pseudonyms.

        Raises:
            StoreFault: a ref is malformed or of another folder, and nothing was removed; or something else stands
                where a folder of bodies belongs, or a change was not made durable, and all else was removed.

        """
        return await asyncio.to_thread(self._remove, list(refs))

    async def reclaim(self) -> Reclaimed:
        """Nothing is left to do: a removed file is gone."""
        return Reclaimed()

    async def files(self) -> list[StoredFile]:
        """Every file below the folder, the lock of the first body too.

        Raises:
            StoreFault: the folder did not let us look.

        """
        return [] if self._is_unmade() else await asyncio.to_thread(self._files)

    def state(self) -> FolderState:
        """What is to be seen of the folder. It blocks, and changes nothing."""
        mode = disk.mode_of(self.folder)
        stores: list[str] = []
        with contextlib.suppress(OSError):
            stores = disk.stores_in(self.folder)
        exists = mode is not None
        # What is no folder cannot be written into, though its parent can.
        writable = disk.may_write(self.folder if exists or os.path.lexists(self.folder) else self.folder.parent)
        return FolderState(self.folder, exists, mode, writable, tuple(stores))

    def _is_unmade(self) -> bool:
        """Whether there is no folder, and not only none that this user may see: that is told when it is listed."""
        try:
            os.lstat(self.folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return False

    # What follows blocks, and runs in a thread.

    def _files(self) -> list[StoredFile]:
        with disk.told(self.folder, "listed"):
            return [
                StoredFile(name, self.folder / name, is_ref(name) or name == disk.LOCK, regular)
                for name, regular in disk.everything_in(self.folder)
            ]

    def _find(self, asked: Asked, wanted: Sequence[Wanted]) -> list[Found]:
        found: list[Found] = []
        with disk.told(self.folder, "listed"):
            for store in disk.stores_in(self.folder):
                path = (store, org_digest(asked.org))
                with contextlib.suppress(FileNotFoundError), disk.opened(self.folder, *path) as handles:
                    for folder, handle, position in leaves(handles[-1], "/".join(path), wanted):
                        # Another's file among ours has no name by which it could be asked for, read or removed.
                        names = (name for name in disk.listed(handle, BODY) if is_asked(name, asked))
                        found.extend(Found(position, f"{folder}/{name}") for name in names)
        return found

    def _present(self, refs: list[str]) -> frozenset[str]:
        there: set[str] = set()
        with disk.told(self.folder, "read"):
            for path, names in self._by_folder(refs).items():
                with contextlib.suppress(FileNotFoundError), disk.opened(self.folder, *path.split("/")) as handles:
                    there.update(f"{path}/{name}" for name in names if disk.is_there(name, handles[-1]))
        return frozenset(there)

    def _read(self, ref: str, offset: int) -> bytes:
        with disk.told(self.folder, "read"):
            ((path, (name,)),) = self._by_folder([ref]).items()
            try:
                with disk.opened(self.folder, *path.split("/")) as handles:
                    handle = disk.open_file(name, handles[-1])
            except FileNotFoundError:
                raise StoreFault(f"a body is not in the objects folder {self.folder}") from None
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise disk.misplaced(self.folder)
                return disk.read_at(handle, offset, BATCH_BYTES)
            finally:
                os.close(handle)

    def _remove(self, refs: list[str]) -> Removal:
        refused: dict[str, str] = {}
        emptied: list[list[str]] = []
        first: OSError | None = None
        with disk.told(self.folder, "emptied"):
            for path, names in self._by_folder(refs).items():
                folder = path.split("/")
                try:
                    reasons = disk.unlink_in(self.folder, folder, names)
                except PermissionError as fault:
                    reasons = dict.fromkeys(names, disk.reason_of(fault))
                except OSError as fault:  # nothing that one body could be refused for; said when the rest is gone
                    first = first or fault
                    continue
                refused |= {f"{path}/{name}": reason for name, reason in reasons.items()}
                if not reasons:
                    emptied.append(folder)
            for left in {disk.prune(self.folder, folder) for folder in emptied}:
                disk.sync(self.folder, left)
            if first is not None:
                raise first
        return Removal(frozenset(refs) - refused.keys(), refused)

    def _by_folder(self, refs: Iterable[str]) -> dict[str, list[str]]:
        """The names of bodies by the folder in which they lie.

        Raises:
            StoreFault: one of them is malformed, or of a store that is not here.

        """
        folders: dict[str, list[str]] = {}
        for ref in refs:
            path, name = split_ref(self.folder, ref)
            folders.setdefault(path, []).append(name)
        for store in sorted({path.partition("/")[0] for path in folders}):
            try:
                with disk.opened(self.folder, store):
                    pass
            except FileNotFoundError:
                raise StoreFault(
                    f"the objects folder {self.folder} does not hold the store {store}",
                    hint=f"bring it back; if its bytes are known to be gone, make an empty folder {store} there",
                ) from None
        return folders
