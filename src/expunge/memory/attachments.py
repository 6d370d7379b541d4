"""Attachments: files that come with an episode, found in one folder and nowhere outside of it."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

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
        )

    def _describe(self, name: str) -> tuple[int, str]:
        hashed, size = hashlib.sha256(), 0
        try:
            with self.path(name).open("rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    hashed.update(piece)
                    if (size := size + len(piece)) > self.max_bytes:
                        reason = f"{shown(name)} has more than {self.max_bytes} bytes (max_attachment_bytes)"
                        raise BadField("attachments", reason)
        except OSError as fault:
            raise BadField("attachments", f"{shown(name)} cannot be read: {fault.strerror}") from None
        return size, hashed.hexdigest()

    def path(self, name: str) -> Path:
        """Where a file lies. Whoever wrote the records shall not reach a file outside the folder by its name.

        Raises:
            BadField: it is no regular file inside the folder.

        """
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\0" in name:
            raise BadField("attachments", f"{shown(name)} is not a path inside the folder of the file")
        path = self.folder.joinpath(*parts)
        try:
            inside = path.resolve(strict=True).is_relative_to(self.folder.resolve(strict=True))
        except (OSError, RuntimeError, UnicodeError, ValueError) as fault:
            looped = isinstance(
                fault, RuntimeError
            )  # how Python tells of links that lead back to themselves, up to 3.12
            reason = os.strerror(errno.ELOOP) if looped else getattr(fault, "strerror", None) or "it is not a file name"
            raise BadField("attachments", f"{shown(name)} cannot be read: {reason}") from None
        if not inside:
            raise BadField("attachments", f"{shown(name)} leads out of the folder of the file")
        if not path.is_file():
            raise BadField("attachments", f"{shown(name)} is not a file")
        return path

    async def read(self, record: Record) -> AsyncIterator[bytes]:
        """The bytes of an attachment, in pieces.

        Raises:
            InputError: it is not what it was when the record was made.

        """
        hashed = hashlib.sha256()
        name = record.values["path"]
        try:
            with self.path(name).open("rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    hashed.update(piece)
                    yield piece
        except (OSError, BadField):
            hashed = hashlib.sha256(b"vanished")
        if hashed.hexdigest() != record.values["sha256"]:
            raise InputError(
                f"nothing was written: line {record.line}: attachment {shown(name)} vanished or has changed",
                hint="try again when nobody writes to it",
            )


def attachments_among(records: Iterable[Record]) -> list[Record]:
    """The attachment records among some records."""
    return [record for record in records if record.collection is ATTACHMENTS]
