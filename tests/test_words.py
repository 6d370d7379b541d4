"""The words of our SQL: each that is documented is spelled, and means what the table says."""

from __future__ import annotations

import re

import pytest

from expunge import Expunge
from expunge.authority import words
from expunge.authority.port import Statement
from expunge.authority.sqlite.spelling import spelled

WORDS = set(re.findall(r"``(\w+)\(", str(words.__doc__))) | {"first_number"}
SQLITES_OWN = {"json_quote", "instr"}
MEANINGS = {
    "each_text": ("SELECT key, value FROM each_text(:given)", '["b", "a", ""]', [(0, "b"), (1, "a"), (2, "")]),
    "each_number": ("SELECT key, value FROM each_number(:given)", "[7, -1]", [(0, 7), (1, -1)]),
    "each_object": (
        "SELECT text_in(j.value, 'n') FROM each_object(:given) j ORDER BY j.key", '[{"n": "x"}, {}]', [("x",), (None,)],
    ),
    "each_entry": ("SELECT key, value FROM each_entry(:given) ORDER BY key DESC", '{"x": 3, "*": 0}', [("x", 3), ("*", 0)]),
    "text_in": ("SELECT text_in(:given, 'n'), text_in(:given, 'o')", '{"n": [1], "other": 2}', [("[1]", None)]),
    "number_in": ("SELECT number_in(:given, 'n')", '{"n": 9007199254740993}', [(9007199254740993,)]),
    "first_text": ("SELECT first_text(:given, 'n')", '[{"n": "$.x"}, {"n": "no"}]', [("$.x",)]),
    "first_number": ("SELECT first_number(:given, 't')", '[{"t": 0}, {"t": 1}]', [(0,)]),
    "instant_text": (
        "SELECT instant_text(e.value) FROM each_number(:given) e ORDER BY e.key", "[0, 1700000000123456, -1]",
        [('"1970-01-01T00:00:00Z"',), ('"2023-11-14T22:13:20.123456Z"',), ('"1969-12-31T23:59:59.999999Z"',)],
    ),
    "share_text": ("SELECT share_text(0.1), share_text(1.0), length(:given)", "", [("0.1", "1.0", 0)]),
    "json_quote": ("SELECT json_quote(:given) || json_quote(length(:given))", 'a "ü" \\', [('"a \\"ü\\" \\\\"7',)]),
    "instr": ("SELECT instr(:given, 'b'), instr(:given, 'B')", "aüb", [(3, 0)]),
    "least": ("SELECT least(2, 1), least(length(:given), 9)", "abc", [(1, 3)]),
    "digest": (
        "SELECT digest(a.value) = digest(b.value) FROM each_text(:given) a JOIN each_text(:given) b ON a.key = b.key - 1",
        '["a", "a", "A"]', [(True,), (False,)],
    ),
    "unindexed": ("SELECT c.key FROM each_text(:given) c WHERE unindexed(c.value) = 'b'", '["a", "b"]', [(1,)]),
}  # fmt: skip


def test_every_word_of_the_table_has_a_meaning_here():
    assert set(MEANINGS) == WORDS


@pytest.mark.authorities("memory", "postgres")
@pytest.mark.parametrize("word", sorted(MEANINGS))
async def test_a_word_means_what_the_table_says(expunge: Expunge, word: str):
    text, given, rows = MEANINGS[word]
    statement = Statement("test.word", text)
    assert await expunge.system.authority.read(lambda tx: tx.rows(statement, given=given)) == rows


@pytest.mark.parametrize("word", sorted(MEANINGS.keys() - SQLITES_OWN))
def test_sqlite_gets_no_word_that_it_does_not_know(word: str):
    assert not re.search(rf"\b{word}\(", spelled(MEANINGS[word][0]))


@pytest.mark.parametrize("text", ["SELECT uneach_text(1), my_least(2), r.text_in", "SELECT 'text in (a)'"])
def test_what_only_looks_like_a_word_stays_as_it_is(text: str):
    assert spelled(text) == text


@pytest.mark.authorities("memory", "postgres")
async def test_numbers_are_never_given_twice(expunge: Expunge):
    """A number of a row that has gone is not used again: marks may outlive rows."""
    fill = Statement("test.fill", "INSERT INTO sessions (rid, org, id, namespace, agent, user_id, session_id, created_at,"
                     " recorded_at, updated_at, seq) VALUES (:rid, 'o', :id, '-', '-', '-', '-', 0, 0, 0, 0)")  # fmt: skip
    empty = Statement("test.empty", "DELETE FROM sessions")

    def unit(tx):
        first = list(tx.ask_numbers("sessions", 3)())
        tx.change_many(fill, [{"rid": rid, "id": str(rid)} for rid in first])
        tx.change(empty)
        return first, list(tx.ask_numbers("sessions", 2)())

    first, then = await expunge.system.authority.run(unit)
    assert (len(set(first)), len(set(then))) == (3, 2)
    assert min(then) > max(first)
