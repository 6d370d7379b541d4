"""Answers: kept to be given again to the same question, and gone with any record that they quote (design 4, retire)."""

from __future__ import annotations

from expunge.authority.port import Statement, Tx
from expunge.memory.jobs import read_sources
from expunge.model.identity import PARTS, Identity
from expunge.model.instant import Instant


def answer_to(tx: Tx, identity: Identity, asked: str, now: Instant) -> tuple[str, str, list[str]] | None:
    """The newest answer that is kept and has not expired: its id, its text, and what it quotes.

    One of which a quoted record is not served any more (it was deleted, replaced, or has expired) is not given again.
    """
    stored = dict(zip(("org", *PARTS), identity.stored(), strict=True))
    rows = tx.rows(_KEPT, asked=asked, now=now, **stored)
    if not rows:
        return None
    answer_id, text = rows[0]
    quoted = [source for (source,) in tx.rows(_QUOTED, org=identity.org, id=answer_id)]
    served, _ = read_sources(tx, identity.org, answer_id, now)
    return (answer_id, text, quoted) if len(served) == len(quoted) else None


_KEPT = Statement(
    "answers.kept",
    """SELECT r.id, r.answer FROM answers r WHERE r.org = :org AND r.asked = :asked AND unindexed(r.user_id) = :user_id
    AND unindexed(r.namespace) = :namespace AND unindexed(r.agent) = :agent AND unindexed(r.session_id) = :session_id
    AND r.marked = 0 AND (r.expires_at IS NULL OR r.expires_at > :now) ORDER BY r.rid DESC LIMIT 1""",
)
_QUOTED = Statement("answers.quoted", "SELECT source FROM lineage WHERE derived = :id AND org = :org ORDER BY source")
