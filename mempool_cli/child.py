"""A trial in a process of its own: what crashes, hangs or loses its context there is a result here."""

from __future__ import annotations

import ctypes
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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import IO, Literal

import msgspec

from mempool_cli import mps
from mempool_cli.interpreters import import_path

_GONE_SECONDS = 10.0
_ALONE_SECONDS = 15
_WORDS_BYTES = 4096
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
# The driver's own core dumps, of a GPU, which no limit of the process is about; and what would have a fault of a kernel
# come from its launch, where a trial takes it for a launch that failed.
_NOT_FOR_TRIALS = (
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
    "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
    "CUDA_LAUNCH_BLOCKING",
)
_PDEATHSIG = 1
_NO_PROCESS = "no process can be started"
_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from mempool_cli.child import main
main(sys.argv[2], *map(int, sys.argv[3:]))
"""

Announce = Callable[[str], None]
"""Says which driver call comes next, and then what it answered."""

Trial = Callable[[bytes, "Reports"], bytes]


class Reports:
    """What a trial says before it returns."""

    def __init__(self, send: Callable[[str, str], None], place: int) -> None:
        self._send = send
        self._place = place

    def __call__(self, call: str) -> None:
        """As an Announce."""
        self._send("call", call)

    def at(self, call: str) -> None:
        """The call that comes next, where only the last one matters: nobody is woken by it."""
        os.pwrite(self._place, call.encode(errors="replace") + b"\n", 0)

    def part(self, data: bytes) -> None:
        """A part of the result, UTF-8 text, which renews the trial's time."""
        self._send("part", data.decode())


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a trial ended.

    `result` is what it returned, None unless it `ended` so. `last_call` is the driver call that it was in, or had made
    last; `calls` all that it announced. `parts`: what it had found before it ended, however that was. `signal` names
    what killed it. `remains`: the pid of a process that SIGKILL does not end, as it is stuck in the driver. `words`:
    the end of its standard error.
    """

    ended: Literal["returned", "signal", "exit", "hung"]
    result: bytes | None = None
    signal: str | None = None
    status: int | None = None
    last_call: str | None = None
    calls: tuple[str, ...] = ()
    parts: tuple[bytes, ...] = ()
    remains: int | None = None
    words: str = ""

    @property
    def stuck(self) -> bool:
        """Whether it had to be killed, or cannot even be: who uses its devices next may not end either."""
        return self.ended == "hung" or self.remains is not None

    @property
    def end(self) -> str:
        """How a trial ended that returned nothing, or whose process did not end, in words."""
        ended = {
            "signal": f"the process was killed by {self.signal}",
            "hung": "the process did not end in time and was killed",
            "exit": f"the process ended with status {self.status}" if self.status is not None else _NO_PROCESS,
            "returned": "the process has returned" if self.remains else "the process returned nothing",
        }[self.ended]
        inside = f" in {self.last_call}" if self.last_call and self.ended != "returned" else ""
        last = f": {self.words.splitlines()[-1]}" if self.words and self.ended == "exit" else ""
        remains = f"; SIGKILL does not end it: pid {self.remains} remains" if self.remains else ""
        return f"{ended}{inside}{last}{remains}"


def run_trial(trial: str, payload: bytes, *, limit: float, apart: bool = True) -> Outcome:
    """Runs `trial`, a `module:function` of type Trial, in a new interpreter, for at most `limit` seconds a part.

    No core is dumped. `apart`: it is no client of MPS. Where there can be no new process, the outcome says so.
    """
    with ExitStack() as stack:
        try:
            child = Child(stack, trial, payload, limit=limit, apart=apart)
        except OSError as error:
            return not_started(error)
        while not child.over:
            wait([child])
        return child.end()


def not_started(error: OSError) -> Outcome:
    """The outcome of a trial for which there is no process."""
    return Outcome(ended="exit", words=error.strerror or str(error))


def wait(children: Sequence[Child]) -> None:
    """Waits until one of them has said something or its time is over, and takes what it said."""
    poll = select.poll()
    by_fd = {child.fd: child for child in children}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    left = max(0.0, min(child.deadline for child in children) - time.monotonic())
    heard = {fd for fd, _ in poll.poll(left * 1000)}
    for fd, child in by_fd.items():
        # What has arrived counts, however late it is looked at.
        if fd in heard:
            child.read()
        else:
            child.look_at_the_clock()


class Child:
    """A trial in a process of its own, from its start to `end`; `stack` ends it for certain, where that never comes.

    It has `limit` seconds for each part of its result, and for the first one `start`, if that is more. Unless it is not
    `apart` it is no client of MPS, whose other clients a fault, or the kill of what hangs, would harm. OSError when
    there can be no new process.
    """

    def __init__(
        self, stack: ExitStack, trial: str, payload: bytes, *, limit: float, start: float = 0.0, apart: bool = True
    ) -> None:
        self._limit = limit
        self._longest = max(limit, start)
        self._environment = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_TRIALS}
        if apart:
            self._environment[mps.PIPES] = mps.NOWHERE
        self._stack = ExitStack()
        stack.callback(self._stack.close)
        try:
            self._process = self._start(trial, payload)
        except BaseException:
            self._stack.close()
            raise
        self.deadline = time.monotonic() + self._longest
        self.over = False
        self._in_time = True
        self._rest = b""
        self._calls: list[str] = []
        self._parts: list[bytes] = []
        self._result: bytes | None = None

    def _start(self, trial: str, payload: bytes) -> subprocess.Popen[bytes]:
        stack = self._stack
        with ExitStack() as starting:
            given = os.memfd_create("mempool-trial")
            starting.callback(os.close, given)
            os.write(given, payload)
            os.lseek(given, 0, os.SEEK_SET)
            self.fd, says = os.pipe()
            starting.callback(os.close, says)
            stack.callback(os.close, self.fd)
            self._words, self._place = (stack.enter_context(open_anonymous()) for _ in range(2))
            fds = [given, says, self._place.fileno()]
            command = [json.dumps(import_path(sys.path)), trial, *map(str, [*fds, math.ceil(self._longest)])]
            # An interrupt in the midst of Popen would leave a child that nobody knows.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            try:
                signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _PROGRAM, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=self._words,
                    stderr=self._words,
                    pass_fds=fds,
                    env=self._environment,
                    start_new_session=True,
                )
                stack.callback(_kill, process)
                return process
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def read(self) -> None:
        """Takes what it says: JSON arrays, one a line, `["call" | "part" | "result", text]`."""
        data = os.read(self.fd, 1 << 16)
        if not data:
            self.over = True
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            kind, text = json.loads(line)
            if kind == "result":
                self._result = text.encode()
                self.over = True
            elif kind == "part":
                self._parts.append(text.encode())
                self.deadline = time.monotonic() + self._limit
            else:
                self._calls.append(text)

    def look_at_the_clock(self) -> None:
        """It is over when its time is."""
        if not self.over and time.monotonic() >= self.deadline:
            self.over, self._in_time = True, False

    @property
    def doing(self) -> str | None:
        """The driver call that it is in, or was in last."""
        return self._calls[-1] if self._calls else _first_line(self._place)

    def end(self) -> Outcome:
        """Ends it for certain. What became of it: one that has returned may take its time to go, or not go at all."""
        remains = None if self._in_time and self._gone() else _kill(self._process)
        code = self._process.returncode or 0
        ended: Literal["returned", "signal", "exit", "hung"] = "exit"
        if self._result is not None:
            ended = "returned"
        elif not self._in_time or code == -signal.SIGALRM:
            ended = "hung"
        elif code < 0:
            ended = "signal"
        outcome = Outcome(
            ended=ended,
            result=self._result,
            signal=_signal_name(-code) if ended == "signal" else None,
            status=code if code >= 0 else None,
            last_call=self.doing,
            calls=tuple(self._calls),
            parts=tuple(self._parts),
            remains=remains,
            words=_tail(self._words),
        )
        self._stack.close()
        return outcome

    def _gone(self) -> bool:
        try:
            self._process.wait(_GONE_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True


def open_anonymous() -> IO[bytes]:
    """A file without a name."""
    return os.fdopen(os.memfd_create("mempool-words"), "w+b")


def _first_line(file: IO[bytes]) -> str | None:
    file.seek(0)
    return file.readline().decode(errors="replace").rstrip("\n") or None


def _tail(words: IO[bytes]) -> str:
    size = words.seek(0, os.SEEK_END)
    words.seek(max(0, size - _WORDS_BYTES))
    return words.read().decode(errors="replace").strip()


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


def main(trial: str, given: int, says: int, place: int, limit: int) -> None:
    """In the child: runs the trial and sends what it announces and returns."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    # Where the parent is killed, nobody else ends it.
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    signal.alarm(limit + _ALONE_SECONDS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for fd in (given, says, place):
        os.set_inheritable(fd, False)
    module, _, name = trial.partition(":")
    function: Trial = getattr(importlib.import_module(module), name)
    with os.fdopen(given, "rb") as file:
        payload = file.read()

    def send(kind: str, text: str) -> None:
        os.write(says, json.dumps([kind, text]).encode() + b"\n")
        if kind == "part":
            signal.alarm(limit + _ALONE_SECONDS)

    send("result", function(payload, Reports(send, place)).decode())
    # As the program does: what is left is the system's to take back.
    sys.stdout.flush()
    os._exit(0)
