"""Keys: the HMAC keys behind pseudonyms and the Ed25519 keys behind receipts (law 14, design 4)."""

from expunge.keys.ring import KeyRing, PseudonymKey, SigningKey
from expunge.keys.store import change_key_file, load_key_file, open_key_file

__all__ = [
    "KeyRing",
    "PseudonymKey",
    "SigningKey",
    "change_key_file",
    "load_key_file",
    "open_key_file",
]
