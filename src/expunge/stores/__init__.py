"""Stores: places outside the authority where bodies lie, each behind the lifecycle port (design 2)."""

from expunge.stores.port import (
    Asked,
    BodyStore,
    Capabilities,
    Filing,
    Found,
    Lifecycle,
    OnDisk,
    Permit,
    Removal,
    StoredFile,
    files_of,
)

__all__ = [
    "Asked",
    "BodyStore",
    "Capabilities",
    "Filing",
    "Found",
    "Lifecycle",
    "OnDisk",
    "Permit",
    "Removal",
    "StoredFile",
    "files_of",
]
