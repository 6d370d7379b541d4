"""The chain of the audit: every change shows, whoever made it; several processes, older databases, the command."""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from expunge import Expunge, Settings
from expunge.audit import chain
from expunge.authority.sqlite import migrate
from expunge.errors import DatabaseFault, InputError
from expunge.keys import PseudonymKey
from expunge.model.instant import ManualClock
from expunge.operations.audit import HeadOutput
from tests.audit_support import ORG, ask, holding, listed, verified
from tests.eye import Refused, is_served, tamper, told
from tests.shell import Shell
from tests.support import episode

pytestmark = pytest.mark.authorities("sqlite", "postgres", every=2)

# --- tampering ------------------------------------------------------------------------------------------------------

_SWAP = """UPDATE audit SET n = CASE n WHEN 3 THEN 1000 WHEN 4 THEN 1001 END WHERE org = 'default' AND n IN (3, 4)"""
_BACK = """UPDATE audit SET n = CASE n WHEN 1000 THEN 4 WHEN 1001 THEN 3 END WHERE org = 'default' AND n > 999"""
_HERE = "org = 'default' AND n"
TAMPERED: dict[str, tuple[list[str], str, int]] = {
    "a body": ([f"UPDATE audit SET body = replace(body, '\"loaded\":1', '\"loaded\":2') WHERE {_HERE} = 3"], "broken", 3),
    "a space in a body": ([f"UPDATE audit SET body = body || ' ' WHERE {_HERE} = 1"], "broken", 1),
    "a mac": ([f"UPDATE audit SET mac = zeroblob(32) WHERE {_HERE} = 2"], "broken", 2),
    "a short mac": ([f"UPDATE audit SET mac = substr(mac, 1, 31) WHERE {_HERE} = 2"], "broken", 2),
    "a whole entry from elsewhere": (
        [f"""UPDATE audit SET (body, mac) = (SELECT body, mac FROM audit WHERE {_HERE} = 5) WHERE {_HERE} = 3"""],
        "broken", 3,
    ),
    "one deleted": ([f"DELETE FROM audit WHERE {_HERE} = 4"], "missing", 4),
    "the first deleted": ([f"DELETE FROM audit WHERE {_HERE} = 1"], "missing", 1),
    "one deleted, and those behind it moved up": (
        [f"DELETE FROM audit WHERE {_HERE} = 4", *(f"UPDATE audit SET n = {n - 1} WHERE {_HERE} = {n}" for n in (5, 6))],
        "broken", 4,
    ),
    "two swapped": ([_SWAP, _BACK], "reordered", 3),
    "one renumbered": ([f"UPDATE audit SET n = 9 WHERE {_HERE} = 5"], "reordered", 5),
    "the last renumbered": ([f"UPDATE audit SET n = 7 WHERE {_HERE} = 6"], "reordered", 6),
    "another key's name": ([f"UPDATE audit SET key_id = 'pk-0' WHERE {_HERE} = 5"], "unknown key", 5),
    "another org's entry": (
        [
            f"""UPDATE audit SET (key_id, body, mac) = (SELECT key_id, body, mac FROM audit WHERE org = 'other' AND n = 2)
            WHERE {_HERE} = 2"""
        ],
        "broken", 2,
    ),
    "another org's chain": (
        ["DELETE FROM audit WHERE org = 'default'", "UPDATE audit SET org = 'default' WHERE org = 'other'"], "broken", 1,
    ),
    "the end cut": ([f"DELETE FROM audit WHERE {_HERE} > 4"], "cut", 5),
    "all of it cut": ([f"DELETE FROM audit WHERE {_HERE} > 0"], "cut", 1),
    "one added": (
        ["INSERT INTO audit SELECT org, 7, key_id, body, mac FROM audit WHERE org = 'default' AND n = 6"], "broken", 7,
    ),
    "the head forgotten": (["UPDATE orgs SET audit_head = NULL WHERE org = 'default'"], "broken", 6),
    "the length less": (["UPDATE orgs SET audit_length = 5 WHERE org = 'default'"], "broken", 6),
    "another name filed": (["UPDATE audit_clear SET name = 'eve' WHERE org = 'default'"], "misnamed", 0),
}  # fmt: skip
_CUT = [
    f"DELETE FROM audit WHERE {_HERE} > 4",
    """UPDATE orgs SET audit_length = 4, audit_head = (SELECT mac FROM audit WHERE org = 'default' AND n = 4)
    WHERE org = 'default'""",
]


@pytest.fixture
async def chained(settings: Settings) -> Settings:
    """A database that is closed, with six entries in each of two orgs."""
    async with Expunge(settings=settings, clock=ManualClock()) as expunge:
        for number in range(6):
            for org in (ORG, "other"):
                await expunge.put([episode(f"e{number}", "ann")], org=org)
    return settings


@pytest.mark.parametrize("what", TAMPERED)
async def test_each_way_to_tamper_is_named_at_its_entry(chained: Settings, what: str) -> None:
    """Deliver: `audit verify` names the first broken, missing or reordered entry; the other org stays whole."""
    statements, kind, n = TAMPERED[what]
    tamper(chained.db, *statements)
    async with Expunge(settings=chained, clock=ManualClock()) as expunge:
        verdict = await verified(expunge)
        assert verdict.fault is not None, what
        assert (verdict.ok, verdict.fault.kind, verdict.fault.n) == (False, kind, n)
        assert verdict.entries == (n - 1 if n and what not in {"the head forgotten", "the length less"} else 6)
        if what != "another org's chain":
            assert (await verified(expunge, org="other")).ok


@pytest.mark.parametrize("n", [0, -7, -(2**63) + 1])
async def test_an_entry_before_the_first_is_a_fault_and_is_not_listed(chained: Settings, n: int) -> None:
    """Deliver: what is slipped in under a number that no entry has is named by `verify`, and nobody is told of it."""
    forged = f"INSERT INTO audit SELECT org, {n}, key_id, body, mac FROM audit WHERE org = 'default' AND n = 1"
    with pytest.raises(Refused):
        tamper(chained.db, forged)
    served = is_served(chained.db)
    unchecked = "ALTER TABLE audit DROP CONSTRAINT audit_n_check" if served else "PRAGMA ignore_check_constraints = ON"
    tamper(chained.db, unchecked, forged)
    async with Expunge(settings=chained, clock=ManualClock()) as expunge:
        verdict = await verified(expunge)
        assert verdict.fault is not None
        assert (verdict.ok, verdict.fault.kind, verdict.fault.n) == (False, "broken", n)
        assert min(entry.n for entry in await listed(expunge)) == 1


UNREADABLE: dict[str, str | dict[str, Any]] = {
    "no JSON": "not json",
    "no object": "[]",
    "an object of nothing": "{}",
    "too deep": "[" * 50_000,
    "a list that acted": {"actor": [1]},
    "no outcome": {"outcome": ...},
    "no time": {"at": "noon"},
    "a time that is none": {"at": 1e300},
    "numbers for people": {"subjects": [{"user_id": 3}]},
    "no people": {"subjects": 5},
}
"""What stands in the place of an entry: a text, or the entry with a member changed, or without it."""


@pytest.mark.parametrize("what", UNREADABLE)
async def test_an_entry_that_cannot_be_read_is_named(chained: Settings, what: str) -> None:
    """Law 16: a list that meets what is no entry says at which, and gives what stands before and behind it."""
    forged = UNREADABLE[what]
    if not isinstance(forged, str):
        (((body,),),) = told(chained.db, f"SELECT body FROM audit WHERE {_HERE} = 3")
        forged = json.dumps({name: value for name, value in (json.loads(body) | forged).items() if value is not ...})
    quoted = forged.replace("'", "''")
    tamper(chained.db, f"UPDATE audit SET body = '{quoted}' WHERE {_HERE} = 3")
    async with Expunge(settings=chained, clock=ManualClock()) as expunge:
        with pytest.raises(DatabaseFault, match="entry 3 of the audit cannot be read") as refused:
            await listed(expunge)
        assert refused.value.next_step is not None
        assert "--after 3" in refused.value.next_step
        assert [entry.n for entry in await listed(expunge, limit=3)] == [6, 5, 4]
        assert [entry.n for entry in await listed(expunge, after=3)] == [2, 1]
        verdict = await verified(expunge)
        assert verdict.fault is not None
        assert (verdict.fault.kind, verdict.fault.n) == ("broken", 3)


def test_an_entry_that_was_changed_does_not_act_on_the_terminal(tmp_path: Path) -> None:
    """Law 12: words that are ours in an entry are shown like anybody's: whoever writes the file may have put them."""
    shell = Shell(tmp_path)
    shell.run("load", "-", stdin=json.dumps(episode("e", "ann")).encode())
    for name in ("operation", "outcome", "request_id"):
        tamper(str(tmp_path / "expunge.db"), f"UPDATE audit SET body = json_set(body, '$.{name}', char(27) || '[31m')")
    shown = shell.run("audit", "list").stdout
    assert b"\x1b" not in shown
    assert shown.count(b"\\x1b[31m") == 3


async def test_a_ledger_that_cannot_be_read_is_no_ledger(chained: Settings) -> None:
    """Law 16: a ledger with an entry that is no JSON is not given, and the error says at which entry."""
    async with Expunge(settings=chained, clock=ManualClock()) as expunge:
        await expunge.erase("ann", purge=True)
        whole = (await expunge.call("ledger.export")).lines
    tamper(chained.db, "UPDATE ledger SET body = 'x' WHERE org = 'default' AND n = 2")
    async with Expunge(settings=chained, clock=ManualClock()) as expunge:
        with pytest.raises(DatabaseFault, match="entry 2 of the ledger cannot be read"):
            await expunge.call("ledger.export")
        assert len(whole) == 3


async def test_a_cut_end_shows_against_a_remembered_head(chained: Settings) -> None:
    """Deliver: who cuts the end and mends the org's own note of it is found out by a head that was kept elsewhere."""
    async with Expunge(settings=chained, clock=ManualClock()) as expunge:
        kept: HeadOutput = await expunge.call("audit.head")
        await expunge.put([episode("more", "ann")])
        assert (await verified(expunge, head=kept.model_dump())).ok  # a chain may grow
    tamper(chained.db, *_CUT)
    async with Expunge(settings=chained, clock=ManualClock()) as expunge:
        assert (await verified(expunge)).ok
        verdict = await verified(expunge, head=kept.model_dump())
        assert verdict.fault is not None
        assert (verdict.fault.kind, verdict.fault.n, verdict.entries) == ("cut", 5, 4)
        for number in range(3):  # it grows over the cut
            await expunge.put([episode(f"later{number}", "ann"), episode(f"other{number}", "ann")])
        verdict = await verified(expunge, head=kept.model_dump())
        assert verdict.fault is not None
        assert (verdict.fault.kind, verdict.fault.n) == ("rewritten", 6)
        for wrong in ({"org": "other"}, {"mac": "00"}, {"n": -1}, {"format": "x"}, {"more": 1}):
            with pytest.raises(InputError):
                await verified(expunge, head=kept.model_dump() | wrong)


async def test_an_empty_chain_is_whole(expunge: Expunge) -> None:
    """Law 16: nothing happened, and that is what it says."""
    verdict = await verified(expunge, org="nobody")
    assert (verdict.ok, verdict.entries, verdict.head.n, verdict.head.mac) == (True, 0, 0, "0" * 64)
    assert await listed(expunge, org="nobody") == []


def test_the_chain_can_be_checked_by_hand() -> None:
    """Docs: the MAC is what docs/audit.md says it is."""
    key = PseudonymKey("pk-1", b"k" * 32)
    secret = hmac.new(b"k" * 32, b"expunge/audit-chain/1", "sha256").digest()
    message = b"expunge/audit/1\0" + "jürgen".encode() + b"\0" + b"7\0pk-1\0" + bytes(32) + b'{"at":1}'
    assert chain.link(chain.chain_secret(key), (chain.chain_of("jürgen"), 7, "pk-1"), bytes(32), '{"at":1}') == (
        hmac.new(secret, message, "sha256").digest()
    )


# --- several processes, older databases, the command ------------------------------------------------------------------

_WRITER = """
import asyncio, sys
from expunge import Expunge, Settings

async def main():
    async with Expunge(settings=Settings.model_validate_json(sys.argv[1])) as expunge:
        for number in range(40):
            name = f"{sys.argv[2]}-{number}"
            await expunge.put([{"collection": "episodes", "id": name, "user_id": sys.argv[2], "input": "x"}])

asyncio.run(main())
"""


async def test_writers_in_two_processes_make_one_chain(settings: Settings) -> None:
    """Law 2: entries of several processes stand in one unbroken chain, beside erasures."""
    async with Expunge(settings=settings) as expunge:
        await expunge.put([episode(f"u{number}", f"user-{number}") for number in range(10)])
        writers = [
            await asyncio.create_subprocess_exec(sys.executable, "-c", _WRITER, settings.model_dump_json(), name)
            for name in ("a", "b")
        ]
        for number in range(10):
            assert (await expunge.erase(f"user-{number}", purge=True)).status == "completed"
        assert [await writer.wait() for writer in writers] == [0, 0]
        verdict = await verified(expunge)
        assert (verdict.ok, verdict.entries) == (True, 1 + 2 * 40 + 2 * 10)


@pytest.fixture
async def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Settings:
    """A database of an older schema, with what its audit held: in clear who acted and who had asked."""
    settings = Settings(db=str(tmp_path / "old.db"), org="acme")
    real = migrate.migrations()
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "migrations", lambda: [item for item in real if item[0] <= request.param])
        async with Expunge(settings=settings, clock=ManualClock()) as expunge:
            key = expunge.system.keys.current
    pseudonym = key.pseudonym("acme", "user_id", "ann")
    connection = apsw.Connection(settings.db)
    insert = "INSERT INTO audit VALUES (?, ?, ?, ?, 'operator', 'erasure.request', ?, 'er-1', ?, ?)"
    subjects = json.dumps([{"user_id": pseudonym}])
    detail = json.dumps({"attempt": 1, "purge": True, "scope_type": "user_id", "requester": "ann-who-asked"})
    for org in ("acme", "other"):
        connection.execute("INSERT INTO orgs (org, seq, ledger_length) VALUES (?, 2, 1)", (org,))
        for n, outcome in enumerate(("intent", "completed"), start=1):
            connection.execute(insert, (org, n, 1000 + n, "ops", outcome, subjects, detail))
    connection.execute(
        "INSERT INTO ledger VALUES ('acme', 1, 'intent', 'er-1', 0, ?)",
        (json.dumps({"scope": {"key_id": key.id}}),),
    )
    assert connection.pragma("user_version") == request.param
    connection.close()
    return settings


@pytest.mark.parametrize("older", [1, 2], indirect=True)
async def test_the_audit_of_an_older_database_is_chained(older: Settings) -> None:
    """Deliver: numbered migrations. Old entries are chained in their order, say so, and are found; their table goes."""
    for _ in range(2):  # the second opening finds it done
        async with Expunge(settings=older, clock=ManualClock()) as expunge:
            verdict = await verified(expunge, org="acme")
            assert (verdict.ok, verdict.entries) == (True, 2)
            assert (await verified(expunge, org="other")).entries == 2
            entries = await listed(expunge, user_id="ann")
            assert [(entry.n, entry.outcome, entry.names.get(entry.actor or "")) for entry in entries] == [
                (2, "completed", "ops"), (1, "intent", "ops"),
            ]  # fmt: skip
            assert entries[0].detail == {"attempt": 1, "purge": True, "scope_type": "user_id", "adopted": True}
            assert await ask(expunge, "SELECT count(*) FROM sqlite_schema WHERE name = 'audit_unchained'") == [(0,)]
    async with Expunge(settings=older, clock=ManualClock()) as expunge:
        await expunge.put([episode("e", "ann")])
        assert (await verified(expunge)).entries == 3
        await expunge.erase("ann", purge=True)
        assert holding(older, "ann-who-asked") == []


@pytest.mark.authorities("sqlite")  # no database of a server has had the old table
async def test_nothing_is_adopted_over_a_chain(chained: Settings) -> None:
    """Law 16: a table put in the place of the old one does not get its rows into a chain that is there."""
    tamper(
        chained.db,
        """CREATE TABLE audit_unchained (org TEXT, n INTEGER, at INTEGER, actor TEXT, role TEXT, operation TEXT,
        outcome TEXT, request_id TEXT, subjects TEXT, detail TEXT)""",
        "INSERT INTO audit_unchained VALUES ('default', 1, 1, 'eve', 'operator', 'x', 'done', NULL, '[]', '{}')",
    )
    async with Expunge(settings=chained, clock=ManualClock()) as expunge:
        verdict = await verified(expunge)
        assert (verdict.ok, verdict.entries) == (True, 6)
        assert await ask(expunge, "SELECT count(*) FROM sqlite_schema WHERE name = 'audit_unchained'") == [(0,)]


def test_the_commands(tmp_path: Path) -> None:
    """Deliver: `audit list`, `verify` and `head`; verify exits 1 on a fault, and a kept head shows a cut."""
    shell = Shell(tmp_path)
    line = json.dumps({"collection": "episodes", "id": "e", "user_id": "ann", "input": "x"}).encode()
    shell.run("load", "-", stdin=line)
    request_id = shell.json("erase", "--user", "ann", "--yes")["request_id"]
    shell.run("audit", "head", "-o", "head.json")
    found = shell.json("audit", "list", "--user", "ann")
    assert [(entry["outcome"], entry["request_id"]) for entry in found["entries"]] == [
        ("hidden", request_id), ("intent", request_id),
    ]  # fmt: skip
    assert shell.json("audit", "list", "--limit", "1")["next"] == 3
    assert b"there are more: --after 3" in shell.run("audit", "list", "--limit", "1").stderr
    assert b"erasure.request" in shell.run("audit", "list", "--actor", "operator").stdout
    assert b"3 entries are as they were written" in shell.run("audit", "verify").stdout
    assert b"none was cut" in shell.run("audit", "verify", "--head", "head.json").stdout
    assert shell.json("audit", "head") == json.loads((tmp_path / "head.json").read_bytes())
    database = str(tmp_path / "expunge.db")
    tamper(
        database,
        "DELETE FROM audit WHERE n = 3",
        "UPDATE orgs SET audit_length = 2, audit_head = (SELECT mac FROM audit WHERE n = 2)",
    )
    assert shell.json("audit", "verify")["ok"] is True
    assert shell.json("audit", "verify", "--head", "head.json", exits=1)["fault"]["kind"] == "cut"
    tamper(database, "UPDATE audit SET body = '{}' WHERE n = 1")
    assert b"entry 1: broken" in shell.run("audit", "verify", exits=1).stdout
    (tmp_path / "head.json").write_text("[]")
    assert shell.error("audit", "verify", "--head", "head.json", exits=2)["code"] == "INVALID_INPUT"
    assert shell.error("audit", "verify", "--head", "none.json", exits=2)["code"] == "INVALID_INPUT"
