"""Erasure: a scope goes everywhere, in checkpointed idempotent steps that end in a census and a receipt."""

from expunge.erasure.due import purge_due
from expunge.erasure.health import Health, read_health
from expunge.erasure.marking import count_hidden
from expunge.erasure.opening import open_erasure, release_fence, resume_erasure
from expunge.erasure.order import Order, Urgency
from expunge.erasure.preview import Preview, preview
from expunge.erasure.recount import recount, summed
from expunge.erasure.request import Request, Status, find_request, list_due, list_requests
from expunge.erasure.restore import restore
from expunge.erasure.saga import Progress, Saga
from expunge.erasure.settling import settle
from expunge.erasure.starting import start_erasure

__all__ = [
    "Health",
    "Order",
    "Preview",
    "Progress",
    "Request",
    "Saga",
    "Status",
    "Urgency",
    "count_hidden",
    "find_request",
    "list_due",
    "list_requests",
    "open_erasure",
    "preview",
    "purge_due",
    "read_health",
    "recount",
    "release_fence",
    "restore",
    "resume_erasure",
    "settle",
    "start_erasure",
    "summed",
]
