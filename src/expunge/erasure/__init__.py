"""Erasure: a scope goes everywhere, in checkpointed idempotent steps that end in a census and a receipt."""

from expunge.erasure.opening import open_erasure, resume_erasure
from expunge.erasure.preview import Preview, preview
from expunge.erasure.recount import recount, store_census
from expunge.erasure.request import Request, Status, find_request, list_requests
from expunge.erasure.saga import Progress, Saga

__all__ = [
    "Preview",
    "Progress",
    "Request",
    "Saga",
    "Status",
    "find_request",
    "list_requests",
    "open_erasure",
    "preview",
    "recount",
    "resume_erasure",
    "store_census",
]
