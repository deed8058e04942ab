"""What `mempool exec` orders beforehand: grants once CUDA is initialised, and the last matrix."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

from mempool_cli.agent.door import Door
from mempool_cli.agent.readiness import NOT_INITIALISED, seems_initialised
from mempool_cli.model import AccessChange, Answer
from mempool_cli.requests import AnyRequest, Grant, OnEvent, Probe
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
        if self._runner.opened or seems_initialised():
            while self._grants:
                answer = self._grant(self._grants[0])
                if answer.problem and answer.problem.code == NOT_INITIALISED:
                    break
                self._door.tell(_told(self._grants.pop(0), answer))
            else:
                return None
        return min(_LONGEST_SECONDS, max(_POLL_SECONDS, (time.thread_time() - begun) / _BUSY_SHARE))

    def _grant(self, order: str) -> Answer:
        pool, _, devices = order.partition(":")
        return self._runner.run(Grant(pool=pool, to=tuple(devices.split(","))), lambda event: None)

    def finish(self) -> None:
        """At the end: says which grants were never made, and writes the access matrix as it is now, or says why not."""
        for order in self._grants:
            self._door.tell(f"--grant {order}: not done: the program has not initialised CUDA")
        file = self._door.orders.matrix_file
        if file:
            self._leave_matrix(file)

    def _leave_matrix(self, file: str) -> None:
        path = Path(file)
        if self._door.name != self._door.orders.name:
            path = path.with_name(f"{path.stem}.{os.getpid()}{path.suffix}")
        answer = self._runner.run(Probe(), lambda event: None)
        self._door.orders.report("matrix")
        if answer.result is None:
            why = answer.problem.message if answer.problem else "no answer"
            self._door.tell(f"{path} was not written: {why}")
            return
        try:
            _write(path, _worded(answer, self._door.orders.matrix_format))
        except OSError as error:
            self._door.tell(f"{path} was not written: {error.strerror}")


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


def _write(path: Path, text: str) -> None:
    """Whole or not at all: what was there stays until the new is complete."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.write_text(text)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
