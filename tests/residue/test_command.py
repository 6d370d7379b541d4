"""``expunge residue`` as a command: where texts come from, what is printed, and the exit codes."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from expunge.errors import InputError
from expunge.residue import read_export
from tests.residue.kit import plant
from tests.shell import Shell
from tests.support import episode, fact, memory

SAID = "My sister Ilse moved to Porto last spring"
EXPORT: dict[str, Any] = {
    "manifest": {"user_id": "ann-the-first"},
    "sections": {
        "episodes": [episode("ep-number-1", "ann-the-first", input=SAID, output="Bye!", status="completed")],
        "memories": [memory("mem-number-1", "town of Ilse", "ann-the-first", value={"key name": ["in Porto now", 7]})],
        "facts": [fact("f1", "ann-the-first", subject="Ilse in Porto", predicate="p", object="since spring")],
        "unheard of": [{"id": "odd-record-1", "words": {"deep": ["an odd record says"]}}],
    },
}
TEXTS = {
    "ep-number-1", "ann-the-first", SAID, "mem-number-1", "town of Ilse", "in Porto now", "Ilse in Porto",
    "since spring", "odd-record-1", "an odd record says",
}  # fmt: skip


def as_lines() -> bytes:
    lines = [json.dumps({"manifest": {}})]
    for section, records in EXPORT["sections"].items():
        lines += [json.dumps({"section": section, "record": record}) for record in records]
    return "\n".join(lines).encode() + b"\n"


def as_zip(name: str = "export.json") -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as packed:
        packed.writestr(name, json.dumps(EXPORT))
    return data.getvalue()


@pytest.mark.parametrize("data", [json.dumps(EXPORT).encode(), as_lines(), as_zip()], ids=["object", "lines", "zip"])
def test_an_export_gives_its_content_and_ids_once(data: bytes) -> None:
    """Residue: the texts of an export are what its collections declare as content; the short ones are counted."""
    needles, short = read_export(data, 8)
    assert {needle.text for needle in needles} == TEXTS
    assert [needle.number for needle in needles] == list(range(1, len(TEXTS) + 1))
    assert short == len({"Bye!", "f1", "p"})
    assert {needle.record for needle in needles if needle.text == SAID} == {f"{SAID}\nBye!"}
    assert {needle.text for needle in read_export(data, 4)[0]} == TEXTS | {"Bye!"}


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b"no json", b'{"sections": {}}', b'{"a": 1}\n{"b": 2}\n', as_zip("other"), b"PK\3\4"]
)
def test_what_is_no_export_is_refused(data: bytes) -> None:
    """Bad input: a file that is no export is an error, and not an export without texts."""
    with pytest.raises(InputError):
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
    records = [*EXPORT["sections"]["episodes"], *EXPORT["sections"]["facts"]]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "out.zip").write_bytes(as_zip())
    shell.run("load", "in.jsonl")
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
    assert shell.error(*words, exits=2)["code"] == "INVALID_INPUT"


def test_memory_is_refused(tmp_path: Path) -> None:
    """Residue: a database in memory has no files, and the command says so."""
    assert (
        Shell(tmp_path).error("--db", ":memory:", "residue", "--text", "long enough", exits=3)["code"] == "NOT_OFFERED"
    )
