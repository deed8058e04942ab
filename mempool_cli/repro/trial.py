"""What happens in the child of one trial."""

from __future__ import annotations

import os
import signal
from typing import cast

import msgspec

from mempool_cli.child import Announce
from mempool_cli.driver import DriverSource
from mempool_cli.driver.port import Driver, Location
from mempool_cli.driver.start import initialize
from mempool_cli.driver.trace import TracedDriver
from mempool_cli.errors import DriverError, MempoolError, Problem
from mempool_cli.repro import find_bug
from mempool_cli.repro.interpret import Machine, counters


class TrialPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One trial. `source` is an encoded DriverSource; places are location type and id."""

    source: str
    bug: str
    arm: str
    history: str
    owner: tuple[int, int]
    accessor: tuple[int, int]
    numbers: dict[str, int]


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """What it counted, what the calls answered that may fail, and the call that failed and should not have."""

    counters: dict[str, int] = {}
    codes: dict[str, int] = {}
    failure: Problem | None = None


def trial(payload: bytes, announce: Announce) -> bytes:
    """TrialPlan -> TrialReport. What kills the process is for the parent to tell."""
    plan = msgspec.json.decode(payload, type=TrialPlan)
    source = DriverSource.decode(plan.source.encode())
    bug = find_bug(plan.bug)
    plain = source.open_unguarded()
    driver = cast(Driver, TracedDriver(plain, announce, announce))
    machine = Machine(driver, Location(*plan.owner), Location(*plan.accessor), plan.arm, plan.history)
    machine.variables |= plan.numbers
    failure: Problem | None = None
    try:
        initialize(driver, simulated=source.sim is not None)
        machine.run(bug.steps)
    except MempoolError as error:
        failure = error.problem
    except DriverError as error:
        failure = error.problem
    except BaseException as error:
        if source.sim is None or type(error).__name__ != "SimulatedCrash":
            raise
        os.kill(os.getpid(), signal.SIGSEGV)
    report = TrialReport(counters=dict(counters(bug, machine)), codes=dict(machine.codes), failure=failure)
    return msgspec.json.encode(report)
