"""Values under keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Unpack

from expunge.agent.bound import Bound, Who, listed
from expunge.operations.memory import (
    DeleteOutput,
    GetOutput,
    HistoryOutput,
    OnExpire,
    RestoreRowOutput,
    SetOutput,
    SweepOutput,
    TouchOutput,
)

Lineage = Literal["retire", "rebuild", "detach"]


class Rows:
    """Values under keys of an identity, each change a version (seed page Loom, "Deleting memory")."""

    _bound: Bound

    async def set(
        self,
        key: str,
        value: Any,
        *,
        memory_type: str | None = None,
        tags: Sequence[str] | None = None,
        confidence: float | None = None,
        ttl_seconds: int | None = None,
        valid_to: datetime | None = None,
        on_expire: OnExpire | None = None,
        clear_expiry: bool = False,
        sources: Sequence[str] = (),
        lineage: Lineage | None = None,
        if_version: int | None = None,
        idempotency_key: str | None = None,
        **who: Unpack[Who],
    ) -> SetOutput:
        """Write a value (any JSON) under a key, as its next version.

        It is served for ``ttl_seconds``, or until ``valid_to``; without either an expiry that lives is kept, unless
        ``clear_expiry``. ``sources`` are the ids of what it was made from; ``if_version`` is the version to follow.

        Raises:
            InputError: a field does not fit. IdempotencyConflict: the key has written something else.
            VersionConflict: another version stands. ErasureInProgress, ErasedSince, HiddenByErasure (laws 4, 5).
            EmbedderFault: the embedder failed; nothing was written.

        """
        answer: SetOutput = await self._bound.write(
            "memory.set",
            who,
            key=key,
            value=value,
            memory_type=memory_type,
            tags=listed(tags),
            confidence=confidence,
            ttl_seconds=ttl_seconds,
            valid_to=valid_to,
            on_expire=on_expire,
            clear_expiry=clear_expiry,
            sources=listed(sources),
            lineage=lineage,
            if_version=if_version,
            idempotency_key=idempotency_key,
        )
        return answer

    async def set_many(
        self, items: Mapping[str, Any] | Iterable[Mapping[str, Any]], **who: Unpack[Who]
    ) -> list[SetOutput]:
        """Write 1 to 1,000 values in one commit: by key, or as mappings of what ``set`` takes. All or nothing."""
        if isinstance(items, Mapping):
            items = [{"key": key, "value": value} for key, value in items.items()]
        answer = await self._bound.write("memory.set_many", who, items=listed(items))
        written: list[SetOutput] = answer.written
        return written

    async def get(self, key: str, **who: Unpack[Who]) -> GetOutput:
        """What stands under a key: ``found``, ``value``, and all of it as ``memory``."""
        answer: GetOutput = await self._bound.read("memory.get", key=key, **self._bound.whose(who))
        return answer

    async def delete(self, key: str, *, idempotency_key: str | None = None, **who: Unpack[Who]) -> DeleteOutput:
        """Delete a value; ``restore`` brings it back for 14 days. ``found`` is false when nothing stood there."""
        answer: DeleteOutput = await self._bound.write("memory.delete", who, key=key, idempotency_key=idempotency_key)
        return answer

    async def restore(self, key: str, *, idempotency_key: str | None = None, **who: Unpack[Who]) -> RestoreRowOutput:
        """Bring a deleted value back; ``expired`` when that was 14 days ago or more."""
        answer: RestoreRowOutput = await self._bound.write(
            "memory.restore", who, key=key, idempotency_key=idempotency_key
        )
        return answer

    async def history(
        self, key: str, *, limit: int = 50, before_version: int | None = None, **who: Unpack[Who]
    ) -> HistoryOutput:
        """The versions of a key, newest first; ``more`` when there are earlier ones."""
        whose = self._bound.whose(who)
        answer: HistoryOutput = await self._bound.read(
            "memory.history", key=key, limit=limit, before_version=before_version, **whose
        )
        return answer

    async def touch(
        self,
        *keys: str,
        ttl_seconds: int | None = None,
        valid_to: datetime | None = None,
        clear_expiry: bool = False,
        on_expire: OnExpire | None = None,
        idempotency_key: str | None = None,
        **who: Unpack[Who],
    ) -> TouchOutput:
        """Change when values expire, and nothing else of them."""
        answer: TouchOutput = await self._bound.write(
            "memory.touch",
            who,
            keys=list(keys),
            ttl_seconds=ttl_seconds,
            valid_to=valid_to,
            clear_expiry=clear_expiry,
            on_expire=on_expire,
            idempotency_key=idempotency_key,
        )
        return answer

    async def sweep_expired(self, *, dry_run: bool = False) -> SweepOutput:
        """Do to expired values of the namespace what their writers said: tombstone, demote, anonymize."""
        namespace = self._bound.identity.namespace
        answer: SweepOutput = await self._bound.read("memory.sweep_expired", namespace=namespace, dry_run=dry_run)
        return answer
