"""A session: this process holds pools and serves requests until it is stopped, unused or killed."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from types import FrameType
from typing import TextIO

from mempool_cli.driver import DriverSource
from mempool_cli.errors import MempoolError, Problem
from mempool_cli.mps import without_mps
from mempool_cli.operations import LocalRunner
from mempool_cli.requests import Devices
from mempool_cli.session import farewell, journal, protocol
from mempool_cli.session.directory import Place
from mempool_cli.session.environment import Environment
from mempool_cli.session.lease import Lease
from mempool_cli.session.listening import listen
from mempool_cli.session.plan import Plan
from mempool_cli.session.protocol import HostState, Refused
from mempool_cli.session.server import Server

FIRST_USE_SECONDS = 5.0


class _Files:
    """The files of a session, at the turns of its server's life."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def changed(self, state: HostState) -> None:
        try:
            journal.write(self._place, state)
        except OSError as error:
            # A full disk is no reason to lose the pools; only a death could not be told as well.
            sys.stderr.write(f"mempool: the journal cannot be written: {error}\n")

    def withdraw(self) -> None:
        self._place.socket.unlink(missing_ok=True)

    def complain(self, error: Exception) -> None:
        traceback.print_exception(error)


def main(plan_fd: int) -> int:
    """Becomes the session that the plan describes: the process's exit status, 0 after a clean end.

    Tells the starter through the `ready` pipe that it serves, or why it cannot; what nobody foresaw is raised, for
    the log, whose last line the starter reads. The caller has made standard error the session's log.
    """
    with os.fdopen(plan_fd, "rb") as file:
        plan = Plan.decode(file.read())
    for fd in (plan.lock, plan.ready, plan.lifeline):
        if fd is not None:
            os.set_inheritable(fd, False)
    os.umask(0o077)
    faulthandler.enable()

    def announce(state: HostState) -> None:
        _tell(plan.ready, state)

    source = DriverSource.decode(plan.source.encode())
    place = plan.place(source)
    try:
        serve(
            place,
            source,
            idle_timeout=plan.idle_timeout,
            provisional=plan.provisional,
            lifeline=plan.lifeline,
            announce=announce,
        )
    except MempoolError as error:
        _tell(plan.ready, Refused(error.problem))
        return error.problem.exit
    place.clear_log(clean=True)
    # The starter has let go of the lock long ago: it is ours alone.
    place.lock.unlink(missing_ok=True)
    return 0


def serve_in_foreground(
    place: Place, source: DriverSource, *, idle_timeout: int, announce: Callable[[HostState], None]
) -> None:
    """`serve` in a process that has a terminal: only what a crash says goes to the session's log."""
    handled = faulthandler.is_enabled()
    with _private_log(place) as log:
        faulthandler.enable(log)
        try:
            serve(place, source, idle_timeout=idle_timeout, announce=announce)
        finally:
            faulthandler.disable()
            if handled:
                faulthandler.enable()


def serve(
    place: Place,
    source: DriverSource,
    *,
    idle_timeout: int,
    announce: Callable[[HostState], None],
    provisional: bool = False,
    lifeline: int | None = None,
) -> None:
    """Serves as the session at `place`, whose lock the caller holds, until a clean end.

    SIGINT, SIGTERM and SIGHUP are clean ends; `announce` is called when it listens. What is raised before it
    serves, by `announce` too, leaves nothing but the log; after that, the journal is left to tell of it.
    """
    here = Environment.current()
    lease = Lease("session", place.name, idle_timeout, first_use=FIRST_USE_SECONDS if provisional else None)
    runner = LocalRunner(source, lease.where)
    with ExitStack() as stack:
        try:
            stack.enter_context(without_mps(place.mps))
            _load(source, runner, provisional=provisional)
            listener = stack.enter_context(_listen(place))
            server = stack.enter_context(
                closing(
                    Server(
                        listener,
                        runner,
                        lease,
                        _Files(place),
                        driver=source.digest,
                        sim=source.sim,
                        here=lambda: here,
                        provisional=provisional,
                    )
                )
            )
            if lifeline is not None:
                server.stop_at_end_of(lifeline)
            stack.enter_context(_stopped_by_signals(server))
            journal.write(place, server.state())
            announce(server.state())
        except BaseException:
            # It has made nothing yet: no death to tell of.
            place.clear()
            raise
        server.serve()
        _log(server.problems)
        if server.farewell:
            try:
                farewell.leave(place, server.farewell)
            except OSError as error:
                sys.stderr.write(f"mempool: its end cannot be left to be told: {error}\n")
        # While signals still mean a clean end.
        place.clear()


@contextmanager
def _private_log(place: Place) -> Iterator[TextIO]:
    fd = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w") as log:
            yield log
    finally:
        place.clear_log()


def _load(source: DriverSource, runner: LocalRunner, *, provisional: bool) -> None:
    """Imports all that requests need, before the files of this installation may change under a long life.

    A session that is started for itself opens its driver too, so that a machine without one is told at once;
    one that is started for a request leaves that to the request, whose --trace shows it.
    """
    if provisional:
        source.open()
        return
    failure = runner.run(Devices(), lambda event: None).failure
    if failure:
        raise MempoolError(failure.code, failure.message, hint=failure.hint, driver=failure.driver)


@contextmanager
def _listen(place: Place) -> Iterator[socket.socket]:
    """A listening socket, in place of a stale one: with the lock held, no other host can own it."""
    place.socket.unlink(missing_ok=True)
    with socket.socket(fileno=listen(os.fspath(place.socket))) as listener:
        yield listener


@contextmanager
def _stopped_by_signals(server: Server) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        server.request_stop(f"by {signal.Signals(number).name}")

    # A signal between the check and the wait would be seen only at the next request, but for this descriptor.
    wake = signal.set_wakeup_fd(server.wake_fd, warn_on_full_buffer=False)
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wake)


def _tell(ready: int, message: HostState | Refused) -> None:
    # The starter may be gone; then nobody waits, and the session ends by its own timeout.
    with suppress(BrokenPipeError):
        os.write(ready, protocol.encode(message))
    os.close(ready)


def _log(problems: tuple[Problem, ...]) -> None:
    for problem in problems:
        sys.stderr.write(f"mempool: at the end of the session: {problem.message} [{problem.code}]\n")
