"""What our SQLite is taught for search: how often the words of a query stand in an entry of the index."""

from __future__ import annotations

from array import array
from typing import Any

import apsw

_WORDS_COLUMN = 1
_MOST = 2**16 - 1


def teach(connection: apsw.Connection) -> None:
    """Give a connection the function ``counted``.

    Of each entry that a match finds it answers, as whole numbers of 16 bits, how often each phrase of the match stands
    in its words, and how many words it has. SQLite's own ``bm25`` answers a rank at once, but counts every phrase in
    the whole index for it, whoever asks.
    """
    connection.register_fts5_function("counted", _counted)


def _counted(api: apsw.FTS5ExtensionApi, *_: Any) -> bytes:
    counts = [len(api.phrase_locations(phrase)[_WORDS_COLUMN]) for phrase in range(api.phrase_count)]
    return array("H", [min(count, _MOST) for count in (*counts, api.column_size(_WORDS_COLUMN))]).tobytes()
