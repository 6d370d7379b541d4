"""Facts: for when they hold, when they were learned, and what contradicts what."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge import ANY, Episode, Expunge, NewFact, Settings
from expunge.errors import InputError
from expunge.model.instant import ManualClock
from tests.agents.kit import MICROSECOND, ORG, after, as_user, count, objects, texts

pytestmark = pytest.mark.authorities("sqlite", "postgres")

STATEMENTS = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from("ABC"), st.none() | st.integers(1, 6), st.booleans()),
    min_size=1,
    max_size=7,
    unique_by=lambda item: item[0],  # of two that begin at once the later learned stands: that is not about order
)
"""Facts as ``(begins, object, how long at most, exclusive)``, in days."""


def lives_in(place: str, **fields: Any) -> NewFact:
    return NewFact(subject="user", predicate="lives_in", object=place, **fields)


def year(number: int) -> datetime:
    return datetime(number, 1, 1, tzinfo=UTC)


def modelled(statements: list[tuple[int, str, int | None, bool]], day: float) -> set[tuple[int, str]]:
    """Which facts hold on a day, by the rule as one would say it."""
    holding = set()
    for begins, said, lasts, alone in statements:
        ends = [begins + lasts] if lasts is not None else []
        if alone:
            ends += [other[0] for other in statements if other[3] and other[0] > begins and other[1] != said]
        if begins <= day and all(day < end for end in ends):
            holding.add((begins, said))
    return holding


@settings(max_examples=25, deadline=None)
@given(data=st.data(), statements=STATEMENTS)
async def test_any_order_of_arrival_gives_one_answer(data: st.DataObject, statements: list[Any]) -> None:
    """Issue 4: a contradicted fact ends where the later-starting one begins, in any arrival order; half-open."""
    arriving = data.draw(st.permutations(statements))
    clock = ManualClock()
    clock.advance(86_400 * 40)
    async with Expunge(settings=Settings(db=":memory:", embedder="none"), clock=clock) as opened:
        agent = as_user(opened)
        async with agent:
            for begins, said, lasts, alone in arriving:
                ends = None if lasts is None else after(days=begins + lasts)
                fact = lives_in(said, valid_from=after(days=begins), valid_to=ends, exclusive=alone)
                await agent.memory.add_fact(fact)
                clock.advance(1)
            for day in (-1, *range(20)):
                for moment in (day, day - MICROSECOND / 86_400):
                    found = await agent.memory.facts(valid_at=after(days=moment))
                    told = {((fact.valid_from - after()).days, fact.object) for fact in found if fact.valid_from}
                    assert told == modelled(statements, moment), (arriving, moment)
            everything = await agent.memory.facts(at_any_time=True)
            assert len(everything) == len(statements)


@pytest.mark.authorities("memory", "postgres")
async def test_what_was_believed_when_stays_to_be_asked(expunge: Expunge, clock: ManualClock) -> None:
    """Bi-temporal: what was learned later does not change what was known earlier, in lists and in search."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.add_fact(lives_in("Porto", valid_from=year(2020)))
        clock.advance(60)
        await memory.add_fact(lives_in("Lisbon", valid_from=year(2022)))
        clock.advance(60)
        await memory.add_fact(lives_in("Faro", valid_from=year(2021)))  # an older truth, learned last
        then: dict[str, Any] = {"valid_at": datetime(2023, 6, 1, tzinfo=UTC)}
        assert objects(await memory.facts(**then)) == {"Lisbon"}
        assert objects(await memory.facts(**then, known_at=after(seconds=59))) == {"Porto"}
        assert objects(await memory.facts(**then, known_at=after(seconds=-1))) == set()
        between: dict[str, Any] = {"valid_at": datetime(2021, 6, 1, tzinfo=UTC)}
        assert objects(await memory.facts(**between)) == {"Faro"}
        assert objects(await memory.facts(**between, known_at=after(seconds=60))) == {"Porto"}
        (porto,) = await memory.facts(**then, known_at=after(seconds=1))
        assert porto.ends is None
        ends = {fact.object: fact.ends for fact in await memory.facts(at_any_time=True)}
        assert ends == {"Porto": year(2021), "Faro": year(2022), "Lisbon": None}
        assert texts(await memory.recall_facts("where user lives")) == ["user lives_in Lisbon"]
        (hit,) = await memory.recall_facts("lives", **between, known_at=after(seconds=60))
        assert hit.text == "user lives_in Porto"


@pytest.mark.authorities("memory", "postgres")
async def test_ends_are_half_open(expunge: Expunge) -> None:
    """A fact does not hold any more at the instant where it ends, and the next one does."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.add_fact(lives_in("Porto", valid_from=after(days=-9), valid_to=after(days=-5)))
        await memory.add_fact(lives_in("Faro", valid_from=after(days=-3)))
        for moment, holds in (
            (after(days=-9, microseconds=-1), set()),
            (after(days=-9), {"Porto"}),
            (after(days=-5, microseconds=-1), {"Porto"}),
            (after(days=-5), set()),
            (after(days=-3), {"Faro"}),
            (after(days=999), {"Faro"}),
        ):
            assert objects(await memory.facts(valid_at=moment)) == holds, moment


@pytest.mark.authorities("memory", "postgres")
async def test_the_same_again_is_no_contradiction(expunge: Expunge) -> None:
    """A fact that says the same ends nothing; neither does one of another subject, predicate, user or namespace."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.add_fact(lives_in("Porto", valid_from=year(2020)))
        await memory.add_fact(lives_in("Porto", valid_from=year(2022)))
        await memory.add_fact(NewFact(subject="sister", predicate="lives_in", object="Faro", valid_from=year(2023)))
        await memory.add_fact(NewFact(subject="user", predicate="works_in", object="Faro", valid_from=year(2023)))
        await memory.add_fact(lives_in("Faro", valid_from=year(2023)), user_id="bob")
        await memory.add_fact(lives_in("Faro", valid_from=year(2023)), namespace="other")
        found = await memory.facts(subject="user", predicate="lives_in")
        assert [(fact.object, fact.ends) for fact in found] == [("Porto", None), ("Porto", None)]
        assert objects(await memory.facts(user_id="bob")) == {"Faro"}
        assert objects(await memory.facts(namespace="other")) == {"Faro"}
        assert len(await memory.facts(user_id=ANY, namespace=ANY)) == 6


@pytest.mark.authorities("memory", "postgres")
async def test_facts_that_hold_beside_each_other(expunge: Expunge) -> None:
    """A fact that is not exclusive ends none, and none ends it."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        for number, thing in enumerate(("tea", "rain", "cats")):
            likes = NewFact(
                subject="user", predicate="likes", object=thing, exclusive=False, valid_from=year(2020 + number)
            )
            await memory.add_fact(likes)
        only = NewFact(subject="user", predicate="likes", object="silence", valid_from=year(2024))
        await memory.add_fact(only)
        assert objects(await memory.facts(predicate="likes")) == {"tea", "rain", "cats", "silence"}


@pytest.mark.authorities("memory", "postgres")
async def test_spellings_of_a_predicate_are_one(expunge: Expunge) -> None:
    """``livesIn``, ``lives in`` and ``lives-in`` are one predicate, where facts are written, asked for, and loaded."""
    async with as_user(expunge) as agent:
        for number, spelling in enumerate(("livesIn", "lives in", "Lives-In", "lives_in")):
            fact = NewFact(subject="user", predicate=spelling, object=str(number), valid_from=year(2020 + number))
            await agent.memory.add_fact(fact)
        for spelling in ("livesIn", "lives in", "LIVES_IN"):
            assert objects(await agent.memory.facts(predicate=spelling)) == {"3"}
        loaded = {"collection": "facts", "id": "f9", "subject": "user", "predicate": "livesIn", "object": "loaded"}
        loaded |= {"user_id": "ann", "namespace": "support", "agent": "helper"}
        await expunge.put([loaded | {"valid_from": "2025-01-01T00:00:00Z", "exclusive": True}], org=ORG)
        assert objects(await agent.memory.facts(predicate="livesIn")) == {"loaded"}
        assert objects(await agent.memory.facts()) == {"loaded"}


@pytest.mark.authorities("memory", "postgres")
async def test_an_erased_session_gives_back_what_it_ended(expunge: Expunge) -> None:
    """Design 4: a fact that rests on the session alone goes; the one it had ended holds again, and is counted."""
    async with as_user(expunge) as agent:
        memory = agent.memory
        await memory.add_fact(lives_in("Braga", valid_from=year(2019)))
        await memory.add_fact(lives_in("Porto", valid_from=year(2020)))
        said = await memory.remember(Episode(input="I moved to Faro", session_id="s1"))
        also = await memory.remember(Episode(input="I like tea", session_id="s2"))
        await memory.add_fact(lives_in("Faro", valid_from=year(2022), sources=[said]))
        likes = NewFact(subject="user", predicate="likes", object="tea", sources=[said, also])
        await memory.add_fact(likes)
        assert objects(await memory.facts()) == {"Faro", "tea"}
        preview = await agent.erasure.preview(session_id="s1")
        assert preview.effects["revived"] == 1  # Porto; Braga ends where Porto begins, as before
        assert preview.effects["detached"] == 1
        gone = await memory.forget(session_id="s1")
        assert gone.receipt["effects"] | {"revived": 1, "detached": 1} == gone.receipt["effects"]
        assert gone.by_collection["facts"] == 1
        assert objects(await memory.facts()) == {"Porto", "tea"}
        assert texts(await memory.recall_facts("Faro")) == []
        ends = {fact.object: fact.ends for fact in await memory.facts(at_any_time=True, predicate="lives_in")}
        assert ends == {"Braga": year(2020), "Porto": None}


@pytest.mark.authorities("memory", "postgres")
async def test_what_an_erased_agent_had_said_gives_back_what_it_ended(expunge: Expunge) -> None:
    """Law 10: a fact of another agent that holds again is an effect on others, and is counted without lineage too."""
    async with as_user(expunge) as agent:
        await agent.memory.add_fact(lives_in("Porto", valid_from=year(2020)))
        await agent.memory.add_fact(lives_in("Faro", valid_from=year(2022)), agent="other")
        assert objects(await agent.memory.facts(agent=ANY)) == {"Faro"}
        assert (await agent.erasure.preview(agent="other")).effects["revived"] == 1
        erased = await agent.erasure.request(agent="other", purge=True)
        assert objects(await agent.memory.facts(agent=ANY)) == {"Porto"}
        assert erased.effects["revived"] == 1


@pytest.mark.authorities("memory", "postgres")
async def test_a_fact_is_written_once(expunge: Expunge, clock: ManualClock) -> None:
    """Law 16: a repeat with an idempotency key is written once; something else under it is refused."""
    async with as_user(expunge) as agent:
        facts = [lives_in("Porto", idempotency_key="i1"), lives_in("Faro", valid_from=year(2030))]
        first = await agent.memory.add_facts(facts)
        clock.advance(60)
        again = await agent.memory.add_facts(facts[:1])
        assert (again.ids, again.skipped) == (first.ids[:1], 1)
        with pytest.raises(InputError):
            await agent.memory.add_fact(lives_in("Lisbon", idempotency_key="i1"))
        with pytest.raises(InputError):
            await agent.memory.add_facts([lives_in(place, idempotency_key="i2") for place in ("Braga", "Evora")])
        assert await count(expunge, "facts") == {"facts": 2}
        assert objects(await agent.memory.facts()) == {"Porto"}


@pytest.mark.authorities("memory", "postgres")
async def test_a_bad_fact_keeps_all_of_them_out(expunge: Expunge) -> None:
    """Bad input: a fact that ends before it begins, or says nothing, is refused with the whole call."""
    async with as_user(expunge) as agent:
        wrong = [
            lives_in("x", valid_from=year(2021), valid_to=year(2020)),
            lives_in("x", valid_to=after(days=-1)),
            lives_in("a\0b"),
            lives_in("x", confidence=1.5),
            lives_in("x", confidence=float("nan")),
            lives_in("x", sources=["nowhere"]),
        ]
        for bad in wrong:
            with pytest.raises(InputError):
                await agent.memory.add_facts([lives_in("good"), bad])
        assert await count(expunge, "facts", "vectors") == {"facts": 0, "vectors": 0}


@pytest.mark.authorities("memory", "postgres")
async def test_facts_when_the_clock_steps_back(expunge: Expunge, clock: ManualClock) -> None:
    """Law 13: what is known is known, also when the clock has stepped back since it was learned."""
    async with as_user(expunge) as agent:
        await agent.memory.add_fact(lives_in("Porto", valid_from=year(2020)))
        clock.advance(-60)
        assert objects(await agent.memory.facts()) == {"Porto"}
        await agent.memory.add_fact(lives_in("Faro", valid_from=year(2022)))
        assert objects(await agent.memory.facts()) == {"Faro"}
        assert texts(await agent.memory.recall_facts("Faro")) == ["user lives_in Faro"]


@pytest.mark.authorities("memory", "postgres")
async def test_hidden_facts_end_nothing(expunge: Expunge) -> None:
    """Law 6: a hidden fact is not served, and what it had ended holds; restored, it ends it again."""
    async with as_user(expunge) as agent:
        await agent.memory.add_fact(lives_in("Porto", valid_from=year(2020)))
        await agent.memory.add_fact(lives_in("Faro", valid_from=year(2022)), agent="other")
        hidden = await agent.erasure.request(agent="other")
        assert objects(await agent.memory.facts(agent=ANY)) == {"Porto"}
        await agent.erasure.restore(hidden.request_id)
        assert objects(await agent.memory.facts(agent=ANY)) == {"Faro"}
        assert objects(await agent.memory.facts(limit=1, at_any_time=True)) == {"Porto"}


@pytest.mark.authorities("memory", "postgres")
async def test_facts_that_do_not_say_when_they_begin(expunge: Expunge) -> None:
    """Law 10: of two that have always held the later learned ends the other, and an erasure that gives it back says so."""
    statement = {"collection": "facts", "user_id": "ann", "subject": "u", "predicate": "is in", "exclusive": True}
    first = statement | {"id": "f1", "agent": "x", "object": "Porto", "recorded_at": "2025-01-01T00:00:00Z"}
    later = statement | {"id": "f2", "agent": "y", "object": "Rome", "recorded_at": "2025-01-02T00:00:00Z"}
    await expunge.put([later, first], org=ORG)
    async with as_user(expunge) as agent:
        memory = agent.memory
        assert objects(await memory.facts(agent=ANY, namespace=ANY)) == {"Rome"}
        assert (await agent.erasure.preview(agent="y")).effects["revived"] == 1
        erased = await agent.erasure.request(agent="y", purge=True)
        assert (erased.status, erased.effects["revived"]) == ("completed", 1)
        assert objects(await memory.facts(agent=ANY, namespace=ANY)) == {"Porto"}
        assert (await agent.erasure.preview(agent="x")).effects["revived"] == 0
