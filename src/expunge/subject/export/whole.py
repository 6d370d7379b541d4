"""An export as one object in memory, for a person whose data fit there."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from expunge.subject.export.reader import ExportFile


class ExportedRecord(BaseModel):
    """A record of an export: besides these fields, those of its collection as attributes (``record.input``)."""

    model_config = ConfigDict(extra="allow", frozen=True)

    collection: str
    id: str
    created_at: datetime
    sources: list[str] = Field(default_factory=list, description="What it was made from.")


class MemoryExport(BaseModel):
    """All that is held on a person. ``model_dump_json()`` is a stable text of it; bodies stand there as base64."""

    model_config = ConfigDict(frozen=True, ser_json_bytes="base64")

    user_id: str
    exported_at: datetime
    complete: bool = Field(description="Whether every record and body in scope is here.")
    sessions: list[ExportedRecord]
    episodes: list[ExportedRecord]
    events: list[ExportedRecord]
    attachments: list[ExportedRecord]
    memories: list[ExportedRecord] = Field(description="Every version; the newest is the value.")
    facts: list[ExportedRecord]
    blocks: list[ExportedRecord]
    documents: list[ExportedRecord]
    chunks: list[ExportedRecord]
    answers: list[ExportedRecord]
    jobs: list[ExportedRecord]
    bodies: dict[str, bytes] = Field(description="Attachments and originals, by the ids of their records.")
    derived: list[dict[str, Any]] = Field(description="Records outside of this scope that were made from these.")
    vectors: list[dict[str, Any]]
    manifest: dict[str, Any]

    def transcript(self, episode_id: str) -> list[ExportedRecord]:
        """The events of an episode, in their order."""
        found = [event for event in self.events if getattr(event, "episode", None) == episode_id]
        return sorted(found, key=lambda event: (getattr(event, "position", 0) or 0, event.created_at))


def whole(data: bytes) -> MemoryExport:
    """The object that an export of any form says.

    Raises:
        InvalidExport: it is not whole, or was edited.

    """
    file = ExportFile.read(data)
    sections: dict[str, list[Any]] = {name: [] for name in MemoryExport.model_fields}
    for line in file.lines:
        sections[line.record["collection"]].append(line.record)
    return MemoryExport.model_validate(
        sections
        | {
            "user_id": file.manifest["scope"]["user_id"],
            "exported_at": file.manifest["origin"]["exported_at"],
            "complete": file.manifest["complete"],
            "bodies": {record_id: file.body_of(record_id) for record_id in file.bodies},
            "derived": file.told.get("derived", []),
            "vectors": file.told.get("vectors", []),
            "manifest": file.manifest,
        }
    )
