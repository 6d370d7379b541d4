"""Facts, blocks and documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Unpack

from expunge.agent.bound import Bound, Page, Where, Who, listed
from expunge.operations.documents import Document, DocumentOutput, DocumentsOutput
from expunge.operations.facts import AddFactsOutput, Block, Fact, NewFact


class Knowledge:
    """What is known: facts in time, an agent's working blocks, and documents."""

    _bound: Bound

    async def add_fact(self, fact: NewFact, **who: Unpack[Who]) -> str:
        """Write a fact; its id. An exclusive one ends the one that it contradicts, in whichever order they come."""
        return (await self.add_facts([fact], **who)).ids[0]

    async def add_facts(self, facts: Iterable[NewFact], **who: Unpack[Who]) -> AddFactsOutput:
        """Write 1 to 1,000 facts in one commit, all or nothing."""
        answer: AddFactsOutput = await self._bound.write("facts.add", who, facts=listed(facts))
        return answer

    async def facts(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
        at_any_time: bool = False,
        limit: int = 50,
        **where: Unpack[Where],
    ) -> Page[Fact]:
        """Facts about something that hold now, or held at ``valid_at``, as it was known at ``known_at``.

        The latest beginning first; ``.more`` says whether the limit left some out.
        """
        answer = await self._bound.read(
            "facts.list",
            subject=subject,
            predicate=predicate,
            valid_at=valid_at,
            known_at=known_at,
            at_any_time=at_any_time,
            limit=limit,
            where=self._bound.where(where),
        )
        return Page.of(answer.facts, more=answer.more)

    async def recall_facts(
        self,
        query: str,
        *,
        limit: int = 5,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
        **where: Unpack[Where],
    ) -> list[Any]:
        """The facts that fit a query best, of those that hold (as ``facts``)."""
        answer = await self._bound.read(
            "search.find",
            query=query,
            kinds=["facts"],
            limit=limit,
            valid_at=valid_at,
            known_at=known_at,
            where=self._bound.where(where),
        )
        return list(answer.hits)

    async def working(self, **who: Unpack[Who]) -> list[Block]:
        """The blocks of working memory, in their order."""
        found: list[Block] = (await self._bound.read("blocks.list", **self._bound.whose(who))).blocks
        return found

    async def update_block(
        self,
        name: str,
        content: str,
        *,
        pinned_order: int | None = None,
        sources: Sequence[str] = (),
        idempotency_key: str | None = None,
        **who: Unpack[Who],
    ) -> Block:
        """Write a block. Its place in the order is kept, unless one is given; ``sources`` are what it was made from."""
        return await self._write_block(
            name, content, who, append=False, pinned_order=pinned_order, sources=sources, key=idempotency_key
        )

    async def append_block(
        self,
        name: str,
        content: str,
        *,
        sources: Sequence[str] = (),
        idempotency_key: str | None = None,
        **who: Unpack[Who],
    ) -> Block:
        """Add to the end of a block. It goes on resting on what it rested on."""
        return await self._write_block(
            name, content, who, append=True, pinned_order=None, sources=sources, key=idempotency_key
        )

    async def _write_block(self, name: str, content: str, who: Who, *, key: str | None, **values: Any) -> Block:
        values["sources"] = listed(values["sources"])
        answer: Block = await self._bound.write(
            "blocks.update", who, name=name, content=content, idempotency_key=key, **values
        )
        return answer

    async def delete_block(self, name: str, **who: Unpack[Who]) -> bool:
        """Delete a block; whether there was one."""
        return bool((await self._bound.write("blocks.delete", who, name=name)).found)

    async def add_document(
        self,
        title: str,
        *,
        text: str | None = None,
        path: str | Path | None = None,
        media_type: str | None = None,
        sources: Sequence[str] = (),
        idempotency_key: str | None = None,
        **who: Unpack[Who],
    ) -> Document:
        """Write a document as the next version of its title: a text, or a file. Search finds its text in chunks.

        A file that is no UTF-8 text is kept, and found when its ``text`` comes with it.

        Raises:
            InputError: neither, or a file that cannot be read. Pinned: the version that stands is pinned.
            ErasureInProgress, ErasedSince (law 4). DiskFull, StoreFault: nothing was written.

        """
        answer: Document = await self._bound.write(
            "documents.add",
            who,
            title=title,
            text=text,
            path=Path(path) if isinstance(path, str) else path,
            media_type=media_type,
            sources=listed(sources),
            idempotency_key=idempotency_key,
        )
        return answer

    async def document(self, title: str, *, version: int | None = None, **who: Unpack[Who]) -> DocumentOutput:
        """A document with its text, as it stands or in a version."""
        whose = self._bound.whose(who)
        answer: DocumentOutput = await self._bound.read("documents.get", title=title, version=version, **whose)
        return answer

    async def original(self, title: str, *, version: int | None = None, **who: Unpack[Who]) -> bytes | None:
        """The bytes of a document as it came; ``None`` when there is none."""
        whose = self._bound.whose(who)
        data: bytes | None = (await self._bound.read("documents.original", title=title, version=version, **whose)).data
        return data

    async def documents(self, *, limit: int = 50, after: str = "", **who: Unpack[Who]) -> DocumentsOutput:
        """The documents that stand, by title; ``next`` when there are more."""
        whose = self._bound.whose(who)
        answer: DocumentsOutput = await self._bound.read("documents.list", limit=limit, after=after, **whose)
        return answer

    async def pin_document(self, title: str, *, pinned: bool = True, **who: Unpack[Who]) -> bool:
        """Pin the version of a document that stands, so that it is not replaced or deleted; whether there was one."""
        return bool((await self._bound.write("documents.pin", who, title=title, pinned=pinned)).found)

    async def delete_document(self, title: str, **who: Unpack[Who]) -> bool:
        """Delete a document; whether there was one. Its earlier versions stay until they are erased."""
        return bool((await self._bound.write("documents.delete", who, title=title)).found)
