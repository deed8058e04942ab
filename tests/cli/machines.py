"""Machines that fail as a test wants, a runner on any driver, and the lines that most answers end with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from mempool_cli.driver import DriverSource
from mempool_cli.driver.guard import GuardedDriver
from mempool_cli.driver.port import Driver
from mempool_cli.driver.sim.machine import Machine, Process
from mempool_cli.driver.sim.profile import parse_spec
from mempool_cli.model import Answer, Where
from mempool_cli.operations import LocalRunner
from mempool_cli.render import Output, emit
from mempool_cli.requests import AnyRequest

HELD = "affects only session default (pid PID), held until TIME unless used; no other process\n"
AFFECTED = "affects only session default (pid PID); no other process\n"
SEEN = "as session default (pid PID) sees it; other processes have pools of their own\n"
ENDED = "affected only this process (pid PID), which ends now with all its pools; no other process\n"
FRESH = (
    "no session was asked: in a new process pools start ungranted\na program's pools are its own: see `mempool exec`\n"
)
STARTED = "started simulated session default (pid PID)\n"
FOUR = "[[device]]\ncount = 4\n[p2p]\nall = true\n"


def label(spec: str) -> str:
    """The line that says that no hardware was asked."""
    return f"SIMULATED machine {spec}: no hardware was asked\n"


def machine(directory: Path, *parts: str) -> str:
    """The SPEC of a machine file with these parts."""
    file = directory / "machine.toml"
    file.write_text("\n".join(parts))
    return str(file)


def failure(call: str, code: str = "CUDA_ERROR_UNKNOWN", **limits: int) -> str:
    """A `[[failure]]` of a machine file."""
    return "\n".join(
        ["[[failure]]", f'call = "{call}"', f'code = "{code}"', *(f"{name} = {n}" for name, n in limits.items())]
    )


def calls(err: str, name: str) -> list[str]:
    """The traced calls of this name, without their durations."""
    return re.findall(rf"^({name}\(.*?) <\d+ us>$", err, re.MULTILINE)


def process(spec: str = "4") -> Process:
    """A process on a simulated machine, before its cuInit."""
    return Machine(parse_spec(spec)).process()


class Ready(DriverSource):
    """A source of one driver that a test holds too."""

    def __init__(self, driver: Any, sim: str = "4") -> None:
        super().__init__(sim, None)
        self._driver = driver

    def open(self) -> Driver:
        """The same driver every time."""
        return cast(Driver, self._driver)


def runner(driver: Any) -> LocalRunner:
    """A runner in this process; what it does with a dead handle is an error."""
    where = Where(kind="local", pid=4242)
    return LocalRunner(Ready(GuardedDriver(driver)), lambda: where)


def ask(asked: LocalRunner, request: AnyRequest, *, trace: list[str] | None = None) -> Answer:
    """Its answer; the traced calls go to `trace`."""
    lines = [] if trace is None else trace
    return asked.run(request, lambda event: lines.append(event.text), trace=trace is not None)


def show(answer: Answer, *, matrix: bool = False) -> int:
    """Writes an answer as the command line does, and returns the exit status."""
    return emit("test", answer, output=Output(matrix=matrix))
