"""Residue in the files of a database: what stands, what was left, and who accounts for it."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import random
import threading

import pytest

from expunge import Expunge
from expunge.authority.port import Statement
from expunge.errors import InputError, NotOffered
from tests.residue.kit import look, merge_index, of, plant, standings
from tests.support import document, episode, fact, memory, one_of_each

SAID = "My sister Ilse moved to Porto last spring"


async def test_what_nobody_said_is_not_found(expunge):
    """Residue: without a hit the answer is nothing, and says in which files and forms it was looked for."""
    await expunge.put([episode("e1", "ann", input=SAID)])
    answer = await look(expunge, "never said by anybody", "äöü never said 😂")
    assert (answer.verdict, answer.hits, answer.shown, answer.found) == ("nothing", 0, [], [])
    assert [file.file.rpartition("/")[2] for file in answer.files] == ["expunge.db", "expunge.db-wal"]
    assert all(file.bytes > 0 for file in answer.files)
    assert {"UTF-8", "JSON-escaped", "UTF-16 LE", "UTF-16 BE", "SHA-256", "vector"} <= set(answer.forms)
    assert any("key file" in what for what in answer.not_searched)


async def test_a_live_record_accounts_for_its_text_in_row_index_edge_vector_and_entry(expunge):
    """Residue: every place in which a live record stands is led back to it, and an id of another is not."""
    await expunge.put(
        [
            episode("ep-one-1", "ann", input=SAID),
            memory("m1", "ilse/town", "ann", value={"said": SAID}, sources=["ep-one-1"]),
            document("d1", "About Ilse and Porto", "ann", text=SAID),
            episode("ep-two-2", "bob", input="Bye!"),
        ]
    )
    answer = await look(expunge, SAID, "ilse/town", "About Ilse and Porto", "ep-one-1", "Bye!")
    assert (answer.verdict, answer.residue, answer.unknown) == ("accounted", 0, [])
    assert {(hit.collection, hit.record) for hit in of(answer, 1)} >= {
        ("episodes", "'ep-one-1'"),
        ("memories", "'m1'"),
    }
    assert {hit.form for hit in of(answer, 1)} >= {"UTF-8", "vector", "hashes of its words"}
    assert any(hit.place == "memories.key, in the index memories_key" for hit in of(answer, 2))
    assert any(hit.place == "documents.title, in the index documents_title" for hit in of(answer, 3))
    edges = [hit for hit in of(answer, 4) if hit.place.startswith("lineage.source")]
    assert {hit.place for hit in edges} == {"lineage.source", "lineage.source, in the index lineage_source"}
    assert {(hit.collection, hit.record) for hit in edges} == {("episodes", "'ep-one-1'")}
    assert {(hit.collection, hit.record) for hit in of(answer, 5)} == {("episodes", "'ep-two-2'")}


async def test_after_a_purge_only_what_others_said_is_found(expunge):
    """Law 7: of all that was kept of a person nothing is found, and another's same words stand by their record."""
    theirs = [*one_of_each("ann-the-first", "aa"), episode("aa-e2", "ann-the-first", input="Bye!!!!", output=SAID)]
    others = [*one_of_each("bob-the-other", "bb"), episode("bb-e2", "bob-the-other", input="Bye!!!!")]
    await expunge.put([*theirs, *others])
    texts = ["Bye!!!!", SAID, "ann-the-first", "words of aa-e", "value of aa-m", "aa-e2", "aa-sum2", "summary/aa"]
    assert (await look(expunge, *texts)).verdict == "accounted"
    assert (await expunge.erase("ann-the-first", purge=True)).status == "completed"

    answer = await look(expunge, *texts)
    kept = [hit for hit in answer.shown if hit.standing == "nothing"]
    assert {hit.form for hit in kept} == {"hashes of its words"}, "only the index is not merged yet"
    assert {hit.why for hit in kept} == {"its record has gone"}

    await merge_index(expunge)
    answer = await look(expunge, *texts)
    assert (answer.verdict, answer.residue) == ("accounted", 0)
    assert {found.text for found in answer.found} == {1}
    assert {(hit.collection, hit.record) for hit in answer.shown} == {("episodes", "'bb-e2'")}


async def test_bytes_in_free_pages_and_unused_space_have_no_record(expunge, settings, tmp_path):
    """Residue: what was deleted without being overwritten is found, in a free page and in a hole of a page."""
    await expunge.put([episode("e1", "ann", input="a row that stays")])
    await expunge.system.close()
    plant(tmp_path / "expunge.db", "removed", texts=["a short text that went", f"{SAID} " * 500])
    async with Expunge(settings=settings) as opened:
        answer = await look(opened, "a short text that went", SAID, "a row that stays")
    assert answer.verdict == "residue"
    assert standings(answer, 1) == standings(answer, 2) == {"nothing"}
    assert {hit.place for hit in of(answer, 1)} == {"the unused space of a page of blocks"}
    assert {hit.place for hit in of(answer, 2)} >= {"a free page"}
    assert standings(answer, 3) == {"record"}
    found = next(found for found in answer.found if found.text == 2)
    assert found.hits > 100, "all are counted"
    assert found.shown == 100, "and no more than these are shown"


async def test_a_frame_of_the_log_that_was_superseded_has_no_record(expunge, settings, tmp_path):
    """Residue: what only an older version of a page in the log holds is found there."""
    await expunge.put([episode("e1", "ann", input="a row that stays")])
    await expunge.system.close()
    plant(tmp_path / "expunge.db", "logged", texts=["a short text that went", f"{SAID} " * 500])
    async with Expunge(settings=settings) as opened:
        answer = await look(opened, "a short text that went", SAID, "a row that stays")
        assert {hit.file.rpartition("/")[2] for hit in (*of(answer, 1), *of(answer, 2))} == {"expunge.db-wal"}
        assert {hit.place for hit in of(answer, 1)} == {"an older copy of a page"}
        assert standings(answer, 1) == standings(answer, 2) == {"nothing"}
        assert standings(answer, 3) == {"record"}
        await opened.system.authority.reclaim()
        answer = await look(opened, "a short text that went", SAID, "a row that stays")
    assert (answer.verdict, {hit.text for hit in answer.shown}) == ("accounted", {3})


async def test_older_copies_of_a_live_record_are_its_own(expunge):
    """Residue: an older version of a page is accounted for by the row that holds the same bytes, also in a chain."""
    long = f"{SAID}, and {random.Random(1).randbytes(10_000).hex()}"
    await expunge.put([memory("m1", "long", "ann", value=long), episode("e1", "ann", input=SAID)])
    for number in range(5):
        await expunge.put([episode(f"x{number}", "bob"), memory(f"y{number}", "long", "bob")])
    await expunge.erase("ann", purge=False)  # rewrites the rows
    answer = await look(expunge, SAID, long[9000:9080])
    assert any(hit.place.startswith("an older copy of a page, ") for hit in of(answer, 1))
    assert any(", in an overflow page" in hit.place for hit in of(answer, 2))
    assert (answer.verdict, standings(answer, 1), standings(answer, 2)) == ("accounted", {"hidden"}, {"hidden"})


async def test_older_copies_of_a_chain_are_led_back_by_what_they_hold(expunge):
    """Residue: an overflow page that was written elsewhere meanwhile is its row's, because that goes on in the same."""
    long = f"{SAID}, and {random.Random(1).randbytes(10_000).hex()}"
    await expunge.put([episode("e0", "bob")])
    await expunge.erase("bob", purge=True)
    await expunge.put([episode("e1", "ann", input=long)])
    moved = Statement("test.seq", "UPDATE episodes SET seq = 300")  # one byte longer, and so written to other pages
    await expunge.system.authority.run(lambda tx: tx.change(moved))
    answer = await look(expunge, long[9000:9080])
    assert (answer.verdict, standings(answer)) == ("accounted", {"record"})
    assert {hit.place for hit in answer.shown} == {
        "episodes.input, in an overflow page",
        "an older copy of a page, episodes.input",
    }


async def test_a_hidden_record_accounts_for_its_text_until_its_window_ends(expunge, clock):
    """Residue: what an erasure has hidden is said to be, with the erasure and the end; after it nothing accounts."""
    await expunge.put([episode("e1", "ann", input=SAID)])
    erased = await expunge.erase("ann", purge=False)
    answer = await look(expunge, SAID)
    (hit, *_) = of(answer, 1)
    assert (answer.verdict, hit.standing, hit.erasure) == ("accounted", "hidden", erased.request_id)
    assert hit.until == erased.restore_until
    assert answer.hidden == answer.hits > 0
    clock.advance(15 * 86_400)
    answer = await look(expunge, SAID)
    assert (answer.verdict, standings(answer)) == ("residue", {"nothing"})


async def test_rows_of_the_control_plane_account_only_for_what_they_are_declared_to_hold(expunge):
    """Law 3: a standing hold, who acted and a hidden scope are declared; a released hold and a detail are not."""
    await expunge.put([episode("e1", "user-in-scope"), episode("e2", "user-on-hold")])
    await expunge.erase("user-in-scope", purge=False, requester="privacy@desk")
    change = Statement(
        "test.hold",
        "INSERT INTO holds (org, user_id, reason, placed_at, released_at) VALUES ('default', :user, :why, 0, :end)",
    )
    detail = Statement("test.detail", "UPDATE audit SET body = body || 'a careless note' WHERE n = 1")

    def unit(tx):
        tx.change(change, user="user-on-hold", why="the court has asked", end=None)
        tx.change(change, user="user-released", why="was asked and dropped", end=1)
        assert tx.change(detail) == 1

    await expunge.system.authority.run(unit)
    texts = [
        "user-in-scope", "privacy@desk", "user-on-hold", "the court has asked", "user-released",
        "was asked and dropped", "a careless note", "CREATE TABLE episodes",
    ]  # fmt: skip
    answer = await look(expunge, *texts)
    assert answer.verdict == "residue"
    assert standings(answer, 1) == {"hidden", "declared"}
    assert standings(answer, 2) == {"declared"}
    assert {"requests.requester", "audit_clear.name"} <= {hit.place.partition(",")[0] for hit in of(answer, 2)}
    assert standings(answer, 3) == {"record", "declared"}
    assert standings(answer, 4) == {"declared"}
    assert standings(answer, 5) == standings(answer, 6) == standings(answer, 7) == {"nothing"}
    assert standings(answer, 8) == {"schema"}
    assert {hit.place for hit in of(answer, 7)} == {"audit.body"}
    assert {hit.erasure for hit in of(answer, 1)} != {None}


async def test_a_purge_that_stopped_accounts_for_nothing(expunge):
    """Law 16: a record that an erasure is about to remove is no record that accounts for its text."""
    await expunge.put([episode("e1", "ann", input=SAID)])
    mark = Statement("test.mark", "UPDATE episodes SET marked = 1")
    await expunge.system.authority.run(lambda tx: tx.change(mark))
    answer = await look(expunge, SAID)
    assert (answer.verdict, standings(answer)) == ("residue", {"nothing"})
    assert {hit.why for hit in of(answer, 1)} == {"a marked record that no erasure names"}


@pytest.mark.parametrize("size", [512, 1024, 8192, 65536])
async def test_pages_of_any_size_are_read(expunge, settings, tmp_path, size):
    """Residue: rows, indexes, chains and free pages are led back whatever the size of a page."""
    key = f"ilse/town/{'x' * 150}"  # does not fit into an index page of 512 bytes
    value = f"{'-' * 20_000}{SAID}.{'-' * 300}"
    await expunge.put([episode("e1", "ann", input=SAID), memory("m1", key, "ann", value=value)])
    await expunge.system.close()
    plant(tmp_path / "expunge.db", "resized", bytes=size)
    async with Expunge(settings=settings) as opened:
        answer = await look(opened, SAID, "ilse/town", key)
        assert answer.verdict == "accounted"
        assert {hit.record for hit in of(answer, 1)} >= {"'e1'"}
        assert {hit.record for hit in of(answer, 2)} == {"'m1'"}
        assert "memories.key, in the index memories_key" in {hit.place for hit in of(answer, 2)}
        assert answer.found[2].hits + answer.found[2].pieces > 0
    plant(tmp_path / "expunge.db", "removed", texts=[f"{'+' * 70_000}a text that went{'+' * 900}"])
    async with Expunge(settings=settings) as opened:
        answer = await look(opened, "a text that went", SAID)
        assert (answer.verdict, standings(answer, 1), standings(answer, 2)) == ("residue", {"nothing"}, {"record"})


async def test_a_text_that_breaks_over_two_pages_is_found_by_its_pieces(expunge, settings, tmp_path):
    """Residue: where no page holds a text whole, its pieces are told, and none where it is whole."""
    text = "".join(f"{number:05}," for number in range(2000))
    await expunge.put([memory("m1", "long", "ann", value=text)])
    answer = await look(expunge, text)
    assert {hit.form for hit in answer.shown} == {"hashes of its words"}
    assert answer.found[0].pieces > 10
    await expunge.put([episode("e1", "ann", input=f"{SAID}, {SAID}")])
    assert (await look(expunge, f"{SAID}, {SAID}")).found[0].pieces == 0
    await expunge.system.close()
    plant(tmp_path / "expunge.db", "removed", texts=[f"gone {text}"])
    async with Expunge(settings=settings) as opened:
        answer = await look(opened, f"gone {text}")
    assert answer.verdict == "residue"
    assert all(hit.piece and hit.standing == "nothing" for hit in answer.shown)


async def test_escaped_and_wide_forms_and_digests_are_found(expunge):
    """Residue: a text is found as it is, escaped in JSON in both ways, in two bytes a letter, and by its SHA-256."""
    text = 'Zoë said "no"\n😂'
    values = {
        "e-plain": text,
        "e-utf8": json.dumps(text, ensure_ascii=False),
        "e-ascii": json.dumps(text),
        "e-capitals": json.dumps(text).replace("eb", "EB").replace("ud83d", "uD83D").replace("ude02", "uDE02"),
        "e-digest": "3f0a",
    }
    await expunge.put([episode(name, "ann", input=value) for name, value in values.items()])
    digest = Statement("test.digest", "UPDATE episodes SET input = :hex WHERE id = 'e-digest'")
    hexed = hashlib.sha256(text.encode()).hexdigest()
    await expunge.system.authority.run(lambda tx: tx.change(digest, hex=hexed))
    answer = await look(expunge, text)
    found = {(hit.record, hit.form) for hit in of(answer, 1) if hit.form not in ("vector", "hashes of its words")}
    assert found == {
        ("'e-plain'", "UTF-8"),
        ("'e-utf8'", "JSON-escaped"),
        ("'e-ascii'", "JSON-escaped"),
        ("'e-capitals'", "JSON-escaped"),
        ("'e-digest'", "SHA-256 in hex"),
    }


async def test_composed_and_decomposed_letters_are_different_texts(expunge):
    """Law 12: NFC beside NFD are two texts; each finds its own record alone."""
    await expunge.put([episode("e1", "ann", input="caf\u00e9 noir"), episode("e2", "ann", input="cafe\u0301 noir")])
    answer = await look(expunge, "caf\u00e9 noir", "cafe\u0301 noir")
    assert {hit.record for hit in of(answer, 1)} == {"'e1'"}
    assert {hit.record for hit in of(answer, 2)} == {"'e2'"}


async def test_twenty_texts_are_told_apart_by_number(expunge):
    """Residue: each text is known by its number, and neither it nor a piece of it stands in the answer."""
    texts = [f"the secret number {number} of ann" for number in range(1, 21)]
    await expunge.put([episode(f"e{number}", "ann", input=text) for number, text in enumerate(texts[:10], start=1)])
    answer = await look(expunge, *texts)
    assert [found.text for found in answer.found] == list(range(1, 11))
    assert {(hit.text, hit.record) for hit in answer.shown} == {(number, f"'e{number}'") for number in range(1, 11)}
    assert {hit.length for hit in of(answer, 10)} == {len(texts[9])}
    assert "secret" not in answer.model_dump_json()


@pytest.mark.parametrize("text", ["", "abc", "é", "\ud800 surrogate"])
async def test_texts_that_mean_nothing_are_refused(expunge, text):
    """Bad input: an empty text, one of under four bytes and a lone surrogate are errors that do not show it."""
    with pytest.raises(InputError) as caught:
        await look(expunge, "a good text", text)
    assert "text 2" in caught.value.message
    with pytest.raises(InputError):
        await look(expunge)


async def test_a_database_in_memory_has_no_files(in_memory):
    """Residue: where there are no files, the answer is an error and not that nothing was found."""
    with pytest.raises(NotOffered):
        await look(in_memory, "a good text")


async def test_digits_in_a_hash_are_chance(expunge):
    """Residue: hexadecimal digits amid a pseudonym are no residue; the same text beside them is."""
    await expunge.put([episode("e1", "ann"), fact("f1", "bob", object="0123456789")])
    await expunge.erase("ann", purge=True)
    ((pseudonym,),) = await expunge.system.authority.read(
        lambda tx: tx.rows(Statement("test.fence", "SELECT user_pn FROM fences"))
    )
    answer = await look(expunge, pseudonym[4:12], pseudonym)
    assert standings(answer, 1) == {"digits"}
    assert "nothing" in standings(answer, 2)


async def test_digits_in_a_page_of_nobody_are_chance(expunge, settings, tmp_path):
    """Residue: a long run of hexadecimal digits is a hash wherever it stands, and a short one is what somebody wrote."""
    digits = random.Random(2).randbytes(4000).hex()
    await expunge.system.close()
    plant(tmp_path / "expunge.db", "removed", texts=[f"{digits} and the number {digits[:16]}"])
    async with Expunge(settings=settings) as opened:
        answer = await look(opened, digits[3000:3008], digits[4:12])
    assert (standings(answer, 1), standings(answer, 2)) == ({"digits"}, {"digits", "nothing"})


async def test_entries_are_read_over_many_blocks(expunge):
    """Law 11: of a word that thousands of entries have, each is seen, also where its list goes on in another block."""
    said = "three common words"
    await expunge.put([episode(f"e{number}", f"user-{number % 50}", input=said) for number in range(3000)])
    answer = await look(expunge, "common THREE wörds", "common  words, three")
    assert [(found.text, found.hits, found.residue) for found in answer.found] == [(1, 3000, 0), (2, 3000, 0)]
    await expunge.erase("user-1", purge=True)
    answer = await look(expunge, "common  words, three")
    assert [(found.hits, found.residue, found.shown) for found in answer.found] == [(3000, 60, 160)]
    await merge_index(expunge)
    answer = await look(expunge, "common  words, three")
    assert [(found.hits, found.residue) for found in answer.found] == [(2940, 0)]


async def test_a_change_meanwhile_is_said(expunge, monkeypatch):
    """Law 16: an answer on a database that changed meanwhile says so."""
    module = importlib.import_module("expunge.residue.look")
    assert not (await look(expunge, SAID)).changed
    entries = module.Entries

    async def write():
        async with Expunge(settings=expunge.settings) as other:
            await other.put([episode("e9", "ann")])

    def meanwhile(words):
        thread = threading.Thread(target=lambda: asyncio.run(write()))
        thread.start()
        thread.join()
        return entries(words)

    monkeypatch.setattr(module, "Entries", meanwhile)
    assert (await look(expunge, SAID)).changed


async def test_a_journal_that_somebody_left_is_looked_at(expunge, tmp_path):
    """Residue: a rollback journal beside the database holds pages of before, and nothing accounts for them."""
    assert (await look(expunge, SAID)).verdict == "nothing"  # and every connection is open: a new one would roll back
    (tmp_path / "expunge.db-journal").write_bytes(b"an old page: " + SAID.encode())
    answer = await look(expunge, SAID)
    assert (answer.verdict, [hit.offset for hit in answer.shown]) == ("residue", [13])
    assert answer.shown[0].file.endswith("expunge.db-journal")


async def test_looking_lets_go_of_no_lock(expunge, settings, tmp_path):
    """Residue: the file is read beside connections that use it, and what they write then is whole."""
    for number in range(3):
        await expunge.put([episode(f"e{number}", "ann", input=SAID)])
        await look(expunge, SAID)
        async with Expunge(settings=settings) as other:  # the last one out would empty the log
            await other.put([episode(f"o{number}", "bob")])
        assert (tmp_path / "expunge.db-wal").exists()
    await expunge.erase("ann", purge=True)
    check = Statement("test.check", "PRAGMA integrity_check")
    assert await expunge.system.authority.read(lambda tx: tx.rows(check)) == [("ok",)]
    assert (await expunge.profile("bob")).counts["episodes"] == 3
