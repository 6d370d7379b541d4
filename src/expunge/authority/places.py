"""Which authority a database URL names, and opening it."""

from __future__ import annotations

from expunge.authority.port import Authority
from expunge.authority.postgres import PostgresAuthority, PostgresPlace
from expunge.authority.postgres.place import SCHEMES
from expunge.authority.sqlite import Place, SqliteAuthority
from expunge.settings import Settings


def place_of(url: str) -> Place | PostgresPlace:
    """Read a database setting: a path, ``sqlite:///PATH``, ``:memory:``, or ``postgresql://…``.

    Raises:
        SettingsError: not a usable place.

    """
    return PostgresPlace.parse(url) if url.startswith(SCHEMES) else Place.parse(url)


async def open_authority(place: Place | PostgresPlace, settings: Settings, *, create: bool) -> Authority:
    """Open the database of a place.

    Raises:
        DatabaseFault: it cannot be opened (see its kinds).

    """
    if isinstance(place, PostgresPlace):
        return await PostgresAuthority.open(
            place, create=create, busy_timeout_s=settings.busy_timeout_s, connections=settings.connections
        )
    return await SqliteAuthority.open(
        place, create=create, busy_timeout_s=settings.busy_timeout_s, reclaim_wait_s=settings.reclaim_wait_s
    )
