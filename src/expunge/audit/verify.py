"""Verifying a chain: the first entry that is not as it was written, and an end that was cut off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from expunge.audit.chain import START, Head, chain_of, chain_secret, link
from expunge.authority.orgs import audit_head
from expunge.authority.port import Row, Statement, Tx
from expunge.keys import KeyRing

_PAGE = Statement(
    "audit.page", "SELECT n, key_id, body, mac FROM audit WHERE org = :org AND n > :after ORDER BY n LIMIT :size"
)
_CLEAR = Statement(
    "audit_clear.page",
    """SELECT pseudonym, key_id, part, name FROM audit_clear WHERE org = :org AND pseudonym > :after
    ORDER BY pseudonym LIMIT :size""",
)
_PAGE_ROWS = 2000

BROKEN = "broken"
MISSING = "missing"
REORDERED = "reordered"
CUT = "cut"
UNKNOWN_KEY = "unknown key"
REWRITTEN = "rewritten"
MISNAMED = "misnamed"

_BELOW_ALL = -(1 << 63)
"""Before any number that a row can have: one that no entry has is a fault, too."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The first thing that is wrong, and with which entry.

    ``broken``: it is not what was written there. ``missing``: none has its number. ``reordered``: it stands elsewhere.
    ``cut``: it was there once, and the chain ends before it. ``unknown key``: the key file does not hold its key.
    ``rewritten``: it is not the one that was remembered. ``misnamed``: the chain is whole, and what is filed for a
    pseudonym is not what it stands for (``n`` is 0).
    """

    kind: str
    n: int
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many entries the chain has, its head, and the first fault, if there is one."""

    entries: int
    head: Head
    fault: Fault | None


def verify(tx: Tx, keys: KeyRing, org: str, remembered: Head | None = None) -> Verdict:
    """Go through the chain of an org from its first entry (law 11: to the end), in one snapshot.

    ``remembered`` is a head that somebody kept elsewhere: only with it a cut is seen that takes the org's own note of
    its head with it.
    """
    length, noted, _ = audit_head(tx, org)
    last, mac, fault = _walk(tx, keys, org, remembered)
    if fault is None and length != last:
        if length > last:
            fault = Fault(CUT, last + 1, f"the org notes {length} entries")
        else:
            fault = Fault(BROKEN, length + 1, f"the org notes {length} entries")
    if fault is None and (noted or START) != mac:
        fault = Fault(BROKEN, last, "the org notes another head")
    if fault is None and remembered is not None and remembered.n > last:
        fault = Fault(CUT, last + 1, f"{remembered.n} entries are remembered")
    return Verdict(last, Head(org, last, mac.hex()), fault or _misnamed(tx, keys, org))


def _walk(tx: Tx, keys: KeyRing, org: str, remembered: Head | None) -> tuple[int, bytes, Fault | None]:
    """The last entry that is as it was written, its MAC, and what is wrong with the next one."""
    secrets = {key.id: chain_secret(key) for key in keys.pseudonym_keys}
    chain = chain_of(org)
    kept_n, kept = (-1, b"") if remembered is None else (remembered.n, bytes.fromhex(remembered.mac))
    last, previous = 0, START
    for page in _pages(tx, org):
        for n, key_id, body, mac in page:
            if n < 1:
                return last, previous, Fault(BROKEN, n, "entries are numbered from 1")
            secret = secrets.get(key_id)
            if n != last + 1 or secret is None or link(secret, (chain, n, key_id), previous, body) != mac:
                return last, previous, _Search(tx, org, secrets).what_is_wrong(last + 1, previous)
            if n == kept_n and mac != kept:
                return last, previous, Fault(REWRITTEN, n, "it is not the entry that is remembered")
            last, previous = n, mac
    return last, previous, None


def _pages(tx: Tx, org: str) -> Iterator[list[Row]]:
    after = _BELOW_ALL
    while page := tx.rows(_PAGE, org=org, after=after, size=_PAGE_ROWS):
        yield page
        after = page[-1][0]


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for what has become of an entry."""

    tx: Tx
    org: str
    secrets: Mapping[str, bytes]

    def what_is_wrong(self, n: int, previous: bytes) -> Fault:
        """Whether what belongs at ``n`` stands elsewhere in the org, is missing, or is not what was written."""
        chain, there = chain_of(self.org), None
        for page in _pages(self.tx, self.org):
            for other, key_id, body, mac in page:
                if other == n:
                    there = key_id
                    continue
                secret = self.secrets.get(key_id)
                if secret is not None and link(secret, (chain, n, key_id), previous, body) == mac:
                    return Fault(REORDERED, n, f"it stands at {other}")
        if there is None:
            return Fault(MISSING, n, "none has its number, and later ones are there")
        if there not in self.secrets:
            return Fault(UNKNOWN_KEY, n, "the key file does not hold the key that it names")
        return Fault(BROKEN, n, "it is not what was written there")


def _misnamed(tx: Tx, keys: KeyRing, org: str) -> Fault | None:
    held = {key.id: key for key in keys.pseudonym_keys}
    after = ""
    while page := tx.rows(_CLEAR, org=org, after=after, size=_PAGE_ROWS):
        for pseudonym, key_id, part, name in page:
            if key_id not in held or held[key_id].pseudonym(org, part, name) != pseudonym:
                return Fault(MISNAMED, 0, f"another name is filed for {pseudonym}")
        after = page[-1][0]
    return None
