"""What the pages say is so: snippets run, commands exist, the laws and words are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from expunge.cli.app import app

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])


def blocks(language: str) -> list[tuple[str, str]]:
    """Fenced blocks of a language, with the page they stand on."""
    found = []
    for page in PAGES:
        texts = re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        found += [(str(page.relative_to(ROOT)), text) for text in texts]
    return found


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_python_snippets_run(tmp_path: Path, page: str, code: str) -> None:
    """Docs: each snippet runs, and prints what the page says it prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    after = (ROOT / page).read_text(encoding="utf-8").split(code)[1]
    found = re.match(r"```\s+prints(?: `(?P<line>[^`]*)`|\s+```text\n(?P<lines>.*?)```)", after, flags=re.DOTALL)
    assert found is not None, "the page does not say what the snippet prints"
    assert done.stdout.strip() == (found["line"] or found["lines"]).strip()


def test_commands_in_the_pages_exist() -> None:
    """Docs: no page names a command or an option that the program does not have."""
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    names |= {group.name for group in app.registered_groups if group.name}
    for page, text in blocks("console"):
        for line in text.splitlines():
            words = line.removeprefix("$ ").removeprefix(".venv/bin/").split("#")[0].split()
            if not line.startswith("$ ") or not words or words[0] != "expunge":
                continue
            assert words[1] in names, (page, line)
            for option in (word for word in words if word.startswith("--")):
                assert f"`{option}`" in reference or option in ("--db", "--org", "--json"), (page, line)


def test_every_law_has_a_test() -> None:
    """Docs and tests: laws 1 to 16, but 9 (archives) which comes with retention, stand in a test's docstring."""
    said = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    numbers: set[int] = set()
    for found in re.findall(r"[Ll]aws? ((?:\d+(?:, | to | and )?)+)", said):
        plain = [int(number) for number in re.findall(r"\d+", found)]
        numbers |= set(range(plain[0], plain[-1] + 1)) if " to " in found else set(plain)
    assert numbers >= set(range(1, 17)) - {9}
