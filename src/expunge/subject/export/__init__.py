"""Export: what is held in a scope as one file, written once for every format, and read back with its hashes checked."""

from expunge.subject.export.exporter import Asked, Export, View
from expunge.subject.export.manifest import AUDIT, FORMAT, FORMATS, Format
from expunge.subject.export.reader import ExportFile, is_export
from expunge.subject.export.whole import ExportedRecord, MemoryExport, whole

__all__ = [
    "AUDIT",
    "FORMAT",
    "FORMATS",
    "Asked",
    "Export",
    "ExportFile",
    "ExportedRecord",
    "Format",
    "MemoryExport",
    "View",
    "is_export",
    "whole",
]
