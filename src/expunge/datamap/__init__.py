"""The data map: every collection, declared once (law 3)."""

from expunge.datamap.collection import Act, Collection, Column, Kind, Parent, Role, Rule
from expunge.datamap.collections import COLLECTIONS, LINEAGE, RECORDS, collection

__all__ = [
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
