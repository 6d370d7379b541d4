"""Counting again: the census of an erasure that ended, by pseudonyms, whenever somebody asks."""

from __future__ import annotations

from typing import Any

from expunge.authority.port import Tx
from expunge.census import Question, count_left, count_left_by_pseudonym
from expunge.erasure.request import find_request
from expunge.model.instant import to_text
from expunge.system import System


async def recount(system: System, org: str, request_id: str) -> dict[str, Any]:
    """Count what is older than an erasure and still there, by identity; who came back is left alone (design 5).

    Raises:
        UnknownRequest: the org has no such request.

    """

    def unit(tx: Tx) -> dict[str, Any]:
        system.check_keys(tx)
        request = find_request(tx, org, request_id)
        seq = request.lowered_seq or request.fence_seq or 0
        question = Question(org, request.rid, seq)
        if request.scope is not None:
            counts = count_left(tx, question, request.scope.targets)
        else:
            key = system.keys.pseudonym_key(request.key_id)
            counts = count_left_by_pseudonym(tx, question, request.subjects, key, request.before)
        census = store_census(system.authority.name, counts)
        return {
            "request_id": request.id,
            "status": request.status,
            "counted_at": to_text(system.clock.now()),
            "residue_count": sum(census.values()),
            "census": census,
        }

    return await system.authority.read_apart(unit)


def store_census(store: str, counts: list[dict[str, int]]) -> dict[str, int]:
    """Counts summed over subjects, keyed ``store.collection``."""
    names = counts[0] if counts else {}
    return {f"{store}.{name}": sum(count[name] for count in counts) for name in names}
