"""The paths of a host's files. Imports next to nothing: an agent needs them at every start of a program."""

from __future__ import annotations

import os
import stat

RUNTIME_DIR = "MEMPOOL_RUNTIME_DIR"

SOCKET_PATH_BYTES = 107
"""What the path of a Unix socket holds."""

PREFIX = {True: "sim-", False: "gpu-"}
"""The two name spaces: simulated hosts, and those on hardware."""


def file_path(directory: str, name: str, kind: str, *, simulated: bool) -> str:
    """Where the host of this name keeps its file of this kind: `socket`, `lock`, ... A long name is hashed."""
    plain = os.path.join(directory, f"{PREFIX[simulated]}{name}.{kind}")
    room = SOCKET_PATH_BYTES - len(".socket") + len(f".{kind}")
    if len(os.fsencode(plain)) <= room:
        return plain
    import hashlib

    # ~ is in no name, so a hashed name cannot be another host's.
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return os.path.join(directory, f"{PREFIX[simulated]}~{digest}.{kind}")


def chosen_path() -> str:
    """MEMPOOL_RUNTIME_DIR, else /tmp/mempool-UID: the same for a login, cron and Slurm, whatever TMPDIR is there."""
    chosen = os.environ.get(RUNTIME_DIR) or f"/tmp/mempool-{os.geteuid()}"  # noqa: S108
    return chosen if os.path.isabs(chosen) else os.path.join(os.getcwd(), chosen)


def is_private(directory: str) -> bool:
    """Whether the directory is there, this user's alone, and nobody else can put another in its place.

    `directory.runtime_directory` says what is wrong when it is not.
    """
    try:
        found, parent = os.lstat(directory), os.stat(os.path.dirname(directory))
    except OSError:
        return False
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    safe = not parent.st_mode & 0o022 or parent.st_mode & stat.S_ISVTX
    return own and bool(safe) and parent.st_uid in (0, os.geteuid())
