"""The key file: one 0600 JSON file beside the configuration, made and changed under a lock (design 4)."""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from expunge.errors import DiskFull, KeyExposed, KeyFault, KeyMalformed, KeyMissing
from expunge.keys.ring import KeyRing, PseudonymKey, SigningKey

_FORMAT = "expunge-keys/1"
_SHORTEST_SECRET = 32


def load_key_file(path: Path) -> KeyRing:
    """Read a key file.

    Raises:
        KeyMissing: there is none.
        KeyExposed: others than its owner may read it.
        KeyMalformed: it is empty or damaged, or holds an empty key.

    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read()
    except FileNotFoundError:
        raise KeyMissing(f"there is no key file at {path}") from None
    except OSError as fault:
        raise KeyFault(
            f"the key file {path} cannot be read: {fault.strerror}", hint="let this user read it, or set keys_file"
        ) from fault
    if mode & 0o077:
        raise KeyExposed(f"the key file {path} has mode {mode:04o}")
    return _decode(data, path)


def open_key_file(path: Path) -> KeyRing:
    """Read a key file, and make it first when there is none (under a lock: two first starts get one ring)."""
    with contextlib.suppress(KeyMissing):
        return load_key_file(path)
    with _locked(path):
        with contextlib.suppress(KeyMissing):
            return load_key_file(path)
        return _write(path, KeyRing.new())


def change_key_file(path: Path, change: Callable[[KeyRing], KeyRing]) -> KeyRing:
    """Replace the ring of an existing key file by what ``change`` makes of it, under the lock."""
    path = path.resolve()  # what a link leads to is the file that is kept and copied
    with _locked(path):
        return _write(path, change(load_key_file(path)))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise _cannot_write(path, fault) from fault
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(path: Path, ring: KeyRing) -> KeyRing:
    """Temp file, fsync, rename, fsync of the folder: a crash leaves the old file or the new one."""
    temporary = path.with_name(path.name + ".new")
    try:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(_encode(ring))
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as fault:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _cannot_write(path, fault) from fault
    return ring


def _cannot_write(path: Path, fault: OSError) -> KeyFault | DiskFull:
    if fault.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"the disk is full, so the key file {path} was not written")
    return KeyFault(
        f"the key file {path} cannot be written: {fault.strerror}",
        hint="give this user write access to its folder, or set keys_file",
    )


def _encode(ring: KeyRing) -> bytes:
    def private(key: SigningKey) -> bytes:
        return key.private.private_bytes(
            serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
        )

    document = {
        "format": _FORMAT,
        "pseudonym": [{"id": key.id, "secret": base64.b64encode(key.secret).decode()} for key in ring.pseudonym_keys],
        "signing": [{"id": key.id, "secret": base64.b64encode(private(key)).decode()} for key in ring.signing_keys],
    }
    return (json.dumps(document, indent=2) + "\n").encode()


def _decode(data: bytes, path: Path) -> KeyRing:
    if not data.strip():
        raise KeyMalformed(f"the key file {path} is empty")
    try:
        document = json.loads(data)
        if document["format"] != _FORMAT:
            raise KeyMalformed(f"the key file {path} has a format that this version does not know")
        ring = KeyRing(
            tuple(PseudonymKey(str(entry["id"]), _secret(entry, path)) for entry in document["pseudonym"]),
            tuple(
                SigningKey(Ed25519PrivateKey.from_private_bytes(_secret(entry, path))) for entry in document["signing"]
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, binascii.Error):
        raise KeyMalformed(f"the key file {path} is damaged") from None
    if not ring.pseudonym_keys or not ring.signing_keys:
        raise KeyMalformed(f"the key file {path} lacks a key")
    if any(key.id != entry["id"] for key, entry in zip(ring.signing_keys, document["signing"], strict=True)):
        raise KeyMalformed(f"the key file {path} holds a signing key under another key's id")
    return ring


def _secret(entry: dict[str, Any], path: Path) -> bytes:
    secret = base64.b64decode(entry["secret"], validate=True)
    if len(secret) < _SHORTEST_SECRET:
        raise KeyMalformed(f"the key file {path} holds an empty or short key")
    return secret
