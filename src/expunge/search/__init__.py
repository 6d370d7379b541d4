"""Search: words by keyed hashes, meaning by vectors, and what is found of both (design 6)."""

from expunge.search.embedder import Embedder, HashingEmbedder, embed
from expunge.search.find import Found, Hit, find, newest
from expunge.search.index import Entry, add_entries
from expunge.search.query import Query
from expunge.search.words import Words

__all__ = [
    "Embedder",
    "Entry",
    "Found",
    "HashingEmbedder",
    "Hit",
    "Query",
    "Words",
    "add_entries",
    "embed",
    "find",
    "newest",
]
