"""``system.residue``: whether some texts still stand in the files of the stores, and which record accounts for each."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import Field

from expunge.errors import InputError
from expunge.operations.registry import Call, Input, OrgId, Output
from expunge.residue import LEAST_EXPORTED, SHORTEST, Hit, Look, Needle, Unknown, look, needles_of, read_export
from expunge.system import System


class ResidueInput(Input):
    """Texts to look for, or an export whose texts are (those of at least ``least`` bytes); one of the two.

    In the search index the keyed hashes of words of ``org`` are looked for; all else is looked for in all orgs.
    """

    org: OrgId
    texts: list[str] = Field(default_factory=list)
    export: bytes | None = Field(None, repr=False)
    least: Annotated[int, Field(ge=SHORTEST)] = LEAST_EXPORTED


class FileSeen(Output):
    """A file that was looked into."""

    file: str
    bytes: int


class NotTold(Output):
    """A file, or a store, and what is the matter with it."""

    file: str
    why: str


class TextFound(Output):
    """How often a text was found, by its number: whole, how many of these hits nothing accounts for, and pieces."""

    text: int
    length: int
    hits: int
    residue: int
    pieces: int
    shown: int


class HitShown(Output):
    """A hit: the number and length of the text, its form, where it stands, and what accounts for it.

    ``standing`` is ``record``, ``hidden``, ``declared``, ``schema``, ``digits``, ``foreign``; of residue ``nothing``.
    """

    text: int
    length: int
    form: str
    piece: bool
    file: str
    offset: int | None
    within: str | None
    place: str
    standing: str
    why: str
    collection: str | None
    org: str | None
    record: str | None
    erasure: str | None
    until: str | None


class ResidueOutput(Output):
    """What was looked for and where, what was found, and what could not be looked into.

    ``verdict`` is ``nothing``, ``accounted`` (every hit has a record), ``residue`` (one has none), or ``unknown`` (no
    residue was found, and something could not be looked into).
    """

    verdict: str
    texts: int
    too_short: int
    """How many texts of the export were left out."""
    forms: list[str]
    hits: int
    residue: int
    hidden: int
    found: list[TextFound]
    shown: list[HitShown]
    unknown: list[NotTold]
    not_text: list[NotTold]
    not_searched: list[str]
    files: list[FileSeen]
    changed: bool
    """Whether the database changed meanwhile; then it is best to look again."""


async def search(system: System, _call: Call, given: ResidueInput) -> ResidueOutput:
    """Look for some texts in every file, and change nothing."""
    if given.export is not None and given.texts:
        raise InputError("texts and an export are given", hint="look for one after the other")
    if given.export is None:
        needles, too_short = needles_of(given.texts), 0
    else:
        needles, too_short = read_export(given.export, given.least)
    found = await look(system, given.org, needles)
    return _answer(needles, too_short, found)


def _answer(needles: list[Needle], too_short: int, found: Look) -> ResidueOutput:
    tally, sizes = found.tally, {needle.number: needle.size for needle in needles}
    hits = tally.shown()
    shown = Counter(hit.needle for hit in hits)
    return ResidueOutput(
        verdict=_verdict(found),
        texts=len(needles),
        too_short=too_short,
        forms=list(found.forms),
        hits=tally.hits.total(),
        residue=tally.residue.total(),
        hidden=tally.hidden.total(),
        found=[
            TextFound(
                text=number,
                length=sizes[number],
                hits=tally.hits[number],
                residue=tally.residue[number],
                pieces=tally.parts[number],
                shown=shown[number],
            )
            for number in sorted(tally.hits.keys() | tally.parts.keys())
        ],
        shown=[_shown(hit, sizes[hit.needle]) for hit in hits],
        unknown=_told(found.tally.unknown),
        not_text=_told(found.not_text),
        not_searched=found.not_searched,
        files=[FileSeen(file=file, bytes=size) for file, size in found.looked],
        changed=found.changed,
    )


def _verdict(found: Look) -> str:
    """Residue comes before what is unknown: it is there, whatever the rest holds."""
    if found.tally.residue.total():
        return "residue"
    if found.tally.unknown:
        return "unknown"
    return "accounted" if found.tally.hits.total() else "nothing"


def _told(items: list[Unknown]) -> list[NotTold]:
    return [NotTold(file=item.file, why=item.why) for item in items]


def _shown(hit: Hit, length: int) -> HitShown:
    place, account = hit.place, hit.account
    return HitShown(
        text=hit.needle,
        length=length,
        form=hit.form,
        piece=hit.is_part,
        file=place.file,
        offset=place.offset,
        within=place.within,
        place=place.words,
        standing=account.standing,
        why=account.words,
        collection=account.collection,
        org=account.org,
        record=account.record,
        erasure=account.erasure,
        until=account.until,
    )
