"""``system.doctor``: versions, pragmas, file modes, keys, erasures that want a hand, and what is not covered."""

from __future__ import annotations

import platform
import stat
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from expunge.authority.port import Examined
from expunge.erasure import Health, read_health
from expunge.errors import DatabaseFault
from expunge.operations.registry import Call, NoInput, Output
from expunge.proof.receipt import NOT_COVERED
from expunge.stores import Lifecycle
from expunge.stores.folder import FolderStore
from expunge.stores.memory import MemoryStore
from expunge.system import System

_VERSION = version("expunge")  # read once: a process that has given up its rights may not find it later
_LONG_WAL_BYTES = 64 * 1024 * 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ALSO_NOT_COVERED = (
    "a restore of an older copy of the database: it is not noticed, and brings back what was erased since",
    "a key file that is lost: what was erased can then no longer be told from what came back",
)


class Finding(Output):
    """One thing that was looked at. ``warn`` wants a hand some time, ``fail`` is not as it has to be."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    next: str | None = None


class DoctorOutput(Output):
    """The findings, the versions in use, and what no receipt of this installation covers."""

    healthy: bool
    versions: dict[str, str]
    findings: list[Finding]
    not_covered: list[str]


async def examine(system: System, _call: Call, _given: NoInput) -> DoctorOutput:
    """Look the installation over, and change nothing."""
    seen = await system.authority.examine()
    now = system.clock.now()
    findings = [*_of_settings(seen), *_of_files(system, seen), *_of_stores(system), *_of_keys(system)]
    try:
        health = await system.authority.read(lambda tx: read_health(tx, now))
    except DatabaseFault as fault:
        findings.append(Finding(name="database", state="fail", found=fault.message, next=fault.next_step))
    else:
        findings += [*_of_erasures(health), _of_clock(health, now)]
    versions = {"expunge": _VERSION, "python": platform.python_version()}
    return DoctorOutput(
        healthy=all(finding.state != "fail" for finding in findings),
        versions=versions | seen.versions,
        findings=findings,
        not_covered=[*NOT_COVERED, *seen.uncovered, *_ALSO_NOT_COVERED],
    )


def _of_settings(seen: Examined) -> Iterator[Finding]:
    for setting in seen.settings:
        name = f"setting {setting.name}"
        if setting.wanted == setting.found:
            yield Finding(name=name, state="ok", found=setting.found)
        else:
            found = f"{setting.found} instead of {setting.wanted}"
            yield Finding(name=name, state=setting.severity, found=found, next=setting.next)
    if seen.waiting_bytes is None:
        return
    is_long = seen.waiting_bytes > _LONG_WAL_BYTES
    yield Finding(
        name="write-ahead log",
        state="warn" if is_long else "ok",
        found=f"{seen.waiting_bytes} bytes wait to be moved into the file",
        next="end the process that keeps reading an old state" if is_long else None,
    )


def _of_files(system: System, seen: Examined) -> Iterator[Finding]:
    files = [*seen.files, *([system.keys_path] if system.keys_path is not None else [])]
    for file in files:
        yield _of_mode(file)


def _of_mode(path: Path) -> Finding:
    """Whatever holds people's words or keys is its owner's alone."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as fault:
        found = f"it was there, and now: {fault.strerror}"
        return Finding(
            name=str(path), state="fail", found=found, next="stop every process that uses it, and bring it back"
        )
    if mode & _OTHERS:
        found = f"mode {mode:04o}: other users of this machine can reach it"
        return Finding(name=str(path), state="fail", found=found, next=f"chmod {mode & ~_OTHERS:04o} {path}")
    return Finding(name=str(path), state="ok", found=f"mode {mode:04o}")


def _of_stores(system: System) -> Iterator[Finding]:
    if not system.stores:
        yield Finding(name="stores", state="ok", found="none outside the database; bodies are refused")
    for store in system.stores:
        yield _of_store(store)


def _of_store(store: Lifecycle) -> Finding:
    can = store.capabilities
    words = f"fence {can.fence}, bytes go {can.physical}"
    if not can.find or not can.remove:
        return Finding(
            name=f"store {store.name}", state="fail", found=f"it cannot be emptied ({words})", next="use another store"
        )
    if isinstance(store, FolderStore):
        state = store.state()
        if state.exists and state.mode is not None and state.mode & _OTHERS:
            return _of_mode(state.path)
        if not state.writable:
            return Finding(name=f"store {store.name}", state="fail", found=f"{state.path} cannot be written to",
                           next="give this user write access to it")  # fmt: skip
        words = f"{state.path}{'' if state.exists else ' (not made yet)'}; {words}"
    if isinstance(store, MemoryStore):
        words = f"in memory; {words}"
    return Finding(name=f"store {store.name}", state="ok", found=words)


def _of_keys(system: System) -> Iterator[Finding]:
    where = "in memory" if system.keys_path is None else str(system.keys_path)
    ring = system.keys
    yield Finding(
        name="keys",
        state="ok",
        found=f"{len(ring.pseudonym_keys)} for pseudonyms and {len(ring.signing_keys)} for signing, {where}; "
        f"in use: {ring.current.id}, {ring.signer.id}",
    )


def _of_erasures(health: Health) -> Iterator[Finding]:
    for org, request_id in health.standing:
        yield Finding(
            name=f"erasure {request_id}", state="warn", found=f"its fence still stands in org {org}",
            next=f"expunge resume {request_id}, or: expunge release {request_id}",
        )  # fmt: skip
    for org, request_id, status in health.unfinished:
        yield Finding(name=f"erasure {request_id}", state="warn", found=f"{status} in org {org}",
                      next=f"expunge erasure {request_id}")  # fmt: skip
    for org, request_id in health.due:
        yield Finding(name=f"erasure {request_id}", state="warn", found=f"its restore window has ended in org {org}",
                      next="expunge resume --due")  # fmt: skip
    for org, request_id in health.deferred:
        yield Finding(name=f"erasure {request_id}", state="warn", found=f"some bytes were not reclaimed in org {org}",
                      next=f"expunge resume {request_id}")  # fmt: skip
    if not (health.standing or health.unfinished or health.due or health.deferred):
        yield Finding(name="erasures", state="ok", found="none wants a hand")


def _of_clock(health: Health, now: int) -> Finding:
    if health.latest is not None and health.latest > now:
        return Finding(name="clock", state="fail", found="it stands before the newest erasure", next="set the clock")
    return Finding(name="clock", state="ok", found="not before the newest erasure")
