"""Make docs/subject-request.md, a person's request from the letter to the verified receipt, by doing each step.

Usage: subject_request.py [--check]

The words stand in subject_request.md beside this file. Every command of theirs is run by the command line itself, in an
empty folder, on the records of the demo. What is random or of the moment is shortened to `…`, so that `--check` can say
whether the page still is what the code answers.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from shortened import shortened
from typer.testing import CliRunner

from expunge.cli.app import app

TEXT = Path(__file__).resolve().with_suffix(".md")
PAGE = TEXT.parent.parent / "docs" / "subject-request.md"
_MADE = "<!-- Made by tools/subject_request.py by running each command: change it there, then run `make docs`. -->\n"
_NOW = re.compile(r"\b20(?:2[6-9]|[3-9]\d)-\d\d-\d\d(?:T[0-9:.]+Z)?")
_REQUEST = re.compile(r"\ber-[0-9a-f]{24}")
_SIZES = re.compile(r"\b\d+(?:[.,]\d+)*(?= (?:bytes|KiB|MiB))|(?<=\.db at )\d+")
_RUN = re.compile(r"^```run\n(.*?)^```\n", flags=re.DOTALL | re.MULTILINE)


def main() -> int:
    """Write the page, or compare it with what the code answers now."""
    page = make_page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
            sys.stderr.write(f"{PAGE} is not what the code answers now: make docs\n")
            return 1
        return 0
    PAGE.write_text(page, encoding="utf-8")
    return 0


def make_page() -> str:
    """The page, from what each command answers; its blocks of commands are run in order."""
    with _folder() as folder:
        steps = _Steps(folder)
        return _MADE + _RUN.sub(lambda found: steps.block(found[1]), TEXT.read_text(encoding="utf-8"))


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    before = Path.cwd()
    kept = {name: value for name, value in os.environ.items() if name.startswith("EXPUNGE_")}
    with tempfile.TemporaryDirectory(prefix="expunge-docs-") as name:
        folder = Path(name)
        (folder / "people.jsonl").write_bytes((files("expunge.demo") / "people.jsonl").read_bytes())
        (folder / "expunge.toml").write_text(_CONFIG, encoding="utf-8")
        for variable in kept:
            del os.environ[variable]
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)
            os.environ.update(kept)


class _Steps:
    """The commands of the page, one after the other; the id of the newest erasure stands for `er-…` in the next."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._request = folder, ""

    def block(self, commands: str) -> str:
        said = ["```console"]
        for line in commands.splitlines():
            said += [f"$ {line}", *self._run(line)]
        return "\n".join([*said, "```\n"])

    def _run(self, line: str) -> list[str]:
        command, _, comment = line.partition("  # exits ")
        words = shlex.split(command.replace("er-…", self._request))[1:]
        done = CliRunner().invoke(app, words, prog_name="expunge", env={"COLUMNS": "120"})
        if done.exit_code != int(comment or 0):
            raise RuntimeError(f"{line} ended with {done.exit_code}: {done.output} {done.exception!r}")
        if found := _REQUEST.search(done.stdout):
            self._request = found[0]
        text = shortened(_SIZES.sub("…", _NOW.sub("…", done.output.replace(str(self._folder), "…"))))
        return [kept for kept in (part.rstrip() for part in text.splitlines()) if kept]


_CONFIG = """\
[processing]
controller = "The sailing club, 1 Quay Street"
contact = "privacy@example.org"
data_subjects = ["members who talk with the club's agents"]
recipients = ["nobody"]
transfers = []
legal_basis = "contract with the members"
purpose = "helping members with boats and races"
"""


if __name__ == "__main__":
    sys.exit(main())
