"""What becomes of a pair whose children do not come to their end: every path has a result, and one that is right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from mempool_cli.child import Outcome
from mempool_cli.driver import driver_source
from mempool_cli.driver.port import HOST_LOCATION, Location, device_location
from mempool_cli.model import PairResult, Path, PathResult, UngrantedCopy
from mempool_cli.verify.bench import Unready
from mempool_cli.verify.negative import READY, NegativePlan, Seen
from mempool_cli.verify.pair import ORDERS, PATHS, Choices, Pair, steps
from mempool_cli.verify.schedule import Work
from mempool_cli.verify.trial import Granted, PairPlan, Part, Ready, Sound, Tried

ALL = len(ORDERS) * len(PATHS)
PAIR = Pair(device_location(0), 1)
COPIED = Outcome(ended="returned", result=b"")


def run(answers: Iterator[Outcome], *, pair: Pair = PAIR, allow_faults: bool = False) -> tuple[PairResult, list[Work]]:
    """The result when the children end like this, and what they were given."""
    choices = Choices(sizes=(8,), repeat=1, limit=7, allow_faults=allow_faults)
    going = steps(pair, driver_source("2"), choices)
    works = [next(going)]
    try:
        while True:
            works.append(going.send(next(answers)))
    except StopIteration as done:
        return done.value, works


def told(*parts: Part, **fields: Any) -> Outcome:
    """A child that said this, and then returned unless told otherwise."""
    sound = [Sound(order=order) for order in ORDERS]
    said = tuple(msgspec.json.encode(part) for part in (Ready(native_atomics=True), Granted(flags=3), *sound, *parts))
    return Outcome(**{"ended": "returned", "result": b"", "parts": said, **fields})


def ok(count: int, first: int = 0) -> list[Part]:
    """So many paths that work, in their order."""
    places = [(order, path) for order in ORDERS for path in PATHS][first : first + count]
    return [Tried(result=PathResult(order=order, path=path, verdict="ok", why="arrived")) for order, path in places]


def trials(work: Work) -> int:
    return len(msgspec.json.decode(work.payload, type=PairPlan).trials)


def verdicts(result: PairResult) -> list[str]:
    assert len(result.paths) == ALL
    return [path.verdict for path in result.paths]


def test_all_is_well() -> None:
    result, works = run(iter([told(*ok(ALL))]))
    assert (result.verdict, result.why) == ("ok", "all that was tried works")
    assert (result.capable, result.access, result.native_atomics) == (True, "rw", True)
    assert [(work.trial, work.limit) for work in works] == [("mempool_cli.verify.trial:pair", 7)]


def test_a_hang_ends_the_pair() -> None:
    hung = told(*ok(3), ended="hung", result=None, last_call="cuStreamSynchronize(0x61)")
    result, works = run(iter([hung]), allow_faults=True)
    assert verdicts(result) == ["ok"] * 3 + ["hang"] + ["skipped"] * (ALL - 4)
    assert result.verdict == "hang"
    assert result.paths[3].why == "the process did not end in time and was killed in cuStreamSynchronize(0x61)"
    assert result.paths[4].why == "an earlier process did not end"
    assert len(works) == 1, "no negative after a hang"


def test_a_hang_before_the_access_is_an_error_of_ours() -> None:
    """Neither the memory nor the control: only what hangs after them is the access."""
    parts = (msgspec.json.encode(Ready(native_atomics=True)),)
    result, works = run(iter([Outcome(ended="hung", parts=parts)]), allow_faults=True)
    assert verdicts(result) == ["error"] + ["skipped"] * (ALL - 1)
    assert len(works) == 1


def test_a_process_that_remains_ends_the_pair() -> None:
    """Whatever it has found before."""
    answers = [told(*ok(ALL)), Outcome(ended="hung", remains=4242)]
    result, works = run(iter(answers), allow_faults=True)
    assert (result.verdict, result.remains, result.negatives, len(works)) == ("error", 4242, (), 2)
    hung = Outcome(ended="hung", remains=4243, parts=(READY,))
    result, works = run(iter([told(*ok(ALL)), COPIED, seen(True), hung]), allow_faults=True)
    assert (result.remains, [each.verdict for each in result.negatives], len(works)) == (4243, ["hang"], 4)


def remaining(outcome: Outcome) -> Outcome:
    return msgspec.structs.replace(outcome, remains=4711)


def test_a_process_that_returns_and_remains_ends_the_pair() -> None:
    """It holds the devices: nothing more is tried, and what was not tried is not good."""
    result, works = run(iter([remaining(told(*ok(ALL)))]), allow_faults=True)
    assert (verdicts(result), result.remains, len(works)) == (["ok"] * ALL, 4711, 1)
    assert (result.verdict, result.why) == (
        "error",
        "paths with access: the process has returned; SIGKILL does not end it: pid 4711 remains",
    )


def test_a_process_that_remains_after_a_fault_ends_the_pair() -> None:
    fault = Tried(result=PathResult(order="grant-first", path="kernel-write", verdict="faulted", why="it failed"))
    result, works = run(iter([remaining(told(fault))]))
    assert (result.verdict, result.remains, len(works)) == ("faulted", 4711, 1)
    assert verdicts(result) == ["faulted"] + ["skipped"] * (ALL - 1)
    crash = told(*ok(1), ended="signal", result=None, signal="SIGSEGV")
    result, works = run(iter([remaining(crash)]))
    assert (verdicts(result), len(works)) == (["ok", "error"] + ["skipped"] * (ALL - 2), 1)


@pytest.mark.parametrize(
    ("granted", "found"), [([True], ["inconclusive"]), ([True, False], ["blocked"])], ids=["twin", "kernel"]
)
def test_a_kernel_whose_process_remains_ends_the_pair(granted: list[bool], found: list[str]) -> None:
    *before, last = [seen(each) for each in granted]
    result, works = run(iter([told(*ok(ALL)), COPIED, *before, remaining(last)]), allow_faults=True)
    assert [each.verdict for each in result.negatives] == found
    assert (result.verdict, result.remains, result.kept_out) == ("error", 4711, False)
    assert len(works) == 2 + len(granted)


def test_a_hang_after_the_last_path_is_an_error() -> None:
    """Not of the access: all arrived, and what comes after it did not end."""
    hung = told(*ok(ALL), ended="hung", result=None, last_call="cuMemFreeAsync(0x7)", remains=99)
    result, works = run(iter([hung]), allow_faults=True)
    assert (verdicts(result), result.verdict, result.remains, len(works)) == (["ok"] * ALL, "error", 99, 1)
    assert result.why == (
        "paths with access: the process did not end in time and was killed in cuMemFreeAsync(0x7); "
        "SIGKILL does not end it: pid 99 remains"
    )


def test_a_hang_of_what_cannot_be_tried() -> None:
    hung = told(Unready(verdict="inconclusive", why="out of memory"), ended="hung", result=None)
    result, works = run(iter([hung]), allow_faults=True)
    assert (result.verdict, set(verdicts(result)), len(works)) == ("error", {"inconclusive"}, 1)


COPY = UngrantedCopy(path="copy-write", arrived=True)
REST: tuple[Path, ...] = ("copy-read", "peer-copy-write", "peer-copy-read")


def test_copies_without_access_that_hang_end_the_pair() -> None:
    hung = Outcome(ended="hung", last_call="cuMemcpyAsync(0x7)", parts=(msgspec.json.encode(COPY),))
    result, works = run(iter([told(*ok(ALL)), hung]), allow_faults=True)
    why = "the process did not end in time and was killed in cuMemcpyAsync(0x7)"
    assert result.ungranted_copies == (COPY, *(UngrantedCopy(path=path, arrived=None, why=why) for path in REST))
    assert (result.verdict, result.why) == ("error", f"copies without access: {why}")
    assert (result.negatives, len(works)) == ((), 2)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"ended": "signal", "signal": "SIGSEGV"}, "the process was killed by SIGSEGV"),
        ({"ended": "returned", "result": b"out of memory"}, "out of memory"),
    ],
)
def test_copies_without_access_that_come_to_no_end_are_recorded(fields: dict[str, Any], why: str) -> None:
    """And not judged: each kernel after them has a process of its own."""
    ended = Outcome(parts=(msgspec.json.encode(COPY),), **fields)
    answers = [told(*ok(ALL)), ended, *(seen(granted) for granted in [True, False] * 4)]
    result, _ = run(iter(answers), allow_faults=True)
    assert result.ungranted_copies == (COPY, *(UngrantedCopy(path=path, arrived=None, why=why) for path in REST))
    assert (result.verdict, len(result.negatives)) == ("ok", 4)


def test_a_kernel_without_access_that_hangs_is_a_hang_of_the_pair() -> None:
    """Its twin got through, and it should have faulted: it is the access, and no failure of ours."""
    before = [told(*ok(ALL)), COPIED, seen(True)]
    result, works = run(iter([*before, Outcome(ended="hung", parts=(READY,))]), allow_faults=True)
    assert (result.verdict, [each.verdict for each in result.negatives], len(works)) == ("hang", ["hang"], 4)
    result, _ = run(iter([*before, Outcome(ended="hung", last_call="cuInit()")]), allow_faults=True)
    assert (result.verdict, [each.verdict for each in result.negatives]) == ("error", ["error"])


def test_a_process_that_remains_is_named() -> None:
    result, _ = run(iter([told(ended="hung", result=None, remains=4242)]))
    assert result.paths[0].remains == 4242
    assert result.why.endswith("; SIGKILL does not end it: pid 4242 remains")


def test_after_a_fault_the_rest_is_tried_in_a_new_process() -> None:
    fault = Tried(result=PathResult(order="grant-first", path="atomic-add", verdict="faulted", why="it failed"))
    result, works = run(iter([told(*ok(2), fault), told(*ok(ALL - 3, first=3))]))
    assert verdicts(result) == ["ok", "ok", "faulted"] + ["ok"] * (ALL - 3)
    assert (result.verdict, result.why) == ("faulted", "atomic-add, grant-first: it failed")
    assert [trials(work) for work in works] == [ALL, ALL - 3]


def test_a_crash_is_an_error_of_its_path() -> None:
    crash = told(*ok(1), ended="signal", result=None, signal="SIGSEGV", last_call="cuLaunchKernel()")
    result, works = run(iter([crash, told(*ok(ALL - 2, first=2))]))
    assert verdicts(result) == ["ok", "error"] + ["ok"] * (ALL - 2)
    assert result.paths[1].why == "the process was killed by SIGSEGV in cuLaunchKernel()"
    assert [trials(work) for work in works] == [ALL, ALL - 2]


def test_a_crash_after_the_last_path_changes_nothing() -> None:
    result, _ = run(iter([told(*ok(ALL), ended="signal", result=None, signal="SIGSEGV")]))
    assert result.verdict == "ok"


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(ended="exit", status=1, words="E: no"),
        Outcome(ended="hung", last_call="cuInit()"),
        Outcome(ended="returned", result=b""),
    ],
)
def test_a_process_that_never_gets_ready(outcome: Outcome) -> None:
    """Nothing says that this is the access: it is no hang and no fault of the pair."""
    result, works = run(iter([outcome]))
    assert result.verdict == "error"
    assert verdicts(result)[0] == "error"
    assert set(verdicts(result)) <= {"error", "skipped"}
    assert len(works) == 1


def test_a_pair_that_cannot_be_tried() -> None:
    parts = (msgspec.json.encode(Unready(verdict="inconclusive", why="out of memory")),)
    result, works = run(iter([Outcome(ended="returned", result=b"", parts=parts)]))
    assert (result.verdict, set(verdicts(result))) == ("inconclusive", {"inconclusive"})
    assert result.native_atomics is None
    assert result.access is None
    assert len(works) == 1


@pytest.mark.parametrize(("flags", "access"), [((3, 0), "none"), ((1, 3), "r"), ((3, 7), "unknown")])
def test_the_least_access_counts(flags: tuple[int, ...], access: str) -> None:
    outcome = told(*(Granted(flags=each) for each in flags), *ok(ALL))
    assert run(iter([outcome]))[0].access == access


# --- the negative ---


def seen(work_or_granted: bool) -> Outcome:
    words = {"call": "cuStreamSynchronize", "code": 700, "name": "CUDA_ERROR_ILLEGAL_ADDRESS"}
    through = {"flags": 3, "arrived": True, "effect": True}
    found = through if work_or_granted else {"flags": 0, "answer": words}
    return Outcome(ended="returned", result=msgspec.json.encode(msgspec.convert(found, Seen)))


def test_each_kernel_without_access_has_a_twin() -> None:
    answers = [told(*ok(ALL)), Outcome(ended="returned", result=b""), *(seen(granted) for granted in [True, False] * 4)]
    result, works = run(iter(answers), allow_faults=True)
    assert result.verdict == "ok"
    assert [(each.variant, each.access, each.verdict) for each in result.negatives] == [
        ("never-granted", "write", "blocked"),
        ("never-granted", "read", "blocked"),
        ("revoked", "write", "blocked"),
        ("revoked", "read", "blocked"),
    ]
    plans = [msgspec.json.decode(work.payload, type=NegativePlan) for work in works if work.trial.endswith(":kernel")]
    for twin, kernel in zip(plans[::2], plans[1::2], strict=True):
        assert (twin.granted, kernel.granted) == (True, False)
        assert msgspec.structs.replace(twin, granted=False) == kernel


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ([True, True] + [True, False] * 3, "leaked"),
        ([False, False] + [True, False] * 3, "inconclusive"),
    ],
)
def test_a_negative_counts_for_the_pair(answers: list[bool], verdict: str) -> None:
    outcomes = [told(*ok(ALL)), Outcome(ended="returned", result=b""), *map(seen, answers)]
    assert run(iter(outcomes), allow_faults=True)[0].verdict == verdict


def test_the_owner_cannot_lose_access() -> None:
    result, works = run(iter([told(*ok(ALL))]), pair=Pair(device_location(1), 1), allow_faults=True)
    assert (result.verdict, result.negatives, len(works)) == ("ok", (), 1)


@pytest.mark.parametrize(
    ("location", "devices"), [(device_location(0), {0, 1}), (device_location(1), {1}), (HOST_LOCATION, {1})]
)
def test_the_devices_of_a_pair(location: Location, devices: set[int]) -> None:
    assert Pair(location, 1).devices == devices
