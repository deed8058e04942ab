"""Who is at the other end of a Unix socket, as the kernel says."""

from __future__ import annotations

import socket
import struct

_UCRED = struct.Struct("3i")


def peer_uid(connection: socket.socket) -> int:
    """The effective uid that the other side had when it connected or began to listen."""
    _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)
