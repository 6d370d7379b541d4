"""What the tests of agents share: identities, raw reads and writes, embedders that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from expunge import Agent, Expunge, HashingEmbedder
from expunge.authority.port import Statement
from expunge.model.canonical import canonical
from expunge.proof import verify
from tests.eye import spelled

ORG, NAMESPACE, HELPER = "acme", "support", "helper"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""Where a ManualClock begins."""
DAY_S = 86_400
MICROSECOND = 0.000001
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 (what has no zone is refused)


def as_user(expunge: Expunge, user_id: str | None = "ann", **who: Any) -> Agent:
    """An agent that helps a user, on a system that is shared."""
    identity = {"org": ORG, "namespace": NAMESPACE, "agent": HELPER, "user_id": user_id} | who
    return Agent(expunge, **identity)


def after(**span: float) -> datetime:
    """A time after the beginning of the clock."""
    return NOW + timedelta(**span)


async def read(expunge: Expunge, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    """Rows as they stand in the database."""
    statement = Statement("test.read", spelled(expunge.settings.db, sql))
    return await expunge.system.authority.read(lambda tx: tx.rows(statement, **values))


async def change(expunge: Expunge, sql: str, **values: Any) -> int:
    """Change rows behind everybody's back."""
    return await expunge.system.authority.run(lambda tx: tx.change(Statement("test.change", sql), **values))


async def count(expunge: Expunge, *tables: str) -> dict[str, int]:
    """How many rows tables have, hidden ones too."""
    return {name: (await read(expunge, f"SELECT count(*) FROM {name}"))[0][0] for name in tables}


async def hold(expunge: Expunge, user_id: str) -> None:
    """Place a hold on a user: its operations come later."""
    await change(expunge, "INSERT INTO holds (org, user_id, placed_at) VALUES (:org, :user, 0)", org=ORG, user=user_id)


def is_verified(expunge: Expunge, receipt: dict[str, Any]) -> bool:
    """Whether a receipt verifies under the keys of the system."""
    keys = {key.id: key.private.public_key() for key in expunge.system.keys.signing_keys}
    return all(check.passed for check in verify(canonical(receipt), keys))


def texts(found: Iterable[Any]) -> list[str]:
    """What hits say."""
    return [hit.text for hit in found]


def objects(found: Iterable[Any]) -> set[str]:
    """What facts say."""
    return {fact.object for fact in found}


class Moody(HashingEmbedder):
    """An embedder that does what its mood says; without one it embeds."""

    def __init__(self, mood: str | None = None) -> None:
        super().__init__(8)
        self.name, self.mood = "moody", mood

    async def embed(self, texts: Sequence[str]) -> Any:
        match self.mood:
            case "raises":
                raise RuntimeError("no model")
            case "hangs":
                await asyncio.Event().wait()
            case "short":
                return [[1.0] * 7 for _ in texts]
            case "fewer":
                return [[1.0] * 8 for _ in texts][1:]
            case "nan":
                return [[float("nan")] * 8 for _ in texts]
            case "words":
                return ["one"] * len(texts)
            case "nothing":
                return None
        return await super().embed(texts)


MOODS = ("raises", "hangs", "short", "fewer", "nan", "words", "nothing")
