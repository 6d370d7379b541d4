"""The audit: verifying a whole chain, against reading and hashing the same by hand."""

from __future__ import annotations

import hmac
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import apsw

from bench.build import ORG, make, settings
from bench.erasure import Sizes
from bench.harness import Report, Samples, Turn, ms, take_turns
from expunge import Expunge, audit
from expunge.audit.chain import START, chain_secret
from expunge.authority.port import Tx

_READ = "SELECT n, key_id, body, mac FROM audit WHERE org = ? ORDER BY n"
_A_COMMIT = 1000
_MOST = 2.0
_AROUND = 80
"""Bytes of a message besides the body: the place of the entry, and the MAC before it."""


async def verifying(folder: Path, sizes: Sizes) -> Report:
    """Verify a chain of 100,000 entries: `audit.verify`, and a loop by hand over the same rows and HMACs."""
    report = Report(f"Verify {sizes.rows:,} entries of the audit", ("what", "n", "median ms", "p95 ms", "x"))
    place = folder / "audit"
    make(place)
    async with Expunge(settings=settings(place)) as product:
        await _fill(product, sizes.rows)
        keys = product.system.keys
        secrets = {key.id: chain_secret(key) for key in keys.pseudonym_keys}
        by_hand = apsw.Connection(product.settings.db, flags=apsw.SQLITE_OPEN_READONLY)
        by_hand.execute("PRAGMA cache_size = -16384")
        samples = Samples()
        messages = [(secret, bytes(len(body) + _AROUND)) for secret, body in _held(by_hand, secrets)]
        turns: dict[str, Turn] = {
            "ours": partial(_verify, product),
            "by hand": partial(_by_hand, by_hand, secrets, sizes.rows),
            "the HMACs alone, of messages in memory": partial(_hash, messages),
        }
        for number in range(sizes.pairs + 1):
            await take_turns(turns, number, samples if number else None)
        by_hand.close()
    shutil.rmtree(place)
    for name in turns:
        ratio = f"{samples.ratio(name, 'by hand'):.2f}"
        report.rows.append([name, str(samples.count(name)), ms(samples.median(name)), ms(samples.p95(name)), ratio])
    report.hold("verify / by hand", samples.ratio("ours", "by hand"), _MOST)
    report.note("verify / the HMACs alone", samples.ratio("ours", "the HMACs alone, of messages in memory"))
    return report


async def _fill(product: Expunge, entries: int) -> None:
    keys, clock = product.system.keys, product.system.clock

    def unit(tx: Tx, count: int) -> None:
        subject = keys.current.pseudonym(ORG, "user_id", "somebody")
        for number in range(count):
            detail = {"attempt": 1, "purge": True, "scope_type": "user_id"}
            audit.record(
                tx,
                keys,
                audit.Entry(
                    org=ORG,
                    at=clock.now(),
                    actor="bench",
                    role="operator",
                    operation="erasure.request",
                    outcome="completed" if number % 2 else "intent",
                    request_id=f"er-{number:024x}",
                    subjects=[{"user_id": subject}],
                    detail=detail,
                ),
            )

    for _ in range(0, entries, _A_COMMIT):
        await product.system.authority.run(partial(unit, count=_A_COMMIT))


def _held(connection: apsw.Connection, secrets: dict[str, bytes]) -> Iterator[tuple[bytes, str]]:
    return ((secrets[key_id], body) for _, key_id, body, _ in connection.execute(_READ, (ORG,)))


def _hash(messages: list[tuple[bytes, bytes]]) -> None:
    for secret, message in messages:
        hmac.digest(secret, message, "sha256")


async def _verify(product: Expunge) -> None:
    assert (await product.call("audit.verify", org=ORG)).ok


def _by_hand(connection: apsw.Connection, secrets: dict[str, bytes], entries: int) -> None:
    """The tightest loop that does it: the same rows in one statement, the same HMACs, and nothing else."""
    digest, previous, seen = hmac.digest, START, 0
    start = b"expunge/audit/1\0" + ORG.encode() + b"\0"
    for n, key_id, body, mac in connection.execute(_READ, (ORG,)):
        message = b"%b%d\0%b\0%b%b" % (start, n, key_id.encode(), previous, body.encode())
        assert digest(secrets[key_id], message, "sha256") == mac
        previous, seen = mac, seen + 1
    assert seen >= entries
