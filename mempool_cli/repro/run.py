"""Runs the trials of bugs, each in a process of its own, and gathers the verdicts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Literal, NamedTuple

import msgspec

from mempool_cli.child import Outcome, run_trial
from mempool_cli.devices import resolve_device
from mempool_cli.driver import DriverSource
from mempool_cli.driver.port import Location, LocationType, device_location
from mempool_cli.errors import MempoolError, Problem, ended_by
from mempool_cli.exit_status import Terminated
from mempool_cli.model import (
    Answer,
    BugList,
    BugSummary,
    Counted,
    DeviceDetail,
    Event,
    Reproduction,
    ReproReport,
    ReproTrial,
    Verdict,
    Where,
)
from mempool_cli.repro import every_bug, find_bug
from mempool_cli.repro.judge import judge, severity
from mempool_cli.repro.language import Bug, Variant, derived
from mempool_cli.repro.trial import TrialPlan, TrialReport
from mempool_cli.requests import OnEvent
from mempool_cli.survey import look


@dataclass(frozen=True)
class Choices:
    """What a user can choose. `owner` and `accessor` as words; `limit` in seconds, of each trial."""

    owner: str | None = None
    accessor: str | None = None
    attempts: int | None = None
    repeat: int = 2
    limit: float = 60.0
    arms: tuple[str, ...] = ()
    allow_faults: bool = False


@dataclass(frozen=True)
class Pair:
    """Whose pools are used, and who accesses them; `owner` is None for host memory."""

    owner: int | None
    accessor: int


def list_bugs() -> BugList:
    """Every description, in short."""
    return BugList(
        bugs=tuple(
            BugSummary(id=bug.id, kind=bug.kind, title=bug.title, needs=tuple(bug.needs.values()), sources=bug.sources)
            for bug in every_bug().values()
        )
    )


class Calls(NamedTuple):
    """The driver calls of one trial, as --trace would show them."""

    reproduction: Reproduction
    trial: ReproTrial
    calls: tuple[str, ...]


class Reproduced(NamedTuple):
    """The answer, the devices of the machine, and the calls of the trial behind each verdict."""

    answer: Answer
    devices: tuple[DeviceDetail, ...] = ()
    calls: tuple[Calls, ...] = ()


def reproduce(source: DriverSource, names: Sequence[str], choices: Choices, on_event: OnEvent) -> Reproduced:
    """Runs these bugs in all variants that the machine allows.

    MempoolError `unknown-bug`, `unknown-device`, `usage`; what the machine lacks for any of them is in the answer.
    """
    bugs = [find_bug(name) for name in names]
    known = {arm for bug in bugs for arm in bug.arms}
    for arm in choices.arms:
        if arm not in known:
            raise MempoolError("usage", f"there is no arm {arm!r}: {', '.join(sorted(known))}")
    if choices.allow_faults and choices.arms and not {arm for bug in bugs for arm in bug.faulting} & {*choices.arms}:
        raise MempoolError("usage", "--allow-faults is about an arm that --cleanup leaves out")
    seen = look(source)
    where = Where(kind="local", pid=os.getpid())
    if seen.failure:
        return Reproduced(Answer(driver=seen.driver, where=where, failure=seen.failure))
    kept: list[Calls] = []
    done: list[Reproduction] = []
    failure: Problem | None = None
    for bug, variant in [(each, variant) for each in bugs for variant in each.needs]:
        stuck = _stuck(trial for one in done for trial in one.trials)
        why = f"not tried: process {stuck} of a trial before remains"
        pair = why if stuck else _pair(variant, seen.devices, choices)
        reproduction, cut = _reproduction(source, bug, variant, pair, choices, on_event, kept.append)
        done.append(reproduction)
        if cut:
            failure = ended_by(cut, f": {sum(len(one.trials) for one in done)} trials are done")
            break
    answer = Answer(driver=seen.driver, where=where, result=ReproReport(reproductions=tuple(done)), failure=failure)
    return Reproduced(answer, seen.devices, tuple(kept))


def _reproduction(
    source: DriverSource,
    bug: Bug,
    variant: Variant,
    pair: Pair | str,
    choices: Choices,
    on_event: OnEvent,
    keep: Callable[[Calls], None],
) -> tuple[Reproduction, KeyboardInterrupt | Terminated | None]:
    """What came of the trials, and the interrupt that ended them. `pair`: or why there is none."""
    about = partial(Reproduction, bug=bug.id, kind=bug.kind, title=bug.title, variant=variant)
    if isinstance(pair, str):
        return about(owner=None, accessor=None, verdict="inconclusive", why=pair), None
    place = "the host" if pair.owner is None else f"device {pair.owner}"
    on_event(Event("status", f"{bug.id}: trials with pools on {place}, accessed by device {pair.accessor}..."))
    told: list[tuple[ReproTrial, tuple[str, ...]]] = []
    cut: KeyboardInterrupt | Terminated | None = None
    try:
        told.extend(_trials(source, bug, pair, choices))  # as far as it comes
    except (KeyboardInterrupt, Terminated) as error:
        cut = error
    trials = tuple(trial for trial, _ in told)
    verdict, why, first = _decide(bug, trials, complete=not cut)
    reproduction = about(
        owner=pair.owner,
        accessor=pair.accessor,
        verdict=verdict,
        why=why,
        enforced=_enforced(bug, trials) if verdict == "affected" else None,
        trials=trials,
    )
    for trial, calls in told:
        if trial is first:
            keep(Calls(reproduction, trial, calls))
    return reproduction, cut


def _stuck(trials: Iterable[ReproTrial]) -> int | None:
    """The pid of a process that SIGKILL does not end."""
    return next((trial.remains for trial in trials if trial.remains), None)


def _pair(variant: Variant, devices: Sequence[DeviceDetail], choices: Choices) -> Pair | str:
    """The first pair that can, of those chosen; else what is missing."""
    owners = _chosen(choices.owner, devices)
    accessors = _chosen(choices.accessor, devices)
    if variant == "host":
        able = [device.ordinal for device in accessors if device.host_pools_supported]
        return Pair(None, able[0]) if able else "no device can access pools in host memory"
    if len(devices) < 2:
        return f"pools on a device need two devices, and {len(devices)} is visible"
    wanted = variant == "device"
    for owner, accessor in product(owners, accessors):
        reached = owner.ordinal in accessor.peers
        if owner.pools_supported and owner.ordinal != accessor.ordinal and reached == wanted:
            return Pair(owner.ordinal, accessor.ordinal)
    among = _among(choices)
    if wanted:
        return f"no device reaches another one with memory pools{among}"
    return f"no device with memory pools is out of reach of another one{among}"


def _among(choices: Choices) -> str:
    chosen = [f"owner device {choices.owner}"] if choices.owner else []
    chosen += [f"accessor device {choices.accessor}"] if choices.accessor else []
    return f", with {' and '.join(chosen)}" if chosen else ""


def _chosen(word: str | None, devices: Sequence[DeviceDetail]) -> Sequence[DeviceDetail]:
    return devices if word is None else [devices[resolve_device(word, devices)]]


def _trials(
    source: DriverSource, bug: Bug, pair: Pair, choices: Choices
) -> Iterator[tuple[ReproTrial, tuple[str, ...]]]:
    arms = [arm for arm in bug.arms if not choices.arms or arm in choices.arms]
    arms = [arm for arm in arms if choices.allow_faults or arm not in bug.faulting]
    for arm, history, repeat in product(arms, bug.histories, range(choices.repeat)):
        plan = TrialPlan(
            source=source.encode().decode(),
            bug=bug.id,
            arm=arm,
            history=history,
            owner=_place(pair.owner),
            accessor=device_location(pair.accessor),
            numbers=derived(numbers_of(bug, choices)),
        )
        outcome = run_trial("mempool_cli.repro.trial:trial", msgspec.json.encode(plan), limit=choices.limit)
        yield _told(bug, arm, history, repeat, outcome), outcome.calls
        if outcome.remains:
            return  # the next one would use the device in which that one is stuck


def _place(owner: int | None) -> Location:
    return Location(LocationType.HOST, 0) if owner is None else device_location(owner)


def numbers_of(bug: Bug, choices: Choices) -> dict[str, int]:
    """The constants of the description, as the user wants them."""
    numbers = dict(bug.numbers)
    if choices.attempts is not None and "attempts" in numbers:
        numbers["attempts"] = choices.attempts
    return numbers


def _told(bug: Bug, arm: str, history: str, repeat: int, outcome: Outcome) -> ReproTrial:
    report = msgspec.json.decode(outcome.result, type=TrialReport) if outcome.result else None
    verdict: Verdict = "failed"
    if report is None and bug.crash_counts and _crashed_after(outcome, "cuMemPoolDestroy"):
        verdict, why = ("present" if bug.kind == "trap" else "affected"), outcome.end
    elif report is None:
        why = outcome.end
    elif report.failure:
        words = report.failure.driver
        why = f"{report.failure.message}: {words}" if words else report.failure.message
    else:
        verdict, why = judge(bug, report.counters)
    return ReproTrial(
        arm=arm,
        history=history,
        repeat=repeat + 1,
        verdict=verdict,
        why=why,
        counted=_counted({counter.name: counter.words for counter in bug.counters}, report.counters if report else {}),
        cleared=_counted({}, report.codes if report else {}),
        ended=outcome.ended,
        signal=outcome.signal,
        last_call=outcome.last_call if report is None else None,
        remains=outcome.remains,
    )


def _crashed_after(outcome: Outcome, call: str) -> bool:
    """Whether the driver killed the process, and not somebody else, after this call had succeeded."""
    done = any(each.startswith(f"{call}(") and " = CUDA_SUCCESS" in each for each in outcome.calls)
    return done and outcome.signal in ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL")


def _counted(words: Mapping[str, str], counts: Mapping[str, int]) -> tuple[Counted, ...]:
    return tuple(Counted(name, words.get(name, name), count) for name, count in counts.items())


def _enforced(bug: Bug, trials: Sequence[ReproTrial]) -> Literal["yes", "no", "untested"] | None:
    """Whether the access that the driver reports is more than words; None for a bug that has no such question."""
    if bug.enforced is None:
        return None
    counted = [each for trial in trials for each in trial.counted if each.count]
    through, blocked = (any(each.name == name for each in counted) for name in bug.enforced)
    return "no" if through else "yes" if blocked else "untested"


def _decide(bug: Bug, trials: Sequence[ReproTrial], *, complete: bool) -> tuple[Verdict, str, ReproTrial | None]:
    """The verdict of the arm that decides, over its histories and repeats, why, and the trial that gave it.

    A trial that failed counts, of whatever arm, unless the bug was seen all the same. It is ruled out by all trials
    alone: not where they were cut short, nor where after one whose process remains no other one was started.
    """
    failed = [trial for trial in trials if trial.verdict == "failed"]
    deciding = [trial for trial in trials if trial.arm in bug.decides and trial.verdict != "failed"]
    seen = {trial.verdict for trial in deciding} & {"affected", "present"}
    if not deciding and not failed:
        return "inconclusive", f"the arm {bug.decides[0]} decides, and was not run", None
    first = failed[0] if failed and not seen else min(deciding, key=lambda trial: severity(trial.verdict))
    stuck = _stuck(trials)
    if first.verdict in ("not-affected", "absent") and (stuck or not complete):
        remains = f"process {stuck} of a trial remains, and no other one was started"
        return "inconclusive", remains if stuck else "not all trials were run", first
    return first.verdict, f"{first.arm}, {first.history}: {first.why}", first
