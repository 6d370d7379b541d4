"""Residue: whether some texts still stand in the files that the stores keep, and by what right (``docs/residue.md``).

It looks into the bytes and asks the database only whose they are, so it can find what no statement serves.
"""

from expunge.residue.given import read_export
from expunge.residue.look import Look, look
from expunge.residue.needles import LEAST_EXPORTED, SHORTEST, Form, Needle, needles_of
from expunge.residue.tally import Hit, Unknown

__all__ = [
    "LEAST_EXPORTED",
    "SHORTEST",
    "Form",
    "Hit",
    "Look",
    "Needle",
    "Unknown",
    "look",
    "needles_of",
    "read_export",
]
