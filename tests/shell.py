"""The command as a process: what it is given, what it says on each stream, and how it ends."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import IO, Any

EXPUNGE = Path(sys.executable).with_name("expunge")
"""The command as it is installed; a start of it costs most of a second, nearly all of it imports."""


class _Server:
    """The process of ``command_server.py``, started by the first call and ended with the tests."""

    def __init__(self) -> None:
        self._calls, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = Path(__file__).with_name("command_server.py")
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, script, str(number)], pass_fds=[number], env={"PATH": os.environ["PATH"]}
            )
        atexit.register(self.end)

    def call(self, folder: Path, environ: dict[str, str], words: list[str], streams: list[int]) -> int:
        """Run the command, and give its exit code."""
        message = json.dumps({"folder": str(folder), "environ": environ, "words": words})
        try:
            socket.send_fds(self._calls, [message.encode()], streams)
            return int(self._calls.recv(16))
        except BaseException:  # what is asked next must not get this answer
            self.end()
            _server.cache_clear()
            raise

    def end(self) -> None:
        self._calls.close()
        self._process.wait()


@cache
def _server() -> _Server:
    return _Server()


def environ_of(folder: Path) -> dict[str, str]:
    """A bare environment."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder)}


class Shell:
    """The command in a folder of its own, with a bare environment.

    Each call is a process of its own, forked from one that has done the imports. With ``installed`` it is the installed
    command, started afresh: for what only that can show.
    """

    def __init__(self, folder: Path, *, installed: bool = False) -> None:
        self.folder = folder
        self.installed = installed

    def run(
        self, *words: str | bytes, stdin: bytes = b"", exits: int = 0, **environ: str
    ) -> subprocess.CompletedProcess[bytes]:
        """What the command does, which has to end with this code and without a traceback."""
        done = self.call(*words, stdin=stdin, environ=environ)
        assert done.returncode == exits, (words, done.stdout, done.stderr)
        return done

    def call(
        self, *words: str | bytes, stdin: bytes = b"", stdout: int | None = None, environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """What the command does, however it ends; its standard output may go elsewhere."""
        env = environ_of(self.folder) | (environ or {})
        with contextlib.ExitStack() as stack:
            given, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
            given.write(stdin)
            given.seek(0)
            where = out.fileno() if stdout is None else stdout
            if self.installed:
                code = subprocess.run(
                    [EXPUNGE, *words], cwd=self.folder, env=env, stdin=given, stdout=where, stderr=err, check=False
                ).returncode
            else:
                code = _server().call(
                    self.folder, env, [os.fsdecode(word) for word in words], [given.fileno(), where, err.fileno()]
                )
            done = subprocess.CompletedProcess([*words], code, _all_of(out), _all_of(err))
        assert b"Traceback" not in done.stderr, (words, done.stderr)
        return done

    def json(self, *words: str, exits: int = 0, stdin: bytes = b"") -> Any:
        """The answer for a program."""
        return json.loads(self.run(*words, "--json", exits=exits, stdin=stdin).stdout)

    def error(self, *words: str | bytes, exits: int, stdin: bytes = b"", **environ: str) -> Any:
        """The error for a program; nothing stands on standard output."""
        done = self.run(*words, "--json", exits=exits, stdin=stdin, **environ)
        assert done.stdout == b""
        return json.loads(done.stderr.splitlines()[-1])["detail"]


def _all_of(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
