"""``data-map``: what is kept, as a table, as JSON, and as the record of Article 30 GDPR."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from expunge.cli.calling import deliver, perform
from expunge.cli.options import Target, with_target
from expunge.cli.output import err, out, print_json
from expunge.datamap import collection
from expunge.errors import InputError
from expunge.operations.processing import ArticleThirtyOutput, data_map, lineage_of


def add_to(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("data-map")(with_target(show_data_map))


def show_data_map(
    target: Target,
    *,
    article_30: Annotated[
        bool, typer.Option("--article-30", help="The record of processing activities (Article 30 GDPR), as Markdown.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="With --article-30: write to this file.")
    ] = None,
) -> None:
    """Show every collection, what an erasure does to it, how long it is kept, and what it rests on."""
    if not article_30:
        if file is not None:
            raise InputError(
                "-o is for the record of processing", hint="add --article-30; the table as JSON goes to stdout: --json"
            )
        if target.json:
            print_json({"collections": data_map()})
        else:
            _table(data_map())
        return

    answer: ArticleThirtyOutput = perform(target, "data_map.article_30")
    if target.json and file is None:
        print_json(answer)
        return
    deliver(target, ("\n".join(_record(answer)) + "\n").encode(), file)
    for name in answer.not_said:
        err().print(f"not said yet: {name} (in expunge.toml)", style="yellow")


def _table(found: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
    for column in ("collection", "purpose", "on erasure", "when a source goes", "lifetime"):
        table.add_column(column)
    for item in found:
        act = f"{item['on_erasure']}: {item['why_kept']}" if item["why_kept"] else item["on_erasure"]
        lineage = lineage_of(collection(item["collection"])) or ""
        table.add_row(item["collection"], item["purpose"], act, lineage, item["lifetime"])
    console = out()
    console.soft_wrap = False
    console.print(table)


def _record(said: ArticleThirtyOutput) -> Iterator[str]:
    """The record as Markdown."""
    yield "# Record of processing activities (Article 30 GDPR)"
    yield ""
    for name, text in (
        ("Controller", said.controller),
        ("Contact", said.contact),
        ("Representative", said.representative),
        ("Data protection officer", said.protection_officer),
        ("Legal basis", said.legal_basis),
        ("Data subjects", "; ".join(said.data_subjects)),
        ("Recipients", "; ".join(said.recipients)),
        (
            "Transfers to third countries",
            "; ".join(said.transfers) or ("" if "processing.transfers" in said.not_said else "none"),
        ),
    ):
        if text or name not in ("Representative", "Data protection officer"):
            yield f"- **{name}**: {text or 'not said'}"
    yield "- **Security**: " + "; ".join(said.security)
    yield ""
    yield "| collection | purpose | personal data | when what it rests on goes | kept | on erasure |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for item in said.activities:
        cells = (
            item.collection,
            item.purpose or "not said",
            ", ".join(item.personal_data) or "none",
            item.lineage or "",
            item.kept_for,
            item.on_erasure,
        )
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
