"""Trials side by side, with real processes."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest
from cli.processes import with_mark

from mempool_cli.child import Outcome
from mempool_cli.verify import schedule
from mempool_cli.verify.schedule import Steps, Task, Work, side_by_side

TRIALS = "repro.trials"


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    monkeypatch.setattr(schedule, "_START_SECONDS", 0.0)


remaining: list[int] = []


def task(name: str, devices: set[int], *trials: str, limit: float = 20) -> Task[str]:
    def steps() -> Steps[str]:
        ends = []
        for trial in trials:
            outcome: Outcome = yield Work(f"{TRIALS}:{trial}", name.encode(), limit)
            ends.append(outcome.ended)
            remaining.extend([outcome.remains] if outcome.remains else [])
        return f"{name}: {' '.join(ends)}"

    return Task(name, frozenset(devices), steps(), lambda pid: f"{name}: left out")


def results(*tasks: Task[str], jobs: int = 4) -> list[str]:
    return list(side_by_side(tasks, jobs))


def test_each_task_goes_its_way() -> None:
    assert sorted(results(task("a", {0}, "echo", "echo"), task("b", {1}, "echo"), task("c", {2}))) == [
        "a: returned returned",
        "b: returned",
        "c: ",
    ]


def test_no_two_share_a_device() -> None:
    """A hang on device 1 holds up what needs it, and nothing else."""
    tasks = [task("a", {0, 1}, "hang", limit=1.0), task("b", {1, 2}, "echo"), task("c", {2, 3}, "echo")]
    assert results(*tasks) == ["c: returned", "a: hung", "b: returned"]


def test_at_most_so_many_jobs() -> None:
    tasks = [task("a", {0}, "hang", limit=0.5), task("b", {1}, "echo")]
    assert results(*tasks, jobs=1) == ["a: hung", "b: returned"]


def test_what_a_process_holds_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL ends every process of this machine, so here nothing sends it."""
    monkeypatch.setattr("mempool_cli.child._GONE_SECONDS", 0.1)
    monkeypatch.setattr("subprocess.Popen.kill", lambda self: None)
    tasks = [task("a", {0, 1}, "hang", limit=0.5), task("b", {1, 2}, "echo"), task("c", {3}, "echo")]
    assert sorted(results(*tasks)) == ["a: hung", "b: left out", "c: returned"]
    (pid,) = remaining
    remaining.clear()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_there_can_be_no_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **keywords: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refuse)
    assert results(task("a", {0}, "echo", "echo")) == ["a: exit exit"]


def test_who_stops_looking_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = os.urandom(8).hex()
    monkeypatch.setenv("MEMPOOL_TEST_MARK", mark)
    with closing(side_by_side([task("a", {0}, "echo"), task("b", {1}, "hang")], 2)) as found:
        assert next(found) == "a: returned"
        assert len(with_mark(mark)) == 1
    assert with_mark(mark) == []
