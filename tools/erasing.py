"""Make docs/erasing.md: what an erasure does to each scope, by doing each and writing down what was answered.

Usage: erasing.py [--check]

The records are those of the demo, of three fictional people. Each scope starts from a fresh copy, with a clock that
stands still. What is random (ids, pseudonyms, hashes, signatures) is shortened, so that the page is the same each
time, and `--check` can say whether it still is what the code answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import sys
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from shortened import shortened

from expunge import Expunge, Settings
from expunge.cli import show
from expunge.model.instant import ManualClock
from expunge.operations.erasure import Answer

PAGE = Path(__file__).resolve().parent.parent / "docs" / "erasing.md"
_MADE = "<!-- Made by tools/erasing.py by running each erasure: change it there, then run `make docs`. -->\n"
_DAY_S = 86_400

SCOPES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    (
        "A user",
        "--user mira",
        "Everything of one person in every namespace of the org, and what was made from it, whoever it belongs to.",
        {"users": ["mira"]},
    ),
    (
        "Several users",
        "--user mira --user june",
        "One pass for all of them, and a receipt for each. A record made from both is accounted to the first.",
        {"users": ["mira", "june"]},
    ),
    (
        "A user within a namespace",
        "--user mira --namespace regatta",
        "Parts narrow each other: what is in all of them goes.",
        {"users": ["mira"], "namespaces": ["regatta"]},
    ),
    (
        "A session",
        "--session boathouse-1",
        "What was said in it, and what was made from that. Facts with another source, or with none, and blocks stay.",
        {"session_id": "boathouse-1"},
    ),
    (
        "A namespace",
        "--namespace regatta",
        "Whoever it belongs to. The fence stays up until the end, so nothing is written into it meanwhile.",
        {"namespaces": ["regatta"]},
    ),
    (
        "Several namespaces",
        "--namespace regatta --namespace boathouse",
        "A receipt for each.",
        {"namespaces": ["regatta", "boathouse"]},
    ),
    ("An agent", "--agent steward", "All that one agent wrote.", {"agent": "steward"}),
    (
        "What is older than a date",
        "--whole-org --before 2025-04-12T00:00:00Z",
        "Each collection has a [time of its own](reference/data-map.md); what was made from such records goes too.",
        {"whole_org": True, "before": "2025-04-12T00:00:00Z"},
    ),
    ("The whole org", "--whole-org", "Everything that anybody left.", {"whole_org": True}),
)


def main() -> int:
    """Write the page, or compare it with what the code answers now."""
    page = asyncio.run(make_page())
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") != page:
            sys.stderr.write(f"{PAGE} is not what the code answers now: make docs\n")
            return 1
        return 0
    PAGE.write_text(page, encoding="utf-8")
    return 0


async def make_page() -> str:
    """The page, from what each erasure answers."""
    lines = [_MADE + _OPENING]
    for number, (title, flags, words, scope) in enumerate(SCOPES):
        lines += [f"## {title}", "", words, "", *await _purged(flags, scope, whole=number == 0), ""]
    lines += [_HIDING, *await _hidden()]
    lines += [_AFTER]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


async def _purged(flags: str, scope: dict[str, Any], *, whole: bool) -> list[str]:
    """A preview, the erasure and its receipt; the first receipt is shown whole, of the others what differs."""
    async with _Filled() as (expunge, _):
        named = dict(scope)
        users = named.pop("users", [])
        preview = await expunge.preview(*users, **named)
        answer = await expunge.erase(*users, purge=True, **named)
        shown = [receipt if whole else _short(receipt) for receipt in answer.receipts]
        return [
            *_block(f"expunge erase {flags} --purge --dry-run", lambda: show.preview(preview, to_stderr=False)),
            *_block(f"expunge erase {flags} --purge", lambda: show.answer(answer)),
            "The receipt:" if whole else "In the receipt:" if len(shown) == 1 else "In the receipts:",
            "",
            *(line for receipt in shown for line in _json(receipt)),
        ]


def _short(receipt: dict[str, Any]) -> dict[str, Any]:
    """Of a receipt what this scope is about: zeros are left out."""
    counts = {name: {key: n for key, n in receipt[name].items() if n} for name in ("removed", "effects")}
    return {"scope": receipt["scope"]} | counts


async def _hidden() -> list[str]:
    async with _Filled() as (expunge, clock):
        answer = await expunge.erase("mira", purge=False)
        lines = _block("expunge erase --user mira", lambda: show.answer(answer))
        restored = await expunge.restore(answer.request_id, "preference/reminders")
        lines += _block("expunge restore er-… preference/reminders", lambda: show.restored(restored))
        clock.advance(14 * _DAY_S)
        due = await expunge.call("erasure.resume_due")
        lines += ["Fourteen days later:", "", *_block("expunge resume --due", lambda: show.due(due))]
        final: Answer = due.erasures[0]
        lines += ["In its second receipt:", ""]
        lines += _json({name: final.receipts[0][name] for name in ("purge", "restore_until", "reversals", "removed")})
        return lines


class _Filled:
    """A fresh system with the demo's records, and its clock."""

    async def __aenter__(self) -> tuple[Expunge, ManualClock]:
        self._folder = tempfile.TemporaryDirectory(prefix="expunge-docs-")
        clock = ManualClock("2026-01-15T10:00:00Z")
        settings = Settings(db=str(Path(self._folder.name) / "expunge.db"))
        self._expunge = Expunge(settings=settings, clock=clock)
        expunge = await self._expunge.__aenter__()
        await expunge.put((files("expunge.demo") / "people.jsonl").read_bytes().split(b"\n"))
        return expunge, clock

    async def __aexit__(self, *fault: object) -> None:
        await self._expunge.__aexit__(None, None, None)
        self._folder.cleanup()


def _block(command: str, tell: Callable[[], None]) -> list[str]:
    caught = io.StringIO()
    with contextlib.redirect_stdout(caught):
        tell()
    said = [line.rstrip() for line in shortened(caught.getvalue()).splitlines()]
    return ["```console", f"$ {command}", *(line for line in said if line), "```", ""]


def _json(value: Any) -> list[str]:
    return ["```json", *shortened(json.dumps(value, indent=2)).splitlines(), "```", ""]


_OPENING = """# What an erasure does

Every erasure names one scope. Look first (`--dry-run`), then hide it for 14 days, or remove it for good
(`--purge`). What is shown here was answered by the code, over the records of [the
demo](../src/expunge/demo/people.jsonl): three people of a sailing club. What is random is shortened to `…`.

What every erasure does, in this order: it writes its intent; raises a fence, so that writes into the scope are
refused; marks what is in scope and what was made from it, so that nothing serves it any more; lowers the fence
(for a namespace, an agent or an org only when it has ended); removes bodies that lie outside the database, and
lists them again; removes the rows; counts independently what is left; forgets the clear ids; makes the bytes
go; signs a receipt per subject.

The plan hash of a preview binds: `expunge erase … --plan HASH` is refused (`PLAN_CHANGED`) when scope, mode,
key or rules are others than were shown, or when a collection has changed by more than a fifth and by more than
ten records. `--exact`, in both, binds the very records.
"""

_HIDING = """## Hide first, and think again

Without `--purge` the records are kept and not served, for 14 days. `restore` brings them back, all of them or
what its keys name (ids of records, keys of memories, names of blocks) and what comes back with that: what
belongs to it, and what was made from it when nothing that it rests on stays hidden. What was in scope counts as
a reversal. When the time is over, the next opening of the database, or `resume --due`, removes what was not
restored, and signs a second receipt. To remove at once what is hidden, erase the same scope with `--purge`.
"""

_AFTER = """## When it does not end well

| status | means | next |
| --- | --- | --- |
| `completed` | nothing is left (or, hidden, nothing is served), and a receipt says so | |
| `failed` | a store did not do its part, or the census found something | mend it, `expunge resume ID` |
| `in_progress` | it runs, or its process died | `expunge resume ID` |
| `blocked` | a hold covers the whole scope | release the hold, `expunge resume ID` |
| `abandoned` | five attempts failed, or the plan had changed | look at `failure_reason`, erase again |

A fence that stays up because of it is lowered by `expunge release ID`; an erasure that was running has failed
by that, and can be resumed. Resuming one that has completed removes what a writer that was killed has put into
a store since, and tries a deferred reclaim again. An erasure that has ended is shown for 89 days after it was
asked for, and its row goes at 90; ledger and receipts stay. `expunge doctor` names what wants a hand.
"""


if __name__ == "__main__":
    sys.exit(main())
