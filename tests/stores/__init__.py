"""Tests of the stores outside the database."""

import pytest

# The contract stands with the product, where pytest would leave its asserts as they are.
pytest.register_assert_rewrite("expunge.stores.contract")
