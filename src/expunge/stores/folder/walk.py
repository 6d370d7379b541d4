"""Finding the folders of bodies that a scope asks for, in one walk for all its targets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from expunge.errors import StoreUnable
from expunge.stores.folder.disk import listed, opened_below
from expunge.stores.folder.names import LABEL, LEVELS, check_label
from expunge.stores.port import Labels


@dataclass(frozen=True, slots=True)
class Wanted:
    """A target: its position, and for each level the labels that it narrows to, or ``None`` for all of them."""

    position: int
    levels: tuple[frozenset[str] | None, ...]

    @classmethod
    def of(cls, position: int, labels: Labels) -> Wanted:
        """The target of some labels.

        Raises:
            StoreUnable: it narrows a part by which nothing is filed here; leaving that out would widen it.
            ValueError: a label is no pseudonym.

        """
        if not labels.keys() <= set(LEVELS):
            raise StoreUnable("the objects folder does not file bodies by all that the scope narrows")
        for label in (label for narrowed in labels.values() for label in narrowed):
            check_label(label)
        return cls(position, tuple(labels.get(level) for level in LEVELS))

    def admits(self, depth: int, name: str) -> bool:
        """Whether a folder of this name at a level may hold something of the target."""
        narrowed = self.levels[depth]
        return narrowed is None or name in narrowed


def leaves(above: int, path: str, wanted: Sequence[Wanted], depth: int = 0) -> Iterator[tuple[str, int, int]]:
    """The folders of bodies that any target asks for: path, handle, and the position of the first such target.

    One walk for all, so that 500 namespaces do not cost 500 walks over every user.
    """
    if depth == len(LEVELS):
        yield path, above, wanted[0].position
        return
    for name in _names(above, wanted, depth):
        left = [target for target in wanted if target.admits(depth, name)]
        if left:
            with contextlib.suppress(FileNotFoundError), opened_below(name, above) as below:
                yield from leaves(below, f"{path}/{name}", left, depth + 1)


def _names(above: int, wanted: Sequence[Wanted], depth: int) -> list[str]:
    """The folders to look into: users, of whom there may be a million, are not listed when all targets name theirs."""
    narrowed = [labels for target in wanted if (labels := target.levels[depth]) is not None]
    if depth == LEVELS.index("user_id") and len(narrowed) == len(wanted):
        return sorted(frozenset().union(*narrowed))
    return listed(above, LABEL)
