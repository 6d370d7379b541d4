"""``ledger.export`` and ``keys.*``."""

from __future__ import annotations

from expunge import audit
from expunge.errors import KeyMissing, NotOffered
from expunge.keys import KeyRing, change_key_file
from expunge.operations.registry import Call, Input, NoInput, OrgId, Output
from expunge.proof import read_ledger
from expunge.system import System, bind


class LedgerInput(Input):
    """Whose ledger."""

    org: OrgId


class LedgerOutput(Output):
    """The ledger as the lines of a ledger file."""

    lines: list[str]


async def export_ledger(system: System, _call: Call, given: LedgerInput) -> LedgerOutput:
    """Give the whole ledger of an org, for ``verify --ledger``."""
    now = system.clock.now()
    return LedgerOutput(lines=await system.authority.read(lambda tx: read_ledger(tx, given.org, now)))


class KeysOutput(Output):
    """The keys that the database relies on, oldest first. Public halves only."""

    keys_file: str | None
    pseudonym_keys: list[str]
    signing_keys: list[str]
    public_pems: list[str]


async def show_keys(system: System, _call: Call, _given: NoInput) -> KeysOutput:
    """Show the ids of the keys, and the public half of the signing key in use."""
    return _keys(system)


async def rotate_keys(system: System, call: Call, _given: NoInput) -> KeysOutput:
    """Make fresh keys for what comes; the old ones stay for matching and verifying."""
    if system.keys_path is None:
        raise NotOffered("keys in memory cannot be rotated", hint="use a database file, or set keys_file")
    held = system.keys.check_values().items()

    def rotated(ring: KeyRing) -> KeyRing:
        if not held <= ring.check_values().items():
            raise KeyMissing(f"{system.keys_path} does not hold the keys that this database relies on")
        return ring.rotated()

    ring = change_key_file(system.keys_path, rotated)
    entry = audit.Entry(
        org=system.settings.org,
        at=system.clock.now(),
        actor=call.actor.id,
        role=call.actor.role.name.lower(),
        operation="keys.rotate",
        outcome="done",
        detail={"pseudonym_key": ring.current.id, "signing_key": ring.signer.id},
    )
    await bind(system.authority, ring, entry)
    system.use_keys(ring)
    return _keys(system)


def _keys(system: System) -> KeysOutput:
    return KeysOutput(
        keys_file=None if system.keys_path is None else str(system.keys_path),
        pseudonym_keys=[key.id for key in system.keys.pseudonym_keys],
        signing_keys=[key.id for key in system.keys.signing_keys],
        public_pems=[key.public_pem for key in system.keys.signing_keys],
    )
