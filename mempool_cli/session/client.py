"""Requests to a host: find out whether one lives, see that it is the right one, ask, and tell what went wrong."""

from __future__ import annotations

import time
from collections.abc import Callable

from mempool_cli import __version__
from mempool_cli.driver import DriverSource
from mempool_cli.errors import MempoolError
from mempool_cli.model import Answer, Event
from mempool_cli.requests import AnyRequest, OnEvent
from mempool_cli.session import journal, protocol
from mempool_cli.session.compatible import check_same
from mempool_cli.session.connection import AbsentError, Connection, EndedError, expected
from mempool_cli.session.directory import Place
from mempool_cli.session.environment import Environment
from mempool_cli.session.lock import POLL_SECONDS, Lock, Watch
from mempool_cli.session.protocol import Answered, Happened, HostState

ANSWER_SECONDS = 60.0

_ENDING_SECONDS = 5.0

Boot = Callable[[Place, Lock, OnEvent], HostState]


def reach(place: Place, deadline: float, *, report_death: bool = True) -> tuple[Connection, HostState] | Lock:
    """A greeted connection to the host, or the lock when none lives; the caller closes or releases what comes back.

    A host that starts or ends at this moment is waited for. MempoolError: `session-died`, told once, after what
    the host left is cleared (without `report_death` it stays to be told later); `session-busy` at the deadline.
    """
    while True:
        greeted = _greet(place, deadline)
        if greeted:
            return greeted
        lock = Lock.take(place.lock)
        if lock is None:
            _pause(place, deadline)
            continue
        if not report_death and place.journal.exists():
            return lock
        died = journal.death(place)
        if died is None:
            place.clear_log()
            return lock
        lock.release()
        raise died


def _greet(place: Place, deadline: float) -> tuple[Connection, HostState] | None:
    try:
        connection = Connection(place.socket, deadline)
    except AbsentError:
        return None
    except TimeoutError:
        raise busy(place) from None
    try:
        return connection, connection.hello()
    except EndedError:
        connection.close()
        return None
    except TimeoutError:
        connection.close()
        raise busy(place) from None
    except BaseException:
        connection.close()
        raise


def _pause(place: Place, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise busy(place)
    time.sleep(POLL_SECONDS)


def busy(place: Place) -> MempoolError:
    """The error for a host that lives and does not answer."""
    state = journal.read(place.journal)
    who = f"{state.kind} {place.name} (pid {state.pid})" if state else f"session {place.name}"
    program = state is not None and state.kind == "program"
    return MempoolError(
        "session-busy",
        f"{who} does not answer: it works for another command, or hangs",
        hint="wait and try again" + ("" if program else ", or `mempool session stop --kill`"),
    )


class SessionRunner:
    """A `requests.Runner` for the host at `place`. Connects anew for each request: nothing is held between.

    With `boot`, a request starts a host when none lives.
    """

    def __init__(
        self,
        place: Place,
        source: DriverSource,
        *,
        timeout: float | None = None,
        boot: Boot | None = None,
        report_death: bool = True,
    ) -> None:
        self._place = place
        self._source = source
        self._timeout = ANSWER_SECONDS if timeout is None else timeout
        self._boot = boot
        self._report_death = report_death
        self._untold: HostState | None = None
        self._who = f"session {place.name}"

    def greet(self) -> bool:
        """Whether a host lives that can answer here; MempoolError when it is no use."""
        connection = self._connect(None)
        if connection is None:
            return False
        with connection:
            return True

    def run(self, request: AnyRequest, on_event: OnEvent, *, trace: bool = False) -> Answer:
        """Runs one request in the host.

        MempoolError when there is no answer: `usage` for a word that is no text, `bad-request` for one that is too
        long, `no-session`, `session-died`, `session-busy`, `outcome-unknown`, `other-version`, `other-driver`,
        `other-environment`, and what `boot` raises.
        """
        line = _encoded(request, trace=trace)
        connection = self._connect(on_event)
        if connection is None:
            raise MempoolError("no-session", f"{self._who} has ended", hint="`mempool session list`")
        with connection, Watch(self._place.lock) as watch:
            answered = self._ask(connection, line, on_event, watch)
            started, self._untold = self._untold, None
            if answered.ending:
                watch.free(time.monotonic() + _ENDING_SECONDS)
            elif started and answered.stays:
                on_event(Event("status", f"started {started.who} (pid {started.pid})"))
            return answered.answer

    def _connect(self, on_event: OnEvent | None) -> Connection | None:
        """A connection to the right host; None when none lives and none is to be started, as without `on_event`."""
        while True:
            # From now on, not from before a start: that has a limit of its own.
            deadline = time.monotonic() + self._timeout
            reached = reach(self._place, deadline, report_death=self._report_death)
            if isinstance(reached, Lock):
                if self._boot is None or on_event is None:
                    reached.release()
                    return None
                self._untold = self._boot(self._place, reached, on_event)
                continue
            connection, state = reached
            self._who = f"{state.kind} {state.name}"
            try:
                check_same(state, self._source)
            except MempoolError:
                connection.close()
                raise
            return connection

    def _ask(self, connection: Connection, line: bytes, on_event: OnEvent, watch: Watch) -> Answered:
        try:
            connection.send(line)
            reply = connection.receive()
            while isinstance(reply, Happened):
                on_event(reply.event)
                reply = connection.receive()
        except TimeoutError:
            raise MempoolError(
                "outcome-unknown",
                f"{self._who} gave no answer in {self._timeout:g} s; it may still do what was asked",
                hint="see `mempool show`; `--timeout SECONDS` waits longer",
            ) from None
        except EndedError:
            raise self._unanswered(watch) from None
        return expected(reply, Answered)

    def _unanswered(self, watch: Watch) -> MempoolError:
        """Why the host closed the connection without an answer."""
        if watch.free(time.monotonic() + _ENDING_SECONDS):
            lock = Lock.take(self._place.lock)
            if lock:
                died = journal.death(self._place)
                lock.release()
                if died:
                    return died
            return MempoolError(
                "session-died", f"{self._who} ended before it answered", hint="see `mempool session list`"
            )
        return MempoolError(
            "outcome-unknown",
            f"{self._who} closed the connection without an answer",
            hint="see `mempool show`",
        )


def _encoded(request: AnyRequest, *, trace: bool) -> bytes:
    here = Environment.current()
    run = protocol.Run(
        version=__version__,
        messages=protocol.messages_digest(),
        request=request,
        trace=trace,
        visible=here.visible,
        order=here.order,
    )
    try:
        line = protocol.encode(run)
    except UnicodeEncodeError as error:
        raise MempoolError("usage", f"a word of the request is not UTF-8: {error.object!r}") from error
    if len(line) > protocol.MAX_REQUEST_BYTES:
        raise MempoolError("bad-request", f"the request has {len(line)} bytes; at most {protocol.MAX_REQUEST_BYTES}")
    return line
