"""The lines that the store writes: they say what Python would say, for every value that can be stored."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from expunge import Expunge
from expunge.authority.port import Statement
from expunge.datamap import RECORDS, collection
from expunge.memory.statements import stored_columns
from expunge.model.instant import parse_instant, to_text
from expunge.subject.export.encode import line
from tests.support import fact, memory

FIRST, LAST = parse_instant("0001-01-01T00:00:00Z", "first"), parse_instant("9999-12-31T23:59:59.999999Z", "last")
SECOND = 1_000_000
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
INSTANTS = st.integers(FIRST, LAST) | st.integers(-SECOND, SECOND) | st.integers(-9, 9).map(lambda n: n * SECOND)


async def test_times_are_written_as_everywhere_else(in_memory: Expunge) -> None:
    """Law 13: instants from the year 1 to 9999, before 1970 too, with and without a fraction."""
    found = [FIRST, LAST, -1, 0, 1, -SECOND, 1 - SECOND]

    @given(INSTANTS)
    def collect(instant: int) -> None:
        found.append(instant)

    collect()
    said = Statement("test.times", "SELECT instant_text(r.value) FROM json_each(:values) r ORDER BY r.key")
    rows = await in_memory.system.authority.read(lambda tx: tx.rows(said, values=json.dumps(found)))
    assert [json.loads(text) for (text,) in rows] == [to_text(instant) for instant in found]


async def test_texts_and_numbers_are_written_exactly(in_memory: Expunge) -> None:
    """Law 12: any text that can be stored, as an id, as a key and as content; and shares to their last bit."""
    found: list[tuple[str, str, float]] = []

    @given(TEXTS.filter(lambda text: text.strip() not in ("", "-")), TEXTS, st.floats(0, 1))
    def collect(name: str, text: str, share: float) -> None:
        found.append((name, text, share))

    collect()
    await in_memory.put([
        record
        for n, (name, text, share) in enumerate(found)
        for record in (
            memory(f"m{n}", name, name, value=[text, share], memory_type=text, confidence=share),
            fact(f"f{n}", name, object=text, confidence=share),
        )
    ])  # fmt: skip
    memories, facts = [await lines_of(in_memory, name) for name in ("memories", "facts")]
    assert [(one["user_id"], one["key"], one["memory_type"], one["confidence"]) for one in memories] == [
        (name, name, text, share) for name, text, share in found
    ]
    assert [one["value"] for one in memories] == [[text, share] for _, text, share in found]
    assert [(one["user_id"], one["object"], one["confidence"]) for one in facts] == found


async def lines_of(expunge: Expunge, name: str) -> list[dict[str, object]]:
    """The lines of a collection, read again."""
    said = Statement("test.lines", f"SELECT {line(collection(name))} FROM {name} r ORDER BY r.rid")
    return [json.loads(text) for (text,) in await expunge.system.authority.read(lambda tx: tx.rows(said))]


def test_every_column_has_its_place() -> None:
    """Law 3: what the data map declares of a record stands in its line, but for what the engine makes again."""
    for kind in RECORDS:
        missing = {name for name in stored_columns(kind) if f'"{name}":' not in line(kind)}
        assert missing <= {"seq", "ref", "predicate_key"}
