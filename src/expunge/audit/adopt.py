"""Bringing the audit of an older database into the chain, once, when it is first opened with its keys."""

from __future__ import annotations

import json

from expunge.audit.chain import Entry, record
from expunge.authority.orgs import audit_head
from expunge.authority.port import Statement, Tx
from expunge.keys import KeyRing

_WAITS = Statement(
    "audit.waits",
    "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'audit_unchained')",
    postgres="SELECT FALSE",  # its first schema has the chain
)
_ORGS = Statement("audit.unchained_orgs", "SELECT DISTINCT org FROM audit_unchained ORDER BY org")
_OLD = Statement(
    "audit.unchained",
    """SELECT u.n, u.at, u.actor, u.role, u.operation, u.outcome, u.request_id, u.subjects, u.detail, (
        SELECT json_extract(l.body, '$.scope.key_id') FROM ledger l
        WHERE l.request_id = u.request_id AND l.org = u.org AND l.kind = 'intent' LIMIT 1)
    FROM audit_unchained u WHERE u.org = :org AND u.n > :after ORDER BY u.n LIMIT :size""",
)
_DROP = Statement("audit.drop_unchained", "DROP TABLE audit_unchained")
_ACTORS = Statement("requests.clear_actors", "SELECT rid, org, actor, key_id FROM requests")
_RENAME = Statement("requests.rename_actor", "UPDATE requests SET actor = :actor WHERE rid = :rid")
_PAGE_ROWS = 1000
_FIRST = 0


def waits(tx: Tx) -> bool:
    """Whether entries from before the chain are still to be brought into it."""
    return bool(tx.rows(_WAITS)[0][0])


def adopt(tx: Tx, keys: KeyRing) -> None:
    """Chain what was written before there was a chain, in its order, and let its table go.

    Each such entry says that it was ``adopted``: until then nothing had kept anybody from changing it. The free text of
    who had asked is dropped, and nobody is named who has been erased since. An org that has a chain adopts nothing.
    """
    if not waits(tx):
        return
    for (org,) in tx.rows(_ORGS):
        if audit_head(tx, org)[0] == _FIRST:
            _adopt_org(tx, keys, org)
    tx.send(_DROP)
    for rid, org, actor, key_id in tx.rows(_ACTORS):
        tx.send(_RENAME, rid=rid, actor=keys.pseudonym_key(key_id).pseudonym(org, "actor", actor))


def _adopt_org(tx: Tx, keys: KeyRing, org: str) -> None:
    after = _FIRST
    while page := tx.rows(_OLD, org=org, after=after, size=_PAGE_ROWS):
        for _, at, actor, role, operation, outcome, request_id, subjects, detail, key_id in page:
            counts = {name: value for name, value in json.loads(detail).items() if name != "requester"}
            record(
                tx,
                keys,
                Entry(
                    org=org,
                    at=at,
                    actor=actor,
                    role=role,
                    operation=operation,
                    outcome=outcome,
                    request_id=request_id,
                    subjects=json.loads(subjects),
                    subjects_key=key_id,
                    detail=counts | {"adopted": True},
                    as_of=_FIRST,
                ),
            )
        after = page[-1][0]
