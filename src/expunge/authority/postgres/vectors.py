"""Vectors on a server with pgvector: its half-precision numbers, which are the same on every authority."""

from __future__ import annotations

import struct

import numpy as np
import psycopg
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format

from expunge.authority.port import Halves

_HEADER = struct.Struct("!HH")


class _HalvesDumper(Dumper):
    """A vector as pgvector receives it: how many numbers, nothing, and the numbers with the high byte of each first."""

    format = Format.BINARY

    def dump(self, obj: Halves) -> Buffer:
        numbers = np.frombuffer(obj, "<f2")
        return _HEADER.pack(len(numbers), 0) + numbers.astype(">f2").tobytes()


class _HalvesLoader(Loader):
    """A vector as it is stored elsewhere, from the text that pgvector gives."""

    def load(self, data: Buffer) -> bytes:
        numbers = bytes(data)[1:-1].split(b",")
        return np.array(numbers, "S").astype("<f2").tobytes()


def adapt(connection: psycopg.Connection, halves: int) -> None:
    """Let vectors go to the server and come back as values of the type with this number."""
    connection.adapters.register_dumper(Halves, type("HalvesDumper", (_HalvesDumper,), {"oid": halves}))
    connection.adapters.register_loader(halves, _HalvesLoader)
