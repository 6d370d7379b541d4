"""What reads serve: nothing that is marked by an erasure, has expired, or was deleted or replaced (design 4, 6)."""

from __future__ import annotations

from collections.abc import Mapping

from expunge.datamap import Collection

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
            terms.append(f"+r.{part} = :{part}")
    return " AND ".join(terms)


EVER = 9223372036854775807
"""Later than every instant: as everything is known now, also what a clock that stepped back has dated later."""
_FIRST = f"-{EVER}"
ENDS = f"""min(coalesce(r.valid_to, {EVER}), CASE WHEN r.exclusive = 0 THEN {EVER} ELSE coalesce((
    SELECT min(coalesce(o.valid_from, {_FIRST})) FROM facts o
    WHERE o.org = r.org AND o.user_id = r.user_id AND o.subject = r.subject AND o.predicate_key = r.predicate_key
    AND o.exclusive = 1 AND o.namespace = r.namespace AND o.object <> r.object AND o.marked = 0
    AND o.recorded_at <= :known_at
    AND (coalesce(o.valid_from, {_FIRST}), o.recorded_at, o.rid)
        > (coalesce(r.valid_from, {_FIRST}), r.recorded_at, r.rid)
), {EVER}) END)"""
"""When a fact stops to hold: where it says so, or where the next one that contradicts it begins, in whichever order
they were learned. Nothing is stored for it, so an erasure of the one makes the other hold again by itself."""
_HOLDS = ["r.recorded_at <= :known_at", f"coalesce(r.valid_from, {_FIRST}) <= :valid_at", f":valid_at < {ENDS}"]
_OF_SERVED_DOCUMENT = """EXISTS (SELECT 1 FROM documents d WHERE d.org = r.org AND d.id = r.document
    AND d.marked = 0 AND d.state = 'live' AND NOT EXISTS (SELECT 1 FROM documents n
        WHERE n.org = d.org AND n.namespace = d.namespace AND n.user_id = d.user_id AND n.agent = d.agent
        AND n.session_id = d.session_id AND n.title = d.title AND n.marked = 0
        AND (n.updated_at, n.version) > (d.updated_at, d.version)))"""
