"""The two calls of an authority for work that is on a thread which may use it (``AtHand``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from expunge.authority.port import Unit

T = TypeVar("T")


class _Units(Protocol):
    def __call__(self, unit: Unit[T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class Here:
    """The authority at hand: what runs a unit, and what reads apart."""

    run: _Units
    read_apart: _Units
