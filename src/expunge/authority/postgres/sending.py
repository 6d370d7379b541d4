"""Statements on their way: sent one after the other, and waited for only where an answer is needed.

A trip to the server costs more than most statements. What needs no answer goes along with what comes next, at the
latest with the commit; an error of one shows where an answer is waited for next, and the server skips all in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import psycopg
from psycopg import sql

Text = str | sql.Composed


class Sending:
    """One transaction's way to the server. COPY cannot be sent along, so it is waited for before and after.

    Without ``along`` each statement is waited for: for one alone that is less to do.
    """

    def __init__(self, connection: psycopg.Connection, *, along: bool = True) -> None:
        self.connection = connection
        self._stack = ExitStack()
        self._along = along
        self._pipeline: psycopg.Pipeline | None = None
        self.on()

    def send(self, text: Text, values: Mapping[str, Any] | Sequence[Any] | None = None) -> psycopg.Cursor:
        """Send a statement; its answer may be fetched from the cursor, which waits for it."""
        return self.connection.execute(text.encode() if isinstance(text, str) else text, values)

    def rows(self, text: Text, values: Mapping[str, Any] | Sequence[Any] | None = None) -> list[Any]:
        """Send a statement and wait for its rows."""
        return self.send(text, values).fetchall()

    def count(self, text: Text, values: Mapping[str, Any] | Sequence[Any] | None = None) -> int:
        """Send a statement and wait for how many rows it changed."""
        return self.changed(self.send(text, values))

    def changed(self, sent: psycopg.Cursor) -> int:
        """Wait for how many rows a statement that was sent has changed."""
        if self._pipeline is not None and sent.pgresult is None:
            self._pipeline.sync()
        return sent.rowcount

    def send_many(self, text: Text, values: Sequence[Any]) -> None:
        """Send a statement once for each set of values."""
        with self.connection.cursor() as cursor:
            cursor.executemany(text.encode() if isinstance(text, str) else text, values)

    def apart(self) -> psycopg.Cursor:
        """Wait for all that was sent; a cursor for what cannot be sent along."""
        self._stack.close()
        return self.connection.cursor()

    def on(self) -> None:
        """Send along again, after ``apart``."""
        if self._along:
            self._pipeline = self._stack.enter_context(self.connection.pipeline())

    def end(self, text: str) -> None:
        """Send the last statement, and wait for everything."""
        self.connection.execute(text.encode(), prepare=False)  # there is no plan to keep
        self._stack.close()

    def give_up(self) -> None:
        """Take the transaction back, whatever became of what was sent."""
        with suppress(psycopg.Error):
            self._stack.close()
        if not self.connection.closed and self.connection.info.transaction_status:
            self.connection.rollback()
