"""The main job, once through."""

from __future__ import annotations

from expunge import Expunge
from tests.support import dump, ids, one_of_each


async def test_one_person_goes_and_the_other_stays(expunge: Expunge) -> None:
    await expunge.put([*one_of_each("ann", "a"), *one_of_each("bob", "b")])
    before = await dump(expunge)
    answer = await expunge.erase("ann", purge=True)
    after = await dump(expunge)
    assert answer.status == "completed"
    assert ids(before) - ids(after) == {"a-s", "a-e", "a-v", "a-m", "a-f", "a-b", "a-sum", "a-sum2"}
    assert {name: {k: v for k, v in rows.items() if not k.startswith("a-")} for name, rows in before.items()} == after
    again = await expunge.erase("ann", purge=True)
    assert (again.status, again.found, again.residue_count) == ("completed", False, 0)
    assert await dump(expunge) == after
