"""Memory: how records come in."""

from expunge.memory.batch import Batch
from expunge.memory.put import PutOutcome, put_records
from expunge.memory.record import BadRecord, Reading

__all__ = ["BadRecord", "Batch", "PutOutcome", "Reading", "put_records"]
