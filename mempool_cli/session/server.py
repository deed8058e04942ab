"""The server of a host: requests from many clients, one at a time, in one thread.

It knows nothing of processes and signals, so that it serves a session of its own as well as a thread of a program.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from mempool_cli import __version__
from mempool_cli.errors import MempoolError, Problem
from mempool_cli.model import Answer, Event, Notice
from mempool_cli.requests import Runner
from mempool_cli.session import environment, protocol
from mempool_cli.session.compatible import other_version
from mempool_cli.session.credentials import peer_uid
from mempool_cli.session.environment import Environment
from mempool_cli.session.farewell import Farewell
from mempool_cli.session.lease import Lease
from mempool_cli.session.peer import Peer, TooLongError
from mempool_cli.session.protocol import Answered, Happened, Head, HostState, Refused, Stopped
from mempool_cli.wording import idle

_AGAIN_SECONDS = 0.1
# More would be too much for epoll_wait, which takes milliseconds in 32 bits.
_WAIT_SECONDS = 86400.0


class HostRunner(Runner, Protocol):
    """A runner that holds pools."""

    def pool_names(self) -> tuple[str, ...]:
        """The created pools that are alive."""

    def close(self) -> tuple[Problem, ...]:
        """Gives up what it holds; what would not clear."""


class Hooks(Protocol):
    """What the server's surroundings do at the turns of its life."""

    def changed(self, state: HostState) -> None:
        """The host's pools are others than before."""

    def withdraw(self) -> None:
        """The host takes no more clients: its socket can go."""

    def complain(self, error: Exception) -> None:
        """A request failed inside, by a fault of ours."""


class Server:
    """Serves `listener` with `runner` until a client, the lease or `request_stop` ends it.

    `driver` is the digest of the runner's driver source and `sim` its SPEC; `here` tells the variables that decide
    what device numbers mean in it. `provisional`: it was started for one request, and ends again when that fails and
    changes nothing. `tick` is called between requests, again after the seconds that it returns, until it returns None.
    `turn` is held whenever it does anything but wait; `wake` is a non-blocking pipe of the caller's, in place of one of
    its own; `place` puts a new descriptor where it may stay. Close it also when it never served.
    """

    def __init__(
        self,
        listener: socket.socket,
        runner: HostRunner,
        lease: Lease,
        hooks: Hooks,
        *,
        driver: str,
        sim: str | None,
        here: Callable[[], Environment],
        provisional: bool = False,
        tick: Callable[[], float | None] = lambda: None,
        turn: AbstractContextManager[object] | None = None,
        wake: tuple[int, int] | None = None,
        place: Callable[[int], int] | None = None,
    ) -> None:
        self._listener = listener
        self._runner = runner
        self._lease = lease
        self._hooks = hooks
        self._driver = driver
        self._sim = sim
        self._here = here
        self._provisional = provisional
        self._tick = tick
        self._turn = turn or nullcontext()
        self._ticks_at: float | None = 0.0
        self._failed = False
        self._changed = False
        self._pools = runner.pool_names()
        self._peers: set[Peer] = set()
        self._stopping = False
        self._why: str | None = None
        self._ended = False
        self._accepts_at: float | None = None
        self.problems: tuple[Problem, ...] = ()
        self.farewell: Farewell | None = None
        self._place = place
        self._owns_wake = wake is None
        self._wake_out, self.wake_fd = wake or os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Without a descriptor of its own, which the thread of a program could lose.
        self._selector = selectors.PollSelector()
        listener.setblocking(False)
        self._on_readable(listener.fileno(), self._accept)
        self._on_readable(self._wake_out, self._wake)

    def state(self) -> HostState:
        """What this host is, and holds now."""
        return HostState(
            kind=self._lease.kind,
            name=self._lease.name,
            pid=self._lease.pid,
            version=__version__,
            messages=protocol.messages_digest(),
            driver=self._driver,
            sim=self._sim,
            started=self._lease.started,
            expires=self._lease.expires(),
            idle_timeout=self._lease.idle_timeout,
            pools=self._runner.pool_names(),
        )

    def request_stop(self, why: str | None = None) -> None:
        """Ends `serve` soon, after the request that runs; from any thread or a signal handler.

        `why`: `by SIGTERM`, for whoever misses its pools then; None when nobody will.
        """
        self._why = why
        self._stopping = True
        try:
            os.write(self.wake_fd, b"\0")
        except BlockingIOError:
            return

    def stop_at_end_of(self, fd: int) -> None:
        """Stops when the pipe `fd` has no writer any more: whoever held its other end is dead."""
        os.set_blocking(fd, False)
        self._on_readable(fd, partial(self._lifeline, fd))

    def serve(self) -> None:
        """Returns when it has ended: pools given up, `withdraw` called, replies sent.

        `problems`: what stayed; `farewell`: what is to be told when nobody asked for the end of what it held.
        """
        self._lease.begin()
        while not self._ended:
            ready = self._selector.select(self._patience())
            with self._turn:
                self._work(key.data for key, _ in ready)

    def _work(self, calls: Iterable[Callable[[], None]]) -> None:
        for call in calls:
            call()
            if self._ended:
                return
        self._drop_late()
        self._accept_again()
        self._tick_again()
        if self._stopping or self._unused():
            self.farewell = self._farewell()
            self._end()
            self._part()

    def close(self) -> None:
        """Closes every connection and the listener."""
        for peer in list(self._peers):
            self._drop(peer)
        self._close_own()

    def _close_own(self) -> None:
        self._selector.close()
        self._listener.close()
        if self._owns_wake:
            os.close(self._wake_out)
            os.close(self.wake_fd)

    def abandon(self) -> None:
        """In a forked child: closes its copies, and leaves alone what it shares with the parent."""
        for peer in self._peers:
            peer.socket.close()
        self._close_own()

    def _patience(self) -> float:
        now = time.monotonic()
        limits = [_WAIT_SECONDS, *(peer.deadline() - now for peer in self._peers)]
        left = self._lease.left()
        if left is not None and not self._peers:
            limits.append(left)
        limits += [moment - now for moment in (self._accepts_at, self._ticks_at) if moment is not None]
        return max(0.0, min(limits))

    def _unused(self) -> bool:
        # A client that was greeted is going to ask: no end while one is connected.
        return not self._peers and (self._failed or self._lease.left() == 0)

    def _farewell(self) -> Farewell | None:
        why = self._why if self._stopping else f"after {idle(self._lease.idle_timeout)}"
        if why is None or not self._changed:
            return None
        return Farewell(when=datetime.now(UTC), why=why, pools=self._runner.pool_names())

    def _drop_late(self) -> None:
        now = time.monotonic()
        for peer in [peer for peer in self._peers if peer.deadline() < now]:
            self._drop(peer)

    def _wake(self) -> None:
        os.read(self._wake_out, 4096)

    def _lifeline(self, fd: int) -> None:
        if not os.read(fd, 4096):
            self._selector.unregister(fd)
            self._stopping = True

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                self._accept_later()
                return
            if peer_uid(connection) != os.geteuid():
                connection.close()
                continue
            if self._place:
                connection = socket.socket(fileno=self._place(connection.detach()))
            peer = Peer(connection)
            self._peers.add(peer)
            self._on_readable(connection.fileno(), partial(self._attend, peer))

    def _accept_later(self) -> None:
        """No descriptor or no memory is left, or that client has gone: the clients that wait stay in the queue.

        A while later and not when one of ours goes: what is missing may be held by someone else.
        """
        if self._accepts_at is None:
            self._selector.unregister(self._listener)
        self._accepts_at = time.monotonic() + _AGAIN_SECONDS

    def _accept_again(self) -> None:
        if self._accepts_at is not None and self._accepts_at <= time.monotonic():
            self._accepts_at = None
            self._on_readable(self._listener.fileno(), self._accept)

    def _tick_again(self) -> None:
        if self._ticks_at is not None and self._ticks_at <= time.monotonic() and not self._stopping:
            seconds = self._tick()
            self._ticks_at = None if seconds is None else time.monotonic() + seconds

    def _on_readable(self, fd: int, call: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, call)

    def _drop(self, peer: Peer) -> None:
        self._peers.discard(peer)
        self._selector.unregister(peer.socket)
        peer.socket.close()

    def _attend(self, peer: Peer) -> None:
        """Does what one client's socket is ready for."""
        if peer.pending:
            peer.flush()
        else:
            peer.receive()
        self._answer_all(peer)
        if peer.finished:
            self._drop(peer)
            return
        waits_for = selectors.EVENT_WRITE if peer.pending else selectors.EVENT_READ
        self._selector.modify(peer.socket, waits_for, partial(self._attend, peer))

    def _answer_all(self, peer: Peer) -> None:
        while not (peer.pending or peer.draining or peer.gone or self._ended):
            try:
                line = peer.line()
            except TooLongError:
                _refuse(peer, _bad(f"a request has at most {protocol.MAX_REQUEST_BYTES} bytes"))
                break
            if line is None:
                break
            self._answer(peer, line)
        if peer.draining and not peer.pending:
            peer.end_writing()

    def _answer(self, peer: Peer, line: bytes) -> None:
        try:
            head = protocol.decode_head(line)
            if head.type in ("hello", "status"):
                peer.greeted = True
                peer.send(protocol.encode(self.state()))
            elif head.type == "stop":
                peer.send(protocol.encode(self._end()))
                self._part(told=peer)
            elif head.type == "run":
                self._run(peer, head, line)
            else:
                raise protocol.BadMessageError(f"unknown type {head.type!r}")
        except protocol.BadMessageError as error:
            _refuse(peer, _bad(str(error)))
        except MempoolError as error:
            _refuse(peer, error.problem)

    def _run(self, peer: Peer, head: Head, line: bytes) -> None:
        """MempoolError or BadMessageError before anything is done."""
        who = f"{self._lease.kind} {self._lease.name}"
        if (head.version, head.messages) != (__version__, protocol.messages_digest()):
            raise other_version(who, __version__, head.version or "unknown")
        run = protocol.decode_run(line)
        there = Environment(run.visible, run.order)
        environment.check(run.request, there, self._here(), who)
        begun = time.monotonic()
        self._lease.touch()
        answer = environment.warned(self._execute(peer, run), there, self._here(), who)
        self._lease.touch()
        for other in self._peers:
            other.excuse(time.monotonic() - begun)
        self._note_pools()
        self._weigh(answer)
        # The reply says so only when no one else is here who could still change that.
        self._accept()
        ending = self._failed and self._peers == {peer}
        reply = Answered(answer=answer, ending=ending, stays=not self._provisional)
        peer.send(_encoded(self._lease.kind, reply))
        if ending:
            self._end()
            self._part(told=peer)

    def _execute(self, peer: Peer, run: protocol.Run) -> Answer:
        try:
            return self._runner.run(run.request, partial(_tell, peer), trace=run.trace)
        except MempoolError as error:
            return Answer(where=self._lease.where(), failure=error.problem)
        except Exception as error:
            # A host outlives its own mistakes: it holds other people's pools.
            self._hooks.complain(error)
            return Answer(where=self._lease.where(), failure=_internal(self._lease.kind, error))

    def _note_pools(self) -> None:
        names = self._runner.pool_names()
        if names != self._pools:
            self._pools = names
            self._hooks.changed(self.state())

    def _weigh(self, answer: Answer) -> None:
        """A host that was started for one request ends again when that failed and left nothing to hold."""
        self._changed = self._changed or answer.changed or bool(self._pools)
        if self._provisional:
            self._failed = answer.problem is not None and not self._changed
            self._provisional = self._failed

    def _end(self) -> Stopped:
        self._ended = True
        state = self.state()
        self.problems = self._runner.close()
        self._hooks.withdraw()
        left = self._runner.pool_names()
        # A destroy that was refused is what `left` tells.
        told = [each for each in self.problems if not (left and each.code == "driver-refused")]
        return Stopped(state=state, notices=tuple(Notice(each.code, each.message) for each in told), not_destroyed=left)

    def _part(self, told: Peer | None = None) -> None:
        """Sends what is still to go, and to clients that wait for an answer, all but `told`, that none will come."""
        for peer in self._peers:
            # One that is not greeted yet finds the connection closed, and looks for a host again.
            if peer is not told and peer.greeted and not peer.pending:
                message = f"{self._lease.kind} {self._lease.name} has been stopped"
                _refuse(peer, Problem(code="no-session", message=message))
            peer.push()


def listener_of(fd: int) -> socket.socket:
    """The listening socket of which this is the descriptor."""
    return socket.socket(fileno=fd)


def _tell(peer: Peer, event: Event) -> None:
    """Sends an event while its request runs; waits for a slow reader, gives up on one that stalls."""
    if not peer.gone:
        peer.send(protocol.encode(Happened(event)))
        peer.push()


def _refuse(peer: Peer, problem: Problem) -> None:
    peer.send(protocol.encode(Refused(problem)))
    peer.drain()


def _bad(why: str) -> Problem:
    return Problem(code="bad-request", message=f"the request cannot be read: {why}")


def _internal(kind: str, error: Exception) -> Problem:
    return Problem(
        code="internal",
        message=f"the {kind} failed inside: {type(error).__name__}: {error}",
        hint="please report it, with what it wrote to its standard error or log",
    )


def _encoded(kind: str, reply: Answered) -> bytes:
    try:
        return protocol.encode(reply)
    except UnicodeEncodeError as error:
        return protocol.encode(Answered(answer=Answer(where=reply.answer.where, failure=_internal(kind, error))))
