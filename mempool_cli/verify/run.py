"""Which pairs are tried, and what their trials come to."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from mempool_cli.alone import check_alone
from mempool_cli.devices import resolve_device
from mempool_cli.driver import DriverSource
from mempool_cli.driver.port import HOST_LOCATION, Location, LocationType, device_location
from mempool_cli.errors import Problem, ended_by
from mempool_cli.exit_status import Terminated
from mempool_cli.locations import parse_location
from mempool_cli.model import Answer, DeviceDetail, DriverInfo, PairResult, VerifyReport, Where
from mempool_cli.survey import look
from mempool_cli.verify.pair import Choices, Pair, steps, untried
from mempool_cli.verify.schedule import Steps, Task, side_by_side

_HOST, _ALL, _NODE = "host", "all", "numa:"


@dataclass(frozen=True)
class Wanted:
    """What a user asks for. `owners` and `accessors` as words, all where empty; `host`: pools in host memory too."""

    owners: tuple[str, ...] = ()
    accessors: tuple[str, ...] = ()
    host: bool = False
    jobs: int | None = None


OnPair = Callable[[PairResult, Answer], None]
"""Gets each pair as soon as it is known, and the answer as it is then."""


class Machine(NamedTuple):
    """Where pairs are tried, and what answered there."""

    source: DriverSource
    driver: DriverInfo | None
    devices: tuple[DeviceDetail, ...]


class Plan(NamedTuple):
    """What is tried on a machine: ordered pairs, at most `jobs` of them side by side."""

    machine: Machine
    pairs: tuple[Pair, ...]
    jobs: int
    choices: Choices

    def answer(self, found: Mapping[Pair, PairResult], failure: Problem | None = None) -> Answer:
        """What is found so far, in the order of the pairs."""
        report = VerifyReport(
            devices=tuple(device.identity for device in self.machine.devices),
            sizes=self.choices.sizes,
            repeat=self.choices.repeat,
            faults_allowed=self.choices.allow_faults,
            planned=len(self.pairs),
            pairs=tuple(found[pair] for pair in self.pairs if pair in found),
        )
        return Answer(driver=self.machine.driver, where=_here(), result=report, failure=failure)


def plan(source: DriverSource, wanted: Wanted, choices: Choices) -> Plan | Answer:
    """What is to be tried, or the answer of a machine that cannot be used.

    MempoolError `unknown-device`, or `usage` where faults are asked for and others use the cards.
    """
    seen = look(source)
    if seen.failure:
        return Answer(driver=seen.driver, where=_here(), failure=seen.failure)
    pairs = tuple(_pairs(wanted, seen.devices))
    if choices.allow_faults and source.sim is None:
        used = {ordinal for pair in pairs for ordinal in pair.devices}
        check_alone({device.uuid for device in seen.devices if device.ordinal in used})
    jobs = wanted.jobs or len(os.sched_getaffinity(0))
    return Plan(Machine(source, seen.driver, seen.devices), pairs, jobs, choices)


def verify(planned: Plan, on_pair: OnPair) -> Answer:
    """Tries all pairs. An interrupt ends the trials, and what was found until then is the answer."""
    found: dict[Pair, PairResult] = {}
    try:
        with closing(_results(planned)) as results:
            for pair, result in results:
                found[pair] = result
                on_pair(result, planned.answer(found))
    except (KeyboardInterrupt, Terminated) as error:
        running = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        rest = f": {len(found)} of {len(planned.pairs)} pairs are known{running}"
        return planned.answer(found, ended_by(error, rest))
    return planned.answer(found)


def _results(planned: Plan) -> Generator[tuple[Pair, PairResult], None, None]:
    """Each pair as soon as it is known, those that cannot be tried first."""
    tasks: list[Task[tuple[Pair, PairResult]]] = []
    for pair in planned.pairs:
        cannot = _cannot(pair, planned.machine.devices)
        if cannot:
            yield pair, cannot
        else:
            tasks.append(Task(pair.name, pair.devices, _steps(pair, planned), _given_up(pair)))
    yield from side_by_side(tasks, planned.jobs)


def _steps(pair: Pair, planned: Plan) -> Steps[tuple[Pair, PairResult]]:
    result = yield from steps(pair, planned.machine.source, planned.choices)
    return pair, result


def _here() -> Where:
    return Where(kind="local", pid=os.getpid())


def _pairs(wanted: Wanted, devices: Sequence[DeviceDetail]) -> Iterator[Pair]:
    """Owner by owner. A device is paired with itself only where it is named on both sides."""
    every = range(len(devices))
    nodes = sorted({word for word in wanted.owners if word.startswith(_NODE)})
    owners = _named([word for word in wanted.owners if word not in (_HOST, *nodes)], devices)
    accessors = _named(wanted.accessors, devices)
    if wanted.owners and set(wanted.owners) <= {_HOST, *nodes}:
        owners = []
    for owner in every if owners is None else owners:
        for accessor in every if accessors is None else accessors:
            if owner != accessor or (owners and accessors):
                yield Pair(device_location(owner), accessor)
    if wanted.host or _HOST in wanted.owners:
        for accessor in every if accessors is None else accessors:
            yield Pair(_host_of(devices[accessor]), accessor)
    for node in nodes:
        for accessor in every if accessors is None else accessors:
            yield Pair(parse_location(node, devices), accessor)


def _named(words: Sequence[str], devices: Sequence[DeviceDetail]) -> list[int] | None:
    """The devices that are named one by one; None: all."""
    if not words or _ALL in words:
        return None
    return sorted({resolve_device(word, devices) for word in words})


def _host_of(accessor: DeviceDetail) -> Location:
    """The host, or, before CUDA 13, where there are no pools on the host as such, the node beside the device."""
    numa_only = accessor.host_numa_pools_supported and not accessor.host_pools_supported
    return Location(LocationType.HOST_NUMA, accessor.host_numa_id) if numa_only else HOST_LOCATION


def _cannot(pair: Pair, devices: Sequence[DeviceDetail]) -> PairResult | None:
    """The result of a pair that is not tried; None where it can be."""
    accessor = devices[pair.accessor]
    for ordinal in sorted(pair.devices):
        if not devices[ordinal].pools_supported:
            return untried(pair, f"device {ordinal} has no memory pools", capable=None)
    if pair.owner is None:
        able = accessor.host_pools_supported or accessor.host_numa_pools_supported
        return None if able else untried(pair, "the accessor cannot use pools in host memory", capable=False)
    if pair.owner == pair.accessor or pair.owner in accessor.peers:
        return None
    if pair.owner in accessor.peers_unknown:
        why = "the driver did not say whether the accessor can reach the owner"
        return untried(pair, why, capable=None, verdict="error")
    return untried(pair, "the accessor cannot reach the owner (cuDeviceCanAccessPeer)", capable=False)


def _given_up(pair: Pair) -> Callable[[int], tuple[Pair, PairResult]]:
    def left_out(pid: int) -> tuple[Pair, PairResult]:
        why = f"left out: process {pid}, which SIGKILL does not end, holds a device of it"
        return pair, untried(pair, why, capable=True, verdict="inconclusive")

    return left_out
