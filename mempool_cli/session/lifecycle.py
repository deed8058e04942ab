"""The life of sessions: find, start, stop, status, list."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from mempool_cli.driver import DriverSource
from mempool_cli.errors import MempoolError
from mempool_cli.model import Event, Notice, Session, SessionList, SessionStatus, SessionStopped
from mempool_cli.requests import OnEvent
from mempool_cli.session import IDLE_SECONDS, directory, farewell, journal, protocol
from mempool_cli.session.client import ANSWER_SECONDS, SessionRunner, reach
from mempool_cli.session.compatible import check_same, other_machine
from mempool_cli.session.connection import AbsentError, Connection, EndedError
from mempool_cli.session.directory import Place
from mempool_cli.session.files import PREFIX
from mempool_cli.session.lock import POLL_SECONDS, Lock, Watch, held
from mempool_cli.session.protocol import HostState, Stopped

_LIST_SECONDS = 1.0


def find(
    name: str, source: DriverSource, *, timeout: float | None = None, report_death: bool = True
) -> SessionRunner | None:
    """A runner for the host of this name; None when none lives.

    MempoolError `session-died` when it died since the last command: told once, unless `report_death` is false, and
    then not at all. Else as SessionRunner.run.
    """
    place = directory.place(name, simulated=source.sim is not None)
    if place is None:
        return None
    runner = SessionRunner(place, source, timeout=timeout, report_death=report_death)
    return runner if runner.greet() else None


def open_or_start(
    name: str, source: DriverSource, *, idle_timeout: int = IDLE_SECONDS, timeout: float | None = None
) -> SessionRunner:
    """A runner for the host of this name, which the first request starts when none lives.

    A session that was started so ends again when that request fails and changes nothing, or never comes; when it
    stays, an event says that it was started. MempoolError as `find`, and of its `run` also as `start`.
    """
    place = directory.made_place(name, simulated=source.sim is not None)
    boot = partial(_boot, source=source, idle_timeout=idle_timeout, provisional=True)
    runner = SessionRunner(place, source, timeout=timeout, boot=boot)
    runner.greet()
    return runner


def start(
    name: str,
    source: DriverSource,
    *,
    idle_timeout: int | None = None,
    timeout: float | None = None,
    lifeline: int | None = None,
    on_event: OnEvent = lambda event: None,
) -> SessionStatus:
    """The session of this name, started when none lives. `idle_timeout` in seconds; 0: it never ends by itself.

    When one lives with another `idle_timeout`, a warning says so; None is content with any. With `lifeline`, a pipe,
    a session started here stops when that has no writer. MempoolError `session-start`,
    or why the driver is no use; `other-driver`, `other-version` when another runs; `session-died` as `find`.
    """
    place = directory.made_place(name, simulated=source.sim is not None)
    reached = reach(place, _deadline(timeout))
    if isinstance(reached, Lock):
        seconds = IDLE_SECONDS if idle_timeout is None else idle_timeout
        state = _boot(place, reached, on_event, source=source, idle_timeout=seconds, lifeline=lifeline)
        return SessionStatus(session=state.session(), started_now=True)
    connection, state = reached
    with connection:
        if state.kind == "program":
            raise MempoolError(
                "session-start",
                f"{name} is a program (pid {state.pid})",
                hint="another name with `--session NAME`",
            )
        check_same(state, source)
    return SessionStatus(session=state.session(), warnings=_other_timeout(state, idle_timeout))


def serve_here(
    name: str,
    source: DriverSource,
    *,
    idle_timeout: int | None = None,
    on_ready: Callable[[SessionStatus], None] = lambda status: None,
    on_event: OnEvent = lambda event: None,
) -> None:
    """Is the session of this name, in this process, until SIGINT, SIGTERM, `stop` or the idle timeout ends it.

    Main thread only. MempoolError `session-start` when one runs already; else as `start`.
    """
    from mempool_cli.session.host import serve_in_foreground

    place = directory.made_place(name, simulated=source.sim is not None)
    reached = reach(place, _deadline(None))
    if not isinstance(reached, Lock):
        connection, state = reached
        with connection:
            raise MempoolError(
                "session-start",
                f"session {name} runs already (pid {state.pid})",
                hint="`mempool session stop`, or another name with `--session NAME`",
            )
    try:
        _tell_end(place, on_event)
        serve_in_foreground(
            place,
            source,
            idle_timeout=IDLE_SECONDS if idle_timeout is None else idle_timeout,
            announce=lambda state: on_ready(SessionStatus(session=state.session(), started_now=True)),
        )
    finally:
        reached.release()


def appears(name: str, source: DriverSource, seconds: float) -> bool:
    """Whether a host of this name lives, or comes to live within so many seconds. MempoolError as `find`."""
    deadline = time.monotonic() + seconds
    while True:
        # Not by its lock, of which a host that starts at this moment would be deprived.
        place = directory.place(name, simulated=source.sim is not None)
        if place and place.socket.exists() and find(name, source, report_death=False):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)


def status(name: str, source: DriverSource, *, timeout: float | None = None) -> SessionStatus:
    """The host of this name, with a warning when it simulates another machine.

    MempoolError `no-session`; `session-died` and `session-busy` as `find`.
    """
    connection, state = _reach_living(name, source.sim is not None, _deadline(timeout))
    with connection:
        return SessionStatus(session=state.session(), warnings=other_machine(state, source))


def stop(name: str, source: DriverSource, *, kill: bool = False, timeout: float | None = None) -> SessionStopped:
    """Ends the host of this name, and returns when that is done; what went wrong is in the result.

    A session's process is gone then; a program has lost its agent and lives on. It may simulate another machine, of
    which a warning tells: one whose file has changed can be stopped too. `kill`: a session by SIGKILL, when it does
    not answer; its pools are lost without cleanup. MempoolError `no-session`; `session-stop` when it does not end;
    `session-died` when it had died before.
    """
    deadline, simulated = _deadline(timeout), source.sim is not None
    if kill:
        return _kill(name, source, deadline)
    connection, state = _reach_living(name, simulated, deadline)
    with connection, Watch(_place(name, simulated).lock) as watch:
        try:
            reply = connection.ask(protocol.Stop(), Stopped)
        except (TimeoutError, EndedError):
            raise _not_stopped(state) from None
        if not watch.free(deadline):
            raise _not_stopped(state)
    if state.kind == "session":
        _reap(state)
    return SessionStopped(
        session=reply.state.session(),
        not_destroyed=reply.not_destroyed,
        warnings=(*other_machine(state, source), *reply.notices),
    )


def list_sessions(*, simulated: bool) -> SessionList:
    """Every living host of this user in one name space. One that has died is a warning, and stays to be told."""
    living: list[Session] = []
    warnings: list[Notice] = []
    for path in directory.journals(simulated=simulated):
        state = journal.read(path)
        if state is None:
            continue
        place = Place(path.parent, simulated, state.name)
        found = _look(place, state)
        if found:
            living.append(found)
        elif state.kind == "program":
            forget(place)
        elif path.exists():
            message = f"session {state.name} (pid {state.pid}) has died; the next command on it tells how"
            warnings.append(Notice("session-died", message))
    others = [] if simulated or living else _names(simulated=True)
    if others:
        runs = f"simulated session{'s' if len(others) > 1 else ''} {', '.join(others)}"
        warnings.append(Notice("simulated-sessions", f"{runs}: not on hardware; with `--sim` they are listed"))
    return SessionList(sessions=tuple(living), warnings=tuple(warnings))


def forget(place: Place) -> None:
    """Removes what a program left that ended without its interpreter's exit; nothing while a host lives there."""
    lock = Lock.take(place.lock)
    if lock:
        journal.death(place)
        lock.release()


def clear_ended(where: Path) -> None:
    """Removes what hosts on hardware left in a directory that have nothing to tell: programs, and starts cut short."""
    for path in where.glob(f"{PREFIX[False]}*.lock"):
        lock = None if held(path) else Lock.take(path)
        if lock is None:
            continue
        rest = [path.with_name(path.name.removesuffix("lock") + kind) for kind in ("socket", "new", "journal")]
        state = journal.read(rest[-1])
        if not rest[-1].exists() or (state and state.kind == "program"):
            for each in rest:
                each.unlink(missing_ok=True)
        lock.release()


def tell_end(name: str, *, simulated: bool, on_event: OnEvent) -> None:
    """Tells, once, that a host of this name ended unasked with what it held; for a command that goes on without."""
    place = directory.place(name, simulated=simulated)
    if place:
        _tell_end(place, on_event)


def tell_programs(*, simulated: bool, on_event: OnEvent) -> None:
    """Tells which programs run, for a command that is about none of them."""
    names = () if simulated else programs()
    if names:
        which = ", ".join(f"{name} (`--session {name}`)" for name in names)
        on_event(Event("status", f"not asked: the program{'s' if len(names) > 1 else ''} {which}"))


def programs() -> tuple[str, ...]:
    """The names of the programs of this user that have an agent, as their files say."""
    return tuple(_names(simulated=False, kind="program"))


def _names(*, simulated: bool, kind: Literal["session", "program"] = "session") -> list[str]:
    """Of the hosts of this kind that live, as their files say."""
    states = [journal.read(path) for path in directory.journals(simulated=simulated)]
    return [state.name for state in states if state and state.kind == kind and _alive(state.name, simulated)]


def _alive(name: str, simulated: bool) -> bool:
    place = directory.place(name, simulated=simulated)
    return place is not None and held(place.lock)


def no_session(name: str, *, simulated: bool) -> MempoolError:
    """The error for a name under which no host lives; tells, once, of one that ended unasked with what it held."""
    place = directory.place(name, simulated=simulated)
    ended = farewell.take(place) if place else None
    told = f": it {ended.words}" if ended else ""
    return MempoolError(
        "no-session",
        f"no {_kind(simulated)}{'' if simulated else ' or program'} {name!r} runs{told}",
        hint="`mempool session list` shows those that do; `mempool session start` starts one"
        + ("" if simulated else ", `mempool exec` a program"),
    )


def _deadline(timeout: float | None) -> float:
    return time.monotonic() + (ANSWER_SECONDS if timeout is None else timeout)


def _kind(simulated: bool) -> str:
    return "simulated session" if simulated else "session"


def _tell_end(place: Place, on_event: OnEvent) -> None:
    ended = farewell.take(place)
    if ended:
        on_event(Event("status", f"{_kind(place.simulated)} {place.name} {ended.words}"))


def _other_timeout(state: HostState, wanted: int | None) -> tuple[Notice, ...]:
    if wanted in (None, state.idle_timeout):
        return ()
    has = f"an idle timeout of {state.idle_timeout} s" if state.idle_timeout else "no idle timeout"
    message = f"{state.kind} {state.name} runs already, with {has}; stop it first to change that"
    return (Notice("already-running", message),)


def _boot(
    place: Place,
    lock: Lock,
    on_event: OnEvent,
    *,
    source: DriverSource,
    idle_timeout: int,
    provisional: bool = False,
    lifeline: int | None = None,
) -> HostState:
    try:
        from mempool_cli.session.boot import boot

        _tell_end(place, on_event)
        tell_programs(simulated=place.simulated, on_event=on_event)
    except BaseException:  # an interrupt too
        lock.release()
        raise
    return boot(place, lock, source, idle_timeout=idle_timeout, provisional=provisional, lifeline=lifeline)


def _place(name: str, simulated: bool) -> Place:
    place = directory.place(name, simulated=simulated)
    if place is None:
        raise no_session(name, simulated=simulated)
    return place


def _reach_living(name: str, simulated: bool, deadline: float) -> tuple[Connection, HostState]:
    reached = reach(_place(name, simulated), deadline)
    if isinstance(reached, Lock):
        reached.release()
        raise no_session(name, simulated=simulated)
    return reached


def _not_stopped(state: HostState) -> MempoolError:
    hint = "`mempool session status` tells whether it still runs"
    if state.kind == "session":
        hint += "; `mempool session stop --kill` ends it for certain"
    who = "has not ended" if state.kind == "session" else "has not let go of its agent"
    return MempoolError("session-stop", f"{state.kind} {state.name} (pid {state.pid}) {who}", hint=hint)


def _kill(name: str, source: DriverSource, deadline: float) -> SessionStopped:
    simulated = source.sim is not None
    place = _place(name, simulated)
    state = journal.read(place.journal)
    if state is None or not held(place.lock):
        # Raises what became of it; or it is only starting, and answers soon.
        connection, state = _reach_living(name, simulated, deadline)
        connection.close()
    if state.kind == "program":
        raise MempoolError(
            "session-stop",
            f"{name} is a program (pid {state.pid}): mempool kills none but its own sessions",
            hint=f"`kill {state.pid}` ends it; `mempool session stop` only detaches the agent",
        )
    with Watch(place.lock) as watch:
        _send_kill(state, place)
        if not watch.free(deadline):
            raise MempoolError(
                "session-stop",
                f"session {name} (pid {state.pid}) does not end on SIGKILL: it is stuck in the driver",
                hint="see the kernel log; it ends when the driver lets go of it",
            )
    _reap(state)
    lock = Lock.take(place.lock)
    if lock:
        place.clear()
        place.clear_log()
        lock.release()
    session = state.session(answering=False)
    return SessionStopped(session=session, killed=True, warnings=other_machine(state, source))


def _send_kill(state: HostState, place: Place) -> None:
    try:
        process = os.pidfd_open(state.pid)
    except OSError as error:
        raise MempoolError("session-stop", f"session {state.name} (pid {state.pid}): {error.strerror}") from error
    try:
        # While the lock is held the pid is still the host's, and the descriptor holds on to that process.
        if held(place.lock):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    finally:
        os.close(process)


def _reap(state: HostState) -> None:
    from mempool_cli.session.boot import reap

    reap(state.pid)


def _look(place: Place, written: HostState) -> Session | None:
    """The host as it is; as it last wrote when it does not answer; None when it is not alive."""
    try:
        with Connection(place.socket, time.monotonic() + _LIST_SECONDS) as connection:
            return connection.hello().session()
    except (AbsentError, EndedError, TimeoutError, MempoolError):
        return written.session(answering=False) if held(place.lock) and place.journal.exists() else None
