"""Commands as processes whose streams, terminal or session are not the ordinary ones."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .conftest import Done, settled

COMMAND = [sys.executable, "-P", "-m", "mempool_cli"]
SECONDS = 30


def command_directory(directory: Path) -> Path:
    """`directory`, with a `mempool` in it for a shell's PATH."""
    program = directory / "mempool"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m mempool_cli "$@"\n')
    program.chmod(0o755)
    return directory


def shell(script: str, directory: Path) -> Done:
    """Runs bash with `mempool` on its PATH."""
    path = f"{command_directory(directory)}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=SECONDS
    )
    return Done(done.returncode, settled(done.stdout), settled(done.stderr))


def on_terminal(columns: int, *arguments: str, **environment: str) -> Done:
    """One command whose stdout is a terminal of that width."""
    ours, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, columns))
    with subprocess.Popen(
        [*COMMAND, *arguments],
        env={**os.environ, "TERM": "xterm", **environment},
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(terminal)
        shown = read_terminal(ours)
        assert process.stderr is not None
        err = process.stderr.read().decode()
    os.close(ours)
    return Done(process.returncode, settled(shown), settled(err))


def read_terminal(fd: int) -> str:
    """What was written to the terminal until its last writer closed it."""
    data = b""
    while True:
        try:
            chunk = os.read(fd, 1 << 16)
        except OSError:  # EIO: Linux's word for its end
            chunk = b""
        if not chunk:
            return data.decode().replace("\r\n", "\n")
        data += chunk


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A session that hangs; it must be this process's child."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def wait_until(true: Callable[[], bool]) -> None:
    """Looks again and again; what does not become true in time fails the test."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"still not so after {SECONDS} s"
        time.sleep(0.005)


def interrupted(number: signal.Signals, *words: str, first: str, at: Callable[[list[int]], bool] = bool) -> Done:
    """A command that gets the signal when its stderr has begun with the line `first` and `at` holds.

    `at` gets the pids of its children. None of them is left, nor is it.
    """
    mark = os.urandom(8).hex()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "MEMPOOL_TEST_MARK": mark}
    with subprocess.Popen(
        [*COMMAND, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == first
            wait_until(lambda: at([pid for pid in with_mark(mark) if pid != process.pid]))
            process.send_signal(number)
            out, err = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert with_mark(mark) == []
    return Done(process.returncode, out, err)


def asleep(pids: list[int]) -> bool:
    """Whether there are such processes, and they have waited for something for a while, as one that hangs does."""

    def look() -> list[list[str]]:
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split() for pid in pids]
        return [[state, *times[10:12]] for state, *times in stats]

    before = look()
    time.sleep(0.2)
    return bool(before) and all(state == "S" for state, *_ in before) and look() == before


def with_mark(mark: str) -> list[int]:
    """The processes that have MEMPOOL_TEST_MARK=`mark` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if f"MEMPOOL_TEST_MARK={mark}\0".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found
