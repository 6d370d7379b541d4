"""The name of a store, made with it: by it an export tells where it came from. A copy of the store keeps the name."""

from __future__ import annotations

from expunge.authority.port import Statement, Tx

_ID = Statement("store.id", "SELECT id FROM store")


def store_id(tx: Tx) -> str:
    """The name of the store."""
    return str(tx.rows(_ID)[0][0])
