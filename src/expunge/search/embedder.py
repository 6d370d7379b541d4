"""Embedders: what turns texts into vectors. Any object with a name, a length and ``embed`` will do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from expunge.errors import EmbedderFault
from expunge.model.waiting import answer_within

Vectors = NDArray[np.float32]

_TEXTS_A_CALL = 512
_SHORTEST_GRAM, _LONGEST_GRAM = 3, 4
_PRIME, _MIXER, _HALF, _ONE = np.uint32(0x01000193), np.uint32(0x2C1B3C6D), np.uint32(15), np.uint32(1)
_AT_ONCE = 128
"""So many texts are counted at once: of more the numbers between do not fit into the caches of a processor."""
_SHORT = 20_000
"""Up to so many characters are embedded at once where the call is; more in a thread, so that others go on."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors that lie close together when the texts mean the same."""

    @property
    def name(self) -> str:
        """What tells its vectors from another's; only those of one name are compared."""
        ...

    @property
    def dims(self) -> int:
        """How many numbers a vector has."""
        ...

    async def embed(self, texts: Sequence[str]) -> Any:
        """One vector a text, as lists of numbers or an array. What it raises refuses the write (nothing is half)."""
        ...


class HashingEmbedder:
    """The default: n-grams of letters, counted under a hash. Needs no model, and finds spellings more than meanings."""

    def __init__(self, dims: int = 256) -> None:
        self.dims = dims
        self.name = f"hashing-{dims}"

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector a text."""
        if sum(map(len, texts)) <= _SHORT:
            return self._embed(texts)
        return await asyncio.to_thread(self._embed, texts)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        made = [self._count(texts[start : start + _AT_ONCE]) for start in range(0, len(texts) or 1, _AT_ONCE)]
        return made[0] if len(made) == 1 else np.concatenate(made)

    def _count(self, texts: Sequence[str]) -> Vectors:
        """Texts at once: their bytes one after the other, and no n-gram that reaches over an end counts."""
        encoded = [f" {' '.join(text.casefold().split())} ".encode() for text in texts]
        signs = np.frombuffer(b"".join(encoded), np.uint8).astype(np.uint32)
        grams, found = signs, list[NDArray[np.uint32]]()
        for size in range(2, _LONGEST_GRAM + 1):
            grams = grams[: max(len(signs) - size + 1, 0)] * _PRIME ^ signs[size - 1 :]
            if size >= _SHORTEST_GRAM:
                found.append(grams)
        rows: NDArray[np.int64] | int = 0
        if len(encoded) > 1:
            rows, found = _inside(found, np.array([len(text) for text in encoded]))
        mixed = np.concatenate(found)
        mixed = (mixed ^ (mixed >> _HALF)) * _MIXER
        slots = rows * self.dims + ((mixed >> _HALF) % np.uint32(self.dims))
        counts = np.bincount(slots, weights=(mixed & _ONE) * 2.0 - 1.0, minlength=len(encoded) * self.dims)
        shaped = counts.reshape(len(encoded), self.dims)
        return np.copysign(np.sqrt(np.abs(shaped)), shaped).astype(np.float32)


def _inside(
    found: Sequence[NDArray[np.uint32]], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[NDArray[np.uint32]]]:
    """Of the n-grams over several texts those that lie in one, and the number of that text for each."""
    ends = np.cumsum(lengths)
    kept_of, rows_of = list[NDArray[np.uint32]](), list[NDArray[np.int64]]()
    for size, grams in enumerate(found, start=_SHORTEST_GRAM):
        over = (ends[:-1, None] - np.arange(1, size)).ravel()
        kept = np.ones(len(grams), bool)
        kept[over[(over >= 0) & (over < len(grams))]] = False
        kept_of.append(grams[kept])
        rows_of.append(np.repeat(np.arange(len(ends)), np.maximum(lengths - size + 1, 0)))
    return np.concatenate(rows_of), kept_of


class WordLlamaEmbedder:
    """A small real model (256 numbers, 16 MB, no network): ``pip install expunge[wordllama]``."""

    name = "wordllama-256"
    dims = 256

    def __init__(self) -> None:
        """Load the model from the package.

        Raises:
            EmbedderFault: the package is not installed.

        """
        try:
            import wordllama  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 (an extra)
        except ImportError:
            raise EmbedderFault("wordllama is not installed", hint="pip install 'expunge[wordllama]'") from None
        from pathlib import Path  # noqa: PLC0415

        folder = Path(str(wordllama.__file__)).parent
        self._model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)

    async def embed(self, texts: Sequence[str]) -> Any:
        """One vector a text."""
        return await asyncio.to_thread(self._model.embed, list(texts))


async def embed(embedder: Embedder, texts: Sequence[str], timeout_s: float) -> Vectors:
    """The vectors of some texts, each of length 1 (or 0, of a text that says nothing).

    Raises:
        EmbedderFault: the embedder raised, took too long, or answered something else than a vector a text.

    """
    starts = range(0, len(texts), _TEXTS_A_CALL)
    made = [await _some(embedder, texts[start : start + _TEXTS_A_CALL], timeout_s) for start in starts]
    if not made:
        return np.zeros((0, embedder.dims), np.float32)
    vectors = made[0] if len(made) == 1 else np.concatenate(made)
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    lengths[lengths == 0] = 1.0
    unit: Vectors = vectors / lengths[:, None]
    return unit


async def _some(embedder: Embedder, texts: Sequence[str], timeout_s: float) -> Vectors:
    name = embedder.name
    try:
        if type(embedder) is HashingEmbedder:  # ours does not hang
            answer: Any = await embedder.embed(texts)
        else:
            answer = await answer_within(timeout_s, embedder.embed(texts))
    except TimeoutError:
        raise EmbedderFault(f"embedder {name} did not answer in {timeout_s:g} s, so nothing was written") from None
    except EmbedderFault:
        raise
    except Exception as fault:
        raise EmbedderFault(f"embedder {name} failed with {type(fault).__name__}, so nothing was written") from fault
    try:
        vectors = np.asarray(answer, np.float32)
    except (TypeError, ValueError):
        vectors = np.zeros(0, np.float32)
    if vectors.shape != (len(texts), embedder.dims) or not np.isfinite(vectors).all():
        raise EmbedderFault(f"embedder {name} answered no {embedder.dims} numbers a text, so nothing was written")
    return vectors
