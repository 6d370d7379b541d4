"""What every store of bodies has to do, as tests for whoever writes one.

Subclass ``StoreContract`` in a test module, give it a store, and run it with pytest and pytest-asyncio in auto mode::

    class TestMyStore(StoreContract):
        async def make_store(self, tmp_path):
            return MyStore(tmp_path / "bodies")

Say ``pytest.register_assert_rewrite("expunge.stores.contract")`` before that, and a failure shows both sides. Every
test makes a store of its own, which has to be empty. A test of what a store says that it cannot do is skipped;
``test_says_what_it_cannot_do`` looks whether it then raises.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import unittest
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

from expunge.authority.port import Reclaimed
from expunge.errors import StoreUnable
from expunge.model.identity import PARTS
from expunge.model.ids import NOBODY
from expunge.stores.port import Asked, BodyStore, Filing, Found, Lifecycle, Permit

HOSTILE_IDS = (
    "u1", "u10", "U1", "%", "_", "*", "?", "[", "[a-z]", "\\", "'", '"', "`", ";", "--", "-x", "--purge", "a b",
    " lead", "trail ", "../", "../../etc/passwd", "/etc/passwd", "C:\\x", ".", "..", "~", "$HOME", "{}", "{{x}}",
    "<script>", "&amp;", "%00", "%2e%2e%2f", "a\nb", "\tx", "\x1b[31mred", "\x7f", "u\u202e1", "\u200b",
    "jürgen", "ju\u0308rgen", "Straße", "STRASSE", "ı", "İ", "😂", "👩\u200d👩\u200d👧", "\U0010ffff", "\ufeffbom",
    "null", "None", "0", "-1", "1e9", "NaN", "true", "x" * 256, "é" * 128, "user_id", "$.user_id", "a\u2028b",
)  # fmt: skip
"""Ordinary ids that naive code trips over (law 12); each is another person."""

AT = 1_767_225_600_000_000
"""When the record of a body is dated that says nothing else."""
PERMIT = Permit("er-contract", 1)
_EVERY_SEQ = 1 << 53
_MANY = 1_500
_LARGE = 3 * 1024 * 1024
_SECRET = b"expunge/contract/1"


class BodyError(Exception):
    """what a body raises in the contract; a store passes it on."""


def label(org: str, part: str, value: str) -> str:
    """A pseudonym as the key ring makes them, under a fixed key."""
    return hmac.digest(_SECRET, f"{org}\0{part}\0{value}".encode(), "sha256").hex()[:32]


def filing(parts: Mapping[str, str], org: str = "acme", *, dated: int = AT, seq: int = 0) -> Filing:
    """Whose a body is, given by clear ids; nobody for the parts that are not given."""
    return Filing(org, tuple(label(org, part, parts.get(part, NOBODY)) for part in PARTS), dated, seq)


def asked(*targets: Mapping[str, str], org: str = "acme", before: int | None = None, seq: int = _EVERY_SEQ) -> Asked:
    """A question for targets given by clear ids. The store is not told them: it has to work by its labels."""
    # An unrelated pseudonym stands beside each, as another key of the ring would add it.
    labels = tuple(
        {part: frozenset({label(org, part, value), label(org, "other", value)}) for part, value in target.items()}
        for target in targets
    )
    return Asked(org, labels, None, before, seq)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    """A body in pieces."""
    for part in parts:
        yield part


async def bytes_of(store: Lifecycle, refs: Iterable[str]) -> dict[str, bytes]:
    """The bytes of bodies, by ref."""
    return {ref: b"".join([piece async for piece in store.read(ref)]) for ref in refs}


class StoreContract:
    """The tests. ``make_store`` is what a subclass has to give."""

    async def make_store(self, tmp_path: Path) -> BodyStore:
        """A new, empty store; ``tmp_path`` is a folder of this test."""
        raise NotImplementedError

    # --- what comes in is there, and goes ----------------------------------------------------------------------------

    async def test_a_body_comes_in_and_goes(self, tmp_path: Path) -> None:
        """A body is found, present and readable until it is removed, and nothing of that after."""
        store = await self._able(tmp_path, "find", "remove")
        ref = await store.put(filing({"user_id": "u1"}), pieces(b"some ", b"", b"bytes"))
        assert await self._find(store, asked({"user_id": "u1"})) == [Found(0, ref)]
        assert await store.present([ref]) == {ref}
        assert await bytes_of(store, [ref]) == {ref: b"some bytes"}
        await self._remove(store, [ref])
        assert await store.present([ref]) == frozenset()
        assert await self._find(store, asked({"user_id": "u1"})) == []

    async def test_an_empty_body(self, tmp_path: Path) -> None:
        """A body without bytes is a body."""
        store = await self.make_store(tmp_path)
        ref = await store.put(filing({"user_id": "u1"}), pieces())
        assert await store.present([ref]) == {ref}
        assert await bytes_of(store, [ref]) == {ref: b""}

    async def test_a_large_body(self, tmp_path: Path) -> None:
        """A body of 3 MiB, in uneven pieces, comes back as it was."""
        store = await self.make_store(tmp_path)
        data = b"".join(hmac.digest(_SECRET, b"%d" % n, "sha256") for n in range(_LARGE // 32))
        cuts = (0, 1, 70_000, 1_048_576, 2_500_000, _LARGE)
        body = (data[start:end] for start, end in itertools.pairwise(cuts))
        ref = await store.put(filing({"user_id": "u1"}), pieces(*body))
        assert await bytes_of(store, [ref]) == {ref: data}

    async def test_two_bodies_of_one_filing(self, tmp_path: Path) -> None:
        """The same filing and bytes twice are two bodies: one of them going leaves the other."""
        store = await self._able(tmp_path, "remove")
        first = await store.put(filing({"user_id": "u1"}), pieces(b"same"))
        second = await store.put(filing({"user_id": "u1"}), pieces(b"same"))
        assert first != second
        await self._remove(store, [first])
        assert await store.present([first, second]) == {second}

    async def test_a_body_that_raises(self, tmp_path: Path) -> None:
        """What a body raises half way is passed on, and nothing of the body is left behind."""
        store = await self._able(tmp_path, "find")
        kept = await store.put(filing({"user_id": "u2"}), pieces(b"kept"))

        async def broken() -> AsyncIterator[bytes]:
            yield b"x" * _LARGE
            raise BodyError

        raised = False
        try:
            await store.put(filing({"user_id": "u1"}), broken())
        except BodyError:
            raised = True
        assert raised
        assert await self._find(store, asked({})) == [Found(0, kept)]
        assert await bytes_of(store, [kept]) == {kept: b"kept"}

    # --- whose it is -------------------------------------------------------------------------------------------------

    async def test_hostile_ids(self, tmp_path: Path) -> None:
        """Laws 10 and 12: each hostile user finds and loses what is theirs; the others' bodies stay byte-equal."""
        store = await self._able(tmp_path, "find", "remove")
        refs = {user: await store.put(filing({"user_id": user}), pieces(user.encode())) for user in HOSTILE_IDS}
        assert len(set(refs.values())) == len(HOSTILE_IDS)
        left = dict(refs)
        for user, ref in refs.items():
            assert await self._find(store, asked({"user_id": user})) == [Found(0, ref)], ascii(user)
            await self._remove(store, [ref])
            del left[user]
            assert await store.present(refs.values()) == frozenset(left.values()), ascii(user)
            some = dict(list(left.items())[:3])
            assert await bytes_of(store, some.values()) == {some[other]: other.encode() for other in some}

    async def test_hostile_ids_of_every_part(self, tmp_path: Path) -> None:
        """Law 12: the same id as org, namespace, agent, user or session is five different things."""
        store = await self._able(tmp_path, "find")
        for value in HOSTILE_IDS:
            refs = {part: await store.put(filing({part: value}), pieces(b"x")) for part in PARTS}
            refs["org"] = await store.put(filing({}, value), pieces(b"x"))
            for part in PARTS:
                assert await self._find(store, asked({part: value})) == [Found(0, refs[part])], (part, ascii(value))
            assert await self._find(store, asked({}, org=value)) == [Found(0, refs["org"])], ascii(value)

    async def test_u1_never_touches_u10(self, tmp_path: Path) -> None:
        """Laws 10 and 12: removing all that u1 has leaves u10 and U1 byte-equal."""
        store = await self._able(tmp_path, "find", "remove")
        mine = [await store.put(filing({"user_id": "u1", "session_id": name}), pieces(b"mine")) for name in ("s", "t")]
        others = [
            await store.put(filing({"user_id": user, "session_id": "s"}), pieces(b"theirs")) for user in ("u10", "U1")
        ]
        before = await bytes_of(store, others)
        found = await self._find(store, asked({"user_id": "u1"}))
        assert {each.ref for each in found} == set(mine)
        await self._remove(store, [each.ref for each in found])
        assert await store.present([*mine, *others]) == frozenset(others)
        assert await bytes_of(store, others) == before

    async def test_another_org(self, tmp_path: Path) -> None:
        """Law 12: the same labels in another org, or in one whose name begins alike, are others'."""
        store = await self._able(tmp_path, "find")
        parts = filing({"user_id": "u1"}).parts
        refs = {org: await store.put(Filing(org, parts, AT, 0), pieces(b"x")) for org in ("acme", "acm", "ACME")}
        for org, ref in refs.items():
            question = Asked(org, asked({"user_id": "u1"}).labels, None, None, _EVERY_SEQ)
            assert await self._find(store, question) == [Found(0, ref)]
            assert await self._find(store, asked({}, org=org)) == [Found(0, ref)]

    async def test_conjunctions(self, tmp_path: Path) -> None:
        """Law 1: a target asks for what matches all its parts; a part that it does not narrow may be anything."""
        store = await self._able(tmp_path, "find")
        values = {"namespace": ("n1", "n2"), "agent": ("a1", "a2"), "user_id": ("u1", "u2"), "session_id": ("s1", "s2")}
        refs: dict[str, dict[str, str]] = {}
        for number in range(16):
            parts = {part: values[part][number >> bit & 1] for bit, part in enumerate(PARTS)}
            refs[await store.put(filing(parts), pieces(b"x"))] = parts
        for number in range(16):
            target = {part: values[part][0] for bit, part in enumerate(PARTS) if number >> bit & 1}
            expected = {ref for ref, parts in refs.items() if target.items() <= parts.items()}
            found = await self._find(store, asked(target))
            assert Counter(found) == Counter(Found(0, ref) for ref in expected), target

    async def test_a_list_of_targets(self, tmp_path: Path) -> None:
        """Law 1: each body is found once, for the first target that it matches; nobody else's is found."""
        store = await self._able(tmp_path, "find")
        users = ("u1", "u2", "u3", "u4")
        refs = {user: await store.put(filing({"user_id": user, "agent": "a1"}), pieces(b"x")) for user in users}
        other = await store.put(filing({"user_id": "u5", "agent": "a2"}), pieces(b"x"))
        question = asked({"user_id": "u3"}, {"user_id": "nobody"}, {"user_id": "u1"}, {"user_id": "u3", "agent": "a1"})
        assert set(await self._find(store, question)) == {Found(0, refs["u3"]), Found(2, refs["u1"])}
        question = asked({"user_id": "u2"}, {"agent": "a1"}, {"user_id": "u4"}, {"agent": "a2"})
        found = await self._find(store, question)
        expected = {Found(0, refs["u2"])} | {Found(1, refs[user]) for user in ("u1", "u3", "u4")} | {Found(3, other)}
        assert Counter(found) == Counter(expected)

    async def test_nothing_is_asked_for(self, tmp_path: Path) -> None:
        """Law 16: no target, a target without a label, and an unknown person find nothing, never everything."""
        store = await self._able(tmp_path, "find")
        await store.put(filing({"user_id": "u1"}), pieces(b"x"))
        assert await self._find(store, asked()) == []
        for part in PARTS:
            nobody = Asked("acme", ({part: frozenset()},), None, None, _EVERY_SEQ)
            assert await self._find(store, nobody) == [], part
        assert await self._find(store, asked({"user_id": "nobody"})) == []
        assert await self._find(store, asked({}, org="nobody")) == []

    # --- how old it is -----------------------------------------------------------------------------------------------

    async def test_before(self, tmp_path: Path) -> None:
        """Law 13: ``before`` is strict, and times before 1970 are earlier than those after."""
        store = await self._able(tmp_path, "find")
        times = (-(10**16), -1_000_001, -1, 0, 1, AT - 1, AT, AT + 1)
        refs = {dated: await store.put(filing({"user_id": "u1"}, dated=dated), pieces(b"x")) for dated in times}
        for moment in (*times, AT + 2):
            found = await self._find(store, asked({"user_id": "u1"}, before=moment))
            assert {each.ref for each in found} == {ref for dated, ref in refs.items() if dated < moment}, moment

    async def test_seq(self, tmp_path: Path) -> None:
        """Law 4: what a unit wrote that began after the erasure is not asked for, and stays byte-equal."""
        store = await self._able(tmp_path, "find", "remove")
        if store.capabilities.fence == "none":
            raise unittest.SkipTest("the store cannot tell what was written after an erasure")
        refs = {
            seq: await store.put(filing({"user_id": "u1"}, seq=seq), pieces(b"%d" % seq)) for seq in (0, 8, 9, 10, 100)
        }
        found = await self._find(store, asked({"user_id": "u1"}, seq=9))
        assert {each.ref for each in found} == {refs[0], refs[8]}
        await self._remove(store, [each.ref for each in found])
        assert await store.present(refs.values()) == {refs[9], refs[10], refs[100]}
        assert await bytes_of(store, [refs[9], refs[100]]) == {refs[9]: b"9", refs[100]: b"100"}
        assert await self._find(store, asked({"user_id": "u1"}, seq=0)) == []

    # --- how many there are ------------------------------------------------------------------------------------------

    async def test_many_bodies(self, tmp_path: Path) -> None:
        """Laws 10 and 11: 1,500 bodies of one person are found to the end and go at once; another's stays."""
        store = await self._able(tmp_path, "find", "remove")
        other = await store.put(filing({"user_id": "u10"}), pieces(b"theirs"))
        refs: set[str] = set()
        for start in range(0, _MANY, 50):
            filings = [filing({"user_id": "u1", "session_id": f"s{n % 7}"}) for n in range(start, start + 50)]
            refs.update(await asyncio.gather(*(store.put(each, pieces(b"x")) for each in filings)))
        found = await self._find(store, asked({"user_id": "u1"}))
        assert Counter(found) == Counter(Found(0, ref) for ref in refs)
        assert len(refs) == _MANY
        assert await store.present(refs) == refs
        await self._remove(store, sorted(refs))
        assert await store.present([*refs, other]) == {other}
        assert await self._find(store, asked({})) == [Found(0, other)]
        assert await bytes_of(store, [other]) == {other: b"theirs"}

    # --- removing again, and what cannot be done ---------------------------------------------------------------------

    async def test_removing_twice(self, tmp_path: Path) -> None:
        """Law 16: what is gone counts as gone, alone and beside what is there; no body is named twice."""
        store = await self._able(tmp_path, "remove")
        refs = [await store.put(filing({"user_id": "u1"}), pieces(b"x")) for _ in range(3)]
        for _ in range(2):
            await self._remove(store, refs[:1])
        assert await store.present(refs) == set(refs[1:])
        await self._remove(store, [refs[0], refs[1], refs[1]])
        assert await store.present(refs) == {refs[2]}
        await self._remove(store, [])

    async def test_unknown_refs(self, tmp_path: Path) -> None:
        """Law 16: refs of bodies that are long gone, with all that was near them, are not there and count as gone."""
        store = await self._able(tmp_path, "remove")
        gone = [await store.put(filing({"user_id": user}), pieces(b"x")) for user in ("u1", "u2")]
        kept = await store.put(filing({"user_id": "u3"}), pieces(b"kept"))
        await self._remove(store, gone)
        assert await store.present(gone) == frozenset()
        await self._remove(store, gone)
        assert await bytes_of(store, [kept]) == {kept: b"kept"}

    async def test_says_what_it_cannot_do(self, tmp_path: Path) -> None:
        """Law 16: what a store says that it cannot do raises StoreUnable and changes nothing; the rest is answered."""
        store = await self.make_store(tmp_path)
        able = store.capabilities
        assert able.fence in {"in_write", "header", "none"}
        assert able.physical in {"at_once", "later", "unknown"}
        assert able.settle_s >= 0
        assert store.name
        assert store.collections
        ref = await store.put(filing({"user_id": "u1"}), pieces(b"x"))
        assert await self._is_unable_to_find(store) is not able.find
        assert await store.present([ref]) == {ref}
        assert await self._is_unable_to_remove(store, ref) is not able.remove
        assert await store.present([ref]) == (frozenset() if able.remove else {ref})
        reclaimed = await store.reclaim()
        assert able.physical != "at_once" or reclaimed == Reclaimed()

    # --- helpers -----------------------------------------------------------------------------------------------------

    async def _able(self, tmp_path: Path, *needed: str) -> BodyStore:
        """A store, when it says that it can do what the test is about."""
        store = await self.make_store(tmp_path)
        for what in needed:
            if not getattr(store.capabilities, what):
                raise unittest.SkipTest(f"the store says that it cannot {what}")
        return store

    async def _find(self, store: BodyStore, question: Asked) -> list[Found]:
        """What is found in the store's first collection, as far as names go the one that bodies are put in."""
        return await store.find(min(store.collections), question)

    async def _remove(self, store: BodyStore, refs: Iterable[str]) -> None:
        """Remove bodies; the answer has to be that all are gone, and nothing else."""
        given = list(refs)
        removal = await store.remove(given, PERMIT)
        assert removal.gone == set(given)
        assert not removal.refused

    async def _is_unable_to_find(self, store: BodyStore) -> bool:
        try:
            await self._find(store, asked({"user_id": "u1"}))
        except StoreUnable:
            return True
        return False

    async def _is_unable_to_remove(self, store: BodyStore, ref: str) -> bool:
        try:
            await store.remove([ref], PERMIT)
        except StoreUnable:
            return True
        return False
