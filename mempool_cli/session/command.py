"""A command with a session of its own, which ends with it."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from mempool_cli.driver import DriverSource
from mempool_cli.errors import MempoolError
from mempool_cli.model import Event
from mempool_cli.requests import OnEvent
from mempool_cli.session import lifecycle
from mempool_cli.session.directory import RUNTIME_DIR, chosen_directory

_PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_CANNOT_RUN = 126
_NOT_FOUND = 127


def run_with_session(
    command: Sequence[str], source: DriverSource, on_event: OnEvent, *, name: str | None = None
) -> int:
    """Runs `command` with a fresh session in MEMPOOL_SESSION, and stops that; the command's status, 128 + signal.

    As of a shell, 127 when the command is not found, 126 when it cannot be run; an event says why. `name` None: a
    name that no other session has. Signals are passed on. The session also ends when this process is killed.
    MempoolError `session-start` and the like, and, when the command itself was content, `session-died` or what else
    befell the session. Main thread only.
    """
    name = name or f"run-{os.urandom(4).hex()}"
    lifeline, ours = os.pipe()
    try:
        started = lifecycle.start(name, source, idle_timeout=0, lifeline=lifeline, on_event=on_event)
        if not started.started_now:
            raise MempoolError("session-start", f"session {name} runs already", hint="leave the name out")
        try:
            status = _run(command, _environment(name, source), on_event)
        except BaseException:
            lifecycle.stop(name, source)
            raise
        return _stop(name, source, status, on_event)
    finally:
        os.close(ours)
        os.close(lifeline)


def _stop(name: str, source: DriverSource, status: int, on_event: OnEvent) -> int:
    try:
        stopped = lifecycle.stop(name, source)
    except MempoolError as error:
        # The command may have stopped its session itself.
        if error.problem.code == "no-session":
            return status
        if status == 0:
            raise
        on_event(Event("status", error.problem.message))
    else:
        for notice in stopped.warnings:
            on_event(Event("status", notice.message))
        problem = stopped.problem
        if problem and status == 0:
            raise MempoolError(problem.code, problem.message, hint=problem.hint, driver=problem.driver)
    return status


def _environment(name: str, source: DriverSource) -> Mapping[str, str]:
    """The command's: it finds the session and no other, also after a change of directory."""
    environment = {**os.environ, "MEMPOOL_SESSION": name}
    for variable in ("MEMPOOL_NO_SESSION", "MEMPOOL_SIM"):
        environment.pop(variable, None)
    if source.sim is not None:
        machine, *faults = source.sim.split(",")
        if "/" in machine or machine.endswith(".toml"):
            machine = str(Path(machine).absolute())
        environment["MEMPOOL_SIM"] = ",".join((machine, *faults))
    if environment.get(RUNTIME_DIR):
        environment[RUNTIME_DIR] = str(chosen_directory())
    return environment


def _run(command: Sequence[str], environment: Mapping[str, str], on_event: OnEvent) -> int:
    with _signals_held() as before:
        try:
            # Python itself ignores these two; a command of the user's must not inherit that.
            python_ignores = [signal.SIGPIPE, signal.SIGXFSZ]
            if not command[0]:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))  # of which spawn makes a ValueError
            pid = os.posix_spawnp(command[0], list(command), environment, setsigmask=before, setsigdef=python_ignores)
        except OSError as error:
            on_event(Event("status", f"error: {command[0]} cannot be run: {error.strerror}"))
            return _NOT_FOUND if error.errno == errno.ENOENT else _CANNOT_RUN
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
