"""``data_map.show`` and ``data_map.article_30``: what is kept, of whom, for how long, and why."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from expunge.datamap import COLLECTIONS, RECORDS, Collection, Role
from expunge.errors import SettingsError
from expunge.model.ids import shown
from expunge.operations.registry import Call, NoInput, Output
from expunge.settings import Processing
from expunge.system import System

_PERSONAL = (Role.CONTENT, Role.USER, Role.SESSION, Role.CLEAR_UNTIL_END, Role.ACTOR, Role.PSEUDONYM)
MEASURES = (
    "erasure behind a fence, with an independent count and a signed receipt",
    "pseudonyms under a key of their own in the audit log, the ledger, receipts and fences",
    "keyed hashes instead of words in the search index",
    "freed pages of the database overwritten, and the write-ahead log emptied, before an erasure completes",
    "files and folders readable by their owner alone",
)
"""What Expunge does itself (Article 30 (1) g)."""


class DataMapOutput(Output):
    """Every collection with its columns, what an erasure does to it, and how long it is kept."""

    collections: list[dict[str, Any]]


async def show_data_map(_system: System, _call: Call, _given: NoInput) -> DataMapOutput:
    """Show the data map."""
    return DataMapOutput(collections=data_map())


def data_map() -> list[dict[str, Any]]:
    """The data map as JSON: what the command and the docs table are made from."""
    return [
        {
            "collection": kind.name,
            "purpose": kind.purpose,
            "on_erasure": str(kind.act),
            "on_erasure_of_a_session": str(kind.session_act) if kind.rule else None,
            "why_kept": kind.keep or None,
            "when_a_source_goes": None if kind.rule is None else str(kind.rule),
            "or_as_its_writer_says": [str(rule) for rule in kind.rules],
            "goes_with": None if kind.parent is None else kind.parent.collection,
            "body_outside": kind.body_in is not None,
            "dated_by": kind.time if kind.rule else None,
            "lifetime": kind.lifetime,
            "columns": {column.name: str(column.role) for column in kind.columns},
        }
        for kind in COLLECTIONS
    ]


class Activity(Output):
    """One collection in the record of processing."""

    collection: str
    what_it_is: str
    purpose: str | None
    personal_data: list[str]
    lineage: str | None
    kept_for: str
    on_erasure: str


class ArticleThirtyOutput(Output):
    """The record of processing activities (Article 30 (1) GDPR). ``not_said`` is what the settings have to add."""

    controller: str
    contact: str
    representative: str
    protection_officer: str
    legal_basis: str
    data_subjects: list[str]
    recipients: list[str]
    transfers: list[str]
    security: list[str]
    activities: list[Activity]
    not_said: list[str] = Field(
        description="Names of settings (`processing.…`) that a record needs and nobody has set."
    )


async def article_30(system: System, _call: Call, _given: NoInput) -> ArticleThirtyOutput:
    """Give the record of processing activities, from the data map and the settings."""
    said = system.settings.processing
    _refuse_unknown(said)
    needed = ("controller", "contact", "data_subjects", "recipients", "legal_basis")
    missing = [f"processing.{name}" for name in needed if not getattr(said, name)]
    if "transfers" not in said.model_fields_set:  # that there are none is for the controller to say
        missing.append("processing.transfers")
    without = [kind.name for kind in RECORDS if _purpose(kind, said) is None]
    return ArticleThirtyOutput(
        controller=said.controller,
        contact=said.contact,
        representative=said.representative,
        protection_officer=said.protection_officer,
        legal_basis=said.legal_basis,
        data_subjects=said.data_subjects,
        recipients=said.recipients,
        transfers=said.transfers,
        security=[*MEASURES, *said.security],
        activities=[_activity(kind, said) for kind in COLLECTIONS],
        not_said=[*missing, *(["processing.purpose"] if without else [])],
    )


def _refuse_unknown(said: Processing) -> None:
    names = {kind.name for kind in COLLECTIONS}
    for table in ("purposes", "retention"):
        for name in getattr(said, table):
            if name not in names:
                raise SettingsError(
                    f"setting processing.{table}: {shown(name)} is not a collection", hint="see: expunge data-map"
                )


def _purpose(kind: Collection, said: Processing) -> str | None:
    """Records serve what the controller says; what the engine needs serves what the data map says."""
    own = said.purposes.get(kind.name)
    return own or (said.purpose or None if kind in RECORDS else kind.keep or kind.purpose)


def _activity(kind: Collection, said: Processing) -> Activity:
    act = f"{kind.act}: {kind.keep}" if kind.keep else str(kind.act)
    return Activity(
        collection=kind.name,
        what_it_is=kind.purpose,
        purpose=_purpose(kind, said),
        personal_data=[column.name for column in kind.columns if column.role in _PERSONAL],
        lineage=lineage_of(kind),
        kept_for=said.retention.get(kind.name, kind.lifetime),
        on_erasure=act,
    )


def lineage_of(kind: Collection) -> str | None:
    """What becomes of a record when one that it rests on goes, in words."""
    if kind.parent is not None:
        return f"goes with its {kind.parent.collection.removesuffix('s')}"
    if kind.rule is None:
        return None
    others = [str(rule) for rule in kind.rules if rule is not kind.rule]
    return f"{kind.rule}" + (f", or {' or '.join(others)} as its writer says" if others else "")
