"""What units of work wait for each other by: advisory locks of the transaction, which end with it (design 6).

A key is two whole numbers: a hash of the org, and which lock of the org. Two orgs whose hashes are the same wait for
each other, and see nothing of each other.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from expunge.authority.port import GuardKey
from expunge.authority.postgres.sending import Sending
from expunge.model.identity import PARTS

STRIPES = 1024
"""Of scopes, and of names, for each org."""
MOST_STRIPES = 128
"""A unit that would take more takes one lock for all of them: the server has room for some thousands of locks."""
_PATIENCE_S = 0.05
_PAUSE_S = 0.005
_NARROWEST_FIRST = ("user_id", "session_id", "agent", "namespace")
_LEAD, _MANY_SCOPES, _MANY_NAMES, _WORKS, _FIRST_SCOPE = 0, 1, 2, 3, 1 << 16
_FIRST_NAME = 2 << 16


class Again(Exception):
    """The unit asked for a lock after others that come later in the order, and it is taken: it begins anew."""


@dataclass(slots=True)
class Locks:
    """The locks of one transaction. The first ones of a sort are waited for, in their order.

    Later ones are only taken when they are free: to wait for them could be to wait for each other.
    """

    sending: Sending
    _held: dict[tuple[str, int], bool] = field(default_factory=dict)
    """By org and number, whether it is held alone."""
    _waited: set[str] = field(default_factory=set)

    def lead(self, org: str, sealing: Iterable[GuardKey] = ()) -> None:
        """The erasures of an org work one after the other: marks of one are read by the other.

        While one waits for who writes into its scope, it has nothing that those could wait for.
        """
        self._take("lead", org, [_LEAD], shared=False)
        self.seal(sealing)
        self._take("works", org, [_WORKS], shared=False)

    @property
    def leads(self) -> bool:
        """Whether the unit works at an erasure. It waits for rows, and who does not work at one never waits for it."""
        return any(number == _LEAD for _, number in self._held)

    def settle(self, org: str, *, has_rows: bool) -> None:
        """Come to the row of the org, which is waited for: so nothing is waited for after it.

        An erasure may have that row and wait for rows of this unit, so a unit that has some lets none begin, and waits
        only for a moment for one that works just now.
        """
        self._waited.update(("scope", "names"))
        if not has_rows or (org, _WORKS) in self._held:
            return
        give_up = time.monotonic() + _PATIENCE_S
        while not self._ask(org, [_WORKS], shared=True, waits=False):
            if time.monotonic() >= give_up:
                raise Again
            time.sleep(_PAUSE_S)

    def enter(self, keys: Iterable[GuardKey]) -> None:
        """Shared: among the units that write."""
        for org, stripes in _by_org(keys).items():
            wanted = sorted(stripes) if len(stripes) <= MOST_STRIPES else [_MANY_SCOPES]
            self._take("scope", org, wanted, shared=True)

    def seal(self, keys: Iterable[GuardKey]) -> None:
        """Alone: none that writes into these scopes is inside, nor gets in."""
        by_org: dict[str, set[int]] = {}
        for key in keys:
            by_org.setdefault(key.org, {_MANY_SCOPES}).add(_stripe_of_scope(key))
        for org, stripes in by_org.items():
            self._take("scope", org, sorted(stripes), shared=False)

    def hold_names(self, org: str, names: Iterable[str]) -> None:
        """Alone with some names, beside units with other ones; with very many, alone with all."""
        stripes = sorted({_FIRST_NAME + _hash(name) % STRIPES for name in names})
        beside = self._held.get((org, _MANY_NAMES)) is False
        if not stripes:
            return
        if len(stripes) > MOST_STRIPES and not beside:
            self._take("names", org, [_MANY_NAMES], shared=False)
        elif not self._held.get((org, _MANY_NAMES)):
            if not beside:
                waits = "names" not in self._waited
                self._take("names", org, [_MANY_NAMES], shared=True)
                if waits:
                    self._waited.discard("names")
            self._take("names", org, stripes, shared=False)

    def _take(self, sort: str, org: str, wanted: list[int], *, shared: bool) -> None:
        """Take what is not held yet, or is held beside others and wanted alone."""
        missing = [n for n in wanted if (org, n) not in self._held or not (shared or self._held[org, n])]
        if not missing:
            return
        waits = sort not in self._waited
        self._waited.add(sort)
        if not self._ask(org, missing, shared=shared, waits=waits):
            raise Again

    def _ask(self, org: str, wanted: list[int], *, shared: bool, waits: bool) -> bool:
        """Ask the server for locks, in their order; whether it gave them."""
        call = f"pg_{'' if waits else 'try_'}advisory_xact_lock{'_shared' if shared else ''}"
        text = f"SELECT {call}(%s::int, k) FROM unnest(%s::int[]) AS k"
        sent = self.sending.send(text, (_hash(org) - (1 << 31), wanted))
        if not waits and not all(taken for (taken,) in sent.fetchall()):
            return False
        self._held.update(((org, number), not shared) for number in wanted)
        return True


def _by_org(keys: Iterable[GuardKey]) -> dict[str, set[int]]:
    """The stripes of what is written: of the org, and of each part of the identity, for any of them may be sealed."""
    found: dict[str, set[int]] = {}
    for key in keys:
        stripes = found.setdefault(key.org, {_FIRST_SCOPE + _hash("org") % STRIPES})
        stripes.update(_stripe(part, names[0]) for part, names in zip(PARTS, key.parts, strict=True))
    return found


def _stripe_of_scope(key: GuardKey) -> int:
    """The stripe of the narrowest part of a scope: whoever writes into it has this one among their own."""
    named = {part: names[0] for part, names in zip(PARTS, key.parts, strict=True) if names}
    part = next((part for part in _NARROWEST_FIRST if part in named), None)
    return _FIRST_SCOPE + _hash("org") % STRIPES if part is None else _stripe(part, named[part])


def _stripe(part: str, pseudonym: str) -> int:
    """By the pseudonym under the oldest key, which every ring holds."""
    return _FIRST_SCOPE + _hash(f"{part}\0{pseudonym}") % STRIPES


def _hash(text: str) -> int:
    return zlib.crc32(text.encode())
