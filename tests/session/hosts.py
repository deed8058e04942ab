"""What the session tests share: processes, raw sockets, and waiting without sleeping."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

import mempool_cli
from mempool_cli.driver import DriverSource, driver_source
from mempool_cli.errors import MempoolError, Problem
from mempool_cli.model import Answer, Event
from mempool_cli.requests import AnyRequest, OnEvent
from mempool_cli.session import lifecycle
from mempool_cli.session.environment import Environment
from mempool_cli.session.lease import Lease
from mempool_cli.session.protocol import HostState
from mempool_cli.session.server import HostRunner, Server

SECONDS = 20
PACKAGE = str(Path(mempool_cli.__file__).parent.parent)
SIM = driver_source("4")


def ignore(event: Event) -> None:
    """An `on_event` that does not care."""


def start(name: str = "default", sim: str = "4", idle_timeout: int = 60) -> int:
    """The pid of a new session."""
    status = lifecycle.start(name, driver_source(sim), idle_timeout=idle_timeout)
    assert status.started_now
    return status.session.pid


@contextmanager
def process_end(pid: int) -> Iterator[Callable[[], None]]:
    """A call that waits for a process to end, by a descriptor that was opened while it lived."""
    fd = os.pidfd_open(pid)

    def wait() -> None:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(SECONDS * 1000), f"process {pid} has not ended"
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)

    try:
        yield wait
    finally:
        os.close(fd)


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Kills a process, and waits until it is dead."""
    with process_end(pid) as wait:
        os.kill(pid, number)
        wait()


def python_command(body: str, user: int | None = None) -> list[str]:
    """An interpreter with a script that finds the package, `lifecycle` and a source SIM."""
    lines = ["import os, sys", f"sys.path.insert(0, {PACKAGE!r})", "from mempool_cli.driver import driver_source"]
    lines += ["from mempool_cli.session import lifecycle", "SIM = driver_source('4')"]
    if user is not None:
        lines += ["os.setgroups([])", f"os.setgid({user})", f"os.setuid({user})"]
    return [sys.executable, "-c", "\n".join([*lines, body])]


def python(body: str, *, user: int | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a script in another interpreter; with `user` it becomes that user after its imports."""
    return subprocess.run(python_command(body, user), capture_output=True, text=True, timeout=SECONDS)


def python_process(body: str, *, user: int | None = None) -> subprocess.Popen[str]:
    """The same, still running, with pipes to it and from it."""
    return subprocess.Popen(python_command(body, user), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def failure(call: Callable[[], object]) -> Problem:
    """The problem with which a call fails."""
    with pytest.raises(MempoolError) as caught:
        call()
    return caught.value.problem


def files(directory: Path) -> list[str]:
    """What is in a directory."""
    return sorted(entry.name for entry in directory.iterdir())


class Wire:
    """A raw connection to a host."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        self.socket.connect(os.fspath(path))

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends what the host takes."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def rest(self) -> bytes:
        """Everything until the host closes."""
        data = b""
        with suppress(ConnectionResetError):
            while chunk := self.socket.recv(1 << 16):
                data += chunk
        return data

    def line(self) -> bytes:
        """The next line."""
        data = b""
        while not data.endswith(b"\n"):
            byte = self.socket.recv(1)
            assert byte, f"closed after {data!r}"
            data += byte
        return data


class ScriptedRunner:
    """A runner that answers as a test says."""

    def __init__(self, answer: Callable[[AnyRequest, OnEvent], Answer]) -> None:
        self._answer = answer
        self.pools: tuple[str, ...] = ()
        self.problems: tuple[Problem, ...] = ()
        self.closed = 0

    def run(self, request: AnyRequest, on_event: OnEvent, *, trace: bool = False) -> Answer:
        return self._answer(request, on_event)

    def pool_names(self) -> tuple[str, ...]:
        return self.pools

    def close(self) -> tuple[Problem, ...]:
        self.closed += 1
        return self.problems


class Hooks:
    """Remembers what the server told."""

    def __init__(self) -> None:
        self.states: list[HostState] = []
        self.withdrawn = threading.Event()

    def changed(self, state: HostState) -> None:
        self.states.append(state)

    def withdraw(self) -> None:
        self.withdrawn.set()

    def complain(self, error: Exception) -> None:
        traceback.print_exception(error)


@contextmanager
def served(
    path: Path,
    runner: HostRunner,
    *,
    source: DriverSource = SIM,
    provisional: bool = False,
    idle_timeout: int = 0,
    first_use: float | None = None,
) -> Iterator[tuple[Server, Hooks, threading.Thread]]:
    """A server in a thread of this process, as in a program."""
    hooks = Hooks()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.fspath(path))
    listener.listen()
    lease = Lease("session", "default", idle_timeout, first_use=first_use)
    server = Server(
        listener,
        runner,
        lease,
        hooks,
        driver=source.digest,
        sim=source.sim,
        here=Environment.current,
        provisional=provisional,
    )
    with closing(server):
        thread = threading.Thread(target=server.serve)
        thread.start()
        yield server, hooks, thread
        server.request_stop()
        thread.join(SECONDS)
        assert not thread.is_alive()
