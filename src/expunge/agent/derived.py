"""Search, and what is derived: summaries, extracted facts, kept answers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack

from expunge.agent.bound import Bound, Where, Who, listed
from expunge.agent.rows import Lineage, Rows
from expunge.errors import InputError
from expunge.memory.derivers import Deriver, digest, plain_facts
from expunge.model.ids import check_id
from expunge.operations.jobs import AddJobOutput
from expunge.operations.memory import SetOutput
from expunge.operations.recall import Hit, Kind, SearchOutput

EVERYTHING: tuple[Kind, ...] = ("episodes", "memories", "facts", "chunks")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, the ids of the records that it quotes, and whether it had been kept from an earlier time."""

    text: str
    quotes: list[str]
    cached: bool


Answerer = Callable[[str, Sequence[Hit]], Awaitable[str]]


class Derived(Rows):
    """Finding, and deriving with lineage."""

    _bound: Bound
    _extract: list[str]

    def _wake(self) -> None: ...

    async def search(
        self,
        query: str,
        *,
        kinds: Sequence[Kind] = ("memories",),
        limit: int = 10,
        alpha: float = 0.5,
        memory_type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        **where: Unpack[Where],
    ) -> list[Hit]:
        """The values (or other records) that fit a query best. What is hidden, deleted, replaced or expired is none."""
        answer: SearchOutput = await self._bound.read(
            "search.find",
            query=query,
            kinds=listed(kinds),
            limit=limit,
            alpha=alpha,
            memory_type=memory_type,
            since=since,
            until=until,
            where=self._bound.where(where),
        )
        return answer.hits

    async def derive(
        self,
        key: str,
        value: Any,
        *,
        sources: Sequence[str],
        lineage: Lineage = "retire",
        memory_type: str = "summary",
        deriver: Deriver | None = None,
        name: str | None = None,
        **who: Unpack[Who],
    ) -> SetOutput:
        """Write a value that was made from records, and that goes with any of them (``detach``: with the last one).

        With a ``deriver`` (known to the queue as ``name``) it is made afresh from those that are left (``rebuild``).
        """
        if not sources:
            raise InputError("a derived value has no sources", hint="name the ids of the records that it was made from")
        if (lineage == "rebuild") != (deriver is not None):
            raise InputError("rebuild and a deriver go together", hint="give both, or neither")
        known = None if deriver is None else self._register(deriver, name)
        item = {"key": key, "value": value, "sources": listed(sources), "lineage": lineage}
        item |= {"memory_type": memory_type, "deriver": known}
        written: SetOutput = (await self._bound.write("memory.set_many", who, items=[item])).written[0]
        return written

    def auto_extract(self, deriver: Deriver = plain_facts, *, name: str | None = None) -> str:
        """From now on let a deriver read each episode that this agent writes, in the queue; the name it has there."""
        known = self._register(deriver, name)
        if known not in self._extract:
            self._extract.append(known)
        return known

    async def consolidate(
        self,
        deriver: Deriver = digest,
        *,
        key: str = "summary",
        sources: Sequence[str] = (),
        name: str | None = None,
        **who: Unpack[Who],
    ) -> AddJobOutput:
        """Queue a summary: of some records, or of all episodes of the user (of one session, when it is named).

        It stands under ``key`` when the queue has run (``drain``), and is made afresh when a source of it is erased.
        """
        known = self._register(deriver, name)
        whose: Who = {"session_id": None}
        whose.update(who)
        answer: AddJobOutput = await self._bound.write(
            "jobs.add",
            whose,
            deriver=known,
            key=key,
            sources=listed(sources),
        )
        self._wake()
        return answer

    def _register(self, deriver: Deriver, name: str | None) -> str:
        known = check_id(name or getattr(deriver, "__name__", type(deriver).__name__), "name")
        derivers = self._bound.expunge.system.derivers
        if derivers.setdefault(known, deriver) is not deriver:
            raise InputError(f"another deriver is registered as {known}", hint="give it a name of its own")
        return known

    async def ask(
        self,
        question: str,
        answerer: Answerer,
        *,
        kinds: Sequence[Kind] = EVERYTHING,
        limit: int = 5,
        ttl_seconds: int = 86_400,
        fresh: bool = False,
        **where: Unpack[Where],
    ) -> Answer:
        """Answer a question from what is found, and keep the answer for ``ttl_seconds`` with its lineage.

        ``answerer(question, hits)`` makes the text. An answer is kept for whom the agent is bound to, goes with any
        record that it quotes, and is not given again when one is not served any more; ``fresh`` asks anew.
        """
        bound = self._bound
        put_to = [getattr(answerer, "__qualname__", ""), list(kinds), limit, bound.where(where)]
        within = json.dumps(put_to, sort_keys=True)
        if not fresh:
            kept = await bound.read("answers.kept", question=question, within=within, **bound.whose({}))
            if kept.found:
                return Answer(kept.answer, kept.quotes, cached=True)
        began = bound.as_of or await bound.expunge.as_of(bound.identity.org)
        hits = await self.search(question, kinds=kinds, limit=limit, **where)
        text = await answerer(question, hits)
        quotes = [hit.id for hit in hits]
        if quotes:
            keep = {
                "question": question,
                "answer": text,
                "quotes": quotes,
                "ttl_seconds": ttl_seconds,
                "within": within,
            }
            await bound.at(as_of=began).write("answers.keep", {}, **keep)
        return Answer(text, quotes, cached=False)
