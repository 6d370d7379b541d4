"""Writing a body: a file of another name, synced, renamed, and every folder above it synced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from expunge.errors import StoreFault
from expunge.stores.folder.disk import OWNER_FILE, opened, prune, store_for_new, told, unlink_in
from expunge.stores.folder.names import PART

BATCH_BYTES = 1024 * 1024
"""How much of a body is in memory, and goes to a thread in one hop."""

_RACES = 8
"""How often a body begins again because a removal took the folder away that it had emptied."""
_HINT = "see that this user may write there, and try again"


class Writing:
    """A body on its way into a folder. A call that is cancelled goes on in its thread: hence the lock and the flag."""

    def __init__(self, top: Path, store: str | None, folders: tuple[str, ...], name: str) -> None:
        """``store`` is ``None`` for a new body, which goes where new bodies go."""
        self._top, self._store, self._folders, self._name = top, store, folders, name
        self._path: tuple[str, ...] = ()
        self._file: int | None = None
        self._ours = [name + PART]
        self._lock = threading.Lock()
        self._abandoned = False

    async def take(self, body: AsyncIterator[bytes]) -> str:
        """Take a body to the disk in batches, a small one in one hop; its ref. What the body raises is passed on."""
        batch = bytearray()
        try:
            async for piece in body:
                batch += piece
                if len(batch) >= BATCH_BYTES:
                    full, batch = batch, bytearray()
                    await asyncio.to_thread(self._write, full)
            return await asyncio.to_thread(self._finish, batch)
        except BaseException:
            # Shielded, so that whoever is cancelled twice leaves nothing behind either.
            await asyncio.shield(asyncio.to_thread(self._abandon))
            raise

    def _write(self, data: bytearray) -> None:
        with self._lock, told(self._top, "written", _HINT):
            self._append(data)

    def _finish(self, data: bytearray) -> str:
        with self._lock, told(self._top, "written", _HINT):
            os.fsync(self._append(data))
            try:
                self._give_name()
            except FileNotFoundError:
                raise StoreFault(
                    f"a body was removed from the objects folder {self._top} while it was written",
                    hint="an erasure took it; read again and write what is still true",
                ) from None
            self._close()
            return "/".join((*self._path, self._name))

    def _give_name(self) -> None:
        with opened(self._top, *self._path) as handles:
            self._ours.append(self._name)  # not before: a body that is restored may stand there until now
            os.rename(self._name + PART, self._name, src_dir_fd=handles[-1], dst_dir_fd=handles[-1])
            # Not only those that were made here: another process may have made one and not have synced it yet.
            for handle in reversed(handles):
                os.fsync(handle)

    def _abandon(self) -> None:
        """Take away what was written as far as the disk lets us; what stays is found by ``find``."""
        with self._lock:
            self._abandoned = True
            with contextlib.suppress(OSError):
                self._close()
            if self._path:
                with contextlib.suppress(OSError):
                    unlink_in(self._top, self._path, self._ours)
                    prune(self._top, self._path)

    def _append(self, data: bytearray) -> int:
        if self._abandoned:
            raise StoreFault("this body was given up")
        if self._file is None:
            self._path = (self._store or store_for_new(self._top), *self._folders)
            self._file = self._create()
            os.fchmod(self._file, OWNER_FILE)  # the umask may have taken rights from the owner, too
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        return self._file

    def _create(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        for races_left in reversed(range(_RACES)):
            try:
                with opened(self._top, *self._path, make=True) as handles:
                    return os.open(self._name + PART, flags, OWNER_FILE, dir_fd=handles[-1])
            except FileNotFoundError:
                if not races_left:
                    raise
        raise AssertionError  # the last turn has returned or raised

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
