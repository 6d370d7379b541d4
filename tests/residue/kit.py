"""What the tests of residue share: looking, planting, and what was found of a text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from expunge import Expunge
from expunge.operations.residue import HitShown, ResidueOutput

RAW = Path(__file__).parent.parent / "raw"


async def look(expunge: Expunge, *texts: str, **given: Any) -> ResidueOutput:
    """Look for some texts."""
    answer: ResidueOutput = await expunge.call("system.residue", texts=list(texts), **given)
    return answer


def of(answer: ResidueOutput, number: int) -> list[HitShown]:
    """The hits of a text that are shown."""
    return [hit for hit in answer.shown if hit.text == number]


def standings(answer: ResidueOutput, number: int = 1) -> set[str]:
    """What accounts for the hits of a text."""
    return {hit.standing for hit in of(answer, number)}


def plant(database: Path, what: str, **asked: Any) -> None:
    """Change a closed database in another process."""
    subprocess.run(
        [sys.executable, RAW / "plant.py", database, what], input=json.dumps(asked), text=True, check=True, timeout=60
    )


async def merge_index(expunge: Expunge) -> None:
    """Merge the search index, by which the hashes of what has left it go."""
    assert (await expunge.call("system.reclaim")).deferred is None
