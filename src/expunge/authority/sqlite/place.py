"""Where a database is: a file, or memory shared by the connections of one process."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from expunge.errors import SettingsError
from expunge.model.ids import shown

_SCHEME = "sqlite:///"


@dataclass(frozen=True, slots=True)
class Place:
    """A database file, or memory when ``path`` is ``None``."""

    path: Path | None
    memory_name: str = ""

    @classmethod
    def parse(cls, url: str) -> Place:
        """Read a database setting: a path, ``sqlite:///PATH``, or ``:memory:`` (also ``sqlite://``).

        Raises:
            SettingsError: another kind of database, or not a usable place.

        """
        if url in (":memory:", "sqlite://", "sqlite:///:memory:"):
            return cls(None, "expunge-" + secrets.token_hex(8))
        path = url.removeprefix(_SCHEME)
        if "://" in path:
            scheme = shown(path.split("://")[0])  # the rest may hold a password
            raise SettingsError(f"{scheme} is not a kind of database that is known", hint="name a file")
        if not path or "\0" in path or path.endswith("/"):
            raise SettingsError(f"{shown(url)} names no file", hint="name a file: --db ./expunge.db")
        return cls(Path(path))

    def exists(self) -> bool:
        """Whether the file is there, as far as this user may know."""
        try:
            return self.path is not None and self.path.exists()
        except OSError:
            return False

    def beside(self, end: str) -> Path | None:
        """A file beside the database, named as it is but for its ending; with a whole name, of that name."""
        if self.path is None:
            return None
        return self.path.parent / (end if not end.startswith(".") else self.path.stem + end)

    def files(self) -> list[Path]:
        """The database file, its WAL and its shared memory, whether or not they are there; none for memory."""
        return [] if self.path is None else [self.path.with_name(self.path.name + end) for end in ("", "-wal", "-shm")]

    @property
    def shown(self) -> str:
        """The place as messages name it."""
        return "memory" if self.path is None else str(self.path)
