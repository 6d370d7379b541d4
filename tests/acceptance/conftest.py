"""The conversations, loaded once in each worker and authority."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.acceptance.locomo import Loaded, Record, adapted, copies, load
from tests.pg.server import drop_database, fresh_database

Loading = Callable[[str, Callable[[], list[Record]]], Loaded]


@pytest.fixture(autouse=True)
def _copies() -> Iterator[None]:
    """No copy on a server outlives its test."""
    yield
    while copies:
        drop_database(copies.pop())


@pytest.fixture(scope="session")
def loads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Loaded]]:
    """What was loaded so far, by what it is and on which authority."""
    loaded: dict[tuple[str, str], Loaded] = {}
    yield loaded
    for item in loaded.values():
        if url := item.url:
            drop_database(url)


@pytest.fixture
def loaded(
    authority: str,
    loads: dict[tuple[str, str], Loaded],
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Loading:
    """Load records once, on the authority of the test."""

    def once(name: str, records: Callable[[], list[Record]]) -> Loaded:
        if (name, authority) not in loads:
            url = None
            if authority == "postgres":
                server, template = (request.getfixturevalue(f"postgres_{what}") for what in ("server", "template"))
                url = fresh_database(server, template)
            loads[name, authority] = load(records(), tmp_path_factory.mktemp(name), url)
        return loads[name, authority]

    return once


@pytest.fixture
def conversations(loaded: Loading) -> Loaded:
    """All ten conversations in a store at rest."""
    return loaded("locomo", lambda: adapted()[0])
