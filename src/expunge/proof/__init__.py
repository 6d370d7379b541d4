"""Proof: signed receipts in a chain per org, the ledger that keeps them, and their verification."""

from expunge.proof.erased import ErasedIn, erased_since
from expunge.proof.ledger import (
    Intent,
    append_follow_ups,
    append_intent,
    append_receipts,
    read_ledger,
    receipts_of,
)
from expunge.proof.receipt import Occasion, Subject
from expunge.proof.verify import Check, verify

__all__ = [
    "Check",
    "ErasedIn",
    "Intent",
    "Occasion",
    "Subject",
    "append_follow_ups",
    "append_intent",
    "append_receipts",
    "erased_since",
    "read_ledger",
    "receipts_of",
    "verify",
]
