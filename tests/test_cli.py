"""The command line as a process: output streams, exit codes, files, and answers for programs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from expunge.cli.app import app
from expunge.errors import SettingsError
from expunge.settings import Settings
from tests.crash.kit import copied
from tests.shell import EXPUNGE, Shell, environ_of
from tests.support import digests, episode, one_of_each


def lines(*records: dict[str, Any]) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that every loaded shell has a copy of."""
    shell = Shell(tmp_path_factory.mktemp("loaded"))
    shell.run("load", "-", stdin=lines(*one_of_each("ann", "a"), *one_of_each("bob", "b")))
    return shell.folder


@pytest.fixture
def loaded(prepared: Path, tmp_path: Path) -> Shell:
    return Shell(copied(prepared, tmp_path))


def test_the_installed_command(tmp_path: Path) -> None:
    """The command as it is installed, started afresh each time: words, standard input, answers, errors, exit codes."""
    shell = Shell(tmp_path, installed=True)
    assert shell.json("load", "-", stdin=lines(episode("e", "jürgen"), episode("f", "bob")))["loaded"] == 2
    answer = shell.json("erase", "--user", "jürgen", "--purge", "--yes")
    assert (answer["status"], answer["removed"]["episodes"]) == ("completed", 1)
    shell.run("verify", "-", stdin=shell.run("receipt", answer["request_id"]).stdout)
    assert shell.error("profile", b"\xff\xfe", exits=2)["code"] == "INVALID_ID"


def test_the_main_job(loaded: Shell) -> None:
    """Deliver: load, profile, erase, erasures, erasure, census, receipt, ledger, keys, verify, each with `--json`."""
    assert loaded.json("profile", "ann")["counts"]["episodes"] == 1
    answer = loaded.json("erase", "--user", "ann", "--purge", "--yes")
    assert list(answer) == [
        "request_id", "org", "scope_type", "status", "current_step", "steps_completed", "attempts", "failure_reason",
        "residue_count", "residue", "requested_at", "verified_at", "census", "purge", "restore_until", "found",
        "subjects", "subjects_found", "hidden", "removed", "effects", "reversals_count", "plan_hash", "requester", "urgency", "external", "deferred",
        "receipt",
    ]  # fmt: skip
    request_id = answer["request_id"]
    assert loaded.json("profile", "ann")["found"] is False
    assert loaded.json("profile", "bob")["found"] is True
    assert [item["request_id"] for item in loaded.json("erasures")["erasures"]] == [request_id]
    assert loaded.json("erasure", request_id) == answer
    assert loaded.json("resume", request_id) == answer
    assert loaded.json("census", request_id)["residue_count"] == 0
    loaded.run("receipt", request_id, "-o", "r.json")
    loaded.run("ledger", "-o", "ledger.jsonl")
    loaded.run("keys", "export", "-o", "pub.pem")
    receipt = (loaded.folder / "r.json").read_bytes()
    assert json.loads(receipt) == answer["receipt"]
    loaded.run("verify", "r.json")
    loaded.run("verify", "r.json", "--key", "pub.pem", "--ledger", "ledger.jsonl")
    assert loaded.json("verify", "-", "--key", "pub.pem", stdin=receipt)[0]["passed"] is True
    (loaded.folder / "r.json").write_bytes(receipt.replace(b'"episodes":1', b'"episodes":2'))
    loaded.run("verify", "r.json", exits=1)
    secrets = json.loads((loaded.folder / "expunge.keys").read_bytes())
    shown = loaded.run("keys").stdout.decode()
    assert secrets["signing"][0]["secret"] not in shown
    assert not [name for name, data in _bytes(loaded).items() if b'"ann"' in data and name != "r.json"]


def _bytes(shell: Shell) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in shell.folder.iterdir()}


def test_verify_needs_a_pinned_key_and_makes_nothing(loaded: Shell, tmp_path: Path) -> None:
    """Deliver: without a pinned key, given or the database's own, it does not pass."""
    request_id = loaded.json("erase", "--user", "ann", "--purge", "--yes")["request_id"]
    receipt = loaded.run("receipt", request_id).stdout
    (tmp_path / "elsewhere").mkdir()
    stranger = Shell(tmp_path / "elsewhere")
    assert b"no key is pinned" in stranger.run("verify", "-", stdin=receipt, exits=1).stdout
    assert list(stranger.folder.iterdir()) == []


def test_an_erasure_is_found_again_by_the_user(loaded: Shell) -> None:
    """Law 14: the list holds pseudonyms, and whoever has the keys can ask it for a person, also after a rotation."""
    first = loaded.json("erase", "--user", "ann", "--purge", "--yes")["request_id"]
    loaded.run("keys", "rotate")
    second = loaded.json("erase", "--user", "bob", "--user", "ann", "--purge", "--yes")["request_id"]
    found = {user: [item["request_id"] for item in loaded.json("erasures", "--user", user)["erasures"]]
             for user in ("ann", "bob", "eve")}  # fmt: skip
    assert found == {"ann": [second, first], "bob": [second], "eve": []}


def test_all_public_halves_are_exported_and_pinned(loaded: Shell) -> None:
    """Design 4: after a rotation old and new receipts pass with what `keys export` gives."""
    ids = [loaded.json("erase", "--user", "ann", "--purge", "--yes")["request_id"]]
    loaded.run("keys", "rotate")
    ids.append(loaded.json("erase", "--user", "bob", "--purge", "--yes")["request_id"])
    loaded.run("keys", "export", "-o", "pub.pem")
    assert (loaded.folder / "pub.pem").read_bytes().count(b"BEGIN PUBLIC KEY") == 2
    for request_id in ids:
        receipt = loaded.run("receipt", request_id).stdout
        loaded.run("verify", "-", "--key", "pub.pem", stdin=receipt)
        pretty = json.dumps(json.loads(receipt), indent=2).encode()
        assert loaded.run("verify", "-", "--key", "pub.pem", stdin=pretty, exits=1).stdout.count(b"FAILED") == 1


def test_several_users_and_a_file_of_users(shell: Shell) -> None:
    """Deliver: options repeat, `--users-from FILE`; one receipt a line."""
    shell.run("load", "-", stdin=lines(*(episode(f"e{n}", f"u{n}") for n in range(5))))
    (shell.folder / "users.txt").write_bytes(b"u2\r\nu3\n\n")
    answer = shell.json("erase", "--user", "u0", "--user", "u1", "--users-from", "users.txt", "--purge", "--yes")
    assert (answer["scope_type"], answer["removed"]["episodes"], len(answer["receipt"])) == ("user_list", 4, 4)
    receipts = shell.run("receipt", answer["request_id"]).stdout
    assert receipts.count(b"\n") == 4
    shell.run("verify", "-", stdin=receipts)
    assert shell.json("profile", "u4")["found"] is True


@pytest.mark.parametrize(
    "user", ["-x", "--purge", "a\nb", "u\x9b31m\x7f\u202e", "\x1b[31mred", "[bold]x[/bold]", "😂", "../../x", "$(id)"]
)
def test_odd_users_through_the_shell(shell: Shell, user: str) -> None:
    """Law 12: an id is never an option, markup, or something that acts on the terminal."""
    shell.run("load", "-", stdin=lines(episode("e", user), episode("f", "bob")))
    shown = shell.run("profile", "--", user).stdout
    assert b"\x1b" not in shown
    raw = shell.run("profile", "--json", "--", user).stdout.decode()
    assert json.loads(raw)["user_id"] == user
    assert not set(raw) & set("\x1b\x7f\x9b\u202e")
    assert b"episodes" in shown
    answer = shell.json("erase", f"--user={user}", "--purge", "--yes")
    assert answer["removed"]["episodes"] == 1
    assert shell.json("profile", "bob")["found"] is True


def test_shared_options_stand_before_or_after(shell: Shell) -> None:
    """`--db`, `--org`, `--json` on either side of the command, or in the environment."""
    data = lines(episode("e", "ann"))
    shell.run("--db", "x.db", "--org", "acme", "load", "-", stdin=data)
    for words in (
        ("--db", "x.db", "--org", "acme", "--json", "profile", "ann"),
        ("profile", "ann", "--db", "x.db", "--org", "acme", "--json"),
        ("--org", "other", "profile", "--db", "x.db", "--org", "acme", "ann", "--json"),
    ):
        assert json.loads(shell.run(*words).stdout)["found"] is True
    assert shell.json("profile", "ann", "--db", "sqlite:///x.db")["found"] is False
    done = shell.run("profile", "ann", "--json", EXPUNGE_DB="x.db", EXPUNGE_ORG="acme", EXPUNGE_LOCOMO="/nowhere")
    assert json.loads(done.stdout)["found"] is True


def test_progress_and_questions_do_not_stain_the_data(loaded: Shell) -> None:
    """Deliver: data on stdout, the rest on stderr; without a terminal nobody can say yes."""
    done = loaded.run("erase", "--user", "ann", "--purge", exits=2)
    assert done.stdout == b""
    assert b"--yes" in done.stderr
    preview = loaded.json("erase", "--user", "ann", "--dry-run")
    assert preview["goes"]["memories"] == {"direct": 1, "derived": 2}
    assert loaded.json("profile", "ann")["found"] is True
    assert loaded.json("erasures")["erasures"] == []


BAD = [
    (("profile", ""), 2, "INVALID_ID"),
    (("profile", "-"), 2, "INVALID_ID"),
    (("profile", "x" * 257), 2, "INVALID_ID"),
    (("profile", b"\xff\xfe"), 2, "INVALID_ID"),
    (("profile", "ann", "--org", " "), 2, "INVALID_ID"),
    (("profile", "ann", "--org", ""), 2, "INVALID_ID"),
    (("--org", "", "erase", "--user", "ann", "--purge", "--yes"), 2, "INVALID_ID"),
    (("erasures", "--status", "done"), 2, "INVALID_INPUT"),
    (("load", "expunge.keys", "--ledger", "expunge.keys"), 2, "INVALID_INPUT"),
    (("export", "ann", "-o", "ann.pdf"), 2, "INVALID_INPUT"),
    (("data-map", "-o", "map.md"), 2, "INVALID_INPUT"),
    (("erase", "--purge", "--yes"), 2, "INVALID_SCOPE"),
    (("erase", "--user", "ann", "--user", "ann", "--purge", "--yes"), 2, "INVALID_SCOPE"),
    (("erase", "--user", "ann", "--whole-org", "--purge", "--yes"), 2, "INVALID_SCOPE"),
    (("erase", "--user", "ann", "--before", "2026-01-01", "--yes"), 2, "INVALID_INSTANT"),
    (("resume",), 2, "INVALID_INPUT"),
    (("restore", "er-none"), 2, "UNKNOWN_REQUEST"),
    (("release", "er-none"), 2, "UNKNOWN_REQUEST"),
    (("erase", "--users-from", "nowhere", "--purge", "--yes"), 2, "INVALID_INPUT"),
    (("erasure", "er-none"), 2, "UNKNOWN_REQUEST"),
    (("resume", "er-none"), 2, "UNKNOWN_REQUEST"),
    (("census", "%"), 2, "UNKNOWN_REQUEST"),
    (("receipt", "er-none"), 2, "UNKNOWN_REQUEST"),
    (("load", "nowhere.jsonl"), 2, "INVALID_INPUT"),
    (("profile", "ann", "--db", "nowhere.db"), 4, "DATABASE_MISSING"),
    (("profile", "ann", "--db", "postgresql://127.0.0.1:1/x"), 4, "DATABASE_AWAY"),
    (("profile", "ann", "--db", "."), 4, "DATABASE_FOREIGN"),
    (("verify", "nowhere.json"), 2, "INVALID_INPUT"),
]


@pytest.mark.parametrize(("words", "exits", "code"), BAD, ids=[f"{n}-{row[2]}" for n, row in enumerate(BAD)])
def test_bad_input_gets_an_error_of_the_tree(loaded: Shell, words: tuple[Any, ...], exits: int, code: str) -> None:
    """Bad input: what is wrong and what to do next, as JSON on stderr; nothing is written."""
    before = digests(loaded.folder)
    detail = loaded.error(*words, exits=exits)
    assert detail["code"] == code
    assert detail["message"]
    assert detail["hint"]
    assert {name: value for name, value in digests(loaded.folder).items() if "db-" not in name} == before


def test_501_users(shell: Shell) -> None:
    """Bad input: the limit is in the message."""
    shell.run("load", "-", stdin=lines(episode("e", "ann")))
    users = "".join(f"u{n}\n" for n in range(501)).encode()
    detail = shell.error("erase", "--users-from", "-", "--purge", "--yes", exits=2, stdin=users)
    assert "500" in detail["message"]


def test_a_file_loads_whole_or_not_at_all(shell: Shell) -> None:
    """Deliver: the bad line's number and field are named; with `--skip-bad` the rest is loaded and they are counted."""
    data = lines(episode("e1", "ann")) + b"{\n" + lines(episode("e2", "ann", output=5), episode("e3", "ann"))
    detail = shell.error("load", "-", exits=2, stdin=data)
    assert list(shell.folder.iterdir()) == []
    assert detail["bad"] == [
        {"line": 2, "field": "line", "reason": "is not JSON (column 2)"},
        {"line": 3, "field": "output", "reason": "must be text, not int"},
    ]
    answer = shell.json("load", "-", "--skip-bad", stdin=data)
    assert (answer["loaded"], len(answer["bad"])) == (2, 2)
    again = shell.json("load", "-", "--skip-bad", stdin=b"\xef\xbb\xbf" + data)
    assert (again["loaded"], again["skipped"]) == (0, 2)


def test_the_demo_holds(shell: Shell) -> None:
    """Deliver: `demo` checks every claim and leaves nothing behind."""
    answer = shell.json("demo")
    assert answer["passed"] is True
    assert len(answer["checks"]) >= 12
    assert b"every claim held" in shell.run("demo").stdout
    assert list(shell.folder.iterdir()) == []


def test_the_data_map_needs_no_database(shell: Shell) -> None:
    """`data-map` shows what would be kept before anything is."""
    found = shell.json("data-map")["collections"]
    assert {item["collection"] for item in found} >= {"episodes", "lineage", "ledger", "fences"}
    assert b"lineage" in shell.run("data-map").stdout
    assert list(shell.folder.iterdir()) == []


def test_usage_errors_exit_2(shell: Shell) -> None:
    """Exit codes are documented: what the parser refuses is bad input too."""
    for words in (("nonsense",), ("load",), ("profile", "a", "b"), ("erase", "--no-such-option")):
        shell.run(*words, exits=2)


def test_settings_come_from_file_environment_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliver: `expunge.toml`, `EXPUNGE_*`, unknown names refused, the later wins."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "expunge.toml").write_text('org = "from-file"\nbatch_rows = 5\nkeys_file = "k/ring"\n')
    found = Settings.load({"EXPUNGE_BATCH_ROWS": "7"}, db="x.db")
    assert (found.org, found.batch_rows, found.db, found.keys_file) == ("from-file", 7, "x.db", Path("k/ring"))
    bad: list[dict[str, str]] = [
        {"EXPUNGE_BATCHROWS": "7"}, {"EXPUNGE_BATCH_ROWS": "0"}, {"EXPUNGE_BATCH_ROWS": "many"},
        {"EXPUNGE_BUSY_TIMEOUT_S": "nan"}, {"EXPUNGE_BUSY_TIMEOUT_S": "inf"}, {"EXPUNGE_CONFIG": "nowhere.toml"},
    ]  # fmt: skip
    for environ in bad:
        with pytest.raises(SettingsError):
            Settings.load(environ)
    for text in ("orgg = 1", "org = ", 'max_attempts = "x"'):
        (tmp_path / "expunge.toml").write_text(text)
        with pytest.raises(SettingsError):
            Settings.load({})


def test_every_command_is_documented() -> None:
    """Docs: the reference names each command and option (made from the code, and checked by `make check`)."""
    page = (Path(__file__).parent.parent / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert command.callback is not None
        assert f"## `expunge {command.name or command.callback.__name__}`" in page
    for name in ("list", "verify", "head"):
        assert f"## `expunge audit {name}`" in page


@pytest.mark.parametrize("words", [("erasures",), ("profile", "bob"), ("data-map",), ("demo",)])
def test_a_full_or_closed_stdout_is_no_traceback(loaded: Shell, words: tuple[str, ...]) -> None:
    """Exit codes: the machine (4) when an answer cannot be written, and 1, quietly, when the reader has gone."""
    with Path("/dev/full").open("wb") as full:
        assert loaded.call(*words, stdout=full.fileno()).returncode == 4
    reading, writing = os.pipe()
    os.close(reading)
    gone = loaded.call(*words, stdout=writing)
    os.close(writing)
    assert (gone.returncode, gone.stderr) == (1, b"")
    # Closed is what an interpreter finds at its start: this needs one of its own.
    command = f"'{EXPUNGE}' {' '.join(words)} >&-"
    env = environ_of(loaded.folder)
    done = subprocess.run(["/bin/sh", "-c", command], cwd=loaded.folder, env=env, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr, done.stderr
    assert done.returncode in {0, 4}, done.stderr


def test_output_goes_through_links_and_pipes(loaded: Shell) -> None:
    """`-o` writes into what a name leads to and never replaces a link, a pipe or a device."""
    target, link = loaded.folder / "real.pem", loaded.folder / "link.pem"
    target.write_bytes(b"old")
    link.symlink_to(target)
    loaded.run("keys", "export", "-o", "link.pem")
    assert link.is_symlink()
    assert target.read_bytes().startswith(b"-----BEGIN")
    loaded.run("keys", "export", "-o", "/dev/null")
    assert Path("/dev/null").is_char_device()
    for bad in (".", "/", "", "x" * 300, "no/such/folder/x"):
        loaded.run("keys", "export", "-o", bad, exits=2)


def test_names_that_the_machine_cannot_use(loaded: Shell) -> None:
    """Bad input: no traceback, and no password in a message."""
    for name in (b"\xff.db", b"x" * 300, b"y" * 300 + b"/x.db"):
        for command in ("profile", "load"):
            assert loaded.call(command, "x", b"--db", name).returncode in {2, 4}
    detail = loaded.error("profile", "x", "--db", "mysql://u:SECRETPW@h/x", exits=2)
    assert "SECRETPW" not in str(detail)
