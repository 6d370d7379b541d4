"""The views that other programs may read (docs/own-check.md): their columns keep their names and their meaning."""

from __future__ import annotations

from dataclasses import dataclass

_WHOSE = ("org", "user_id", "namespace", "agent", "session_id")
_VERSION = ("id", "key", "version", "value", "memory_type")
_TIMES = ("created_at", "recorded_at", "updated_at", "expires_at")


@dataclass(frozen=True, slots=True)
class View:
    """A view: its columns in their order. It holds nothing of its own, so an erasure does nothing to it."""

    name: str
    purpose: str
    columns: tuple[str, ...]


VIEWS: tuple[View, ...] = (
    View(
        "sql_v1_memories",
        "The values that stand under keys, as reads serve them; one that has expired stands here until it is swept.",
        (*_WHOSE, *_VERSION, *_TIMES),
    ),
    View(
        "sql_v1_memory_history",
        "Every version of every key, also those that are hidden or say that the key was deleted.",
        (*_WHOSE, *_VERSION, "state", "hidden", *_TIMES),
    ),
    View(
        "sql_v1_conversations",
        "Episodes (position 0) and the entries of their transcripts, in the order of occurred_at, episode, position.",
        (*_WHOSE, "episode", "id", "kind", "position", "input", "output", "content", "occurred_at", "recorded_at"),
    ),
)
