"""The command line, imported once and forked for each call: a process like any other, but for the start of Python.

    python command_server.py SOCKET

A message on the socket is a call: JSON with the folder, the environment and the words, and with it the three standard
streams. What answers it is the exit code of the child, negative for a signal. The child ends as an interpreter does
that was started for it: streams flushed, exit handlers run.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from typing import Any

import typer.rich_utils  # noqa: F401 (typer takes it when it first shows an error, which is then in the child)

from expunge.cli import main

LONGEST_CALL = 1 << 16


def serve(calls: socket.socket) -> dict[str, Any] | None:
    """Answer calls until the other end is closed; a forked child leaves with the call that it has to do."""
    while True:
        message, streams, _, _ = socket.recv_fds(calls, LONGEST_CALL, 3)
        if not message:
            return None
        child = os.fork()
        if child == 0:
            calls.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            call: dict[str, Any] = json.loads(message)
            return call
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        calls.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(call: dict[str, Any]) -> None:
    """Take the place that a new process would have been started in."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environ"])
    sys.argv = ["expunge", *call["words"]]
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt of the tests is theirs to see
    gc.collect()
    gc.freeze()
    given = serve(socket.socket(fileno=int(sys.argv[1])))
    if given is not None:
        become(given)
        sys.exit(main())  # type: ignore[func-returns-value]
