"""Search: what words and vectors find, in whose records, and what is never found."""

from __future__ import annotations

from typing import Any

import pytest

from expunge import ANY, Agent, Episode, Expunge, NewFact, Settings
from expunge.errors import InputError
from expunge.model.instant import ManualClock
from tests.agents.kit import ORG, after, as_user, change, count, read, texts
from tests.eye import is_served

pytestmark = pytest.mark.authorities("sqlite", "postgres")

PARTS = ("namespace", "agent", "user_id", "session_id")


SPELLINGS = (
    ("The quick brown fox", "FOX"),
    ("Straße in Zürich", "strasse zurich"),
    ("Ju\u0308rgen", "JÜRGEN"),
    ("crème brûlée", "creme"),
    ("ｆｕｌｌ width", "full"),
    ("私は東京に住んでいます", "東京"),
    ("서울에 살아요", "서울"),
    ("user_id=42", "user_id"),
    ("Москва", "москва"),
)


@pytest.mark.authorities("memory", "postgres")
async def test_words_are_found_in_any_spelling(expunge: Expunge) -> None:
    """Words are compared without case, accents or other spellings, also in scripts without blanks."""
    async with as_user(expunge) as agent:
        for said, _ in SPELLINGS:
            await agent.memory.set(said, said)
        for said, query in SPELLINGS:
            hits = (await expunge.call("search.find", org=ORG, query=query, kinds=["memories"], alpha=1.0)).hits
            assert [(hit.text, hit.by_words, hit.by_vector) for hit in hits] == [(said, 1, None)], query


@pytest.mark.authorities("memory", "postgres")
async def test_vectors_find_what_is_spelled_wrong(expunge: Expunge) -> None:
    """The default embedder finds spellings that no word of the index has; words alone do not."""
    async with as_user(expunge) as agent:
        await agent.memory.remember(Episode(input="a holiday in Barcelona"))
        await agent.memory.remember(Episode(input="the invoice of May"))
        scored = await agent.memory.recall_scored("Barcelonna")
        assert texts(scored.hits)[:1] == ["a holiday in Barcelona"]
        assert (scored.hits[0].by_words, scored.hits[0].by_vector, scored.vectors) == (None, 1, "all")
        assert (await agent.memory.recall_scored("Barcelonna", alpha=1)).hits == []
        both = await agent.memory.recall_scored("holiday in Barcelona")
        assert (both.hits[0].by_words, both.hits[0].by_vector) == (1, 1)
        assert both.hits[0].score > (await agent.memory.recall_scored("Barcelonna")).hits[0].score


async def test_an_embedder_may_be_left_out(clock: ManualClock) -> None:
    """With ``embedder="none"`` words are found, nothing is compared, and no vector is written."""
    async with (
        Expunge(settings=Settings(db=":memory:", embedder="none"), clock=clock) as opened,
        as_user(opened) as agent,
    ):
        await agent.memory.remember(Episode(input="a holiday in Barcelona"))
        scored = await agent.memory.recall_scored("barcelona")
        assert (texts(scored.hits), scored.vectors) == (["a holiday in Barcelona"], "none")
        assert await agent.memory.recall("Barcelonna") == []
        assert await count(opened, "vectors", "search_docsize") == {"vectors": 0, "search_docsize": 1}


@pytest.mark.authorities("memory", "postgres")
async def test_every_part_of_an_identity_filters(expunge: Expunge) -> None:
    """A search is narrowed by each part: to somebody, to nobody, or (``ANY``) not at all."""
    async with Agent(expunge, org=ORG) as agent:
        owners: list[dict[str, Any]] = [{}]
        owners += [{part: value} for part in PARTS for value in ("one", "two")]
        owners += [{"user_id": "one", "namespace": "one"}]
        for owner in owners:
            await agent.memory.set("k", f"apple {sorted(owner.items())}", **owner)
        everyone: Any = dict.fromkeys(PARTS, ANY)
        for query in ("apple", ""):
            found = await agent.memory.search(query, limit=50, **everyone)
            assert len(found) == len(owners)
            for part in PARTS:
                for value in ("one", None):
                    narrowed: Any = everyone | {part: value}
                    hits = await agent.memory.search(query, limit=50, **narrowed)
                    wanted = {f"apple {sorted(owner.items())}" for owner in owners if owner.get(part) == value}
                    assert set(texts(hits)) == wanted, (query, narrowed)
                    assert {getattr(hit, part) for hit in hits} == {value}
            nobody: Any = dict.fromkeys(PARTS)
            assert texts(await agent.memory.search(query, **nobody)) == ["apple []"]
            unbound = await agent.memory.search(query)  # bound to nobody, in any session
            assert len(unbound) == 3


@pytest.mark.authorities("memory", "postgres")
async def test_orgs_never_see_each_other(expunge: Expunge) -> None:
    """Law 12, issue 4: two orgs with the same user id, the same words and keys: neither sees the other's, in any read."""
    everyone: Any = dict.fromkeys(PARTS, ANY)
    async with as_user(expunge, org="acme") as acme, as_user(expunge, org="umbrella") as umbrella:
        for agent, word in ((acme, "secret of acme"), (umbrella, "secret of umbrella")):
            await agent.memory.set("k", word)
            await agent.memory.remember(Episode(input=word, session_id="s"))
            await agent.memory.add_fact(NewFact(subject="user", predicate="says", object=word))
            await agent.memory.add_document("T", text=word)
        kinds: Any = ["episodes", "memories", "facts", "chunks"]
        for agent, word in ((acme, "acme"), (umbrella, "umbrella")):
            for query in ("secret", "acme umbrella", ""):
                found = texts(await agent.memory.search(query, kinds=kinds, limit=50, **everyone))
                assert len(found) == 4
                assert all(word in text for text in found)
        assert (await acme.memory.forget(user_id="ann")) == 6
        assert await acme.memory.search("", kinds=kinds, **everyone) == []
        assert len(await umbrella.memory.search("secret", kinds=kinds)) == 4
        assert (await umbrella.memory.get("k")).value == "secret of umbrella"


@pytest.mark.authorities("memory", "postgres")
async def test_what_is_not_served_is_not_found(expunge: Expunge, clock: ManualClock) -> None:
    """Law 6: replaced, deleted, expired and hidden records are found by neither words nor vectors, nor as the newest."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.set("replaced", "strawberry old")
        await memory.set("replaced", "pear")
        await memory.set("deleted", "strawberry deleted")
        await memory.delete("deleted")
        await memory.set("expired", "strawberry expired", ttl_seconds=1)
        await memory.set("hidden", "strawberry hidden", session_id="s")
        await memory.set("stands", "strawberry stands")
        clock.advance(1)
        hidden = await agent.erasure.request(session_id="s")
        for query in ("strawberry", "strawbery", ""):
            assert set(texts(await memory.search(query))) - {"pear"} == {"strawberry stands"}, query
        await agent.erasure.restore(hidden.request_id)
        await memory.restore("deleted")
        assert set(texts(await memory.search("strawberry"))) == {
            "strawberry stands",
            "strawberry hidden",
            "strawberry deleted",
        }
        assert set(texts(await memory.search("strawbery", alpha=0))) == {
            "strawberry stands",
            "strawberry hidden",
            "strawberry deleted",
        }


@pytest.mark.authorities("memory", "postgres")
async def test_an_empty_query_gives_the_newest(expunge: Expunge) -> None:
    """Without a text the newest come first, of all kinds together, within the times that are asked for."""
    async with as_user(expunge) as agent:
        for n in (2, 0, 3, 1):
            await agent.memory.remember(Episode(input=f"e{n}", occurred_at=after(minutes=n - 10)))
        await agent.memory.set("k", "newest")
        assert texts(await agent.memory.recall("", limit=3)) == ["e3", "e2", "e1"]
        assert texts(await agent.memory.recall("  \n")) == ["e3", "e2", "e1", "e0"]
        found = await agent.memory.search("", kinds=["episodes", "memories"], limit=2)
        assert texts(found) == ["newest", "e3"]
        bounds: dict[str, Any] = {"since": after(minutes=-9), "until": after(minutes=-7)}
        assert texts(await agent.memory.recall("", **bounds)) == ["e2", "e1"]
        assert set(texts(await agent.memory.recall("e0 e1 e2 e3", **bounds))) == {"e1", "e2"}


@pytest.mark.authorities("memory", "postgres")
async def test_a_memory_type_narrows_memories(expunge: Expunge) -> None:
    async with as_user(expunge) as agent:
        await agent.memory.set("a", "apple note", memory_type="note")
        await agent.memory.set("b", "apple plain")
        assert texts(await agent.memory.search("apple", memory_type="note")) == ["apple note"]
        assert texts(await agent.memory.search("", memory_type="note")) == ["apple note"]
        assert await agent.memory.search("apple", memory_type="other") == []


@pytest.mark.authorities("memory", "postgres")
async def test_search_looks_on_while_much_is_filtered_out(expunge: Expunge) -> None:
    """Law 11: what stands is found behind any number of entries that are not served any more."""
    async with as_user(expunge) as agent:
        for _ in range(2):
            await agent.memory.set_many([{"key": "k", "value": "apple apple apple"} for _ in range(600)])
        await agent.memory.set("k", "pear")
        await agent.memory.set("stands", "apple and very many other words that make it rank below all of the others")
        for limit in (10, 1):
            found = await agent.memory.search("apple", alpha=1, limit=limit)
            assert [hit.record["key"] for hit in found] == ["stands"]


@pytest.mark.authorities("memory", "postgres")
async def test_the_words_of_others_say_nothing_about_an_order(expunge: Expunge) -> None:
    """How rare a word is, is counted among what the asker may find: Bob's words and deleted ones change no order."""
    async with as_user(expunge) as agent:
        values = {"a": "apple one", "b": "apple two", "c": "pear three"}
        await agent.memory.set_many(values)

        async def order() -> list[tuple[str, float]]:
            hits = await agent.memory.search("apple pear", kinds=["memories"], alpha=1)
            return [(hit.record["key"], hit.score) for hit in hits]

        alone = await order()
        assert [key for key, _ in alone] == ["c", "b", "a"]  # the rare word first, then the newer of two equal ones
        await agent.memory.set_many({f"k{n}": "pear four" for n in range(50)}, user_id="bob")
        assert await order() == alone
        for number in range(3):
            await agent.memory.set(f"gone{number}", "pear five")
            await agent.memory.delete(f"gone{number}")
        assert await order() == alone


async def test_vectors_are_compared_up_to_a_limit_that_is_said(clock: ManualClock) -> None:
    """Law 11: above ``vector_scan_rows`` the newest and what the words found are compared, and the answer says so."""
    async with (
        Expunge(settings=Settings(db=":memory:", vector_scan_rows=3), clock=clock) as opened,
        as_user(opened) as agent,
    ):
        await agent.memory.remember(Episode(input="Barcelona, the oldest"))
        await agent.memory.remember_many(Episode(input=f"something else {n}") for n in range(2))
        assert (await agent.memory.recall_scored("Barcelonna")).vectors == "all"
        await agent.memory.remember_many(Episode(input=f"something else {n}") for n in range(3))
        misspelled = await agent.memory.recall_scored("Barcelonna")
        assert (misspelled.vectors, "Barcelona, the oldest" in texts(misspelled.hits)) == ("newest", False)
        by_word = await agent.memory.recall_scored("Barcelona")
        assert by_word.hits[0].text == "Barcelona, the oldest"
        assert (by_word.hits[0].by_words, by_word.hits[0].by_vector, by_word.vectors) == (1, 1, "newest")
        assert (await agent.memory.recall_scored("Barcelona", user_id="bob")).hits == []


@pytest.mark.authorities("memory", "postgres")
async def test_a_long_query_is_refused(expunge: Expunge) -> None:
    """Law 11: the limit of a query is named: above it there is an error, and no silent cut."""
    async with as_user(expunge) as agent:
        await agent.memory.set("k", "w999")
        query = " ".join(f"w{n}" for n in range(1000))
        assert texts(await agent.memory.search(query)) == ["w999"]
        assert texts(await agent.memory.search(query + " " + query)) == ["w999"]
        with pytest.raises(InputError):
            await agent.memory.search(query + " w1000")
        assert await agent.memory.search("?! …") == []
        for operators in ('"', "w999 OR", "NEAR(", "owner : x", "w*", "'; --", "(w999"):
            await agent.memory.search(operators)


async def test_no_plain_word_stands_in_the_index(expunge: Expunge) -> None:
    """Law 14, design 6: the tables of the index hold hashes: no word and no id that somebody wrote."""
    words = ("xylophone", "zanzibar", "quokka", "wombat", "ocelot", "tapirann")
    async with as_user(expunge, "tapirann") as agent:
        await agent.memory.set("xylophone", "Zanzibar")
        await agent.memory.remember(Episode(input="quokka", output="wombat", session_id="ocelot"))
        await agent.memory.add_fact(NewFact(subject="quokka", predicate="eats", object="wombat"))
        await agent.memory.add_document("T", text="ocelot wombat")
        tables = ["search"] if is_served(expunge.settings.db) else ["search_data", "search_docsize", "search_idx"]
        raw = b""
        for table in tables:
            for row in await read(expunge, f"SELECT * FROM {table}"):
                raw += b"\0".join(value if isinstance(value, bytes) else str(value).encode() for value in row)
        raw += b"".join(vector for (vector,) in await read(expunge, "SELECT vector FROM vectors"))
        assert len(raw) > 500
        assert [word for word in words if word.encode() in raw.lower()] == []


@pytest.mark.authorities("memory", "postgres")
async def test_an_index_that_was_lost_is_made_anew(expunge: Expunge) -> None:
    """``search.reindex`` makes what is missing, for every kind, once; hidden records get theirs when they are back."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.set_many({f"k{n}": f"apple {n}" for n in range(4)})
        await memory.delete("k3")
        await memory.remember(Episode(input="apple"))
        await memory.add_fact(NewFact(subject="apple", predicate="is", object="red"))
        await memory.add_document("T", text="apple")
        kinds: Any = ["episodes", "memories", "facts", "chunks"]
        before = {(hit.collection, hit.text) for hit in await memory.search("apple", kinds=kinds)}
        assert len(before) == 6
        await change(expunge, "DELETE FROM search")
        await change(expunge, "DELETE FROM vectors")
        assert await memory.search("apple", kinds=kinds) == []
        made = await expunge.call("search.reindex", org=ORG)
        assert made.indexed == {"episodes": 1, "memories": 4, "facts": 1, "chunks": 1}  # a deleted value may come back
        assert {(hit.collection, hit.text) for hit in await memory.search("apple", kinds=kinds)} == before
        assert set((await expunge.call("search.reindex", org=ORG)).indexed.values()) == {0}
        assert set((await expunge.call("search.reindex", org="other")).indexed.values()) == {0}
        everything = await expunge.call("search.reindex", org=ORG, everything=True)
        assert everything.indexed == made.indexed
        assert {(hit.collection, hit.text) for hit in await memory.search("apple", kinds=kinds)} == before
        await memory.forget(user_id="ann")
        assert await count(expunge, "search_docsize", "vectors") == {"search_docsize": 0, "vectors": 0}


async def test_another_embedder_finds_what_it_has_read_again(clock: ManualClock, tmp_path: Any) -> None:
    """Only vectors of one embedder are compared; after a reindex those of the new one."""
    place = str(tmp_path / "m.db")
    async with Expunge(settings=Settings(db=place, embedder="none"), clock=clock) as plain, as_user(plain) as agent:
        await agent.memory.set("k", "Barcelona")
    async with Expunge(settings=Settings(db=place), clock=clock) as opened, as_user(opened) as agent:
        assert await agent.memory.search("Barcelonna") == []
        assert (await opened.call("search.reindex", org=ORG)).indexed["memories"] == 1
        assert texts(await agent.memory.search("Barcelonna")) == ["Barcelona"]
