"""Runs the trials of many tasks side by side, so that no two that share a device overlap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from mempool_cli.child import Child, Outcome, not_started, wait
from mempool_cli.exit_status import Terminated

R = TypeVar("R")

_START_SECONDS = 60.0


class Work(NamedTuple):
    """One trial in a child, as child.run_trial takes it."""

    trial: str
    payload: bytes
    limit: float


Steps = Generator[Work, Outcome, R]
"""The trials of a task: each is run when it is yielded, and its outcome is sent back. Returns the result."""


@dataclass(frozen=True, eq=False)
class Task(Generic[R]):
    """Trials that need these devices. `given_up`: the result when process `pid`, which does not end, holds one."""

    name: str
    devices: frozenset[int]
    steps: Steps[R]
    given_up: Callable[[int], R]


def side_by_side(tasks: Collection[Task[R]], jobs: int) -> Generator[R, None, None]:
    """The results, each as soon as its task is done; at most `jobs` tasks at once. No child outlives the iterator.

    What is raised in here, an interrupt, has a note for each task that runs: what it is doing.
    """
    with ExitStack() as stack:
        going = _Going(stack, tasks, jobs)
        try:
            while going.waiting or going.running:
                yield from going.start()
                yield from going.hear()
        except (KeyboardInterrupt, Terminated) as error:
            for child, task in going.running.items():
                error.add_note(f"{task.name} was in {child.doing or 'its start'}")
            raise


class _Going(Generic[R]):
    """The tasks that wait, those that run, and which process that does not end holds which device."""

    def __init__(self, stack: ExitStack, tasks: Collection[Task[R]], jobs: int) -> None:
        self._stack = stack
        self._jobs = jobs
        self._held: dict[int, int] = {}
        self.waiting = list(tasks)
        self.running: dict[Child, Task[R]] = {}

    def start(self) -> Iterator[R]:
        """Starts what can be; the results of tasks that cannot be, for good."""
        for task in list(self.waiting):
            holders = [self._held[device] for device in task.devices if device in self._held]
            busy = any(task.devices & other.devices for other in self.running.values())
            if holders:
                self.waiting.remove(task)
                yield task.given_up(holders[0])
            elif len(self.running) < self._jobs and not busy:
                self.waiting.remove(task)
                yield from self._go_on(task, None)

    def hear(self) -> Iterator[R]:
        """Waits for children, and goes on with the tasks of those that are over; the results of those that are done."""
        if self.running:
            wait(list(self.running))
        for child in [child for child in self.running if child.over]:
            task, outcome = self.running.pop(child), child.end()
            if outcome.remains:
                self._held |= dict.fromkeys(task.devices, outcome.remains)
            yield from self._go_on(task, outcome)

    def _go_on(self, task: Task[R], outcome: Outcome | None) -> Iterator[R]:
        child = _next(self._stack, task, outcome)
        if isinstance(child, Child):
            self.running[child] = task
        else:
            yield child[0]


def _next(stack: ExitStack, task: Task[R], outcome: Outcome | None) -> Child | tuple[R]:
    """The child of the task's next trial, or its result when there is none."""
    try:
        while True:
            work = next(task.steps) if outcome is None else task.steps.send(outcome)
            try:
                return Child(stack, work.trial, work.payload, limit=work.limit, start=_START_SECONDS)
            except OSError as error:
                outcome = not_started(error)
    except StopIteration as done:
        return (done.value,)
