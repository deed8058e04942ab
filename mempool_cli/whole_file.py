"""A file written whole or not at all: until the new content is complete, the old one stays."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

_PERMISSIONS = 0o777


def unwritable(path: Path) -> str | None:
    """Why no file can be put there, as far as that can be told before it is tried; None when it can."""
    try:
        if path.is_fifo() or path.is_socket():
            return "it is a pipe"
        path = path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
        return str(error)
    if path.is_symlink():
        return "its links lead in a circle"
    if path.is_dir():
        return "it is a directory"
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    if not path.exists() and not os.access(path.parent, os.W_OK | os.X_OK):
        return f"no file can be put into {path.parent}"
    return None


def write_whole(path: Path, text: str) -> None:
    """Puts the text, as UTF-8, into the file, through a link into what it leads to; OSError when that cannot be.

    What is there and is no plain file, a terminal say, is written to, not replaced. A file that is replaced keeps its
    mode.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    mode = path.stat().st_mode & _PERMISSIONS if path.exists() else None
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    # Nobody else's file, and nothing that a link of somebody else leads to.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(new, flags, 0o666 if mode is None else mode)
    try:
        with open(fd, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
            if mode is not None:
                with suppress(OSError):  # a file system without modes, say
                    os.fchmod(fd, mode)
            file.write(text)
            file.flush()
            _sync(fd)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _sync(fd: int) -> None:
    """What the file system cannot do is no reason to fail; what it failed to do is one."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
