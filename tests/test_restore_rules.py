"""Hides, restores, purges and ends of windows in any order, against the rules said once more in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from expunge import Expunge
from expunge.authority.port import Statement
from expunge.datamap import RECORDS
from expunge.errors import ErasedSince, HiddenByErasure, InputError
from expunge.model.instant import ManualClock
from tests.scopes_support import Places, opened
from tests.support import dump, episode, event, fact, ids, memory
from tests.test_restore import DAY_S, marked

USERS = ("ann", "bob", "cem", None)
SPACES = ("n1", "n2", None)
DETACH = ("facts",)


@dataclass
class Rules:
    """What is there, and which erasure hides what: in scope (``direct``) or for what it was made from."""

    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    hides: dict[str, set[str]] = field(default_factory=dict)
    direct: dict[str, set[str]] = field(default_factory=dict)
    until: dict[str, int] = field(default_factory=dict)

    @property
    def hidden(self) -> set[str]:
        return set().union(*self.hides.values())

    def sources(self, record_id: str) -> set[str]:
        return {source for source in self.records[record_id].get("sources", ()) if source in self.records}

    def parent(self, record_id: str) -> str | None:
        return self.records[record_id].get("episode")

    def scope(self, **parts: str) -> set[str]:
        return {key for key, record in self.records.items() if all(record.get(p) == v for p, v in parts.items())}

    def goes_with(self, record_id: str, mine: set[str], anyones: set[str]) -> bool:
        """Whether a record goes for what it was made from, or belongs to."""
        if self.parent(record_id) in mine:
            return True
        sources = self.sources(record_id)
        if self.records[record_id]["collection"] in DETACH:
            return bool(sources & mine) and sources <= anyones
        return bool(sources & mine)

    def closed(self, direct: set[str]) -> set[str]:
        """What goes with these."""
        mine = set(direct)
        while more := {key for key in self.records.keys() - mine if self.goes_with(key, mine, mine | self.hidden)}:
            mine |= more
        return mine

    def hide(self, name: str, direct: set[str], until: int) -> None:
        self.hides[name], self.direct[name], self.until[name] = self.closed(direct), set(direct), until

    def remove(self, gone: set[str]) -> None:
        for key in gone:
            del self.records[key]
        for name in self.hides:
            self.hides[name] -= gone
            self.direct[name] -= gone

    def unfounded(self, name: str, chosen: set[str]) -> bool:
        """Whether one of these would be served while it rests on, or belongs to, what stays hidden."""
        anyones = set().union(*self.given_up(name, chosen, only=name).values())
        return any(self.goes_with(key, anyones, anyones) for key in chosen)

    def restore(self, name: str, chosen: set[str]) -> set[str]:
        """Give these up, and all that nobody has a reason to hide any more; what is served again by it."""
        before = self.hidden
        self.hides = self.given_up(name, chosen)
        self.direct = {other: keys & self.hides[other] for other, keys in self.direct.items()}
        return before - self.hidden

    def given_up(self, name: str, chosen: set[str], only: str | None = None) -> dict[str, set[str]]:
        """What is hidden without these, without what belongs to them, and without what is hidden for them alone.

        With ``only``, what one of them hides alone is looked at.
        """
        hides = {other: set(keys) for other, keys in self.hides.items()}
        void = {(name, key) for key in chosen}
        while void:
            for other, key in void:
                hides[other].discard(key)
            void = {
                (other, key)
                for other, keys in hides.items()
                if only in (None, other)
                for key in keys
                if self._has_no_reason(key, other, hides)
            }
        return hides

    def _has_no_reason(self, key: str, name: str, hides: dict[str, set[str]]) -> bool:
        """Whether a record came to be hidden by an erasure for something that is not hidden by it (or at all) now."""
        anyones = set().union(*hides.values())
        left, served = self.hides[name] - hides[name], self.hidden - anyones
        if self.parent(key) in left:
            return True
        if key in self.direct[name] or self.goes_with(key, hides[name], anyones):
            return False
        is_detached = self.records[key]["collection"] in DETACH
        return bool(self.sources(key) & (left | served if is_detached else left))


class Player:
    """Does one thing after the other, to a system and to the rules."""

    def __init__(self, expunge: Expunge, clock: ManualClock, seed: int) -> None:
        self.expunge, self.clock, self.chance, self.rules = expunge, clock, random.Random(seed), Rules()
        self.number = 0
        self.done: Counter[str] = Counter()

    async def write(self) -> None:
        made: list[dict[str, Any]] = []
        served = sorted(self.rules.records.keys() - self.rules.hidden)
        for _ in range(self.chance.randint(1, 4)):
            self.number += 1
            record_id, user, space = f"r{self.number}", self.chance.choice(USERS), self.chance.choice(SPACES)
            at = {} if space is None else {"namespace": space}
            some = self.chance.sample(served, min(len(served), self.chance.randint(0, 3)))
            episodes = [key for key in served if self.rules.records[key]["collection"] == "episodes"]
            kind = self.chance.randrange(4)
            if kind == 0 or not episodes:
                record = episode(record_id, user, **at)
            elif kind == 1:
                record = event(record_id, self.chance.choice(episodes), user, **at)
            elif kind == 2:
                record = memory(record_id, record_id, user, sources=some, **at)
            else:
                record = fact(record_id, user, sources=some, **at)
            made.append(record)
            served.append(record_id)
            self.rules.records[record_id] = record
        await self.expunge.put(made)

    async def write_from_hidden(self) -> None:
        if self.rules.hidden:
            source = self.chance.choice(sorted(self.rules.hidden))
            with pytest.raises((HiddenByErasure, ErasedSince)):
                await self.expunge.put([memory("never", "k", sources=[source])])

    def _scope(self) -> tuple[list[str], dict[str, Any], set[str]]:
        user, space = self.chance.choice(USERS[:-1]), self.chance.choice(SPACES[:-1])
        kind = self.chance.randrange(4)
        if kind == 0:
            return [], {"namespaces": [space]}, self.rules.scope(namespace=space)
        if kind == 1:
            return [user], {"namespaces": [space]}, self.rules.scope(user_id=user, namespace=space)
        return [user], {}, self.rules.scope(user_id=user)

    async def hide(self) -> None:
        users, words, direct = self._scope()
        answer = await self.expunge.erase(*users, purge=False, **words)
        assert answer.status == "completed"
        self.rules.hide(answer.request_id, direct, self.clock.now() + 14 * DAY_S * 1_000_000)
        assert sum(answer.hidden.values()) == len(self.rules.hides[answer.request_id])
        self.done["hidden"] += 1

    async def purge(self) -> None:
        users, words, direct = self._scope()
        gone = self.rules.closed(direct)
        answer = await self.expunge.erase(*users, purge=True, **words)
        assert (answer.status, answer.residue) == ("completed", {})
        assert sum(answer.removed.values()) - answer.removed["lineage"] == len(gone)
        self.rules.remove(gone)
        self.done["purged"] += 1

    async def restore(self) -> None:
        if not self.rules.hides:
            return
        name = self.chance.choice(list(self.rules.hides))
        marks = set(self.rules.hides[name])
        keys = self.chance.sample(sorted(marks), min(len(marks), self.chance.choice([0, 1, 1, 2, 3])))
        direct, before = self.rules.direct[name], await dump(self.expunge)
        if keys and self.rules.unfounded(name, set(keys)):
            with pytest.raises(InputError):
                await self.expunge.restore(name, *keys)
            assert await dump(self.expunge) == before
            self.done["refused"] += 1
            return
        in_scope, count = set(direct), len(marks)
        restored = await self.expunge.restore(name, *keys)
        served = self.rules.restore(name, set(keys) or set(direct))
        assert sum(restored.restored.values()) == len(served)
        assert restored.reversals_count == len(served & in_scope)
        assert restored.still_hidden == count - len(served & marks)
        self.done["restored"] += bool(served)

    async def wait(self) -> None:
        self.clock.advance(self.chance.randint(1, 6) * DAY_S)
        for answer in (await self.expunge.call("erasure.resume_due")).erasures:
            assert (answer.status, answer.residue) == ("completed", {})
            assert self.rules.until.pop(answer.request_id) <= self.clock.now()
            gone = set(self.rules.hides[answer.request_id])
            assert sum(answer.removed.values()) - answer.removed["lineage"] == len(gone)
            self.rules.remove(gone)
            del self.rules.hides[answer.request_id], self.rules.direct[answer.request_id]
            self.done["ended"] += bool(gone)
        assert min(self.rules.until.values(), default=self.clock.now() + 1) > self.clock.now()

    async def check(self) -> None:
        dumped = await dump(self.expunge)
        assert ids(dumped) == set(self.rules.records)
        assert marked(dumped) == self.rules.hidden
        edges = {(key, source) for key in self.rules.records for source in self.rules.sources(key)}
        assert {row[:2] for row in dumped["lineage"].values()} == edges
        text = "SELECT q.id, m.id, m.direct FROM marks m JOIN requests q ON q.rid = m.request"
        rows = await self.expunge.system.authority.read(lambda tx: tx.rows(Statement("test.marks", text)))
        assert {row[:2] for row in rows} == {(name, key) for name, keys in self.rules.hides.items() for key in keys}
        assert {row[:2] for row in rows if row[2]} == {
            (n, key) for n, keys in self.rules.direct.items() for key in keys
        }
        assert await self.expunge.system.authority.read(lambda tx: tx.rows(UNTOLD)) == []


UNTOLD = Statement(
    "test.untold",
    " UNION ALL ".join(
        f"""SELECT m.id, 'no row tells of this mark' FROM marks m WHERE m.collection = '{kind.name}' AND m.beside = 0
        AND NOT EXISTS (SELECT 1 FROM {kind.name} r WHERE r.rid = m.rid AND r.marked = m.request)
        UNION ALL
        SELECT r.id, 'this row tells of no mark' FROM {kind.name} r WHERE r.marked <> 0 AND NOT EXISTS (
            SELECT 1 FROM marks m WHERE m.request = r.marked AND m.collection = '{kind.name}' AND m.rid = r.rid)"""
        for kind in RECORDS
    ),
)
"""Marks and rows that nobody would find by each other: a mark is told by its row, or stands beside it."""


@pytest.mark.parametrize(
    ("authority", "batch_rows"),
    [("memory", 1), ("memory", 3), ("memory", 1000), ("postgres", 3)],
    indirect=["authority"],
)
async def test_any_order_of_second_thoughts(places: Places, batch_rows: int) -> None:
    """Laws 6, 7 and 10: what is there, what is served and who hides it are what the rules say, after each step."""
    assert len(RECORDS) == 11, "a new collection may have a rule of its own"
    acts = ["write"] * 4 + ["hide"] * 3 + ["restore"] * 4 + ["purge", "wait", "write_from_hidden"]
    done: Counter[str] = Counter()
    for seed in range(batch_rows, batch_rows + 4):
        clock = ManualClock()
        async with opened(places, batch_rows=batch_rows, clock=clock) as (expunge, _):
            player = Player(expunge, clock, seed)
            for _ in range(50):
                await getattr(player, player.chance.choice(acts))()
                await player.check()
            clock.advance(20 * DAY_S)
            await player.wait()
            await player.check()
            assert player.rules.hidden == set()
            done += player.done
    assert min(done[name] for name in ("hidden", "purged", "restored", "refused", "ended")) > 0, done
