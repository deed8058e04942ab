"""Ctrl-C, SIGTERM and a limit, while a session does not answer."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import Mempool
from .documents import failure
from .processes import COMMAND, SECONDS, stopped

BUSY = """\
error: session default (pid PID) does not answer: it works for another command, or hangs [session-busy]
  try: wait and try again, or `mempool --sim 2 session stop --kill`
"""


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "number", "status"),
    [
        (("probe",), signal.SIGINT, 130),
        (("grant", "0", "--to", "1"), signal.SIGTERM, 143),
        (("session", "stop"), signal.SIGINT, 130),
    ],
)
def test_a_command_that_waits(
    mempool: Mempool, runtime: Path, session: int, arguments: tuple[str, ...], number: signal.Signals, status: int
) -> None:
    before = files(runtime)
    command = [*COMMAND, "--sim", "2", *arguments]
    with stopped(session), subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"waiting for session default...\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err) == (status, b"", b"")
    assert files(runtime) == before
    assert mempool("--sim", "2", "probe", "0").out.splitlines()[2] == "default:0  default,current  0   owner 0; none 1"


@pytest.mark.parametrize(
    "arguments",
    [
        ("probe",),
        ("grant", "0", "--to", "1"),
        ("revoke", "0", "--from", "1"),
        ("session", "status"),
        ("session", "stop"),
    ],
    ids=" ".join,
)
def test_a_limit(mempool: Mempool, session: int, arguments: tuple[str, ...]) -> None:
    with stopped(session):
        assert mempool("--sim", "2", "--timeout", "0.2", *arguments) == (5, "", BUSY)
        assert mempool("--sim", "2", *arguments, "--timeout", "0.2").status == 5


def test_a_limit_from_the_environment(mempool: Mempool, monkeypatch: pytest.MonkeyPatch, session: int) -> None:
    monkeypatch.setenv("MEMPOOL_TIMEOUT", "0.2")
    with stopped(session):
        status, command, code, _ = failure(mempool("--sim", "2", "--format", "json", "probe"))
        assert (status, command, code) == (5, "probe", "session-busy")


def test_the_hint_helps(mempool: Mempool, session: int) -> None:
    with stopped(session):
        killed = (0, "simulated session default (pid PID) was killed\n", "")
        assert mempool("--sim", "2", "session", "stop", "--kill") == killed
        assert mempool("--sim", "2", "session", "list").out == "no session runs\n"
