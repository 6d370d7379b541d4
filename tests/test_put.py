"""`records.put`: all or nothing, each bad line named, ids opaque (laws 12 and 16, "bad input")."""

from __future__ import annotations

import json
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.datamap import collection
from expunge.errors import InvalidId, InvalidRecords
from expunge.memory.statements import stored_columns
from tests.support import AT, BAD_IDS, block, dump, episode, event, fact, ids, memory, one_of_each, session

GOOD = episode("good", "ann")
TOO_LONG = "x" * (1024 * 1024 + 1)


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


def line(**fields: Any) -> dict[str, Any]:
    return {"collection": "episodes", "id": "e", "created_at": AT} | fields


BAD = [
    ("line", "text"),
    ("line", ["list"]),
    ("collection", line(collection="people")),
    ("collection", line(collection="lineage")),
    ("collection", line(collection=["episodes"])),
    ("collection", {"id": "e"}),
    ("id", {"collection": "episodes"}),
    ("'colour'", line(colour="red")),
    ("'seq'", line(seq=7)),
    ("'marked'", line(marked=1)),
    ("'version'", memory("m", "k", version=3)),
    ("'key'", line(key="k")),
    *(("id", line(id=bad)) for bad in BAD_IDS),
    *((part, line(**{part: bad})) for part in ("org", "user_id", "agent") for bad in BAD_IDS if bad is not None),
    ("key", memory("m", "-")),
    ("key", {"collection": "memories", "id": "m", "value": 1}),
    ("value", {"collection": "memories", "id": "m", "key": "k"}),
    ("episode", {"collection": "events", "id": "v"}),
    ("episode", event("v", "good-not")),
    ("episode", event("v", "m1")),
    ("session_id", session("s", session_id="t")),
    ("created_at", line(created_at="2026-01-01T00:00:00")),
    ("created_at", line(created_at="yesterday")),
    ("created_at", line(created_at=1767225600)),
    ("created_at", line(created_at="0001-01-01T00:00:00+14:00")),
    ("occurred_at", line(occurred_at="2026-01-01")),
    ("valid_to", fact("f", valid_from="2026-01-02T00:00:00Z", valid_to="2026-01-01T00:00:00Z")),
    ("input", line(input=5)),
    ("input", line(input="a\0b")),
    ("input", line(input="\ud800")),
    ("input", line(input=TOO_LONG)),
    ("value", memory("m", "k", value=float("nan"))),
    ("value", memory("m", "k", value={"deep": [1, {"x": float("inf")}]})),
    ("value", memory("m", "k", value=["\udfff"])),
    ("value", memory("m", "k", value={1, 2})),
    ("value", memory("m", "k", value={"a": 1, 2: 3})),
    ("value", memory("m", "k", value=10**5000)),
    ("value", memory("m", "k", value=CIRCLE)),
    ("value", memory("m", "k", value=TOO_LONG)),
    ("subject", {"collection": "facts", "id": "f", "predicate": "p", "object": "o"}),
    ("sources", fact("f", sources="good")),
    ("sources", fact("f", sources=["nowhere"])),
    ("sources", fact("f", sources=[""])),
    ("sources", fact("f", sources=["f"])),
]


@pytest.mark.parametrize(("field", "bad"), BAD, ids=[f"{n}-{field}" for n, (field, _) in enumerate(BAD)])
async def test_a_bad_record_is_named_and_nothing_is_written(in_memory: Expunge, field: str, bad: Any) -> None:
    """Bad input: the line, its field and the reason; the good lines beside it are not written either."""
    await in_memory.put([memory("m1", "k1")])
    before = await dump(in_memory)
    with pytest.raises(InvalidRecords) as caught:
        await in_memory.put([GOOD, bad])
    assert [(item["line"], item["field"]) for item in caught.value.data["bad"]] == [(2, field)]
    assert TOO_LONG[:100] not in str(caught.value)
    assert await dump(in_memory) == before
    answer = await in_memory.put([GOOD, bad], skip_bad=True)
    assert (answer.loaded, [item.line for item in answer.bad]) == (1, [2])


@pytest.mark.parametrize(
    "raw",
    [
        b"{", b"[1,2", b"\xff\xfe", b'{"collection": "episodes", "id": "a", "id": "b"}', b"NaN", b"[" * 100_000, b'"x"',
        b'{"collection": "memories", "id": "m", "key": "k", "value": NaN}', b'{"collection":"episodes","id":"\\ud800"}',
    ],
)  # fmt: skip
async def test_a_malformed_line_is_named(in_memory: Expunge, raw: bytes) -> None:
    """Bad input: a line that is not JSON, not UTF-8, too deep, or says a name twice."""
    with pytest.raises(InvalidRecords) as caught:
        await in_memory.put([json.dumps(GOOD).encode(), b"", raw])
    assert caught.value.data["bad"][0]["line"] == 3
    assert ids(await dump(in_memory)) == set()


@pytest.mark.authorities("memory", "postgres")
async def test_cycles_are_refused_however_long(expunge: Expunge) -> None:
    """Bad input: a cycle of sources, and what rests on it; `--skip-bad` leaves out just those."""
    cycle = [fact("a", sources=["b"]), fact("b", sources=["c"]), fact("c", sources=["a"]), fact("d", sources=["c"])]
    with pytest.raises(InvalidRecords) as caught:
        await expunge.put([GOOD, *cycle])
    assert caught.value.data["bad_total"] == 4
    assert ids(await dump(expunge)) == set()
    assert (await expunge.put([GOOD, *cycle], skip_bad=True)).loaded == 1
    assert ids(await dump(expunge)) == {"good"}


@pytest.mark.authorities("memory", "postgres")
async def test_sources_may_come_in_any_order_and_earlier(expunge: Expunge) -> None:
    """The load format: sources in the file in any order, or in the store."""
    await expunge.put([episode("old", "ann")])
    answer = await expunge.put([memory("m", "k", sources=["f", "old"]), fact("f", sources=["new"]), episode("new")])
    assert answer.loaded == 3
    assert set((await dump(expunge))["lineage"]) == {"m<f", "m<old", "f<new"}


@pytest.mark.authorities("memory", "postgres")
async def test_what_rests_on_a_bad_record_is_bad_too(expunge: Expunge) -> None:
    """`skip_bad` leaves nothing hanging in the air."""
    answer = await expunge.put(
        [fact("f", sources=["e"]), line(input=5), memory("m", "k", sources=["f"])], skip_bad=True
    )
    assert (answer.loaded, sorted(item.line for item in answer.bad)) == (0, [1, 2, 3])


@pytest.mark.authorities("memory", "postgres")
async def test_the_same_again_is_skipped_and_other_content_is_an_error(expunge: Expunge) -> None:
    """The load format: same id, same content is skipped and counted; other content, or another collection, is not."""
    records = one_of_each("ann", "a")
    await expunge.put(records)
    before = await dump(expunge)
    again = await expunge.put([*records, records[1]])
    assert (again.loaded, again.skipped) == (0, len(records) + 1)
    others = [
        records[1] | {"input": "other words"},
        records[1] | {"user_id": "bob"},
        records[1] | {"created_at": "2027-01-01T00:00:00Z"},
        records[4] | {"sources": []},
        memory("a-e", "k"),
    ]
    for other in others:
        with pytest.raises(InvalidRecords) as caught:
            await expunge.put([GOOD, other])
        assert caught.value.data["bad"][0]["field"] == "id"
    assert await dump(expunge) == before


@pytest.mark.authorities("sqlite", "postgres")
async def test_a_time_that_is_not_given_is_not_compared(expunge: Expunge, clock: Any) -> None:
    """A record without `created_at` is dated by its arrival, and is the same record when it comes again."""
    undated = {"collection": "facts", "id": "f", "subject": "s", "predicate": "p", "object": "o"}
    await expunge.put([undated])
    clock.advance(60)
    assert (await expunge.put([undated])).skipped == 1


@pytest.mark.authorities("memory", "postgres")
async def test_ids_are_unique_per_org_over_all_collections(expunge: Expunge) -> None:
    """The load format; another org may use the same id, and is another record."""
    await expunge.put([episode("x", "ann")])
    await expunge.put([memory("x", "k", "ann")], org="other")
    await expunge.put([episode("y", "ann", org="third")])
    found = await dump(expunge)
    assert (set(found["episodes"]), set(found["memories"])) == ({"x", "y"}, {"x"})


@pytest.mark.authorities("memory", "postgres")
async def test_a_key_again_is_a_new_version_within_one_identity(expunge: Expunge) -> None:
    """The load format: the same memory key is a new version; another identity's key is another memory."""
    await expunge.put([memory("m1", "tea", "ann"), memory("m2", "tea", "ann"), memory("m3", "tea", "bob")])
    await expunge.put([memory("m4", "tea", "ann"), memory("m5", "tea", "ann", agent="helper")])
    await expunge.put([block("b1", "persona", "ann"), block("b2", "persona", "ann")])
    found = await dump(expunge)
    column = 1 + stored_columns(collection("memories")).index("version")
    versions = {record_id: row[column] for record_id, row in found["memories"].items()}
    assert versions == {"m1": 1, "m2": 2, "m3": 1, "m4": 3, "m5": 1}
    column = 1 + stored_columns(collection("blocks")).index("version")
    assert {record_id: row[column] for record_id, row in found["blocks"].items()} == {"b1": 1, "b2": 2}


async def test_the_limit_of_a_value_is_a_setting(tmp_path: Any) -> None:
    """Bad input: 1 MiB is the default of `max_value_bytes`, counted in UTF-8."""
    async with Expunge(settings=Settings(db=":memory:", max_value_bytes=10)) as expunge:
        await expunge.put([episode("a", input="é" * 5)])
        with pytest.raises(InvalidRecords):
            await expunge.put([episode("b", input="é" * 5 + "x")])


@pytest.mark.parametrize("bad", BAD_IDS)
async def test_bad_ids_are_refused_by_every_operation(in_memory: Expunge, bad: Any) -> None:
    """Law 12: the same error wherever an id goes in."""
    with pytest.raises(InvalidId):
        await in_memory.profile(bad)
    with pytest.raises(InvalidId):
        await in_memory.erase("ann", bad, purge=True)
    with pytest.raises(InvalidId):
        await in_memory.preview(bad)
    if bad is not None:  # no org means the default one
        with pytest.raises(InvalidId):
            await in_memory.profile("ann", org=bad)
