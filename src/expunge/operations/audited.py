"""What the audit says of calls that change nothing: refusals, and reads of what is held on a person (law 15)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from expunge import audit
from expunge.authority.port import Tx
from expunge.erasure import find_request
from expunge.errors import ExpungeError, Refused, UnknownRequest
from expunge.model.scope import Scope, Target
from expunge.system import System

_REQUEST_ID = re.compile(r"er-[0-9a-f]{24}")
"""An id that we have made. What else a caller calls a request could be a person's id, and is not repeated."""


@dataclass(frozen=True, slots=True)
class By:
    """Who called which operation, in which role."""

    actor: str
    role: str
    operation: str


async def note_refusal(
    system: System, by: By, fault: Refused, *, org: str, targets: Sequence[Target] = (), request_id: str | None = None
) -> None:
    """Say in the audit that a call was refused, and by which error, in a commit of its own.

    The caller gets the refusal in any case: that it could not be written down is no other error.
    """
    request_id = fault.data.get("request_id") or request_id
    if request_id is not None and not _REQUEST_ID.fullmatch(request_id):
        request_id = None

    def unit(tx: Tx) -> None:
        now, subjects, key_id = system.clock.now(), [system.keys.pseudonyms(target) for target in targets], None
        if request_id is not None and not subjects:
            with contextlib.suppress(UnknownRequest):
                request = find_request(tx, org, request_id, now)
                subjects, key_id = request.subjects, request.key_id
        audit.record(
            tx,
            system.keys,
            audit.Entry(
                org=org,
                at=now,
                actor=by.actor,
                role=by.role,
                operation=by.operation,
                outcome="refused",
                request_id=request_id,
                subjects=subjects,
                subjects_key=key_id,
                detail={"code": fault.code},
            ),
        )

    with contextlib.suppress(ExpungeError):
        await system.authority.run(unit)


async def note_read(system: System, by: By, scope: Scope, counts: Mapping[str, int]) -> None:
    """Say in the audit that somebody was told what is held on a scope, with how much it was, by collection.

    Reading goes on where nothing can be written.
    """
    held = {name: count for name, count in counts.items() if count}

    def unit(tx: Tx) -> None:
        system.check_keys(tx)
        audit.record(
            tx,
            system.keys,
            audit.Entry(
                org=scope.org,
                at=system.clock.now(),
                actor=by.actor,
                role=by.role,
                operation=by.operation,
                outcome="read",
                subjects=[system.keys.pseudonyms(target) for target in scope.targets],
                detail={"held": held},
            ),
        )

    with contextlib.suppress(ExpungeError):
        await system.authority.run(unit)
