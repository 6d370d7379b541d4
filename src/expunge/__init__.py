"""Expunge: the memory of AI agents with an end of life."""

from expunge.embedded import Expunge
from expunge.errors import ExpungeError
from expunge.settings import Settings

__all__ = ["Expunge", "ExpungeError", "Settings"]
