"""Exports: what says it is whole and is not, and signs that come out as others."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from expunge import Expunge
from expunge.authority.port import Statement
from expunge.datamap import RECORDS
from expunge.errors import InputError
from expunge.model.instant import ManualClock
from tests.field.kit import as_user
from tests.subject.kit import FORMS, counts, exported, person
from tests.support import episode, fact, memory

pytestmark = pytest.mark.authorities("sqlite", "postgres")


@pytest.mark.parametrize("kind", [kind.name for kind in RECORDS])
async def test_what_one_section_lacks_makes_the_whole_incomplete(expunge: Expunge, tmp_path: Path, kind: str) -> None:
    """Export: one sort of record decides whether an export is whole (97); here each does, by a hidden record or a limit."""
    (tmp_path / "note.bin").write_bytes(b"note" * 100)
    await expunge.put([*person("ann", "a"), episode("of-bob", "bob")], attachments_from=tmp_path)
    await expunge.erase("bob", purge=False)  # the request that what is marked below names
    _, whole = await exported(expunge, "ann")
    assert whole["complete"]
    number = counts(whole)[kind]
    _, cut = await exported(expunge, "ann", admin=True, section_limit=1)
    assert cut["sections"][kind]["truncated"] is (number > 1)
    await expunge.system.authority.run(lambda tx: tx.change(_hide(kind)))
    _, left = await exported(expunge, "ann")
    assert not left["complete"]
    assert counts(left)[kind] < number
    assert ("hidden records", number) in [(item["what"], item["count"]) for item in left["left_out"]] or kind in str(
        left["left_out"]
    )


def _hide(kind: str) -> Statement:
    return Statement("test.hide", f"UPDATE {kind} SET marked = 1 WHERE user_id = 'ann'")


async def test_an_export_goes_by_no_date(expunge: Expunge, clock: ManualClock) -> None:
    """Law 11: a cutoff by a date that each touch moves loses records (99): all come, however old, late or touched."""
    dates = ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z", "2025-12-31T23:59:59Z", "2999-01-01T00:00:00Z"]
    await expunge.put(
        [
            *(episode(f"e{n}", "ann", created_at=date) for n, date in enumerate(dates)),
            *(fact(f"f{n}", "ann", recorded_at=date, valid_to="2000-01-01T00:00:00Z") for n, date in enumerate(dates)),
            *(memory(f"m{n}", "k", "ann", updated_at=date) for n, date in enumerate(dates)),
            episode("bobs", "bob"),
        ]
    )
    async with as_user(expunge, org="default", namespace=None, agent=None) as ann:
        await ann.memory.set("touched", 1)
        clock.advance(5)
        await ann.memory.touch("touched", ttl_seconds=1)
        clock.advance(5)
    _, manifest = await exported(expunge, "ann")
    found = {name: count for name, count in counts(manifest).items() if count}
    assert found == {"episodes": 4, "facts": 4, "memories": 6}
    assert manifest["complete"]


@pytest.mark.parametrize("form", FORMS)
async def test_signs_beyond_the_first_plane_are_four_bytes(expunge: Expunge, tmp_path: Path, form: str) -> None:
    """Export: an emoji comes out as two surrogates of three bytes each (113): in text, in ids, in keys, in names."""
    laughs = "\U0001f602"
    (tmp_path / f"{laughs}.txt").write_bytes(laughs.encode())
    await expunge.put(
        [
            episode(f"e{laughs}", f"ann{laughs}", input=laughs, attachments=[f"{laughs}.txt"]),
            memory("m", laughs, f"ann{laughs}", value={laughs: laughs}),
        ],
        attachments_from=tmp_path,
    )
    data, _ = await exported(expunge, f"ann{laughs}", format=form)
    if form == "zip":
        data = zipfile.ZipFile(io.BytesIO(data)).read("export.json")
    assert data.count(b"\xf0\x9f\x98\x82") >= 7
    assert b"\\ud83d" not in data.lower()
    assert b"\xed\xa0\xbd" not in data
    assert laughs in data.decode("utf-8", "strict")


async def test_a_file_name_that_is_no_text_is_refused_where_it_comes_in(expunge: Expunge, tmp_path: Path) -> None:
    """Export: a name that is not UTF-8 ends an export later (115): it is refused where it comes in."""
    name = os.fsdecode(b"\xfc.txt")
    try:
        (tmp_path / name).write_bytes(b"words in a letter")
    except OSError:
        pytest.skip("this disk takes no such name")
    with pytest.raises(InputError):
        await expunge.put([episode("e", "ann", attachments=[name])], attachments_from=tmp_path)
    async with as_user(expunge, org="default") as ann:
        with pytest.raises(InputError):
            await ann.memory.add_document(name, text="words")
        with pytest.raises(InputError):
            await ann.memory.add_document("Letter", path=tmp_path / name)
        (tmp_path / name).rename(tmp_path / "letter.txt")
        await ann.memory.add_document("Letter", path=tmp_path / "letter.txt")
        assert await ann.memory.original("Letter") == b"words in a letter"
    for form in FORMS:
        _, manifest = await exported(expunge, "ann", format=form)
        assert (counts(manifest)["documents"], counts(manifest)["episodes"], manifest["complete"]) == (1, 0, True)
    assert (await expunge.erase("ann", purge=True)).removed["documents"] == 1
