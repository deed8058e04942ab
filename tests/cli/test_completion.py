"""Completion: what a running session knows, in every place where it can stand; silence without one."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from .conftest import Mempool
from .documents import document
from .processes import COMMAND, SECONDS, command_directory, stopped

UUIDS = ["GPU-6090f7d1-e4dd-57e6-9768-669dad3214b8", "GPU-e60664c9-5fa7-55d3-b3e9-2383ca5faf7d"]
DEVICES = ["0", "1", "all", "peers", *UUIDS]
POOLS = ["default:0", "default:1", "train"]


Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(mempool: Mempool) -> Complete:
    """What fish would offer at the end of a line; the environment says which session."""

    def ask(line: str) -> list[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("_MEMPOOL_COMPLETE", "fish_complete")
            patch.setenv("COMP_WORDS", line)
            patch.setenv("COMP_CWORD", line.rpartition(" ")[2])
            done = mempool()
        assert (done.status, done.err) == (0, "")
        return [value.partition("\t")[0].partition(",")[2] for value in done.out.splitlines() if value]

    return ask


@pytest.fixture
def session(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> int:
    """The pid of a session with a pool."""
    monkeypatch.setenv("MEMPOOL_SIM", "2")
    assert mempool("create", "0", "--name", "train").status == 0
    pid: int = document(mempool("session", "status", "--format", "json"))["data"]["session"]["pid"]
    return pid


@pytest.mark.usefixtures("session")
def test_pools_and_devices(complete: Complete) -> None:
    assert complete("mempool show ") == POOLS
    assert complete("mempool show t") == ["train"]
    assert complete("mempool grant ") == POOLS
    assert complete("mempool grant 0 --to ") == DEVICES
    assert complete("mempool grant 0 --to 1 ") == DEVICES
    assert complete("mempool grant 0 --to 1 GPU-e") == [UUIDS[1]]
    assert complete("mempool grant 0 --to=") == DEVICES
    assert complete("mempool grant 0 --to 1,") == [f"1,{word}" for word in DEVICES]
    assert complete("mempool grant 0 --to 1,p") == ["1,peers"]
    assert complete("mempool grant --to 1 ") == DEVICES
    assert complete("mempool grant --to 1 -- ") == POOLS
    assert complete("mempool revoke train --from a") == ["all"]
    assert complete("mempool create 0 --to ") == DEVICES
    assert complete("mempool destroy train d") == ["default:0", "default:1"]


def test_a_session_by_its_options(mempool: Mempool, complete: Complete) -> None:
    assert mempool("--sim", "2", "--session", "other", "create", "0", "--name", "mine").status == 0
    assert complete("mempool --sim 2 --session other show m") == ["mine"]
    assert complete("mempool show --sim 2 --session other m") == ["mine"]
    assert complete("mempool --sim 2 show m") == []
    assert mempool("--sim", "2", "--session", "other", "session", "stop").status == 0


def test_without_a_session(mempool: Mempool, complete: Complete, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPOOL_SIM", "2")
    assert complete("mempool show ") == []
    assert complete("mempool grant 0 --to ") == []
    assert complete("mempool grant 0 --to 1 ") == []
    assert mempool("session", "list").out == "no session runs\n"
    monkeypatch.setenv("MEMPOOL_SIM", "nonsense")
    assert complete("mempool grant 0 --to ") == []


def test_a_session_that_hangs(session: int, complete: Complete) -> None:
    with stopped(session):
        started = time.monotonic()
        assert complete("mempool grant 0 --to ") == []
        assert time.monotonic() - started < SECONDS / 2


def test_words_that_need_no_session(complete: Complete) -> None:
    assert complete("mempool gr") == ["grant"]
    assert complete("mempool session st") == ["start", "status", "stop"]
    assert complete("mempool grant 0 --to 1 --o") == ["--only"]
    assert complete("mempool list --format ") == ["table", "json"]


def test_a_shell_that_is_not_known(runtime: Path) -> None:
    done = subprocess.run(COMMAND, env={**os.environ, "_MEMPOOL_COMPLETE": "tcsh_source"}, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o nosort -F _mempool_completion mempool"),
        ("zsh", "#compdef mempool"),
        ("fish", 'complete --no-files --command mempool --arguments "(_mempool_completion)";'),
    ],
)
def test_the_part_of_the_shell(runtime: Path, shell: str, line: str) -> None:
    environment = {**os.environ, "_MEMPOOL_COMPLETE": f"{shell}_source"}
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert line in done.stdout.splitlines()


def test_zsh_asks_and_gets_words_with_their_meaning(session: int) -> None:
    environment = {
        **os.environ,
        "_MEMPOOL_COMPLETE": "zsh_complete",
        "COMP_WORDS": "mempool grant 0 --to ",
        "COMP_CWORD": "4",
    }
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=SECONDS)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["plain", "0", "NVIDIA H200"]
    assert lines[1::3] == DEVICES


class Bash:
    """An interactive bash, and its terminal."""

    def __init__(self, directory: Path) -> None:
        self._ours, terminal = pty.openpty()
        path = f"{command_directory(directory)}{os.pathsep}{os.environ['PATH']}"
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            env={**os.environ, "PATH": path, "TERM": "dumb", "PS1": "", "INPUTRC": os.devnull},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self.type('eval "$(_MEMPOOL_COMPLETE=bash_source mempool)"')

    def type(self, line: str) -> str:
        """Types a line; what the terminal shows of it and of its output."""
        os.write(self._ours, f"{line}; echo status:$?\n".encode())
        shown = ""
        while not (end := re.search(r"status:\d+", shown)):
            assert select.select([self._ours], [], [], SECONDS)[0], shown
            shown += os.read(self._ours, 1 << 16).decode()
        return shown[: end.end()]

    def close(self) -> None:
        os.write(self._ours, b"exit\n")
        with suppress(OSError):  # EIO: bash is gone
            while os.read(self._ours, 1 << 16):
                pass
        os.close(self._ours)
        self._process.wait(SECONDS)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not on PATH")
def test_tab_in_bash(mempool: Mempool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMPOOL_SIM", "1")
    assert mempool("create", "0", "--name", "train").status == 0
    with closing(Bash(tmp_path)) as bash:
        assert "destroyed pool train" in bash.type("mempool des\ttr\t")
        # The colon is where bash breaks words.
        assert "access now: owner 0" in bash.type("mempool grant default:\t--to al\t")
        assert "pool default:0: nothing to do" in bash.type("mempool revoke d\t--from=a\t")
        assert "pool default:0: nothing to do" in bash.type("true | mempool grant 0 --to 0,p\t")


@pytest.mark.usefixtures("session")
def test_places_machines_and_sessions(complete: Complete) -> None:
    assert complete("mempool create ") == ["0", "1", *UUIDS, "host", "numa:0"]
    assert complete("mempool create h") == ["host"]
    assert complete("mempool create --to ") == DEVICES
    assert complete("mempool --session ") == ["default"]
    assert complete("mempool --session x") == []
    assert complete("mempool show 0 --sim p") == ["pcie-4"]


def test_places_need_no_session(complete: Complete) -> None:
    assert complete("mempool --sim 2 create ") == ["host", "numa:0"]
    assert complete("mempool --sim 2 --session ") == []
