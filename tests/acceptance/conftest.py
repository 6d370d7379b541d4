"""The conversations, loaded once in each worker."""

from __future__ import annotations

import pytest

from tests.acceptance.locomo import Loaded, adapted, load


@pytest.fixture(scope="session")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """All ten conversations in a store at rest."""
    records, _ = adapted()
    return load(records, tmp_path_factory.mktemp("locomo"))
