"""The key ring: the newest key of each kind is used, the older ones stay for matching and verifying."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from expunge.errors import InputError, KeyMissing
from expunge.model.identity import PARTS, Identity
from expunge.model.scope import Target

_SECRET_BYTES = 32
_ID_DIGITS = 16
_PSEUDONYM_DIGITS = 32
"""128 bits: two subjects of one org collide with a chance of about 10^-26 among a million."""


@dataclass(frozen=True, slots=True)
class PseudonymKey:
    """An HMAC key. Whoever holds it can confirm a guessed id, so what it makes is still personal data."""

    id: str
    secret: bytes = field(repr=False)

    @classmethod
    def new(cls) -> PseudonymKey:
        """A fresh random key."""
        return cls(id="pk-" + secrets.token_hex(_ID_DIGITS // 2), secret=secrets.token_bytes(_SECRET_BYTES))

    def pseudonym(self, org: str, part: str, value: str) -> str:
        """The pseudonym of one identity atom; ids hold no NUL, so the parts cannot run into each other."""
        message = f"expunge/pseudonym/1\0{org}\0{part}\0{value}".encode()
        return hmac.digest(self.secret, message, "sha256").hex()[:_PSEUDONYM_DIGITS]

    def check_value(self) -> str:
        """What a database remembers of the key, to notice another key under the same id."""
        return hmac.digest(self.secret, b"expunge/check/1", "sha256").hex()[:_PSEUDONYM_DIGITS]


@dataclass(frozen=True)
class SigningKey:
    """An Ed25519 key; its id is the start of the hash of its public half."""

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def new(cls) -> SigningKey:
        """A fresh random key."""
        return cls(private=Ed25519PrivateKey.generate())

    @cached_property
    def id(self) -> str:
        """The id that receipts name."""
        return signing_key_id(self.private.public_key())

    @property
    def public_pem(self) -> str:
        """The public half as PEM, which is what a verifier pins."""
        return (
            self.private.public_key()
            .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
            .decode()
        )

    def sign(self, data: bytes) -> str:
        """The signature of some bytes, as base64."""
        return base64.b64encode(self.private.sign(data)).decode()

    def check_value(self) -> str:
        """What a database remembers of the key."""
        return self.id


def signing_key_id(public: Ed25519PublicKey) -> str:
    """The id of a public key: it names the key by content, so it cannot name another."""
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return "sk-" + hashlib.sha256(raw).hexdigest()[:_ID_DIGITS]


def read_public_pem(data: bytes) -> Ed25519PublicKey:
    """Read a public key.

    Raises:
        InputError: not PEM, or not an Ed25519 public key.

    """
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError("the key is not an Ed25519 public key in PEM", hint="make it with: expunge keys export")
    return key


def signature_is_valid(public: Ed25519PublicKey, signature: str, data: bytes) -> bool:
    """Whether a base64 signature of some bytes was made with the private half of ``public``."""
    try:
        raw = base64.b64decode(signature, validate=True)
        public.verify(raw, data)
    except (InvalidSignature, ValueError):
        return False
    return base64.b64encode(raw).decode() == signature  # no second spelling of the same signature


@dataclass(frozen=True, slots=True)
class KeyRing:
    """All keys, oldest first."""

    pseudonym_keys: tuple[PseudonymKey, ...]
    signing_keys: tuple[SigningKey, ...]

    @classmethod
    def new(cls) -> KeyRing:
        """A ring with one fresh key of each kind."""
        return cls((PseudonymKey.new(),), (SigningKey.new(),))

    def rotated(self) -> KeyRing:
        """The ring with a fresh key of each kind at its end."""
        return KeyRing(
            (*self.pseudonym_keys, PseudonymKey.new()),
            (*self.signing_keys, SigningKey.new()),
        )

    @property
    def current(self) -> PseudonymKey:
        """The pseudonym key that new fences and receipts use."""
        return self.pseudonym_keys[-1]

    @property
    def signer(self) -> SigningKey:
        """The signing key that new receipts use."""
        return self.signing_keys[-1]

    def pseudonym_key(self, key_id: str) -> PseudonymKey:
        """The pseudonym key of this id.

        Raises:
            KeyMissing: the ring does not hold it.

        """
        for key in self.pseudonym_keys:
            if key.id == key_id:
                return key
        raise KeyMissing(f"the key file does not hold {key_id}")

    def pseudonyms(self, target: Target) -> dict[str, str]:
        """The pseudonym of each part that a target narrows, under the current key."""
        return {part: self.current.pseudonym(target.org, part, value) for part, value in target.named().items()}

    def matches(self, org: str, stored: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """For each stored part of an identity, its pseudonyms under every key: what fences are matched by."""
        return tuple(self.pseudonyms_of(org, part, value) for part, value in zip(PARTS, stored, strict=True))

    def pseudonyms_of(self, org: str, part: str, value: str) -> tuple[str, ...]:
        """The pseudonyms of one identity atom under every key, the oldest first."""
        return tuple(key.pseudonym(org, part, value) for key in self.pseudonym_keys)

    def filed_under(self, identity: Identity) -> tuple[str, ...]:
        """The pseudonyms of an identity under the current key, in the order of ``PARTS``: how stores file bodies."""
        _, *stored = identity.stored()
        return tuple(self.current.pseudonym(identity.org, part, v) for part, v in zip(PARTS, stored, strict=True))

    def labels(self, target: Target, key_id: str, known: Mapping[str, str]) -> dict[str, frozenset[str]]:
        """For each part that a target narrows, its pseudonyms under every key: what stores file bodies under.

        ``known`` are those under one of the keys, which need not be made again.
        """
        others = [key for key in self.pseudonym_keys if key.id != key_id]
        return {
            part: frozenset((known[part], *(key.pseudonym(target.org, part, value) for key in others)))
            for part, value in target.named().items()
        }

    def check_values(self) -> dict[str, str]:
        """What a database remembers of each key, by key id."""
        pseudonym = {key.id: key.check_value() for key in self.pseudonym_keys}
        return pseudonym | {key.id: key.check_value() for key in self.signing_keys}
