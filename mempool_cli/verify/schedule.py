"""Runs the trials of many tasks side by side, so that no two that share a device overlap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from mempool_cli.child import Child, Outcome, wait

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

    devices: frozenset[int]
    steps: Steps[R]
    given_up: Callable[[int], R]


def side_by_side(tasks: Collection[Task[R]], jobs: int) -> Generator[R, None, None]:
    """The results, each as soon as its task is done; at most `jobs` tasks at once. No child outlives the iterator."""
    waiting = list(tasks)
    running: dict[Child, Task[R]] = {}
    held: dict[int, int] = {}
    with ExitStack() as stack:

        def go_on(task: Task[R], outcome: Outcome | None) -> Iterator[R]:
            child = _next(stack, task, outcome)
            if isinstance(child, Child):
                running[child] = task
            else:
                yield child[0]

        while waiting or running:
            for task in list(waiting):
                holders = [held[device] for device in task.devices if device in held]
                busy = any(task.devices & other.devices for other in running.values())
                if holders:
                    waiting.remove(task)
                    yield task.given_up(holders[0])
                elif len(running) < jobs and not busy:
                    waiting.remove(task)
                    yield from go_on(task, None)
            if running:
                wait(list(running))
            for child in [child for child in running if child.over]:
                task, outcome = running.pop(child), child.end()
                if outcome.remains:
                    held |= dict.fromkeys(task.devices, outcome.remains)
                yield from go_on(task, outcome)


def _next(stack: ExitStack, task: Task[R], outcome: Outcome | None) -> Child | tuple[R]:
    """The child of the task's next trial, or its result when there is none."""
    try:
        while True:
            work = next(task.steps) if outcome is None else task.steps.send(outcome)
            try:
                return Child(stack, work.trial, work.payload, limit=work.limit, start=_START_SECONDS)
            except OSError as error:
                outcome = Outcome(ended="exit", words=f"no new process: {error.strerror}")
    except StopIteration as done:
        return (done.value,)
