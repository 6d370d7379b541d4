"""Residue in the files of a PostgreSQL server: what stands, what was left, and who accounts for it.

The server is one of these tests alone: they read the whole of its log, change its settings, and break its files.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from expunge import Expunge, Settings
from expunge.authority.port import Statement
from expunge.authority.postgres import files as server_files
from tests.pg.server import another_server, drop_database, fresh_database
from tests.residue.kit import look, of, standings
from tests.shell import Shell
from tests.support import document, episode, fact, memory, one_of_each

SAID = "My sister Ilse moved to Porto last spring"
RARE = random.Random(7)
WORDS = [f"word{RARE.randrange(10**9)}" for _ in range(300)]
LONG = " ".join(RARE.choice(WORDS) for _ in range(4000))
"""Compresses to some chunks, of no two texts the same ones."""
TANGLED = base64.b85encode(RARE.randbytes(6000)).decode()
"""Does not compress, and so is cut in chunks as it is."""
INLINE = f"{SAID.replace('Ilse', 'Inge')}, again; " * 60
"""2.6 KB, which are compressed to so little that they stay in their row."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with another_server() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_recycle = off")
            connection.execute("ALTER SYSTEM SET autovacuum = off")
            connection.execute("SELECT pg_reload_conf()")
        yield url


@pytest.fixture
def url(server) -> Iterator[str]:
    url = fresh_database(server)
    drop_the_log(url)  # which would be looked through every time
    yield url
    drop_database(url)


@pytest.fixture
def settings(url, tmp_path) -> Settings:
    return Settings(db=url, keys_file=tmp_path / "expunge.keys", objects=tmp_path / "expunge.objects")


def do(url: str, *statements: str, as_rows: bool = False) -> list[tuple]:
    rows = []
    with psycopg.connect(url, autocommit=True, options="-c search_path=expunge") as connection:
        for statement in statements:
            done = connection.execute(statement)
            rows = done.fetchall() if done.description else []
    return rows


def folder_of(url: str) -> Path:
    return Path(do(url, "SHOW data_directory")[0][0])


def drop_the_log(url: str) -> None:
    """Have the server begin another segment of its log, and remove those before."""
    for _ in range(2):
        do(url, "SELECT pg_switch_wal()", "CHECKPOINT")


@contextmanager
def set_to(url: str, **settings: str) -> Iterator[None]:
    do(url, *(f"ALTER SYSTEM SET {name} = '{value}'" for name, value in settings.items()), "SELECT pg_reload_conf()")
    try:
        yield
    finally:
        do(url, *(f"ALTER SYSTEM RESET {name}" for name in settings), "SELECT pg_reload_conf()")


def places(answer, number: int = 1) -> set[str]:
    return {hit.place for hit in of(answer, number)}


def in_log(answer, number: int = 1) -> set[bool]:
    return {"/pg_wal/" in hit.file for hit in of(answer, number)}


async def test_what_nobody_said_is_not_found(expunge):
    """Residue: without a hit the answer is nothing, and says in which files it was looked for, and what was left out."""
    await expunge.put([episode("e1", "ann", input=SAID)])
    answer = await look(expunge, "never said by anybody", "äöü never said 😂")
    assert (answer.verdict, answer.hits, answer.shown, answer.unknown) == ("nothing", 0, [], [])
    assert {Path(file.file).parent.name for file in answer.files} >= {"pg_wal", "pg_stat"} or len(answer.files) > 100
    assert any("other databases" in what for what in answer.not_searched)
    assert not any("-shm" in what for what in answer.not_searched)


async def test_a_live_record_accounts_for_its_text_in_row_index_edge_vector_and_log(expunge):
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
    assert {(hit.collection, hit.record) for hit in of(answer, 1)} >= {("episodes", "'ep-one-1'"), ("memories", "'m1'")}
    assert {hit.form for hit in of(answer, 1)} >= {"UTF-8", "vector", "hashes of its words"}
    assert {"episodes.input", "memories.value", "chunks.text"} <= places(answer)
    assert {"memories.key", "memories, in the index memories_key"} <= places(answer, 2)
    assert {"documents.title", "documents, in the index documents_title"} <= places(answer, 3)
    assert {"lineage.source", "lineage, in the index lineage_source"} <= places(answer, 4)
    assert {"episodes.id", "episodes, in the index episodes_org_id_key"} <= places(answer, 4)
    assert {hit.record for hit in of(answer, 4)} == {"'ep-one-1'"}
    assert {(hit.collection, hit.record) for hit in of(answer, 5)} == {("episodes", "'ep-two-2'")}
    assert in_log(answer) == in_log(answer, 4) == {True, False}


TEXTS = {
    "short": (SAID, SAID, None),
    "inline": (INLINE, INLINE[:80], "compressed (pglz)"),
    "long": (LONG, LONG[20_000:20_080], "compressed (pglz)"),
    "tangled": (TANGLED, TANGLED[1000:1060], None),
    "escaped": ('Zoë said "no"\n😂', 'Zoë said "no"\n😂', None),
    "other signs": ("Моя сестра Ильза переехала", "Моя сестра Ильза переехала", None),
}


@pytest.mark.parametrize("kind", TEXTS)
async def test_a_text_is_found_live_and_after_its_purge_and_gone_after_reclaim_and_recycling(expunge, url, kind):
    """Law 7: while it stands its record accounts for it, after its purge nothing does, and in the end it is gone."""
    text, wanted, within = TEXTS[kind]
    value = {"value": [text]} if kind == "escaped" else text
    await expunge.put([memory("m1", "k", "ann", value=value), memory("m2", "k", "bob", value="words of another")])
    live = await look(expunge, wanted, "words of another")
    assert (live.verdict, live.unknown, standings(live)) == ("accounted", [], {"record"})
    assert {hit.record for hit in of(live, 1)} == {"'m1'"}
    said = [hit for hit in of(live, 1) if not hit.piece and hit.form in ("UTF-8", "JSON-escaped")]
    assert {hit.within for hit in said} == {within}
    assert {"/pg_wal/" in hit.file for hit in said} == {True, False}

    await expunge.erase("ann", purge=True)
    left = await look(expunge, wanted, "words of another")
    assert (left.verdict, standings(left), standings(left, 2)) == ("residue", {"nothing"}, {"record"})
    assert in_log(left) == {True, False}
    assert any("no longer stands" in place or "that no row has" in place for place in places(left))

    # Where the role may let the log move on, and its files are not used again, nothing is left of it either.
    assert (await expunge.call("system.reclaim")).deferred is None
    gone = await look(expunge, wanted, "words of another")
    assert (gone.verdict, of(gone, 1), standings(gone, 2)) == ("accounted", [], {"record"})


async def test_of_all_that_was_kept_of_a_person_only_what_others_said_is_left(expunge, url):
    """Law 7: of every collection nothing is found after the end, and another's same words stand by their record."""
    theirs = [*one_of_each("ann-the-first", "aa"), episode("aa-e2", "ann-the-first", input="Bye!!!!", output=SAID)]
    others = [*one_of_each("bob-the-other", "bb"), episode("bb-e2", "bob-the-other", input="Bye!!!!")]
    await expunge.put([*theirs, *others])
    texts = ["Bye!!!!", SAID, "ann-the-first", "words of aa-e", "value of aa-m", "aa-e2", "aa-sum2", "summary/aa"]
    answer = await look(expunge, *texts)
    assert answer.verdict == "accounted"
    assert {hit.text for hit in answer.shown} == set(range(1, 9))
    assert (await expunge.erase("ann-the-first", purge=True)).status == "completed"
    answer = await look(expunge, *texts)
    kept = {number: standings(answer, number) for number in range(1, 9)}
    assert kept == {1: {"record", "nothing"}} | {number: {"nothing"} for number in range(2, 9)}
    assert {hit.record for hit in of(answer, 1) if hit.standing == "record"} == {"'bb-e2'"}
    await expunge.call("system.reclaim")
    drop_the_log(url)
    answer = await look(expunge, *texts)
    left = {hit.place for hit in answer.shown if hit.standing == "nothing"}
    assert all(place.startswith("the unused space of a page of") for place in left), "rows of others stand there"
    tables = {place.rpartition(" ")[2] for place in left}
    do(url, *(f"VACUUM FULL {table}" for table in sorted(tables)))
    drop_the_log(url)
    answer = await look(expunge, *texts)
    assert (answer.verdict, answer.residue, {hit.text for hit in answer.shown}) == ("accounted", 0, {1})
    assert {(hit.collection, hit.record) for hit in answer.shown} == {("episodes", "'bb-e2'")}


def grepped(folder: Path, text: str) -> set[tuple[str, int]]:
    """In which files grep finds a text, and where."""
    command = ["grep", "-r", "-a", "-b", "-o", "-F", text, str(folder)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {(path, int(offset)) for path, offset, _ in (line.split(":", 2) for line in lines)}


async def test_whatever_grep_finds_is_found(expunge, url):
    """Residue: another program that looks for the same bytes in the same folder finds none that is not told."""
    await expunge.put([episode("e1", "ann", input=SAID), fact("f1", "ann", object=SAID)])
    await expunge.erase("ann", purge=True)
    await expunge.put([episode("e2", "bob", input=SAID), memory("m2", "k", "cid", value=SAID)])
    do(url, "CHECKPOINT")
    found = grepped(folder_of(url), SAID)
    answer = await look(expunge, SAID)
    told = {(hit.file, hit.offset) for hit in of(answer, 1) if hit.form == "UTF-8"}
    assert {"pg_wal" in path for path, _ in found} == {True, False}
    assert len(found) >= 5  # four rows, in their table and in the log, where a page may end in the middle of one
    assert found <= told
    assert standings(answer) == {"record", "nothing"}


async def test_a_text_that_breaks_over_two_chunks_is_found_whole(expunge, url):
    """Residue: the chunks of a long value are joined, in the table and in the log."""
    text = RARE.randbytes(3000).decode("latin-1").replace("\0", "0")
    await expunge.put([episode("e1", "ann", input=text)])
    ((toast,),) = do(url, "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'episodes'::regclass")
    ((size,),) = do(url, f"SELECT length(chunk_data) FROM {toast} WHERE chunk_seq = 0")
    at = len(text.encode()[:size].decode(errors="ignore"))
    broken = text[at - 12 : at + 11]
    assert len(broken.encode()) < 48, "and so it is not looked for by pieces"
    answer = await look(expunge, broken)
    assert (answer.verdict, in_log(answer)) == ("accounted", {True, False})
    await expunge.erase("ann", purge=True)
    answer = await look(expunge, broken)
    assert (answer.verdict, standings(answer), in_log(answer)) == ("residue", {"nothing"}, {True, False})


async def test_a_vacuum_alone_leaves_bytes_in_unused_space_and_in_the_index(expunge, url):
    """Residue: what a vacuum has let go of stands in pages that nothing leads to, and the hashes in the index."""
    await expunge.put([episode("e2", "bob", input=INLINE)])
    await expunge.put([episode("e1", "ann", input=SAID)])
    await expunge.erase("ann", purge=True)
    do(url, *(f"VACUUM (INDEX_CLEANUP ON) {table}" for table in ("episodes", "search")))
    drop_the_log(url)
    answer = await look(expunge, SAID, INLINE[:80])
    assert (answer.verdict, standings(answer, 1)) == ("residue", {"nothing"})
    assert "search, in the index search_words" in places(answer)
    assert any(place.startswith("the unused space of a page of") for place in places(answer))
    assert standings(answer, 2) == {"record"}


async def test_what_the_planner_has_noted_goes_with_a_reclaim(expunge, url):
    """Law 7: values of a column stand in the statistics, and stay there when their rows have gone, until a reclaim."""
    await expunge.put([episode(f"e{number}", "ann", input=SAID) for number in range(5)])
    do(url, "CREATE TABLE public.theirs AS SELECT 'words of a neighbour' AS t, generate_series(1, 9)")
    do(url, "ANALYZE episodes", "ANALYZE public.theirs")
    answer = await look(expunge, SAID, "words of a neighbour")
    assert "what the planner has noted of episodes" in places(answer)
    assert (answer.verdict, standings(answer, 1), standings(answer, 2)) == ("accounted", {"record"}, {"foreign"})
    await expunge.erase("ann", purge=True)
    assert "what the planner has noted of episodes" in places(await look(expunge, SAID))
    await expunge.call("system.reclaim")
    drop_the_log(url)
    answer = await look(expunge, SAID)
    assert (answer.verdict, places(answer)) == ("nothing", set())


async def test_another_database_is_not_accused_nor_looked_into(expunge, server, tmp_path):
    """Residue: what the shared log has of others is told as theirs, and their files are not ours."""
    other = fresh_database(server)
    try:
        with psycopg.connect(other) as connection:
            connection.execute("CREATE TABLE theirs (t text)")
            connection.execute("INSERT INTO theirs VALUES (%s), (%s)", (SAID, INLINE * 30))
        await expunge.put([episode("e1", "ann", input="Bye!")])
        answer = await look(expunge, SAID, INLINE[:80])
    finally:
        drop_database(other)
    assert (answer.verdict, answer.residue) == ("accounted", 0)
    assert standings(answer, 1) == standings(answer, 2) == {"foreign"}
    assert in_log(answer) == in_log(answer, 2) == {True}


async def test_another_org_and_a_hidden_record_account_for_their_own(expunge, clock):
    """Residue: a hidden record accounts for its text until its window ends, also in versions of before and the log."""
    await expunge.put([episode("e1", "ann", input=SAID)])
    await expunge.put([episode("e2", "ann", input="words of another org")], org="elsewhere")
    erased = await expunge.erase("ann", purge=False)
    answer = await look(expunge, SAID, "words of another org")
    assert (answer.verdict, standings(answer), standings(answer, 2)) == ("accounted", {"hidden"}, {"record"})
    assert {hit.erasure for hit in of(answer, 1)} == {erased.request_id}
    assert any(place.startswith("a version of a row that no longer stands") for place in places(answer))
    assert {hit.org for hit in of(answer, 2)} == {"'elsewhere'"}
    clock.advance(15 * 86_400)
    answer = await look(expunge, SAID)
    assert (answer.verdict, standings(answer)) == ("residue", {"nothing"})


async def test_pages_that_the_log_compresses_are_decoded(expunge, url):
    """Residue: a text that stands only in the compressed image of a page in the log is found there."""
    await expunge.put([episode(f"e{number}", "ann", input=f"{SAID}, {number}") for number in range(30)])
    with set_to(url, wal_compression="pglz"), psycopg.connect(url) as backup:
        backup.execute("SELECT pg_backup_start('test', true)")  # until it ends whole pages are logged
        drop_the_log(url)
        assert (await look(expunge, SAID)).verdict == "accounted"
        await expunge.erase("ann", purge=True)  # what it touches first after a checkpoint is logged as a whole page
        answer = await look(expunge, SAID)
        within = {hit.within for hit in of(answer, 1) if "/pg_wal/" in hit.file and hit.form == "UTF-8"}
    assert within == {"compressed (pglz)"}
    assert standings(answer) == {"nothing"}


async def test_a_text_that_two_segments_of_the_log_break_is_found(expunge, url):
    """Residue: a record goes on in the segment that follows, and its text is found in one piece."""
    size = 16 * 1024 * 1024
    await expunge.put([memory("m1", "k", "ann", value="x")])
    text = "".join(f"{number:05}-{RARE.randrange(10**9):09}," for number in range(4000))
    while True:
        ((at,),) = do(url, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        left = size - at % size
        if left < 45_000:
            break
        do(url, f"SELECT pg_logical_emit_message(false, 'test', repeat('-', {min(left - 40_000, 1 << 20)}))")
    do(url, f"SELECT pg_logical_emit_message(true, 'test', '{text}')")
    pieces = [text[start : start + 45] for start in range(0, len(text) - 45, 45)]
    with set_to(url, wal_keep_size="100MB"):
        do(url, "SELECT pg_switch_wal()")
        answer = await look(expunge, *pieces)
    assert {found.text for found in answer.found} == set(range(1, len(pieces) + 1))
    assert all(found.hits == 1 for found in answer.found)
    assert len({hit.file for hit in answer.shown}) == 2, "and they stand in two segments"


async def test_a_value_that_cannot_be_decoded_is_unknown(expunge, url):
    """Law 16: a long value whose bytes make no sense is said to be, and not that nothing was found."""
    await expunge.put([episode("e1", "ann", input=LONG)])
    assert (await look(expunge, "never said by anybody")).verdict == "nothing"
    ((path,),) = do(url, "SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE oid = 'episodes'::regclass")
    with (folder_of(url) / path).open("r+b") as file:
        file.seek(7000)
        file.write(b"\xff" * 200)
    answer = await look(expunge, "never said by anybody")
    assert (answer.verdict, answer.residue) == ("unknown", 0)
    assert any("cannot be decoded" in item.why for item in answer.unknown)


async def test_a_file_of_no_table_has_no_record(expunge, url):
    """Residue: what a server that fell has left in the folder of the database is looked at, and temporary files are."""
    await expunge.put([episode("e1", "ann", input=SAID)])
    ((path,),) = do(url, "SELECT pg_relation_filepath('episodes')")
    folder = folder_of(url)
    (folder / path).with_name("4000000000").write_bytes(b"left by a crash: My brother Ole")
    (folder / "base" / "pgsql_tmp").mkdir(exist_ok=True)
    stray = folder / "base" / "pgsql_tmp" / "pgsql_tmp1.0"
    stray.write_bytes(b"to be sorted: My brother Ole")
    try:
        answer = await look(expunge, "My brother Ole", SAID)
    finally:
        stray.unlink()
    assert (answer.verdict, [hit.offset for hit in of(answer, 1)]) == ("residue", [14, 17][::-1])
    assert standings(answer, 2) == {"record"}


async def test_what_the_server_logs_is_looked_at_where_it_is_kept(expunge, url, monkeypatch, tmp_path):
    """Residue: a statement in the server's log has no record, and where the log goes elsewhere that is said."""
    await expunge.put([episode("e1", "ann", input=SAID)])
    answer = await look(expunge, SAID)
    assert (answer.verdict, any("what the server logs" in what for what in answer.not_searched)) == ("accounted", True)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "postgresql.log").write_text(f"LOG: statement: SELECT '{SAID}'")
    told = Statement(
        "test.settings",
        f"""SELECT name, CASE name WHEN 'logging_collector' THEN 'on' WHEN 'log_directory' THEN '{tmp_path / "log"}'
        ELSE setting END FROM pg_settings""",
    )  # a server has to be started anew for it
    monkeypatch.setattr(server_files, "_SETTINGS", told)
    answer = await look(expunge, SAID)
    assert (answer.verdict, any("what the server logs" in what for what in answer.not_searched)) == ("residue", False)
    assert [hit.file for hit in of(answer, 1) if hit.standing == "nothing"] == [str(tmp_path / "log/postgresql.log")]


async def test_a_role_that_may_not_know_the_folder_is_told_what_to_do(url, tmp_path, clock):
    """Law 16: without the right to see where the data lies the answer is unknown, with exit 2 and a hint."""
    parts = urlsplit(url)
    do(url, "CREATE ROLE plain_user LOGIN", f"GRANT CREATE ON DATABASE {parts.path[1:]} TO plain_user")
    try:
        plain = url.replace(parts.netloc, "plain_user@")
        shell = Shell(tmp_path)
        (tmp_path / "in.jsonl").write_text(json.dumps(episode("e1", "ann", input=SAID)) + "\n")
        shell.run("load", "in.jsonl", "--db", plain)
        done = shell.run("residue", "--text", SAID, "--db", plain, exits=2).stdout.decode()
        assert re.sub(r"\s+", " ", done).count("look from the server's machine") == 1
        assert "pg_read_all_settings" in done
        do(url, "GRANT pg_read_all_settings TO plain_user")
        do(url, "CHECKPOINT")
        done = shell.run("residue", "--text", SAID, "--db", plain, exits=2).stdout.decode()
        assert "pg_checkpoint" in done
        do(url, "GRANT pg_checkpoint TO plain_user")
        assert shell.json("residue", "--text", SAID, "--db", plain)["verdict"] == "accounted"
    finally:
        do(url, "DROP OWNED BY plain_user CASCADE", "DROP ROLE plain_user")


async def test_a_folder_that_cannot_be_read_is_unknown(expunge, monkeypatch, tmp_path):
    """Law 16: neither a folder that is closed, nor one that is another server's, is taken for one without hits."""
    await expunge.put([episode("e1", "ann", input=SAID)])

    def closed(path, *_args, **_given):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", closed)
        answer = await look(expunge, SAID)
    assert (answer.verdict, answer.hits, len(answer.unknown)) == ("unknown", 0, 1)
    assert "Permission denied" in answer.unknown[0].why
    assert "as a user who may read its data folder" in answer.unknown[0].why

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", lambda path: bytes(8192))
        answer = await look(expunge, SAID)
    assert (answer.verdict, "another server's" in answer.unknown[0].why) == ("unknown", True)

    opened = os.open

    def one_closed(path, *args, **given):
        return closed(path) if "/base/" in str(path) and str(path).endswith("1") else opened(path, *args, **given)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", one_closed)
        answer = await look(expunge, "never said by anybody")
    assert answer.verdict == "unknown"
    assert all("Permission denied" in item.why for item in answer.unknown)


async def test_the_command_ends_with_the_code_of_what_it_found(url, tmp_path):
    """Residue: 0 when all has a record, 1 for residue."""
    shell = Shell(tmp_path)
    (tmp_path / "in.jsonl").write_text(json.dumps(episode("e1", "ann", input=SAID)) + "\n")
    shell.run("load", "in.jsonl", "--db", url)
    assert b"a live record 'e1' of episodes" in shell.run("residue", "--text", SAID, "--db", url).stdout
    shell.run("erase", "--user", "ann", "--purge", "--yes", "--db", url)
    done = shell.run("residue", "--text", SAID, "--db", url, exits=1).stdout
    assert b"no row that stands has it" in done
    assert SAID.encode() not in done


async def test_a_change_meanwhile_is_said(expunge, monkeypatch):
    """Law 16: an answer on a server where somebody has committed meanwhile says so."""
    await expunge.put([episode("e1", "ann", input=SAID)])
    assert not (await look(expunge, SAID)).changed
    opened_files = server_files.opened_files

    @contextmanager
    def meanwhile(tx, place, **given):
        do(place.url, "CREATE TABLE meanwhile (n int)")
        with opened_files(tx, place, **given) as opened:
            yield opened

    monkeypatch.setattr("expunge.authority.postgres.engine.opened_files", meanwhile)
    assert (await look(expunge, SAID)).changed


async def test_digits_in_a_hash_are_chance(expunge):
    """Residue: hexadecimal digits amid a pseudonym are no residue; the same text beside them is."""
    await expunge.put([episode("e1", "ann"), fact("f1", "bob", object="0123456789")])
    await expunge.erase("ann", purge=True)
    ((pseudonym,),) = do(expunge.settings.db, "SELECT user_pn FROM fences")
    answer = await look(expunge, pseudonym[4:12], pseudonym)
    assert standings(answer, 1) == {"digits"}
    assert "nothing" in standings(answer, 2)


async def test_nothing_is_changed_by_looking(expunge, url):
    """Residue: it reads; and Expunge works on beside it."""
    await expunge.put([episode("e1", "ann", input=SAID)])
    before = do(url, "SELECT count(*), max(ctid), max(xmin::text) FROM episodes")
    await asyncio.gather(look(expunge, SAID), expunge.put([episode("e2", "bob", input="Bye!")]))
    async with Expunge(settings=expunge.settings) as other:
        assert (await look(other, SAID)).verdict == "accounted"
    assert do(url, "SELECT count(*) - 1, min(ctid), min(xmin::text) FROM episodes") == before
