"""Performing an operation for a command, and telling its answer."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from expunge.cli.options import Target
from expunge.cli.output import err, plain, print_bytes, print_json, write_file
from expunge.embedded import Expunge

T = TypeVar("T")
_LONGEST_PATH = 4096


def run(target: Target, work: Callable[[Expunge], Awaitable[T]], *, create: bool = False) -> T:
    """Do some work with the opened system; without ``create`` a missing database is an error."""

    async def job() -> T:
        async with target.open(create=create) as expunge:
            return await work(expunge)

    return asyncio.run(job())


def tell(target: Target, answer: T, words: Callable[[T], None]) -> None:
    """Print an answer: as JSON for a program, in words for a person."""
    if target.json:
        print_json(answer)
    else:
        words(answer)


def perform(target: Target, name: str, **values: Any) -> Any:
    """Perform one operation."""
    return run(target, lambda expunge: expunge.call(name, **values))


def deliver(target: Target, data: bytes, out: Path | None) -> int:
    """Print data, or write it to a file and say so; the exit code."""
    if out is None:
        print_bytes(data)
        return 0
    write_file(out, data)
    if target.json:
        print_json({"written": str(out)})
    else:
        err().print("written: ", plain(out, _LONGEST_PATH), sep="")
    return 0
