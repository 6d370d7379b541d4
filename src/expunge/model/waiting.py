"""Waiting for what somebody else wrote, and no longer than was said."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def answer_within(seconds: float, asked: Awaitable[T]) -> T:
    """The answer, or what it raises. One that takes no notice of being cancelled is left behind and not waited for.

    Raises:
        TimeoutError: there was none in time.

    """
    answering = asyncio.ensure_future(asked)
    try:
        await asyncio.wait({answering}, timeout=seconds)
        if answering.done():
            return answering.result()
        raise TimeoutError
    finally:
        if not answering.done():
            answering.cancel()
            answering.add_done_callback(_forget)


def _forget(answer: asyncio.Future[T]) -> None:
    """What it says later is of no use to anybody, and no reason for a warning."""
    if not answer.cancelled():
        answer.exception()
