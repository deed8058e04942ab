"""The socket of a host. Imports next to nothing: an agent needs it at every start of a program."""

from __future__ import annotations

import _socket
import os

_BACKLOG = 128


def listen(path: str) -> int:
    """The descriptor of a socket that listens at `path`, where nothing is, for this user alone; OSError."""
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener.detach()
