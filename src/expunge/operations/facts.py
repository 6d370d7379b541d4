"""``facts.*`` and ``blocks.*``: what is known of somebody, and an agent's working memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from expunge.authority.port import Tx
from expunge.datamap import BLOCKS, FACTS
from expunge.memory import prepare
from expunge.memory.blocks import drop_block, working, write_block
from expunge.memory.drafts import draft, id_for
from expunge.memory.facts import Asked, facts_of
from expunge.memory.record import predicate_of
from expunge.memory.versions import Row, Work
from expunge.model.instant import from_datetime, to_datetime, to_text
from expunge.operations.memory import MOST_AT_ONCE, IdempotencyKey, moment, owner
from expunge.operations.registry import Call, Input, Instants, OrgId, Output, Text, Where, Who, id_of
from expunge.search.served import EVER
from expunge.system import System


class NewFact(Input):
    """A statement. It holds from ``valid_from`` (now, when it is left out) until ``valid_to``, that not included.

    An ``exclusive`` one holds alone: of two with the same subject and predicate and another object, the one that begins
    earlier ends where the later one begins. ``sources`` are the records that it was learned from.
    """

    subject: str
    predicate: str
    object: str
    valid_from: Instants | None = None
    valid_to: Instants | None = None
    exclusive: bool = True
    confidence: float | None = None
    sources: Sequence[str] = ()
    idempotency_key: IdempotencyKey | None = None


class AddFactsInput(Who):
    """Whose facts, and 1 to 1,000 of them."""

    facts: Annotated[list[NewFact], Field(min_length=1, max_length=MOST_AT_ONCE)]


class AddFactsOutput(Output):
    """The ids of the facts, in order, and how many of them were there already."""

    ids: list[str]
    skipped: int


async def add_facts(system: System, call: Call, given: AddFactsInput) -> AddFactsOutput:
    """Write facts, all or nothing, in any order of their times."""
    identity, work = given.identity, Work(system, given.identity, call.as_of)
    now = system.clock.now()
    records = []
    for line, fact in enumerate(given.facts, start=1):
        begins = now if fact.valid_from is None else from_datetime(fact.valid_from, "valid_from")
        fields: dict[str, Any] = fact.model_dump(include={"subject", "object", "exclusive", "confidence", "sources"})
        fields |= {"predicate": predicate_of(fact.predicate), "id": id_for(FACTS, identity, fact.idempotency_key)}
        if not (fact.valid_from is None and fact.idempotency_key is not None):  # a repeat would begin at another time
            fields["valid_from"] = to_text(begins)
        if fact.valid_to is not None:
            fields["valid_to"] = to_text(from_datetime(fact.valid_to, "valid_to"))
        records.append(draft(system, FACTS, identity, fields, line=line))
    await prepare(system, records)
    outcome = await system.authority.run(lambda tx: work.put(tx, records))
    return AddFactsOutput(ids=[record.id for record in records], skipped=outcome.skipped)


class Fact(Output):
    """A statement, and when it holds: until ``ends``, where it says so itself or where another contradicts it."""

    id: str
    subject: str
    predicate: str
    object: str
    valid_from: datetime | None
    valid_to: datetime | None
    ends: datetime | None
    recorded_at: datetime
    exclusive: bool
    confidence: float | None
    namespace: str | None
    agent: str | None
    user_id: str | None
    session_id: str | None


def fact_of(row: Row) -> Fact:
    """A row as answers give it."""
    values: dict[str, Any] = {name: row[name] for name in ("id", "subject", "predicate", "object", "confidence")}
    values |= {name: moment(row[name]) for name in ("valid_from", "valid_to", "ends")}
    values |= {"recorded_at": to_datetime(row["recorded_at"]), "exclusive": bool(row["exclusive"])}
    return Fact(**values, **owner(row))


class FactsInput(Input):
    """Which facts: about what, of whom, as known at a time; all of them, or those that hold at a time."""

    org: OrgId
    where: Where = Where()
    subject: Text | None = None
    predicate: Text | None = None
    valid_at: Instants | None = Field(None, description="Holding then; now, when it is left out.")
    known_at: Instants | None = Field(None, description="As it was known then; now, when it is left out.")
    at_any_time: bool = Field(default=False, description="Also those that do not hold any more, or not yet.")
    limit: int = Field(50, ge=1, le=MOST_AT_ONCE)


class FactsOutput(Output):
    """Facts, the latest beginning first; ``more`` when the limit left some out."""

    facts: list[Fact]
    more: bool


async def list_facts(system: System, _call: Call, given: FactsInput) -> FactsOutput:
    """List facts by what they are about and when they hold."""
    known = EVER if given.known_at is None else from_datetime(given.known_at, "known_at")
    holding = min(known, system.clock.now()) if given.valid_at is None else from_datetime(given.valid_at, "valid_at")
    asked = Asked(
        org=given.org,
        parts=given.where.parts,
        subject=given.subject,
        predicate=None if given.predicate is None else predicate_of(given.predicate),
        valid_at=None if given.at_any_time else holding,
        known_at=known,
        limit=given.limit + 1,
    )
    rows = await system.authority.read(partial(facts_of, asked=asked))
    return FactsOutput(facts=[fact_of(row) for row in rows[: given.limit]], more=len(rows) > given.limit)


Name = Annotated[str, id_of("name")]


class BlockInput(Who):
    """A block of somebody's: its name, what it says, where it stands in the order (kept when it is left out)."""

    name: Name
    content: str
    append: bool = False
    pinned_order: int | None = Field(None, ge=0)
    sources: Sequence[str] = ()
    idempotency_key: IdempotencyKey | None = None


class Block(Output):
    """A named piece of working memory."""

    name: str
    content: str
    version: int
    updated_at: datetime
    pinned_order: int | None


def block_of(row: Row) -> Block:
    """A row as answers give it."""
    return Block(
        name=row["name"],
        content=row["content"] or "",
        version=row["version"],
        updated_at=to_datetime(row["updated_at"]),
        pinned_order=row["pinned_order"],
    )


async def update_block(system: System, call: Call, given: BlockInput) -> Block:
    """Write a block, or add to its end."""
    fields: dict[str, Any] = given.model_dump(include={"name", "content", "pinned_order", "sources"})
    fields["id"] = id_for(BLOCKS, given.identity, given.idempotency_key)
    record = draft(system, BLOCKS, given.identity, fields)
    write = partial(
        write_block,
        work=Work(system, given.identity, call.as_of),
        record=record,
        append=given.append,
        keep_order=given.pinned_order is None,
    )
    return block_of(await system.authority.run(write))


class BlocksOutput(Output):
    """Blocks in their order."""

    blocks: list[Block]


async def list_blocks(system: System, _call: Call, given: Who) -> BlocksOutput:
    """Read the blocks of an identity in their order."""
    rows = await system.authority.read(lambda tx: working(tx, given.identity))
    return BlocksOutput(blocks=[block_of(row) for row in rows])


class BlockNameInput(Who):
    """Whose block, by name."""

    name: Name


class DeleteBlockOutput(Output):
    """Whether there was a block."""

    found: bool


async def delete_block(system: System, call: Call, given: BlockNameInput) -> DeleteBlockOutput:
    """Write a tombstone over a block."""
    record = draft(system, BLOCKS, given.identity, {"name": given.name})
    work = Work(system, given.identity, call.as_of)

    def unit(tx: Tx) -> bool:
        return drop_block(tx, work, record)

    return DeleteBlockOutput(found=await system.authority.run(unit))
