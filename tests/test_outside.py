"""Bodies in a store outside the database: they go before their rows, and no fault passes for success."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from expunge import Expunge
from expunge.authority.port import Reclaimed, Statement
from expunge.errors import StoreFault, StoreUnable
from expunge.model.instant import parse_instant
from expunge.stores import Asked, BodyStore, Capabilities, Filing, Found, Permit, Removal
from expunge.stores.contract import bytes_of, pieces
from expunge.stores.faulty import CAP, Fault, Faulty
from expunge.stores.folder import FolderStore
from expunge.stores.recording import Recording
from tests.house import (
    ANN,
    BETWEEN,
    BOB,
    FILES_EACH,
    SCOPES,
    USER,
    House,
    attachment_ids,
    file_under,
    of,
    refs,
    told,
    without,
    without_rights,
    write_files,
)
from tests.scopes_support import ask
from tests.support import dump, ids, memory


def names_no_person(reason: str | None) -> bool:
    """Whether a reason is free of ids and of what was written."""
    return reason is not None and "<1>" not in reason and "bytes of" not in reason


# --- faults: never a success, and healed by a resume ----------------------------------------------------------------


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("fault", Fault)
async def test_a_fault_is_never_a_success(house: House, fault: Fault, scope: str) -> None:
    """Laws 7, 10 and 16: each fault ends failed and says of which store; healed, a resume removes it all and no more."""
    case, store = SCOPES[scope], Faulty(FolderStore(house.objects), fault)
    async with house.open(store) as expunge:
        records, bodies, going = await dump(expunge), house.bodies(), of(await refs(expunge), case.goes)
        assert CAP < len(going) == FILES_EACH * len(case.goes)
        answer = await case.purge(expunge)
        assert (answer.status, answer.receipt) == ("failed", None)
        assert "objects" in str(answer.failure_reason)
        assert names_no_person(answer.failure_reason), answer.failure_reason
        if fault is Fault.COMES_BACK:
            assert answer.residue == {"objects.attachments": len(going)}
            assert house.bodies() == bodies
        else:
            assert answer.current_step == "stores"
            assert ids(await dump(expunge)) == ids(records)
            assert without(house.bodies(), going) == without(bodies, going)
        store.heal()
        done = await expunge.resume(answer.request_id)
        assert (done.status, done.attempts, done.failure_reason) == ("completed", 2, None)
        assert done.census is not None
        assert done.census["objects.attachments"] == 0
        assert set(done.census.values()) == {0}
        assert (done.removed["episodes"], done.removed["attachments"]) == (len(case.goes), len(going))
        if fault not in (Fault.TIMES_OUT, Fault.PART, Fault.COMES_BACK):  # these had removed some before
            assert done.removed["objects.attachments"] == len(going)
        assert house.bodies() == without(bodies, going)
        left = await dump(expunge)
        assert ids(left) == ids(records) - {*case.goes} - attachment_ids(records, case.goes) - case.others
        assert all(records[name][key] == row for name, rows in left.items() for key, row in rows.items())
        assert (await expunge.resume(answer.request_id)).receipt == done.receipt
        assert (await expunge.call("erasure.census", request_id=done.request_id)).residue_count == 0


@pytest.mark.parametrize("scope", SCOPES)
async def test_an_undisturbed_run(house: House, scope: str) -> None:
    """Laws 7 and 10: bodies and rows go and are counted, and all else stays byte-equal."""
    case = SCOPES[scope]
    async with house.open() as expunge:
        records, bodies, going = await dump(expunge), house.bodies(), of(await refs(expunge), case.goes)
        answer = await case.purge(expunge)
        assert (answer.status, answer.removed["attachments"], answer.removed["objects.attachments"]) == (
            "completed", len(going), len(going),
        )  # fmt: skip
        assert answer.census is not None
        assert answer.census["objects.attachments"] == 0
        assert house.bodies() == without(bodies, going)
        assert (
            ids(await dump(expunge)) == ids(records) - {*case.goes} - attachment_ids(records, case.goes) - case.others
        )


async def test_each_subject_is_told_of_its_own_bodies(house: House) -> None:
    """Design 4: one receipt per subject, with the bodies of that subject alone."""
    store = Faulty(FolderStore(house.objects), Fault.RAISES)
    async with house.open(store) as expunge:
        answer = await SCOPES["users"].purge(expunge)
        store.heal()
        done = await expunge.resume(answer.request_id)
        assert [receipt["removed"]["objects.attachments"] for receipt in done.receipts] == [6, 4]
        assert [receipt["census"]["objects.attachments"] for receipt in done.receipts] == [0, 0]
        keys = expunge.system.keys.current
        assert [receipt["scope"]["pseudonyms"]["user_id"] for receipt in done.receipts] == [
            keys.pseudonym("default", "user_id", user) for user in (ANN, BOB)
        ]


async def test_a_fault_of_a_scope_without_records(house: House) -> None:
    """Law 16: a store that does not say what it holds of somebody is no proof that it holds nothing."""
    store = Faulty(FolderStore(house.objects), Fault.FIND_RAISES)
    async with house.open(store) as expunge:
        bodies = house.bodies()
        answer = await expunge.erase("nobody<1>", purge=True)
        assert (answer.status, answer.current_step) == ("failed", "stores")
        store.heal()
        done = await expunge.resume(answer.request_id)
        assert (done.status, done.found) == ("completed", False)
        assert house.bodies() == bodies


@pytest.mark.parametrize("fault", [Fault.RAISES, Fault.FIND_RAISES])
async def test_a_fault_that_stays_ends_with_a_person(house: House, fault: Fault) -> None:
    """Design 4: five attempts, then abandoned; the rows still name what is to go."""
    async with house.open(Faulty(FolderStore(house.objects), fault), max_attempts=2) as expunge:
        records, bodies = await dump(expunge), house.bodies()
        answer = await USER.purge(expunge)
        again = await expunge.resume(answer.request_id)
        assert (again.status, again.attempts) == ("failed", 2)
        assert ids(await dump(expunge)) == ids(records)
        assert house.bodies() == bodies


class Hanging(Recording):
    """A store one of whose calls does not come back."""

    def __init__(self, inner: BodyStore, call: str | None) -> None:
        super().__init__(inner)
        self.call = call

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        await self._hang("find")
        return await super().find(collection, asked)

    async def present(self, refs: Iterable[str]) -> frozenset[str]:
        await self._hang("present")
        return await super().present(refs)

    async def remove(self, refs: Sequence[str], permit: Permit) -> Removal:
        await self._hang("remove")
        return await super().remove(refs, permit)

    async def reclaim(self) -> Reclaimed:
        await self._hang("reclaim")
        return await super().reclaim()

    async def _hang(self, call: str) -> None:
        if call == self.call:
            await asyncio.Event().wait()


@pytest.mark.parametrize("call", ["find", "present", "remove", "reclaim"])
async def test_a_store_that_hangs(house: House, call: str) -> None:
    """Law 16: no answer within `store_timeout_s` ends failed and says so; the rows stay until the bodies are gone."""
    store = Hanging(FolderStore(house.objects), call)
    async with house.open(store, store_timeout_s=0.4) as expunge:
        records, bodies, going = await dump(expunge), house.bodies(), of(await refs(expunge), USER.goes)
        answer = await USER.purge(expunge)
        assert (answer.status, answer.current_step) == ("failed", "stores")
        assert "store objects did not answer in 0.4 s" in str(answer.failure_reason)
        assert ids(await dump(expunge)) == ids(records)
    store.call = None
    async with house.open(store) as expunge:  # with time enough for a machine that is busy
        assert (await expunge.resume(answer.request_id)).status == "completed"
        assert house.bodies() == without(bodies, going)


class Unable(Recording):
    """A store that says that it cannot do something, and raises when it is asked for it."""

    def __init__(self, inner: BodyStore, **cannot: Any) -> None:
        super().__init__(inner)
        self.cannot = cannot

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(self.inner.capabilities, **self.cannot)

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        if self.capabilities.find:
            return await super().find(collection, asked)
        raise StoreUnable(f"the store {self.name} cannot list by scope")

    async def remove(self, refs: Sequence[str], permit: Permit) -> Removal:
        if self.capabilities.remove:
            return await super().remove(refs, permit)
        raise StoreUnable(f"the store {self.name} cannot remove")


@pytest.mark.parametrize("user", [ANN, "nobody<1>"])
@pytest.mark.parametrize("cannot", ["find", "remove"])
async def test_a_store_that_cannot(house: House, cannot: str, user: str) -> None:
    """Laws 7 and 16: what a store cannot express is not left out in silence, and nothing is done instead."""
    async with house.open(Unable(FolderStore(house.objects), **{cannot: False})) as expunge:
        records, bodies = await dump(expunge), house.bodies()
        answer = await expunge.erase(user, purge=True)
        if (cannot, user) == ("remove", "nobody<1>"):  # there is nothing to remove
            assert (answer.status, answer.found) == ("completed", False)
        else:
            assert (answer.status, answer.current_step, answer.receipt) == ("failed", "stores", None)
            assert "the store objects cannot" in str(answer.failure_reason)
            assert names_no_person(answer.failure_reason)
        assert ids(await dump(expunge)) == ids(records)
        assert house.bodies() == bodies


class Mute(Recording):
    """A store that lists nothing any more once it has been emptied."""

    mute = True

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        if self.mute and "reclaim" in dict(self.calls):
            raise StoreFault(f"the store {self.name} does not list")
        return await super().find(collection, asked)


async def test_a_store_that_is_not_counted(house: House) -> None:
    """Law 7: completed means that every store was counted; one that does not answer the census is no zero."""
    store = Mute(FolderStore(house.objects))
    async with house.open(store) as expunge:
        bodies, going = house.bodies(), of(await refs(expunge), USER.goes)
        answer = await USER.purge(expunge)
        assert (answer.status, answer.current_step, answer.census) == ("failed", "census", None)
        assert "not counted: the store objects does not list" in str(answer.failure_reason)
        assert house.bodies() == without(bodies, going)
        store.mute = False
        done = await expunge.resume(answer.request_id)
        assert (done.status, done.removed["attachments"], done.removed["objects.attachments"]) == ("completed", 6, 6)
        assert house.bodies() == without(bodies, going)


class Refusing(Recording):
    """A store that refuses to remove some bodies."""

    def __init__(self, inner: BodyStore) -> None:
        super().__init__(inner)
        self.refused: set[str] = set()

    async def remove(self, refs: Sequence[str], permit: Permit) -> Removal:
        free = [ref for ref in refs if ref not in self.refused]
        done = await super().remove(free, permit)
        return Removal(done.gone, {ref: "legal lock" for ref in refs if ref in self.refused})


async def test_a_store_that_refuses_one_body(house: House) -> None:
    """Laws 8 and 16: one body that stays does not stop the rest, and is no success; the reason is in the answer."""
    store = Refusing(FolderStore(house.objects))
    async with house.open(store) as expunge:
        bodies, going = house.bodies(), of(await refs(expunge), USER.goes)
        store.refused = {min(going)}
        answer = await USER.purge(expunge)
        assert answer.status == "failed"
        assert "store objects refused 1 of 6: legal lock" in str(answer.failure_reason)
        assert house.bodies() == without(bodies, going - store.refused)
        store.refused = set()
        assert (await expunge.resume(answer.request_id)).status == "completed"
        assert house.bodies() == without(bodies, going)


# --- stores that cannot be fenced, or that free the bytes later -----------------------------------------------------


class Late(Unable):
    """A store into which a writer that nobody told still writes, once the erasure has emptied it and looked again."""

    def __init__(self, inner: BodyStore, **cannot: Any) -> None:
        super().__init__(inner, **cannot)
        self.late: list[Callable[[], Awaitable[object]]] = []

    async def find(self, collection: str, asked: Asked) -> list[Found]:
        found = await super().find(collection, asked)
        if self.late and [name for name, _ in self.calls[-2:]] == ["reclaim", "find"]:  # the first one of the census
            await self.late.pop()()
        return found


@pytest.mark.parametrize("fence", ["none", "header"])
async def test_an_unfenced_store_is_counted_again(house: House, fence: str) -> None:
    """Law 4: what is written into an unfenced store during its settle period is found by a second count."""
    store = Late(FolderStore(house.objects), fence=fence, settle_s=0.05)
    async with house.open(store) as expunge:
        bodies, going = house.bodies(), of(await refs(expunge), USER.goes)
        store.late.append(lambda: file_under(expunge, ANN, seq=0))
        answer = await USER.purge(expunge)
        assert store.late == []
        if fence == "header":  # one count, and what it could not see yet is found by a later one
            assert (answer.status, answer.receipts[0]["unfenced"]) == ("completed", [])
            assert (await expunge.call("erasure.census", request_id=answer.request_id)).residue_count == 1
            return
        assert (answer.status, answer.residue) == ("failed", {"objects.attachments": 1})
        done = await expunge.resume(answer.request_id)
        assert (done.status, done.receipts[0]["unfenced"]) == ("completed", ["objects"])
        assert house.bodies() == without(bodies, going)


async def test_the_settle_period_is_waited_for(house: House) -> None:
    """Law 4: the second count comes when the store has settled, and not before."""
    store = Unable(FolderStore(house.objects), fence="none", settle_s=0.3)
    async with house.open(store) as expunge:
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await USER.purge(expunge)
        assert answer.status == "completed"
        assert loop.time() - began >= 0.3
    asked = [name for name, _ in store.calls]
    assert asked[asked.index("reclaim") + 1 :] == ["find", "present", "find", "present"]


class Later(Recording):
    """A store that frees the bytes when it comes to it."""

    def __init__(self, inner: BodyStore) -> None:
        super().__init__(inner)
        self.waits = True

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(self.inner.capabilities, physical="later")

    async def reclaim(self) -> Reclaimed:
        return Reclaimed("a compaction has still to run" if self.waits else None)


async def test_bytes_that_go_later_are_deferred(house: House) -> None:
    """Law 16: a store that frees the bytes later is named in the receipt; once settled, a follow-up says so."""
    store = Later(FolderStore(house.objects))
    async with house.open(store) as expunge:
        answer = await USER.purge(expunge)
        assert (answer.status, answer.deferred) == (
            "completed", [{"store": "objects", "reason": "a compaction has still to run", "until": "unknown"}],
        )  # fmt: skip
        assert answer.receipts[0]["deferred"] == answer.deferred
        assert (await expunge.resume(answer.request_id)).receipt == answer.receipt
        store.waits = False
        settled = await expunge.resume(answer.request_id)
        assert (settled.status, settled.deferred) == ("completed", [])
        assert settled.receipts[0]["deferred"] == []
        assert settled.receipts[0]["removed"] == answer.receipts[0]["removed"]


# --- the order ------------------------------------------------------------------------------------------------------


class Looking(Recording):
    """A store that looks into the database whenever it is asked to remove."""

    def __init__(self, inner: BodyStore) -> None:
        super().__init__(inner)
        self.look: Callable[[Sequence[str]], Awaitable[int]]
        self.seen: list[tuple[int, int]] = []

    async def remove(self, refs: Sequence[str], permit: Permit) -> Removal:
        self.seen.append((len(refs), await self.look(refs)))
        return await super().remove(refs, permit)


@pytest.mark.parametrize("scope", SCOPES)
async def test_bodies_go_before_the_rows_that_name_them(house: House, scope: str) -> None:
    """Design 4, step 7: every row that names a body is there when it goes; then it is listed again and counted."""
    case, store = SCOPES[scope], Looking(FolderStore(house.objects))
    async with house.open(store) as expunge:
        text = "SELECT count(*) FROM attachments WHERE marked <> 0 AND ref IN (SELECT value FROM json_each(:refs))"

        async def look(given: Sequence[str]) -> int:
            statement, named = Statement("test.named", text), json.dumps(list(given))
            return int((await expunge.system.authority.read(lambda tx: tx.rows(statement, refs=named)))[0][0])

        store.look = look
        going = of(await refs(expunge), case.goes)
        answer = await case.purge(expunge)
        assert answer.status == "completed"
        assert store.seen == [(len(going), len(going))]
    asked = [name for name, _ in store.calls]
    assert asked == ["find", "present", "find", "remove", "present", "find", "reclaim", "find", "present"]
    given, permit = dict(store.calls)["remove"]
    assert set(given) == going
    assert permit == Permit(answer.request_id, 1)
    named_again = [set(told_refs) for name, told_refs in store.calls if name == "present"]
    assert named_again == [going] * 3


async def test_a_store_is_asked_by_pseudonym_and_scope(house: House) -> None:
    """Laws 1 and 14: what a store is asked for is the scope of the erasure, and what is older than its fence."""
    store = Recording(FolderStore(house.objects))
    async with house.open(store) as expunge:
        answer = await SCOPES["before"].purge(expunge)
        status = await expunge.call("erasure.status", request_id=answer.request_id)
        keys = expunge.system.keys.current
    asked = [what for name, what in store.calls if name == "find"]
    assert len(asked) == 4
    for collection, question in asked:
        assert collection == "attachments"
        assert question.org == "default"
        assert question.labels == ({"user_id": frozenset({keys.pseudonym("default", "user_id", ANN)})},)
        assert question.before == parse_instant(BETWEEN, "before")
        assert question.scope is not None
        assert question.scope.user_ids == (ANN,)
    assert status.status == "completed"


async def test_many_bodies_go_in_packs(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 11: more bodies than one call takes go all the same, and nothing is capped."""
    monkeypatch.setattr("expunge.erasure.outside._REFS_A_CALL", 4)
    store = Recording(FolderStore(house.objects))
    async with house.open(store) as expunge:
        bodies, going = house.bodies(), of(await refs(expunge), USER.goes)
        answer = await USER.purge(expunge)
        assert (answer.status, answer.removed["objects.attachments"]) == ("completed", 6)
        assert house.bodies() == without(bodies, going)
    assert [len(what[0]) for name, what in store.calls if name == "remove"] == [4, 2]


# --- folders that are lost, exchanged or closed ---------------------------------------------------------------------


async def test_a_lost_folder(house: House) -> None:
    """Law 16: a folder that is not there is no proof that its bytes are gone; the answer says what to do about it."""
    away = house.objects.rename(house.folder / "away")
    async with house.open() as expunge:
        records = await dump(expunge)
        going = of(await refs(expunge), USER.goes)
        answer = await USER.purge(expunge)
        (store,) = [path.name for path in away.iterdir() if path.is_dir()]
        assert (answer.status, answer.current_step) == ("failed", "stores")
        assert f"the objects folder {house.objects} does not hold the store {store}" in str(answer.failure_reason)
        assert f"bring it back; if its bytes are known to be gone, make an empty folder {store} there" in str(
            answer.failure_reason
        )
        assert names_no_person(answer.failure_reason)
        assert ids(await dump(expunge)) == ids(records)
        away.rename(house.objects)
        bodies = house.bodies()
        assert (await expunge.resume(answer.request_id)).status == "completed"
        assert house.bodies() == without(bodies, going)


async def test_an_exchanged_folder(house: House, tmp_path: Path) -> None:
    """Law 16: a folder with another store in it is not the one whose bodies the rows name; what is in it stays."""
    away = house.objects.rename(house.folder / "away")
    other = FolderStore(house.objects)
    filing = Filing("default", tuple(letter * 32 for letter in "abcd"), 0, 0)
    foreign = await other.put(filing, pieces(b"another house"))
    async with house.open() as expunge:
        answer = await USER.purge(expunge)
        (store,) = [path.name for path in away.iterdir() if path.is_dir()]
        assert answer.status == "failed"
        assert f"does not hold the store {store}" in str(answer.failure_reason)
        assert house.bodies() == {foreign: b"another house"}
        (house.objects / store).mkdir()  # the hint, followed
        done = await expunge.resume(answer.request_id)
        assert (done.status, done.removed["attachments"]) == ("completed", 6)
        assert house.bodies() == {foreign: b"another house"}


def test_an_unreadable_folder(house: House) -> None:
    """Law 16: a folder that this user may not look into ends failed, and heals when it may."""
    bodies = house.bodies()

    async def purge() -> tuple[str, str, str, str]:
        house.objects.chmod(0)
        async with house.open() as expunge:
            answer = await USER.purge(expunge)
            house.objects.chmod(0o700)
            done = await expunge.resume(answer.request_id)
            return answer.status, str(answer.current_step), str(answer.failure_reason), done.status

    status, step, reason, healed = without_rights(house.folder, purge)
    assert (status, step, healed) == ("failed", "stores", "completed")
    assert f"the objects folder {house.objects} cannot be" in reason
    assert "Permission denied" in reason
    assert len(house.bodies()) == len(bodies) - 6


# --- no folder at all -----------------------------------------------------------------------------------------------


async def test_attachments_in_memory(in_memory: Expunge, tmp_path: Path) -> None:
    """Laws 7, 10: where the database lies in memory the bodies do, too, and go with their rows."""
    write_files(tmp_path / "given", "e")
    await in_memory.put([memory("m", "k"), told("e", ANN)], attachments_from=tmp_path / "given")
    store = in_memory.system.bodies["attachments"]
    refs_there = [ref for (ref,) in await ask(in_memory, "SELECT ref FROM attachments")]
    assert refs_there
    assert set(await bytes_of(store, refs_there)) == set(refs_there)
    answer = await in_memory.erase(ANN, purge=True)
    assert (answer.status, answer.removed["objects.attachments"]) == ("completed", len(refs_there))
    assert await store.present(refs_there) == frozenset()
    assert ids(await dump(in_memory)) == {"m"}
