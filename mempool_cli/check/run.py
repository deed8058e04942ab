"""Runs the checks, each in processes of its own, and holds the policy against what they find."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from mempool_cli.check.catalogue import Check
from mempool_cli.check.policy import Policy, as_version
from mempool_cli.check.trial import NOT_CAPABLE, CheckPlan, names, pair_name
from mempool_cli.child import run_trial
from mempool_cli.driver import DriverSource
from mempool_cli.driver.port import device_location
from mempool_cli.errors import MempoolError, Problem, ended_by
from mempool_cli.exit_status import MACHINE, Terminated
from mempool_cli.model import (
    Answer,
    CheckCase,
    CheckOutcome,
    CheckReport,
    CheckResult,
    DeviceDetail,
    DriverInfo,
    PairResult,
    ReproReport,
    VerifyReport,
    Where,
)
from mempool_cli.repro.run import Choices as ReproChoices
from mempool_cli.repro.run import reproduce
from mempool_cli.survey import Survey
from mempool_cli.verify import run as verify_run
from mempool_cli.verify.pair import Choices as VerifyChoices

_ONE = "one device: there is no pair"
_NO_DRIVER = "the driver does not start"
_NO_POOLS = "no device has memory pools"
_NOT_TOLD = "the driver did not say whether the accessor can reach the owner"
_WORST_FIRST: tuple[CheckOutcome, ...] = ("failed", "error", "passed", "skipped")
_SIZES = (8, 1 << 20, 16 << 20)
_SEEN = ("driver", "devices", "pools")
"""Checks of what was seen of the machine: they start no process."""

_OF_PAIR: dict[str, CheckOutcome] = {"ok": "passed", "error": "error", "inconclusive": "error", "skipped": "skipped"}
_OF_BUG: dict[str, CheckOutcome] = {"not-affected": "passed", "affected": "failed"}


@dataclass(frozen=True)
class Machine:
    """What is checked, and what it must be. `require_devices`: at least so many; `limit`: seconds of a trial.

    `stuck`: the pids of processes of checks that SIGKILL does not end.
    """

    source: DriverSource
    seen: Survey
    policy: Policy | None
    require_devices: int | None
    limit: float
    stuck: list[int] = field(default_factory=list)

    @property
    def devices(self) -> tuple[DeviceDetail, ...]:
        """The visible ones."""
        return self.seen.devices

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All ordered pairs of devices: accessor and owner."""
        ordinals = range(len(self.devices))
        return [(accessor, owner) for owner in ordinals for accessor in ordinals if accessor != owner]

    @property
    def pool_pairs(self) -> list[tuple[int, int]]:
        """Those of devices with pools."""
        able = {device.ordinal for device in self.devices if device.pools_supported}
        return [pair for pair in self.pairs if able.issuperset(pair)]

    def reaches(self, accessor: int, owner: int) -> bool:
        """Whether the driver says so."""
        return owner in self.devices[accessor].peers

    def unwanted(self, accessor: int, owner: int) -> bool:
        """Whether the policy can do without the pair."""
        return self.policy is not None and self.policy.wish(accessor, owner) in ("must-not", "may")

    @property
    def alone(self) -> bool:
        """Whether the policy wants one device only, so that there are no pairs to miss."""
        return self.policy is not None and len(self.policy.devices) == 1

    def of_no_pools(self, device: int) -> bool:
        """Whether the policy says that it has none."""
        return self.policy is not None and self.policy.without_pools(device)


OnCheck = Callable[[CheckResult], None]
"""Gets each check as soon as it is done."""


def run_checks(
    checks: Sequence[Check],
    look: Callable[[], Machine],
    policy: str | None,
    on_check: OnCheck,
    *,
    skips_allowed: bool,
) -> Answer:
    """All of them, in their order. An interrupt, of the look too, ends it, and the answer has what was done."""
    done: list[CheckResult] = []
    failure: Problem | None = None
    seen = Survey()
    try:
        machine = look()
        seen = machine.seen
        for check in checks:
            done.append(run_check(check, machine))
            on_check(done[-1])
    except (KeyboardInterrupt, Terminated) as error:
        left = ", ".join(check.id for check in checks[len(done) :])
        failure = ended_by(error, f": {len(done)} of {len(checks)} checks are done, not {left}")
    devices = tuple(device.identity for device in seen.devices)
    report = CheckReport(devices=devices, policy=policy, skips_allowed=skips_allowed, checks=tuple(done))
    where = Where(kind="local", pid=os.getpid())
    return Answer(driver=seen.driver, where=where, result=report, failure=failure)


def run_check(check: Check, machine: Machine) -> CheckResult:
    """All cases of a check; it never raises what the machine does."""
    begin = time.monotonic()
    if check.id != "driver" and machine.seen.failure:
        cases = [CheckCase(name="machine", outcome="skipped", why=machine.seen.failure.message)]
    elif machine.stuck and check.id not in _SEEN:
        cases = [CheckCase(name="machine", outcome="skipped", why=f"not tried: {_remains(machine.stuck[0])}")]
    else:
        cases = list(_cases(check, machine))
    seconds = round(time.monotonic() - begin, 3)
    found = {case.outcome for case in cases}
    return CheckResult(
        id=check.id,
        title=check.title,
        of_pairs=check.of_pairs,
        outcome=next((outcome for outcome in _WORST_FIRST if outcome in found), "skipped"),
        seconds=seconds,
        cases=tuple(cases),
    )


def _cases(check: Check, machine: Machine) -> Iterator[CheckCase]:
    """Those of the check; what keeps it from its end is one more."""
    try:
        yield from _RUNNERS.get(check.id, _asked)(check, machine)
    except MempoolError as error:
        yield CheckCase(name=check.id, outcome="error", why=error.problem.message, driver=error.problem.driver)


# --- from what was seen of the machine ---


def _driver(check: Check, machine: Machine) -> Iterator[CheckCase]:
    problem = machine.seen.failure
    if problem:
        crashed = problem.exit != MACHINE
        call = problem.driver.call if problem.driver else "the driver" if crashed else "cuInit"
        outcome: CheckOutcome = "error" if crashed else "failed"
        yield CheckCase(name=call, outcome=outcome, why=problem.message, driver=problem.driver)
        return
    info = machine.seen.driver
    assert info is not None
    yield CheckCase(name="cuInit", outcome="passed", why=f"for CUDA {info.cuda_version}")
    wanted = machine.policy.driver if machine.policy else None
    if wanted and wanted.cuda:
        yield _at_least("CUDA version", info.cuda_version, wanted.cuda)
    if wanted and wanted.version:
        yield _at_least("driver version", _driver_version(info), wanted.version)


def _driver_version(info: DriverInfo) -> str | None:
    if info.kernel_module:
        return info.kernel_module.version
    return info.libcuda.version if info.libcuda else None


def _at_least(name: str, found: str | None, least: str) -> CheckCase:
    if found is None:
        return CheckCase(name=name, outcome="error", why=f"it is not known here, at least {least} is wanted")
    passed = as_version(found) >= as_version(least)
    why = f"{found}, at least {least} is wanted"
    return CheckCase(name=name, outcome="passed" if passed else "failed", why=why)


def _devices(check: Check, machine: Machine) -> Iterator[CheckCase]:
    count = len(machine.devices)
    wanted = machine.policy.devices if machine.policy else ()
    if machine.require_devices is not None:
        why = f"{count} visible, at least {machine.require_devices} required"
        yield _judged("required", passed=count >= machine.require_devices, why=why)
    if wanted:
        why = f"{count} visible, the policy wants {len(wanted)}"
        yield _judged("count", passed=count == len(wanted), why=why)
    elif machine.require_devices is None:
        yield _judged("count", passed=count > 0, why=f"{count} visible")
    for device, table in zip(machine.devices, wanted, strict=False):
        if table.name is not None:
            why = device.name if device.name == table.name else f"{device.name}, the policy wants {table.name}"
            yield _judged(f"device {device.ordinal}", passed=device.name == table.name, why=why)


def _judged(name: str, *, passed: bool, why: str) -> CheckCase:
    return CheckCase(name=name, outcome="passed" if passed else "failed", why=why)


def _pools(check: Check, machine: Machine) -> Iterator[CheckCase]:
    wanted = machine.policy.devices if machine.policy else ()
    for device in machine.devices:
        table = wanted[device.ordinal] if device.ordinal < len(wanted) else None
        has = device.pools_supported
        name = f"device {device.ordinal}"
        if has == (table.pools if table else True):
            yield _judged(name, passed=True, why="has memory pools" if has else "has none, as the policy says")
        else:
            why = f"{device.name} has {'memory pools, the policy wants none' if has else 'no memory pools'}"
            yield _judged(name, passed=False, why=why)
        if table and table.host_pools is not None and table.host_pools != device.host_pools_supported:
            why = f"{device.name} can{'' if device.host_pools_supported else 'not'} use pools in host memory"
            yield _judged(f"{name}, host pools", passed=False, why=f"{why}, the policy wants otherwise")


# --- asked in a child ---


def _asked(check: Check, machine: Machine) -> Iterator[CheckCase]:
    """The child's cases, those that it could not come to, and those of pairs that cannot be asked."""
    plan = _plan(check, machine)
    yield from _missing(check, machine)
    if not names(plan):
        return
    outcome = run_trial("mempool_cli.check.trial:examine", msgspec.json.encode(plan), limit=machine.limit)
    yield from _stuck([outcome.remains], machine)
    cases = [msgspec.json.decode(part, type=CheckCase) for part in outcome.parts]
    for index, name in enumerate(names(plan)):
        case = cases[index] if index < len(cases) else CheckCase(name=name, outcome="error", why=outcome.end)
        yield _as_wanted(case, plan.pairs[index], machine) if check.id == "capability" else case


def _stuck(pids: Sequence[int | None], machine: Machine) -> Iterator[CheckCase]:
    """A case of its own where a process does not end: no check is passed with that, and none tried after it."""
    for pid in filter(None, pids):
        machine.stuck.append(pid)
        yield CheckCase(name="process", outcome="error", why=_remains(pid))


def _remains(pid: int) -> str:
    return f"process {pid} of a check remains: SIGKILL does not end it"


def _plan(check: Check, machine: Machine) -> CheckPlan:
    pairs = machine.pairs
    if check.id != "capability":
        pairs = [pair for pair in machine.pool_pairs if machine.reaches(*pair)]
    able = [device.ordinal for device in machine.devices if device.pools_supported]
    return CheckPlan(
        source=machine.source.encode().decode(),
        check=check.id,
        count=len(machine.devices),
        devices=tuple(able),
        host=tuple(device.ordinal for device in machine.devices if device.host_pools_supported),
        pairs=tuple(pairs),
    )


def _missing(check: Check, machine: Machine) -> Iterator[CheckCase]:
    """What a check is not about, since there are no pools, or no pair, or one cannot reach the other."""
    without = [device.ordinal for device in machine.devices if not device.pools_supported]
    if not check.of_pairs:
        if len(without) == len(machine.devices):
            expected = all(machine.of_no_pools(device) for device in without)
            yield CheckCase(name="devices", outcome="skipped", why=_NO_POOLS, expected=expected)
        return
    if len(machine.devices) < 2:
        yield CheckCase(name="pairs of devices", outcome="skipped", why=_ONE, expected=machine.alone)
        return
    if check.id == "capability":
        return
    for device in without:
        name, why = f"pairs of device {device}", f"device {device} has no memory pools"
        yield CheckCase(name=name, outcome="skipped", why=why, expected=machine.of_no_pools(device))
    for accessor, owner in machine.pool_pairs:
        if not machine.reaches(accessor, owner):
            unknown = owner in machine.devices[accessor].peers_unknown
            yield CheckCase(
                name=pair_name(accessor, device_location(owner)),
                outcome="skipped",
                why=_NOT_TOLD if unknown else NOT_CAPABLE,
                expected=not unknown and machine.unwanted(accessor, owner),
            )


def _as_wanted(case: CheckCase, pair: tuple[int, int], machine: Machine) -> CheckCase:
    """What the policy makes of a pair that is capable or not."""
    wish = machine.policy.wish(*pair) if machine.policy else None
    if wish is None or case.outcome not in ("passed", "skipped"):
        return case
    capable = case.outcome == "passed"
    if wish == "may":
        return msgspec.structs.replace(case, expected=True)
    if capable == (wish == "must"):
        why = case.why if capable else "not capable, as the policy says"
        return msgspec.structs.replace(case, outcome="passed", why=why)
    why = f"{'capable' if capable else case.why}, the policy says it {wish.replace('-', ' ')} be"
    return msgspec.structs.replace(case, outcome="failed", why=why)


# --- by way of repro and verify ---


def _recycled(check: Check, machine: Machine) -> Iterator[CheckCase]:
    choices = ReproChoices(repeat=1, limit=machine.limit, arms=("none",))
    answer = reproduce(machine.source, ["recycled-handle"], choices, lambda event: None).answer
    _ended(answer)
    result = answer.result
    if not isinstance(result, ReproReport):
        yield CheckCase(name="recycled", outcome="error", why=answer.failure.message if answer.failure else _NO_DRIVER)
        return
    yield from _stuck([trial.remains for one in result.reproductions for trial in one.trials], machine)
    for one in result.reproductions:
        on_host = one.variant == "host"
        outcome: CheckOutcome = "skipped" if not one.trials else _OF_BUG.get(one.verdict, "error")
        wanted_so = machine.policy is not None and (
            machine.policy.wants_no_host_pool if on_host else machine.policy.wants_no_pair
        )
        name = "pools in host memory" if on_host else "pools on a device"
        yield CheckCase(name=name, outcome=outcome, why=one.why, expected=outcome == "skipped" and wanted_so)


def _data(check: Check, machine: Machine) -> Iterator[CheckCase]:
    choices = VerifyChoices(sizes=_SIZES, repeat=1, limit=machine.limit, allow_faults=False)
    planned = verify_run.plan(machine.source, verify_run.Wanted(host=True), choices)
    if len(machine.devices) < 2:
        yield CheckCase(name="pairs of devices", outcome="skipped", why=_ONE, expected=machine.alone)
    if isinstance(planned, Answer):
        yield CheckCase(name="data", outcome="error", why=planned.failure.message if planned.failure else _NO_DRIVER)
        return
    answer = verify_run.verify(planned, lambda pair, so_far: None)
    _ended(answer)
    assert isinstance(answer.result, VerifyReport)
    yield from _stuck([pair.remains for pair in answer.result.pairs], machine)
    for pair in answer.result.pairs:
        yield _of_pair(pair, machine)


def _ended(answer: Answer) -> None:
    """What was interrupted is no verdict of a check."""
    code = answer.failure.code if answer.failure else None
    if code in ("interrupted", "terminated"):
        raise KeyboardInterrupt if code == "interrupted" else Terminated


def _of_pair(pair: PairResult, machine: Machine) -> CheckCase:
    outcome = _OF_PAIR.get(pair.verdict, "failed")
    expected = outcome == "skipped" and _skip_wanted(pair, machine)
    why = pair.why if outcome in ("passed", "skipped") else f"{pair.verdict}: {pair.why}"
    return CheckCase(name=pair.name, outcome=outcome, why=why, expected=expected)


def _skip_wanted(pair: PairResult, machine: Machine) -> bool:
    if machine.policy is None:
        return False
    if pair.owner is None:
        return machine.policy.without_host_pools(pair.accessor)
    without = any(machine.policy.without_pools(device) for device in (pair.accessor, pair.owner))
    return without or machine.unwanted(pair.accessor, pair.owner)


_RUNNERS: dict[str, Callable[[Check, Machine], Iterator[CheckCase]]] = {
    "driver": _driver,
    "devices": _devices,
    "pools": _pools,
    "recycled": _recycled,
    "data": _data,
}
