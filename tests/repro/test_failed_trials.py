"""Trials that do not come to their end: what is told of them, and what they count."""

from __future__ import annotations

import pytest

from mempool_cli.child import Outcome
from mempool_cli.model import ReproTrial
from mempool_cli.repro import every_bug
from mempool_cli.repro.run import _decide, _told

BUG = every_bug()["recycled-handle"]
TRAP = every_bug()["use-after-destroy"]
CALL = "cuMemPoolGetAccess(0x5500, device 1)"


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (Outcome(ended="signal", signal="SIGSEGV", last_call=CALL), f"the process was killed by SIGSEGV in {CALL}"),
        (Outcome(ended="signal", signal="SIGKILL"), "the process was killed by SIGKILL"),
        (Outcome(ended="hung", last_call=CALL), f"the process did not end in time and was killed in {CALL}"),
        (
            Outcome(ended="hung", last_call=CALL, remains=4242),
            f"the process did not end in time and was killed in {CALL}; SIGKILL does not end it: pid 4242 remains",
        ),
        (
            Outcome(ended="exit", status=1, words="Traceback\nRuntimeError: no"),
            "the process ended with status 1: RuntimeError: no",
        ),
    ],
)
def test_a_trial_that_returns_nothing_has_failed(outcome: Outcome, why: str) -> None:
    trial = _told(BUG, "none", "allocated", 0, outcome)
    assert (trial.verdict, trial.why, trial.last_call) == ("failed", why, outcome.last_call)


def test_a_crash_is_what_this_trap_is_about() -> None:
    destroyed = "cuMemPoolDestroy(0x5500) = CUDA_SUCCESS <2 us>"
    crash = Outcome(ended="signal", signal="SIGSEGV", last_call=CALL, calls=(destroyed, CALL))
    trial = _told(TRAP, "use", "never-allocated", 0, crash)
    assert (trial.verdict, trial.why) == ("present", f"the process was killed by SIGSEGV in {CALL}")


def trial(arm: str, verdict: str) -> ReproTrial:
    return ReproTrial(arm=arm, history="allocated", repeat=1, verdict=verdict, why=verdict)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trials", "verdict"),
    [
        ([("none", "not-affected"), ("none", "affected"), ("none", "failed")], "affected"),
        ([("none", "not-affected"), ("per-device", "failed")], "failed"),
        ([("none", "not-affected"), ("none", "inconclusive")], "inconclusive"),
        ([("none", "not-affected"), ("one-call-with-owner", "affected")], "not-affected"),
        ([("per-device", "not-affected")], "inconclusive"),
    ],
)
def test_the_worst_of_the_deciding_arm_counts(trials: list[tuple[str, str]], verdict: str) -> None:
    assert _decide(BUG, [trial(*each) for each in trials], complete=True)[0] == verdict
