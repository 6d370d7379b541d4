"""The ledger: per org, an intent when an erasure opens and a receipt per subject when it ends, for ever."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from expunge.authority.orgs import LedgerHead, ask_ledger_head, set_ledger_head
from expunge.authority.port import Statement, Tx
from expunge.errors import DatabaseFault
from expunge.keys import SigningKey
from expunge.model.canonical import canonical_plain, digest
from expunge.model.instant import Instant, to_text
from expunge.proof.receipt import Occasion, Subject, said_by, sign

_APPEND = Statement(
    "ledger.append",
    """INSERT INTO ledger (org, n, kind, request_id, position, body)
    VALUES (:org, :n, :kind, :request_id, :position, :body)""",
)
_RECEIPTS_OF = Statement(
    "ledger.receipts_of",
    """SELECT position, body FROM ledger WHERE org = :org AND request_id = :request_id AND kind = 'receipt'
    ORDER BY n""",
)
_PAGE = Statement(
    "ledger.page",
    "SELECT n, kind, body FROM ledger WHERE org = :org AND n > :after ORDER BY n LIMIT :size",
)
_PAGE_ROWS = 1000
FORMAT = "expunge-ledger/1"


@dataclass(frozen=True, slots=True)
class Intent:
    """What an erasure is about to do: its scope by pseudonyms, one set per subject."""

    request_id: str
    org: str
    scope_type: str
    subjects: list[dict[str, str]]
    key_id: str
    purge: bool
    requested_at: Instant


def append_intent(tx: Tx, intent: Intent, at: LedgerHead) -> None:
    """Write an intent behind the head of the ledger: without it being durable nothing is erased (law 2)."""
    body = {
        "request_id": intent.request_id,
        "org": intent.org,
        "scope": {"type": intent.scope_type, "subjects": intent.subjects, "key_id": intent.key_id},
        "purge": intent.purge,
        "requested_at": to_text(intent.requested_at),
    }
    length, head = at
    values = {"org": intent.org, "request_id": intent.request_id, "position": 0}
    tx.send(_APPEND, n=length + 1, kind="intent", body=canonical_plain(body).decode(), **values)
    set_ledger_head(tx, intent.org, length + 1, head)


def append_receipts(
    tx: Tx, occasion: Occasion, subjects: Iterable[Subject], key: SigningKey, at: LedgerHead
) -> list[dict[str, Any]]:
    """Chain and sign a receipt per subject behind the head of the ledger; the receipts, as signed."""
    return _append(tx, occasion.org, enumerate(said_by(occasion, subjects)), key, at)


def append_follow_ups(
    tx: Tx,
    org: str,
    request_id: str,
    *,
    deferred: list[dict[str, str]],
    key: SigningKey,
) -> None:
    """Sign the newest receipts of a request again, with what is deferred now (design 4).

    ``verified_at`` stays the time of the census; that a follow-up is later, its place in the chain says.
    """
    news = {"deferred": deferred}
    newest = enumerate(receipts_of(tx, org, request_id))
    documents = [(position, json.loads(body) | news) for position, body in newest]
    _append(tx, org, documents, key, ask_ledger_head(tx, org)())


def _append(
    tx: Tx, org: str, documents: Iterable[tuple[int, dict[str, Any]]], key: SigningKey, at: LedgerHead
) -> list[dict[str, Any]]:
    length, head = at
    rows: list[dict[str, Any]] = []
    signed: list[dict[str, Any]] = []
    for position, said in documents:
        document, body = sign(said, head, key)
        signed.append(document)
        head, length = digest(body), length + 1
        values = {"org": org, "request_id": said["request_id"], "position": position}
        rows.append(values | {"n": length, "kind": "receipt", "body": body.decode()})
    tx.change_many(_APPEND, rows)
    set_ledger_head(tx, org, length, head)
    return signed


def receipts_of(tx: Tx, org: str, request_id: str) -> list[str]:
    """The newest receipt of each subject of a request, in the order in which the subjects were named."""
    newest: dict[int, str] = dict(tx.rows(_RECEIPTS_OF, org=org, request_id=request_id))
    return [newest[position] for position in sorted(newest)]


def read_ledger(tx: Tx, org: str, exported_at: Instant) -> list[str]:
    """The ledger of an org as the lines of a ledger file: a header, then every entry (law 11: to the end)."""
    length, head = ask_ledger_head(tx, org)()
    header = {
        "format": FORMAT,
        "org": org,
        "exported_at": to_text(exported_at),
        "length": length,
        "head": head,
    }
    lines = [canonical_plain(header).decode()]
    after = 0
    while page := tx.rows(_PAGE, org=org, after=after, size=_PAGE_ROWS):
        lines += [_line(n, kind, body) for n, kind, body in page]
        after = page[-1][0]
    return lines


def _line(n: int, kind: str, body: str) -> str:
    """An entry as a line of a ledger file.

    Raises:
        DatabaseFault: somebody changed it so that it cannot be read.

    """
    try:
        return canonical_plain({"n": n, kind: json.loads(body)}).decode()
    except (ValueError, RecursionError):
        raise DatabaseFault(
            f"entry {n} of the ledger cannot be read: it was changed",
            hint="compare it with a ledger file that was kept",
        ) from None
