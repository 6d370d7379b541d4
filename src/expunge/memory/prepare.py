"""What search will know of records, made before their transaction: an embedder may be slow, a writer may not wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from expunge.authority.port import Halves
from expunge.datamap import Collection, Kind
from expunge.memory.record import Record
from expunge.search import Entry, embed
from expunge.search.index import packed
from expunge.system import System

_MANY = 50
"""From so many records on the words are hashed in a thread, beside the embedder, so that others go on meanwhile."""


async def prepare(system: System, records: Iterable[Record]) -> None:
    """Give every record that search finds its entry.

    Raises:
        EmbedderFault: the embedder failed, so nothing is written.

    """
    found = [
        record for record in records if record.collection.searched and record.values.get("state", "live") == "live"
    ]
    if not found:
        return
    texts = [texts_of(record) for record in found]
    hashing = None
    if len(found) >= _MANY:
        hashing = asyncio.get_running_loop().run_in_executor(None, _hash, system, found, texts)
    vectors: Sequence[Halves | None] = [None] * len(found)
    if system.embedder is not None:
        limit = system.settings.embed_timeout_s
        vectors = packed(await embed(system.embedder, ["\n".join(text) for text in texts], limit))
    hashed = _hash(system, found, texts) if hashing is None else await hashing
    model = "" if system.embedder is None else system.embedder.name
    for record, (owner, words), vector in zip(found, hashed, vectors, strict=True):
        record.entry = Entry(owner, words, model, vector)


def _hash(system: System, records: Sequence[Record], texts: Sequence[list[str]]) -> list[tuple[str, str]]:
    owners: dict[tuple[str, ...], str] = {}
    hashed: list[tuple[str, str]] = []
    for record, text in zip(records, texts, strict=True):
        stored = record.identity.stored()
        if stored not in owners:
            owners[stored] = system.words.owner(stored)
        hashed.append((owners[stored], system.words.hashed(record.org, text)))
    return hashed


def texts_of(record: Record) -> list[str]:
    """What search reads of a record: its texts, and every text inside of its JSON."""
    texts: list[str] = []
    for name, is_json in _searched(record.collection):
        value = record.values[name]
        if value is not None and is_json:
            texts += strings_in(json.loads(value))
        elif value is not None:
            texts.append(value)
    return texts


@lru_cache
def _searched(kind: Collection) -> tuple[tuple[str, bool], ...]:
    """The columns that search reads, and which of them hold JSON."""
    kinds = {column.name: column.kind for column in kind.content}
    return tuple((name, kinds[name] is Kind.JSON) for name in kind.searched)


def strings_in(value: object) -> Iterator[str]:
    """Every text inside of some JSON: names, texts and numbers."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
