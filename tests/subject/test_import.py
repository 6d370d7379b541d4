"""Exports that come back: equal where nothing was erased, and without what was."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.erasure import open_erasure
from expunge.errors import ErasureInProgress, InputError, InvalidExport, InvalidRecords, KeyMissing
from expunge.model.instant import ManualClock
from expunge.subject.export import ExportFile, reader
from expunge.subject.export.manifest import Hashed, manifest_hash
from tests.scopes_support import Places
from tests.shell import Shell
from tests.subject.kit import FORMS, counts, exported, fill, person, without_origin
from tests.support import document, dump, episode, fact, ids, memory, purge_order

pytestmark = pytest.mark.authorities("sqlite", "postgres", every=2)


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[Expunge]:
    """Another store, with keys of its own."""
    folder = tmp_path / "other"
    folder.mkdir()
    async with Expunge(
        settings=Settings(db=str(folder / "other.db")), clock=ManualClock("2026-06-01T00:00:00Z")
    ) as opened:
        yield opened


@pytest.mark.parametrize("form", FORMS)
async def test_export_load_export_is_equal(expunge: Expunge, other: Expunge, tmp_path: Path, form: str) -> None:
    """Import: into an empty store everything comes back as it was, versions, edges, times and bodies too."""
    await fill(expunge, tmp_path)
    data, manifest = await exported(expunge, "ann", format=form, vectors=True)
    back = await other.import_export(data)
    assert (back.erased_since, back.edges_left_out, back.skipped, back.bad) == (0, 0, 0, [])
    assert back.loaded == sum((await expunge.profile("ann")).counts.values())
    again, said = await exported(other, "ann", format=form, vectors=True)
    assert without_origin(said) == without_origin(manifest)
    assert said["origin"] != manifest["origin"]
    if form != "zip":
        assert again.split(b'"origin"')[0] == data.split(b'"origin"')[0]
    twice = await other.import_export(data)
    assert (twice.loaded, twice.skipped) == (0, back.loaded)
    assert without_origin((await exported(other, "ann", format=form, vectors=True))[1]) == without_origin(manifest)


@pytest.mark.authorities("postgres")
async def test_nothing_is_lost_over_sqlite_and_back(
    expunge: Expunge, other: Expunge, places: Places, tmp_path: Path
) -> None:
    """Import: what a server gives comes into a file, and what that gives into an empty server, the same to the byte."""
    await fill(expunge, tmp_path)
    data, manifest = await exported(expunge, "ann", format="jsonl", vectors=True)
    await other.import_export(data)
    over, _ = await exported(other, "ann", format="jsonl", vectors=True)
    with places() as db:
        there = Settings(db=db, keys_file=tmp_path / "back.keys", objects=tmp_path / "back.objects")
        async with Expunge(settings=there, clock=ManualClock("2026-06-01T00:00:00Z")) as back:
            loaded = (await back.import_export(over)).loaded
            again, said = await exported(back, "ann", format="jsonl", vectors=True)
    assert loaded == sum((await expunge.profile("ann")).counts.values())
    assert again.splitlines()[:-1] == data.splitlines()[:-1]  # the last line is the manifest
    assert without_origin(said) == without_origin(manifest)


async def test_what_comes_back_works_as_before(expunge: Expunge, other: Expunge, tmp_path: Path) -> None:
    """Import: search finds it, versions stand in order, and an erasure takes all of it with its bodies."""
    await fill(expunge, tmp_path)
    data, _ = await exported(expunge, "ann")
    await other.import_export(data)
    found = await other.call("search.find", query="long letter", where={"user_id": "ann"}, limit=3)
    assert "a-d1" in [hit.record.get("document") for hit in found.hits]
    history = await other.call("memory.history", key="likes", user_id="ann")
    assert [version.version for version in history.versions] == [3, 2, 1]
    gone = await other.erase("ann", purge=True)
    assert (gone.status, ids(await dump(other))) == ("completed", set())
    assert not [path for path in (tmp_path / "other").rglob("*/*") if path.is_file() and path.stat().st_size > 1000]


async def test_versions_keep_their_numbers(expunge: Expunge, other: Expunge) -> None:
    """Import: a gap that an erasure has left stays one; beside other versions the next free number is taken."""
    for n, who in enumerate(("a", "b", "c"), start=1):
        await expunge.put([memory(f"m{n}", "k", "ann", agent="x", sources=[], updated_at=f"2026-01-0{n}T00:00:00Z")])
        assert who
    await expunge.put([episode("e", "bob"), memory("m4", "k", "ann", agent="x", updated_at="2026-01-04T00:00:00Z")])
    await expunge.put([memory("m5", "k", "ann", agent="x", sources=["e"], updated_at="2026-01-05T00:00:00Z")])
    await expunge.put([memory("m6", "k", "ann", agent="x", updated_at="2026-01-06T00:00:00Z")])
    await expunge.erase("bob", purge=True)
    data, _ = await exported(expunge, "ann")
    await other.import_export(data)
    again = await exported(other, "ann")
    assert counts(again[1])["memories"] == 5
    assert b'"version":6' in again[0]
    assert b'"version":5,' not in again[0]


async def test_a_version_that_was_hidden_and_restored_stays_the_older_one(expunge: Expunge, other: Expunge) -> None:
    """Import: a restored version stands behind a newer one in the file; it keeps its number, and the value is the same."""
    await expunge.put([episode("e", "bob"), memory("m1", "k", "ann", value="old", sources=["e"])])
    await expunge.put([memory("m2", "k", "ann", value="new")])  # at the same time
    hidden = await expunge.erase("bob", purge=False)
    await expunge.restore(hidden.request_id)
    await expunge.put([memory("m3", "k2", "ann")])
    data, _ = await exported(expunge, "ann")
    assert data.index(b'"m1"') > data.index(b'"m2"')
    await other.import_export(data)
    for store in (expunge, other):
        found = await store.call("memory.get", key="k", user_id="ann")
        assert found.value == "new"
    history = await other.call("memory.history", key="k", user_id="ann")
    assert [(version.version, version.value) for version in history.versions] == [(2, "new"), (1, "old")]


async def test_what_was_erased_since_does_not_come_back(expunge: Expunge, tmp_path: Path) -> None:
    """Law 4: an export that is older than an erasure brings the rest back, and counts what it refuses."""
    await fill(expunge, tmp_path)
    await expunge.put([episode("n1", "ann", namespace="n"), episode("n2", "ann", namespace="m")])
    data, _ = await exported(expunge, "ann")
    await expunge.erase("ann", namespaces=["n"], purge=True)
    before = await dump(expunge)
    back = await expunge.import_export(data)
    assert (back.loaded, back.erased_since) == (0, 1)
    assert await dump(expunge) == before
    await expunge.erase("ann", purge=True)
    held = sum((await expunge.profile("bob")).counts.values())
    back = await expunge.import_export(data)
    assert (back.loaded, back.erased_since) == (0, back.erased_since)
    assert back.erased_since == held + 2
    assert not (await expunge.profile("ann")).found
    fresh, _ = await exported(expunge, "bob")
    assert (await expunge.import_export(fresh)).skipped == held


async def test_an_erasure_by_date_refuses_what_is_older(expunge: Expunge, clock: ManualClock) -> None:
    """Law 4: after an erasure of what is older than a date an export brings back what is younger, and that alone."""
    await expunge.put([
        episode("old", "ann", occurred_at="2026-01-01T00:00:00Z"),
        episode("young", "ann", occurred_at="2026-03-01T00:00:00Z"),
        fact("rests", "ann", sources=["old", "young"], recorded_at="2026-03-01T00:00:00Z"),
        memory("fell", "k", "ann", sources=["old"], updated_at="2026-03-01T00:00:00Z"),
    ])  # fmt: skip
    clock.advance(100 * 86_400)
    data, _ = await exported(expunge, "ann")
    await expunge.erase("ann", before="2026-02-01T00:00:00Z", purge=True)
    assert ids(await dump(expunge)) == {"young", "rests"}
    back = await expunge.import_export(data)
    assert (back.loaded, back.skipped, back.erased_since) == (0, 2, 2)
    assert ids(await dump(expunge)) == {"young", "rests"}


async def test_what_rested_on_somebody_who_was_erased_does_not_come_back(expunge: Expunge) -> None:
    """Law 5: a summary of Ann's that was made from Bob's words fell with them; a fact comes without its lost source."""
    records = [
        episode("a", "ann"),
        episode("b", "bob"),
        memory("both", "k", "ann", sources=["a", "b"]),
        memory("above", "k2", "ann", sources=["both"]),
        fact("joint", "ann", sources=["a", "b"]),
        fact("bobs", "ann", sources=["b"]),
    ]
    await expunge.put(records)
    data, _ = await exported(expunge, "ann")
    await expunge.erase("bob", purge=True)
    left = await dump(expunge)
    assert ids(left) == {"a", "joint"}
    back = await expunge.import_export(data)
    assert (back.loaded, back.erased_since, back.skipped, back.edges_left_out) == (0, 3, 2, 1)
    assert await dump(expunge) == left
    await expunge.put([episode("b", "bob", input="new words of a new Bob")])
    back = await expunge.import_export(data)
    assert (back.loaded, back.erased_since) == (0, 3)


async def test_an_erasure_that_runs_refuses_an_export(expunge: Expunge, tmp_path: Path) -> None:
    """Law 4: while the person is being erased nothing of the export comes in, and it can be tried again."""
    await fill(expunge, tmp_path)
    data, _ = await exported(expunge, "ann")
    before = await dump(expunge)
    await open_erasure(expunge.system, purge_order("ann"), actor="operator", role="operator")
    with pytest.raises(ErasureInProgress):
        await expunge.import_export(data)
    assert await dump(expunge) == before


async def test_hidden_records_are_not_brought_anywhere(expunge: Expunge, other: Expunge) -> None:
    """Import: what an erasure hid when an admin exported it stays out, and is counted."""
    await expunge.put([episode("seen", "ann"), episode("hid", "ann", namespace="n")])
    await expunge.erase("ann", namespaces=["n"], purge=False)
    data, _ = await exported(expunge, "ann", admin=True)
    back = await other.import_export(data)
    assert (back.loaded, back.hidden_left_out, ids(await dump(other))) == (1, 1, {"seen"})


async def test_another_store_is_checked_by_its_ledger(expunge: Expunge, tmp_path: Path, clock: ManualClock) -> None:
    """Law 4: with the ledger of the store that it is from, an export brings nobody back who was erased there since."""
    await expunge.put([episode("a", "ann"), episode("n", "ann", namespace="n"), fact("f", "ann", sources=["n"])])
    clock.advance(10)
    data, _ = await exported(expunge, "ann")
    clock.advance(10)
    await expunge.erase("ann", namespaces=["n"], purge=True)
    ledger = "\n".join((await expunge.call("ledger.export")).lines).encode()
    for name, given, expected in (("one", None, {"a", "n", "f"}), ("two", ledger, {"a"})):
        # A store beside the first has its keys, so it can tell who a pseudonym is.
        async with Expunge(settings=Settings(db=str(tmp_path / f"{name}.db"))) as beside:
            back = await beside.import_export(data, ledger=given)
            assert (ids(await dump(beside)), back.erased_since) == (expected, 3 - len(expected))
    folder = tmp_path / "strange"
    folder.mkdir()
    async with Expunge(settings=Settings(db=str(folder / "s.db"))) as strange:
        with pytest.raises(KeyMissing):
            await strange.import_export(data, ledger=ledger)
        for bad in (b"", b"{}", b"[]", b'{"format":"x"}', b"\xff", ledger.replace(b'"org":"default"', b'"org":"o"')):
            with pytest.raises(InputError, match="ledger"):
                await strange.import_export(data, ledger=bad)
        assert not ids(await dump(strange))


@pytest.mark.authorities("sqlite")  # the copy is one of files
async def test_a_store_that_was_restored_from_a_copy_takes_no_later_export(expunge: Expunge, tmp_path: Path) -> None:
    """Law 4: an export that counts more erasures than its store does shows that the store is an older copy."""
    await expunge.put([episode("a", "ann"), episode("b", "bob")])
    older = (tmp_path / "expunge.db").read_bytes(), (tmp_path / "expunge.db-wal").read_bytes()
    await expunge.erase("bob", purge=True)
    data, _ = await exported(expunge, "ann")
    for name, content in zip(("copy.db", "copy.db-wal"), older, strict=True):
        (tmp_path / name).write_bytes(content)
    async with Expunge(settings=Settings(db=str(tmp_path / "copy.db"))) as copy:
        with pytest.raises(InputError, match="restored from an older copy"):
            await copy.import_export(data)


async def test_edges_to_nowhere_are_counted(expunge: Expunge, other: Expunge) -> None:
    """Import: another store has Bob's episode no more than the export has, so the fact comes without that edge."""
    await expunge.put([episode("a", "ann"), episode("b", "bob"), fact("f", "ann", sources=["a", "b"])])
    data, _ = await exported(expunge, "ann")
    back = await other.import_export(data)
    assert (back.loaded, back.edges_left_out, back.erased_since) == (2, 1, 0)
    assert set((await dump(other))["lineage"]) == {"f<a"}


async def test_an_export_that_a_limit_cut_is_loaded_and_told_of(expunge: Expunge, other: Expunge) -> None:
    """Law 11: what a limit kept out of an export is missing after its import, too, and the answer says so."""
    await expunge.put([episode(f"e{n}", "ann") for n in range(3)])
    cut, manifest = await exported(expunge, "ann", admin=True, section_limit=2)
    back = await other.import_export(cut)
    assert (back.loaded, back.complete, manifest["complete"]) == (2, False, False)
    whole, _ = await exported(expunge, "ann", admin=True, section_limit=3)
    back = await other.import_export(whole)
    assert (back.loaded, back.skipped, back.complete) == (1, 2, True)


def with_its_hash(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest | {"sha256": manifest_hash(manifest)}


def damaged(data: bytes) -> dict[str, bytes]:
    """An export in JSON lines, damaged in every way."""
    lines = data.splitlines(keepends=True)
    manifest = json.loads(lines[-1])["manifest"]
    huge = json.dumps({"manifest": manifest | {"more": 2**200}}).encode()
    no_origin = json.dumps({"manifest": {k: v for k, v in manifest.items() if k != "origin"}}).encode()
    deep = b'{"collection":"episodes","id":"x","input":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    return {
        **{f"cut behind line {n}": b"".join(lines[:n]) for n in range(1, len(lines))},
        "cut in the manifest": data[:-9],
        "a line edited": data.replace(b"words of", b"deeds of"),
        "a line less": b"".join(lines[:2] + lines[3:]),
        "a line twice": b"".join(lines[:2] + lines[1:]),
        "two lines changed about": b"".join([lines[0], lines[2], lines[1], *lines[3:]]),
        "the manifest edited": data.replace(b'"complete":true', b'"complete":null'),
        "something behind it": data + b"{}\n",
        "a huge number": b"".join(lines[:-1]) + huge,
        "not said whether complete": b"".join(lines[:-1])
        + json.dumps({"manifest": with_its_hash({k: v for k, v in manifest.items() if k != "complete"})}).encode(),
        "no origin": b"".join(lines[:-1]) + no_origin,
        "no JSON": b"".join(lines[:-1]) + b"x\n" + lines[-1],
        "not an object": b"".join(lines[:-1]) + b"[]\n" + lines[-1],
        "too deep": lines[0] + deep + b"".join(lines[1:]),
        "newer": data.replace(b'"version":1}', b'"version":2}', 1),
        "another version": data.replace(b'"version":1}', b'"version":x}', 1),
        "foreign": b'{"format":"other-export","version":1}\n',
        "nothing": b"",
        "not text": b"\xff\xfe" * 9,
    }


async def test_a_damaged_export_is_refused_whole(expunge: Expunge, other: Expunge) -> None:
    """Bad input: an export that was cut short or edited anywhere brings nothing in, and the error says what is wrong."""
    await expunge.put([episode("a", "ann"), episode("a2", "ann"), fact("f", "ann", sources=["a"])])
    data, _ = await exported(expunge, "ann", format="jsonl")
    for name, bad in damaged(data).items():
        with pytest.raises(InvalidExport) as refused:
            await other.import_export(bad)
        assert refused.value.next_step, name
        assert "words of" not in refused.value.message, name
    document, _ = await exported(expunge, "ann", format="json")
    for bad in (document[:-2], document[:-40], document.replace(b"words of", b"deeds of"), document.replace(b"\n", b""),
                json.dumps(json.loads(document), indent=1).encode()):  # fmt: skip
        with pytest.raises(InvalidExport):
            await other.import_export(bad)
    assert not ids(await dump(other))
    assert (await other.import_export(document)).loaded == 3


async def test_a_damaged_zip_is_refused_whole(expunge: Expunge, other: Expunge, tmp_path: Path) -> None:
    """Bad input: a foreign zip, one without its document, and bodies that are missing, other ones, or too large."""
    await fill(expunge, tmp_path)
    data, _ = await exported(expunge, "ann", format="zip")
    packed = zipfile.ZipFile(io.BytesIO(data))
    members = {name: packed.read(name) for name in packed.namelist()}

    def packed_again(changes: dict[str, bytes | None]) -> bytes:
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for name, content in (members | changes).items():
                if content is not None:
                    archive.writestr(name, content)
        return made.getvalue()

    assert (await other.import_export(packed_again({}))).loaded
    await other.erase("ann", purge=True)
    for bad in (
        packed_again({"export.json": None}),
        packed_again({"export.json": b"{}"}),
        packed_again({"bodies/000001": None}),
        packed_again({"bodies/000001": b"x"}),
        packed_again({"bodies/000001": b"x" * len(members["bodies/000001"])}),
        data[:1000],
        b"PK\x03\x04" + b"x" * 99,
    ):
        with pytest.raises(InputError):
            await other.import_export(bad)
    assert not ids(await dump(other))
    assert not [path for path in (tmp_path / "other").rglob("*/*") if path.is_file() and path.stat().st_size > 1000]


async def test_a_zip_that_can_be_read_in_two_ways_is_refused(expunge: Expunge, other: Expunge) -> None:
    """Bad input: what no export holds, two files of a name, other ways to pack, and zips before or behind are refused."""
    await expunge.put([document("d", "t", "ann")])
    data, _ = await exported(expunge, "ann", format="zip")
    packed = zipfile.ZipFile(io.BytesIO(data))
    members = [(name, packed.read(name)) for name in packed.namelist()]

    def made(more: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of two files of a name
            for name, content in [*members, *more]:
                archive.writestr(name, content)
        return file.getvalue()

    bad = {
        name: made([(name, b"x")])
        for name in ("/etc/x", "../../x", "bodies/../x", "a/", "C:\\x", "\x1b[31m", "x" * 999)
    }
    bad |= {
        "two documents": made(members[:1]),
        "another document": made([("export.json", b"{}")]),
        "two bodies": made([("bodies/000001", b"x")]),
        "bzip2": made([], zipfile.ZIP_BZIP2),
        "lzma": made([], zipfile.ZIP_LZMA),
        "something behind it": data + b"x",
        "something before it": b"PK\x03\x04" + data,
        "two zips": data + data,
    }
    for name, file in bad.items():
        with pytest.raises(InvalidExport) as refused:
            await other.import_export(file)
        assert refused.value.message.isprintable(), name
    assert not ids(await dump(other))
    assert (await other.import_export(made([]))).loaded == 2


def forged(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """An export in JSON lines that somebody changed and gave its hashes again."""
    head, *lines, last = data.splitlines()
    sections: dict[str, Hashed] = {}
    changed = []
    for line in lines:
        record = json.loads(line)
        change(record)
        changed.append(json.dumps(record).encode())
        sections.setdefault(record["collection"], Hashed()).add([changed[-1]])
    manifest = json.loads(last)["manifest"]
    manifest["sections"] |= {name: section.as_json() for name, section in sections.items()}
    return b"\n".join([head, *changed, json.dumps({"manifest": with_its_hash(manifest)}).encode(), b""])


async def test_a_body_is_as_long_as_its_record_says_and_not_too_long(
    expunge: Expunge, other: Expunge, tmp_path: Path, clock: ManualClock
) -> None:
    """Bad input: `max_attachment_bytes` holds for the bodies of an export, and no record tells another length."""
    await expunge.put([document("d", "t", "ann", text="x" * 5000)])
    data, _ = await exported(expunge, "ann", format="jsonl")

    def shorter(record: dict[str, Any], collection: str) -> None:
        if record["collection"] == collection:
            record["bytes"] = 4999

    for collection in ("documents", "bodies"):
        with pytest.raises(InvalidRecords, match="field bytes: is"):
            await other.import_export(forged(data, partial(shorter, collection=collection)))

    def both(record: dict[str, Any]) -> None:
        shorter(record, "documents")
        shorter(record, "bodies")

    with pytest.raises(InvalidExport, match="was edited"):
        await other.import_export(forged(data, both))
    for most, loaded in ((4999, None), (5000, 6)):
        settings = Settings(db=str(tmp_path / f"{most}.db"), max_attachment_bytes=most)
        async with Expunge(settings=settings, clock=clock) as small:
            if loaded is None:
                with pytest.raises(InvalidRecords, match="max_attachment_bytes"):
                    await small.import_export(data)
                assert not ids(await dump(small))
            else:
                assert (await small.import_export(data)).loaded == loaded
    assert not ids(await dump(other))


def test_of_a_zip_that_is_no_export_the_start_alone_is_unpacked() -> None:
    """Bad input: a small zip of a huge document is refused by its first line: the damage in its middle is never met."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("export.json", bytes(64 << 20))
    damaged = bytearray(made.getvalue())
    damaged[len(damaged) // 2] ^= 0xFF
    with pytest.raises(InvalidExport, match="is not an export of Expunge"):
        ExportFile.read(bytes(damaged))
    with pytest.raises(zlib.error), zipfile.ZipFile(io.BytesIO(damaged)) as archive:
        archive.read("export.json")


def test_a_line_in_a_zip_that_no_export_has_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad input: one line without an end, behind a right head."""
    monkeypatch.setattr(reader, "_MOST_LINE", 1 << 20)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("export.json", b'{"format":"expunge-export","version":1,"sections":{\n' + bytes(2 << 20))
    with pytest.raises(InvalidExport, match="a line has more than 1048576 bytes"):
        ExportFile.read(made.getvalue())


@pytest.mark.authorities("memory", "postgres")
@pytest.mark.parametrize("form", FORMS)
async def test_no_byte_can_be_changed_unseen(expunge: Expunge, form: str) -> None:
    """Bad input: whichever byte of an export is another, it is refused, or says the same (in a zip's own names)."""
    await expunge.put([episode("e", "ann"), fact("f", "ann", sources=["e"]), document("d", "title", "ann")])
    data, _ = await exported(expunge, "ann", format=form)
    whole = read_again(data)
    for at, byte in enumerate(data):
        for other in {byte ^ 1, 0x22, 0x0A} - {byte}:
            with contextlib.suppress(InvalidExport):
                assert read_again(data[:at] + bytes([other]) + data[at + 1 :]) == whole, at


def read_again(data: bytes) -> tuple[list[dict[str, Any]], dict[str, bytes | None]]:
    """The records and the bodies of an export."""
    file = ExportFile.read(data)
    return [line.record for line in file.lines], {record_id: file.body_of(record_id) for record_id in file.bodies}


async def test_an_export_of_another_org_asks_for_that_org(expunge: Expunge, other: Expunge) -> None:
    """Law 15: records come into the org that the call names, or not at all."""
    await expunge.put([episode("a", "ann")], org="acme")
    data, _ = await exported(expunge, "ann", org="acme")
    with pytest.raises(InputError, match="of org 'acme'"):
        await other.import_export(data)
    assert (await other.import_export(data, org="acme")).loaded == 1


async def test_numbers_depths_and_old_dates_come_back_exactly(expunge: Expunge, other: Expunge) -> None:
    """Export and import: whole numbers above 2^53, exponents, 200 levels, and dates long before 1970."""
    deep: Any = "end"
    for _ in range(200):
        deep = [deep]
    values = {"big": 2**60, "bigger": 10**30, "small": 5e-324, "deep": deep, "nul": "a\\u0000b", "half": 0.1 + 0.2}
    await expunge.put([memory("m", "k", "ann", value=values, updated_at="0001-01-01T00:00:00Z")])
    data, manifest = await exported(expunge, "ann")
    await other.import_export(data)
    assert (await dump(other))["memories"]["m"] == (await dump(expunge))["memories"]["m"]
    assert without_origin((await exported(other, "ann"))[1]) == without_origin(manifest)
    with pytest.raises(InvalidRecords, match="NaN"):
        await expunge.put([memory("n", "k", "ann", value=float("nan"))])


def test_the_command_loads_an_export(tmp_path: Path) -> None:
    """The command: ``load`` takes an export by itself, says what did not come back, and a bad one makes no database."""
    shell = Shell(tmp_path)
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, [episode("e", "ann"), episode("b", "bob")])))
    shell.run("load", "in.jsonl")
    shell.run("export", "ann", "-o", "ann.zip")
    (tmp_path / "new").mkdir()
    assert b"loaded 1 records" in shell.run("load", "ann.zip", "--db", "new/other.db").stdout
    assert shell.json("profile", "ann", "--db", "new/other.db")["counts"]["episodes"] == 1
    shell.run("erase", "--user", "ann", "--purge", "--yes")
    assert b"left out 1 records that were erased since" in shell.run("load", "ann.zip").stdout
    assert not shell.json("profile", "ann")["found"]
    shell.run("ledger", "-o", "ledger.jsonl")
    back = shell.json("load", "ann.zip", "--db", "beside.db", "--ledger", "ledger.jsonl")
    assert (back["loaded"], back["erased_since"]) == (0, 1)
    (tmp_path / "cut.zip").write_bytes((tmp_path / "ann.zip").read_bytes()[:200])
    assert shell.error("load", "cut.zip", "--db", "bad.db", exits=2)["code"] == "INVALID_EXPORT"
    assert shell.error("load", "cut.zip", "--skip-bad", "--db", "bad.db", exits=2)["code"] == "INVALID_EXPORT"
    assert not (tmp_path / "bad.db").exists()
    assert b"not complete" not in shell.run("load", "ann.zip", "--db", "new/other.db").stderr
    more = "".join(json.dumps(episode(f"more{n}", "ann")) + "\n" for n in range(2))
    shell.run("load", "-", "--db", "new/other.db", stdin=more.encode())
    shell.run("export", "ann", "--admin", "--section-limit", "1", "-o", "one.json", "--db", "new/other.db")
    assert b"not complete when it was made" in shell.run("load", "one.json", "--db", "beside.db").stderr
    assert shell.error("load", "in.jsonl", "--ledger", "ledger.jsonl", exits=2)["code"] == "INVALID_INPUT"
    assert person("x", "x")
