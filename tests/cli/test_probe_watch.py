"""`mempool probe --watch`: what changes, as it changes, and every way in which that ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import Mempool, settled
from .processes import COMMAND, SECONDS, read_terminal

FIRST = """\
SIMULATED machine 3: no hardware was asked
pool       kind             on  access
default:0  default,current  0   owner 0; none 1-2
"""
SEEN = "\nas session default (pid PID) sees it; other processes have pools of their own\n"
SIM = ("--sim", "3")


@pytest.fixture
def session(mempool: Mempool) -> int:
    """The pid of a session."""
    done = mempool(*SIM, "--format", "json", "session", "start")
    return int(json.loads(done.out)["data"]["session"]["pid"])


@contextmanager
def watching(*words: str, stdout: int = subprocess.PIPE, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A watch in a process of its own, killed at the end if it still runs."""
    with subprocess.Popen(
        [*COMMAND, *SIM, "probe", *words],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        process_group=0,  # not an orphaned one, in which Ctrl-Z stops nothing
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return settled(process.stdout.readline().decode())


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, settled((out or b"").decode()), settled(err.decode())


def test_a_pipe_gets_the_access_and_a_line_a_change(mempool: Mempool, session: int) -> None:
    with watching("0", "--watch", "0.1") as process:
        assert "".join(line(process) for _ in range(5)) == FIRST + SEEN
        mempool(*SIM, "grant", "0", "--to", "1", "2")
        assert [line(process), line(process)] == [
            "default:0: device 1 none -> RW\n",
            "default:0: device 2 none -> RW\n",
        ]
        mempool(*SIM, "revoke", "0", "--from", "1")
        assert line(process) == "default:0: device 1 RW -> none\n"
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, "", "")


def test_pools_come_and_go(mempool: Mempool, session: int) -> None:
    with watching("--matrix", "--watch", "0.1") as process:
        assert line(process) == "SIMULATED machine 3: no hardware was asked\n"
        while not line(process).startswith("as session"):
            pass
        mempool(*SIM, "create", "1", "--name", "train", "--to", "0")
        assert line(process) == "train: new on device 1: owner 1; RW 0; none 2\n"
        mempool(*SIM, "set-current", "train")
        assert [line(process), line(process)] == [
            "default:1: default,current -> default\n",
            "train: created -> current,created\n",
        ]
        mempool(*SIM, "destroy", "train")
        assert [line(process), line(process)] == ["train: gone\n", "default:1: default -> default,current\n"]


def test_json_is_a_document_when_something_changed(mempool: Mempool, session: int) -> None:
    with watching("0", "--watch", "0.1", "--format", "json") as process:
        before = json.loads(line(process))
        mempool(*SIM, "grant", "0", "--to", "2")
        now = json.loads(line(process))
        process.send_signal(signal.SIGINT)
        status, out, err = ended(process)
    assert [cell["access"] for cell in before["data"]["rows"][0]["cells"]] == ["rw", "none", "none"]
    assert [cell["access"] for cell in now["data"]["rows"][0]["cells"]] == ["rw", "none", "rw"]
    last = json.loads(out)
    assert (status, err, last["command"], last["error"]["code"]) == (130, "", "probe", "interrupted")


@contextmanager
def on_terminal(*words: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A watch on a terminal of 80 columns, and the terminal's other end."""
    ours, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (12, 80))
    try:
        with watching(*words, stdout=terminal, **{"TERM": "xterm", **environment}) as process:
            os.close(terminal)
            yield process, ours
    finally:
        os.close(ours)


def shown(ours: int, until: str) -> str:
    data = b""
    while until.encode() not in data:
        data += os.read(ours, 1 << 16)
    return settled(data.decode().replace("\r\n", "\n"))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_terminal_is_redrawn_and_left_as_it_was(
    mempool: Mempool, session: int, number: signal.Signals, status: int
) -> None:
    with on_terminal("0", "--watch", "0.1", "--color", "never") as (process, ours):
        assert shown(ours, "their own") == f"\x1b[?1049h\x1b[H\x1b[?25l\x1b[H\x1b[2J{FIRST}{SEEN}"[:-1]
        mempool(*SIM, "grant", "0", "--to", "2")
        drawn = shown(ours, "none -> RW")
        assert drawn.startswith("\x1b[H\x1b[2JSIMULATED machine 3: no hardware was asked\n")
        assert "default:0  default,current  0   owner 0; RW 2; none 1\n" in drawn
        assert drawn.endswith("  default:0: device 2 none -> RW")
        process.send_signal(number)
        last = settled(read_terminal(ours))
        assert last.startswith("\x1b[?1049l\x1b[?25hSIMULATED machine 3: no hardware was asked\n")
        assert last.endswith("  default:0: device 2 none -> RW\n")
        assert ended(process) == (status, "", "")


def test_ctrl_z_gives_the_terminal_back(session: int) -> None:
    with on_terminal("0", "--watch", "3600", "--color", "never") as (process, ours):
        first = shown(ours, "their own")
        process.send_signal(signal.SIGTSTP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert shown(ours, "\x1b[?25h") == "\x1b[?1049l\x1b[?25h"
        process.send_signal(signal.SIGCONT)
        assert shown(ours, "their own") == first
        process.send_signal(signal.SIGINT)
        assert settled(read_terminal(ours)) == f"\x1b[?1049l\x1b[?25h{FIRST}{SEEN}"
        assert ended(process) == (130, "", "")


def test_a_low_terminal_says_what_it_lacks(mempool: Mempool, session: int) -> None:
    with on_terminal("--matrix", "--watch") as (_, ours):
        drawn = shown(ours, "too low")
    assert drawn.count("\n") == 11
    assert drawn.endswith("\n... 4 more lines: the terminal is too low")


def test_a_dumb_terminal_gets_lines(mempool: Mempool, session: int) -> None:
    with on_terminal("0", "--watch", "0.1", TERM="dumb") as (_, ours):
        assert shown(ours, "their own\r\n") == FIRST + SEEN
        mempool(*SIM, "grant", "0", "--to", "2")
        assert shown(ours, "RW\r\n") == "default:0: device 2 none -> RW\n"


def test_a_session_that_ends_is_told(mempool: Mempool, session: int) -> None:
    with watching("0", "--watch", "0.1") as process:
        line(process)
        mempool(*SIM, "session", "stop")
        status, _, err = ended(process)
    told = "error: session default has ended [no-session]\n  try: `mempool --sim 3 session list`\n"
    assert (status, err) == (5, told)


def test_a_session_that_dies_is_told(mempool: Mempool, session: int) -> None:
    with watching("0", "--watch", "0.1") as process:
        line(process)
        os.kill(session, signal.SIGKILL)
        os.waitpid(session, 0)
        status, _, err = ended(process)
    assert (status, "[session-died]" in err) == (5, True)


def test_another_session_of_that_name_is_not_taken_for_it(mempool: Mempool, session: int) -> None:
    with watching("0", "--watch", "0.1") as process:
        for _ in range(5):
            line(process)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        mempool(*SIM, "session", "stop")
        mempool(*SIM, "session", "start")
        process.send_signal(signal.SIGCONT)
        assert ended(process) == (
            5,
            "",
            "error: session default (pid PID) has ended; another of that name runs (pid PID) [no-session]\n"
            "  try: watch again\n",
        )


def test_a_pool_that_goes_ends_it(mempool: Mempool, session: int) -> None:
    mempool(*SIM, "create", "0", "--name", "train")
    with watching("train", "--watch", "0.1") as process:
        line(process)
        mempool(*SIM, "destroy", "train")
        status, _, err = ended(process)
    assert (status, err.count("[unknown-pool]")) == (2, 1)


def test_a_reader_that_goes_away_ends_it_at_once(session: int) -> None:
    with watching("0", "--watch", "3600") as process:
        line(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(SECONDS) == 141


NO_TIME = "error: Invalid value for '--watch': '{}' is no time; write seconds, from 0.1 to 86400 [usage]"


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ("--watch", 5, "error: no simulated session 'default' runs [no-session]"),
        ("--watch --no-session", 2, "error: --watch is about a session or a program: --no-session has neither [usage]"),
        ("--watch --save x.svg", 2, "error: --save or --watch [usage]"),
        ("--watch 0.05", 2, NO_TIME.format("0.05")),
        ("--watch train", 2, NO_TIME.format("train")),
    ],
)
def test_what_cannot_be_watched(mempool: Mempool, runtime: Path, words: str, status: int, told: str) -> None:
    done = mempool(*SIM, "probe", *words.split())
    assert (done.status, done.out, done.err.splitlines()[0]) == (status, "", told)
    assert list(runtime.iterdir()) == []


def test_an_answer_without_a_matrix_is_the_answer(mempool: Mempool, session: int) -> None:
    done = mempool(*SIM, "probe", "nonsense", "--watch")
    assert (done.status, done.out) == (2, "")
    assert "[unknown-pool]" in done.err
