"""A way to the server on which each statement is waited for: for tests that look at who waits for whom."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import psycopg

from expunge.authority.postgres.sending import Sending, Text


class AtOnce(Sending):
    """Nothing is sent along."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self._stack = ExitStack()

    def count(self, text: Text, values: Any = None) -> int:
        return self.send(text, values).rowcount

    def on(self) -> None:
        """There is nothing to go back to."""
