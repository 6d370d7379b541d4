"""The data map as a record of processing."""

from __future__ import annotations

from pathlib import Path

import pytest

from expunge import Expunge, Settings
from expunge.datamap import COLLECTIONS
from expunge.errors import SettingsError
from tests.shell import Shell

_CONFIG = """
[processing]
controller = "Regatta Ltd, 1 Quay"
contact = "privacy@example.org"
data_subjects = ["members"]
recipients = ["none"]
transfers = []
legal_basis = "contract"
purpose = "answering members"
purposes = { facts = "knowing | allergies" }
retention = { episodes = "two years" }
"""


def test_the_record_joins_the_map_and_the_settings(tmp_path: Path) -> None:
    """Law 3: every collection is in the record of Article 30, with purpose and retention from the settings."""
    shell = Shell(tmp_path)
    shell.run("load", "-", stdin=b"")
    (tmp_path / "expunge.toml").write_text(_CONFIG)
    said = shell.json("data-map", "--article-30")
    by_name = {item["collection"]: item for item in said["activities"]}
    assert set(by_name) == {kind.name for kind in COLLECTIONS}
    assert (said["controller"], said["not_said"]) == ("Regatta Ltd, 1 Quay", [])
    assert by_name["facts"]["purpose"] == "knowing | allergies"
    assert (by_name["episodes"]["purpose"], by_name["episodes"]["kept_for"]) == ("answering members", "two years")
    assert by_name["events"]["lineage"] == "goes with its episode"
    assert by_name["ledger"]["purpose"].startswith("the proof of erasure")
    shell.run("data-map", "--article-30", "-o", "record.md")
    assert "- **Transfers to third countries**: none\n" in (tmp_path / "record.md").read_text()
    rows = [line for line in (tmp_path / "record.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == len(COLLECTIONS) + 2
    assert "| facts | knowing \\| allergies |" in rows[7]


async def test_what_nobody_has_said_is_named(in_memory: Expunge) -> None:
    """Law 16: a record without a controller or a purpose says so, instead of looking whole."""
    said = await in_memory.call("data_map.article_30")
    assert set(said.not_said) == {
        "processing.controller",
        "processing.contact",
        "processing.data_subjects",
        "processing.recipients",
        "processing.transfers",
        "processing.legal_basis",
        "processing.purpose",
    }
    assert {item.purpose for item in said.activities[:11]} == {None}


def test_no_transfer_is_denied_that_nobody_has_denied(tmp_path: Path) -> None:
    """Law 16: a record that was asked for before anything was said does not say that nothing leaves the Union."""
    shell = Shell(tmp_path)
    shell.run("load", "-", stdin=b"")
    assert b"- **Transfers to third countries**: not said\n" in shell.run("data-map", "--article-30").stdout


@pytest.mark.parametrize("table", ["purposes", "retention"])
async def test_a_collection_that_is_none_is_refused(table: str) -> None:
    """Bad input: a purpose for something that is no collection is a fault of the settings, not passed over."""
    wrong = Settings.model_validate({"db": ":memory:", "processing": {table: {"memory": "x"}}})
    async with Expunge(settings=wrong) as expunge:
        with pytest.raises(SettingsError, match="'memory' is not a collection"):
            await expunge.call("data_map.article_30")
