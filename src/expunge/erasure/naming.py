"""Who is named beside the records: in the clear part of the audit, and as who asked for an erasure.

A purge takes its people out of both, before the census counts; a text that names one of them goes with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from expunge import audit
from expunge.authority.port import Statement, Tx
from expunge.erasure.request import Request
from expunge.model.scope import Target
from expunge.system import System

_DROP_REQUESTER = Statement("requests.drop_requester", "UPDATE requests SET requester = NULL WHERE rid = :rid")
_DROP_REQUESTERS = Statement(
    "requests.drop_requesters",
    """UPDATE requests SET requester = NULL
    WHERE requester IN (SELECT value FROM each_text(:names)) AND org = :org""",
)


def names_a_subject(request: Request) -> bool:
    """Whether the text of who asked names somebody in the scope: as a word of its own, or as all of it."""
    text, scope = request.requester, request.scope
    return text is not None and scope is not None and _names(text, scope.targets)


def _names(text: str, targets: Iterable[Target]) -> bool:
    ids = {value for target in targets for value in target.named().values() if value in text}
    return any(re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) for value in ids)


def unname(tx: Tx, request: Request, system: System) -> None:
    """Take the people that a purge erases out of the clear part of the audit; the chain stays as it is.

    They are its users, where nothing narrows them further: of one who stays in another namespace the name stays, too.
    Who came back and does something is filed again.
    """
    if request.before is not None:
        return
    if not request.subjects[0]:
        audit.remove_all(tx, request.org)
    elif request.subjects[0].keys() == {"user_id"}:
        audit.remove_named(tx, request.org, _people(tx, request, system))


def _people(tx: Tx, request: Request, system: System) -> list[str]:
    """The users of a request; where its scope has been forgotten, those of the names filed that match (design 5)."""
    if request.scope is not None:
        return list(request.scope.user_ids)
    key = system.keys.pseudonym_key(request.key_id)
    wanted = {subject["user_id"] for subject in request.subjects}
    return [name for name in audit.names_in(tx, request.org) if key.pseudonym(request.org, "user_id", name) in wanted]


def drop_requester(tx: Tx, request: Request) -> None:
    """Drop the text of who asked where it names somebody whom its request is about to forget, wherever it stands."""
    if names_a_subject(request):
        audit.remove_named(tx, request.org, [request.requester or ""])
        tx.send(_DROP_REQUESTER, rid=request.rid)
        request.requester = None


def drop_requesters(tx: Tx, request: Request) -> None:
    """The same of every request that an erased user had asked for, by their id."""
    if request.before is None and request.scope is not None and request.scope.user_ids:
        names = json.dumps(request.scope.user_ids, ensure_ascii=False)
        tx.send(_DROP_REQUESTERS, names=names, org=request.org)
