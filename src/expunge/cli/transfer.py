"""``export`` and ``load``: records out of a store as a file, and into one."""

import sys
from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.authority.places import place_of
from expunge.cli import show
from expunge.cli.calling import run, tell
from expunge.cli.options import Target, with_target
from expunge.cli.output import bars, err, print_bytes, print_json, read_input
from expunge.embedded import Expunge
from expunge.errors import InputError
from expunge.memory import Attached, Batch, Reading
from expunge.model.files import new_file
from expunge.model.ids import shown
from expunge.model.instant import SystemClock
from expunge.operations.transfer import CONVERSATION_BYTES, SECTION_LIMIT, ExportOutput
from expunge.subject.export import ExportFile, is_export


class Form(StrEnum):
    """The forms of an export."""

    JSON = "json"
    JSONL = "jsonl"
    ZIP = "zip"


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(with_target(load))
    app.command()(with_target(export))


def load(
    target: Target,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON lines, one record each, or an export; - reads stdin.")
    ],
    *,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad lines out instead of refusing all.")] = False,
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", metavar="FILE", help="With an export: the ledger of the store it is from."),
    ] = None,
) -> None:
    """Load records from a file, whole or not at all; or what an export holds, but for what was erased since."""
    is_new = not place_of(target.settings.db).exists()
    data = read_input(file) if is_new else None
    if data is not None and (is_export(data) or not skip_bad):  # a bad file shall not make a database
        _check(target, data, _folder(file))

    async def work(expunge: Expunge) -> Any:
        as_of = {} if is_new else await expunge.as_of()  # the work begins before the file is read (law 4)
        given = read_input(file) if data is None else data
        with bars(quiet=target.json) as report:
            if is_export(given):
                known = None if ledger is None else read_input(str(ledger))
                words: dict[str, Any] = {"data": given, "ledger": known, "skip_bad": skip_bad}
                return await expunge.call("records.import", progress=report, **words)
            if ledger is not None:
                raise InputError("--ledger is for an export, and the file is none", hint="leave --ledger out")
            lines = _lines(given)
            values: dict[str, Any] = {"records": lines, "skip_bad": skip_bad, "attachments_from": _folder(file)}
            return await expunge.call("records.put", as_of=as_of, progress=report, **values)

    tell(target, run(target, work, create=True), show.loaded)


def _folder(file: str) -> Path:
    return Path.cwd() if file == "-" else Path(file).parent


def _lines(data: bytes) -> list[bytes]:
    return data.removeprefix(b"\xef\xbb\xbf").split(b"\n")


def _check(target: Target, data: bytes, folder: Path) -> None:
    settings = target.settings
    if is_export(data):
        ExportFile.read(data)
        return
    reading = Reading(settings.org, SystemClock().now(), settings.max_value_bytes, settings.max_attachment_bytes)
    Batch(_lines(data), reading, Attached(folder, settings.max_attachment_bytes)).refuse_bad()


def export(
    target: Target,
    user: Annotated[str, typer.Argument(metavar="USER", help="The user's id.")],
    *,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write to this file; else to stdout.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", metavar="N", help="Only what stands in this namespace.")
    ] = None,
    form: Annotated[
        Form | None, typer.Option("--format", help="Default: what the name of FILE ends in; json without an ending.")
    ] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="Give the vectors of records too.")] = False,
    admin: Annotated[
        bool,
        typer.Option("--admin", help="For whoever answers for the store: hidden and deleted records, and the audit."),
    ] = False,
    section_limit: Annotated[
        int | None,
        typer.Option("--section-limit", help=f"With --admin: most records of a section ({SECTION_LIMIT}); 0: all."),
    ] = None,
    conversation_bytes: Annotated[
        int | None,
        typer.Option(
            "--conversation-bytes", help=f"With --admin: most bytes of conversations ({CONVERSATION_BYTES}); 0: all."
        ),
    ] = None,
    leave_tombstoned: Annotated[
        bool, typer.Option("--without-tombstoned", help="With --admin: leave out what is hidden or deleted.")
    ] = False,
) -> None:
    """Give all that is held on a user as one file, with a manifest that says what is in it and what is not."""
    limits = {"section_limit": section_limit, "conversation_bytes": conversation_bytes}
    given = {name: value for name, value in limits.items() if value is not None}
    if not admin and (given or leave_tombstoned):
        raise InputError("limits and --without-tombstoned are for --admin", hint="add --admin, or leave them out")
    chosen = form or _form_of(out)
    if chosen is Form.ZIP and out is None and sys.stdout.isatty():
        raise InputError("a zip is nothing for a terminal", hint="write it to a file: -o FILE")
    values: dict[str, Any] = {"user_id": user, "namespace": namespace, "format": chosen.value, "vectors": vectors}
    if admin:
        values |= given | {"include_tombstoned": not leave_tombstoned}

    async def work(expunge: Expunge) -> ExportOutput:
        answer: ExportOutput = await expunge.call("erasure.export" if admin else "subject.export", **values)
        if out is None:
            await _to_stdout(answer.pieces())
        else:
            with new_file(out, 0o600) as file:
                async for piece in answer.pieces():
                    file.write(piece)
        return answer

    answer = run(target, work)
    if out is None:
        return
    if target.json:
        print_json({"written": str(out), "manifest": answer.manifest})
    else:
        show.exported(answer.manifest, str(out))


def _form_of(out: Path | None) -> Form:
    """The form that a file's name asks for; a name that asks for none of them shall not hold another one."""
    if out is None:
        return Form.JSON
    ending = out.suffix[1:].lower()
    if ending and ending not in set(Form):
        raise InputError(
            f"{shown(out.name)} ends in no form of an export",
            hint="end the name in .json, .jsonl or .zip, or say --format",
        )
    return Form(ending) if ending else Form.JSON


async def _to_stdout(pieces: AsyncIterator[bytes]) -> None:
    if sys.stdout.isatty():
        err().print("an export goes to the terminal; to a file: -o FILE", style="dim")
    async for piece in pieces:
        print_bytes(piece)
    sys.stdout.flush()
