"""The data map: every collection, declared once (law 3)."""

from expunge.datamap.collection import Act, Collection, Column, Kind, Parent, Role, Rule
from expunge.datamap.collections import ATTACHMENTS, COLLECTIONS, LINEAGE, RECORDS, collection

__all__ = [
    "ATTACHMENTS",
    "COLLECTIONS",
    "LINEAGE",
    "RECORDS",
    "Act",
    "Collection",
    "Column",
    "Kind",
    "Parent",
    "Role",
    "Rule",
    "collection",
]
