"""`session run`: a command with a session of its own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from mempool_cli.driver import driver_source
from mempool_cli.model import Event
from mempool_cli.session import lifecycle
from mempool_cli.session.command import run_with_session

from .hosts import PACKAGE, SIM, failure, files, ignore, process_end, python_process

PRELUDE = f"""
import os, sys, signal
sys.path.insert(0, {PACKAGE!r})
from mempool_cli.driver import driver_source
from mempool_cli.session import lifecycle
name, source = os.environ["MEMPOOL_SESSION"], driver_source(os.environ.get("MEMPOOL_SIM"))
"""


def run(script: str, sim: str = "4", name: str | None = None) -> int:
    return run_with_session([sys.executable, "-c", PRELUDE + script], driver_source(sim), ignore, name=name)


def test_the_command_finds_its_session(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPOOL_NO_SESSION", "1")
    (tmp_path / "four.toml").write_text("[[device]]\ncount = 4\n")
    monkeypatch.chdir(tmp_path)
    script = "assert lifecycle.find(name, source); assert 'MEMPOOL_NO_SESSION' not in os.environ; sys.exit(7)"
    assert run(script) == 7
    assert run(f"assert name == 'mine'; os.chdir('/'); {script}", sim="./four.toml", name="mine") == 7
    monkeypatch.chdir(runtime.parent)
    monkeypatch.setenv("MEMPOOL_RUNTIME_DIR", runtime.name)
    assert run(f"os.chdir('/'); {script}") == 7
    assert files(runtime) == []


def test_pools_that_could_not_be_destroyed(runtime: Path, tmp_path: Path) -> None:
    spec = tmp_path / "four.toml"
    spec.write_text('[[device]]\ncount = 4\n[[failure]]\ncall = "cuMemPoolDestroy"\ncode = 999\n')
    create = "from mempool_cli.requests import Create\n"
    create += "lifecycle.find(name, source).run(Create(location='0'), lambda event: None);"
    problem = failure(lambda: run(create, sim=str(spec)))
    assert (problem.code, problem.message) == (
        "driver-refused",
        "pool pool-1 could not be destroyed; it ended with the process",
    )
    assert run(f"{create} sys.exit(3)", sim=str(spec)) == 3


def test_signals_of_the_command(runtime: Path) -> None:
    assert run("os.kill(os.getpid(), signal.SIGKILL)") == 137
    assert run("assert not signal.pthread_sigmask(signal.SIG_BLOCK, []); signal.raise_signal(signal.SIGTERM)") == 143


def test_signals_are_passed_on(runtime: Path) -> None:
    script = """
from mempool_cli.session.command import run_with_session
command = [sys.executable, "-c", "import signal; print('ready', flush=True); signal.pause()"]
sys.exit(run_with_session(command, SIM, lambda event: None))
"""
    with python_process(script) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
    assert files(runtime) == []


def test_the_session_ends_when_the_runner_is_killed(runtime: Path) -> None:
    script = """
from mempool_cli.session.command import run_with_session
command = [sys.executable, "-c", "import signal; print('ready', flush=True); signal.pause()"]
run_with_session(command, SIM, lambda event: None, name="mine")
"""
    with python_process(script) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        with process_end(lifecycle.status("mine", SIM).session.pid) as wait:
            process.kill()
            wait()
    assert files(runtime) == []


@pytest.mark.parametrize(
    ("command", "status", "why"),
    [("nosuchcmd", 127, "No such file or directory"), ("/", 126, "Permission denied"), ("", 127, "No such file or")],
)
def test_a_command_that_cannot_be_run(runtime: Path, command: str, status: int, why: str) -> None:
    """As `env` and shells answer."""
    events: list[Event] = []
    assert run_with_session([command], SIM, events.append) == status
    assert events[0].text.startswith(f"error: {command} cannot be run: {why}")
    assert files(runtime) == []


def test_a_name_that_is_taken(runtime: Path) -> None:
    lifecycle.start("mine", SIM)
    assert failure(lambda: run("", name="mine")).code == "session-start"
    assert lifecycle.find("mine", SIM)


def test_a_session_that_the_command_stopped(runtime: Path) -> None:
    assert run("lifecycle.stop(name, source)") == 0


def test_a_session_that_died(runtime: Path) -> None:
    kill = "pid = lifecycle.status(name, source).session.pid; os.kill(pid, signal.SIGKILL);"
    assert failure(lambda: run(kill)).code == "session-died"
    events: list[Event] = []
    command = [sys.executable, "-c", f"{PRELUDE}{kill} sys.exit(3)"]
    assert run_with_session(command, SIM, events.append) == 3
    assert "died" in events[0].text
    assert os.environ.get("MEMPOOL_SESSION") is None
