"""The LoCoMo conversations in a store, a stranger's reader on it, and a check by a process that is not ours."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import IO, Any

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from expunge import Expunge, Settings
from expunge.keys.ring import read_public_pem, signing_key_id
from expunge.operations.erasure import Answer, PreviewOutput
from expunge.operations.records import PutOutput
from expunge.proof import verify
from tests.pg.server import fresh_database

LOCOMO = os.environ.get("EXPUNGE_LOCOMO", "")
needs_locomo = pytest.mark.skipif(
    not LOCOMO,
    reason="EXPUNGE_LOCOMO is not set, so erasure on real conversations is left out: 20 speakers, every scope, hiding and "
    "restoring, the lineage cases built on them, and loading again after an erasure",
)

DATABASE, URL = "expunge.db", "expunge.url"
KINDS = (
    "sessions", "episodes", "events", "attachments", "memories", "facts", "blocks", "documents", "chunks", "answers",
    "jobs",
)  # fmt: skip
REMOVED = (*KINDS, "lineage")
COUNTED = (*REMOVED, "search", "vectors", "audit_clear")
IN_STORES = ("objects.attachments", "originals.documents")
"""What is counted outside the database, once records are purged."""
_ROOT = Path(__file__).parents[2]
_ADAPTER = _ROOT / "examples" / "locomo.py"
_RAW = _ROOT / "tests" / "raw"
_CHECK_SECONDS = 60
PACKAGES = Path(psycopg.__file__).parents[1]
"""Where strangers find the driver of a server; they cannot find ours there, which is not installed into a folder."""

Record = dict[str, Any]


BOTH_LONG = pytest.mark.parametrize(
    "authority", ["sqlite", pytest.param("postgres", marks=pytest.mark.crash)], indirect=True
)
"""On both authorities, on PostgreSQL with the long tests."""


def on_both(names: Iterable[str], *served: str) -> Any:
    """Cases by name: all of them on a SQLite file, on PostgreSQL those that are served, but for two with the long."""
    names = list(names)
    assert set(served) <= set(names)
    cases: list[Any] = [("sqlite", name) for name in names] + [("postgres", name) for name in served[:2]]
    cases += [pytest.param("postgres", name, marks=pytest.mark.crash) for name in served[2:]]
    return pytest.mark.parametrize(("authority", "name"), cases, indirect=["authority"])


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
class Conjunction:
    """A scope in the words of the embedded API; with nothing named it is nobody."""

    users: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    session_id: str | None = None
    agent: str | None = None
    before: str | None = None
    whole_org: bool = False

    def words(self) -> dict[str, Any]:
        """As keywords of ``erase`` and ``preview``, besides the users."""
        words = {name: value for name, value in vars(self).items() if name != "users"}
        return {name: value for name, value in words.items() if value}

    def columns(self) -> dict[str, list[str]]:
        """What a record in scope has in its columns."""
        one = {"agent": self.agent, "session_id": self.session_id}
        many = {"user_id": list(self.users), "namespace": list(self.namespaces)}
        named = many | {column: [value] for column, value in one.items() if value is not None}
        return {column: values for column, values in named.items() if values}

    def asked(self) -> dict[str, Any]:
        """As the processes of strangers are asked about it."""
        return {"columns": self.columns(), "before": self.before, "whole_org": self.whole_org}

    def size(self) -> int:
        """How many receipts it gets: one for each subject."""
        return len(self.users or (None,)) * len(self.namespaces or (None,))


@dataclass(frozen=True)
class Loaded:
    """A store at rest that holds some records, and the lines it was loaded from."""

    folder: Path
    source: Path
    records: list[Record]
    answer: PutOutput

    @property
    def url(self) -> str | None:
        """Where the database is, when it is on a server."""
        return served_at(self.folder)

    def copy(self, to: Path) -> Path:
        """The folder, database and keys, once more."""
        return copy_store(self.folder, to)


copies: list[str] = []
"""The databases on a server that a test has made and that end with it."""


def copy_store(folder: Path, to: Path) -> Path:
    """A store at rest, once more elsewhere."""
    copied = Path(shutil.copytree(folder, to))
    if url := served_at(folder):
        copies.append(fresh_database(url, template=url))
        (copied / URL).write_text(copies[-1])
    return copied


def load(records: list[Record], where: Path, url: str | None = None) -> Loaded:
    """Put records into a new store, and close it."""
    source, folder = where / "input.jsonl", where / "store"
    source.write_bytes(b"".join(as_lines(records)))
    folder.mkdir()
    if url is not None:
        (folder / URL).write_text(url)
    answer = asyncio.run(put(folder, as_lines(records)))
    there = {path.name for path in folder.iterdir()}
    assert there - {"expunge.objects", "expunge.originals"} == {
        URL if url else DATABASE, "expunge.keys", "expunge.keys.lock",
    }  # fmt: skip
    return Loaded(folder, source, records, answer)


def served_at(folder: Path) -> str | None:
    """The URL of a store whose database is on a server."""
    return (folder / URL).read_text() if (folder / URL).exists() else None


async def put(folder: Path, lines: list[bytes], as_of: dict[str, int] | None = None) -> PutOutput:
    """Open the store of a folder, put lines into it, and close it."""
    async with Expunge(settings=settings_of(folder)) as expunge:
        return await expunge.put(lines, as_of=as_of)


def settings_of(folder: Path, **values: Any) -> Settings:
    """The settings of a store in a folder."""
    if url := served_at(folder):
        return Settings(db=url, keys_file=folder / "expunge.keys", objects=folder / "expunge.objects", **values)
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
def reading(folder: Path, **asked: Conjunction) -> Iterator[Reader]:
    """A reader on the store of a folder, its connection open until the end."""
    questions = json.dumps({name: scope.asked() for name, scope in asked.items()})
    url = served_at(folder)
    where = [str(folder / DATABASE), questions] if url is None else [url, questions, str(PACKAGES)]
    command = _stranger("locomo_reader.py", *where)
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
    """What the checking process finds after some users were erased."""
    return check_scope(folder, before, source, Conjunction(users))


def check_scope(
    folder: Path,
    before: Path,
    source: Path,
    scope: Conjunction,
    *,
    hidden: bool = False,
    restored: Sequence[str] | bool = (),
    files: bool = False,
) -> dict[str, Any]:
    """What the checking process finds; ``problems`` is empty when the erasure left what it had to, and that alone."""
    question = json.dumps(scope.asked() | {"hidden": hidden, "restored": restored} | _of_server(folder, files=files))
    command = _stranger("locomo_check.py", str(folder), str(before), str(source), question)
    done = subprocess.run(command, capture_output=True, check=False, timeout=_CHECK_SECONDS, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["imports_ours"] is False
    if not hidden:
        print(f"{scope}: {len(found['exempt'])} of {found['texts']} erased texts also stand in what stays:")
        print(*map(repr, found["exempt"]), sep="\n")
    return found


def _of_server(folder: Path, *, files: bool) -> dict[str, Any]:
    return {"packages": str(PACKAGES), "files": files} if served_at(folder) else {}


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
    """Erase users of a store, as ``erase_scope`` does."""
    return await erase_scope(
        folder, before, source, Conjunction(tuple(users)), Conjunction((bystander,)), settings=settings
    )


async def erase_scope(
    folder: Path,
    before: Path,
    source: Path,
    scope: Conjunction,
    bystander: Conjunction | None,
    *,
    exact: bool = False,
    settings: dict[str, Any] | None = None,
) -> Erased:
    """Purge what a preview has shown while another process has the store open, and let a third look at what is left.

    The look is taken at the moment at which the answer is there: the reader's connection and ours are still open.
    """
    with reading(folder, scope=scope, **({} if bystander is None else {"bystander": bystander})) as reader:
        async with Expunge(settings=settings_of(folder, **(settings or {})), create=False) as expunge:
            shown = await expunge.preview(*scope.users, exact=exact, **scope.words())
            answer = await expunge.erase(
                *scope.users, purge=True, plan_hash=shown.plan_hash, exact=exact, **scope.words()
            )
            read_after = reader.ask()
            found = check_scope(folder, before, source, scope)
            proofs = await Proofs.of(expunge, answer)
            again = await expunge.call("erasure.census", request_id=answer.request_id)
    assert_preview(shown, found)
    assert_answer(answer, found)
    assert_receipts(proofs, scope, found)
    assert (again.residue_count, again.census) == (0, answer.census)
    assert read_after == reader.first | {"scope": [0, None]}
    assert reader.first["scope"][0] == found["direct"]["episodes"]
    assert bystander is None or reader.first["bystander"][0]
    return Erased(answer, found, reader.first)


@dataclass(frozen=True)
class Proofs:
    """What a store gives to whoever wants to check an erasure: the newest receipts, the key, and the ledger."""

    receipts: list[bytes]
    key: Ed25519PublicKey
    ledger: bytes

    @classmethod
    async def of(cls, expunge: Expunge, answer: Answer) -> Proofs:
        """The proofs of an erasure as they are now."""
        pem = (await expunge.call("keys.show")).public_pems[-1]
        receipts = (await expunge.call("erasure.receipts", request_id=answer.request_id)).receipts
        ledger = (await expunge.call("ledger.export")).lines
        return cls(
            [receipt.encode() for receipt in receipts], read_public_pem(pem.encode()), "\n".join(ledger).encode()
        )

    def passed(self, receipt: bytes) -> list[str]:
        """The checks that a receipt passes, in their order."""
        checks = verify(receipt, {signing_key_id(self.key): self.key}, self.ledger)
        return [check.name for check in checks if check.passed]


def assert_preview(shown: PreviewOutput, found: dict[str, Any]) -> None:
    """Law 1: a preview shows what the input says will go and what outlives its session, and what becomes of others."""
    kinds = found["direct"]
    assert shown.goes == {kind: {way: found[way][kind] for way in ("direct", "derived")} for kind in kinds}
    assert shown.effects == found["effects"]
    assert shown.found is any(found["direct"].values())
    assert {item.collection: item.count for item in shown.stays if item.count is not None} == {
        kind: count for kind, count in found["outlives"].items() if count
    }


def assert_answer(answer: Answer, found: dict[str, Any], *, attempts: int = 1) -> None:
    """Law 7: completed means a census of zeros, and the counts are those that the input gives."""
    assert found["problems"] == []
    assert (answer.status, answer.failure_reason, answer.attempts) == ("completed", None, attempts)
    assert len(found["by_chance"]) <= 3
    assert answer.found is any(found["removed"].values())
    assert answer.census == census_of_zeros()
    assert (answer.residue, answer.residue_count) == ({}, 0)
    # A server's rows wait for a vacuum, and the receipt says so.
    assert [item["store"] for item in answer.deferred] == (["authority"] if found["served"] else [])
    assert (answer.purge, answer.restore_until, set(answer.hidden.values())) == (True, None, {0})
    assert answer.removed == found["removed"]
    assert answer.effects == found["effects"]


def census_of_zeros(*, hidden: bool = False) -> dict[str, int]:
    """A census that counted everything and found nothing; while records are hidden, nothing outside is counted."""
    return {f"authority.{name}": 0 for name in COUNTED} | ({} if hidden else dict.fromkeys(IN_STORES, 0))


def assert_hidden(answer: Answer, found: dict[str, Any]) -> None:
    """Law 7 for what is hidden: nothing of it is served, nothing was removed, and the answer says so."""
    assert found["problems"] == []
    assert (answer.status, answer.failure_reason, answer.attempts) == ("completed", None, 1)
    assert (answer.purge, answer.found, answer.reversals_count) == (False, True, 0)
    assert answer.census == census_of_zeros(hidden=True)
    assert answer.hidden == found["removed"] | {"lineage": 0}  # edges stay as they are
    assert set(answer.removed.values()) == {0}
    assert answer.effects == found["effects"]


def assert_receipts(proofs: Proofs, scope: Conjunction, found: dict[str, Any], *, hidden: bool = False) -> None:
    """Law 14: a receipt for each subject that verifies with the pinned key and the ledger, and names nobody."""
    counted: dict[str, Counter[str]] = {"removed": Counter(), "hidden": Counter(), "effects": Counter()}
    is_served = found["served"]
    for receipt in proofs.receipts:
        said = json.loads(receipt)
        assert proofs.passed(receipt) == ["form", "key", "signature", "census", "bytes", "ledger"]
        assert (said["purge"], bool(said["deferred"])) == (not hidden, is_served and not hidden)
        assert said["census"] == census_of_zeros(hidden=hidden)
        assert set(said["scope"]["pseudonyms"]) == scope.columns().keys()
        for name, counts in counted.items():
            counts.update(said[name])
        texts = set(_texts_in(said))
        assert not [name for name in _names_of(scope) if name in texts or (name.encode() in receipt and len(name) > 2)]
    assert len(proofs.receipts) == scope.size()
    went = found["removed"] | ({"lineage": 0} if hidden else dict.fromkeys(IN_STORES, 0))
    nothing = dict.fromkeys(went, 0)
    assert counted["removed"] == (nothing if hidden else went)
    assert counted["hidden"] == (went if hidden else nothing)
    assert counted["effects"] == found["effects"]


def _names_of(scope: Conjunction) -> list[str]:
    return [name for names in scope.columns().values() for name in names]


def _texts_in(said: Any) -> Iterator[str]:
    """Every text in a JSON value, names too."""
    if isinstance(said, dict):
        yield from said
        said = [*said.values()]
    if isinstance(said, list):
        for item in said:
            yield from _texts_in(item)
    elif isinstance(said, str):
        yield said
