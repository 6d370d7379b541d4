"""Tests of Expunge."""

import pytest

# The contract stands with the product, where pytest would leave its asserts as they are. Said in the package, which is
# imported before any of its tests: once something has imported the contract it is too late.
pytest.register_assert_rewrite("expunge.stores.contract")
pytest.register_assert_rewrite("tests.acceptance.locomo")  # the asserts that its tests share
