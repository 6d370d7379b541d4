"""The one error tree.

Each class docstring is the default message. ``code`` is stable and machine-readable, ``hint`` says what to do
next, and ``exit_code`` is what the command line ends with. Messages carry shortened, escaped ids at most: never a
secret and never the text that somebody wrote (law 14, "bad input" of the contributing page).
"""

from __future__ import annotations

from typing import Any, ClassVar

EXIT_NOT_DONE = 1
EXIT_INPUT = 2
EXIT_REFUSED = 3
EXIT_ENVIRONMENT = 4


class ExpungeError(Exception):
    """something went wrong."""

    code: ClassVar[str] = "ERROR"
    hint: ClassVar[str] = ""
    exit_code: ClassVar[int] = EXIT_NOT_DONE
    retry_after_s: ClassVar[float | None] = None

    def __init__(self, message: str = "", *, hint: str | None = None, **data: Any) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.next_step = type(self).hint if hint is None else hint
        self.data = data
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}; {self.next_step}" if self.next_step else self.message

    def as_dict(self) -> dict[str, Any]:
        """The error as the envelope that every surface answers with."""
        detail: dict[str, Any] = {"code": self.code, "message": self.message, "hint": self.next_step}
        if self.retry_after_s is not None:
            detail["retry_after_s"] = self.retry_after_s
        return {"detail": detail | self.data}


class InputError(ExpungeError):
    """the input is not valid."""

    code = "INVALID_INPUT"
    exit_code = EXIT_INPUT


class InvalidId(InputError):
    """the id is not valid."""

    code = "INVALID_ID"
    hint = "ids are opaque text of 1 to 256 bytes of UTF-8, not blank, without NUL, and not '-'"


class InvalidInstant(InputError):
    """the time is not valid."""

    code = "INVALID_INSTANT"
    hint = "write times as ISO-8601 with a zone, such as 2026-01-31T09:00:00Z"


class InvalidScope(InputError):
    """the scope is not valid."""

    code = "INVALID_SCOPE"
    hint = "name 1 to 500 users"


class InvalidRecords(InputError):
    """some lines are not valid records, and nothing was written."""

    code = "INVALID_RECORDS"
    hint = "mend the lines, or leave them out with --skip-bad"


class InvalidExport(InputError):
    """the file is not a whole and unchanged export; nothing was read from it."""

    code = "INVALID_EXPORT"
    hint = "give the file as it was exported, or export again"


class SettingsError(InputError):
    """a setting is not valid."""

    code = "INVALID_SETTING"
    hint = "see docs/reference/settings.md for the names and their meaning"


class IdempotencyConflict(InputError):
    """the idempotency key was used for another write."""

    code = "IDEMPOTENCY_CONFLICT"
    hint = "use a key once for each write, and the same key only to repeat it"


class UnknownRequest(InputError):
    """there is no such erasure request."""

    code = "UNKNOWN_REQUEST"
    hint = "list them with: expunge erasures"


class DerivationFailed(ExpungeError):
    """the deriver did not answer as it should, and nothing of it was written."""

    code = "DERIVATION_FAILED"


class UnknownRun(InputError):
    """there is no such run."""

    code = "UNKNOWN_RUN"
    hint = "begin a new one"


class Refused(ExpungeError):
    """the call was refused, and nothing was changed."""

    code = "REFUSED"
    exit_code = EXIT_REFUSED


class AuthInsufficient(Refused):
    """the caller's role does not allow this operation."""

    code = "AUTH_INSUFFICIENT"
    hint = "ask somebody with the role that the operation names"


class NotOffered(Refused):
    """this is not offered yet."""

    code = "NOT_OFFERED"


class ErasureInProgress(Refused):
    """an erasure of this scope is running, so the write was refused (law 4)."""

    code = "ERASURE_IN_PROGRESS"
    hint = "try again when the erasure has ended: expunge erasures"
    retry_after_s = 1.0


class ErasedSince(Refused):
    """the scope was erased after this unit of work began, so what it read may be gone (law 4)."""

    code = "ERASED_SINCE"
    hint = "read again and write what is still true"


class HiddenByErasure(Refused):
    """the record was hidden by an erasure that can still be restored."""

    code = "HIDDEN"
    hint = "restore it first: expunge restore ID"


class PlanChanged(Refused):
    """what would go is not what the plan hash was made for, so nothing was removed."""

    code = "PLAN_CHANGED"
    hint = "look again with --dry-run, and give the hash that it prints"


class NotRestorable(Refused):
    """the erasure cannot be restored from."""

    code = "NOT_RESTORABLE"
    hint = "read its state with: expunge erasure ID"


class VersionConflict(Refused):
    """another version was written in between, so nothing was."""

    code = "VERSION_CONFLICT"
    hint = "read the newest version, and write again"


class Pinned(Refused):
    """the document is pinned."""

    code = "PINNED"
    hint = "take the pin off first; an erasure needs no leave of a pin"


class ForgetFailed(Refused):
    """the erasure did not complete, so nothing is called forgotten."""

    code = "FORGET_FAILED"
    hint = "read its state with: expunge erasure ID"
    exit_code = EXIT_NOT_DONE


class RunnerSuperseded(Refused):
    """another runner has taken this erasure over, and this one stopped (design 4)."""

    code = "RUNNER_SUPERSEDED"
    hint = "read its state with: expunge erasure ID"


class Abandoned(Refused):
    """the erasure failed too often and waits for a person."""

    code = "ABANDONED"
    hint = "read failure_reason with: expunge erasure ID"


class EnvironmentFault(ExpungeError):
    """the machine does not let us work."""

    code = "ENVIRONMENT"
    exit_code = EXIT_ENVIRONMENT


class ErasureInterrupted(EnvironmentFault):
    """the erasure stopped half way; the request stays in_progress and nothing is lost."""

    code = "ERASURE_INTERRUPTED"


class EmbedderFault(EnvironmentFault):
    """the embedder did not answer as it should, and nothing was written."""

    code = "EMBEDDER"
    hint = "mend the embedder and try again"


class DatabaseFault(EnvironmentFault):
    """the database did not do what was asked."""

    code = "DATABASE"


class DatabaseBusy(DatabaseFault):
    """another process held the database for longer than busy_timeout_s."""

    code = "DATABASE_BUSY"
    hint = "try again, or raise busy_timeout_s"
    retry_after_s = 1.0


class DatabaseAway(DatabaseFault):
    """the database server cannot be reached."""

    code = "DATABASE_AWAY"
    hint = "see that the server runs and takes connections, and try again"
    retry_after_s = 1.0


class DatabaseForeign(DatabaseFault):
    """the file is not an Expunge database."""

    code = "DATABASE_FOREIGN"
    hint = "name another file with --db; this one was left as it is"


class DatabaseNewer(DatabaseFault):
    """the database was written by a newer Expunge."""

    code = "DATABASE_NEWER"
    hint = "upgrade Expunge; this file was left as it is"


class DatabaseUnreadable(DatabaseFault):
    """the database cannot be opened for writing."""

    code = "DATABASE_UNREADABLE"
    hint = "give this user write access to the file and its folder"


class DatabaseMissing(DatabaseFault):
    """there is no database at this place."""

    code = "DATABASE_MISSING"
    hint = "name the file with --db, or make one with: expunge load FILE"


class DiskFull(DatabaseFault):
    """the disk is full."""

    code = "DISK_FULL"
    hint = "free some space and try again"


class StoreFault(EnvironmentFault):
    """a store outside the database did not do what was asked."""

    code = "STORE"
    hint = "mend the store, then: expunge resume ID"


class StoreUnable(StoreFault):
    """a store cannot do what was asked of it; nothing else was done instead."""

    code = "STORE_UNABLE"
    hint = "see what the store can do in: expunge doctor"


class KeyFault(EnvironmentFault):
    """the key file cannot be used."""

    code = "KEYS"


class KeyMissing(KeyFault):
    """the database names a key that the key file does not hold."""

    code = "KEY_MISSING"
    hint = "bring the key file back from its copy; a new key could not match what was erased"


class KeyMalformed(KeyFault):
    """the key file is empty or damaged."""

    code = "KEY_MALFORMED"
    hint = "bring the key file back from its copy"


class KeyExposed(KeyFault):
    """the key file can be read by other users of this machine."""

    code = "KEY_EXPOSED"
    hint = "set its mode to 0600, and rotate the keys if somebody may have read them"
