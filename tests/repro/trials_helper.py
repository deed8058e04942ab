"""Trials without processes, for tests in which it does not matter where a trial runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, cast

from verify.here import Heard

from mempool_cli.child import Outcome, Reports
from mempool_cli.driver.port import HOST_LOCATION, Location, device_location
from mempool_cli.repro import find_bug
from mempool_cli.repro.interpret import Machine, counters
from mempool_cli.repro.judge import judge
from mempool_cli.repro.language import Verdict, derived

Run = Callable[..., Outcome]

PLACES: Mapping[str, Location] = {
    "device": device_location(0),
    "unreachable": device_location(0),
    "host": HOST_LOCATION,
}
"""The owner of each variant; device 1 accesses its pools."""


def run_here(trial: str, payload: bytes, *, limit: float, apart: bool = True) -> Outcome:
    """As child.run_trial, in this process: nothing may crash or hang."""
    module, _, name = trial.partition(":")
    heard = Heard()
    result: bytes = getattr(importlib.import_module(module), name)(payload, cast(Reports, heard))
    return Outcome(ended="returned", result=result, status=0, calls=tuple(heard.calls), parts=tuple(heard.parts))


def survives(outcome: Outcome) -> Run:
    """Looks at the machine in this process; every trial ends like this."""

    def run(trial: str, payload: bytes, *, limit: float) -> Outcome:
        return run_here(trial, payload, limit=limit) if trial.endswith(":survey") else outcome

    return run


def interpreted(driver: Any, bug_id: str, variant: str, *, arm: str, history: str) -> tuple[Verdict, str]:
    """The verdict of one trial on this driver, on which cuInit has not been called."""
    bug = find_bug(bug_id)
    machine = Machine(driver, PLACES[variant], device_location(1), arm, history)
    machine.variables |= derived(bug.numbers)
    driver.init()
    machine.run(bug.steps)
    return judge(bug, counters(bug, machine))
