"""``expunge residue``: its options, and its answer in words. The texts themselves are never shown."""

from typing import Annotated

import typer
from rich.text import Text

from expunge.cli.calling import perform, tell
from expunge.cli.options import Target, with_target
from expunge.cli.output import err, out, plain, read_input
from expunge.errors import EXIT_INPUT, EXIT_NOT_DONE, InputError
from expunge.operations.residue import HitShown, ResidueOutput
from expunge.residue import LEAST_EXPORTED

EXIT_UNKNOWN = EXIT_INPUT
"""Something could not be looked into: neither yes nor no."""
_EXITS = {"nothing": 0, "accounted": 0, "residue": EXIT_NOT_DONE, "unknown": EXIT_UNKNOWN}
_LINES = 20
"""How many hits, files and reasons are printed of each sort; ``--json`` has all that the answer shows."""
_WORDS = {
    "nothing": ("nothing found", "bold green"),
    "accounted": ("every hit is accounted for by a record", "bold green"),
    "residue": ("residue: some hits are accounted for by no record", "bold red"),
    "unknown": ("unknown: some files could not be looked into", "bold yellow"),
}


@with_target
def residue(
    target: Target,
    text: Annotated[list[str] | None, typer.Option("--text", metavar="S", help="A text; repeat for more.")] = None,
    texts_from: Annotated[
        str | None, typer.Option("--texts-from", metavar="FILE", help="One text a line; - reads stdin.")
    ] = None,
    from_export: Annotated[
        str | None, typer.Option("--from-export", metavar="FILE", help="Every text of an export; - reads stdin.")
    ] = None,
    least: Annotated[
        int, typer.Option("--least", metavar="N", help="Leave texts of an export out that have fewer bytes.")
    ] = LEAST_EXPORTED,
) -> int:
    """Look for texts in every byte that the stores keep; exit 1 when one stands there without a record, 2 when unknown.

    Each hit comes with the record that accounts for it, if there is one: another person's same words stand by right.
    """
    texts = [*(text or ()), *(_lines(texts_from) if texts_from is not None else ())]
    export = None if from_export is None else read_input(from_export)

    answer: ResidueOutput = perform(target, "system.residue", texts=texts, export=export, least=least)
    tell(target, answer, _show)
    return _EXITS[answer.verdict]


def _lines(name: str) -> list[str]:
    """The lines of a file as they are: a text is not trimmed, and an empty line is none."""
    try:
        lines = read_input(name).decode().split("\n")
    except UnicodeDecodeError:
        raise InputError(f"{name} is not UTF-8", hint="write one text a line, in UTF-8") from None
    return [line.removesuffix("\r") for line in lines if line.removesuffix("\r")]


def _show(answer: ResidueOutput) -> None:
    console = out()
    left_out = f", {answer.too_short} shorter ones left out" if answer.too_short else ""
    size = sum(file.bytes for file in answer.files)
    console.print(f"{answer.texts} texts{left_out}, looked for in {len(answer.files)} files of {size} bytes")
    console.print(f"forms: {', '.join(answer.forms)}", style="dim")
    ordered = sorted(answer.shown, key=lambda hit: hit.standing != "nothing")
    for hit in ordered[:_LINES]:
        console.print(_hit(hit))
    if answer.hits > _LINES:
        console.print(f"… of {answer.hits} hits; with --json up to 100 of each text, and all are counted")
    for item in answer.unknown[:_LINES]:
        console.print(Text.assemble(("unknown: ", "yellow"), plain(f"{item.file}: {item.why}", 500)))
    if len(answer.unknown) > _LINES:
        console.print(f"… of {len(answer.unknown)} that are unknown")
    if answer.not_text:
        console.print(f"{len(answer.not_text)} files are no text (pictures, sound): their bytes were looked through")
    for what in answer.not_searched:
        console.print(Text("not looked into: ", "dim").append_text(plain(what)))
    words, style = _WORDS[answer.verdict]
    counts = f"{answer.hits} hits, {answer.residue} of them or of pieces without a record, {answer.hidden} hidden"
    console.print(Text.assemble((words, style), f" ({counts}, {len(answer.unknown)} unknown)"))
    if answer.changed:
        err().print("the database changed meanwhile: look again, best when nobody writes")


def _hit(hit: HitShown) -> Text:
    found = "" if hit.standing != "nothing" else "residue: "
    what = f"text {hit.text} ({hit.length} bytes), {hit.form}{', a piece' if hit.piece else ''}"
    where = f"{hit.file}{'' if hit.offset is None else f' at {hit.offset}'}"
    inside = f" in {hit.within}" if hit.within else ""
    whose = f" {hit.record} of {hit.collection}" if hit.record else ""
    hidden = f", hidden by erasure {hit.erasure} until {hit.until}" if hit.until else ""
    line = f"{what}: {where}{inside}, {hit.place}: {hit.why}{whose}{hidden}"
    return Text.assemble((found, "bold red"), plain(line, 500))
