"""The LoCoMo conversations in a store, a stranger's reader on it, and a check by a process that is not ours."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import IO, Any

import pytest

from expunge import Expunge, Settings
from expunge.keys.ring import read_public_pem, signing_key_id
from expunge.operations.erasure import Answer
from expunge.operations.records import PutOutput
from expunge.proof import verify

LOCOMO = os.environ.get("EXPUNGE_LOCOMO", "")
needs_locomo = pytest.mark.skipif(
    not LOCOMO,
    reason="EXPUNGE_LOCOMO is not set, so erasure on real conversations is left out: 20 speakers, the lineage cases "
    "built on them, and loading again after an erasure",
)

DATABASE = "expunge.db"
COUNTED = ("sessions", "episodes", "events", "memories", "facts", "blocks", "lineage")
_ROOT = Path(__file__).parents[2]
_ADAPTER = _ROOT / "examples" / "locomo.py"
_RAW = _ROOT / "tests" / "raw"
_CHECK_SECONDS = 60

Record = dict[str, Any]


def adapted() -> tuple[list[Record], Counter[str]]:
    """What the adapter makes of the data, and what it says that it found."""
    spec = spec_from_file_location("locomo_adapter", _ADAPTER)
    assert spec is not None
    assert spec.loader is not None
    adapter = module_from_spec(spec)
    sys.modules[spec.name] = adapter
    spec.loader.exec_module(adapter)
    counts: Counter[str] = Counter()
    with Path(LOCOMO).open(encoding="utf-8") as lines:
        return list(adapter.records(lines, counts)), counts


def as_lines(records: Sequence[Record]) -> list[bytes]:
    """Records as the lines of a file to load."""
    return [json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records]


@dataclass(frozen=True)
class Loaded:
    """A store at rest that holds some records, and the lines it was loaded from."""

    folder: Path
    source: Path
    records: list[Record]
    answer: PutOutput

    def copy(self, to: Path) -> Path:
        """The folder, database and keys, once more."""
        return copy_store(self.folder, to)


def copy_store(folder: Path, to: Path) -> Path:
    """A store at rest, once more elsewhere."""
    return Path(shutil.copytree(folder, to))


def load(records: list[Record], where: Path) -> Loaded:
    """Put records into a new store, and close it."""
    source, folder = where / "input.jsonl", where / "store"
    source.write_bytes(b"".join(as_lines(records)))
    folder.mkdir()
    answer = asyncio.run(put(folder, as_lines(records)))
    assert sorted(path.name for path in folder.iterdir()) == [DATABASE, "expunge.keys", "expunge.keys.lock"]
    return Loaded(folder, source, records, answer)


async def put(folder: Path, lines: list[bytes], as_of: dict[str, int] | None = None) -> PutOutput:
    """Open the store of a folder, put lines into it, and close it."""
    async with Expunge(settings=settings_of(folder)) as expunge:
        return await expunge.put(lines, as_of=as_of)


def settings_of(folder: Path, **values: Any) -> Settings:
    """The settings of a store in a folder."""
    return Settings(db=str(folder / DATABASE), **values)


def _stranger(script: str, *arguments: str) -> list[str]:
    """A command line of an interpreter that cannot even find our package: no site folders, no environment."""
    return [sys.executable, "-I", "-S", str(_RAW / script), *arguments]


class Reader:
    """Another process with a connection of its own, which has read before and reads when it is asked."""

    def __init__(self, words: IO[str], answers: IO[str]) -> None:
        self._words, self._answers = words, answers
        ready, _, first = answers.readline().partition(" ")
        assert ready == "READY"
        self.first: dict[str, Any] = json.loads(first)

    def ask(self) -> dict[str, Any]:
        """What it reads now."""
        self._words.write("again\n")
        self._words.flush()
        answer: dict[str, Any] = json.loads(self._answers.readline())
        return answer


@contextmanager
def reading(folder: Path, users: Sequence[str]) -> Iterator[Reader]:
    """A reader on the store of a folder, its connection open until the end."""
    command = _stranger("locomo_reader.py", str(folder / DATABASE), *users)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8") as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield Reader(child.stdin, child.stdout)
            assert child.poll() is None
            child.communicate(timeout=_CHECK_SECONDS)
            assert child.returncode == 0
        finally:
            child.kill()


def check(folder: Path, before: Path, source: Path, *users: str) -> dict[str, Any]:
    """What the checking process finds; ``problems`` is empty when the erasure left what it had to, and that alone."""
    command = _stranger("locomo_check.py", str(folder), str(before), str(source), *users)
    done = subprocess.run(command, capture_output=True, check=False, timeout=_CHECK_SECONDS, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["imports_ours"] is False
    print(f"{users}: {len(found['exempt'])} of {found['texts']} erased texts also stand in what stays:")
    print(*map(repr, found["exempt"]), sep="\n")
    return found


def erase_naively(folder: Path, plan: dict[str, Any]) -> None:
    """Delete the rows of a plan as a program does that never heard of free pages."""
    rows = {name: ids for name, ids in plan["goes"].items() if ids}
    command = _stranger("locomo_naive.py", str(folder / DATABASE))
    given = json.dumps({"rows": rows, "edges": plan["edges_gone"]})
    subprocess.run(command, input=given, check=True, timeout=_CHECK_SECONDS, encoding="utf-8")


@dataclass(frozen=True)
class Erased:
    """An erasure, and what a stranger's processes saw of it."""

    answer: Answer
    found: dict[str, Any]
    read_before: dict[str, Any]


async def erase(
    folder: Path, before: Path, source: Path, users: Sequence[str], bystander: str, **settings: Any
) -> Erased:
    """Erase users of a store while another process has it open, and let a third look at what is left.

    The look is taken at the moment at which the answer is there: the reader's connection and ours are still open.
    """
    with reading(folder, [*users, bystander]) as reader:
        async with Expunge(settings=settings_of(folder, **settings), create=False) as expunge:
            pem = (await expunge.call("keys.show")).public_pems[-1]
            answer = await expunge.erase(*users, purge=True)
            read_after = reader.ask()
            found = check(folder, before, source, *users)
            receipts = (await expunge.call("erasure.receipts", request_id=answer.request_id)).receipts
            ledger = (await expunge.call("ledger.export")).lines
    assert_answer(answer, found)
    assert_receipts([receipt.encode() for receipt in receipts], pem, "\n".join(ledger).encode(), users, found)
    assert {user: read_after[user] for user in users} == {user: [0, None] for user in users}
    assert read_after[bystander] == reader.first[bystander]
    assert all(count for count, _ in reader.first.values())
    return Erased(answer, found, reader.first)


def assert_answer(answer: Answer, found: dict[str, Any]) -> None:
    """Law 7: completed means a census of zeros, and the counts are those that the input gives."""
    assert found["problems"] == []
    assert (answer.status, answer.found, answer.failure_reason, answer.attempts) == ("completed", True, None, 1)
    assert answer.census == {f"authority.{name}": 0 for name in COUNTED}
    assert (answer.residue, answer.residue_count, answer.deferred) == ({}, 0, [])
    assert answer.removed == found["removed"]
    assert answer.effects == found["effects"]


def assert_receipts(
    receipts: list[bytes], pem: str, ledger: bytes, users: Sequence[str], found: dict[str, Any]
) -> None:
    """Law 14: a receipt for each subject that verifies with the pinned key and the ledger, and names nobody."""
    key = read_public_pem(pem.encode())
    removed: Counter[str] = Counter()
    for receipt in receipts:
        checks = verify(receipt, {signing_key_id(key): key}, ledger)
        assert [check.name for check in checks if check.passed] == [
            "form",
            "key",
            "signature",
            "census",
            "bytes",
            "ledger",
        ]
        said = json.loads(receipt)
        assert (said["purge"], said["deferred"]) == (True, [])
        assert said["census"] == {f"authority.{name}": 0 for name in COUNTED}
        removed.update(said["removed"])
        assert not [user for user in users if user.encode() in receipt]
    assert len(receipts) == len(users)
    assert dict(removed) == found["removed"]
