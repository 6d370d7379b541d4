"""What is done to the disk: folders opened one in the other without following links, made, listed and emptied.

All of it blocks and is called in a thread. Paths are relative to the top, which is the folder that somebody has set.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from expunge.errors import DiskFull, StoreFault
from expunge.stores.folder.names import STORE, new_store

OWNER_FILE = 0o600
LOCK = ".lock"
"""Held while the first body makes the store in which it lies; the file stays."""
_OWNER_FOLDER = 0o700
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextlib.contextmanager
def told(top: Path, what: str, hint: str | None = None) -> Iterator[None]:
    """Tell what the disk said in the words of the port. Names below the top are pseudonyms and stay out of it.

    Raises:
        DiskFull: there is no room.
        StoreFault: anything else.

    """
    try:
        yield
    except OSError as fault:
        if fault.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"the disk of the objects folder {top} is full") from fault
        if fault.errno in (errno.ENOTDIR, errno.ELOOP):
            raise misplaced(top) from fault
        raise StoreFault(f"the objects folder {top} cannot be {what}: {reason_of(fault)}", hint=hint) from fault


def misplaced(top: Path) -> StoreFault:
    """The error for a link, or another thing, in the place of a folder or a body."""
    return StoreFault(
        f"something else stands in the objects folder {top} where a folder or a file of ours belongs",
        hint="links are not followed: take it away, or put back what belongs there",
    )


def reason_of(fault: OSError) -> str:
    """What the system says of a fault, without a path."""
    return fault.strerror or type(fault).__name__


@contextlib.contextmanager
def opened(top: Path, *names: str, make: bool = False, partly: bool = False) -> Iterator[list[int]]:
    """Open a folder and those below it, each in the one above; all handles, the top first.

    The top may be a link, because whoever set it may have meant another disk; below it none is followed. ``make``
    makes the folders that are missing, ``partly`` ends before the first of them.
    """
    handles: list[int] = []
    try:
        handles.append(os.open(top, _OPEN))
        for name in names:
            try:
                handles.append(_open_below(name, handles[-1]))
            except FileNotFoundError:
                if partly:
                    break
                if not make:
                    raise
                make_folder(name, handles[-1])
                handles.append(_open_below(name, handles[-1]))
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


@contextlib.contextmanager
def opened_below(name: str, above: int) -> Iterator[int]:
    """Open one folder in an open one."""
    handle = _open_below(name, above)
    try:
        yield handle
    finally:
        os.close(handle)


def _open_below(name: str, above: int) -> int:
    return os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=above)


def make_folder(path: Path | str, above: int | None = None) -> None:
    """Make a folder for its owner alone, unless it is there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, _OWNER_FOLDER, dir_fd=above)
        os.chmod(path, _OWNER_FOLDER, dir_fd=above)  # the umask may have taken rights from the owner, too


def listed(folder: int, pattern: re.Pattern[str]) -> list[str]:
    """The names of a form in an open folder, sorted; none, when it was removed since it was opened."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(name for name in os.listdir(folder) if pattern.fullmatch(name))
    return []


def everything_in(top: Path) -> Iterator[tuple[str, bool]]:
    """Every name below a folder that is no folder, relative to it and sorted, and whether it is a regular file.

    No link is followed below the top; what is removed meanwhile is passed over.
    """
    waiting = [""]
    while waiting:
        below = waiting.pop()
        folders = []
        with contextlib.suppress(FileNotFoundError), os.scandir(top / below) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                name = f"{below}/{entry.name}" if below else entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                else:
                    yield name, entry.is_file(follow_symlinks=False)
        waiting += reversed(folders)


def stores_in(top: Path) -> list[str]:
    """The stores of a folder; none, when there is no folder."""
    with contextlib.suppress(FileNotFoundError), opened(top) as (handle,):
        return listed(handle, STORE)
    return []


def store_for_new(top: Path) -> str:
    """The store in which new bodies are put, made under a lock when there is none: two first bodies agree on one."""
    make_folder(top)
    with opened(top) as (handle,):
        stores = listed(handle, STORE)
        if not stores:
            lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, OWNER_FILE, dir_fd=handle)
            try:
                os.fchmod(lock, OWNER_FILE)
                fcntl.flock(lock, fcntl.LOCK_EX)
                stores = listed(handle, STORE) or [_make_store(top, handle)]
            finally:
                os.close(lock)
    return stores[0]


def _make_store(top: Path, handle: int) -> str:
    # First, so that whoever sees a store sees it in a folder that stays. A user who may not read what is above has
    # been given the folder, and has not made it just now.
    with contextlib.suppress(PermissionError), opened(top.parent) as (above,):
        os.fsync(above)
    store = new_store()
    make_folder(store, handle)
    return store


def unlink_in(top: Path, path: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """Remove files of a folder durably; those that stayed, with reasons. What is missing is gone."""
    reasons: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError), opened(top, *path) as handles:
        for name in names:
            try:
                _unlink(name, handles[-1])
            except OSError as fault:
                reasons[name] = reason_of(fault)
        os.fsync(handles[-1])
    return reasons


def _unlink(name: str, folder: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.EINVAL, "something else than a file stands in its place")
        os.unlink(name, dir_fd=folder)


def prune(top: Path, path: Sequence[str]) -> tuple[str, ...]:
    """Remove a folder and those above it, up to the store's, as far as they are empty; the path that is left.

    When the lower ones are missing, a removal was killed here, and may have left the upper ones empty.
    """
    with opened(top, *path, partly=True) as handles:
        for depth in range(len(handles) - 1, 1, -1):
            try:
                os.rmdir(path[depth - 1], dir_fd=handles[depth - 1])
            except FileNotFoundError:
                continue  # another removal was faster
            except OSError as fault:
                if fault.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return tuple(path[:depth])
                raise
    return tuple(path[:1])


def sync(top: Path, path: Sequence[str]) -> None:
    """Make what was removed from a folder durable; when it is gone by now, whoever removed it does so further up."""
    with contextlib.suppress(FileNotFoundError), opened(top, *path) as handles:
        os.fsync(handles[-1])


def is_there(name: str, folder: int) -> bool:
    """Whether an open folder has anything of this name."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def open_file(name: str, folder: int) -> int:
    """Open a file of an open folder to read it; a pipe in its place is opened, too, and does not keep us waiting."""
    return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)


def read_at(handle: int, offset: int, size: int) -> bytes:
    """So many bytes of an open file from a place on, or fewer at its end only."""
    pieces: list[bytes] = []
    while size and (piece := os.pread(handle, size, offset)):
        pieces.append(piece)
        offset, size = offset + len(piece), size - len(piece)
    return b"".join(pieces)


def mode_of(folder: Path) -> int | None:
    """The permission bits of a folder; ``None`` when it is none, or this user may not know."""
    with contextlib.suppress(OSError):
        mode = folder.stat().st_mode
        return stat.S_IMODE(mode) if stat.S_ISDIR(mode) else None
    return None


def may_write(folder: Path) -> bool:
    """Whether this is a folder in which this user may make files."""
    return os.access(f"{folder}/.", os.W_OK | os.X_OK)  # with the dot, a file is none
