"""Writing answers: JSON or words on stdout, progress bars on stderr; no id or text can act on the terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from expunge.erasure import Progress as Report
from expunge.errors import InputError
from expunge.model.files import new_file, reason_of

LONGEST = 160
_PIPE_WIDTH = 160
_ACTING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What a terminal may act on: control characters and marks of direction. JSON has them in its strings alone."""


def out() -> Console:
    """The console for data; into a file or a pipe nothing is cut to the width of a terminal."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False, width=width)


def err() -> Console:
    """The console for progress and errors."""
    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def plain(value: object, longest: int = LONGEST) -> Text:
    """Somebody's text as it can be shown: nothing in it acts as markup or control sequence, and it is short."""
    text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(value))
    return Text(text if len(text) <= longest else text[: longest - 1] + "…")


def print_json(value: BaseModel | Any) -> None:
    """Print an answer as JSON."""
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    text = json.dumps(data, ensure_ascii=False, indent=2)
    sys.stdout.write(inert(text) + "\n")


def inert(text: str) -> str:
    """A text in which nothing acts on a terminal; JSON says the same as before, in other bytes."""
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_bytes(data: bytes) -> None:
    """Print a text that is UTF-8: byte for byte into a file or a pipe, and inert on a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(inert(data.decode()))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)


def print_counts(title: str, columns: Mapping[str, Mapping[str, int]]) -> None:
    """Print counts by collection, one column each; rows of zeros are dim."""
    table = plain_table(title, columns)
    rows = dict.fromkeys(name for counts in columns.values() for name in counts)
    for row in rows:
        counts = [columns[name].get(row, "not counted") for name in columns]
        table.add_row(row, *(str(count) for count in counts), style="" if any(counts) else "dim")
    out().print(table)


def plain_table(title: str, columns: Iterable[str]) -> Table:
    """A table of collections, without lines, to be filled row by row."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("collection")
    for name in columns:
        table.add_column(name, justify="right")
    return table


@contextmanager
def bars(*, quiet: bool = False) -> Iterator[Report]:
    """Progress bars on stderr, one a step; nothing when nobody looks at a terminal."""
    console = err()
    columns = (TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        tasks: dict[str, Any] = {}

        def report(step: str, done: int, of: int) -> None:
            for name, task in tasks.items():
                if name != step:
                    total = progress.tasks[task].total or 1
                    progress.update(task, completed=total, total=total)
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=of)
            progress.update(tasks[step], completed=done, total=max(of, 1))

        yield report


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole.

    Raises:
        InputError: it cannot be written.

    """
    with new_file(path) as file:
        file.write(data)


def read_input(name: str) -> bytes:
    """The bytes of a file, or of stdin for ``-``.

    Raises:
        InputError: it cannot be read.

    """
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except (OSError, ValueError) as fault:
        raise InputError(f"{name} cannot be read: {reason_of(fault)}", hint="name a file that is there") from fault
