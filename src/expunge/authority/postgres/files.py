"""The files of a server that hold what is in our schema, opened to be read byte for byte beside it.

They lie in its data folder, which only this machine may have, and which only the server's user may read. What cannot
be opened is handed out with the reason, so that nobody takes it for looked into.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors

from expunge.authority.port import FileForm, KeptFile, Statement, Tx
from expunge.authority.postgres.place import PostgresPlace

_SETTINGS = Statement(
    "files.settings",
    """SELECT name, setting FROM pg_settings WHERE name IN ('data_directory', 'block_size', 'segment_size',
    'log_directory', 'logging_collector', 'archive_mode')""",
)
_KEPT = Statement(
    "files.kept",
    """WITH tables AS (
        SELECT oid, reltoastrelid FROM pg_class WHERE oid = 'pg_catalog.pg_statistic'::regclass
        OR relkind IN ('r', 'm') AND relnamespace = to_regnamespace(current_schema()::text)
    ), heaps AS (
        SELECT oid, 'heap' AS form FROM tables
        UNION ALL SELECT reltoastrelid, 'toast' FROM tables WHERE reltoastrelid <> 0
    ), kept AS (
        SELECT oid, form FROM heaps
        UNION ALL SELECT indexrelid, 'index' FROM pg_index WHERE indrelid IN (SELECT oid FROM heaps)
    )
    SELECT oid::bigint, form, pg_relation_filepath(oid) AS path FROM kept
    WHERE pg_relation_filepath(oid) IS NOT NULL ORDER BY path""",
)
_FOLDER = Statement("files.folder", "SELECT pg_relation_filepath('pg_catalog.pg_class')")
_NUMBERS = Statement(
    "files.numbers",
    "SELECT pg_relation_filenode(oid)::bigint FROM pg_class WHERE pg_relation_filenode(oid) IS NOT NULL",
)
_CONTROL = Statement(
    "files.control",
    """SELECT system_identifier, checkpoint_lsn - '0/0'::pg_lsn FROM pg_control_system(), pg_control_checkpoint()""",
)
SNAPSHOT = Statement("files.snapshot", "SELECT pg_current_snapshot()::text")
"""What it is changes whenever somebody on the server commits a change, also in another database."""
_RELATION = re.compile(r"(\d+)(?:\.(\d+))?")
_SEGMENT = re.compile(r"[0-9A-F]{24}(?:\.partial)?")
_TEMPORARY = "pgsql_tmp"
_OTHERS = ("pg_stat", "pg_stat_tmp", "pg_replslot")
_CONTROL_FILE = "global/pg_control"
_CHECKPOINT_AT = 32
_ATTEMPTS = 3
_HINT = "look from the server's machine, as a user who may read its data folder"
_ROLE = "as a role in pg_read_all_settings"
_ALWAYS_LEFT_OUT = (
    "files of other databases and schemas of the server: they are not ours",
    "free space and visibility maps, and sequences: they hold numbers",
)
_UNWRITTEN = (
    "the server may have pages in memory that it has not written, so a hit without a record may have one: "
    "look as a role in pg_checkpoint, which may ask it to write them"
)


@dataclass(slots=True)
class OpenedFiles:
    """The files, and what was left out and why."""

    files: list[KeptFile] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def checkpoint(connection: psycopg.Connection) -> bool:
    """Have the server write what it has changed in memory; whether it did as this role has asked."""
    try:
        connection.execute("CHECKPOINT")
    except errors.InsufficientPrivilege:
        return False
    return True


@contextlib.contextmanager
def opened_files(tx: Tx, place: PostgresPlace, *, wrote: bool) -> Iterator[OpenedFiles]:
    """The files of our tables and their indexes, those of no relation any more, the log, and what lies beside them.

    ``wrote``: whether the server has just written what it had in memory.
    """
    settings: dict[str, str] = dict(tx.rows(_SETTINGS))
    folder = settings.get("data_directory")
    found = OpenedFiles(left_out=list(_ALWAYS_LEFT_OUT))
    if folder is None:
        why = f"this role may not know where the server has its data: {_HINT}, and {_ROLE}"
        found.files.append(_closed(Path(place.shown), why))
        yield found
        return
    if (elsewhere := _is_elsewhere(tx, Path(folder))) is not None:
        found.files.append(_closed(Path(folder), elsewhere))
        yield found
        return
    if not wrote:
        found.files.append(_closed(Path(folder), _UNWRITTEN))
    with contextlib.ExitStack() as stack:
        opener = _Opener(Path(folder), stack, found.files)
        pages = int(settings["segment_size"])
        _open_relations(tx, opener, pages)
        for path in opener.listed(Path("pg_wal")):
            if _SEGMENT.fullmatch(path.name):
                opener.open(path, "wal")
        for name in _OTHERS:
            for path in opener.below(Path(name)):
                opener.open(path, "other")
        _open_server_log(opener, settings, found.left_out)
        if settings.get("archive_mode", "off") != "off":
            found.left_out.append("the archive of the write-ahead log: it lies where the server's settings send it")
        yield found


def _closed(path: Path, why: str) -> KeptFile:
    return KeptFile(path, "other", 0, lambda _offset, _length: b"", fault=why)


def _is_elsewhere(tx: Tx, folder: Path) -> str | None:
    """Why a folder of this machine is not the one of the server that answers; ``None`` when it is.

    Another server may have its data at the same place on another machine, or in a container.
    """
    for _ in range(_ATTEMPTS):
        try:
            control = (folder / _CONTROL_FILE).read_bytes()
        except OSError as fault:
            return f"the server's data folder cannot be read from here ({fault.strerror}): {_HINT}"
        here = [int.from_bytes(control[at : at + 8], "little") for at in (0, _CHECKPOINT_AT)]
        ((number, checkpoint),) = tx.rows(_CONTROL)
        if here == [int(number) % (1 << 64), int(checkpoint)]:
            return None
    return f"the folder of this name on this machine is another server's: {_HINT}"


class _Opener:
    """Opens files of the data folder, each for as long as a stack stands."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, files: list[KeptFile]) -> None:
        self.folder, self._stack, self._files = folder, stack, files

    def open(self, path: Path, form: FileForm, **of_relation: Any) -> None:
        """Open a file, or note why not."""
        whole = self.folder / path
        try:
            handle = os.open(whole, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            self._files.append(_closed(whole, "it went or was renamed meanwhile: look again"))
            return
        except OSError as fault:
            self._files.append(_closed(whole, f"it cannot be read ({fault.strerror}): {_HINT}"))
            return
        self._stack.callback(os.close, handle)
        self._files.append(KeptFile(whole, form, os.fstat(handle).st_size, partial(_read, handle), **of_relation))

    def listed(self, folder: Path) -> list[Path]:
        """The files in a folder, in order; one that is not there has none."""
        try:
            with os.scandir(self.folder / folder) as entries:
                return sorted(folder / entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        except OSError as fault:
            self._unlisted(fault)
            return []

    def below(self, folder: Path) -> Iterator[Path]:
        """The files in a folder and in the folders in it."""
        for path, _, names in os.walk(self.folder / folder, onerror=self._unlisted):
            yield from (Path(path, name).relative_to(self.folder) for name in sorted(names))

    def _unlisted(self, fault: OSError) -> None:
        if not isinstance(fault, FileNotFoundError):
            self._files.append(_closed(Path(fault.filename), f"it cannot be read ({fault.strerror}): {_HINT}"))


def _read(handle: int, offset: int, length: int) -> bytes:
    return os.pread(handle, length, offset)


def _open_relations(tx: Tx, opener: _Opener, segment_pages: int) -> None:
    """Our tables and their indexes in all their segments, and what lies beside them without belonging to anything."""
    ((of_classes,),) = tx.rows(_FOLDER)
    folders = {Path(of_classes).parent}
    kept: dict[Path, tuple[int, FileForm]] = {}
    for number, form, path in tx.rows(_KEPT):
        kept[Path(path)] = (number, form)
        folders.add(Path(path).parent)
    known = {number for (number,) in tx.rows(_NUMBERS)}
    missing = dict(kept)
    for path, number, segment in _relations_in(opener, folders):
        base = path.with_name(str(number))
        if base in kept:
            missing.pop(base, None)
            relation, form = kept[base]
            opener.open(path, form, relation=relation, first_page=segment * segment_pages)
        elif number not in known:
            opener.open(path, "other")
    for path in missing:
        opener.open(path, "other")
    for folder in sorted({Path("base"), *(folder.parent for folder in folders)}):
        for path in opener.below(folder / _TEMPORARY):
            opener.open(path, "other")


def _relations_in(opener: _Opener, folders: Iterable[Path]) -> Iterator[tuple[Path, int, int]]:
    for folder in sorted(folders):
        for path in opener.listed(folder):
            if (named := _RELATION.fullmatch(path.name)) is not None:
                yield path, int(named[1]), int(named[2] or 0)


def _open_server_log(opener: _Opener, settings: dict[str, str], left_out: list[str]) -> None:
    if settings.get("logging_collector") != "on":
        left_out.append("what the server logs: it goes to its standard error, wherever that is kept")
        return
    folder = Path(settings["log_directory"])
    for path in opener.listed(folder):
        opener.open(path, "other")
