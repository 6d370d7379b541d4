"""The selector: how a scope becomes SQL over any collection of records (law 1).

Every target of a scope narrows the same identity parts, so one statement serves all of them: the targets come in as
a JSON array of objects ``{"t": position, "user_id": …, "before": …}`` in the parameter ``:targets``. Only names
from the data map are put into the text; ids are always parameters (law 12).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from expunge.authority.port import Statement
from expunge.datamap.collection import Collection
from expunge.model.scope import Scope, Target


@dataclass(frozen=True, slots=True)
class Selector:
    """Which parts the targets of a scope narrow: what the text of a statement depends on."""

    parts: tuple[str, ...]
    dated: bool

    @classmethod
    def of(cls, scope: Scope) -> Selector:
        """The selector that serves every target of a scope."""
        return cls(tuple(scope.targets()[0].named()), scope.before is not None)

    def where(self, collection: Collection) -> str:
        """The records ``r`` of a collection that the target ``j`` selects."""
        terms = ["r.org = :org"]
        terms += [f"r.{part} = json_extract(j.value, '$.{part}')" for part in self.parts]
        if self.dated:
            terms.append(f"r.{collection.time} < json_extract(j.value, '$.before')")
        return " AND ".join(terms)


def as_parameter(targets: Iterable[tuple[int, Target]]) -> str:
    """Targets with their positions, as the ``:targets`` parameter."""
    return json.dumps(
        [{"t": position, "before": target.before} | target.named() for position, target in targets],
        ensure_ascii=False,
    )


@lru_cache
def count_in_scope(collection: Collection, selector: Selector) -> Statement:
    """Rows ``(position, count)`` of the records in scope that are older than ``:seq``."""
    return Statement(
        f"{collection.name}.count_in_scope",
        f"""SELECT json_extract(j.value, '$.t'), count(*) FROM json_each(:targets) j CROSS JOIN {collection.name} r
        WHERE {selector.where(collection)} AND r.seq < :seq GROUP BY 1""",
    )
