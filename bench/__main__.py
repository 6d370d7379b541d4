"""``python -m bench [--quick] [--only NAME] [--json FILE] [--list]``."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rich.console import Console

from bench.agents import one_by_one, thousand
from bench.audit import verifying
from bench.breakdown import breakdown_many, breakdown_one
from bench.erasure import QUICK, Sizes, many_users, one_linked_user, one_user
from bench.export import export_all, export_one
from bench.harness import Report, as_markdown, machine, show
from bench.other import load, opening
from bench.peer import peer
from bench.peer_served import served_peer
from bench.postgres import served_erasure, served_one, served_thousand, served_writers
from bench.recall import beside, recall
from bench.scopes import hide_and_restore, one_namespace

BENCHMARKS: dict[str, Callable[[Path, Sizes], Awaitable[Report]]] = {
    "one-user": one_user,
    "one-linked-user": one_linked_user,
    "500-users": many_users,
    "hide-and-restore": hide_and_restore,
    "one-namespace": one_namespace,
    "one-breakdown": breakdown_one,
    "500-breakdown": breakdown_many,
    "load": load,
    "opening": opening,
    "agents-one": one_by_one,
    "agents-1000": thousand,
    "recall": recall,
    "beside-readers": beside,
    "postgres-one": served_one,
    "postgres-1000": served_thousand,
    "postgres-writers": served_writers,
    "postgres-erasure": served_erasure,
    "postgres-peer": served_peer,
    "export-all": export_all,
    "export-one": export_one,
    "audit": verifying,
    "peer": peer,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that were asked for, and tell the figures."""
    given = _parser().parse_args(arguments)
    if given.list:
        print("\n".join(f"{name:16} {(run.__doc__ or '').splitlines()[0]}" for name, run in BENCHMARKS.items()))
        return
    sizes = QUICK if given.quick else Sizes()
    facts, reports = asyncio.run(_run(given.only or list(BENCHMARKS), sizes))
    if given.json:
        _write_json(given.json, facts, reports)
    if given.markdown:
        _write_markdown(given.markdown, facts, reports)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Costs, as ratios to a floor.")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not what it costs")
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), help="may be given again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there, as README.md has them")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and end")
    return parser


async def _run(names: Sequence[str], sizes: Sizes) -> tuple[dict[str, str], dict[str, Report]]:
    console = Console(width=120)
    reports: dict[str, Report] = {}
    with tempfile.TemporaryDirectory(prefix="expunge-bench-") as folder:
        facts = machine(Path(folder))
        for name, value in facts.items():
            console.print(f"{name}: {value}", highlight=False)
        for name in names:
            reports[name] = await BENCHMARKS[name](Path(folder), sizes)
            show(console, reports[name])
    return facts, reports


def _write_json(path: Path, facts: dict[str, str], reports: dict[str, Report]) -> None:
    figures = {name: report.values for name, report in reports.items()}
    path.write_text(json.dumps({"machine": facts, "figures": figures}, indent=2) + "\n", encoding="utf-8")


def _write_markdown(path: Path, facts: dict[str, str], reports: dict[str, Report]) -> None:
    head = "\n".join(f"- {name}: {value}" for name, value in facts.items()) + "\n"
    path.write_text("\n".join([head, *(as_markdown(report) for report in reports.values())]), encoding="utf-8")


if __name__ == "__main__":
    main()
