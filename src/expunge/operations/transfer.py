"""``subject.export``, ``erasure.export`` and ``records.import``: records out of a store, and into one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Self

from pydantic import Field, PrivateAttr

from expunge import audit
from expunge.authority.port import Tx
from expunge.datamap.selector import count_scope
from expunge.errors import InputError
from expunge.memory import Arrival, Batch, Carried, Sifted, sift
from expunge.model.canonical import canonical_plain
from expunge.model.ids import shown
from expunge.model.instant import parse_instant
from expunge.model.scope import Scope, Target
from expunge.operations.audited import By, note_read
from expunge.operations.records import PutOutput, reading_of, said_of, write_batch
from expunge.operations.registry import Call, Input, Number, OrgId, Output, UserId, id_of
from expunge.proof import erased_since
from expunge.subject.export import AUDIT, Asked, Export, ExportFile, Format
from expunge.system import System

SECTION_LIMIT = 10_000
CONVERSATION_BYTES = 64 << 20
_AUDIT_PAGE = 500


class ExportInput(Input):
    """Whose data, in one namespace or in all of them, and in which form."""

    org: OrgId
    user_id: UserId
    namespace: Annotated[str, id_of("namespace")] | None = None
    format: Format = "json"
    vectors: bool = Field(default=False, description="Give the vectors of records too.")

    @property
    def targets(self) -> tuple[Target, ...]:
        """Whom it speaks of, for the audit."""
        return (Target(self.org, namespace=self.namespace, user_id=self.user_id),)


class AdminExportInput(ExportInput):
    """The same for whoever answers for the store: what was hidden and deleted too, and limits (0: none)."""

    include_tombstoned: bool = Field(default=True, description="Give what is hidden, and deleted versions, too.")
    section_limit: Number = Field(default=SECTION_LIMIT, description="Most records of a section; 0: all.")
    conversation_bytes: Number = Field(
        default=CONVERSATION_BYTES, description="Most bytes of episodes and events together; 0: all."
    )


class ExportOutput(Output):
    """An export that is ready to be taken: ``pieces`` gives its bytes; ``manifest`` is there when they have ended."""

    format: Format
    media_type: str
    _export: Export = PrivateAttr()

    @classmethod
    def of(cls, export: Export, form: Format) -> Self:
        """The answer that gives an export."""
        answer = cls(format=form, media_type=export.media_type)
        answer._export = export
        return answer

    def pieces(self) -> AsyncIterator[bytes]:
        """The bytes of the file, which is whole only when this ends without an error.

        Raises:
            ErasureInProgress, ErasedSince: an erasure that touches the scope runs, or ran meanwhile.
            StoreFault: a body could not be read, or is not what was stored.

        """
        return self._export.pieces()

    @property
    def manifest(self) -> dict[str, Any]:
        """What the export says of itself."""
        return self._export.manifest.as_json()


async def export(system: System, call: Call, given: ExportInput) -> ExportOutput:
    """Give a person's data: all that reads would serve, with versions, originals, and where it came from."""
    asked = Asked(_scope(given), "person", given.format, vectors=given.vectors)
    return await _ready(system, call.by("subject.export"), asked)


async def admin_export(system: System, call: Call, given: AdminExportInput) -> ExportOutput:
    """Give all that is held on a user: hidden and deleted records too, and the entries of the audit that name them."""
    asked = Asked(
        _scope(given),
        "admin",
        given.format,
        hidden=given.include_tombstoned,
        tombstoned=given.include_tombstoned,
        section_limit=given.section_limit,
        conversation_bytes=given.conversation_bytes,
        vectors=given.vectors,
        extra=((AUDIT, partial(_audit_lines, system=system, given=given)),),
    )
    return await _ready(system, call.by("erasure.export"), asked)


def _audit_lines(tx: Tx, below: int, *, system: System, given: ExportInput) -> list[tuple[int, bytes]]:
    """Entries of the audit below a number (0: the newest), with their numbers."""
    narrowed = audit.Filter(user_id=given.user_id)
    entries, _ = audit.page(tx, system.keys, given.org, narrowed, limit=_AUDIT_PAGE, below=below or None)
    return [(entry.n, canonical_plain({"collection": AUDIT, "n": entry.n, **entry.body})) for entry in entries]


def _scope(given: ExportInput) -> Scope:
    namespaces = () if given.namespace is None else (given.namespace,)
    return Scope(org=given.org, user_ids=(given.user_id,), namespaces=namespaces)


async def _ready(system: System, by: By, asked: Asked) -> ExportOutput:
    """An export to be taken. That it was asked for is in the audit before its first byte is given."""
    held = await system.authority.read(lambda tx: count_scope(tx, asked.scope))
    await note_read(system, by, asked.scope, {name: counts.total() for name, counts in held.items()})
    return ExportOutput.of(Export(system, asked), asked.form)


class ImportInput(Input):
    """An export, and (when it is another store's) a ledger of that store to check it against."""

    org: OrgId
    data: bytes = Field(description="The export, in any of its forms.")
    ledger: bytes | None = Field(default=None, description="The ledger file of the store that made the export.")
    skip_bad: bool = False


class ImportOutput(PutOutput):
    """What became of an export: as of other records, and what it did not bring back."""

    origin: str = Field(description="The store that made it.")
    complete: bool = Field(description="Whether it held all that was in its scope; its manifest says what is missing.")
    erased_since: int = Field(description="Records that were erased after it was made; they did not come back.")
    edges_left_out: int = Field(description="Sources that records name and that are neither here nor in the export.")
    hidden_left_out: int = Field(description="Records that an erasure hid when it was made.")


async def import_export(system: System, call: Call, given: ImportInput) -> ImportOutput:
    """Bring the records of an export back, but for what was erased since it was made (law 4).

    An export of this very store carries the erasure counter of its making; one of another store is a new arrival.
    """
    file = await asyncio.to_thread(ExportFile.read, given.data)
    if file.org != given.org:
        raise InputError(f"the export is of org {shown(file.org)}", hint="name that org, if it shall come to it")
    origin = file.manifest["origin"]
    own = origin["store"] == await system.store_id()
    call = call if not own else Call(call.actor, {file.org: _counter(origin, call.as_of[file.org])}, call.progress)
    lines = [line for line in file.lines if not line.record.get("hidden")]
    carried = Carried(file.body_of, file.size_of, system.settings.max_attachment_bytes)
    batch = await asyncio.to_thread(
        Batch,
        (line.record for line in lines),
        reading_of(system, file.org, exported=True),
        carried,
        [line.number for line in lines],
    )
    _refuse_other_orgs(batch, file.org)
    batch, sifted = await _sifted(system, call, batch, given, origin, own=own)
    outcome = await write_batch(system, call, batch, carried, skip_bad=given.skip_bad, operation="records.import")
    return ImportOutput(
        **said_of(outcome),
        origin=origin["store"],
        complete=file.manifest["complete"],
        erased_since=sifted.erased,
        edges_left_out=sifted.edges,
        hidden_left_out=len(file.lines) - len(lines),
    )


def _counter(origin: dict[str, Any], now: int) -> int:
    """The counter at which an export of this store was made. A store that is behind it was restored from a copy."""
    if not 0 <= origin["as_of"] <= now:
        raise InputError(
            "the export is later than this store, which was restored from an older copy",
            hint="erase again what was erased since, and then load the records as new ones",
        )
    return int(origin["as_of"])


def _refuse_other_orgs(batch: Batch, org: str) -> None:
    for record in list(batch.records.values()):
        if record.org != org:
            batch.reject(record, "org", f"differs from the org of the export, {shown(org)}")


async def _sifted(
    system: System, call: Call, batch: Batch, given: ImportInput, origin: dict[str, Any], *, own: bool
) -> tuple[Batch, Sifted]:
    gone: frozenset[tuple[str, str]] = frozenset()
    if given.ledger is not None:
        since = parse_instant(origin["exported_at"], "exported_at")
        erased = erased_since(given.ledger, given.org, since, system.keys)
        gone = frozenset(r.key for r in batch.records.values() if erased.holds(r.identity, r.dated))
    arrival = Arrival(own, gone)
    return await system.authority.read(lambda tx: sift(tx, batch, arrival, system.keys, call.as_of))
