"""Programs under `mempool exec`, and the commands that look at them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.conftest import Done, settled
from standin.stand_in import StandIn, program_environment

SECONDS = 30
MEMPOOL = [sys.executable, "-P", "-m", "mempool_cli"]
PYTHON = [sys.executable, "-P"]


class World:
    """One machine, as the variables that make it, its runtime directory, and what a user types there."""

    def __init__(self, runtime: Path, machine: dict[str, str], standin: StandIn | None = None) -> None:
        self.runtime = runtime
        self.environment = program_environment() | machine | {"MEMPOOL_RUNTIME_DIR": str(runtime)}
        self._standin = standin

    def run(self, *command: str, **environment: str) -> Done:
        """A command to its end. Process ids and times in its output are PID and TIME."""
        done = subprocess.run(
            command, env=self.environment | environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        return Done(shell_status(done.returncode), settled(done.stdout), settled(done.stderr))

    def mempool(self, *words: str, **environment: str) -> Done:
        """`mempool WORDS` to its end."""
        return self.run(*MEMPOOL, *words, **environment)

    def python(self, code: str, *options: str, **environment: str) -> Done:
        """`mempool exec OPTIONS -- python -c CODE` to its end."""
        return self.mempool("exec", *options, "--", *PYTHON, "-c", code, **environment)

    @contextmanager
    def program(self, code: str, *options: str, **environment: str) -> Iterator[Program]:
        """`mempool exec --name train OPTIONS -- python -c CODE`, running; killed at the end if it still does."""
        command = ["exec", "--name", "train", *options, "--", *PYTHON, "-c", code]
        with self._running(self.start("mempool", *command, **environment)) as program:
            yield program

    @contextmanager
    def program_without_exec(self, code: str) -> Iterator[Program]:
        """`python -c CODE`, running; killed at the end if it still does."""
        with self._running(self.start(*PYTHON, "-c", code)) as program:
            yield program

    @contextmanager
    def _running(self, process: subprocess.Popen[str]) -> Iterator[Program]:
        with process:
            try:
                yield Program(process)
            finally:
                if process.poll() is None:
                    process.kill()

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """A command, running, with pipes to it; `mempool` is its first word or not."""
        words = [*MEMPOOL, *command[1:]] if command[0] == "mempool" else command
        return subprocess.Popen(
            words,
            env=self.environment | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def frozen_driver(self) -> Iterator[None]:
        """No driver call returns in here."""
        assert self._standin is not None
        with self._standin.frozen():
            yield

    def left(self) -> list[str]:
        """What is in the runtime directory."""
        return sorted(entry.name for entry in self.runtime.iterdir())

    def is_tidied(self) -> bool:
        """Whether nothing is in the runtime directory, or soon will not be: the watcher works after the program."""
        deadline = time.monotonic() + SECONDS
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.01)
        return not self.left()


class Program:
    """A running program that says lines and waits for lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def hears(self, line: str = "") -> None:
        """Gives it a line on its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def says(self) -> str:
        """The next line of its standard output, without the newline; empty at its end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def tells(self) -> str:
        """The next line of standard error, without the newline; empty at its end."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().rstrip("\n")

    def ends(self) -> Done:
        """Its status and the rest of its output, once it has ended; its standard input ends first."""
        out, err = self.process.communicate(timeout=SECONDS)
        return Done(shell_status(self.process.returncode), settled(out), settled(err))


def shell_status(code: int) -> int:
    """What a shell shows of a process that ended so: 128 + signal."""
    return code if code >= 0 else 128 - code
