"""Counting: the census of an erasure, when it ends and again whenever somebody asks."""

from __future__ import annotations

from typing import Any

from expunge.authority.port import Tx
from expunge.census import Question, count_left, count_left_by_pseudonym
from expunge.erasure.outside import Named, ask_named, count_outside
from expunge.erasure.request import Counts, Request, find_request, in_store
from expunge.model.instant import to_text
from expunge.system import System


def count_inside(tx: Tx, *, system: System, request: Request) -> tuple[Counts, Named]:
    """The census of the authority, by subject: by clear ids while they are known, afterwards by pseudonyms.

    With it the bodies that marked rows name: what ``count_outside`` asks the stores for.
    """
    bound = request.lowered_seq or request.fence_seq or 0
    question = Question(request.org, request.rid, bound, system.words.owned_by, live=not request.purge)
    named = ask_named(tx, request)
    if request.scope is not None:
        return count_left(tx, question, request.scope.targets), named()
    key = system.keys.pseudonym_key(request.key_id)
    return count_left_by_pseudonym(tx, question, request.subjects, key, request.before), named()


async def recount(system: System, org: str, request_id: str) -> dict[str, Any]:
    """Count what is older than an erasure and still there; who came back is left alone (design 5).

    Of an erasure that hides, what is served is counted.

    Raises:
        UnknownRequest: the org has no such request.
        StoreFault: a store did not answer.

    """

    def unit(tx: Tx) -> tuple[Request, tuple[Counts, Named]]:
        system.check_keys(tx)
        request = find_request(tx, org, request_id, system.clock.now())
        return request, count_inside(tx, system=system, request=request)

    request, (counts, named) = await system.authority.read_apart(unit)
    if request.purge:
        outside = await count_outside(system, request, named)
        counts = [mine | theirs for mine, theirs in zip(counts, outside, strict=True)]
    census = summed(counts, system.authority.name)
    return {
        "request_id": request.id,
        "status": request.status,
        "purge": request.purge,
        "counted_at": to_text(system.clock.now()),
        "residue_count": sum(census.values()),
        "census": census,
    }


def summed(counts: Counts, store: str) -> dict[str, int]:
    """Counts summed over subjects, keyed ``store.collection``."""
    names = counts[0] if counts else {}
    return in_store({name: sum(count[name] for count in counts) for name in names}, store)
