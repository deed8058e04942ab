"""The agent at rest: the name, the socket and the lock of this process, and a thread that waits for a client.

Each interpreter of a program pays for what is imported here, so it is next to nothing: `host` has all that it takes
to answer, and is imported when somebody knocks.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import os
import select
import sys
import time

from mempool_cli import __version__
from mempool_cli.agent.claim import claim, remove
from mempool_cli.agent.descriptors import Descriptor
from mempool_cli.session import files
from mempool_cli.session.listening import listen
from mempool_cli.session.lock import Lock

# Python 3.12 and older take the thread that imports it first for the main one, and then wait for it at exit.
if sys.version_info < (3, 13):
    import threading  # noqa: F401

# Not typing's, which takes longer to import than the rest of an agent's start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from mempool_cli.agent.orders import Orders
    from mempool_cli.session.server import Server

_LEAVE_SECONDS = 2.0
_MATRIX_SECONDS = 30.0
_FORK_SECONDS = 1.0
# What a thread brings upon itself: the program's faulthandler should tell it.
_OF_A_THREAD = {
    getattr(_signal, name) for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")
}
# Servers whose descriptors the program has closed: were they collected, they would close what has those numbers now.
_lost: list[Server] = []
_JOURNAL = (
    '{{"type":"state","kind":"program","name":"{name}","pid":{pid},"version":"{version}","messages":"",'
    '"driver":"cuda","sim":null,"started":"{started}","expires":null,"idle_timeout":0,"pools":[]}}\n'
)


class Door:
    """What clients find of this process, from `open` until `leave`.

    `name`: under which they do. `server`: set while it serves. `exiting`: the program ends. `started`: ISO 8601, UTC.
    `turn`: held while the agent does anything but wait.
    """

    def __init__(self, directory: str, name: str, lock: Lock, listener: int, orders: Orders) -> None:
        self.directory = directory
        self.name = name
        self.orders = orders
        self.started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.server: Server | None = None
        self.leaving = False
        self.exiting = False
        self.alive = True
        self.turn = _thread.allocate_lock()
        self._pid = os.getpid()
        self._forker = 0
        self._guard = _thread.allocate_lock()  # of `alive`, and so of the use of descriptors by other threads
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        # First, since it is all that can fail: until then the other two are the caller's to close.
        self._wake_out, self._wake_in = (Descriptor(fd) for fd in os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK))
        self._listener = Descriptor(listener)
        self._held = Descriptor(lock.fd)
        self._lock = lock
        lock.fd = self._held.fd
        self._stderr = Descriptor(_copy_of_stderr())

    @staticmethod
    def open(orders: Orders) -> Door:
        """An agent that listens. MempoolError `runtime-directory`, or OSError, when its files cannot be made."""
        directory = files.chosen_path()
        if not files.is_private(directory):
            from mempool_cli.session.directory import runtime_directory

            runtime_directory(create=True)
        lock, name = claim(directory, orders.name)
        listener = -1
        door = None
        try:
            listener = listen(files.file_path(directory, name, "socket", simulated=False))
            door = Door(directory, name, lock, listener, orders)
            door._write_journal()
            door._start_thread()
        except BaseException:
            remove(directory, name)
            lock.unlink()
            if door:
                door._close_descriptors()
            else:
                os.close(lock.fd)
                if listener >= 0:
                    os.close(listener)
            raise
        return door

    # --- for the program's threads ---

    @property
    def usable(self) -> bool:
        """Whether clients can reach this process: not once it ends, nor when the program closed our descriptors."""
        return self.alive and not self.leaving and self._intact()

    def leave(self, *, exiting: bool = False) -> None:
        """Ends the agent, and waits a while for the request that it works on; from any thread but its own."""
        with self._guard:
            if not self.alive or not self._intact():
                return
            self.exiting = exiting
            self.leaving = True
            if self.server is not None:
                self.server.request_stop()
            else:
                os.write(self._wake_in.fd, b"\0")
        if self._ended.acquire(timeout=_MATRIX_SECONDS if self.orders.matrix_file else _LEAVE_SECONDS):
            self._ended.release()

    def before_fork(self) -> None:
        """Waits until the agent is at rest: what it imports at this moment would be locked for ever in the child."""
        # An interrupt is for the program, after the fork.
        before = _signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGINT})
        try:
            if self.turn.acquire(timeout=_FORK_SECONDS):
                self._forker = _thread.get_ident()
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, before)

    def after_fork(self) -> None:
        """In the parent: the agent goes on."""
        if self._forker == _thread.get_ident():
            self._forker = 0
            self.turn.release()

    def abandon(self) -> None:
        """In a forked child: closes the copies of what the parent goes on using."""
        if self.alive:
            self.alive = False
            if self.server is not None and self._intact():
                self.server.abandon()
            self._close_descriptors()

    # --- for the agent's own thread ---

    def path(self, kind: str) -> str:
        """Where the file of this kind is."""
        return files.file_path(self.directory, self.name, kind, simulated=False)

    def part(self, server: Server) -> None:
        """The server's end: it closes what is still its own."""
        with self._guard:
            self.server = None
            if self._intact():
                server.close()
            else:
                _lost.append(server)

    def tell(self, text: str) -> None:
        """A line on what was the program's standard error when the agent started; lost when that takes none."""
        line = f"mempool: program {self.name} (pid {self._pid}): {text}\n"
        try:
            if self._stderr.ours:
                os.write(self._stderr.fd, line.encode(errors="replace"))
        except OSError:
            return

    def hand_over(self) -> tuple[int, tuple[int, int]]:
        """The listening socket's descriptor, which from now on is the caller's, and the two ends of the wake pipe."""
        return self._listener.give(), (self._wake_out.fd, self._wake_in.fd)

    def _intact(self) -> bool:
        return all(descriptor.ours for descriptor in (self._held, self._wake_out, self._wake_in))

    def _close_descriptors(self) -> None:
        for descriptor in (self._held, self._listener, self._wake_out, self._wake_in, self._stderr):
            descriptor.close()

    def _write_journal(self) -> None:
        text = _JOURNAL.format(name=self.name, pid=self._pid, version=__version__, started=self.started)
        fd = os.open(self.path("journal"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(text)

    def _start_thread(self) -> None:
        # A signal for the process must never be delivered to our thread: the program may wait for it by a mask.
        before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals() - _OF_A_THREAD)
        try:
            _thread.start_new_thread(self._run, ())
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, before)

    def _run(self) -> None:
        try:
            if not self.orders.grants:
                self._wait()
            if not self.leaving or self._has_errands():
                with self.turn:
                    from mempool_cli.agent.host import serve
                serve(self)
        except Exception as error:
            self.tell(f"the agent has ended: {type(error).__name__}: {error}")
        finally:
            self._close()

    def _wait(self) -> None:
        """Until a client has come, or the agent is to end."""
        poll = select.poll()
        poll.register(self._listener.fd, select.POLLIN)
        poll.register(self._wake_out.fd, select.POLLIN)
        poll.poll()

    def _has_errands(self) -> bool:
        """Whether something is to be done at the end, which takes a program that has loaded CUDA."""
        if not (self.orders.grants or self.orders.matrix_file):
            return False
        with open("/proc/self/maps", "rb") as maps:
            loaded = b"/libcuda.so" in maps.read()
        if not loaded:
            self.orders.report("too early")
        return loaded

    def _close(self) -> None:
        with self.turn, self._guard:
            self.alive = False
            self.server = None
            intact = self._intact()
            if intact:
                remove(self.directory, self.name)
                self._unlink_lock()
            self._close_descriptors()
        self._ended.release()

    def _unlink_lock(self) -> None:
        try:
            self._lock.unlink()
        except OSError:
            return  # the program has given up the right to do so


def _copy_of_stderr() -> int:
    """A descriptor of our own, since 2 may be another file later; -1 when the program has none."""
    try:
        return os.dup(2)
    except OSError:
        return -1
