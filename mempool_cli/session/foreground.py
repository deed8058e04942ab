"""A command in the foreground: run to its end, with the signals that reach this process passed on."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from mempool_cli.model import Event
from mempool_cli.requests import OnEvent

_PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_CANNOT_RUN = 126
_NOT_FOUND = 127
# Python itself ignores these two; a command of the user's must not inherit that.
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")


def run(command: Sequence[str], environment: Mapping[str, str], on_event: OnEvent) -> int:
    """Runs `command` to its end; its status as of a shell, 128 + signal.

    127 when it is not found, 126 when it cannot be run: an event says why. Main thread only.
    """
    with _signals_held() as before:
        try:
            given = _uncoerced(environment)
            if not command[0]:
                raise _nothing()  # of which spawn makes a ValueError
            pid = os.posix_spawnp(command[0], list(command), given, setsigmask=before, setsigdef=_PYTHON_IGNORES)
        except OSError as error:
            return _not_run(command, error, on_event)
        return _wait(pid)


def become(command: Sequence[str], environment: Mapping[str, str], on_event: OnEvent) -> int:
    """Becomes `command`; returns only when that cannot be, 127 or 126 as `run`."""
    before = [(number, signal.signal(number, signal.SIG_DFL)) for number in _PYTHON_IGNORES]
    try:
        if not command[0]:
            raise _nothing()
        os.execvpe(command[0], list(command), _uncoerced(environment))
    except OSError as error:
        return _not_run(command, error, on_event)
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _nothing() -> OSError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _not_run(command: Sequence[str], error: OSError, on_event: OnEvent) -> int:
    on_event(Event("status", f"error: {command[0]} cannot be run: {error.strerror}"))
    return _NOT_FOUND if error.errno in (errno.ENOENT, errno.ENOTDIR) else _CANNOT_RUN


def _wait(pid: int) -> int:
    while True:
        came = signal.sigwaitinfo({signal.SIGCHLD, *_PASSED_ON})
        if came.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        elif came.si_code <= 0 or came.si_signo not in _FROM_TERMINAL:
            # What the terminal sends has reached the command already; twice would mean "at once" to many.
            os.kill(pid, came.si_signo)


def _uncoerced(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment less the LC_CTYPE that Python gives itself, and so its children, in the C locale (PEP 538)."""
    entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    original = next((os.fsdecode(entry[9:]) for entry in entries if entry.startswith(b"LC_CTYPE=")), None)
    if environment.get("LC_CTYPE") == original or environment.get("LC_CTYPE") not in _COERCED:
        return environment
    rest = {name: value for name, value in environment.items() if name != "LC_CTYPE"}
    return rest if original is None else {**rest, "LC_CTYPE": original}


@contextmanager
def _signals_held() -> Iterator[set[int]]:
    """Signals wait for `sigwaitinfo` in here; the mask as it was."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_PASSED_ON})
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield {int(number) for number in before}
    finally:
        signal.signal(signal.SIGCHLD, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
