"""The embedded system: ``async with Expunge("./memory.db") as expunge: …``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from expunge.authority.port import Authority
from expunge.erasure import Progress
from expunge.erasure.saga import silent
from expunge.errors import ExpungeError, InputError, InvalidScope
from expunge.model.files import new_file
from expunge.model.ids import shown
from expunge.model.instant import Clock
from expunge.operations import OPERATIONS, Actor, perform
from expunge.operations.erasure import Answer, PreviewOutput, RestoreOutput
from expunge.operations.profile import ProfileOutput
from expunge.operations.records import PutOutput
from expunge.operations.scopes import scope_words
from expunge.operations.transfer import ExportOutput, ImportOutput
from expunge.search import Embedder
from expunge.settings import Settings
from expunge.stores import BodyStore
from expunge.subject.export import FORMATS, MemoryExport, whole
from expunge.system import System, open_system

_SCOPE = frozenset(
    {"namespaces", "session_id", "agent", "whole_org", "before", "purge", "plan_hash", "exact", "requester", "urgency",
     "external"}
)  # fmt: skip
_WORDS = "users as arguments, and the keywords " + ", ".join(sorted(_SCOPE))


class Expunge:
    """An opened system. Calls act as the operator of ``settings.actor``."""

    def __init__(
        self,
        db: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        create: bool = True,
        authority: Authority | None = None,
        bodies: BodyStore | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self.settings = settings if settings is not None else Settings.load(db=db)
        if settings is not None and db is not None:
            self.settings = settings.model_copy(update={"db": db})
        self._clock, self._create, self._authority, self._bodies = clock, create, authority, bodies
        self._embedder = embedder
        self._is_open = False
        self.system: System
        self.ended: list[Answer] = []
        """The erasures whose restore window was found to have ended at opening, as they stand now."""

    async def __aenter__(self) -> Self:
        """Open the database and its keys, and purge what was hidden and not restored in time.

        Raises:
            DatabaseFault, KeyFault: they cannot be opened (see their kinds).

        """
        self.system = await open_system(
            self.settings,
            clock=self._clock,
            create=self._create,
            authority=self._authority,
            bodies=self._bodies,
            embedder=self._embedder,
        )
        self._is_open = True
        # What cannot be purged now is seen in `erasures` and `doctor`, and shall not keep anybody from opening.
        with contextlib.suppress(ExpungeError):
            self.ended = (await self.call("erasure.resume_due", unattended=True)).erasures
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what runs and close the database."""
        self._is_open = False
        await self.system.close()

    @property
    def is_open(self) -> bool:
        """Whether it may be used now."""
        return self._is_open

    def _check_open(self) -> None:
        if not self._is_open:
            raise InputError("the database is not open", hint="use it inside of: async with Expunge(…) as expunge")

    async def call(
        self, name: str, /, *, as_of: dict[str, int] | None = None, progress: Progress = silent, **values: Any
    ) -> Any:
        """Perform an operation of the registry by its name; ``org`` defaults to the setting.

        Raises:
            InputError: there is no such operation, or the input does not fit it.
            ExpungeError: as the operation says.

        """
        return await self._perform(name, values, as_of=as_of, progress=progress)

    async def _perform(
        self,
        name: str,
        values: dict[str, Any],
        *,
        as_of: dict[str, int] | None = None,
        progress: Progress = silent,
    ) -> Any:
        self._check_open()
        operation = OPERATIONS.get(name)
        if operation is None:
            raise InputError(f"{shown(name)} is not an operation", hint="see docs/reference/operations.md")
        if "org" in operation.input.model_fields and values.get("org") is None:
            values = values | {"org": self.settings.org}
        actor = Actor(self.settings.actor)
        return await perform(self.system, operation, values, actor=actor, as_of=as_of, progress=progress)

    async def as_of(self, org: str | None = None) -> dict[str, int]:
        """The erasure counters now, or one org's: take them when work begins, give them to what it writes (law 4)."""
        self._check_open()
        return await self.system.as_of(org)

    async def put(
        self,
        records: Iterable[Any],
        *,
        org: str | None = None,
        skip_bad: bool = False,
        as_of: dict[str, int] | None = None,
        attachments_from: Path | str | None = None,
    ) -> PutOutput:
        """Write records (JSON objects or lines of JSON), all or nothing unless ``skip_bad``.

        The paths of attachments are relative to the folder ``attachments_from``, and cannot leave it.

        Without ``as_of`` the work begins now, before the first record is taken from ``records`` (law 4).
        """
        if isinstance(records, str | bytes):
            raise InputError("records is one text", hint="give its lines, or a list of objects")
        if as_of is None:
            as_of = await self.as_of()
        values = {"records": list(records), "skip_bad": skip_bad, "org": org}
        values["attachments_from"] = None if attachments_from is None else Path(attachments_from)
        answer: PutOutput = await self._perform("records.put", values, as_of=as_of)
        return answer

    async def profile(self, user_id: str, *, org: str | None = None) -> ProfileOutput:
        """What is held on a user."""
        answer: ProfileOutput = await self._perform("subject.profile", {"user_id": user_id, "org": org})
        return answer

    async def export(
        self, user_id: str, *, org: str | None = None, namespace: str | None = None, vectors: bool = False
    ) -> MemoryExport:
        """All that is held on a user, in memory; ``export_to`` writes a file of any size.

        Raises:
            ErasureInProgress, ErasedSince: an erasure that touches it runs, or ran meanwhile.

        """
        values = {"user_id": user_id, "org": org, "namespace": namespace, "vectors": vectors, "format": "jsonl"}
        answer: ExportOutput = await self._perform("subject.export", values)
        return await asyncio.to_thread(whole, b"".join([piece async for piece in answer.pieces()]))

    async def export_to(self, file: Path | str, user_id: str, *, admin: bool = False, **options: Any) -> dict[str, Any]:
        """Write all that is held on a user into a file, whole or not at all; the manifest of it.

        The form is what the name ends in (``.json``, ``.jsonl``, ``.zip``), else ``json``. ``options`` are those of
        ``subject.export`` (``format``, ``namespace``, ``vectors``), or with ``admin`` those of ``erasure.export``. The
        file is readable by its owner alone.

        Raises:
            ErasureInProgress, ErasedSince: an erasure that touches it runs, or ran meanwhile.
            InputError: the file cannot be written.
            DiskFull: there is no room for it.

        """
        name = "erasure.export" if admin else "subject.export"
        form = Path(file).suffix[1:]
        values = {"user_id": user_id, "format": form if form in FORMATS else "json"} | options
        answer: ExportOutput = await self._perform(name, values)
        with new_file(Path(file), 0o600) as written:
            async for piece in answer.pieces():
                written.write(piece)
        return answer.manifest

    async def import_export(
        self, file: Path | str | bytes, *, org: str | None = None, ledger: bytes | None = None, skip_bad: bool = False
    ) -> ImportOutput:
        """Bring the records of an export back, but for what was erased since it was made (law 4).

        Raises:
            InvalidExport: it is not whole, or was edited.

        """
        data = file if isinstance(file, bytes) else await asyncio.to_thread(Path(file).read_bytes)
        values = {"data": data, "ledger": ledger, "skip_bad": skip_bad, "org": org}
        answer: ImportOutput = await self._perform("records.import", values)
        return answer

    async def preview(self, *user_ids: str, org: str | None = None, **scope: Any) -> PreviewOutput:
        """What erasing a scope would do, and nothing is changed. Takes what ``erase`` takes; by default it purges."""
        answer: PreviewOutput = await self._request(user_ids, {"purge": True} | scope, org=org, dry_run=True)
        return answer

    async def erase(
        self, *user_ids: str, purge: bool, org: str | None = None, progress: Progress = silent, **scope: Any
    ) -> Answer:
        """Erase a conjunction: 1 to 500 users, narrowed or named otherwise by keywords; with census and receipt.

        ``namespaces`` (1 to 500), ``session_id``, ``agent`` or ``whole_org`` name the scope, ``before`` narrows it to
        what is older. ``plan_hash`` and ``exact`` bind it to a preview; ``requester``, ``urgency`` and ``external``
        are as in ``erasure.request``. Without ``purge`` the records are hidden, and can be restored for 14 days.
        """
        answer: Answer = await self._request(user_ids, {"purge": purge} | scope, org=org, progress=progress)
        return answer

    async def _request(
        self,
        user_ids: Sequence[str],
        scope: dict[str, Any],
        *,
        org: str | None,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> Any:
        if unknown := scope.keys() - _SCOPE:
            raise InvalidScope(f"{', '.join(sorted(unknown))} says nothing of a scope", hint=f"it takes {_WORDS}")
        named = {name: scope.pop(name) for name in ("session_id", "agent", "whole_org") if name in scope}
        namespaces = scope.pop("namespaces", ())
        if isinstance(namespaces, str):
            raise InvalidScope("namespaces is one text", hint="give a list of namespaces")
        words = scope_words(user_ids, namespaces, **named)
        values = words | scope | {"org": org, "dry_run": dry_run}
        return await self._perform("erasure.request", values, progress=progress)

    async def restore(self, request_id: str, *keys: str, org: str | None = None) -> RestoreOutput:
        """Serve what an erasure hid again, all of it or what the keys name; within 14 days."""
        values = {"request_id": request_id, "keys": list(keys), "org": org}
        answer: RestoreOutput = await self._perform("erasure.restore", values)
        return answer

    async def resume(self, request_id: str, *, org: str | None = None) -> Answer:
        """Go on with an erasure that stopped."""
        answer: Answer = await self._perform("erasure.resume", {"request_id": request_id, "org": org})
        return answer
