"""The one row that an org has: its erasure counter, and the heads of its ledger and of its audit."""

from __future__ import annotations

from collections.abc import Callable

from expunge.authority.port import Row, Statement, Tx
from expunge.errors import InputError

_ENSURE = Statement(
    "orgs.ensure",
    """INSERT INTO orgs (org) SELECT :org WHERE NOT EXISTS (SELECT 1 FROM orgs WHERE org = :org)
    ON CONFLICT DO NOTHING""",
)
"""It looks first: an insert alone would wait for a unit that is changing the row, to see whether it stays."""
_NEXT_SEQ = Statement("orgs.next_seq", "UPDATE orgs SET seq = seq + 1 WHERE org = :org RETURNING seq")
_SEQS = Statement("orgs.seqs", "SELECT org, seq FROM orgs WHERE seq > 0")
_SEQ = Statement("orgs.seq", "SELECT seq FROM orgs WHERE org = :org")
_HEAD = Statement("orgs.head", "SELECT ledger_length, ledger_head FROM orgs WHERE org = :org")
_SET_HEAD = Statement("orgs.set_head", "UPDATE orgs SET ledger_length = :length, ledger_head = :head WHERE org = :org")
_AUDIT_HEAD = Statement("orgs.audit_head", "SELECT audit_length, audit_head, seq FROM orgs WHERE org = :org")
_SET_AUDIT_HEAD = Statement(
    "orgs.set_audit_head", "UPDATE orgs SET audit_length = :length, audit_head = :head WHERE org = :org"
)


def ensure_org(tx: Tx, org: str) -> None:
    """Give an org its row when it has none."""
    tx.send(_ENSURE, org=org)


def next_seq(tx: Tx, org: str) -> int:
    """Raise the erasure counter of an org; its new value."""
    raised = tx.rows(_NEXT_SEQ, org=org)
    if not raised:
        ensure_org(tx, org)
        raised = tx.rows(_NEXT_SEQ, org=org)
    return int(raised[0][0])


def seqs(tx: Tx) -> dict[str, int]:
    """The erasure counter of every org that has one; the others stand at 0."""
    return dict(tx.rows(_SEQS))


def seq_of(tx: Tx, org: str) -> int:
    """The erasure counter of one org."""
    rows = tx.rows(_SEQ, org=org)
    return int(rows[0][0]) if rows else 0


def expect_seq(tx: Tx, org: str, as_of: int) -> None:
    """Refuse a unit that says it began later than the org's erasure counter stands.

    Raises:
        InputError: the counter is of another database, or of one that was restored since.

    """

    def check(rows: list[Row]) -> None:
        if as_of > (rows[0][0] if rows else 0):
            raise InputError("as_of is later than this database", hint="take it from the database that is written to")

    tx.expect(check, _SEQ, org=org)


LedgerHead = tuple[int, str | None]
"""How many entries an org's ledger has, and the hash of its newest receipt."""


def ask_ledger_head(tx: Tx, org: str) -> Callable[[], LedgerHead]:
    """The head of an org's ledger."""
    answer = tx.ask(_HEAD, org=org)
    return lambda: next(((length, head) for length, head in answer()), (0, None))


def set_ledger_head(tx: Tx, org: str, length: int, head: str | None) -> None:
    """Move the head of an org's ledger, which was read in this unit: what has no entry yet may have no row."""
    if length == 1:
        ensure_org(tx, org)
    tx.send(_SET_HEAD, org=org, length=length, head=head)


def audit_head(tx: Tx, org: str) -> tuple[int, bytes | None, int]:
    """How many entries the org's audit has, the MAC of its newest one, and the org's erasure counter."""
    rows = tx.rows(_AUDIT_HEAD, org=org)
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else (0, None, 0)


def set_audit_head(tx: Tx, org: str, length: int, head: bytes) -> None:
    """Move the head of an org's audit; as ``set_ledger_head``."""
    if length == 1:
        ensure_org(tx, org)
    tx.send(_SET_AUDIT_HEAD, org=org, length=length, head=head)
