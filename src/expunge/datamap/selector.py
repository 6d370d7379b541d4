"""The selector: how a scope becomes SQL over any collection of records (law 1).

Every target of a scope narrows the same identity parts, so one statement serves all of them: the targets come in as
a JSON array of objects ``{"t": position, "user_id": …, "before": …}`` in the parameter ``:targets``. Only names
from the data map are put into the text; ids are always parameters (law 12).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from expunge.authority.port import Statement, Tx
from expunge.datamap.collection import Collection
from expunge.datamap.collections import RECORDS
from expunge.model.canonical import to_json
from expunge.model.ids import NOBODY
from expunge.model.scope import Scope, Target

_NUMBERS = frozenset({"t", "before"})


@dataclass(frozen=True, slots=True)
class Selector:
    """Which parts the targets of a scope narrow, and whether it has but one: what a statement's text depends on.

    One target is read in place. To join it as a table of one row costs more than all else in a small statement.
    """

    parts: tuple[str, ...]
    dated: bool
    one: bool = False

    @property
    def reached(self) -> tuple[Collection, ...]:
        """The collections in which the scope selects records by whose they are; elsewhere they go by lineage alone."""
        return tuple(collection for collection in RECORDS if collection.reached_by(self.parts))

    @classmethod
    def of(cls, scope: Scope) -> Selector:
        """The selector that serves every target of a scope."""
        return cls(tuple(scope.targets[0].named()), scope.before is not None, len(scope.targets) == 1)

    def joined(self, collection: Collection) -> str:
        """The FROM of a statement over the targets ``j`` and the records ``r`` of a collection, for ``where``."""
        return f"{collection.name} r" if self.one else f"each_object(:targets) j CROSS JOIN {collection.name} r"

    def field(self, name: str) -> str:
        """A field of the target ``j``: a part of an identity is a text, ``t`` and ``before`` are numbers."""
        kind = "number" if name in _NUMBERS else "text"
        return f"first_{kind}(:targets, '{name}')" if self.one else f"{kind}_in(j.value, '{name}')"

    def _row(self, part: str) -> str:
        """A part of the record ``r``. A user is the narrowest, so no other index is offered beside theirs."""
        return f"unindexed(r.{part})" if part != "user_id" and "user_id" in self.parts else f"r.{part}"

    def where(self, collection: Collection) -> str:
        """The records ``r`` of a collection that the target ``j`` selects."""
        terms = ["r.org = :org"]
        terms += [f"{self._row(part)} = {self.field(part)}{_somebody(part)}" for part in self.parts]
        if self.dated:
            terms.append(f"r.{collection.time} < {self.field('before')}")
        return " AND ".join(terms)

    def within(self, collection: Collection) -> str:
        """The records ``r`` that any target selects, for a statement that cannot join them.

        A scope lists several values of one part at most, so its targets are all the combinations of their values, and
        they have one date.
        """
        if self.one:
            return self.where(collection)
        terms = ["r.org = :org"]
        terms += [
            f"{self._row(part)} IN (SELECT text_in(value, '{part}') FROM each_object(:targets)){_somebody(part)}"
            for part in self.parts
        ]
        if self.dated:
            terms.append(f"r.{collection.time} < first_number(:targets, 'before')")
        return " AND ".join(terms)


def _somebody(part: str) -> str:
    """No scope names nobody; said where the index of a part leaves the rows of nobody out, so that it can be used."""
    return "" if part == "user_id" else f" AND r.{part} <> '{NOBODY}'"


def as_parameter(targets: Iterable[tuple[int, Target]]) -> str:
    """Targets with their positions, as the ``:targets`` parameter."""
    return to_json([{"t": position, "before": target.before} | target.named() for position, target in targets])


def count_scope(tx: Tx, scope: Scope) -> dict[str, Counter[int]]:
    """How many records each target selects, by collection; hidden, held and newer ones too."""
    counts: dict[str, Counter[int]] = {kind.name: Counter() for kind in RECORDS}
    values = {"org": scope.org, "targets": as_parameter(enumerate(scope.targets))}
    selector = Selector.of(scope)
    names = [collection.name for collection in selector.reached]
    for position, *found in tx.rows(count_everywhere(selector), **values):
        for name, count in zip(names, found, strict=True):
            if count:
                counts[name][position] = count
    return counts


@lru_cache
def count_everywhere(selector: Selector) -> Statement:
    """Rows of a position and, for each collection that is reached, how many records the target selects."""
    counts = ", ".join(
        f"(SELECT count(*) FROM {collection.name} r WHERE {selector.where(collection)})"
        for collection in selector.reached
    )
    targets = "" if selector.one else " FROM each_object(:targets) j"
    return Statement("records.count_everywhere", f"SELECT {selector.field('t')}, {counts}{targets}")
