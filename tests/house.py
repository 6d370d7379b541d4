"""What the tests of attachments share: a house with people, their files and an objects folder, and users without rights."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from expunge import Expunge, Settings
from expunge.authority.port import Statement
from expunge.model.identity import Identity
from expunge.model.instant import ManualClock, parse_instant
from expunge.operations.erasure import Answer
from expunge.stores import BodyStore, Filing
from expunge.stores.contract import pieces
from tests.crash.kit import in_child
from tests.support import episode, fact, files_of, memory

T = TypeVar("T")

# Each id ends in a sign that no message has a reason to hold.
ANN, BOB, CAT = "ann<1>", "bob<1>", "cat<1>"
CHAT, WORK, PLAY = "chat<1>", "work<1>", "play<1>"
OLD, NEW, BETWEEN = "2025-03-01T00:00:00Z", "2025-09-01T00:00:00Z", "2025-06-01T00:00:00Z"
FILES_EACH = 2
EPISODES = {
    "a1": (ANN, CHAT, "s1<1>", "helper<1>", OLD),
    "a2": (ANN, CHAT, "s1<1>", "writer<1>", OLD),
    "a3": (ANN, WORK, "s2<1>", "writer<1>", NEW),
    "b1": (BOB, CHAT, "s3<1>", "helper<1>", OLD),
    "b2": (BOB, WORK, "s3<1>", "writer<1>", NEW),
    "c1": (CAT, PLAY, "s4<1>", "writer<1>", NEW),
}
"""Whose each episode is, its namespace, session and agent, and when it happened. Each has two attachments."""
WINDOW_S = 14 * 86_400
_NOBODY_UID = 65534
_HOLD = Statement(
    "test.hold", "INSERT INTO holds (org, user_id, namespace, placed_at) VALUES ('default', :user_id, :namespace, 0)"
)
_RELEASE = Statement("test.release", "UPDATE holds SET released_at = 1")
_REFS = Statement("test.refs", "SELECT episode, ref FROM attachments")


def told(name: str, user: str, **fields: Any) -> dict[str, Any]:
    """An episode with its two files."""
    return episode(name, user, **({"created_at": NEW} | fields), attachments=files_for(name))


def files_for(name: str) -> list[str]:
    """The names of the files of an episode."""
    return [f"{name}-{number}.txt" for number in range(FILES_EACH)]


def write_files(folder: Path, *names: str) -> None:
    """Make the files of some episodes."""
    folder.mkdir(exist_ok=True)
    for name in names:
        for file in files_for(name):
            (folder / file).write_bytes(f"bytes of {file}".encode())


@dataclass(frozen=True, slots=True)
class Case:
    """A scope, and the episodes that go with it; more bodies go than a capped store handles at a time."""

    goes: tuple[str, ...]
    users: tuple[str, ...] = ()
    words: dict[str, Any] = field(default_factory=dict)
    others: frozenset[str] = frozenset()
    """What goes besides the episodes and their attachments."""

    async def purge(self, expunge: Expunge) -> Answer:
        return await expunge.erase(*self.users, purge=True, **self.words)

    async def hide(self, expunge: Expunge) -> Answer:
        return await expunge.erase(*self.users, purge=False, **self.words)


SCOPES = {
    "user": Case(("a1", "a2", "a3"), (ANN,)),
    "users": Case(("a1", "a2", "a3", "b1", "b2"), (ANN, BOB)),
    "session": Case(("a1", "a2"), words={"session_id": "s1<1>"}),
    "namespace": Case(("a1", "a2", "b1"), words={"namespaces": [CHAT]}),
    "agent": Case(("a2", "a3", "b2", "c1"), words={"agent": "writer<1>"}, others=frozenset({"cf"})),
    "org": Case(tuple(EPISODES), words={"whole_org": True}, others=frozenset({"cf", "cm"})),
    "before": Case(("a1", "a2"), (ANN,), {"before": BETWEEN}),
}
USER = SCOPES["user"]


class House:
    """A database, its keys, its objects folder, and the folder that the files came from."""

    def __init__(self, folder: Path, db: str | None = None) -> None:
        """Take a folder, and the URL of a database that does not lie in it."""
        self.folder, self.objects, self.given = folder, folder / "objects", folder / "given"
        self.db = db or str(folder / "expunge.db")

    def settings(self, **fields: Any) -> Settings:
        return Settings(db=self.db, objects=self.objects, keys_file=self.folder / "expunge.keys", **fields)

    def open(self, bodies: BodyStore | None = None, clock: ManualClock | None = None, **settings: Any) -> Expunge:
        return Expunge(settings=self.settings(**settings), clock=clock or ManualClock(), bodies=bodies)

    def bodies(self) -> dict[str, bytes]:
        """The bytes of every body by ref, also of those that are half written or that no row names."""
        return {name: data for name, data in files_of(self.objects).items() if name != ".lock"}

    async def put(self, expunge: Expunge, *records: dict[str, Any], **given: Any) -> None:
        """Write records, whose files are made first."""
        write_files(self.given, *(record["id"] for record in records if "attachments" in record))
        await expunge.put(records, attachments_from=self.given, **given)

    async def fill(self) -> None:
        """Let the people of ``EPISODES`` in, and somebody of the same name in another org."""
        self.folder.mkdir()
        async with self.open() as expunge:
            for name, (user, namespace, session, agent, at) in EPISODES.items():
                fields = {"namespace": namespace, "session_id": session, "agent": agent, "created_at": at}
                await self.put(expunge, told(name, user, **fields))
            await expunge.put([memory("cm", "tea", CAT, namespace=PLAY), fact("cf", CAT, sources=["c1"], agent="a<1>")])
            alike = {"namespace": CHAT, "session_id": "s1<1>", "agent": "writer<1>", "created_at": OLD, "org": "other"}
            await self.put(expunge, told("o1", ANN, **alike))


async def refs(expunge: Expunge) -> dict[str, set[str]]:
    """The bodies that rows name, by episode."""
    found: dict[str, set[str]] = {}
    for name, ref in await expunge.system.authority.read(lambda tx: tx.rows(_REFS)):
        found.setdefault(name, set()).add(ref)
    return found


def of(named: dict[str, set[str]], episodes: Iterable[str]) -> set[str]:
    """The bodies of some episodes."""
    return {ref for name in episodes for ref in named[name]}


def attachment_ids(dumped: dict[str, Any], episodes: Iterable[str]) -> set[str]:
    """The ids of the attachments of some episodes."""
    parents = set(episodes)
    return {key for key, row in dumped["attachments"].items() if parents & set(row)}


def without(kept: dict[str, bytes], gone: set[str]) -> dict[str, bytes]:
    """Bodies but for some."""
    return {ref: data for ref, data in kept.items() if ref not in gone}


async def file_under(expunge: Expunge, user: str, *, seq: int, dated: str = NEW, namespace: str = CHAT) -> str:
    """Store a body that no row names: what a unit leaves behind that was killed before its commit."""
    store = expunge.system.bodies["attachments"]
    assert store is not None
    parts = expunge.system.keys.filed_under(Identity("default", user_id=user, namespace=namespace))
    filing = Filing("default", parts, parse_instant(dated, "dated"), seq)
    return await store.put(filing, pieces(b"nobody names me"))


async def seq_now(expunge: Expunge) -> int:
    """The erasure counter of the org."""
    return (await expunge.as_of()).get("default", 0)


async def hold(expunge: Expunge, user_id: str | None = None, namespace: str | None = None) -> None:
    """Place a hold."""
    await expunge.system.authority.run(lambda tx: tx.change(_HOLD, user_id=user_id, namespace=namespace))


async def release_holds(expunge: Expunge) -> None:
    """Release every hold."""
    await expunge.system.authority.run(lambda tx: tx.change(_RELEASE))


@contextlib.contextmanager
def reachable(folder: Path) -> Iterator[None]:
    """Let another user come through the folders that pytest makes for their owner alone."""
    closed = [path for path in (folder, *folder.parents) if path.stat().st_uid == os.geteuid()]
    for path in closed:
        path.chmod(path.stat().st_mode | 0o011)
    yield


def without_rights(folder: Path, job: Callable[[], Awaitable[T]]) -> T:
    """What a job answers in a child of a user who owns a folder and has no other rights.

    Root may do everything, so its child gives that up; another user has none to give up.
    """
    asyncio.run(_warm_up())
    is_root = os.geteuid() == 0
    if is_root:
        for path in (folder, *folder.rglob("*")):
            os.lchown(path, _NOBODY_UID, _NOBODY_UID)

    async def dropped() -> T:
        if is_root:
            os.setgroups([])
            os.setgid(_NOBODY_UID)
            os.setuid(_NOBODY_UID)
        return await job()

    with reachable(folder.parent):
        return in_child(dropped)


async def _warm_up() -> None:
    """Import what is imported late: the Python of this machine may lie where the other user cannot read it."""
    async with Expunge(settings=Settings(db=":memory:")) as expunge:
        await expunge.put([episode("e", ANN)])
        await expunge.erase(ANN, purge=True)
