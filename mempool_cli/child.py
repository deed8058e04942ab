"""A trial in a process of its own: what crashes, hangs or loses its context there is a result here."""

from __future__ import annotations

import importlib
import json
import math
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import IO, Literal

import msgspec

from mempool_cli.interpreters import import_path

_GONE_SECONDS = 10.0
_ALONE_SECONDS = 15
_WORDS_BYTES = 4096
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv[3])
from mempool_cli.child import main
main(sys.argv[4], int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[5]))
"""

Announce = Callable[[str], None]
"""Says which driver call comes next, and then what it answered."""

Trial = Callable[[bytes, Announce], bytes]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a trial ended.

    `result` is what it returned, None unless it `ended` so. `last_call` is the driver call that it was in, or had made
    last; `calls` all that it announced. `signal` names what killed it. `remains`: the pid of a process that SIGKILL
    does not end, as it is stuck in the driver. `words`: the end of its standard error.
    """

    ended: Literal["returned", "signal", "exit", "hung"]
    result: bytes | None = None
    signal: str | None = None
    status: int | None = None
    last_call: str | None = None
    calls: tuple[str, ...] = ()
    remains: int | None = None
    words: str = ""


def run_trial(trial: str, payload: bytes, *, limit: float) -> Outcome:
    """Runs `trial`, a `module:function` of type Trial, in a new interpreter, for at most `limit` seconds.

    No core is dumped. OSError when there can be no new process.
    """
    with ExitStack() as stack:
        given = os.memfd_create("mempool-trial")
        stack.callback(os.close, given)
        os.write(given, payload)
        os.lseek(given, 0, os.SEEK_SET)
        heard, says = os.pipe()
        stack.callback(os.close, heard)
        words = stack.enter_context(open_anonymous())
        command = [str(given), str(says), json.dumps(import_path(sys.path)), trial, str(math.ceil(limit))]
        # An interrupt in the midst of Popen would leave a child that nobody knows.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, *command],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                pass_fds=[given, says],
                start_new_session=True,
            )
            stack.enter_context(_Ended(process))
        finally:
            os.close(says)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        reports = _Reports(heard, time.monotonic() + limit)
        in_time = reports.read_all()
        return _outcome(process, reports, words, in_time=in_time)


def open_anonymous() -> IO[bytes]:
    """A file without a name."""
    return os.fdopen(os.memfd_create("mempool-words"), "w+b")


class _Ended:
    """However this ends, an interrupt too, the child does not outlive it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        _kill(self._process)


class _Reports:
    """What the child sends: one JSON array a line, `["call", text]` or `["result", text]`."""

    def __init__(self, fd: int, deadline: float) -> None:
        self._fd = fd
        self._deadline = deadline
        self._rest = b""
        self.calls: list[str] = []
        self.result: bytes | None = None

    def read_all(self) -> bool:
        """Reads until the child closes its end; False at the deadline."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while poll.poll(max(0.0, self._deadline - time.monotonic()) * 1000):
            data = os.read(self._fd, 1 << 16)
            if not data:
                return True
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(line)
        return False

    def _take(self, line: bytes) -> None:
        kind, text = json.loads(line)
        if kind == "result":
            self.result = text.encode()
        else:
            self.calls.append(text)


def _outcome(process: subprocess.Popen[bytes], reports: _Reports, words: IO[bytes], *, in_time: bool) -> Outcome:
    remains = None
    if in_time:
        try:
            process.wait(_GONE_SECONDS)
        except subprocess.TimeoutExpired:
            in_time = False
    if not in_time:
        remains = _kill(process)
    size = words.seek(0, os.SEEK_END)
    words.seek(max(0, size - _WORDS_BYTES))
    code = process.returncode
    killed = code is not None and code < 0
    ended: Literal["returned", "signal", "exit", "hung"] = "exit"
    if not in_time:
        ended = "hung"
    elif killed:
        ended = "signal"
    elif reports.result is not None:
        ended = "returned"
    return Outcome(
        ended=ended,
        result=reports.result if ended == "returned" else None,
        signal=_signal_name(-code) if killed and in_time and code is not None else None,
        status=code if code is not None and code >= 0 else None,
        last_call=reports.calls[-1] if reports.calls else None,
        calls=tuple(reports.calls),
        remains=remains,
        words=words.read().decode(errors="replace").strip(),
    )


def _kill(process: subprocess.Popen[bytes]) -> int | None:
    """Ends it for certain; the pid when SIGKILL does not."""
    if process.poll() is None:
        process.kill()
        try:
            process.wait(_GONE_SECONDS)
        except subprocess.TimeoutExpired:
            process.returncode = 0  # nobody waits for it any more
            return process.pid
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def main(trial: str, given: int, says: int, limit: int) -> None:
    """In the child: runs the trial and sends what it announces and returns."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    # Where the parent was killed, nobody else ends it.
    signal.alarm(limit + _ALONE_SECONDS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for fd in (given, says):
        os.set_inheritable(fd, False)
    module, _, name = trial.partition(":")
    function: Trial = getattr(importlib.import_module(module), name)
    with os.fdopen(given, "rb") as file:
        payload = file.read()

    def send(kind: str, text: str) -> None:
        os.write(says, json.dumps([kind, text]).encode() + b"\n")

    send("result", function(payload, lambda call: send("call", call)).decode())
