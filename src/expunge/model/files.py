"""Files that are written for somebody: whole, or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from expunge.errors import DiskFull, InputError


@contextmanager
def new_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write into: it is there whole when this ends, or as it was before when it fails or is killed.

    A device or a pipe is written to, and never replaced. ``mode`` is narrowed by the umask.

    Raises:
        InputError: it cannot be written.
        DiskFull: there is no room for it.

    """
    temporary: Path | None = None
    try:
        path = path.resolve()
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        temporary = path.with_name(f".{secrets.token_hex(4)}.new")
        with open(temporary, "xb", opener=lambda name, how: os.open(name, how, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, ValueError) as fault:
        if isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"the disk is full, so {path} was not written") from fault
        raise InputError(f"{path} cannot be written: {reason_of(fault)}", hint="name another file") from fault
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def reason_of(fault: Exception) -> str:
    """Why a file could not be used, in the words of the system."""
    return getattr(fault, "strerror", None) or "it is not a file name"
