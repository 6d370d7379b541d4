"""``expunge residue`` as a command: where texts come from, what is printed, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge, Settings
from expunge.errors import InvalidExport
from expunge.residue import read_export
from tests.residue.kit import plant
from tests.shell import Shell
from tests.subject.kit import FORMS, exported
from tests.support import episode, fact, memory

SAID = "My sister Ilse moved to Porto last spring"
RECORDS: list[dict[str, Any]] = [
    episode("ep-number-1", "ann-the-first", input=SAID, output="Bye!", status="completed"),
    memory("mem-number-1", "town of Ilse", "ann-the-first", value={"key name": ["in Porto now", 7]}),
    fact("f1", "ann-the-first", subject="Ilse in Porto", predicate="p", object="since spring"),
]
TEXTS = {
    "ep-number-1", "ann-the-first", SAID, "mem-number-1", "town of Ilse", "in Porto now", "Ilse in Porto",
    "since spring",
}  # fmt: skip


async def export_of(form: str) -> bytes:
    """An export of them."""
    async with Expunge(settings=Settings(db=":memory:")) as expunge:
        await expunge.put(RECORDS)
        return (await exported(expunge, "ann-the-first", format=form))[0]


@pytest.mark.parametrize("form", FORMS)
async def test_an_export_gives_its_content_and_ids_once(form: str) -> None:
    """Residue: the texts of an export are what its collections declare as content; the short ones are counted."""
    data = await export_of(form)
    needles, short = read_export(data, 8)
    assert {needle.text for needle in needles} == TEXTS
    assert [needle.number for needle in needles] == list(range(1, len(TEXTS) + 1))
    assert short == len({"Bye!", "f1", "p"})
    assert {needle.record for needle in needles if needle.text == SAID} == {f"{SAID}\nBye!"}
    assert {needle.text for needle in read_export(data, 4)[0]} == TEXTS | {"Bye!"}


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b"no json", b'{"sections": {}}', b'{"a": 1}\n{"b": 2}\n', b"PK\3\4"]
)
def test_what_is_no_export_is_refused(data: bytes) -> None:
    """Bad input: a file that is no export is an error, and not an export without texts."""
    with pytest.raises(InvalidExport):
        read_export(data, 8)


def test_the_command_says_whose_each_hit_is_and_ends_with_its_code(tmp_path: Path) -> None:
    """Residue: 0 when nothing is found or all has a record, 1 for residue, 2 for unknown; residue comes before it."""
    shell = Shell(tmp_path)
    (tmp_path / "in.jsonl").write_text(json.dumps(episode("e1", "ann", input=SAID)) + "\n")
    shell.run("load", "in.jsonl")
    assert b"nothing found" in shell.run("residue", "--text", "never said by anybody").stdout
    said = shell.run("residue", "--text", SAID).stdout.decode()
    assert "a live record 'e1' of episodes" in said
    assert SAID not in said
    (tmp_path / "texts").write_text(f"{SAID}\r\n\nnever said by anybody\n")
    answer = shell.json("residue", "--texts-from", "texts", "--text", "first of all")
    assert (answer["verdict"], answer["texts"], [found["text"] for found in answer["found"]]) == ("accounted", 3, [2])
    stdin = shell.json("residue", "--texts-from", "-", stdin=SAID.encode())
    assert stdin["found"][0]["hits"] == answer["found"][0]["hits"]

    stray = tmp_path / "expunge.objects" / "stray.7z"
    stray.parent.mkdir()
    stray.write_bytes(b"7z\xbc\xaf\x27\x1c and more")
    assert b"unknown: " in shell.run("residue", "--text", SAID, exits=2).stdout
    plant(tmp_path / "expunge.db", "removed", texts=["a short text that went"])
    done = shell.run("residue", "--text", "a short text that went", "--text", SAID, exits=1).stdout.decode()
    assert "residue: text 1 (22 bytes)" in done
    assert "unknown: " in done
    assert "went" not in done


def test_the_command_takes_an_export(tmp_path: Path) -> None:
    """Residue: what an export of a person holds is found before they are erased."""
    shell = Shell(tmp_path)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    shell.run("load", "in.jsonl")
    shell.run("export", "ann-the-first", "-o", "out.zip")
    answer = shell.json("residue", "--from-export", "out.zip")
    assert (answer["verdict"], answer["texts"], answer["too_short"]) == ("accounted", len(TEXTS), 3)
    assert {hit["form"] for hit in answer["shown"]} >= {"UTF-8", "vector", "hashes of its words"}
    assert shell.json("residue", "--from-export", "out.zip", "--least", "30")["texts"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ["residue"], ["residue", "--text", ""], ["residue", "--text", "abc"], ["residue", "--texts-from", "none"],
        ["residue", "--text", "long enough", "--from-export", "in.jsonl"], ["residue", "--from-export", "in.jsonl"],
        ["residue", "--from-export", "in.jsonl", "--least", "3"],
    ],
)  # fmt: skip
def test_bad_input_of_the_command_is_an_error(tmp_path: Path, words: list[str]) -> None:
    """Bad input: no text, a short one, both sources, and a file that is none of ours are refused with a hint."""
    shell = Shell(tmp_path)
    (tmp_path / "in.jsonl").write_text(json.dumps(episode("e1", "ann", input=SAID)) + "\n")
    shell.run("load", "in.jsonl")
    assert shell.error(*words, exits=2)["code"] in ("INVALID_INPUT", "INVALID_EXPORT")


def test_memory_is_refused(tmp_path: Path) -> None:
    """Residue: a database in memory has no files, and the command says so."""
    assert (
        Shell(tmp_path).error("--db", ":memory:", "residue", "--text", "long enough", exits=3)["code"] == "NOT_OFFERED"
    )
