"""Residue in the files of bodies: their names, their bytes, what they compress, and what cannot be looked into."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import zipfile
from pathlib import Path

import pytest

from expunge import Expunge, Settings
from expunge.residue import containers
from expunge.residue.containers import Opener
from expunge.stores.faulty import Faulty
from expunge.stores.folder import FolderStore
from expunge.stores.memory import MemoryStore
from tests.residue.kit import look, of, standings
from tests.support import document, episode

SAID = "My sister Ilse moved to Porto last spring"
NOISE = random.Random(7).randbytes(5000)
PNG = b"\x89PNG\r\n\x1a\n" + NOISE


def zipped(**members: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, member in members.items():
            packed.writestr(name, member)
    return data.getvalue()


PACKED = {
    "plain": SAID.encode(),
    "utf16": SAID.encode("utf-16"),
    "utf16-be": SAID.encode("utf-16-be"),
    "gzip": gzip.compress(SAID.encode()),
    "bzip2": bz2.compress(SAID.encode()),
    "xz": lzma.compress(SAID.encode()),
    "zip": zipped(other=b"no", word=f"<w:t>{SAID}</w:t>".encode()),
    "zip in gzip": gzip.compress(zipped(word=SAID.encode())),
    "gzip in zip": zipped(inner=gzip.compress(SAID.encode("utf-16"))),
}


async def with_original(expunge: Expunge, folder: Path, data: bytes, user: str = "ann", name: str = "o") -> None:
    """A document whose original has these bytes, and whose text says nothing of them."""
    (folder / f"{name}.bin").write_bytes(data)
    record = document(f"d-{name}", f"Title {name}", user, path=f"{name}.bin") | {"text": "read out by hand"}
    await expunge.put([record], attachments_from=folder)


@pytest.mark.parametrize("how", PACKED)
async def test_the_text_of_an_original_is_found_however_it_is_packed(expunge, tmp_path, how):
    """Residue: an original is decoded, and its document accounts for what it says."""
    await with_original(expunge, tmp_path, PACKED[how])
    answer = await look(expunge, SAID)
    assert {(hit.collection, hit.record) for hit in of(answer, 1)} == {("documents", "'d-o'")}
    found = [hit for hit in of(answer, 1) if hit.file.startswith(str(tmp_path / "expunge.originals"))]
    hit = found[-1]  # a packer leaves what is short as it is, and then it is found there too
    assert answer.verdict == "accounted"
    assert (hit.within is not None) == (how not in ("plain", "utf16", "utf16-be"))
    assert hit.form.startswith("UTF-16") == ("utf16" in how or how == "gzip in zip")


@pytest.mark.parametrize(
    "data",
    [
        b"7z\xbc\xaf\x27\x1c" + NOISE, b"%PDF-1.7 " + NOISE, b"Rar!\x1a\x07" + NOISE, b"Salted__" + NOISE, NOISE,
        NOISE[:300], gzip.compress(NOISE * 3)[:-3000], b"PK\x03\x04" + NOISE,
    ],
    ids=["7z", "pdf", "rar", "openssl", "encrypted", "short", "damaged gzip", "damaged zip"],
)  # fmt: skip
async def test_what_cannot_be_decoded_is_unknown(expunge, tmp_path, data):
    """Law 16: a body that cannot be looked into makes the answer unknown, and not that nothing was found."""
    await with_original(expunge, tmp_path, data)
    answer = await look(expunge, SAID)
    assert (answer.verdict, answer.hits, len(answer.unknown)) == ("unknown", 0, 1)
    assert answer.unknown[0].file.startswith(str(tmp_path / "expunge.originals"))
    await expunge.erase("ann", purge=True)
    assert (await look(expunge, SAID)).verdict == "nothing"


async def test_pictures_are_looked_through_as_they_are(expunge, tmp_path):
    """Residue: a picture is told as no text, and its bytes are looked through all the same."""
    await with_original(expunge, tmp_path, PNG)
    answer = await look(expunge, SAID)
    assert (answer.verdict, [item.why for item in answer.not_text]) == ("nothing", ["PNG"])
    await with_original(expunge, tmp_path, PNG + SAID.encode(), name="p")
    assert (await look(expunge, SAID)).verdict == "accounted"


async def test_a_text_in_an_older_encoding_is_text(expunge, tmp_path):
    """Residue: a short text that is not UTF-8 is not taken for something encrypted."""
    await with_original(expunge, tmp_path, f"Zoë: {SAID}, für immer".encode("latin-1"))
    assert (await look(expunge, SAID)).verdict == "accounted"


async def test_an_encrypted_zip_is_unknown_and_its_other_members_are_not():
    """Law 16: of a zip whose member is encrypted the rest is looked into."""
    data = bytearray(zipped(a=SAID.encode(), b=b"other words"))
    central = data.rindex(b"PK\x01\x02")
    data[central + 8] |= 1  # the flag of the second member
    seen: dict[str | None, bytes] = {}
    opener = Opener(lambda stream, within: seen.update({within: stream.read()}))
    opener.open(io.BytesIO(bytes(data)))
    assert seen["zip, member 1"] == SAID.encode()
    assert "zip, member 2" not in seen
    assert len(opener.unknown) == 1


async def test_bombs_are_looked_at_within_bounds(monkeypatch):
    """Law 11: what decodes to more than is looked at is unknown from there on; what came before was looked at."""
    monkeypatch.setattr(containers, "MOST_NESTED", 1000)
    for bound, whole in ((100_000, True), (9_999, False)):
        seen: dict[str | None, int] = {}

        def count(stream, within, seen=seen):
            while piece := stream.read(512):
                seen[within] = seen.get(within, 0) + len(piece)

        opener = Opener(count, _left=bound)
        opener.open(io.BytesIO(gzip.compress(bytes(10_000))))
        assert (seen["gzip"] == 10_000, opener.unknown == []) == (whole, whole)
        assert seen["gzip"] >= 1000
    data = SAID.encode()
    for _ in range(6):
        data = gzip.compress(data)
    opener = Opener(lambda stream, within: None)
    opener.open(io.BytesIO(data))
    assert opener.unknown == [f"it is packed more than {containers.DEEPEST} times"]


async def test_a_body_that_no_row_names_and_a_half_written_one_have_no_record(expunge, tmp_path):
    """Residue: what a killed writer left in a store is found, and so is a body whose row has gone."""
    (tmp_path / "a.txt").write_text(SAID)
    await expunge.put([episode("e1", "ann", attachments=["a.txt"])], attachments_from=tmp_path)
    (body,) = (path for path in (tmp_path / "expunge.objects").rglob("*-*") if path.is_file())
    assert standings(await look(expunge, SAID)) == {"record"}
    (body.parent / (body.name[:-4] + "ffff")).write_text(f"orphan {SAID}")
    (body.parent / (body.name[:-4] + "eeee.part")).write_text(f"half {SAID}")
    answer = await look(expunge, f"orphan {SAID}", f"half {SAID}", SAID)
    assert answer.verdict == "residue"
    assert [hit.why for hit in (*of(answer, 1), *of(answer, 2))] == ["no record names this body"] * 2
    assert standings(answer, 3) == {"record", "nothing"}


async def test_what_others_put_into_a_store_is_looked_at_with_its_name(expunge, tmp_path):
    """Residue: a file of another's is no body, and a name that has the text is a hit of its own; links are unknown."""
    (tmp_path / "a.txt").write_text("hello there")
    await expunge.put([episode("e1", "ann", attachments=["a.txt"])], attachments_from=tmp_path)
    stray = tmp_path / "expunge.objects" / "left here" / "notes of Ilse.txt"
    stray.parent.mkdir()
    stray.write_text(SAID)
    answer = await look(expunge, SAID, "notes of Ilse")
    assert standings(answer, 1) == standings(answer, 2) == {"nothing"}
    assert {(hit.file, hit.place) for hit in of(answer, 2)} == {(str(stray), "the name of a file")}
    stray.unlink()
    (stray.parent / "link").symlink_to(tmp_path / "a.txt")
    answer = await look(expunge, SAID)
    assert (answer.verdict, [item.file for item in answer.unknown]) == ("unknown", [str(stray.parent / "link")])


async def test_a_hidden_attachment_is_hidden_and_another_s_same_words_stand(expunge, tmp_path):
    """Residue: a body is hidden with its row; the same words in another's body stand by that one's record."""
    (tmp_path / "a.txt").write_text(SAID)
    await expunge.put(
        [episode("e1", "ann", attachments=["a.txt"]), episode("e2", "bob", attachments=["a.txt"])],
        attachments_from=tmp_path,
    )
    await expunge.erase("ann", purge=False)
    assert standings(await look(expunge, SAID)) == {"record", "hidden"}
    await expunge.erase("ann", purge=True)
    answer = await look(expunge, SAID)
    assert (answer.verdict, standings(answer)) == ("accounted", {"record"})
    assert {hit.form for hit in of(answer, 1)} == {"UTF-8", "SHA-256 in hex"}, "the body, and its digest in the row"


async def test_a_store_that_shows_no_files_is_unknown(tmp_path, clock):
    """Law 16: of a store that cannot be looked into nobody says that it holds nothing; a wrapped folder can."""
    settings = Settings(db=str(tmp_path / "expunge.db"))
    async with Expunge(settings=settings, clock=clock, bodies=MemoryStore("elsewhere")) as expunge:
        answer = await look(expunge, SAID)
        assert (answer.verdict, [item.file for item in answer.unknown]) == ("unknown", ["store elsewhere"])
    wrapped = Faulty(FolderStore(tmp_path / "bodies"), None)
    async with Expunge(settings=settings, clock=clock, bodies=wrapped) as expunge:
        (tmp_path / "a.txt").write_text(SAID)
        await expunge.put([episode("e1", "ann", attachments=["a.txt"])], attachments_from=tmp_path)
        assert (await look(expunge, SAID)).verdict == "accounted"
    wrapped = Faulty(MemoryStore("elsewhere"), None)
    async with Expunge(settings=settings, clock=clock, bodies=wrapped) as expunge:
        assert (await look(expunge, SAID)).verdict == "unknown"
