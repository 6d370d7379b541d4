"""Who is erased in the crash tests, and what had been made of their records."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from expunge import Expunge, Settings
from tests.crash.kit import everything, holding, in_child, opened, outcomes
from tests.support import block, episode, event, fact, ids, memory, one_of_each, session

ANN, BOB, CEM, DORA = (f"user<{number:05}>" for number in range(1, 5))
NOTES, WRITER, SESSION = "notes<00001>", "writer<00001>", "s<ann>"
OLD, NEW, BETWEEN = "2025-03-01T00:00:00Z", "2025-09-01T00:00:00Z", "2025-06-01T00:00:00Z"
FILES = ("a<ann-1>.txt", "a<ann-2>.txt", "a<bob>.txt")


@dataclass(frozen=True, slots=True)
class Story:
    """Records, who of their owners is erased in one request, and in batches of how many rows."""

    erased: tuple[str, ...]
    records: list[dict[str, Any]] = field(repr=False)
    batch_rows: int = 1000

    def settings(self, folder: Path) -> Settings:
        return Settings(db=str(folder / "expunge.db"), batch_rows=self.batch_rows)


def small() -> Story:
    """One person, whose erasure takes three commits."""
    return Story((ANN,), [*one_of_each(ANN, "<ann>"), *one_of_each(DORA, "<dora>")])


def large() -> Story:
    """Three people in batches of three rows: one of many rows, one of some, one of none but a derived record.

    Records made from theirs stand three deep, on several of them, on a bystander's too, and under other names;
    facts lose a source, or the last one; a version that somebody's record had superseded comes back.
    """
    ann = [episode(f"e<ann-{n:02}>", ANN, session_id="s<ann>") for n in range(8)]
    records = [
        session("s<ann>", ANN),
        *ann,
        *(event(f"v<ann-{n}>", f"e<ann-{n:02}>") for n in range(4)),
        *(memory(f"m<ann-{n}>", f"likes/{n % 2}", ANN) for n in range(5)),
        block("b<ann>", "persona", ANN),
        episode("e<bob-1>", BOB),
        episode("e<bob-2>", BOB),
        fact("f<bob>", BOB, sources=["e<bob-1>"]),
        *one_of_each(DORA, "<dora>"),
        # Three deep, and shared.
        memory("m<one>", "summary/one", sources=["e<ann-00>", "e<ann-01>"]),
        memory("m<two>", "summary/two", sources=["m<one>", "<dora>-e"]),
        memory("m<three>", "summary/three", DORA, sources=["m<two>"]),
        memory("m<shared>", "summary/shared", sources=["e<bob-1>", "<dora>-e"]),
        *(memory(f"m<each-{n:02}>", f"each/{n}", sources=[f"e<ann-{n:02}>"]) for n in range(8)),
        # A superseded version that comes back.
        memory("m<first>", "weather", value="mild"),
        memory("m<second>", "weather", sources=["e<ann-02>"]),
        # Facts lose a source, or the last one.
        fact("f<stays>", DORA, sources=["e<ann-03>", "<dora>-e"]),
        fact("f<goes>", DORA, sources=["e<ann-03>", "e<bob-2>"]),
        fact("f<cem>", CEM, sources=["<dora>-e"]),
    ]
    return Story((BOB, ANN, CEM), records, batch_rows=3)


def between() -> Story:
    """Two people, and a memory made from both: from the second one's record, and from a block made from the first's."""
    records = [
        *(episode(f"e<ann-{n}>", ANN) for n in range(6)),
        episode("e<bob>", BOB),
        block("b<way>", "way", sources=["e<ann-0>"]),
        memory("m<both>", "both", sources=["b<way>", "e<bob>"]),
    ]
    return Story((BOB, ANN), records, batch_rows=3)


def scoped(*, attached: bool = False) -> list[dict[str, Any]]:
    """What a namespace, a session, an agent before a date, an org or a user select, and what was made of it."""
    at = {"namespace": NOTES, "agent": WRITER, "created_at": OLD}
    files = [[name] if attached else [] for name in FILES]
    here: dict[str, Any] = {"session_id": SESSION} | at
    return [
        session(SESSION, ANN, **at),
        episode("e<ann-1>", ANN, attachments=files[0], **here),
        episode("e<ann-2>", ANN, attachments=files[1], **here),
        episode("e<bob>", BOB, attachments=files[2], **at),
        event("v<ann>", "e<ann-1>", created_at=OLD),
        memory("m<ann>", "likes", ANN, **at),
        memory("m<ann-new>", "likes", ANN, **(at | {"created_at": NEW})),
        episode("e<dora>", DORA, agent=WRITER, created_at=NEW),
        memory("m<sum>", "summary", sources=["e<ann-1>", "e<bob>"]),
        memory("m<deep>", "digest", DORA, sources=["m<sum>", "e<dora>"]),
        fact("f<stays>", DORA, sources=["e<ann-2>", "e<dora>"]),
        fact("f<goes>", DORA, sources=["e<ann-1>", "e<ann-2>"]),
        memory("m<first>", "weather"),
        memory("m<second>", "weather", sources=["e<ann-2>"]),
    ]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A closed database with the records of a story in it."""

    story: Story
    folder: Path
    was: dict[str, Any] = field(repr=False)

    def gone(self, now: dict[str, Any]) -> list[str]:
        """The words that may stand in no file any more: whom was erased, and the ids of what went."""
        return [*self.story.erased, *sorted(ids(self.was["records"]) - ids(now["records"]))]


def prepare(story: Story, folder: Path) -> Prepared:
    """Write the records of a story one after the other, as they would come."""
    folder.mkdir()

    async def job() -> dict[str, Any]:
        async with Expunge(settings=story.settings(folder)) as expunge:
            for record in story.records:
                await expunge.put([record])
        async with opened(story.settings(folder)) as expunge:
            return await everything(expunge)

    return Prepared(story, folder, in_child(job))


_OWN = ("request_id", "batch_id", "previous", "signature")
"""What two receipts of the same erasure differ in, when the clock stands still and the keys are the same."""


async def outcome(expunge: Expunge, request_id: str, prepared: Prepared) -> dict[str, Any]:
    """All that an erasure left and said, but for what is another each time."""
    state = await everything(expunge)
    answer = (await expunge.call("erasure.status", request_id=request_id)).model_dump()
    receipts = (await expunge.call("erasure.receipts", request_id=request_id)).receipts
    census = await expunge.call("erasure.census", request_id=request_id)
    folder = Path(expunge.settings.db).parent
    ledger = [(row[1], row[2], row[4]) for row in state["control"]["ledger"]]
    return {
        "records": state["records"],
        "fences_up": [row for row in state["control"]["fences"] if row[-1] is None],
        "fences": [row[:2] + row[3:] for row in state["control"]["fences"]],
        "marks": state["control"]["marks"],
        "seq": [row[:3] for row in state["control"]["orgs"]],
        "ledger": ledger,
        "audit": [outcome for outcome in outcomes(state) if outcome != "resumed"],
        "answer": {key: answer[key] for key in answer if key not in {"request_id", "attempts", "receipt"}},
        "receipts": [{key: value for key, value in json.loads(r).items() if key not in _OWN} for r in receipts],
        "counted_again": census.census,
        "bytes": holding(folder, prepared.gone(state)),
    }
