"""How bodies are named: ``<store>/<org>/<user>/<namespace>/<agent>/<session>/<seq>-<dated>-<random>``.

That path, below the folder, is the ref. The org is a digest and the other levels are the labels of a filing, so that
no id becomes a path (law 12). The store is random and made with the first body: by it a ref tells that another folder
stands where its own should be.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path

from expunge.errors import StoreFault
from expunge.model.identity import PARTS
from expunge.stores.port import Asked, Filing

LEVELS = ("user_id", "namespace", "agent", "session_id")
"""The user comes first, because most erasures are of users, and then only their folders are looked into."""

PART = ".part"
"""How the name of a body ends that is still being written, or whose writer was killed."""

STORE = re.compile(r"st-[0-9a-f]{32}")
LABEL = re.compile(r"[0-9a-f]+")
BODY = re.compile(r"(?P<seq>0|[1-9][0-9]*)-(?P<dated>p(?:0|[1-9][0-9]*)|m[1-9][0-9]*)-[0-9a-f]{32}(?:\.part)?")
_REF = re.compile(rf"{STORE.pattern}/[0-9a-f]{{32}}(?:/{LABEL.pattern}){{4}}/{BODY.pattern}")


def new_store() -> str:
    """The name of a store that nobody else makes."""
    return "st-" + secrets.token_hex(16)


def new_name(filing: Filing) -> str:
    """The name of a new body. Raises ValueError when ``seq`` is below 0."""
    if filing.seq < 0:
        raise ValueError("seq is below 0")
    sign = "m" if filing.dated < 0 else "p"  # a minus would read as one of the strokes between
    return f"{filing.seq}-{sign}{abs(filing.dated)}-{secrets.token_hex(16)}"


def folders_of(filing: Filing) -> tuple[str, ...]:
    """The folders below the store's in which a body lies. Raises ValueError when a part is no pseudonym."""
    labels = dict(zip(PARTS, filing.parts, strict=True))
    for label in labels.values():
        check_label(label)
    return (org_digest(filing.org), *(labels[level] for level in LEVELS))


def org_digest(org: str) -> str:
    """How an org is named in a path."""
    return hashlib.sha256(org.encode()).hexdigest()[:32]


def check_label(label: str) -> None:
    """Raises ValueError when a label is not hexadecimal digits: whoever calls has mistaken an id for a pseudonym."""
    if not LABEL.fullmatch(label):
        raise ValueError("a label is not a pseudonym in hexadecimal digits")


def is_ref(name: str) -> bool:
    """Whether a path below the folder has the form that it gives to a body, also to one that is still being written."""
    return _REF.fullmatch(name) is not None


def split_ref(top: Path, ref: str) -> tuple[str, str]:
    """The path of the folder in which a body lies, and its name there; ``top`` is what a message names.

    Raises:
        StoreFault: it is no ref. It is not shown, because nobody knows what it is.

    """
    if not _REF.fullmatch(ref):
        raise StoreFault(
            f"a ref is not one that the objects folder {top} gives out",
            hint="a row that names a body is damaged or was changed by hand",
        )
    path, _, name = ref.rpartition("/")
    return path, name


def is_asked(name: str, asked: Asked) -> bool:
    """Whether a body's name says that it is old enough."""
    read = BODY.fullmatch(name)
    if read is None or int(read["seq"]) >= asked.seq:
        return False
    dated = int(read["dated"][1:]) * (-1 if read["dated"].startswith("m") else 1)
    return asked.before is None or dated < asked.before
