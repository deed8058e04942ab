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
from mempool_cli.session import files
from mempool_cli.session.listening import listen
from mempool_cli.session.lock import Lock

# Not typing's, which takes longer to import than the rest of an agent's start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from mempool_cli.agent.orders import Orders
    from mempool_cli.session.server import Server

_LEAVE_SECONDS = 2.0
_MATRIX_SECONDS = 30.0
_LONGEST_NAME = 64
_OLDEST_BINDINGS = (12, 9)
_FORK_SECONDS = 1.0
# What a thread brings upon itself: the program's faulthandler should tell it.
_OF_A_THREAD = {
    getattr(_signal, name) for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")
}
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
        self._listener = listener
        self.started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.server: Server | None = None
        self.leaving = False
        self.exiting = False
        self.alive = True
        self._lock = lock
        self._pid = os.getpid()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stderr = _copy_of_stderr()
        self.turn = _thread.allocate_lock()
        self._forker = 0
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        self._quiet: object = None

    @staticmethod
    def open(orders: Orders) -> Door:
        """An agent that listens. MempoolError `runtime-directory`, or OSError, when its files cannot be made."""
        directory = files.chosen_path()
        if not files.is_private(directory):
            from mempool_cli.session.directory import runtime_directory

            runtime_directory(create=True)
        lock, name = _claim(directory, orders.name)
        try:
            listener = listen(files.file_path(directory, name, "socket", simulated=False))
            door = Door(directory, name, lock, listener, orders)
            door._write_journal()
            door._start_thread()
        except BaseException:
            _remove(directory, name)
            lock.release()
            raise
        return door

    def path(self, kind: str) -> str:
        """Where the file of this kind is."""
        return files.file_path(self.directory, self.name, kind, simulated=False)

    def tell(self, text: str) -> None:
        """A line on what was the program's standard error when the agent started; lost when that takes none."""
        try:
            os.write(self._stderr, f"mempool: program {self.name} (pid {self._pid}): {text}\n".encode(errors="replace"))
        except OSError:
            return

    def leave(self, *, exiting: bool = False) -> None:
        """Ends the agent, and waits a while for the request that it works on; from any thread but its own."""
        if not self.alive:
            return
        self.exiting = exiting
        self.leaving = True
        try:
            os.eventfd_write(self._wake, 1)
        except OSError:
            return  # it has just ended by itself
        server = self.server
        if server is not None:
            server.request_stop()
        self._ended.acquire(timeout=_MATRIX_SECONDS if self.orders.matrix_file else _LEAVE_SECONDS)

    def abandon(self) -> None:
        """In a forked child: closes the copies of what the parent goes on using."""
        if not self.alive:
            return
        self.alive = False
        if self.server is not None:
            self.server.abandon()
        self._lock.leave()
        self._close_descriptors()

    def before_fork(self) -> None:
        """Waits until the agent is at rest: what it imports at this moment would be locked for ever in the child."""
        if self.turn.acquire(timeout=_FORK_SECONDS):
            self._forker = _thread.get_ident()
        if sys.version_info >= (3, 12):
            self._allow_fork()

    def after_fork(self) -> None:
        """In the parent: the agent goes on."""
        if self._forker == _thread.get_ident():
            self._forker = 0
            self.turn.release()

    def _allow_fork(self) -> None:
        """No warning about threads, which Python 3.12 gives, if ours is the only one besides the thread that forks."""
        import warnings

        if self._quiet in warnings.filters:
            warnings.filters.remove(self._quiet)  # type: ignore[attr-defined]
        if self.alive and len(os.listdir("/proc/self/task")) <= 2:
            warnings.filterwarnings("ignore", r"This process \(pid=\d+\) is multi-threaded", DeprecationWarning)
            self._quiet = warnings.filters[0]

    def hand_over(self) -> int:
        """The listening socket's descriptor, which from now on is the caller's."""
        listener, self._listener = self._listener, -1
        return listener

    def _close_descriptors(self) -> None:
        for fd in (self._listener, self._wake, self._stderr):
            if fd >= 0:
                os.close(fd)

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
            if not self.leaving or self.orders.matrix_file or self.orders.grants:
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
        poll.register(self._listener, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        poll.poll()

    def _close(self) -> None:
        self.alive = False
        self.server = None
        try:
            _remove(self.directory, self.name)
            self._lock.release()
            self._close_descriptors()
        finally:
            self._ended.release()


def check_bindings() -> None:
    """ImportError when NVIDIA's bindings are not here, or older than ours. Imports nothing of them."""
    from importlib.machinery import PathFinder

    cuda = PathFinder.find_spec("cuda")
    places = cuda.submodule_search_locations if cuda else None
    bindings = PathFinder.find_spec("cuda.bindings", list(places)) if places else None
    if bindings is None or bindings.origin is None:
        raise ImportError("NVIDIA's bindings are not installed: pip install 'cuda-bindings>=12.9,<14'")
    version = _version(os.path.join(os.path.dirname(bindings.origin), "_version.py"))
    found = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if found and found < _OLDEST_BINDINGS:
        raise ImportError(f"NVIDIA's bindings are {version}, and have to be 12.9 or newer")


def _version(path: str) -> str:
    """The version that a file states; empty when it does not."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            _, _, after = file.read().partition("__version__ = version = '")
    except OSError:
        return ""
    return after.partition("'")[0]


def _claim(directory: str, name: str) -> tuple[Lock, str]:
    """The lock of this name, or of the same with the pid when another has it; clears what a dead program left."""
    suffix = f".{os.getpid()}"
    for candidate in (name, name[: _LONGEST_NAME - len(suffix)] + suffix):
        lock = Lock.take(files.file_path(directory, candidate, "lock", simulated=False))
        if lock is None:
            continue
        if _session_died(files.file_path(directory, candidate, "journal", simulated=False)):
            lock.release()
            continue
        _remove(directory, candidate)
        return lock, candidate
    raise FileExistsError(f"the names {name} and {name}{suffix} are taken")


def _session_died(journal: str) -> bool:
    """Whether a session of that name died, which is still to be told."""
    try:
        with open(journal, "rb") as file:
            return b'"kind":"session"' in file.read()
    except OSError:
        return False


def _remove(directory: str, name: str) -> None:
    for kind in ("socket", "new", "journal"):
        try:
            os.unlink(files.file_path(directory, name, kind, simulated=False))
        except FileNotFoundError:
            continue


def _copy_of_stderr() -> int:
    """A descriptor of our own, since 2 may be another file later; -1 when the program has none."""
    import fcntl

    try:
        return fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError:
        return -1
