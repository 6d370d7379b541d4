"""Make the reference pages from the code, or check that they are in step with it.

Usage: docs.py [--check]
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

from expunge import errors
from expunge.cli.app import app
from expunge.datamap import COLLECTIONS, collection
from expunge.datamap.views import VIEWS
from expunge.operations import OPERATIONS
from expunge.operations.processing import data_map, lineage_of
from expunge.settings import Processing, Settings

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
_MADE = "<!-- Made by tools/docs.py from the code: change it there, then run `make docs`. -->\n"


def settings_page() -> str:
    """Every setting, its default, and what it does."""
    rows = [
        f"| `{name}` | `EXPUNGE_{name.upper()}` | {_default(field.default)} | {field.description} |"
        for name, field in Settings.model_fields.items()
        if name != "processing"
    ]
    rows += [
        f"| `processing.{name}` | only in the file | | {field.description} |"
        for name, field in Processing.model_fields.items()
    ]
    return "\n".join(
        [
            "# Settings",
            "",
            "Read from `expunge.toml` in the working folder (or the file that `EXPUNGE_CONFIG` names), then from the",
            "environment, then from the command line; the later wins. A name that is not in this table is refused.",
            "`EXPUNGE_LOCOMO` and names that begin with `EXPUNGE_TEST_` belong to the tests and are no settings.",
            "A relative `keys_file` in the configuration file is relative to that file.",
            "",
            "| name in the file | in the environment | default | meaning |",
            "| --- | --- | --- | --- |",
            *rows,
        ]
    )


def _default(value: object) -> str:
    return "" if value is None else f"`{value}`"


def errors_page() -> str:
    """The error tree, drawn, with codes and exit codes."""
    lines = [
        "# Errors",
        "",
        "One tree. Every error says what is wrong, with the value (shortened and escaped; never a secret or a",
        "person's text), and what to do next. `code` is stable; with `--json` the error is",
        '`{"detail": {"code", "message", "hint", …}}` on stderr.',
        "",
        "```text",
        *_tree(errors.ExpungeError, ""),
        "```",
        "",
        "| code | exit | means | what to do |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{kind.code}` | {kind.exit_code} | {(kind.__doc__ or '').strip()} | {kind.hint} |"
        for kind in _walk(errors.ExpungeError)
    ]
    return "\n".join(lines)


def _tree(kind: type[errors.ExpungeError], indent: str) -> Iterator[str]:
    yield f"{indent}{kind.__name__}"
    for child in _children(kind):
        yield from _tree(child, indent + "    ")


def _walk(kind: type[errors.ExpungeError]) -> Iterator[type[errors.ExpungeError]]:
    yield kind
    for child in _children(kind):
        yield from _walk(child)


def _children(kind: type[errors.ExpungeError]) -> list[type[errors.ExpungeError]]:
    return [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]


def data_map_page() -> str:
    """The data map as tables: what is kept, and each column's role."""
    lines = [
        "# The data map",
        "",
        "Every collection, declared once; the schema test fails on a table or column that is not here (law 3).",
        "`expunge data-map` prints the same, and `--article-30` the record of processing activities.",
        "",
        "| collection | purpose | on erasure | when a source goes | dated by | lifetime |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for item in data_map():
        act = f"{item['on_erasure']}: {item['why_kept']}" if item["why_kept"] else item["on_erasure"]
        rule, dated = lineage_of(collection(item["collection"])) or "", item["dated_by"] or ""
        lines.append(f"| `{item['collection']}` | {item['purpose']} | {act} | {rule} | {dated} | {item['lifetime']} |")
    lines += ["", "## Columns", ""]
    for kind in COLLECTIONS:
        columns = ", ".join(f"`{column.name}` ({column.role})" for column in kind.columns)
        lines += [f"**{kind.name}**: {columns}", ""]
    lines += [
        "## Views",
        "",
        "For other programs that read the file: see [the operator's own check](../own-check.md).",
        "",
    ]
    for view in VIEWS:
        lines += [f"**{view.name}**: {view.purpose} Columns: " + ", ".join(f"`{name}`" for name in view.columns), ""]
    return "\n".join(lines).rstrip()


def operations_page() -> str:
    """Every operation with its role, input and answer."""
    lines = [
        "# Operations",
        "",
        "One registry; the command line and embedded callers go through it. Local callers act as `operator`.",
        "Roles, each including those before it: `viewer`, `writer`, `admin`, `org_admin`, `operator`.",
    ]
    for operation in OPERATIONS.values():
        nature = "read-only" if operation.read_only else "destructive" if operation.destructive else "writes"
        lines += [
            "",
            f"## `{operation.name}`",
            "",
            f"{operation.summary} Role: `{operation.role.name.lower()}`; {nature}.",
        ]
        answers = " Or: ".join(_fields(model) for model in _models(operation.output))
        lines += ["", f"Input: {_fields(operation.input)}", "", f"Answer: {answers}"]
    return "\n".join(lines)


def _models(output: Any) -> tuple[Any, ...]:
    return get_args(output) or (output,)


def _fields(model: Any) -> str:
    doc = " ".join(inspect.cleandoc(model.__doc__ or "").split())
    names = ", ".join(f"`{name}`" for name in model.model_fields)
    return f"{doc} Fields: {names}." if names else doc


def cli_page() -> str:
    """Every command with its options, and the exit codes."""
    lines = [
        "# Command line",
        "",
        "`expunge [--db URL] [--org NAME] [--json] COMMAND …`; the three may also stand after the command. Data goes",
        "to stdout, progress and errors to stderr. An id that begins with `-` goes after `--` or, for an option, as",
        "`--user=-x`.",
        "",
        "| exit code | means |",
        "| --- | --- |",
        "| 0 | done, and it holds |",
        "| 1 | done, but the answer is no: the erasure failed, records or bytes are left, a receipt did not pass |",
        "| 2 | the input is not valid; nothing was written. `residue`: something could not be looked into |",
        "| 3 | refused: a fence, a hold, a role, something not offered yet, or you said no |",
        "| 4 | the machine: database, keys, disk; an interrupted erasure can be resumed |",
        "| 130 | interrupted from the keyboard |",
    ]
    for command in app.registered_commands:
        lines += _command(command.callback, command.name)
    for group in app.registered_groups:
        for command in group.typer_instance.registered_commands if group.typer_instance else ():
            callback = command.callback
            lines += _command(callback, f"{group.name} {command.name or (callback.__name__ if callback else '')}")
    return "\n".join(lines)


def _command(callback: Callable[..., Any] | None, name: str | None) -> list[str]:
    if callback is None:
        raise AssertionError(name)
    title = name or callback.__name__.replace("_", "-")
    lines = ["", f"## `expunge {title}`", "", inspect.cleandoc(callback.__doc__ or "")]
    rows = []
    for parameter in list(inspect.signature(callback).parameters.values())[1:]:
        info = parameter.annotation.__metadata__[0]
        if parameter.name in ("db", "org", "as_json"):
            continue
        words = [info.default, *(info.param_decls or ())]
        flags = ", ".join(f"`{word}`" for word in words if isinstance(word, str) and word.startswith("-"))
        shown = f"{flags} {info.metavar or ''}".strip() if flags else f"`{info.metavar or parameter.name.upper()}`"
        rows.append(f"| {shown} | {info.help} |")
    return lines + (["", "| option | meaning |", "| --- | --- |", *rows] if rows else [])


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "errors.md": errors_page,
    "data-map.md": data_map_page,
    "operations.md": operations_page,
    "cli.md": cli_page,
}


def broken_links() -> Iterator[str]:
    """Links between pages that lead nowhere."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not (page.parent / link).exists():
                yield f"{page.relative_to(ROOT)}: no such page: {link}"


def main() -> int:
    """Write the pages, or with ``--check`` say which are out of step; 1 when any is."""
    check = sys.argv[1:] == ["--check"]
    faults = list(broken_links()) if check else []
    for name, make in PAGES.items():
        path, text = REFERENCE / name, _MADE + make() + "\n"
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            faults.append(f"docs/reference/{name} is not what the code says: run `make docs`")
    for fault in faults:
        sys.stderr.write(fault + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
