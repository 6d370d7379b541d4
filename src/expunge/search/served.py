"""What reads serve: nothing that is marked by an erasure, has expired, or was deleted or replaced (design 4, 6)."""

from __future__ import annotations

from collections.abc import Mapping

from expunge.datamap import DOCUMENTS, Collection

_SAME = ("org", "namespace", "user_id", "agent", "session_id")


def served(kind: Collection) -> str:
    """The records ``r`` of a collection that reads serve. Takes ``:now``; of facts ``:valid_at`` and ``:known_at``."""
    terms = ["r.marked = 0"]
    if kind.versioned_by is not None:
        terms += ["r.state = 'live'", is_current(kind)]
    if any(column.name == "expires_at" for column in kind.columns):
        terms.append("(r.expires_at IS NULL OR r.expires_at > :now)")
    if kind.name == "facts":
        terms += _HOLDS
    if kind.parent is not None and kind.parent.collection == "documents":
        terms.append(_OF_SERVED_DOCUMENT)
    return " AND ".join(terms)


def is_current(kind: Collection, row: str = "r") -> str:
    """That no newer version of the same key is there. Hidden ones do not count: what they replaced is current again."""
    same = " AND ".join(f"n.{column} = {row}.{column}" for column in (*_SAME, kind.versioned_by))
    return f"""NOT EXISTS (SELECT 1 FROM {kind.name} n WHERE {same} AND n.marked = 0
        AND (n.updated_at, n.version) > ({row}.updated_at, {row}.version))"""


def narrowed(parts: Mapping[str, str]) -> str:
    """The records ``r`` of ``:org`` that belong to all of some parts. The planner is left one index to take."""
    lead = next((part for part in ("user_id", "session_id", "agent", "namespace") if part in parts), None)
    terms = ["r.org = :org"]
    for part, value in parts.items():
        if part == lead:
            terms.append(f"r.{part} = :{part}")
            if part != "user_id" and value != "-":
                terms.append(f"r.{part} <> '-'")
        else:
            terms.append(f"unindexed(r.{part}) = :{part}")
    return " AND ".join(terms)


EVER = 9223372036854775807
"""Later than every instant: as everything is known now, also what a clock that stepped back has dated later."""


def begins(fact: str) -> str:
    """When a fact begins to hold: one that does not say so has always held."""
    return f"coalesce({fact}.valid_from, -{EVER})"


def contradicts(one: str, other: str) -> str:
    """That the fact ``one`` begins after ``other``, or with it and was learned later, and cannot hold beside it."""
    names = ("org", "user_id", "namespace", "subject", "predicate_key")
    same = " AND ".join(f"{one}.{name} = {other}.{name}" for name in names)
    same += "".join(f" AND digest({one}.{name}) = digest({other}.{name})" for name in ("subject", "predicate_key"))
    order = [f"({begins(fact)}, {fact}.recorded_at, {fact}.rid)" for fact in (one, other)]
    return f"""{same} AND {one}.exclusive = 1 AND {other}.exclusive = 1 AND {one}.object <> {other}.object
        AND {order[0]} > {order[1]}"""


ENDS = f"""least(coalesce(r.valid_to, {EVER}), coalesce((
    SELECT min({begins("o")}) FROM facts o
    WHERE {contradicts("o", "r")} AND o.marked = 0 AND o.recorded_at <= :known_at), {EVER}))"""
"""When a fact stops to hold: where it says so, or where the next one that contradicts it begins, in whichever order
they were learned. Nothing is stored for it, so an erasure of the one makes the other hold again by itself."""
_HOLDS = ["r.recorded_at <= :known_at", f"{begins('r')} <= :valid_at", f":valid_at < {ENDS}"]
_OF_SERVED_DOCUMENT = f"""EXISTS (SELECT 1 FROM documents d WHERE d.org = r.org AND d.id = r.document
    AND d.marked = 0 AND d.state = 'live' AND {is_current(DOCUMENTS, "d")})"""
