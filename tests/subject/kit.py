"""A person with something in every collection, and ways to take them out of a store and into another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from expunge import Expunge
from expunge.subject.export import FORMATS
from tests.support import answer, block, document, episode, event, fact, job, memory, session

FORMS = tuple(FORMATS)


def person(user: str, prefix: str, **identity: Any) -> list[dict[str, Any]]:
    """Something of a person in every collection, whole in itself; ``note.bin`` has to lie beside it."""
    return [
        session(f"{prefix}-s", user, **identity),
        episode(
            f"{prefix}-e1",
            user,
            session_id=f"{prefix}-s",
            input='Grüße 😂 \\ " \u2028',
            tool_calls=[{"n": 2**60, "x": 1.10, "deep": {"a": [None, True]}}],
            occurred_at="1955-11-05T06:15:00.000001Z",
            attachments=["note.bin"],
            **identity,
        ),
        episode(f"{prefix}-e2", user, session_id=f"{prefix}-s", status="running", **identity),
        event(f"{prefix}-v2", f"{prefix}-e1", user, position=2, data={"b": 2}, **identity),
        event(f"{prefix}-v1", f"{prefix}-e1", user, position=1, **identity),
        memory(f"{prefix}-m1", "likes", user, tags=["a", "b"], confidence=1e-7, **identity),
        memory(f"{prefix}-m2", "likes", user, value={"now": "tea"}, updated_at="2026-02-01T00:00:00Z", **identity),
        memory(f"{prefix}-m3", "likes", user, state="tombstoned", updated_at="2026-03-01T00:00:00Z", **identity),
        memory(f"{prefix}-sum", "summary", user, sources=[f"{prefix}-e1", f"{prefix}-e2"], lineage="rebuild", deriver="d",
               **identity),
        fact(f"{prefix}-f", user, predicate="livesIn", exclusive=True, sources=[f"{prefix}-e1"],
             valid_from="1969-12-31T23:59:59Z", **identity),
        block(f"{prefix}-b", "persona", user, pinned_order=3, **identity),
        document(f"{prefix}-d1", "Letter", user, text="A long letter. " * 200, pinned=True, **identity),
        {k: v for k, v in document(f"{prefix}-d2", "Scan", user, path="note.bin", **identity).items() if k != "text"},
        answer(f"{prefix}-a", user, sources=[f"{prefix}-e1"], **identity),
        job(f"{prefix}-j", user, sources=[f"{prefix}-e2"], key="digest", **identity),
    ]  # fmt: skip


async def fill(expunge: Expunge, folder: Path) -> None:
    """Ann with all of it, and Bob beside her, in the same namespace and with the same words."""
    (folder / "note.bin").write_bytes(bytes(range(256)) * 300)
    await expunge.put(person("ann", "a"), attachments_from=folder)
    await expunge.put(person("bob", "b"), attachments_from=folder)


async def exported(expunge: Expunge, user: str, *, admin: bool = False, **options: Any) -> tuple[bytes, dict[str, Any]]:
    """The bytes of an export, and its manifest."""
    found = await expunge.call("erasure.export" if admin else "subject.export", user_id=user, **options)
    data = b"".join([piece async for piece in found.pieces()])
    return data, found.manifest


def without_origin(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest without what tells one making of it from another."""
    return {name: value for name, value in manifest.items() if name not in ("origin", "sha256")}


def counts(manifest: dict[str, Any]) -> dict[str, int]:
    """The lines of each section."""
    return {name: section["count"] for name, section in manifest["sections"].items()}
