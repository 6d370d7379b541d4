"""``search.*`` and ``answers.*``: finding records, and answers that rest on what was found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from expunge.authority.port import Tx
from expunge.datamap import ANSWERS, CHUNKS, EPISODES, FACTS, MEMORIES, SEARCHED, Collection
from expunge.memory.answers import answer_to
from expunge.memory.drafts import draft
from expunge.memory.facts import ends_of
from expunge.memory.record import asked_as
from expunge.memory.reindex import Unindexed, reindex_page
from expunge.memory.said import said
from expunge.memory.versions import Row, Work, by_rids
from expunge.model.instant import from_datetime, to_datetime, to_text
from expunge.operations.memory import MOST_AT_ONCE, owner
from expunge.operations.registry import Call, Input, Instants, OrgId, Output, Text, Where, Who
from expunge.search import Found, Query, embed, find, newest
from expunge.search.served import EVER
from expunge.system import System

Kind = Literal["episodes", "memories", "facts", "chunks"]
_KINDS: Mapping[str, Collection] = {kind.name: kind for kind in (EPISODES, MEMORIES, FACTS, CHUNKS)}
_DAY_S = 86_400


class SearchInput(Input):
    """What is looked for, in which collections, and narrowed to whose records.

    ``alpha`` is the share that words have in the rank; the rest is the vectors'. Without a text the newest are given.
    """

    org: OrgId
    query: Text = ""
    kinds: Annotated[Sequence[Kind], Field(min_length=1)] = ("episodes", "memories", "facts", "chunks")
    where: Where = Where()
    limit: int = Field(10, ge=1, le=MOST_AT_ONCE)
    alpha: float = Field(0.5, ge=0, le=1)
    since: Instants | None = Field(None, description="Dated then or later.")
    until: Instants | None = Field(None, description="Dated earlier than that.")
    valid_at: Instants | None = Field(None, description="Of facts: holding then; now, when it is left out.")
    known_at: Instants | None = Field(None, description="Of facts: as known then; now, when it is left out.")
    memory_type: Text | None = Field(None, description="Of memories: of this type.")


class Hit(Output):
    """A record that was found: its collection, its id, what it says, whose it is, and why it ranks as it does.

    ``by_words`` and ``by_vector`` are its ranks among what the words and the vectors found, from 1.
    """

    collection: str
    id: str
    text: str
    record: dict[str, Any]
    occurred_at: datetime
    score: float
    by_words: int | None
    by_vector: int | None
    namespace: str | None
    agent: str | None
    user_id: str | None
    session_id: str | None


class SearchOutput(Output):
    """What was found, best first. ``vectors`` says what the query's vector was compared with.

    ``all`` that the filter lets through, the ``newest`` of it and what the words found (above ``vector_scan_rows``), or
    ``none``.
    """

    hits: list[Hit]
    vectors: Literal["all", "newest", "none"]


async def search(system: System, _call: Call, given: SearchInput) -> SearchOutput:
    """Find records by words and by meaning. What is hidden, deleted, replaced or expired is never found."""
    query = await _query(system, given)
    found, rows = await system.authority.read(partial(_find, query=query, system=system))
    hits = [_hit(hit, rows[hit.kind.name, hit.rid]) for hit in found.hits]
    return SearchOutput.model_construct(hits=hits, vectors=found.compared)


async def _query(system: System, given: SearchInput) -> Query:
    embedder, vector = system.embedder, None
    if embedder is not None and given.alpha < 1 and given.query.strip():
        vector = (await embed(embedder, [given.query], system.settings.embed_timeout_s))[0]
    instants = {
        name: None if (moment := getattr(given, name)) is None else from_datetime(moment, name)
        for name in ("since", "until", "valid_at", "known_at")
    }
    return Query(
        org=given.org,
        kinds=tuple(_KINDS[name] for name in dict.fromkeys(given.kinds)),
        text=given.query,
        parts=given.where.parts,
        now=system.clock.now(),
        limit=given.limit,
        vector=vector,
        model="" if embedder is None else embedder.name,
        scan=system.settings.vector_scan_rows,
        weight=given.alpha,
        memory_type=given.memory_type,
        **instants,
    )


def _find(tx: Tx, *, query: Query, system: System) -> tuple[Found, dict[tuple[str, int], Row]]:
    found = find(tx, query, system.words) if query.text.strip() else newest(tx, query)
    rows: dict[tuple[str, int], Row] = {}
    for kind in query.kinds:
        rids = [hit.rid for hit in found.hits if hit.kind is kind]
        if rids:
            rows |= {(kind.name, row["rid"]): row for row in by_rids(tx, kind, rids)}
    facts = [rid for name, rid in rows if name == FACTS.name]
    if facts:
        known = EVER if query.known_at is None else query.known_at
        for rid, ends in ends_of(tx, json.dumps(facts), known).items():
            rows[FACTS.name, rid]["ends"] = ends
    return found, rows


def _hit(hit: Any, row: Row) -> Hit:
    record, text = said(hit.kind, row)
    ranks = {"score": hit.score, "by_words": hit.by_words, "by_vector": hit.by_vector}
    return Hit.model_construct(
        collection=hit.kind.name,
        id=row["id"],
        text=text,
        record=record,
        occurred_at=to_datetime(row[hit.kind.time]),
        **ranks,
        **owner(row),
    )


class KeptInput(Who):
    """Whose answer to which question; ``within`` tells what it was put to apart."""

    question: Text
    within: str = ""


class KeptOutput(Output):
    """An answer that was kept, and the ids of the records that it quotes; not ``found`` when there is none."""

    found: bool
    answer: str | None
    quotes: list[str]


async def kept(system: System, _call: Call, given: KeptInput) -> KeptOutput:
    """Give an answer again that was kept; not when a record that it quotes is not served any more."""
    asked, now = asked_as(given.identity, given.question, given.within), system.clock.now()
    found = await system.authority.read(lambda tx: answer_to(tx, given.identity, asked, now))
    if found is None:
        return KeptOutput(found=False, answer=None, quotes=[])
    return KeptOutput(found=True, answer=found[1], quotes=found[2])


class KeepInput(Who):
    """An answer to be kept: to which question, resting on which records, for how many seconds (a day)."""

    question: Text
    answer: Text
    within: str = ""
    quotes: Annotated[Sequence[str], Field(min_length=1)]
    ttl_seconds: Annotated[int, Field(gt=0, le=100 * 366 * _DAY_S)] = _DAY_S


class KeepOutput(Output):
    """The id of the answer."""

    id: str


async def keep(system: System, call: Call, given: KeepInput) -> KeepOutput:
    """Keep an answer with its lineage: it goes with any record that it quotes (design 4, retire)."""
    expires = to_text(system.clock.now() + given.ttl_seconds * 1_000_000)
    fields: dict[str, Any] = {"question": given.question, "answer": given.answer, "sources": list(given.quotes)}
    fields |= {"asked": asked_as(given.identity, given.question, given.within), "expires_at": expires}
    record = draft(system, ANSWERS, given.identity, fields)
    work = Work(system, given.identity, call.as_of)
    await system.authority.run(lambda tx: work.put(tx, [record]))
    return KeepOutput(id=record.id)


class ReindexInput(Input):
    """Which org; ``everything`` also makes anew what is there already."""

    org: OrgId
    everything: bool = False


class ReindexOutput(Output):
    """How many records got an entry, by collection."""

    indexed: dict[str, int]


_PAGE = 500


async def reindex(system: System, _call: Call, given: ReindexInput) -> ReindexOutput:
    """Give records their entries in the search index that have none: after an upgrade, or under another embedder."""
    indexed: dict[str, int] = {}
    for kind in SEARCHED:
        after: int | None = 0
        indexed[kind.name] = 0
        while after is not None:
            asked = Unindexed(given.org, kind, after, _PAGE, everything=given.everything)
            after, count = await reindex_page(system, asked)
            indexed[kind.name] += count
    return ReindexOutput(indexed=indexed)
