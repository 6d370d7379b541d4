"""Audit: who did what, to which pseudonyms, with which outcome (laws 2 and 14): a chain of entries for each org.

The actor and the subjects are different fields. An entry holds pseudonyms and counts; what a pseudonym stands for
stands apart (``clear``), can be erased, and the chain still verifies.
"""

from expunge.audit.adopt import adopt, waits
from expunge.audit.chain import Entry, Head, head, latest, record
from expunge.audit.clear import names_in, names_of, remove_all, remove_named
from expunge.audit.listing import Filter, Listed, page, unreadable
from expunge.audit.verify import Fault, Verdict, verify

__all__ = [
    "Entry",
    "Fault",
    "Filter",
    "Head",
    "Listed",
    "Verdict",
    "adopt",
    "head",
    "latest",
    "names_in",
    "names_of",
    "page",
    "record",
    "remove_all",
    "remove_named",
    "unreadable",
    "verify",
    "waits",
]
