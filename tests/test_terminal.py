"""Law 12 on a terminal: whatever an id, a text or a setting holds, nothing of it acts there; a pipe gets the bytes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.shell import Shell
from tests.support import document, episode, fact, memory

WHO = "u\x1b[31m\x9b32m\x07\x7f\u061c\u202e\u200f\nA[/x][bold]:smile:\\"
"""Sequences of a terminal, marks of direction, and what a library for terminals takes for markup."""
ACTING = {chr(code) for code in (*range(32), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, 0x202E)} - {"\n", "\r"}


class Terminal(Shell):
    """The command with its standard output on a terminal of the machine."""

    def shown(self, *words: str, exits: int = 0) -> str:
        ours, theirs = pty.openpty()
        heard: list[bytes] = []

        def listen() -> None:
            with contextlib.suppress(OSError):  # how a terminal ends
                while piece := os.read(ours, 1 << 16):
                    heard.append(piece)

        listener = threading.Thread(target=listen)
        listener.start()
        try:
            done = self.call(*words, stdout=theirs, environ={"TERM": "dumb"})  # no colours of ours
        finally:
            os.close(theirs)
            listener.join()
            os.close(ours)
        assert done.returncode == exits, (words, done.stderr)
        return b"".join(heard).decode() + done.stderr.decode()


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """A database in which everybody and everything is called ``WHO``, and so are the actor and the controller."""
    named: dict[str, Any] = {"user_id": WHO, "namespace": WHO, "agent": WHO}
    records = [
        episode(f"e{WHO}", session_id=WHO, input=WHO, **named),
        memory(f"m{WHO}", WHO, value=WHO, **named),
        fact(f"f{WHO}", object=WHO, sources=[f"e{WHO}"], **named),
        document(f"d{WHO}", WHO, text=WHO, **named),
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    quoted = json.dumps(WHO).replace("\x7f", "\\u007f")
    (tmp_path / "expunge.toml").write_text(
        f"org = {quoted}\nactor = {quoted}\n[processing]\ncontroller = {quoted}\n", encoding="utf-8"
    )
    terminal = Terminal(tmp_path)
    terminal.run("load", "in.jsonl")
    return terminal


def test_nothing_that_is_shown_acts_on_the_terminal(terminal: Terminal) -> None:
    """Law 12: no command gives a control character, a mark of direction or markup to the terminal as it is."""
    hidden = terminal.json("erase", "--user", WHO, "--yes", "--requester", WHO)["request_id"]
    nobody = terminal.json("erase", "--user", f"no{WHO}", "--yes")["request_id"]
    terminal.run("restore", hidden)
    commands = [
        ("load", "in.jsonl"), ("profile", WHO), ("profile", WHO, "--json"), ("profile", f"no{WHO}"),
        ("export", WHO), ("export", WHO, "--admin", "--format", "jsonl"), ("export", WHO, "-o", "out.json"),
        ("erase", "--user", WHO, "--dry-run"), ("erasures",), ("erasure", hidden), ("erasure", nobody),
        ("census", hidden), ("receipt", hidden), ("ledger",), ("keys",), ("doctor",), ("data-map", "--article-30"),
        ("data-map", "--article-30", "--json"), ("audit", "list"), ("audit", "list", "--json"),
        ("audit", "verify"), ("audit", "head"), ("residue", "--text", WHO), ("residue", "--text", WHO, "--json"),
    ]  # fmt: skip
    for words in commands:
        shown = terminal.shown(*words, exits=1 if words[0] == "residue" else 0)  # the org stands in the ledger
        assert shown, words
        assert not ACTING & set(shown), words
    for words in (("profile", "x", "--db", f"no{WHO}".replace("/", "")), ("verify", f"no{WHO}")):
        shown = terminal.shown(*words, exits=4 if "--db" in words else 2)
        assert "no" in shown, words
        assert not ACTING & set(shown), words
    assert terminal.shown("erase", "--user", f"other{WHO}", "--yes").count("A[/x][bold]:smile:") == 1


def test_a_pipe_gets_the_very_bytes_and_a_terminal_the_same_json(terminal: Terminal) -> None:
    """Law 12: what is made harmless on a terminal says the same; what goes elsewhere is as it was signed or hashed."""
    request_id = terminal.json("erase", "--user", WHO, "--yes")["request_id"]
    receipt = terminal.run("receipt", request_id).stdout
    assert "\x9b" in receipt.decode()
    assert terminal.run("verify", "-", stdin=receipt).stdout.count(b"FAILED") == 0
    assert json.loads(terminal.shown("receipt", request_id)) == json.loads(receipt)
    ledger = terminal.run("ledger").stdout.decode().splitlines()
    shown = terminal.shown("ledger").splitlines()
    assert [json.loads(line) for line in shown[1:]] == [json.loads(line) for line in ledger[1:]]


def test_a_zip_is_not_poured_onto_a_terminal(terminal: Terminal) -> None:
    """The command: a zip on a terminal is refused; into a pipe it goes."""
    assert "-o FILE" in terminal.shown("export", WHO, "--format", "zip", exits=2)
    assert terminal.run("export", WHO, "--format", "zip").stdout.startswith(b"PK")


def test_a_file_that_would_not_be_written_is_refused(terminal: Terminal) -> None:
    """Law 16: the data map writes its file, also where it answers a program, or says that it does not."""
    assert terminal.error("data-map", "-o", "map.md", exits=2)["code"] == "INVALID_INPUT"
    assert terminal.json("data-map", "--article-30", "-o", "map.md") == {"written": "map.md"}
    assert (terminal.folder / "map.md").read_text(encoding="utf-8").startswith("# Record of processing")
