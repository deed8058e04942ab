"""The name of an agent: taken by its lock, cleared of what a dead program left there."""

from __future__ import annotations

import os
import time

from mempool_cli.session import files
from mempool_cli.session.lock import Lock

_LONGEST_NAME = 64
_TRIES = 10
_TRY_SECONDS = 0.005


def claim(directory: str, name: str) -> tuple[Lock, str]:
    """The lock of this name, or of the same with the pid when another has it. FileExistsError when both are taken."""
    suffix = f".{os.getpid()}"
    for candidate in (name, name[: _LONGEST_NAME - len(suffix)] + suffix):
        lock = _take(directory, candidate)
        if lock is None:
            continue
        if _session_died(files.file_path(directory, candidate, "journal", simulated=False)):
            lock.release()
            continue
        remove(directory, candidate)
        return lock, candidate
    raise FileExistsError(f"the names {name} and {name}{suffix} are taken")


def remove(directory: str, name: str) -> None:
    """Removes the files of a program, but not its lock; what cannot be removed stays."""
    for kind in ("socket", "new", "journal"):
        try:
            os.unlink(files.file_path(directory, name, kind, simulated=False))
        except OSError:
            continue


def _take(directory: str, name: str) -> Lock | None:
    """The lock, unless a host has it: one that only looks whether there is a host has it for a moment."""
    journal = files.file_path(directory, name, "journal", simulated=False)
    for _ in range(_TRIES):
        lock = Lock.take(files.file_path(directory, name, "lock", simulated=False))
        if lock is not None or os.path.exists(journal):
            return lock
        time.sleep(_TRY_SECONDS)
    return None


def _session_died(journal: str) -> bool:
    """Whether a session of that name died, which is still to be told."""
    try:
        with open(journal, "rb") as file:
            return b'"kind":"session"' in file.read()
    except OSError:
        return False
