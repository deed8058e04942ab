"""A new interpreter that becomes a session: started, and waited for until it serves or says why not."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

from mempool_cli.driver import DriverSource
from mempool_cli.errors import MempoolError
from mempool_cli.interpreters import import_path
from mempool_cli.session import journal, protocol
from mempool_cli.session.directory import Place
from mempool_cli.session.lock import Lock
from mempool_cli.session.plan import Plan
from mempool_cli.session.protocol import HostState, Refused

READY_SECONDS = 30.0
_AGENT = "MEMPOOL_AGENT"  # what the names of an agent's variables begin with

_WORDLESS = "it ended without a word: killed, or out of memory"
_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from mempool_cli.session.host import main
sys.exit(main(int(sys.argv[1])))
"""


def boot(
    place: Place,
    lock: Lock,
    source: DriverSource,
    *,
    idle_timeout: int,
    provisional: bool = False,
    lifeline: int | None = None,
) -> HostState:
    """Starts a session at `place`, and gives it `lock`. `lifeline`: a pipe at whose end it stops.

    MempoolError `session-start`, or what the session itself says (`no-driver`, ...); nothing runs then, and the
    lock is free.
    """
    with ExitStack() as stack:
        stack.callback(lock.leave)
        ready, its_ready = os.pipe()
        stack.callback(os.close, ready)
        plan = Plan(
            directory=str(place.directory),
            name=place.name,
            source=source.encode().decode(),
            idle_timeout=idle_timeout,
            provisional=provisional,
            lock=lock.fd,
            ready=its_ready,
            lifeline=lifeline,
        )
        try:
            pid = _spawn(place, plan)
        except BaseException as error:
            _undo(place, lock)
            if isinstance(error, OSError):
                raise _failed(place, str(error)) from error
            raise
        finally:
            os.close(its_ready)
        try:
            return _wait(place, ready)
        except BaseException:
            # An interrupt too: a session that nobody knows of must not stay.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            reap(pid)
            _undo(place, lock)
            raise


def _undo(place: Place, lock: Lock) -> None:
    place.clear()
    place.clear_log()
    lock.unlink()


def _spawn(place: Place, plan: Plan) -> int:
    """The pid of a new interpreter. Never a fork alone: in a fork, CUDA answers NOT_INITIALIZED for ever."""
    if not sys.executable:
        raise MempoolError("session-start", "there is no Python interpreter to start a session with")
    with ExitStack() as stack:
        log = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, log)
        # No limit on its size, as an argument or a pipe has, and no name.
        plan_fd = os.memfd_create("mempool-plan")
        stack.callback(os.close, plan_fd)
        with os.fdopen(os.dup(plan_fd), "wb") as file:
            file.write(plan.encode())
        os.lseek(plan_fd, 0, os.SEEK_SET)
        kept = [fd for fd in (plan_fd, plan.lock, plan.ready, plan.lifeline) if fd is not None]
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                _PROGRAM,
                str(plan_fd),
                json.dumps(import_path(sys.path)),
                "session",
                place.name,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=kept,
            cwd="/",
            env=_environment(),
            start_new_session=True,
        )
    # It outlives its starter, of which Popen would complain when it is collected.
    process.returncode = 0
    return process.pid


def _environment() -> dict[str, str]:
    """As here, but without what `mempool exec` asks of the interpreters of a program: a session is no part of it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_AGENT)}


def _wait(place: Place, ready: int) -> HostState:
    said = _said(ready, time.monotonic() + READY_SECONDS)
    if said is None:
        raise _failed(place, f"it is not ready after {READY_SECONDS:g} s")
    if not said:
        raise _failed(place, journal.last_words(place.log) or _WORDLESS)
    reply = protocol.decode_reply(said)
    if isinstance(reply, Refused):
        problem = reply.problem
        raise MempoolError(problem.code, problem.message, hint=problem.hint, driver=problem.driver)
    assert isinstance(reply, HostState)
    return reply


def _said(ready: int, deadline: float) -> bytes | None:
    """The line that the session writes; empty when it ended without one, None at the deadline."""
    poll = select.poll()
    poll.register(ready, select.POLLIN)
    said = b""
    while not said.endswith(b"\n"):
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return None
        chunk = os.read(ready, 1 << 16)
        if not chunk:
            return b""
        said += chunk
    return said


def _failed(place: Place, why: str) -> MempoolError:
    hint = f"its log is {place.log}" if place.log.exists() else None
    return MempoolError("session-start", f"session {place.name} did not start: {why}", hint=hint)


def reap(pid: int) -> None:
    """Waits for a session that has ended or is about to, if this process started it."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
