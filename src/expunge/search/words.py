"""Words as the index knows them: keyed hashes, so that no word that somebody wrote stands in it (design 6, law 14).

Each hash takes in the org, so a word of one org is never found by another. There is no search by the beginning of a
word: a hash has none.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from expunge.errors import InputError
from expunge.model.identity import PARTS

MOST_QUERY_WORDS = 1000
"""The most different words that a query may have."""
NARROWEST_FIRST = ("session_id", "user_id", "agent", "namespace")

_WORD_BYTES, _OWNER_BYTES = 6, 12
_KEPT = 100_000
"""How many hashes of an org's words are kept in memory."""
_PLAIN_WORD = re.compile(r"[a-z0-9_]+")
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\u0e00-\u0e7f]"  # written without blanks: sign by sign
    r"|[^\W\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\u0e00-\u0e7f]+"
)


@dataclass(frozen=True, slots=True)
class Match:
    """What is looked for in the index: any of some words, among what has the hash of an owner, if one is given."""

    owner: str | None
    words: tuple[str, ...]

    @property
    def phrase(self) -> str:
        """The same as FTS5 reads it."""
        any_word = " OR ".join(f'"{word}"' for word in self.words)
        owned = "" if self.owner is None else f'owner : "{self.owner}" AND '
        return f"{owned}words : ({any_word})"


class Words:
    """Makes the hashes of one key. Those of frequent words are kept, in memory only."""

    def __init__(self, secret: bytes) -> None:
        self._key = hashlib.blake2b(b"expunge/search/1", key=secret, digest_size=32).digest()
        self._known: dict[str, dict[str, str]] = {}

    def hashed(self, org: str, texts: Iterable[str | None]) -> str:
        """The words of some texts in their order, as the index takes them."""
        known = self._known.setdefault(org, {})
        if len(known) >= _KEPT:
            known.clear()
        return " ".join([known.get(word) or self._make(org, word) for text in texts if text for word in words_of(text)])

    def owner(self, identity: tuple[str, ...]) -> str:
        """The hashes of whose a record is, from its stored identity."""
        org, *stored = identity
        parts = (("org", org), *zip(PARTS, stored, strict=True))
        return " ".join(self._owner(org, part, value) for part, value in parts)

    def query(self, org: str, text: str, parts: Mapping[str, str]) -> Match | None:
        """What finds any of the words of a text, among what belongs to the narrowest of some parts; ``None`` for none.

        One part is enough to be quick, and the rest is looked at in the records themselves.

        Raises:
            InputError: the text has too many different words.

        """
        wanted = list(dict.fromkeys(words_of(text)))
        if len(wanted) > MOST_QUERY_WORDS:
            raise InputError(f"the query has {len(wanted)} different words, more than {MOST_QUERY_WORDS}")
        if not wanted:
            return None
        part = next((part for part in NARROWEST_FIRST if part in parts), None)
        owner = None if part is None else self._owner(org, part, parts[part])
        return Match(owner, tuple(self._make(org, word) for word in wanted))

    def owned_by(self, org: str, parts: Mapping[str, str]) -> str:
        """The hashes that every entry has that belongs to all of some parts; with none of them, to the org."""
        wanted = parts or {"org": org}
        return " ".join(self._owner(org, part, value) for part, value in wanted.items())

    def _owner(self, org: str, part: str, value: str) -> str:
        return self._hash(f"{part}\0{org}\0{value}", _OWNER_BYTES)

    def _make(self, org: str, word: str) -> str:
        token = self._hash(f"word\0{org}\0{word}", _WORD_BYTES)
        self._known.setdefault(org, {})[word] = token
        return token

    def _hash(self, text: str, size: int) -> str:
        return hashlib.blake2b(text.encode(), key=self._key, digest_size=size).hexdigest()


def words_of(text: str) -> list[str]:
    """The words of a text, in the form in which they are compared: without case, accents or other spellings."""
    if text.isascii():
        return _PLAIN_WORD.findall(text.lower())
    text = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
