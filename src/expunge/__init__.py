"""Expunge: the memory of AI agents with an end of life."""

from expunge.agent import ANY, Agent
from expunge.embedded import Expunge
from expunge.errors import ExpungeError
from expunge.memory.derivers import FactDraft, MemoryDraft, Source, digest, plain_facts
from expunge.operations.chat import Episode, Message
from expunge.operations.facts import NewFact
from expunge.search import Embedder, HashingEmbedder
from expunge.settings import Settings

__all__ = [
    "ANY",
    "Agent",
    "Embedder",
    "Episode",
    "Expunge",
    "ExpungeError",
    "FactDraft",
    "HashingEmbedder",
    "MemoryDraft",
    "Message",
    "NewFact",
    "Settings",
    "Source",
    "digest",
    "plain_facts",
]
