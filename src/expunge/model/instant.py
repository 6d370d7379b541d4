"""Instants: aware UTC from an injected clock (law 13), held as whole microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

from expunge.errors import InvalidInstant
from expunge.model.ids import shown

Instant = int
"""Microseconds since 1970-01-01T00:00:00Z."""

DAY: Instant = 86_400_000_000
"""Microseconds in a day."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """Where the present comes from."""

    def now(self) -> Instant:
        """The present, in microseconds since 1970 UTC."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> Instant:
        """The present, in microseconds since 1970 UTC."""
        return from_datetime(datetime.now(UTC), "now")


class ManualClock:
    """A clock that stands still until it is moved; for tests and for replaying an order of events."""

    def __init__(self, start: str = "2026-01-01T00:00:00Z") -> None:
        self._now = parse_instant(start, "start")

    def now(self) -> Instant:
        """The present, in microseconds since 1970 UTC."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock by ``seconds``."""
        self._now += round(seconds * 1_000_000)


def parse_instant(value: object, what: str) -> Instant:
    """Read an ISO-8601 time with a zone.

    Raises:
        InvalidInstant: not text, not a time, without a zone, or outside the years 1 to 9999 in UTC.

    """
    if not isinstance(value, str):
        raise InvalidInstant(f"{what} must be text, not {type(value).__name__}")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise InvalidInstant(f"{what} {shown(value)} is not a time") from None
    return from_datetime(moment, what)


def from_datetime(moment: datetime, what: str) -> Instant:
    """Read an aware datetime.

    Raises:
        InvalidInstant: without a zone, or outside the years 1 to 9999 in UTC.

    """
    if moment.utcoffset() is None:
        raise InvalidInstant(f"{what} {shown(moment.isoformat())} has no zone")
    try:
        return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND
    except OverflowError:
        raise InvalidInstant(f"{what} {shown(moment.isoformat())} is out of range") from None


def to_datetime(instant: Instant) -> datetime:
    """An instant as an aware datetime in UTC."""
    return _EPOCH + instant * _MICROSECOND


def to_text(instant: Instant) -> str:
    """An instant as ISO-8601 in UTC, with as many digits as it needs."""
    return (_EPOCH + instant * _MICROSECOND).isoformat().replace("+00:00", "Z")
