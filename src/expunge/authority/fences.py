"""The fence check of the guard (law 4): one text for both authorities, and what its answer means."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from expunge.authority.port import GuardKey, Row, Statement
from expunge.errors import ErasedSince, ErasureInProgress


@lru_cache
def fences_of(keys: int) -> Statement:
    """The fences that refuse a unit, for a ring of so many keys: a part matches by any of its pseudonyms, '' all."""

    def matches(column: str, letter: str) -> str:
        return f"{column} IN ('', {', '.join(f':{letter}{index}' for index in range(keys))})"

    return Statement(
        "fences.guard",
        f"""SELECT request_id, lowered_seq FROM fences
        WHERE org = :org AND {matches("user_pn", "u")} AND {matches("namespace_pn", "n")}
          AND {matches("session_pn", "s")} AND {matches("agent_pn", "a")}
          AND (lowered_seq IS NULL OR lowered_seq > :as_of)
          AND (before IS NULL OR before > :dated)""",
    )


def values_of(key: GuardKey, as_of: int) -> dict[str, Any]:
    """The parameters of ``fences_of``."""
    values: dict[str, Any] = {"org": key.org, "as_of": as_of, "dated": key.dated}
    for letter, pseudonyms in zip("naus", key.parts, strict=True):
        values |= {f"{letter}{index}": value for index, value in enumerate(pseudonyms)}
    return values


def refuse(found: Sequence[Row]) -> None:
    """Refuse the unit for what ``fences_of`` found: one that is up before all others.

    Raises:
        ErasureInProgress: a fence is up.
        ErasedSince: a fence came down after the unit began.

    """
    if not found:
        return
    request_id, lowered = min(found, key=lambda row: row[1] is not None)
    if lowered is None:
        raise ErasureInProgress(f"erasure {request_id} of this scope is running", request_id=request_id)
    raise ErasedSince(f"erasure {request_id} of this scope ended after the work began", request_id=request_id)
