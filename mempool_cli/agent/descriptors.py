"""Descriptors of the agent in a process that may close any number at any time, and use it again for a file of its own.

They are out of the way, so that a program's own numbers stay as they are, and each is known again before it is used.
"""

from __future__ import annotations

import fcntl
import os

_LOWEST = 200


def out_of_the_way(fd: int) -> int:
    """The same open file under a high number; `fd` itself where there is no room. Not inherited by other programs."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
    except OSError:
        return fd
    os.close(fd)
    return high


class Descriptor:
    """One descriptor, closed or reused by nobody but us as long as `ours` says so. -1 is none."""

    def __init__(self, fd: int) -> None:
        self.fd = out_of_the_way(fd) if fd >= 0 else -1
        self._identity = _identity(self.fd)

    @property
    def ours(self) -> bool:
        """Whether the number still means the file that it meant."""
        return self._identity is not None and _identity(self.fd) == self._identity

    def close(self) -> None:
        """Closes it, if it is still ours."""
        if self.ours:
            os.close(self.fd)
        self._identity = None

    def give(self) -> int:
        """The number, which from now on is the caller's to close."""
        self._identity = None
        return self.fd


def _identity(fd: int) -> tuple[int, int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mode
