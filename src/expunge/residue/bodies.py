"""Looking into the files in which stores keep bodies: their names, their bytes, and what they compress."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

from expunge.residue.accounts import Account, Accounts, nothing
from expunge.residue.containers import Opener, Readable
from expunge.residue.needles import Sought
from expunge.residue.scan import Patterns, scan_stream
from expunge.residue.tally import Place, Tally, Unknown
from expunge.stores import StoredFile


@dataclass(frozen=True, slots=True)
class Shelf:
    """The files of a store, of the bodies of some collections."""

    store: str
    collections: frozenset[str]
    files: Sequence[StoredFile]


@dataclass(slots=True)
class Bodies:
    """Looks into shelves, and notes what was looked at."""

    accounts: Accounts
    sought: Sought
    tally: Tally
    not_text: list[Unknown] = field(default_factory=list)
    looked: list[tuple[str, int]] = field(default_factory=list)
    """Each file with its bytes."""

    def look(self, shelves: Sequence[Shelf]) -> None:
        """Look into every file. One that went meanwhile is passed over: what is not there holds nothing."""
        patterns = Patterns(self.sought.patterns)
        for shelf in shelves:
            for file in shelf.files:
                self._look_into(shelf, file, patterns)

    def _look_into(self, shelf: Shelf, file: StoredFile, patterns: Patterns) -> None:
        if not file.named_by_us:
            name = file.name.encode(errors="surrogateescape")
            for _, number in sorted(patterns.find(name)):
                self._add(number, Place(str(file.path), None, None, "the name of a file"), nothing("no name has text"))
        if not file.regular:
            self.tally.unknown.append(Unknown(str(file.path), "it is no file, and links are not followed"))
            return
        try:
            with os.fdopen(os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
                self.looked.append((str(file.path), os.fstat(stream.fileno()).st_size))
                self._look_through(shelf, file, stream, patterns)
        except FileNotFoundError:
            return
        except OSError as fault:
            self.tally.unknown.append(Unknown(str(file.path), f"it cannot be read: {fault.strerror}"))

    def _look_through(self, shelf: Shelf, file: StoredFile, stream: IO[bytes], patterns: Patterns) -> None:
        account: Account | None = None

        def seen(found_in: Readable, within: str | None) -> None:
            nonlocal account
            for offset, number in scan_stream(found_in.read, patterns):
                account = account or self.accounts.of_ref(shelf.collections, file.name)
                words = f"a body of {', '.join(sorted(shelf.collections))}"
                self._add(number, Place(str(file.path), offset, within, words), account)

        opener = Opener(seen)
        opener.open(stream)
        self.tally.unknown += [Unknown(str(file.path), why) for why in opener.unknown]
        if opener.not_text is not None:
            self.not_text.append(Unknown(str(file.path), opener.not_text))

    def _add(self, number: int, place: Place, account: Account) -> None:
        for meaning in self.sought.meanings[number]:
            self.tally.add(meaning, place, account)
