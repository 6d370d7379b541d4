"""Identity: who a call or a record belongs to (design 1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from expunge.model.ids import NOBODY, check_id

PARTS = ("namespace", "agent", "user_id", "session_id")
"""The identity parts below the org, in the order in which they are stored."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An org and up to four parts; ``None`` means nobody and is stored as ``-``."""

    org: str
    namespace: str | None = None
    agent: str | None = None
    user_id: str | None = None
    session_id: str | None = None

    _stored: tuple[str, str, str, str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises InvalidId when a part is not a valid id (law 12)."""
        check_id(self.org, "org")
        for part in PARTS:
            value = getattr(self, part)
            if value is not None:
                check_id(value, part)
        parts = (getattr(self, part) or NOBODY for part in PARTS)
        object.__setattr__(self, "_stored", (self.org, *parts))

    def stored(self) -> tuple[str, str, str, str, str]:
        """The five parts as the database holds them."""
        return self._stored
