"""What was found: every hit counted, some of each text shown."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from expunge.residue.accounts import Account, Standing
from expunge.residue.needles import Form, Meaning

SHOWN = 100
"""How many hits of a text are shown at most, and how many of them that nothing accounts for; all are counted."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a hit stands: in which file at which byte, inside of what in it, and in which part of a database."""

    file: str
    offset: int | None
    within: str | None
    words: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that was found, by its number: in which form, where, and what accounts for it."""

    needle: int
    form: Form
    is_part: bool
    place: Place
    account: Account


@dataclass(frozen=True, slots=True)
class Unknown:
    """A file, or a place of bodies, of which nobody can say what stands in it, and why."""

    file: str
    why: str


@dataclass(slots=True)
class Tally:
    """Counts hits as they come, and keeps the first of each text."""

    hits: Counter[int] = field(default_factory=Counter)
    """By needle, whole ones; so are the others."""
    residue: Counter[int] = field(default_factory=Counter)
    """Those that nothing accounts for, pieces too."""
    parts: Counter[int] = field(default_factory=Counter)
    """Pieces of a long text that stand by themselves."""
    hidden: Counter[int] = field(default_factory=Counter)
    """Those in records that an erasure has hidden."""
    unknown: list[Unknown] = field(default_factory=list)
    _accounted: dict[int, list[Hit]] = field(default_factory=lambda: defaultdict(list))
    _residue: dict[int, list[Hit]] = field(default_factory=lambda: defaultdict(list))

    def add(self, meaning: Meaning, place: Place, account: Account) -> None:
        """Count a hit. A piece that a record accounts for says nothing by itself, and is counted alone."""
        number = meaning.needle
        (self.parts if meaning.is_part else self.hits)[number] += 1
        self.hidden[number] += account.standing is Standing.HIDDEN
        if account.accounts and meaning.is_part:
            return
        self.residue[number] += not account.accounts
        kept = (self._accounted if account.accounts else self._residue)[number]
        if len(kept) < SHOWN:
            kept.append(Hit(number, meaning.form, meaning.is_part, place, account))

    def shown(self) -> list[Hit]:
        """The hits that are shown: by text, and of each first what nothing accounts for."""
        return [
            hit
            for number in sorted(self._accounted.keys() | self._residue.keys())
            for hit in (*self._residue.get(number, ()), *self._accounted.get(number, ()))
        ]
