from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

import mempool_cli
from mempool_cli.__main__ import run

_SECONDS = 30


class Done(NamedTuple):
    """What a user sees of a command: exit status, stdout, stderr; pids as PID and times as TIME."""

    status: int
    out: str
    err: str


def settled(text: str) -> str:
    """The text without what differs from run to run, and from one machine to a slower one."""
    text = re.sub(r"^waiting for .*\.\.\.\n", "", text, flags=re.MULTILINE)  # on a busy machine
    text = re.sub(r"\bpid \d+", "pid PID", text)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "TIME", text)


class Mempool(Protocol):
    """Runs one command line in this process."""

    def __call__(self, *arguments: str) -> Done: ...


class MempoolProcess(Protocol):
    """Runs one command line as a process of its own, as a shell would; keywords go to subprocess.run."""

    def __call__(self, *arguments: str, **options: Any) -> Done: ...


@pytest.fixture(autouse=True)
def this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other interpreters run this checkout, whatever is installed."""
    monkeypatch.setenv("PYTHONPATH", str(Path(mempool_cli.__file__).parents[1]))


@pytest.fixture
def mempool(runtime: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Mempool]:
    """The command line, quick: no new interpreter. Sessions that it starts are real processes."""

    def call(*arguments: str) -> Done:
        capsys.readouterr()
        status = run(arguments)
        out, err = capsys.readouterr()
        return Done(status, settled(out), settled(err))

    yield call
    call("session", "stop")
    call("--sim", "1", "session", "stop")


@pytest.fixture
def session(mempool: Mempool) -> int:
    """The pid of a session."""
    pid: int = json.loads(mempool("--sim", "2", "--format", "json", "session", "start").out)["data"]["session"]["pid"]
    return pid


@pytest.fixture
def mempool_process(runtime: Path) -> MempoolProcess:
    """The command line as users run it."""

    def call(*arguments: str, **options: Any) -> Done:
        command = [sys.executable, "-P", "-m", "mempool_cli", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL, check=False, **options
        )
        return Done(done.returncode, settled(done.stdout), settled(done.stderr))

    return call
