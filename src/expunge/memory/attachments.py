"""Attachments and originals: files that come with an episode or a document, found in one folder and nowhere else."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from expunge.datamap import ATTACHMENTS
from expunge.errors import InputError
from expunge.memory.record import BadField, Record
from expunge.model.canonical import canonical_plain
from expunge.model.ids import shown

_PIECE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Attached:
    """The folder that the paths of attachments are relative to, and the most bytes that one may have."""

    folder: Path
    max_bytes: int

    def records_of(self, episode: Record) -> list[Record]:
        """The attachment records that an episode brings.

        Raises:
            BadField: a file cannot be read, is too large, or lies outside the folder.

        """
        return [self._record(episode, name) for name in episode.files]

    def _record(self, episode: Record, name: str) -> Record:
        size, digest = self._describe(name)
        times = dict.fromkeys(("created_at", "recorded_at", "updated_at"), episode.dated)
        return Record(
            line=episode.line,
            collection=ATTACHMENTS,
            id="at-" + hashlib.sha256(canonical_plain([episode.id, name])).hexdigest()[:32],
            identity=episode.identity,
            values=times | {"episode": episode.id, "path": name, "bytes": size, "sha256": digest},
            sources=(),
            given=frozenset(),
            files=(name,),
        )

    def _describe(self, name: str) -> tuple[int, str]:
        hashed, size = hashlib.sha256(), 0
        for piece in self.pieces(name):
            hashed.update(piece)
            size += len(piece)
        return size, hashed.hexdigest()

    def pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of a file of the folder.

        Raises:
            BadField: it cannot be read, is too large, or lies outside the folder.

        """
        size = 0
        try:
            with self.open(name) as file:
                while piece := file.read(_PIECE_BYTES):
                    if (size := size + len(piece)) > self.max_bytes:
                        reason = f"{shown(name)} has more than {self.max_bytes} bytes (max_attachment_bytes)"
                        raise BadField("attachments", reason)
                    yield piece
        except OSError as fault:
            raise BadField("attachments", f"{shown(name)} cannot be read: {fault.strerror}") from None

    def open(self, name: str) -> BinaryIO:
        """A file of the folder. Whoever wrote the records shall not reach a file outside of it by its name.

        A link that leads elsewhere in the folder is followed once, when the name is resolved; what is opened then is
        opened step by step, and no link is followed any more, whatever has been put in its place meanwhile.

        Raises:
            BadField: it is no regular file inside the folder.

        """
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\0" in name:
            raise BadField("attachments", f"{shown(name)} is not a path inside the folder of the file")
        try:
            top, real = self.folder.resolve(strict=True), self.folder.joinpath(*parts).resolve(strict=True)
            if not real.is_relative_to(top):
                raise BadField("attachments", f"{shown(name)} leads out of the folder of the file")
            file = _open_below(top, real.relative_to(top).parts)
        except (OSError, RuntimeError, UnicodeError, ValueError) as fault:
            # Up to Python 3.12 a RuntimeError tells of links that lead back to themselves.
            looped = os.strerror(errno.ELOOP) if isinstance(fault, RuntimeError) else None
            reason = looped or getattr(fault, "strerror", None) or "it is not a file name"
            raise BadField("attachments", f"{shown(name)} cannot be read: {reason}") from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise BadField("attachments", f"{shown(name)} is not a file")
        return os.fdopen(file, "rb")

    async def read(self, record: Record) -> AsyncIterator[bytes]:
        """The bytes of an attachment, in pieces.

        Raises:
            InputError: it is not what it was when the record was made.

        """
        hashed = hashlib.sha256()
        name = record.files[0]
        try:
            with self.open(name) as file:
                while piece := file.read(_PIECE_BYTES):
                    hashed.update(piece)
                    yield piece
        except (OSError, BadField):
            hashed = hashlib.sha256(b"vanished")
        if hashed.hexdigest() != record.values["sha256"]:
            raise InputError(
                f"nothing was written: line {record.line}: {shown(name)} vanished or has changed",
                hint="try again when nobody writes to it",
            )


@dataclass(frozen=True, slots=True)
class Carried:
    """The bodies that an export carries, by the ids of their records."""

    body_of: Callable[[str], bytes | None]
    size_of: Callable[[str], int | None]
    """How long a body is, before anything of it is unpacked; ``None`` where there is none."""
    max_bytes: int

    def give(self, record: Record) -> None:
        """Tell a record of the body that came with it.

        Raises:
            BadField: there is none, and the record is nothing without it; it is too large, or as long as another.

        """
        if record.collection.body_in is None:
            return
        size = self.size_of(record.id)
        if size is not None:
            if size != record.values["bytes"]:
                raise BadField("bytes", f"is {record.values['bytes']}, and the body has {size}")
            if size > self.max_bytes:
                raise BadField("bytes", f"is {size}, more than {self.max_bytes} (max_attachment_bytes)")
            record.files = (record.id,)
        elif record.values.get("state", "live") == "live":
            raise BadField("sha256", "names a body that the export does not hold")

    async def read(self, record: Record) -> AsyncIterator[bytes]:
        """The body of a record.

        Raises:
            InputError: it is not what the record says.

        """
        data = self.body_of(record.id)
        if data is None or hashlib.sha256(data).hexdigest() != record.values["sha256"]:
            raise InputError(f"nothing was written: the body of {shown(record.id)} is not what its record says")
        yield data


def _open_below(top: Path, parts: Sequence[str]) -> int:
    """A handle on what lies below a folder, without following a link on the way, and without waiting for a pipe."""
    handle = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, part in enumerate(parts, start=1):
        how = os.O_NONBLOCK if number == len(parts) else os.O_DIRECTORY
        try:
            inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | how, dir_fd=handle)
        finally:
            os.close(handle)
        handle = inner
    return handle
