"""Memory: how records come in."""

from expunge.memory.arrival import Arrival, Sifted, sift
from expunge.memory.attachments import Attached, Carried
from expunge.memory.batch import Batch
from expunge.memory.bodies import discard, store_bodies
from expunge.memory.prepare import prepare
from expunge.memory.put import PutOutcome, Unit, put_records
from expunge.memory.record import BadRecord, Reading

__all__ = [
    "Arrival",
    "Attached",
    "BadRecord",
    "Batch",
    "Carried",
    "PutOutcome",
    "Reading",
    "Sifted",
    "Unit",
    "discard",
    "prepare",
    "put_records",
    "sift",
    "store_bodies",
]
