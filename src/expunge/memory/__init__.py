"""Memory: how records come in."""

from expunge.memory.attachments import Attached
from expunge.memory.batch import Batch
from expunge.memory.bodies import discard, store_bodies
from expunge.memory.prepare import prepare
from expunge.memory.put import PutOutcome, Unit, put_records
from expunge.memory.record import BadRecord, Reading

__all__ = [
    "Attached",
    "BadRecord",
    "Batch",
    "PutOutcome",
    "Reading",
    "Unit",
    "discard",
    "prepare",
    "put_records",
    "store_bodies",
]
