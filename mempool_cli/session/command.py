"""A command with a session of its own, which ends with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mempool_cli.driver import DriverSource
from mempool_cli.errors import MempoolError
from mempool_cli.model import Event
from mempool_cli.requests import OnEvent
from mempool_cli.session import foreground, lifecycle
from mempool_cli.session.directory import chosen_directory
from mempool_cli.session.files import RUNTIME_DIR


def run_with_session(
    command: Sequence[str], source: DriverSource, on_event: OnEvent, *, name: str | None = None
) -> int:
    """Runs `command` with a fresh session in MEMPOOL_SESSION, and stops that; the command's status, 128 + signal.

    As of a shell, 127 when the command is not found, 126 when it cannot be run; an event says why. `name` None: a
    name that no other session has. Signals are passed on. The session also ends when this process is killed.
    MempoolError `session-start` and the like, and, when the command itself was content, `session-died` or what else
    befell the session. Main thread only.
    """
    name = name or f"run-{os.urandom(4).hex()}"
    lifeline, ours = os.pipe()
    try:
        started = lifecycle.start(name, source, idle_timeout=0, lifeline=lifeline, on_event=on_event)
        if not started.started_now:
            raise MempoolError("session-start", f"session {name} runs already", hint="leave the name out")
        try:
            status = foreground.run(command, _environment(name, source), on_event)
        except BaseException:
            lifecycle.stop(name, source)
            raise
        return _stop(name, source, status, on_event)
    finally:
        os.close(ours)
        os.close(lifeline)


def _stop(name: str, source: DriverSource, status: int, on_event: OnEvent) -> int:
    try:
        stopped = lifecycle.stop(name, source)
    except MempoolError as error:
        # The command may have stopped its session itself.
        if error.problem.code == "no-session":
            return status
        if status == 0:
            raise
        on_event(Event("status", error.problem.message))
    else:
        for notice in stopped.warnings:
            on_event(Event("status", notice.message))
        problem = stopped.problem
        if problem and status == 0:
            raise MempoolError(problem.code, problem.message, hint=problem.hint, driver=problem.driver)
    return status


def _environment(name: str, source: DriverSource) -> Mapping[str, str]:
    """The command's: it finds the session and no other, also after a change of directory."""
    environment = {**os.environ, "MEMPOOL_SESSION": name}
    for variable in ("MEMPOOL_NO_SESSION", "MEMPOOL_SIM"):
        environment.pop(variable, None)
    if source.sim is not None:
        machine, *faults = source.sim.split(",")
        if "/" in machine or machine.endswith(".toml"):
            machine = str(Path(machine).absolute())
        environment["MEMPOOL_SIM"] = ",".join((machine, *faults))
    if environment.get(RUNTIME_DIR):
        environment[RUNTIME_DIR] = str(chosen_directory())
    return environment
