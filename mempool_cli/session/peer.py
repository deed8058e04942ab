"""One client's connection, as the server sees it: what came, what is to go, and when patience ends."""

from __future__ import annotations

import select
import socket
import time

from mempool_cli.session.protocol import MAX_REQUEST_BYTES

REQUEST_SECONDS = 30.0
STALL_SECONDS = 5.0

_CHUNK = 1 << 16


class TooLongError(Exception):
    """A request is longer than any may be."""


class Peer:
    """Never blocks, except in `push`. `gone`: nothing more can come or go; `greeted`: it knows that we are here."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.gone = False
        self.greeted = False
        self.draining = False
        self._ended = False
        self._came = bytearray()
        self._to_go = bytearray()
        self._since = time.monotonic()

    @property
    def pending(self) -> bool:
        """Whether something is still to go. Until it has gone, nothing is read: a client that does not read waits."""
        return bool(self._to_go)

    @property
    def finished(self) -> bool:
        """Whether the client sends no more, and has everything that it asked for."""
        return self.gone or (self._ended and not self._to_go)

    def deadline(self) -> float:
        """When patience ends: sooner for one that does not read than for one that does not ask."""
        return self._since + (STALL_SECONDS if self._to_go or self.draining else REQUEST_SECONDS)

    def excuse(self, seconds: float) -> None:
        """Counts this time as the server's own: it was busy."""
        self._since += seconds

    def receive(self) -> None:
        """Takes what has come; throws it away while draining."""
        try:
            chunk = self.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self.gone = True
            return
        if not chunk:
            self._ended = True
        elif not self.draining:
            self._came += chunk

    def line(self) -> bytes | None:
        """The next whole request; None when there is none yet. TooLongError when there will be none."""
        end = self._came.find(b"\n")
        if end > MAX_REQUEST_BYTES or (end < 0 and len(self._came) > MAX_REQUEST_BYTES):
            raise TooLongError
        if end < 0:
            return None
        line = bytes(self._came[:end])
        del self._came[: end + 1]
        self._since = time.monotonic()
        return line

    def send(self, data: bytes) -> None:
        """Queues data and sends what goes at once."""
        if not self._to_go:
            self._since = time.monotonic()
        self._to_go += data
        self.flush()

    def flush(self) -> None:
        """Sends what goes at once."""
        try:
            while self._to_go and not self.gone:
                sent = self.socket.send(self._to_go[:_CHUNK])
                del self._to_go[:sent]
                self._since = time.monotonic()
        except BlockingIOError:
            return
        except OSError:
            self.gone = True
            self._to_go.clear()

    def push(self) -> None:
        """Sends everything, waiting for a reader as long as it makes progress; `gone` when it stalls."""
        waiter = select.poll()
        waiter.register(self.socket, select.POLLOUT)
        self.flush()
        while self._to_go and not self.gone:
            left = self._since + STALL_SECONDS - time.monotonic()
            if left <= 0 or not waiter.poll(left * 1000):
                self.gone = True
                self._to_go.clear()
            self.flush()

    def drain(self) -> None:
        """Sends no more after what is pending, and throws away what still comes.

        A client that still sends when we close gets EPIPE, and may not look for the reason.
        """
        self.draining = True
        self._came.clear()

    def end_writing(self) -> None:
        """Tells the client that nothing more will come."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.gone = True
