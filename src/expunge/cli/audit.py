"""``expunge audit list|verify|head``: commands of their own, which the command line takes in as one."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from expunge.cli.calling import deliver, perform, tell
from expunge.cli.options import Target, with_target
from expunge.cli.output import err, out, plain, read_input
from expunge.errors import EXIT_NOT_DONE, InputError
from expunge.operations.audit import ListOutput, VerifyOutput

audit = typer.Typer(help="List what was done, and verify that nothing of it was changed.", no_args_is_help=True)


@audit.command("list")
@with_target
def show_list(
    target: Target,
    *,
    user: Annotated[str | None, typer.Option("--user", metavar="U", help="Only what speaks of this user.")] = None,
    actor: Annotated[str | None, typer.Option("--actor", metavar="A", help="Only what this actor did.")] = None,
    request: Annotated[str | None, typer.Option("--request", metavar="ID", help="Only of this erasure.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="T", help="From this time on.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="T", help="Before this time.")] = None,
    after: Annotated[int | None, typer.Option("--after", metavar="N", help="The page after this entry.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many, to 1000.")] = 100,
) -> None:
    """List what was done in the org, newest first."""
    values = {"user_id": user, "actor": actor, "request_id": request, "since": since, "until": until}
    answer = perform(target, "audit.list", after=after, limit=limit, **values)
    tell(target, answer, _show_list)


@audit.command()
@with_target
def verify(
    target: Target,
    head: Annotated[
        Path | None, typer.Option("--head", metavar="FILE", help="A head that was kept, as audit head wrote it.")
    ] = None,
) -> int:
    """Go through the org's whole chain; exit 1 when an entry is broken, missing or reordered, or its end is cut."""
    remembered = None if head is None else _read_head(head)
    answer = perform(target, "audit.verify", head=remembered)
    tell(target, answer, partial(_show_verdict, remembered=remembered is not None))
    return 0 if answer.ok else EXIT_NOT_DONE


@audit.command()
@with_target
def head(
    target: Target,
    file: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write to this file.")] = None,
) -> int:
    """Print the head of the org's chain, or write it to a file, to be kept elsewhere for ``verify --head``."""
    answer = perform(target, "audit.head")
    return deliver(target, answer.model_dump_json().encode() + b"\n", file)


def _read_head(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_input(str(file)))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{file} is not a head", hint="write one with: expunge audit head -o FILE")
    return found


def _show_list(answer: ListOutput) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for name in ("n", "at", "actor", "operation", "outcome", "erasure", "subjects"):
        table.add_column(name)
    for entry in answer.entries:
        people = [pseudonym for one in entry.subjects for pseudonym in one.values()]
        more = f" and {len(people) - 1} more" if len(people) > 1 else ""
        table.add_row(
            str(entry.n),
            entry.at,
            plain(entry.names.get(entry.actor or "", entry.actor or "")),
            plain(entry.operation),
            plain(entry.outcome),
            plain(entry.request_id or ""),
            plain(people[0] + more) if people else "",
        )
    out().print(table)
    if answer.next is not None:
        err().print(f"there are more: --after {answer.next}", markup=False)


def _show_verdict(answer: VerifyOutput, *, remembered: bool) -> None:
    out().print(f"{answer.entries} entries are as they were written", markup=False)
    if answer.fault is not None:
        where = f"entry {answer.fault.n}: " if answer.fault.n else ""
        out().print(f"{where}{answer.fault.kind}: {answer.fault.why}", markup=False, style="red")
    elif remembered:
        out().print("and none was cut off since the head that was kept", markup=False)
    else:
        out().print("give --head FILE to see a cut of the end, too", markup=False)
