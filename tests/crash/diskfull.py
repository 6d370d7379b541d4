"""Disks that are full: a file layer under the product's that refuses to write, and a small disk of this process."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import apsw

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_PRIVATE, _RECURSIVE = 1 << 18, 1 << 14
PAGE = 4096


class Quota:
    """How many writes the file layer takes before it is full, and how many it has seen. ``None`` is no limit."""

    def __init__(self) -> None:
        self.most: int | None = None
        self.seen = 0
        self._fixed: tuple[str, int] | None = None

    def limit(self, most: int | None) -> None:
        self.most, self.seen, self._fixed = most, 0, None

    def only_growth_of(self, path: Path) -> None:
        """Refuse only what would make one file longer than it is now."""
        self._fixed = (str(path.resolve()), path.stat().st_size)

    def take(self, name: str, end: int) -> None:
        self.seen += 1
        if (self.most is not None and self.seen > self.most) or (
            self._fixed is not None and name == self._fixed[0] and end > self._fixed[1]
        ):
            raise apsw.FullError


def install(quota: Quota) -> apsw.VFS:
    """Put a file layer with a quota under everything that this process opens from now on.

    It becomes the default layer, which the product's own (pages.py) stacks upon.
    """

    class File(apsw.VFSFile):
        def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
            super().__init__("unix", name, flags)
            self.named = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

        def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 (the name is SQLite's)
            quota.take(self.named, offset + len(data))
            super().xWrite(data, offset)

        def xTruncate(self, newsize: int) -> None:  # noqa: N802
            quota.take(self.named, 0)
            super().xTruncate(newsize)

    class Files(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("full-disk", "unix", makedefault=True)

        def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
            return File(name, flags)

    return Files()


def mount_small(folder: Path, size: int) -> bool:
    """Mount a small disk that this process alone sees and that goes with it; whether the machine lets us."""
    libc = ctypes.CDLL(None, use_errno=True)
    user = 0 if os.geteuid() == 0 else _NEW_USER
    if libc.unshare(_NEW_MOUNTS | user) != 0:
        return False
    if libc.mount(None, b"/", None, _PRIVATE | _RECURSIVE, None) != 0:
        return False
    done: int = libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={size},mode=700".encode())
    return done == 0


def fill(folder: Path, *, but: int) -> Path:
    """Fill a small disk with a file, all but so many pages."""
    filler = folder / "filler"
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_bsize
    with filler.open("wb") as file:
        file.write(bytes(max(0, free - but * PAGE)))
        os.fsync(file.fileno())
    return filler
