"""The commands: each takes its options, performs one operation, and shows the answer."""

import os
import sys
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.authority.places import place_of
from expunge.cli import audit, processing, show, transfer
from expunge.cli.calling import deliver as _deliver
from expunge.cli.calling import perform as _perform
from expunge.cli.calling import run as _run
from expunge.cli.calling import tell as _tell
from expunge.cli.demo import run_demo
from expunge.cli.options import Target, shared, with_target
from expunge.cli.output import bars, err, print_json, read_input
from expunge.cli.residue import residue
from expunge.embedded import Expunge
from expunge.errors import EXIT_ENVIRONMENT, EXIT_NOT_DONE, EXIT_REFUSED, ExpungeError, InputError
from expunge.keys import load_key_file
from expunge.keys.ring import read_public_pem, signing_key_id
from expunge.model.ids import shown
from expunge.operations.erasure import Answer, DueOutput, PreviewOutput
from expunge.operations.scopes import scope_words
from expunge.proof import verify as verify_receipt
from expunge.system import keys_path

app = typer.Typer(
    help="The memory of AI agents with an end of life.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.callback()(shared)
transfer.add_to(app)
processing.add_to(app)

_PEM_END = b"-----END PUBLIC KEY-----\n"
_INTERRUPTED = 130
Out = Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write to this file.")]
RequestId = Annotated[str, typer.Argument(metavar="ID", help="The id of the erasure.")]


def main() -> None:
    """Run the command line, and turn errors of the tree into words and exit codes."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    as_json = "--json" in sys.argv
    try:
        try:
            app(prog_name="expunge")
        finally:
            sys.stdout.flush()
    except ExpungeError as fault:
        if as_json:
            sys.stderr.write(show.as_json_text(fault.as_dict()) + "\n")
        else:
            err().print(show.error(fault))
        sys.exit(fault.exit_code)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter would try to flush into it again
        sys.exit(EXIT_NOT_DONE)
    except (OSError, UnicodeError) as fault:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        reason = getattr(fault, "strerror", None) or "a name is not one that this machine can use"
        sys.stderr.write(f"error: {reason}\nnext:  what was asked may have been done; see: expunge erasures\n")
        sys.exit(EXIT_ENVIRONMENT)


app.add_typer(audit.audit, name="audit")


@app.command("version")
@with_target
def show_version(target: Target) -> None:
    """Print the version."""
    if target.json:
        print_json({"version": version("expunge")})
    else:
        sys.stdout.write(f"expunge {version('expunge')}\n")


@app.command()
@with_target
def demo(target: Target) -> int:
    """Run the main job on three fictional people, and check each claim."""
    return run_demo(as_json=target.json)


@app.command()
@with_target
def profile(target: Target, user: Annotated[str, typer.Argument(metavar="USER", help="The user's id.")]) -> None:
    """Show what is held on a user."""
    answer = _perform(target, "subject.profile", user_id=user)
    _tell(target, answer, show.profile)


@app.command()
@with_target
def erase(
    target: Target,
    user: Annotated[list[str] | None, typer.Option("--user", metavar="U", help="A user's id; repeat for more.")] = None,
    users_from: Annotated[
        str | None, typer.Option("--users-from", metavar="FILE", help="One user id a line; - reads stdin.")
    ] = None,
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", metavar="N", help="A namespace; repeat for more.")
    ] = None,
    *,
    session: Annotated[list[str] | None, typer.Option("--session", metavar="S", help="A session.")] = None,
    agent: Annotated[list[str] | None, typer.Option("--agent", metavar="A", help="An agent.")] = None,
    whole_org: Annotated[bool, typer.Option("--whole-org", help="Everything in the org.")] = False,
    before: Annotated[
        list[str] | None, typer.Option("--before", metavar="T", help="Only what is dated before; ISO-8601 with a zone.")
    ] = None,
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the records for good; without it they are hidden for 14 days.")
    ] = False,
    requester: Annotated[str | None, typer.Option("--requester", metavar="WHO", help="Who asked for it.")] = None,
    urgent: Annotated[bool, typer.Option("--urgent", help="To be gone on with before others that wait.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")] = False,
    plan: Annotated[
        str | None, typer.Option("--plan", metavar="HASH", help="Refuse when it is not this plan any more.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="With --plan or --dry-run: bind the very records.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Hide or purge a scope everywhere in the org, count what is left, and sign a receipt.

    Users, namespaces, a session and an agent narrow each other: what is in all of them goes.
    """
    users = [*(user or ()), *(_ids(users_from) if users_from else ())]
    one_session, one_agent = _one("--session", session), _one("--agent", agent)
    named = scope_words(users, namespace or (), session_id=one_session, agent=one_agent, whole_org=whole_org)
    words = named | {
        "before": _one("--before", before),
        "purge": purge,
        "requester": requester,
        "plan_hash": plan,
        "exact": exact,
    }
    words["urgency"] = "urgent" if urgent else "normal"

    async def work(expunge: Expunge) -> Answer | None:
        if dry_run or not yes:
            preview = await expunge.call("erasure.request", dry_run=True, **words)
            if dry_run and target.json:
                print_json(preview)
            else:
                show.preview(preview, to_stderr=not dry_run)
            if dry_run or not _confirmed(target, preview):
                return None
            words["plan_hash"] = words["plan_hash"] or preview.plan_hash  # what was agreed to, and nothing else
        with bars(quiet=target.json) as report:
            answer: Answer = await expunge.call("erasure.request", progress=report, **words)
            return answer

    answer = _run(target, work)
    if answer is None:
        return 0 if dry_run else EXIT_REFUSED
    return _show_answer(target, answer)


def _one(option: str, values: list[str] | None) -> str | None:
    """The value of an option that may be given once: the last of several would else be taken without a word."""
    if values and len(values) > 1:
        raise InputError(f"{option} is given {len(values)} times", hint="ask once for each")
    return values[0] if values else None


def _confirmed(target: Target, preview: PreviewOutput) -> bool:
    """Ask on the terminal; where there is none, or the answer is for a program, ``--yes`` has to be given."""
    if target.json or not sys.stdin.isatty():
        raise InputError("nobody is there to confirm, so nothing was erased", hint="add --yes")
    count = sum(sum(counts.values()) for counts in preview.goes.values())
    what = "Remove these records for good" if preview.purge else "Hide these records for 14 days"
    return typer.confirm(f"{what} from org {shown(target.settings.org)} ({count} of them)?", err=True)


def _ids(name: str) -> list[str]:
    try:
        lines = read_input(name).decode().split("\n")
    except UnicodeDecodeError:
        raise InputError(f"{name} is not UTF-8", hint="write one user id a line, in UTF-8") from None
    return [line.removesuffix("\r") for line in lines if line.strip()]


def _show_answer(target: Target, answer: Answer) -> int:
    _tell(target, answer, show.answer)
    return _exit_code(answer)


def _exit_code(answer: Answer) -> int:
    return {"completed": 0, "blocked": EXIT_REFUSED}.get(answer.status, EXIT_NOT_DONE)


@app.command()
@with_target
def erasures(
    target: Target,
    user: Annotated[str | None, typer.Option("--user", metavar="U", help="Only those of this user.")] = None,
    status: Annotated[str | None, typer.Option("--status", metavar="S", help="Only those of this status.")] = None,
) -> None:
    """List the erasures of the org, newest first."""
    answer = _perform(target, "erasure.list", user_id=user, status=status)
    _tell(target, answer, show.listing)


@app.command()
@with_target
def erasure(target: Target, request_id: RequestId) -> None:
    """Show how an erasure stands."""
    answer = _perform(target, "erasure.status", request_id=request_id)
    _tell(target, answer, show.answer)


@app.command()
@with_target
def resume(
    target: Target,
    request_id: Annotated[str | None, typer.Argument(metavar="ID", help="The id of the erasure.")] = None,
    *,
    due: Annotated[bool, typer.Option("--due", help="Purge what was hidden and not restored in time.")] = False,
) -> int:
    """Go on with an erasure that stopped, from its last checkpoint; or with all whose restore window has ended."""
    if due == (request_id is not None):
        raise InputError("name one erasure, or say --due", hint="list them with: expunge erasures")

    async def work(expunge: Expunge) -> Answer | DueOutput:
        with bars(quiet=target.json) as report:
            if due:
                found: DueOutput = await expunge.call("erasure.resume_due", progress=report)
                return DueOutput(erasures=[*expunge.ended, *found.erasures])
            answer: Answer = await expunge.call("erasure.resume", request_id=request_id, progress=report)
            return answer

    answer = _run(target, work)
    if isinstance(answer, Answer):
        return _show_answer(target, answer)
    _tell(target, answer, show.due)
    return max((_exit_code(item) for item in answer.erasures), default=0)


@app.command()
@with_target
def restore(
    target: Target,
    request_id: RequestId,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="Ids of records, keys of memories, names of blocks; none for everything."),
    ] = None,
) -> None:
    """Serve what an erasure hid again; within 14 days."""
    answer = _perform(target, "erasure.restore", request_id=request_id, keys=list(keys or ()))
    _tell(target, answer, show.restored)


@app.command()
@with_target
def release(target: Target, request_id: RequestId) -> None:
    """Lower the fence of an erasure that stopped short, so that its scope can be written to."""
    answer = _perform(target, "erasure.release", request_id=request_id)
    _tell(target, answer, show.answer)


@app.command()
@with_target
def reclaim(target: Target) -> int:
    """Make the bytes of what was removed go, from the search index too; exit 1 when some have to wait."""
    answer = _perform(target, "system.reclaim")
    _tell(target, answer, show.reclaimed)
    return EXIT_NOT_DONE if answer.deferred else 0


@app.command()
@with_target
def doctor(target: Target) -> int:
    """Look the installation over; exit 1 when something is not as it has to be."""
    answer = _perform(target, "system.doctor")
    _tell(target, answer, show.doctor)
    return 0 if answer.healthy else EXIT_NOT_DONE


@app.command()
@with_target
def census(target: Target, request_id: RequestId) -> int:
    """Count again what an erasure left; exit 1 when there is anything."""
    answer = _perform(target, "erasure.census", request_id=request_id)
    _tell(target, answer, show.census)
    return EXIT_NOT_DONE if answer.residue_count else 0


@app.command()
@with_target
def receipt(target: Target, request_id: RequestId, out: Out = None) -> int:
    """Print the signed receipts of an erasure, one a line for each subject."""
    answer = _perform(target, "erasure.receipts", request_id=request_id)
    if not answer.receipts:
        raise InputError(f"erasure {answer.request_id} has no receipt yet", hint="see: expunge erasure ID")
    return _deliver(target, "\n".join(answer.receipts).encode() + b"\n", out)


@app.command()
@with_target
def verify(
    target: Target,
    receipt: Annotated[str, typer.Argument(metavar="RECEIPT", help="A file of receipts, one a line; - reads stdin.")],
    key: Annotated[Path | None, typer.Option("--key", metavar="PUB", help="The pinned public keys, PEM.")] = None,
    ledger: Annotated[Path | None, typer.Option("--ledger", metavar="FILE", help="A ledger file to check in.")] = None,
) -> int:
    """Check receipts against a pinned key (given, or the database's own) and, if given, a ledger; exit 1 on failure."""
    data = read_input(receipt)
    lines = [line for line in data.split(b"\n") if line] or [b""]
    if not lines[0].endswith(b"}"):  # one receipt over many lines: somebody has reformatted it
        lines = [data]
    pinned = {}
    if key is not None:
        blocks = read_input(str(key)).split(_PEM_END)
        publics = [read_public_pem(block + _PEM_END) for block in blocks if block.strip()] or [read_public_pem(b"")]
        pinned = {signing_key_id(public): public for public in publics}
    else:
        pinned = _own_keys(target)
    entries = None if ledger is None else read_input(str(ledger))
    checked = [verify_receipt(line, pinned, entries) for line in lines]
    if target.json:
        print_json([show.checks_as_json(checks) for checks in checked])
    else:
        for number, checks in enumerate(checked, start=1):
            show.checks(checks, number if len(checked) > 1 else None)
    return 0 if all(check.passed for checks in checked for check in checks) else EXIT_NOT_DONE


def _own_keys(target: Target) -> dict[str, Any]:
    settings = target.settings
    path = keys_path(settings, place_of(settings.db))
    if path is None or not path.exists():
        return {}
    return {key.id: key.private.public_key() for key in load_key_file(path).signing_keys}


@app.command()
@with_target
def ledger(target: Target, out: Out = None) -> int:
    """Print the org's ledger, or write it to a file, for ``verify --ledger``."""
    answer = _perform(target, "ledger.export")
    return _deliver(target, "\n".join(answer.lines).encode() + b"\n", out)


class KeyAction(StrEnum):
    """What ``keys`` does besides showing them."""

    EXPORT = "export"
    ROTATE = "rotate"


@app.command()
@with_target
def keys(
    target: Target,
    action: Annotated[
        KeyAction | None, typer.Argument(help="export: print the public halves, as PEM. rotate: make fresh keys.")
    ] = None,
    *,
    out: Out = None,
) -> int:
    """Show the keys without their secrets, export the public halves that verifiers pin, or rotate."""
    answer = _perform(target, "keys.rotate" if action is KeyAction.ROTATE else "keys.show")
    if action is KeyAction.EXPORT:
        return _deliver(target, "".join(answer.public_pems).encode(), out)
    _tell(target, answer, show.keys)
    return 0


app.command()(residue)
