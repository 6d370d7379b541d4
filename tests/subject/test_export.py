"""Exports: whole, counted, told of where they are not, and never half of what they look like."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import stat
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from expunge import Agent, Expunge, Settings
from expunge.authority.port import Statement
from expunge.datamap import RECORDS
from expunge.errors import ErasedSince, ErasureInProgress, InputError, InvalidScope, StoreFault
from expunge.stores.memory import MemoryStore
from expunge.subject.export import ExportFile
from tests.shell import Shell
from tests.subject.kit import FORMS, counts, exported, fill, without_origin
from tests.support import HOSTILE_IDS, document, episode, fact, memory

pytestmark = pytest.mark.authorities("sqlite", "postgres", every=2)


async def take_all(pieces: AsyncIterator[bytes], taken: list[bytes]) -> None:
    """Add the pieces that come to those that were taken."""
    while (piece := await anext(pieces, None)) is not None:
        taken.append(piece)


def lines_of(data: bytes, form: str) -> list[bytes]:
    """The lines of the records of an export, whatever its form."""
    if form == "zip":
        data = zipfile.ZipFile(io.BytesIO(data)).read("export.json")
    found = [line.removesuffix(b",") for line in data.split(b"\n")]
    return [line for line in found if line.startswith(b'{"collection":')]


@pytest.mark.parametrize("form", FORMS)
async def test_an_export_a_profile_and_an_erasure_count_the_same(expunge: Expunge, tmp_path: Path, form: str) -> None:
    """Law 1: what an export holds of each collection is what the profile counts, and what an erasure removes."""
    await fill(expunge, tmp_path)
    data, manifest = await exported(expunge, "ann", format=form)
    profile = await expunge.profile("ann")
    lines = [json.loads(line) for line in lines_of(data, form)]
    for kind in RECORDS:
        here = [line for line in lines if line["collection"] == kind.name]
        assert len(here) == counts(manifest)[kind.name] == profile.counts[kind.name] > 0
        assert {line["user_id"] for line in here} == {"ann"}
        assert {line["id"][0] for line in here} <= {"a", "c"}  # of Bob there is nothing; a chunk's id is a hash
    assert manifest["complete"]
    gone = await expunge.erase("ann", purge=True)
    assert {kind.name: gone.removed[kind.name] for kind in RECORDS} == profile.counts


async def test_the_forms_say_the_same_in_the_same_bytes(expunge: Expunge, tmp_path: Path) -> None:
    """Export: a record is the same line in every form, so the manifests agree but for where bodies are."""
    await fill(expunge, tmp_path)
    made = {form: await exported(expunge, "ann", format=form) for form in FORMS}
    records = {
        form: [line for line in lines_of(data, form) if not line.startswith(b'{"collection":"bodies"')]
        for form, (data, _) in made.items()
    }
    assert records["json"] == records["jsonl"] == records["zip"]
    assert without_origin(made["json"][1]) == without_origin(made["jsonl"][1])
    json.loads(made["json"][0])
    assert json.loads(made["json"][0])["sections"]["episodes"][0]["input"] == 'Grüße 😂 \\ " \u2028'
    assert b"\xf0\x9f\x98\x82" in made["jsonl"][0]  # not two surrogates, each encoded by itself


@pytest.mark.parametrize("form", FORMS)
async def test_hashes_are_over_the_lines_as_they_stand(expunge: Expunge, tmp_path: Path, form: str) -> None:
    """Export: whoever has the file alone can work out each section's hash."""
    await fill(expunge, tmp_path)
    data, manifest = await exported(expunge, "ann", format=form)
    for name, section in manifest["sections"].items():
        here = [line for line in lines_of(data, form) if line.startswith(b'{"collection":"%b"' % name.encode())]
        found = hashlib.sha256(b"".join(line + b"\n" for line in here)).hexdigest()
        assert (section["count"], section["sha256"]) == (len(here), f"sha256:{found}")


async def test_bodies_come_with_their_records(expunge: Expunge, tmp_path: Path) -> None:
    """Export: attachments and originals are there byte for byte, in the line or as a file that a number names."""
    await fill(expunge, tmp_path)
    note = (tmp_path / "note.bin").read_bytes()
    data, _ = await exported(expunge, "ann", format="jsonl")
    bodies = {
        line["of"]: base64.b64decode(line["base64"])
        for line in map(json.loads, lines_of(data, "jsonl"))
        if line["collection"] == "bodies"
    }
    assert bodies["a-d2"] == note
    assert bodies["a-d1"] == b"A long letter. " * 200
    assert note in [bodies[name] for name in bodies if name.startswith("at-")]
    packed = zipfile.ZipFile(io.BytesIO((await exported(expunge, "ann", format="zip"))[0]))
    assert packed.namelist() == ["export.json", "bodies/000001", "bodies/000002", "bodies/000003"]
    assert sorted(map(packed.read, packed.namelist()[1:])) == sorted(bodies.values())
    assert packed.testzip() is None


async def test_a_body_that_is_missing_or_changed_is_not_passed_over(settings: Settings, tmp_path: Path) -> None:
    """Law 16: an export says which bodies it lacks, and one whose bytes have changed is no export at all."""
    async with Expunge(settings=settings) as expunge:
        await fill(expunge, tmp_path)
        files = [path for path in (tmp_path / "expunge.originals").rglob("*") if path.is_file() and path.stat().st_size]
        victims = [path for path in files if path.read_bytes() == (tmp_path / "note.bin").read_bytes()]
        assert len(victims) == 2
        for path in victims:
            path.write_bytes(b"changed")
        with pytest.raises(StoreFault, match="is not what was stored"):
            await exported(expunge, "ann")
        for path in victims:
            path.unlink()
        _, manifest = await exported(expunge, "ann")
        assert not manifest["complete"]
        assert ["bodies", 1] in [[item["what"], item["count"]] for item in manifest["left_out"]]


async def test_what_is_hidden_is_told_of_and_given_to_the_admin_alone(expunge: Expunge, tmp_path: Path) -> None:
    """Export: a person's view holds what is served and says what is hidden; the admin's holds both."""
    await fill(expunge, tmp_path)
    await expunge.put([episode("a-later", "ann", namespace="n")])
    await expunge.erase("ann", namespaces=["n"], purge=False)
    data, manifest = await exported(expunge, "ann", format="jsonl")
    assert b"a-later" not in data
    assert not manifest["complete"]
    assert ("hidden records", 1) in [(item["what"], item["count"]) for item in manifest["left_out"]]
    data, manifest = await exported(expunge, "ann", admin=True, format="jsonl")
    hidden = [json.loads(line)["id"] for line in lines_of(data, "jsonl") if b'"hidden":true' in line]
    assert (hidden, manifest["complete"]) == (["a-later"], True)
    data, manifest = await exported(expunge, "ann", admin=True, format="jsonl", include_tombstoned=False)
    assert (b"a-later" in data, b"a-m3" in data, b"a-m2" in data, manifest["complete"]) == (False, False, True, False)


async def test_a_limit_that_was_reached_is_told(expunge: Expunge, tmp_path: Path) -> None:
    """Law 11: a section that a limit cuts says so, one that just fits does not, and the export is not complete."""
    await fill(expunge, tmp_path)
    await expunge.put([fact(f"f{n}", "ann") for n in range(99)])  # a hundred with the one that is there
    for limit, cut in ((99, True), (100, False), (0, False)):
        _, manifest = await exported(expunge, "ann", admin=True, section_limit=limit)
        facts = manifest["sections"]["facts"]
        assert (facts["count"], facts["truncated"], manifest["complete"]) == (limit or 100, cut, not cut)
    data, whole = await exported(expunge, "ann", admin=True, format="jsonl")
    size = sum(
        len(line) for line in lines_of(data, "jsonl") if json.loads(line)["collection"] in ("episodes", "events")
    )
    for most, cut in ((size, False), (size - 1, True), (0, False)):
        _, manifest = await exported(expunge, "ann", admin=True, conversation_bytes=most)
        assert (manifest["sections"]["events"]["truncated"], manifest["complete"]) == (cut, not cut)
        assert manifest["sections"]["facts"] == whole["sections"]["facts"]


@pytest.mark.parametrize("form", FORMS)
async def test_a_limit_cuts_bodies_and_vectors_where_it_cuts_their_records(expunge: Expunge, form: str) -> None:
    """Law 11: no body and no vector comes of a record that a limit kept out, and of each that came in both do."""
    await expunge.put([document(f"d{n:02}", "t", "ann", text=f"text {n}") for n in range(70)])
    for limit, cut in ((1, True), (40, True), (69, True), (70, False)):
        data, manifest = await exported(expunge, "ann", admin=True, section_limit=limit, vectors=True, format=form)
        file = ExportFile.read(data)
        given = {line.record["id"] for line in file.lines if line.record["collection"] == "documents"}
        assert (len(given), set(file.bodies)) == (limit, given)
        chunks = {line.record["id"] for line in file.lines if line.record["collection"] == "chunks"}
        assert {said["of"] for said in file.told["vectors"] if said["in"] == "chunks"} == chunks
        assert all(file.body_of(record_id) for record_id in given)
        assert (manifest["sections"]["bodies"]["truncated"], manifest["complete"]) == (cut, not cut)


async def test_more_than_a_page_comes_whole_and_in_order(expunge: Expunge) -> None:
    """Law 11: 1, 999, 1000, 1001 and 2500 records of a person, beside those of others, all stand in their export."""
    for user, many in (("one", 1), ("u999", 999), ("u1000", 1000), ("u1001", 1001), ("u2500", 2500)):
        await expunge.put([memory(f"{user}-{n}", f"k{n}", who) for n in range(many) for who in (user,)])
    for user, many in (("one", 1), ("u999", 999), ("u1000", 1000), ("u1001", 1001), ("u2500", 2500)):
        data, manifest = await exported(expunge, user, format="jsonl")
        assert [json.loads(line)["id"] for line in lines_of(data, "jsonl")] == [f"{user}-{n}" for n in range(many)]
        assert counts(manifest)["memories"] == many


async def test_lineage_stands_in_it_both_ways(expunge: Expunge) -> None:
    """Export: a record names its sources, and what was made from theirs elsewhere is named and not given."""
    await expunge.put([
        episode("a-e", "ann"),
        episode("b-e", "bob"),
        fact("a-f", "ann", sources=["a-e", "b-e"]),
        memory("shared", "digest", value="Bob told of his illness", sources=["a-e", "b-e"]),
    ])  # fmt: skip
    data, manifest = await exported(expunge, "ann", format="jsonl")
    lines = [json.loads(line) for line in lines_of(data, "jsonl")]
    assert next(line for line in lines if line["id"] == "a-f")["sources"] == ["a-e", "b-e"]
    derived = [line for line in lines if line["collection"] == "derived"]
    assert derived == [
        {"collection": "derived", "in": "memories", "id": "shared", "made_from": "a-e", "of": "episodes"}
    ]
    assert b"illness" not in data
    assert [item["what"] for item in manifest["left_out"]] == ["vectors", "derived"]


async def test_vectors_come_on_request(expunge: Expunge, tmp_path: Path) -> None:
    """Export: vectors are given when they are asked for, and their absence leaves an export complete."""
    await fill(expunge, tmp_path)
    _, manifest = await exported(expunge, "ann")
    assert ("vectors" in manifest["sections"], manifest["complete"]) == (False, True)
    data, manifest = await exported(expunge, "ann", vectors=True, format="jsonl")
    vectors = [json.loads(line) for line in lines_of(data, "jsonl") if line.startswith(b'{"collection":"vectors"')]
    assert len(vectors) == counts(manifest)["vectors"] > 5
    assert {len(base64.b64decode(line["float16"])) for line in vectors} == {512}


@pytest.mark.parametrize("purge", [True, False])
@pytest.mark.parametrize(
    "scope", [{"users": ["ann"]}, {"session_id": "a-s"}, {"whole_org": True}, {"namespaces": ["x"]}]
)
async def test_an_erasure_of_the_person_ends_an_export(
    expunge: Expunge, tmp_path: Path, purge: bool, scope: dict[str, object]
) -> None:
    """Law 4: an export that an erasure overtakes ends with an error, whatever part of the person it takes."""
    await fill(expunge, tmp_path)
    await expunge.put([episode("a-x", "ann", namespace="x")])
    found = await expunge.call("subject.export", user_id="ann", format="json")
    pieces = found.pieces()
    taken = [await anext(pieces)]
    words: dict[str, Any] = dict(scope)
    await expunge.erase(*words.pop("users", ()), purge=purge, **words)
    with pytest.raises((ErasedSince, ErasureInProgress), match="touches what was being exported"):
        await take_all(pieces, taken)
    data = b"".join(taken)
    assert b'"manifest"' not in data
    with pytest.raises(json.JSONDecodeError):
        json.loads(data)


async def test_an_erasure_under_a_new_key_by_another_process_ends_it_too(expunge: Expunge, settings: Settings) -> None:
    """Law 4: keys that another system has rotated meanwhile do not hide its fence from an export."""
    await expunge.put([episode("a", "ann"), episode("b", "bob")])
    found = await expunge.call("subject.export", user_id="ann", format="json")
    pieces = found.pieces()
    taken = [await anext(pieces)]
    async with Expunge(settings=settings) as other:
        await other.call("keys.rotate")
        await other.erase("ann", purge=True)
    with pytest.raises(ErasedSince):
        await take_all(pieces, taken)
    assert counts((await exported(expunge, "bob"))[1])["episodes"] == 1


async def test_an_erasure_of_somebody_else_does_not(expunge: Expunge, tmp_path: Path) -> None:
    """Law 10: an export goes on beside the erasure of another person, and holds the same."""
    await fill(expunge, tmp_path)
    _, before = await exported(expunge, "ann")
    found = await expunge.call("subject.export", user_id="ann", format="json")
    pieces = found.pieces()
    await anext(pieces)
    await expunge.erase("bob", purge=True)
    assert [piece async for piece in pieces]
    assert without_origin(found.manifest) == without_origin(before)


async def test_a_file_is_there_whole_or_not_at_all(expunge: Expunge, tmp_path: Path) -> None:
    """Law 16: a file that an erasure or a full folder interrupts is not there, nor a piece of it beside it."""
    await fill(expunge, tmp_path)
    folder = tmp_path / "out"
    folder.mkdir()
    manifest = await expunge.export_to(folder / "ann.json", "ann")
    assert json.loads((folder / "ann.json").read_bytes())["manifest"] == manifest
    assert stat.S_IMODE((folder / "ann.json").stat().st_mode) == 0o600
    before = (folder / "ann.json").read_bytes()
    for path in (tmp_path / "expunge.originals").rglob("*"):
        if path.is_file() and path.read_bytes() == (tmp_path / "note.bin").read_bytes():
            path.write_bytes(b"x")
    with pytest.raises(StoreFault):
        await expunge.export_to(folder / "ann.json", "ann")
    assert [path.name for path in folder.iterdir()] == ["ann.json"]
    assert (folder / "ann.json").read_bytes() == before
    with pytest.raises(InputError, match="cannot be written"):
        await expunge.export_to(tmp_path / "nowhere" / "ann.json", "ann")
    await expunge.put([episode("c", "cora")])
    await asyncio.gather(*(expunge.export_to(folder / f"{n}.jsonl", "cora") for n in range(4)))
    assert sorted(path.name for path in folder.iterdir()) == ["0.jsonl", "1.jsonl", "2.jsonl", "3.jsonl", "ann.json"]
    assert all(b'"manifest"' in (folder / f"{n}.jsonl").read_bytes().splitlines()[-1] for n in range(4))


async def test_hostile_ids_are_exported_apart_and_name_no_file(expunge: Expunge, tmp_path: Path) -> None:
    """Law 12: each hostile id is exported alone, and no file of a zip is named by one."""
    (tmp_path / "f.txt").write_text("body")
    for n, user in enumerate(HOSTILE_IDS):
        await expunge.put(
            [episode(f"e{n}", user, attachments=["f.txt"], input=f"canary {n}")], attachments_from=tmp_path
        )
    for n, user in enumerate(HOSTILE_IDS):
        data, manifest = await exported(expunge, user, format="zip")
        packed = zipfile.ZipFile(io.BytesIO(data))
        assert packed.namelist() == ["export.json", "bodies/000001"]
        record = json.loads(packed.read("export.json"))["sections"]["episodes"]
        assert [(line["id"], line["user_id"]) for line in record] == [(f"e{n}", user)]
        assert manifest["scope"] == {"org": "default", "user_id": user}


async def test_two_orgs_with_the_same_ids_do_not_mix(expunge: Expunge) -> None:
    """Law 12: an export of one org's Ann holds nothing of another's."""
    for org in ("one", "two"):
        await expunge.put([episode("e", "ann", input=f"of {org}"), memory("m", "k", "ann", sources=["e"])], org=org)
    data, manifest = await exported(expunge, "ann", org="one", format="jsonl")
    assert (b"of one" in data, b"of two" in data, counts(manifest)["memories"]) == (True, False, 1)


async def test_an_agent_exports_in_its_namespace(expunge: Expunge) -> None:
    """Export: ``agent.memory.export`` gives an object of the person's own, in the agent's namespace."""
    async with Agent(expunge, namespace="support", agent="helper", user_id="ann") as agent:
        await agent.memory.set("likes", "tea")
        await agent.memory.set("likes", "coffee")
        async with agent.memory.run("Hello", session_id="s1") as run:
            await run.finish("Hi")
        await agent.memory.add_document("Letter", text="Dear Ann")
        await expunge.put([episode("elsewhere", "ann", namespace="sales")])
        found = await agent.memory.export()
        assert [record.value for record in found.memories] == ["tea", "coffee"]  # type: ignore[attr-defined]
        assert [(record.input, record.output) for record in found.episodes] == [("Hello", "Hi")]  # type: ignore[attr-defined]
        assert list(found.bodies.values()) == [b"Dear Ann"]
        assert found.complete
        assert json.loads(found.model_dump_json())["user_id"] == "ann"
        assert len((await agent.expunge.export("ann")).episodes) == 2
    async with Agent(expunge) as nobody:
        with pytest.raises(InvalidScope, match="no user was named"):
            await nobody.memory.export()


@pytest.mark.authorities("sqlite")  # of PostgreSQL: tests/pg/test_query_plans.py
async def test_the_query_plan_follows_the_index(expunge: Expunge, tmp_path: Path) -> None:
    """Design 6: a page is read by the user's index from where the last one ended, without sorting or walking."""
    from expunge.datamap.selector import Selector
    from expunge.model.scope import Scope
    from expunge.subject.export import statements

    await fill(expunge, tmp_path)
    selector = Selector.of(Scope.of_users("default", ["ann"]))
    values = {"org": "default", "targets": '[{"user_id":"ann"}]', "seq": 0, "rid": 0, "until": 9, "size": 2}
    for kind in RECORDS:
        for made in (
            statements.page(kind, selector, hidden=False, tombstoned=True),
            statements.derived(kind, selector),
            statements.window_end(kind, selector),
        ):
            explain = Statement("test.explain", "EXPLAIN QUERY PLAN " + made.text)
            rows = await expunge.system.authority.read(lambda tx: tx.rows(explain, **values))  # noqa: B023
            plan = [row[3].replace("COVERING INDEX", "INDEX") for row in rows]
            assert (
                f"SEARCH r USING INDEX {kind.name}_user (org=? AND user_id=? AND seq=? AND rowid>? AND rowid<?)" in plan
            ), plan
            assert not [line for line in plan if line.startswith("SCAN r") or "TEMP B-TREE FOR ORDER BY" in line], plan


def test_the_command_writes_what_the_name_says(tmp_path: Path) -> None:
    """The command: the form follows the file's name, stdout takes JSON, and options of the admin ask for --admin."""
    shell = Shell(tmp_path)
    (tmp_path / "in.jsonl").write_text(json.dumps(episode("e", "ann")))
    shell.run("load", "in.jsonl")
    for form in FORMS:
        said = shell.json("export", "ann", "-o", f"ann.{form}")
        assert said["manifest"]["sections"]["episodes"]["count"] == 1
    assert zipfile.is_zipfile(tmp_path / "ann.zip")
    assert json.loads((tmp_path / "ann.jsonl").read_text().splitlines()[0]) == {
        "format": "expunge-export",
        "version": 1,
    }
    assert json.loads(shell.run("export", "ann").stdout)["manifest"]["complete"]
    assert shell.error("export", "ann", "--section-limit", "3", exits=2)["code"] == "INVALID_INPUT"
    assert (
        json.loads(shell.run("export", "ann", "--admin", "--section-limit", "1").stdout)["manifest"]["view"] == "admin"
    )
    words = shell.run("export", "ann", "-o", "ann.json").stdout.decode()
    assert ("episodes" in words, "complete" in words) == (True, True)
    assert "nothing found on" not in words
    assert b"nothing found on Ann in org default" in shell.run("export", "Ann", "-o", "nobody.json").stdout
    nobody = json.loads(shell.run("export", "nobody").stdout)
    assert {section["count"] for section in nobody["manifest"]["sections"].values()} == {0}


def test_a_file_holds_the_form_that_its_name_asks_for_or_is_not_made(tmp_path: Path) -> None:
    """Bad input: JSON in `ann.pdf` would be handed over unread; the case of an ending says nothing."""
    shell = Shell(tmp_path)
    (tmp_path / "in.jsonl").write_text(json.dumps(episode("e", "ann")))
    shell.run("load", "in.jsonl")
    refused = shell.error("export", "ann", "-o", "ann.pdf", exits=2)
    assert ("'ann.pdf'" in refused["message"], ".zip" in refused["hint"]) == (True, True)
    assert not (tmp_path / "ann.pdf").exists()
    shell.run("export", "ann", "-o", "ann.ZIP")
    assert zipfile.is_zipfile(tmp_path / "ann.ZIP")
    for name, words in (("ann", ()), ("ann.pdf", ("--format", "json"))):
        shell.run("export", "ann", "-o", name, *words)
        assert json.loads((tmp_path / name).read_text())["manifest"]["complete"]


@pytest.mark.authorities("memory")
async def test_a_store_in_memory_exports_too(expunge: Expunge, tmp_path: Path) -> None:
    """Export: bodies of a database in memory come as well."""
    await fill(expunge, tmp_path)
    assert any(isinstance(store, MemoryStore) for store in expunge.system.stores)
    data, manifest = await exported(expunge, "ann", format="jsonl")
    assert (counts(manifest)["bodies"], len(data) > 100_000) == (3, True)
