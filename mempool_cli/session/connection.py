"""One connection to a host, as its client sees it."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from mempool_cli.errors import MempoolError
from mempool_cli.session import protocol
from mempool_cli.session.credentials import peer_uid
from mempool_cli.session.protocol import HostState, Message, Refused, Reply

_CHUNK = 1 << 18

T = TypeVar("T")


class AbsentError(Exception):
    """Nobody listens at this moment: no host, or one that starts or ends right now, or one with a full queue."""


class EndedError(Exception):
    """The host closed the connection, or died, before it answered."""


def expected(reply: Reply, kind: type[T]) -> T:
    """The reply, if it is of this kind; MempoolError otherwise."""
    if isinstance(reply, kind):
        return reply
    raise _unknown_answer(f"{type(reply).__name__} in place of {kind.__name__}")


def _unknown_answer(why: str) -> MempoolError:
    return MempoolError(
        "other-version",
        f"the session answered in a way that this version does not know: {why}",
        hint="`mempool session stop` ends it",
    )


class Connection:
    """A connection that gives up at `deadline` (monotonic seconds) with TimeoutError, whatever it waits for."""

    def __init__(self, path: Path, deadline: float) -> None:
        self._deadline = deadline
        self._buffer = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._limit()
            self._socket.connect(os.fspath(path))
            _check_peer(self._socket, path)
        except (FileNotFoundError, ConnectionError, BlockingIOError) as error:
            self._socket.close()
            raise AbsentError from error
        except PermissionError as error:
            self._socket.close()
            raise MempoolError("runtime-directory", f"{path} cannot be opened: {error.strerror}") from error
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()

    def send(self, line: bytes) -> None:
        """Sends one encoded message. A host that has closed already may have said why: `receive` tells."""
        try:
            self._limit()
            self._socket.sendall(line)
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive(self) -> Reply:
        """The next reply. EndedError when there is none; MempoolError when the host refused, or talks nonsense."""
        try:
            reply = protocol.decode_reply(self._line())
        except protocol.BadMessageError as error:
            raise _unknown_answer(str(error)) from error
        if isinstance(reply, Refused):
            problem = reply.problem
            raise MempoolError(problem.code, problem.message, hint=problem.hint, driver=problem.driver)
        return reply

    def ask(self, message: Message, kind: type[T]) -> T:
        """Sends a message, and returns the reply, which is of this kind; as `receive` raises."""
        self.send(protocol.encode(message))
        return expected(self.receive(), kind)

    def hello(self) -> HostState:
        """Who is there; as `receive` raises."""
        return self.ask(protocol.Hello(), HostState)

    def _line(self) -> bytes:
        end = self._buffer.find(b"\n")
        while end < 0:
            try:
                self._limit()
                chunk = self._socket.recv(_CHUNK)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise EndedError
            at = len(self._buffer)
            self._buffer += chunk
            end = self._buffer.find(b"\n", at)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _limit(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)


def _check_peer(connection: socket.socket, path: Path) -> None:
    uid = peer_uid(connection)
    if uid != os.geteuid():
        raise MempoolError(
            "runtime-directory",
            f"a process of uid {uid} listens on {path}, not one of uid {os.geteuid()}",
            hint=f"look at who made {path.parent}",
        )
