"""What pseudonyms of the audit stand for: who acted and who had asked, apart from the chain, and erasable.

Whom an entry speaks of is nowhere filed: who holds the keys finds entries by an id, and no id in an entry.
One row for each name, however many entries speak of it; so a person is taken out of all of them at once. Nobody is
filed whose erasure runs, or ended after the work began that names them (law 4).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from expunge.authority.port import GuardKey, Statement, Tx
from expunge.errors import Refused
from expunge.keys import KeyRing
from expunge.model.ids import NOBODY
from expunge.model.instant import Instant

_FILED = Statement("audit_clear.filed", "SELECT 1 FROM audit_clear WHERE pseudonym = :pseudonym")
_FILE = Statement(
    "audit_clear.file",
    """INSERT INTO audit_clear (pseudonym, key_id, org, part, name, seq)
    VALUES (:pseudonym, :key_id, :org, :part, :name, :seq)""",
)
_NAMES_OF = Statement(
    "audit_clear.names_of",
    """SELECT c.pseudonym, c.name FROM each_text(:pseudonyms) j CROSS JOIN audit_clear c
    WHERE c.pseudonym = j.value AND c.org = :org""",
)
_NAMES_IN = Statement("audit_clear.names_in", "SELECT DISTINCT name FROM audit_clear WHERE org = :org")
_REMOVE = Statement(
    "audit_clear.remove",
    "DELETE FROM audit_clear WHERE name IN (SELECT value FROM each_text(:names)) AND org = :org",
)
_REMOVE_ALL = Statement("audit_clear.remove_all", "DELETE FROM audit_clear WHERE org = :org")


@dataclass(frozen=True, slots=True)
class Name:
    """A pseudonym, of which part (``actor``, ``requester``), and what it stands for."""

    pseudonym: str
    part: str
    name: str


def file_names(
    tx: Tx, keys: KeyRing, org: str, names: Iterable[Name], *, at: Instant, seq: int, as_of: int | None
) -> None:
    """Note what pseudonyms stand for, once each. ``seq`` is the org's erasure counter now."""
    for item in names:
        if tx.rows(_FILED, pseudonym=item.pseudonym):
            continue
        whose = keys.matches(org, (NOBODY, NOBODY, item.name, NOBODY))
        if _was_erased(tx, GuardKey(org, whose, at), seq if as_of is None else as_of):
            continue
        tx.send(
            _FILE,
            pseudonym=item.pseudonym,
            key_id=keys.current.id,
            org=org,
            part=item.part,
            name=item.name,
            seq=seq,
        )


def _was_erased(tx: Tx, key: GuardKey, as_of: int) -> bool:
    try:
        tx.guard([key], as_of)
    except Refused:
        return True
    return False


def names_of(tx: Tx, org: str, pseudonyms: Iterable[str]) -> dict[str, str]:
    """What pseudonyms stand for, as far as it has not been erased."""
    return dict(tx.rows(_NAMES_OF, org=org, pseudonyms=json.dumps(list(pseudonyms))))


def names_in(tx: Tx, org: str) -> list[str]:
    """Every name that is filed in an org."""
    return [name for (name,) in tx.rows(_NAMES_IN, org=org)]


def remove_named(tx: Tx, org: str, names: Sequence[str]) -> None:
    """Remove these names, as whatever they are filed; the chain stays as it is."""
    tx.send(_REMOVE, org=org, names=json.dumps(list(names), ensure_ascii=False))


def remove_all(tx: Tx, org: str) -> None:
    """Remove every name of an org."""
    tx.send(_REMOVE_ALL, org=org)
