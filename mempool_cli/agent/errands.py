"""What `mempool exec` orders beforehand: grants once CUDA is initialised, and the last matrix."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from mempool_cli.agent.door import Door
from mempool_cli.agent.readiness import NOT_INITIALISED, seems_initialised
from mempool_cli.model import AccessChange, Answer
from mempool_cli.requests import AnyRequest, Grant, OnEvent, Probe
from mempool_cli.whole_file import write_whole
from mempool_cli.wording import device_list

_POLL_SECONDS = 0.01
_BUSY_SHARE = 0.02
_LONGEST_SECONDS = 0.1


class OpenedRunner(Protocol):
    """A runner that knows whether CUDA is initialised."""

    @property
    def opened(self) -> bool:
        """Whether it is."""

    def run(self, request: AnyRequest, on_event: OnEvent, *, trace: bool = False) -> Answer:
        """As requests.Runner."""


class Errands:
    """The orders of one agent, done in its server's thread."""

    def __init__(self, door: Door, runner: OpenedRunner) -> None:
        self._door = door
        self._runner = runner
        self._grants = list(door.orders.grants)

    def tick(self) -> float | None:
        """Makes the grants if CUDA is initialised; seconds until it wants to be called again, None when never.

        Until then it looks at this process's open and mapped files, which takes a fiftieth of a processor's time.
        """
        if not self._grants:
            return None
        begun = time.thread_time()
        with suppress(OSError):  # no descriptor is left at this moment
            if (self._runner.opened or seems_initialised()) and self._granted():
                return None
        return min(_LONGEST_SECONDS, max(_POLL_SECONDS, (time.thread_time() - begun) / _BUSY_SHARE))

    def _granted(self) -> bool:
        """Makes the grants that are left and tells of each; false when CUDA is not initialised after all."""
        while self._grants:
            pool, _, devices = self._grants[0].partition(":")
            answer = self._runner.run(Grant(pool=pool, to=tuple(devices.split(","))), lambda event: None)
            if _too_early(answer):
                return False
            self._door.orders.report("granted")
            self._door.tell(_told(self._grants.pop(0), answer))
        return True

    def finish(self) -> None:
        """At the end: makes the grants that there was no time for, and writes the access matrix as it is now.

        What cannot be done since CUDA was never initialised is for `exec` to tell, which knows the other processes.
        """
        if not self._granted():
            self._door.orders.report("too early")
        if self._door.orders.matrix_file:
            self._leave_matrix(Path(self._door.orders.matrix_file))

    def _leave_matrix(self, path: Path) -> None:
        orders, door = self._door.orders, self._door
        if orders.in_child or f"matrix {path}" in (orders.reports() or ()):
            path = path.with_name(f"{path.stem}.{os.getpid()}{path.suffix}")
        answer = self._runner.run(Probe(), lambda event: None)
        if _too_early(answer):
            orders.report("too early")
            return
        if answer.result is None:
            assert answer.problem is not None
            orders.report("no matrix")
            door.tell(f"{path} was not written: {answer.problem.message}")
            return
        try:
            write_whole(path, _worded(answer, orders.matrix_format))
            orders.report(f"matrix {path}")
        except OSError as error:
            orders.report("no matrix")
            door.tell(f"{path} was not written: {error.strerror}")


def _too_early(answer: Answer) -> bool:
    return answer.failure is not None and answer.failure.code == NOT_INITIALISED


def _told(order: str, answer: Answer) -> str:
    """What became of a grant, in words."""
    problem, result = answer.problem, answer.result
    if problem:
        driver = f" ({problem.driver.call}: {problem.driver.name})" if problem.driver else ""
        return f"--grant {order}: not done: {problem.message}{driver} [{problem.code}]"
    assert isinstance(result, AccessChange)
    granted = f"access granted to {device_list(result.granted)}" if result.granted else ""
    already = f"{device_list(result.unchanged)} had access" if result.unchanged else ""
    return f"pool {result.pool.name}: {'; '.join(filter(None, (granted, already))) or 'nothing to do'}"


def _worded(answer: Answer, form: str) -> str:
    from mempool_cli.render import plain_text
    from mempool_cli.render.document import document

    return document("probe", answer) if form == "json" else plain_text(answer, matrix=True)
