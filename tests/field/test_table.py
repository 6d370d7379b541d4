"""The table of field reports: every row of the list stands in it, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
REPORTS = range(1, 136, 2)
"""The numbers of the list that was worked through."""
_ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def _rows() -> dict[int, tuple[str, ...]]:
    found = _ROW.findall((ROOT / "docs" / "field-reports.md").read_text(encoding="utf-8"))
    assert len(found) == len({number for number, *_ in found})
    return {int(number): tuple(cells) for number, *cells in found}


def test_every_report_has_its_row() -> None:
    """Field reports: none is left out, and one without a test says with what it will come."""
    rows = _rows()
    assert list(rows) == list(REPORTS)
    for number, (_, _, found, guards) in rows.items():
        assert _TEST.findall(guards) or "not here yet: comes with" in found, number


def test_every_test_that_guards_a_report_is_there() -> None:
    """Field reports: a test that was renamed or removed guards nothing."""
    for number, cells in _rows().items():
        for name, test in _TEST.findall(cells[-1]):
            file = ROOT / name if name.startswith("tests/") else HERE / name
            assert re.search(rf"^(async )?def {test}\(", file.read_text(encoding="utf-8"), re.MULTILINE), (number, test)


def test_every_test_of_reports_guards_one() -> None:
    """Field reports: a test in this folder that no row names belongs elsewhere."""
    named = {test for cells in _rows().values() for _, test in _TEST.findall(cells[-1])}
    files = [file for file in HERE.glob("test_*.py") if file != Path(__file__)]
    here = {
        test
        for file in files
        for test in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert here - named == set()
