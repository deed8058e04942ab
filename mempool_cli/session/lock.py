"""The lock that a host holds for its life: liveness is this lock, never a pid (a zombie still answers `kill 0`)."""

from __future__ import annotations

import fcntl
import os
import time

# Not typing's: an agent imports this module at every start of a program, and typing takes longer than all of it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

POLL_SECONDS = 0.005


class Lock:
    """The lock of one host, held by this process through `fd`."""

    def __init__(self, path: Path | str, fd: int) -> None:
        self._path = path
        self.fd = fd

    @staticmethod
    def take(path: Path | str) -> Lock | None:
        """The lock, whose file is made when it is missing; None while a host, or a starter, holds it.

        MempoolError `runtime-directory` when the file cannot be made.
        """
        while True:
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except OSError as error:
                from mempool_cli.errors import MempoolError

                raise MempoolError("runtime-directory", f"{path} cannot be opened: {error.strerror}") from error
            if not _try(fd, fcntl.LOCK_EX):
                os.close(fd)
                return None
            # Its last holder may have removed the file between our open and our lock: then the next to come
            # locks a new file, and both would think themselves alone.
            if _is_at(fd, path):
                return Lock(path, fd)
            os.close(fd)

    def unlink(self) -> None:
        """Removes the file, if it is still this one."""
        if _is_at(self.fd, self._path):
            os.unlink(self._path)

    def release(self) -> None:
        """Removes the file, then frees the lock."""
        self.unlink()
        os.close(self.fd)

    def leave(self) -> None:
        """Gives up this process's hold alone: a host that was given the lock keeps it, as does a parent."""
        os.close(self.fd)


def held(path: Path | str) -> bool:
    """Whether a host, or a starter, holds the lock at this moment."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


class Watch:
    """Waits for the holder of a lock to end. Open it while the holder lives: a host removes the file first."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd: int | None = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            self._fd = None

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def free(self, deadline: float) -> bool:
        """Waits until nobody holds the lock; False when that did not happen by `deadline` (monotonic seconds)."""
        while self._fd is not None and not _try(self._fd, fcntl.LOCK_SH):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        if self._fd is not None:
            # Kept, it would stop the next starter, this process included.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        return True


def _try(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(fd: int, path: Path | str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
