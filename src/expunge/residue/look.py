"""Looking for texts in all that the stores keep, on one snapshot of the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from expunge.authority.port import KeptFile, Tx
from expunge.errors import NotOffered, StoreFault, StoreUnable
from expunge.residue.accounts import Accounts
from expunge.residue.bodies import Bodies, Shelf
from expunge.residue.database import Files
from expunge.residue.entries import FEWEST_WORDS, Entries
from expunge.residue.needles import SHORTEST, Form, Needle, database_forms, whole_forms
from expunge.residue.served import ServedFiles
from expunge.residue.tally import Tally, Unknown
from expunge.search import embed
from expunge.search.index import packed
from expunge.search.words import words_of
from expunge.stores import files_of
from expunge.system import System

_KEYS = "the key file: it holds keys and no text"
_BELOW = "blocks below the file system, backups, and copies on other machines"
_SHARED_MEMORY = "the shared memory of the log (-shm): it holds numbers of pages"


@dataclass(slots=True)
class Look:
    """What was looked at, and what was found."""

    tally: Tally
    looked: list[tuple[str, int]] = field(default_factory=list)
    """Each file with its bytes."""
    not_text: list[Unknown] = field(default_factory=list)
    not_searched: list[str] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    changed: bool = False
    """Whether somebody wrote into the database meanwhile; then it is best to look again."""


async def look(system: System, org: str, needles: Sequence[Needle]) -> Look:
    """Look for some texts in every file that the authority and the stores keep.

    Raises:
        NotOffered: the database lies in memory, so there are no files.
        EmbedderFault: the embedder gave no vectors to look for.

    """
    shelves, unknown = await _shelves(system)
    vectors = await _vectors(system, needles)
    words = _words(system, org, needles)
    now = system.clock.now()

    def work(tx: Tx, files: Sequence[KeptFile]) -> Look:
        if not files:
            raise NotOffered("a database in memory has no files to look into", hint="name a file: --db ./expunge.db")
        accounts, tally = Accounts(tx, now), Tally()
        database = database_forms(needles, vectors)
        left_out = []
        if any(file.form == "database" for file in files):
            Files(tx, files, accounts, database, tally).look(Entries(words))
            left_out = [_SHARED_MEMORY]
        else:
            ServedFiles(tx, files, accounts, database, tally).look(words)
        bodies = Bodies(accounts, whole_forms(needles), tally)
        bodies.look(shelves)
        looked = [(str(file.path), file.size) for file in files if file.fault is None]
        return Look(tally, [*looked, *bodies.looked], bodies.not_text, left_out)

    inspected = await system.authority.inspect(work)
    found = inspected.answer
    found.changed = inspected.changed
    found.tally.unknown += unknown
    found.not_searched = [_KEYS, *found.not_searched, *inspected.left_out, _BELOW, *_left_out(system, needles, words)]
    found.forms = [form for form in Form if form is not Form.VECTOR or vectors]
    return found


async def _shelves(system: System) -> tuple[list[Shelf], list[Unknown]]:
    """The files of each store; a store that shows none is unknown."""
    shelves, unknown = list[Shelf](), list[Unknown]()
    for store in system.stores:
        try:
            shelves.append(Shelf(store.name, store.collections, await files_of(store)))
        except StoreUnable:
            unknown.append(Unknown(f"store {store.name}", "it shows no files"))
        except StoreFault as fault:
            unknown.append(Unknown(f"store {store.name}", fault.message))
    return shelves, unknown


async def _vectors(system: System, needles: Sequence[Needle]) -> dict[int, list[bytes]]:
    """The vectors of each text as they are stored: of itself, and of the record that it came from."""
    if system.embedder is None:
        return {}
    texts = [(needle.number, text) for needle in needles for text in dict.fromkeys((needle.text, needle.record or ""))]
    texts = [(number, text) for number, text in texts if text]
    made = await embed(system.embedder, [text for _, text in texts], system.settings.embed_timeout_s)
    found: dict[int, list[bytes]] = {}
    for (number, _), stored in zip(texts, packed(made), strict=True):
        if stored is not None and len(stored) >= SHORTEST:
            found.setdefault(number, []).append(stored)
    return found


def _words(system: System, org: str, needles: Sequence[Needle]) -> dict[int, frozenset[bytes]]:
    """The hashes of the words of each text that has enough of them."""
    found = {}
    for needle in needles:
        if len(set(words_of(needle.text))) >= FEWEST_WORDS:
            found[needle.number] = frozenset(system.words.hashed(org, [needle.text]).encode().split())
    return found


def _left_out(system: System, needles: Sequence[Needle], words: Mapping[int, object]) -> list[str]:
    left = []
    if few := len(needles) - len(words):
        left.append(f"the search index, for {few} texts of fewer than {FEWEST_WORDS} different words")
    if system.embedder is None:
        left.append("vectors: no embedder is set")
    return left
