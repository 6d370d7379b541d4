"""Answers in words and tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from expunge.cli.output import err, inert, out, plain, plain_table, print_counts
from expunge.datamap.collections import SEARCH, VECTORS
from expunge.errors import ExpungeError
from expunge.operations.doctor import DoctorOutput
from expunge.operations.erasure import Answer, CensusOutput, DueOutput, ListOutput, PreviewOutput, RestoreOutput
from expunge.operations.profile import ProfileOutput
from expunge.operations.proofs import KeysOutput
from expunge.operations.reclaim import ReclaimOutput
from expunge.operations.records import PutOutput
from expunge.operations.transfer import ImportOutput
from expunge.proof import Check

_DAY = len("2026-01-01")
_STATUS_STYLE = {"completed": "bold green", "failed": "bold red", "abandoned": "bold red", "blocked": "bold yellow"}


def as_json_text(value: Any) -> str:
    """A value as one line of JSON."""
    return inert(json.dumps(value, ensure_ascii=False))


def error(fault: ExpungeError) -> Group:
    """An error: what is wrong, and what to do next."""
    first = Text.assemble(("error: ", "bold red"), plain(fault.message, longest=2000))
    return (
        Group(first, Text.assemble(("next:  ", "bold"), plain(fault.next_step, 500)))
        if fault.next_step
        else Group(first)
    )


def loaded(answer: PutOutput) -> None:
    """What became of a file."""
    parts = ", ".join(f"{count} {name}" for name, count in answer.collections.items())
    out().print(f"loaded {answer.loaded} records" + (f": {parts}" if parts else ""))
    if answer.skipped:
        out().print(f"skipped {answer.skipped} that were there already")
    if answer.reattached:
        out().print(f"gave {answer.reattached} lost sources back to records that were there already")
    if isinstance(answer, ImportOutput):
        _not_brought_back(answer)
    for bad in answer.bad:
        err().print(Text.assemble((f"left out: line {bad.line}, ", "yellow"), plain(f"{bad.field}: {bad.reason}")))


def _not_brought_back(answer: ImportOutput) -> None:
    if not answer.complete:
        err().print("the export was not complete when it was made: its manifest says what is missing", style="yellow")
    for count, what in (
        (answer.erased_since, "that were erased since the export was made"),
        (answer.hidden_left_out, "that an erasure hid when the export was made"),
    ):
        if count:
            out().print(f"left out {count} records {what}")
    if answer.edges_left_out:
        out().print(f"left out {answer.edges_left_out} sources that are neither here nor in the export")


def exported(manifest: dict[str, Any], file: str) -> None:
    """What stands in an export that was written to a file."""
    console = out()
    sections = manifest["sections"]
    print_counts("exported", {"records": {name: section["count"] for name, section in sections.items()}})
    if not any(section["count"] for section in sections.values()):
        scope = manifest["scope"]
        console.print(
            _nothing(scope["user_id"], scope["org"]).append(": is the id spelled as it was loaded? case counts")
        )
    for name, section in sections.items():
        if section["truncated"]:
            console.print(Text(f"{name} was cut at its limit; the rest is not in the file", "yellow"))
    for item in manifest["left_out"]:
        many = "" if item["count"] is None else f" ({item['count']})"
        console.print(Text(f"not in it: {item['what']}{many}: {item['why']}", "dim"))
    complete = Text("complete", "bold green") if manifest["complete"] else Text("not complete", "bold yellow")
    console.print(Text.assemble(complete, f"; written: {plain(file).plain}"))


def _nothing(user: str, org: str) -> Text:
    """That nothing is held on a user, and where: a slip in the id or the org looks the same."""
    return Text.assemble("nothing found on ", (plain(user).plain, "bold"), f" in org {plain(org).plain}")


def profile(answer: ProfileOutput) -> None:
    """What is held on a user, as a page."""
    console = out()
    if not answer.found:
        console.print(_nothing(answer.user_id, answer.org))
        return
    console.print(Text.assemble((plain(answer.user_id).plain, "bold"), f" in org {plain(answer.org).plain}"))
    console.print(f"first seen {answer.first_seen}, last seen {answer.last_seen}")
    console.print(Text.assemble("namespaces: ", plain(", ".join(answer.namespaces) or "none")))
    console.print(Text.assemble(f"sessions ({answer.session_count}): ", plain(", ".join(answer.recent_sessions))))
    table = plain_table("records", ("theirs", "first", "last", "made from theirs", "theirs rest on"))
    for name, count in answer.counts.items():
        seen = answer.seen.get(name)
        times = ("", "") if seen is None else (seen.first[:_DAY], seen.last[:_DAY])
        edges = [answer.made_from.get(name, 0), answer.rests_on.get(name, 0)]
        table.add_row(name, str(count), *times, *map(str, edges), style="" if count or any(edges) else "dim")
    console.print(table)
    if answer.samples:
        console.print(Text("samples, the newest", "bold"))
    for item in answer.samples:
        console.print(Text.assemble(f"  {item.at[:_DAY]} {item.collection:10} ", plain(item.text)))
    console.print(Text("all of it, as a file: expunge export USER -o FILE", "dim"))


def preview(answer: PreviewOutput, *, to_stderr: bool) -> None:
    """What an erasure would do."""
    console = err() if to_stderr else out()
    whose = answer.scope_type + (f", {answer.subjects} of them" if answer.subjects > 1 else "")
    if not answer.found:
        console.print(f"nothing found in this scope ({whose})")
    else:
        verb = "remove" if answer.purge else "hide"
        table = Table(title=f"this would {verb} ({whose})", title_justify="left", title_style="bold", box=None)
        table.pad_edge = False
        for column in ("collection", "in scope", "derived"):
            table.add_column(column, justify="left" if column == "collection" else "right")
        for name, counts in answer.goes.items():
            if any(counts.values()):
                table.add_row(name, str(counts["direct"]), str(counts["derived"]))
        console.print(table)
        console.print(effects(answer.effects, purge=answer.purge))
    _spelling(answer.subjects, answer.subjects_found)
    for item in answer.stays:
        if item.count is not None:
            console.print(f"{item.count} of {item.collection} stay: {item.why}")
    console.print(f"plan {answer.plan_hash}", style="dim")


def effects(found: dict[str, int], *, purge: bool) -> str:
    """The effects on others, in words (law 10)."""
    return (
        f"outside the scope: {found.get('derived', 0)} records made from these {'go' if purge else 'are hidden'}, "
        f"{found.get('detached', 0)} stay and lose a source, {found.get('revived', 0)} older versions become current"
    )


def answer(found: Answer) -> None:
    """How an erasure stands."""
    console = out()
    status = Text(found.status, _STATUS_STYLE.get(found.status, "bold"))
    console.print(Text.assemble((found.request_id, "bold"), " ", status, f"  (attempt {found.attempts})"))
    if found.found is False and found.status == "completed":
        console.print(f"nothing found in org {plain(found.org).plain}: is the id spelled as it was loaded? case counts")
    if found.current_step:
        console.print(f"at step {found.current_step}; done: {', '.join(found.steps_completed)}")
    if found.failure_reason:
        console.print(Text(found.failure_reason, "red"))
    _counts_of(found)
    for item in found.deferred:
        console.print(
            Text(f"deferred in {item['store']}: {item['reason']}; later: expunge resume {found.request_id}", "yellow")
        )
    if found.status == "completed" and found.found:
        _spelling(found.subjects, found.subjects_found)
    if found.reversals_count:
        console.print(f"{found.reversals_count} records were restored")
    if found.status == "completed":
        _completed(found)
    elif found.status in {"failed", "in_progress"}:
        console.print(f"to go on: expunge resume {found.request_id}")


_ALONG = {SEARCH.name, VECTORS.name}


def _counts_of(found: Answer) -> None:
    if found.census is not None:
        # Entries and vectors go with their records, and nobody counts them; what outlived them is shown.
        census = {_short(name): count for name, count in found.census.items() if count or _short(name) not in _ALONG}
        (went, mine), stays = ("removed", found.removed), "left"
        if not found.purge:
            (went, mine), stays = ("hidden", found.hidden), "served"
        print_counts("", {went: dict.fromkeys(census, 0) | mine, stays: census})
    if found.effects and found.found:
        out().print(effects(found.effects, purge=found.purge))


def _spelling(subjects: int, found: int) -> None:
    """A subject of which nothing is found may be one that was mistyped."""
    if 0 < found < subjects:
        words = (
            f"nothing found on {subjects - found} of {subjects}: are all ids spelled as they were loaded? case counts"
        )
        err().print(Text(words, "yellow"))


def _completed(found: Answer) -> None:
    console = out()
    if not found.purge and not any(found.hidden.values()):
        console.print("nothing is hidden any more")
    elif not found.purge:
        words = (
            f"hidden, not gone: nothing in scope is served, and the records are kept until {found.restore_until}.\n"
            f"To have them back: expunge restore {found.request_id}. After that time they are removed for good."
        )
        console.print(Text(words, "bold yellow"))
    count = len(found.receipts)
    word = "a signed receipt" if count == 1 else f"{count} signed receipts"
    console.print(f"{word}, counted at {found.verified_at}: expunge receipt {found.request_id}")


def _short(name: str) -> str:
    """The name of a collection of the authority; what lies in another store says so."""
    store, _, collection = name.partition(".")
    return collection if store == "authority" else name


def due(found: DueOutput) -> None:
    """The erasures whose restore window had ended."""
    if not found.erasures:
        out().print("no restore window has ended")
    for item in found.erasures:
        answer(item)


def restored(found: RestoreOutput) -> None:
    """What is served again."""
    print_counts("", {"restored": found.restored})
    console = out()
    console.print(f"{found.reversals_count} of them were in scope; {found.still_hidden} records stay hidden")
    if found.still_hidden:
        console.print(f"they can be restored until {found.restore_until}")


def reclaimed(answer: ReclaimOutput) -> None:
    """Whether the bytes are gone."""
    if answer.deferred:
        out().print(Text(f"deferred: {answer.deferred}; until: {answer.until}", "yellow"))
    else:
        out().print("the bytes of what was removed are gone")


def doctor(found: DoctorOutput) -> None:
    """What was looked at, and what is not covered."""
    console = out()
    for name, text in found.versions.items():
        console.print(f"{name} {text}")
    styles = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    for item in found.findings:
        line = Text.assemble(
            (f"{item.state:4}", styles[item.state]), f"  {plain(item.name).plain}: ", plain(item.found)
        )
        console.print(line)
        if item.next:
            console.print(Text.assemble("      next: ", plain(item.next)))
    console.print("not covered by any receipt:", style="bold")
    for text in found.not_covered:
        console.print(f"  {text}", markup=False)


def listing(found: ListOutput) -> None:
    """The erasures of an org."""
    if not found.erasures:
        out().print("no erasures")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("id", "status", "how", "scope", "subjects", "requested", "verified", "left", "restored"):
        table.add_column(column, no_wrap=True)
    for item in found.erasures:
        left = "" if item.residue_count is None else str(item.residue_count)
        status = Text(item.status, _STATUS_STYLE.get(item.status, "bold"))
        verified = item.verified_at or ""
        how = "purged" if item.purge else "hidden"
        counts = (str(item.subjects), item.requested_at, verified, left, str(item.reversals_count or ""))
        table.add_row(item.request_id, status, how, item.scope_type, *counts)
    out().print(table)


def census(found: CensusOutput) -> None:
    """A fresh count."""
    word = "left" if found.purge else "served"
    print_counts("", {word: found.census})
    out().print(f"{found.residue_count} {word}, counted at {found.counted_at}")


def checks(found: Sequence[Check], number: int | None = None) -> None:
    """What a verification looked at; ``number`` says which receipt of several it was."""
    if number is not None:
        out().print(f"receipt {number}", style="bold")
    for check in found:
        mark = ("passed", "green") if check.passed else ("FAILED", "bold red")
        out().print(Text.assemble(mark, f"  {check.name}: ", plain(check.detail)))


def checks_as_json(found: Sequence[Check]) -> dict[str, Any]:
    """A verification as JSON."""
    return {
        "passed": all(check.passed for check in found),
        "checks": [{"name": check.name, "passed": check.passed, "detail": check.detail} for check in found],
    }


def keys(found: KeysOutput) -> None:
    """The keys without their secrets."""
    console = out()
    console.print(f"key file: {found.keys_file or 'none (keys in memory)'}", markup=False)
    console.print(f"pseudonym keys, oldest first: {', '.join(found.pseudonym_keys)}")
    console.print(f"signing keys, oldest first: {', '.join(found.signing_keys)}")
    console.print(found.public_pems[-1].strip())
