"""The registry itself: every operation there is."""

from __future__ import annotations

from expunge.operations import doctor, erasure, proofs, records, scopes
from expunge.operations.registry import NoInput, Operation, Role

_ALL = (
    Operation(
        "records.put", Role.WRITER, "Write records, all or nothing.",
        records.PutInput, records.PutOutput, records.put, writes_records=True,
    ),
    Operation(
        "subject.profile", Role.ADMIN, "Say what is held on a user.",
        records.ProfileInput, records.ProfileOutput, records.profile, read_only=True,
    ),
    Operation(
        "erasure.request", Role.ORG_ADMIN, "Erase one scope everywhere, and prove it; or only say what would go.",
        scopes.RequestInput, erasure.Answer | erasure.PreviewOutput, erasure.request, destructive=True,
    ),
    Operation(
        "erasure.status", Role.ORG_ADMIN, "Say how an erasure stands.",
        erasure.OneInput, erasure.Answer, erasure.status, read_only=True,
    ),
    Operation(
        "erasure.list", Role.VIEWER, "List the erasures of an org, newest first.",
        erasure.ListInput, erasure.ListOutput, erasure.listing, read_only=True,
    ),
    Operation(
        "erasure.resume", Role.ORG_ADMIN, "Go on with an erasure from its last checkpoint.",
        erasure.OneInput, erasure.Answer, erasure.resume, destructive=True,
    ),
    Operation(
        "erasure.resume_due", Role.OPERATOR, "Purge what was hidden and not restored in time, in every org.",
        erasure.DueInput, erasure.DueOutput, erasure.resume_due, destructive=True,
    ),
    Operation(
        "erasure.restore", Role.ORG_ADMIN, "Serve what an erasure hid again, within 14 days.",
        erasure.RestoreInput, erasure.RestoreOutput, erasure.restore,
    ),
    Operation(
        "erasure.release", Role.ORG_ADMIN, "Lower the fence of an erasure that stopped short.",
        erasure.OneInput, erasure.Answer, erasure.release,
    ),
    Operation(
        "erasure.census", Role.ORG_ADMIN, "Count again what an erasure left.",
        erasure.OneInput, erasure.CensusOutput, erasure.census, read_only=True,
    ),
    Operation(
        "erasure.receipts", Role.ORG_ADMIN, "Give the signed receipts of an erasure.",
        erasure.OneInput, erasure.ReceiptsOutput, erasure.receipts, read_only=True,
    ),
    Operation(
        "ledger.export", Role.ORG_ADMIN, "Give the whole ledger of an org.",
        proofs.LedgerInput, proofs.LedgerOutput, proofs.export_ledger, read_only=True,
    ),
    Operation(
        "data_map.show", Role.VIEWER, "Show every collection and what an erasure does to it.",
        NoInput, proofs.DataMapOutput, proofs.show_data_map, read_only=True,
    ),
    Operation(
        "system.doctor", Role.OPERATOR, "Look the installation over, and say what is not covered.",
        NoInput, doctor.DoctorOutput, doctor.examine, read_only=True,
    ),
    Operation(
        "keys.show", Role.OPERATOR, "Show the ids of the keys and the public half in use.",
        NoInput, proofs.KeysOutput, proofs.show_keys, read_only=True,
    ),
    Operation(
        "keys.rotate", Role.OPERATOR, "Make fresh keys; the old ones stay for matching.",
        NoInput, proofs.KeysOutput, proofs.rotate_keys,
    ),
)  # fmt: skip

OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _ALL}
"""Every operation, by name."""
