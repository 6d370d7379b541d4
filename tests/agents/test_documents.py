"""Documents: originals as they came, their text in chunks, versions, and the pin."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from expunge import Expunge
from expunge.errors import IdempotencyConflict, InputError, InvalidRecords, Pinned
from expunge.memory.originals import CHUNK_CHARS, pieces_of
from expunge.model.instant import ManualClock
from tests.agents.kit import NAMESPACE, ORG, after, as_user, count, read, texts
from tests.eye import home

pytestmark = pytest.mark.authorities("sqlite", "postgres")

PARAGRAPH = "The otter sleeps on its back. It holds the hand of another, so that neither drifts away.\n\n"
BINARY = bytes(range(256)) * 20


def originals(expunge: Expunge) -> list[Path]:
    """The files in the folder where the originals lie, but its lock."""
    folder = home(expunge.settings) / "expunge.originals"
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]


def contents(expunge: Expunge) -> list[bytes]:
    return [path.read_bytes() for path in originals(expunge)]


async def test_a_text_is_kept_found_and_given_back(expunge: Expunge) -> None:
    """Issue 4: the original's bytes as an object, the text chunked and searched; its chunks together are the text."""
    text = PARAGRAPH * 40 + "Only here a walrus. " + PARAGRAPH * 10
    async with as_user(expunge) as agent:
        memory = agent.memory
        document = await memory.add_document("Otters", text=text, media_type="text/markdown")
        assert (document.version, document.pinned, document.media_type) == (1, False, "text/markdown")
        assert (document.bytes, document.sha256) == (len(text), hashlib.sha256(text.encode()).hexdigest())
        got = await memory.document("Otters")
        assert got.document == document
        assert got.text == text
        assert await memory.original("Otters") == text.encode()
        assert contents(expunge) == [text.encode()]
        chunks = await read(expunge, "SELECT text FROM chunks ORDER BY position")
        assert "".join(piece for (piece,) in chunks) == text
        assert len(chunks) > 3
        assert max(len(piece) for (piece,) in chunks) <= CHUNK_CHARS
        (hit, *_) = await memory.search("walrus", kinds=["chunks"])
        assert "Only here a walrus." in hit.text
        assert hit.record["document"] == document.id
        nothing = await memory.document("otters")
        assert (nothing.found, nothing.document, nothing.text) == (False, None, None)
        assert await memory.original("otters") is None


@settings(max_examples=40, deadline=None)
@given(text=st.text(alphabet="ab .\n\u3002é", max_size=200).flatmap(lambda s: st.integers(0, 40).map(lambda n: s * n)))
@example(text="a" + " " * 3 * CHUNK_CHARS + "b")
@example(text=" " * 5)
@example(text="x" * 2 * CHUNK_CHARS + "\n" * CHUNK_CHARS)
def test_the_pieces_together_are_the_text(text: str) -> None:
    """Bad input: nothing is trimmed or cut in silence: the pieces of a text are the text, each of bounded length."""
    pieces = list(pieces_of(text))
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= CHUNK_CHARS for piece in pieces)


async def test_a_file_is_kept_as_it_came(expunge: Expunge, tmp_path: Path) -> None:
    """A file's bytes are its original, a mark at the beginning too; its text is found, without that mark."""
    path = tmp_path / "otters.md"
    path.write_bytes(b"\xef\xbb\xbf" + "Ötters sleep".encode())
    async with as_user(expunge) as agent:
        await agent.memory.add_document("Otters", path=str(path))
        document = await agent.memory.add_document("Otters", path=path)
        assert (document.version, document.media_type, document.bytes) == (2, "text/markdown", 16)
        assert await agent.memory.original("Otters") == path.read_bytes()
        assert (await agent.memory.document("Otters")).text == "Ötters sleep"
        assert len(await agent.memory.search("otters", kinds=["chunks"])) == 1
        path.write_text("changed")
        assert (await agent.memory.original("Otters", version=1) or b"").endswith(b"sleep")


async def test_a_binary_file_is_kept_and_not_found(expunge: Expunge, tmp_path: Path) -> None:
    """A file that is no text is kept as it came; search finds it when its text comes with it."""
    path = tmp_path / "scan.pdf"
    path.write_bytes(BINARY)
    async with as_user(expunge) as agent:
        memory = agent.memory
        document = await memory.add_document("Scan", path=path)
        assert document.media_type == "application/pdf"
        assert await memory.original("Scan") == BINARY
        assert (await memory.document("Scan")).text == ""
        assert await memory.search("", kinds=["chunks"]) == []
        await memory.add_document("Read", path=path, text="an otter was read out of it")
        assert await memory.original("Read") == BINARY
        assert texts(await memory.search("otter", kinds=["chunks"])) == ["an otter was read out of it"]
        (tmp_path / "nul.txt").write_bytes(b"a\0b")
        await memory.add_document("Nul", path=tmp_path / "nul.txt")
        assert await memory.original("Nul") == b"a\0b"
        (tmp_path / "empty.txt").write_bytes(b"")
        await memory.add_document("Empty", path=tmp_path / "empty.txt")
        assert await memory.original("Empty") == b""
        assert (await memory.document("Empty")).found


async def test_only_the_version_that_stands_is_found(expunge: Expunge, clock: ManualClock) -> None:
    """Search never finds what was replaced or deleted; earlier versions are read by their number."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.add_document("Otters", text="first otter")
        clock.advance(-60)
        second = await memory.add_document("Otters", text="second otter")
        await memory.add_document("Others", text="third otter")
        await memory.add_document("Otters", text="otter of bob", user_id="bob")
        assert second.version == 2
        assert sorted(texts(await memory.search("otter", kinds=["chunks"]))) == ["second otter", "third otter"]
        assert len(await memory.search("", kinds=["chunks"])) == 2
        assert (await memory.document("Otters", version=1)).text == "first otter"
        assert (await memory.document("Otters")).text == "second otter"
        assert not (await memory.document("Otters", version=3)).found
        listed = await memory.documents(limit=1)
        assert ([item.title for item in listed.documents], listed.next) == (["Others"], "Others")
        rest = await memory.documents(after=listed.next or "")
        assert ([(item.title, item.version) for item in rest.documents], rest.next) == ([("Otters", 2)], None)
        assert await memory.delete_document("Otters")
        assert not await memory.delete_document("Otters")
        assert texts(await memory.search("otter", kinds=["chunks"])) == ["third otter"]
        assert not (await memory.document("Otters")).found
        assert await memory.original("Otters") is None
        assert [item.title for item in (await memory.documents()).documents] == ["Others"]
        assert (await memory.document("Otters", user_id="bob")).found
        assert (await memory.add_document("Otters", text="fourth otter")).version == 4


async def test_a_pin_keeps_a_document(expunge: Expunge) -> None:
    """Law 8: what is pinned is neither replaced nor deleted until the pin is off; an erasure asks no pin."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.add_document("Otters", text="pinned otter")
        await memory.add_document("Free", text="free")
        assert await memory.pin_document("Otters")
        assert not await memory.pin_document("None")
        with pytest.raises(Pinned):
            await memory.add_document("Otters", text="new")
        with pytest.raises(Pinned):
            await memory.delete_document("Otters")
        got = await memory.document("Otters")
        assert got.document is not None
        assert (got.text, got.document.pinned, got.document.version) == ("pinned otter", True, 1)
        assert len(originals(expunge)) == 2  # what was refused has left nothing behind
        assert (await memory.add_document("Free", text="free again")).version == 2
        assert await memory.pin_document("Otters", pinned=False)
        assert (await memory.add_document("Otters", text="new")).version == 2
        await memory.pin_document("Otters")
        await memory.forget(user_id="ann")
        assert not (await memory.document("Otters")).found
        assert originals(expunge) == []


async def test_forgetting_leaves_no_original(expunge: Expunge, tmp_path: Path) -> None:
    """Law 7: originals, rows, chunks, entries and vectors of every version go; another's are byte-equal (law 10)."""
    path = tmp_path / "scan.bin"
    path.write_bytes(BINARY)
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.add_document("A", text=PARAGRAPH * 30)
        await memory.add_document("A", text="new")
        await memory.add_document("B", path=path)
        await memory.delete_document("B")
        await memory.add_document("A", text="of bob", user_id="bob")
        assert len(originals(expunge)) == 4
        gone = await memory.forget(user_id="ann")
        assert gone.by_collection["documents"] == 4
        assert gone.receipt["census"]["originals.documents"] == 0
        assert contents(expunge) == [b"of bob"]
        left = await count(expunge, "documents", "chunks", "vectors", "search_docsize")
        assert left == {"documents": 1, "chunks": 1, "vectors": 1, "search_docsize": 1}
        assert await memory.original("A", user_id="bob") == b"of bob"
        assert (await memory.forget(user_id="bob")) == 2
        assert originals(expunge) == []


async def test_hidden_documents_come_back_whole(expunge: Expunge) -> None:
    """Law 6: a hidden document is not served, its original stays until the window ends; restored it is found."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.add_document("Otters", text="an otter")
        hidden = await agent.erasure.request_user_id("ann")
        assert not (await memory.document("Otters")).found
        assert await memory.original("Otters") is None
        assert await memory.search("otter", kinds=["chunks"]) == []
        assert (await memory.documents()).documents == []
        assert not await memory.pin_document("Otters")
        await agent.erasure.restore(hidden.request_id)
        assert await memory.original("Otters") == b"an otter"
        assert texts(await memory.search("otter", kinds=["chunks"])) == ["an otter"]


async def test_a_document_is_written_once(expunge: Expunge) -> None:
    """Law 16: a repeat with an idempotency key writes nothing; something else under the key is a conflict."""
    async with as_user(expunge) as agent:
        first = await agent.memory.add_document("Otters", text="one", idempotency_key="i1")
        again = await agent.memory.add_document("Otters", text="one", idempotency_key="i1")
        assert again == first
        assert contents(expunge) == [b"one"]
        with pytest.raises(IdempotencyConflict):
            await agent.memory.add_document("Otters", text="two", idempotency_key="i1")
        with pytest.raises(IdempotencyConflict):
            await agent.memory.add_document("Others", text="one", idempotency_key="i1")
        assert contents(expunge) == [b"one"]


async def test_what_is_no_document(expunge: Expunge, tmp_path: Path) -> None:
    """Bad input: no content, a path that leads nowhere, a bad title: refused, and nothing is half-written."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "nowhere")
    most = expunge.settings.max_attachment_bytes
    with (tmp_path / "huge.bin").open("wb") as huge:
        huge.truncate(most + 1)
    wrong: list[dict[str, Any]] = [
        {},
        {"path": tmp_path / "missing.txt"},
        {"path": tmp_path / "folder"},
        {"path": tmp_path / "link.txt"},
        {"path": tmp_path / "huge.bin"},
        {"path": ""},
        {"path": "a\0b"},
        {"text": "a\0b"},
        {"text": "\ud800"},
        {"text": 7},
        {"text": "x", "sources": ["nowhere"]},
        {"text": "x", "media_type": "a\0b"},
    ]
    async with as_user(expunge) as agent:
        for options in wrong:
            with pytest.raises(InputError):
                await agent.memory.add_document("Title", **options)
        titles: list[Any] = ["", " ", "-", "a\0b", "\ud800", "x" * 257, None, 7]
        for title in titles:
            with pytest.raises(InputError):
                await agent.memory.add_document(title, text="x")
            with pytest.raises(InputError):
                await agent.memory.document(title)
        for title in ("../../etc/passwd", "C:\\x", "%2e%2e", "é" * 128):
            assert (await agent.memory.add_document(title, text=title)).title == title
    assert await count(expunge, "documents", "chunks") == {"documents": 4, "chunks": 4}
    assert len(originals(expunge)) == 4


async def test_documents_are_loaded(expunge: Expunge, tmp_path: Path) -> None:
    """Load format: a document comes as a text or as a path under ``attachments_from``, in rows as a call writes them."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "otters.md").write_text("an otter from a file")
    (tmp_path / "outside.txt").write_text("outside")
    whose = {"user_id": "ann", "namespace": NAMESPACE, "agent": "helper"}
    lines: list[dict[str, Any]] = [
        {"id": "d1", "title": "Text", "text": PARAGRAPH * 30, "created_at": "2025-12-01T00:00:00Z"},
        {"id": "d2", "title": "File", "path": "otters.md", "pinned": True},
        {"id": "d3", "title": "Gone", "state": "tombstoned"},
    ]
    records = [{"collection": "documents"} | whose | line for line in lines]
    loaded = await expunge.put(records, org=ORG, attachments_from=tmp_path / "files")
    assert loaded.collections["documents"] == 3
    async with as_user(expunge) as agent:
        memory = agent.memory
        assert (await memory.document("Text")).text == PARAGRAPH * 30
        assert await memory.original("File") == b"an otter from a file"
        found = await memory.document("File")
        assert found.document is not None
        assert (found.document.pinned, found.document.media_type) == (True, "text/markdown")
        assert not (await memory.document("Gone")).found
        assert "an otter from a file" in texts(await memory.search("otter", kinds=["chunks"], limit=20))
        (text,) = [item for item in (await memory.documents()).documents if item.title == "Text"]
        assert text.created_at == after(days=-31)
    owners = "SELECT DISTINCT user_id, namespace, agent FROM {}"
    for table in ("documents", "chunks"):
        assert await read(expunge, owners.format(table)) == [("ann", NAMESPACE, "helper")]
    before = await count(expunge, "documents", "chunks")
    again = await expunge.put(records, org=ORG, attachments_from=tmp_path / "files")
    assert (again.loaded, again.collections) == (0, {})
    wrong: list[dict[str, Any]] = [
        {"id": "d4", "title": "T"},
        {"id": "d4", "title": "T", "path": "../outside.txt"},
        {"id": "d4", "title": "T", "path": "missing.txt"},
        {"id": "d4", "text": "no title"},
        {"id": "d4", "title": "T", "text": 7},
        {"id": "d4", "title": "T", "text": "x", "state": "tombstoned"},
        {"id": "d4", "title": "T", "text": "x", "bytes": 7},
        {"id": "d4", "title": "T", "text": "x", "chunks": []},
        {"id": "d1", "title": "Text", "text": "other text"},
    ]
    for line in wrong:
        with pytest.raises(InvalidRecords):
            await expunge.put([records[0], {"collection": "documents"} | whose | line], org=ORG,
                              attachments_from=tmp_path / "files")  # fmt: skip
    assert await count(expunge, "documents", "chunks") == before
    assert len(originals(expunge)) == 2
