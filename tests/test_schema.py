"""Law 3: every table and every column is declared in the data map."""

from __future__ import annotations

import re

import pytest

from expunge import Expunge
from expunge.census import COUNTED
from expunge.datamap import COLLECTIONS, LINEAGE, RECORDS, Act, Role
from expunge.datamap.collections import AUDIT_CLEAR, SEARCH, VECTORS
from expunge.datamap.views import VIEWS
from expunge.model.identity import PARTS
from tests.eye import Schema, schema_of, tamper

pytestmark = pytest.mark.authorities("sqlite", "postgres")

_LOOKS_LIKE_A_SUBJECT = re.compile(r"user|person|subject|session|agent|namespace|email|name|owner|author|actor|who")
_NAMED_OTHERWISE = {"memories.key", "facts.subject", "blocks.name"}
"""Content that only sounds like an identity; it goes with its record."""


def undeclared(schema: Schema) -> list[str]:
    """What the schema holds and the map does not, and the other way round."""
    declared = {kind.name: [column.name for column in kind.columns] for kind in COLLECTIONS}
    declared |= {view.name: list(view.columns) for view in VIEWS}
    faults = [f"table {name}" for name in schema.keys() ^ declared.keys()]
    for name in schema.keys() & declared.keys():
        faults += [f"column {name}.{column}" for column in set(schema[name]) ^ set(declared[name])]
    return faults


async def test_map_and_schema_are_the_same(expunge: Expunge) -> None:
    """Law 3, on the real schema; what is the database's own is named."""
    assert undeclared(schema_of(expunge)) == []


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE notes (org TEXT, user_id TEXT)",
        "ALTER TABLE facts ADD COLUMN person TEXT",
        "CREATE VIEW v AS SELECT 1",
    ],
)
async def test_an_undeclared_table_or_column_fails(expunge: Expunge, ddl: str) -> None:
    """Law 3: the check above can fail."""
    tamper(expunge.settings.db, ddl)
    assert undeclared(schema_of(expunge)) != []


def test_what_looks_like_a_subject_has_a_role() -> None:
    """Law 3: a column that could name somebody says whose it is."""
    personal = {Role.USER, Role.SESSION, Role.AGENT, Role.NAMESPACE, Role.PSEUDONYM, Role.CLEAR_UNTIL_END, Role.ACTOR}
    for kind in COLLECTIONS:
        for column in kind.columns:
            if _LOOKS_LIKE_A_SUBJECT.search(column.name) and f"{kind.name}.{column.name}" not in _NAMED_OTHERWISE:
                assert column.role in personal, f"{kind.name}.{column.name} is {column.role}"


def test_records_carry_every_identity_part_and_an_act() -> None:
    """Law 3: what an erasure does to a collection is said, and a reason where it keeps it."""
    for kind in RECORDS:
        assert {column.name for column in kind.columns} >= {"org", "id", "seq", "marked", *PARTS}
        assert kind.act is Act.REMOVE
        assert kind.rule is not None
    for kind in COLLECTIONS:
        assert (kind.act is Act.KEEP) == bool(kind.keep)


def test_the_census_counts_what_the_map_erases() -> None:
    """Design 5: the two lists are written apart, and are the same."""
    assert set(COUNTED) == {kind.name for kind in (*RECORDS, LINEAGE, SEARCH, VECTORS, AUDIT_CLEAR)}
    assert set(COUNTED) == {kind.name for kind in COLLECTIONS if kind.act is not Act.KEEP}
