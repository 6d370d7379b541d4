"""The demo: the main job on three fictional people of a sailing club, with each claim checked."""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.rule import Rule
from rich.text import Text

from expunge.cli import show
from expunge.cli.output import bars, out, print_json
from expunge.embedded import Expunge
from expunge.errors import EXIT_NOT_DONE, ErasedSince
from expunge.operations.erasure import Answer
from expunge.operations.profile import ProfileOutput
from expunge.proof import verify
from expunge.settings import Settings

PERSON = "mira"
_OTHERS = ("tomas", "june")


@dataclass
class _Demo:
    """The story so far: what was claimed, and whether it held."""

    as_json: bool
    folder: Path
    checks: list[tuple[str, bool]] = field(default_factory=list)

    def say(self, title: str, words: str) -> None:
        if not self.as_json:
            out().print()
            out().print(Rule(Text(title, "bold cyan"), align="left"))
            out().print(Text(words, "italic"))

    def check(self, claim: str, *, holds: bool) -> None:
        self.checks.append((claim, holds))
        if not self.as_json:
            mark = ("  ✓ ", "bold green") if holds else ("  ✗ ", "bold red")
            out().print(Text.assemble(mark, claim))


def run_demo(*, as_json: bool) -> int:
    """Run the demo in a temporary folder; 0 when every claim held, 1 otherwise."""
    with tempfile.TemporaryDirectory(prefix="expunge-demo-") as folder:
        demo = _Demo(as_json, Path(folder))
        asyncio.run(_story(demo))
    failed = [claim for claim, holds in demo.checks if not holds]
    if as_json:
        print_json({"passed": not failed, "checks": [{"claim": c, "holds": h} for c, h in demo.checks]})
    else:
        out().print()
        verdict = (f"{len(failed)} claims did not hold", "bold red") if failed else ("every claim held", "bold green")
        out().print(Text.assemble(verdict, f" ({len(demo.checks)} checked)"))
    return EXIT_NOT_DONE if failed else 0


async def _story(demo: _Demo) -> None:
    settings = Settings(db=str(demo.folder / "expunge.db"))
    async with Expunge(settings=settings) as expunge:
        await _load(demo, expunge)
        held = await _profile(demo, expunge)
        answer = await _erase(demo, expunge, held)
        await _look_again(demo, expunge, answer, held)
        await _prove(demo, expunge, answer)


async def _load(demo: _Demo, expunge: Expunge) -> None:
    demo.say(
        "1. load",
        "A sailing club's assistant remembers three people: what they said, facts drawn from it, and summaries\n"
        "of what several of them said.   expunge load people.jsonl",
    )
    lines = (files("expunge.demo") / "people.jsonl").read_bytes().split(b"\n")
    with bars(quiet=demo.as_json) as report:
        answer = await expunge.call("records.put", records=lines, progress=report)
    if not demo.as_json:
        show.loaded(answer)
    demo.check("the whole file was loaded", holds=answer.loaded == len([line for line in lines if line.strip()]))


async def _profile(demo: _Demo, expunge: Expunge) -> dict[str, ProfileOutput]:
    demo.say("2. profile", f"What does it hold on {PERSON}?   expunge profile {PERSON}")
    held = {user: await expunge.profile(user) for user in (PERSON, *_OTHERS)}
    if not demo.as_json:
        show.profile(held[PERSON])
    demo.check(f"something is held on {PERSON}", holds=held[PERSON].found)
    return held


async def _erase(demo: _Demo, expunge: Expunge, held: dict[str, ProfileOutput]) -> Answer:
    demo.say(
        "3. preview",
        "What would go with her: also what others' assistants wrote from her words.\n"
        f"expunge erase --user {PERSON} --dry-run",
    )
    preview = await expunge.preview(PERSON)
    if not demo.as_json:
        show.preview(preview, to_stderr=False)
    direct = {name: counts["direct"] for name, counts in preview.goes.items()}
    demo.check("the preview and the profile agree on what is hers", holds=direct == held[PERSON].counts)
    demo.say("4. erase", f"Fence, mark, purge, count, forget, reclaim, sign.   expunge erase --user {PERSON} --purge")
    with bars(quiet=demo.as_json) as report:
        answer = await expunge.erase(PERSON, purge=True, progress=report)
    if not demo.as_json:
        show.answer(answer)
    demo.check("the erasure completed and the census found nothing left", holds=_is_clean(answer))
    return answer


def _is_clean(answer: Answer) -> bool:
    return answer.status == "completed" and answer.residue_count == 0 and not answer.deferred


async def _look_again(demo: _Demo, expunge: Expunge, answer: Answer, before: dict[str, ProfileOutput]) -> None:
    demo.say("5. look again", "With the system's own eyes, and then at the raw bytes of every file it keeps.")
    demo.check(f"nothing is found on {PERSON} any more", holds=not (await expunge.profile(PERSON)).found)
    for user in _OTHERS:
        held = await expunge.profile(user)
        same = held.counts["episodes"] == before[user].counts["episodes"] > 0
        demo.check(f"{user}'s {before[user].counts['episodes']} episodes are all still there", holds=same)
    demo.check(f"the id {PERSON!r} stands in no byte of any file", holds=not _stands(demo.folder, PERSON))
    words = [record["input"] for record in _records() if record.get("user_id") == PERSON and "input" in record]
    gone = not any(_stands(demo.folder, text) for text in words)
    demo.check(f"nor does any of the {len(words)} things that she said", holds=gone)
    recount = await expunge.call("erasure.census", request_id=answer.request_id)
    demo.check("a second, independent count finds 0 records", holds=recount.residue_count == 0)
    stale = {"collection": "facts", "id": "late", "user_id": PERSON, "subject": "s", "predicate": "p", "object": "o"}
    try:
        await expunge.put([stale], as_of={"default": 0})
        refused = False
    except ErasedSince:
        refused = True
    demo.check("a write that began before the erasure, and comes late, is refused", holds=refused)


def _records() -> list[dict[str, Any]]:
    lines = (files("expunge.demo") / "people.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def _stands(folder: Path, text: str) -> bool:
    needle = text.encode()
    return any(needle in path.read_bytes() for path in folder.iterdir())


async def _prove(demo: _Demo, expunge: Expunge, answer: Answer) -> None:
    demo.say(
        "6. prove", "Anybody with the public key can check the receipt.   expunge verify receipt.json --key pub.pem"
    )
    receipts = await expunge.call("erasure.receipts", request_id=answer.request_id)
    ledger = await expunge.call("ledger.export")
    body = receipts.receipts[0].encode()
    pinned = {key.id: key.private.public_key() for key in expunge.system.keys.signing_keys}
    checks = verify(body, pinned, "\n".join(ledger.lines).encode())
    if not demo.as_json:
        show.checks(checks)
    demo.check("the receipt passes", holds=all(check.passed for check in checks))
    forged = body.replace(b'"purge":true', b'"purge":false')
    demo.check("a receipt with one word changed does not", holds=not verify(forged, pinned)[-1].passed)
    demo.check("the receipt does not name her", holds=PERSON not in json.dumps(json.loads(body)))
