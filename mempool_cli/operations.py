"""Every operation by its request, and the runner that does them in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from mempool_cli import access, pools
from mempool_cli.devices import list_details, list_devices
from mempool_cli.driver import DriverSource
from mempool_cli.driver.identity import describe
from mempool_cli.driver.port import CaptureMode, Driver
from mempool_cli.driver.start import initialize
from mempool_cli.driver.trace import TracedDriver
from mempool_cli.errors import DriverError, MempoolError, Problem
from mempool_cli.model import (
    AccessChange,
    AccessMatrix,
    Answer,
    AnyResult,
    CurrentPool,
    Device,
    DeviceList,
    DriverInfo,
    Event,
    Notice,
    PoolCreated,
    PoolDestroyed,
    PoolDetail,
    PoolList,
    PoolsDestroyed,
    Where,
)
from mempool_cli.probe import Target, read_matrix, read_row
from mempool_cli.requests import (
    AnyRequest,
    Create,
    Destroy,
    Devices,
    Grant,
    List,
    OnEvent,
    Probe,
    Revoke,
    SetCurrent,
    Show,
)

_LOOK = "run it again with --trace to see the calls before it"


class Context(NamedTuple):
    """What an operation works on."""

    driver: Driver
    pools: pools.Pools
    devices: tuple[Device, ...]

    def target(self, word: str) -> Target:
        """The pool that a request names."""
        return self.pools.resolve(self.driver, word, self.devices)


def devices(context: Context, request: Devices) -> DeviceList:
    """The visible devices and what they can do."""
    return DeviceList(devices=list_details(context.driver))


def list_pools(context: Context, request: List) -> PoolList:
    """Every pool that can be named here."""
    targets = context.pools.every(context.driver, context.devices)
    return PoolList(pools=tuple(context.pools.summary(context.driver, target) for target in targets))


def show(context: Context, request: Show) -> PoolDetail:
    """One pool."""
    return context.pools.detail(context.driver, context.target(request.pool), context.devices)


def probe(context: Context, request: Probe) -> AccessMatrix:
    """The access of the pools named, each once, or of all."""
    named = {target.handle: target for target in map(context.target, request.pools)}
    targets = list(named.values()) if named else context.pools.every(context.driver, context.devices)
    return read_matrix(context.driver, targets, context.devices)


def create(context: Context, request: Create) -> PoolCreated:
    """A new pool."""
    return context.pools.create(context.driver, request, context.devices)


def grant(context: Context, request: Grant) -> AccessChange:
    """Access for more devices, or with `only` for exactly these."""
    target = context.target(request.pool)
    before = read_row(context.driver, target, context.devices)
    wanted = access.select(request.to, context.devices, target.pool.owner, before.cells)
    plan = access.plan_grant(before, wanted, only=request.only)
    access.check_capable(target.pool, before.cells, plan.add, context.devices, force=request.force)
    if request.dry_run:
        return access.preview(before, plan)
    return access.change(context.driver, target, before, plan, context.devices)


def revoke(context: Context, request: Revoke) -> AccessChange:
    """Access taken away. Naming the owner is refused before any change: it cannot lose access."""
    target = context.target(request.pool)
    before = read_row(context.driver, target, context.devices)
    unwanted = access.select(request.devices, context.devices, target.pool.owner, before.cells)
    if target.pool.owner in unwanted:
        raise MempoolError(
            "owner-access",
            f"device {target.pool.owner} owns pool {target.pool.name}: the owner cannot lose access;"
            " nothing was changed",
            hint="leave it out; `--from all` means every other device",
        )
    plan = access.plan_revoke(before, unwanted)
    if request.dry_run:
        return access.preview(before, plan)
    return access.change(context.driver, target, before, plan, context.devices)


def set_current(context: Context, request: SetCurrent) -> CurrentPool:
    """Another current pool for a device."""
    return context.pools.set_current(context.driver, context.target(request.pool), context.devices)


def destroy(context: Context, request: Destroy) -> PoolsDestroyed:
    """Pools destroyed in the order named, each once; none when one of them cannot be."""
    named = {target.handle: target for target in map(context.target, request.pools)}
    for target in named.values():
        context.pools.check_destroyable(target)
    done: list[PoolDestroyed] = []
    for target in named.values():
        try:
            done.append(context.pools.destroy(context.driver, target, context.devices, cleanup=request.cleanup))
        except MempoolError as error:
            problem = error.problem
            count = f" ({len(done)} of {len(named)} were)" if len(named) > 1 else ""
            raise MempoolError(
                problem.code,
                problem.message + count,
                hint=problem.hint,
                driver=problem.driver,
                result=_destroyed(done) if done else None,
            ) from error
    return _destroyed(done)


def _destroyed(done: Sequence[PoolDestroyed]) -> PoolsDestroyed:
    """The result, with what a user should know about it."""
    notices = [
        Notice(
            code="memory-outstanding",
            message=f"pool {entry.pool.name} was destroyed with {entry.used_bytes} bytes allocated;"
            " they go when they are freed",
        )
        for entry in done
        if entry.used_bytes
    ]
    notices += [
        Notice(
            code="current-pool-reset",
            message=f"pool {entry.pool.name} was the current pool of device {entry.pool.owner};"
            " its default pool is again",
        )
        for entry in done
        if "current" in entry.pool.roles
    ]
    return PoolsDestroyed(destroyed=tuple(done), warnings=tuple(notices))


OPERATIONS: dict[type[AnyRequest], Callable[[Context, Any], AnyResult]] = {
    Devices: devices,
    List: list_pools,
    Show: show,
    Probe: probe,
    Create: create,
    Grant: grant,
    Revoke: revoke,
    SetCurrent: set_current,
    Destroy: destroy,
}


class LocalRunner:
    """Runs requests in this process; a session and a program put theirs behind a socket.

    The driver is opened by the first request. Outside a one-shot command (`where.kind` other than "local")
    the thread is set to RELAXED capture mode, so that no stream capture of the process is lost to a question.

    `named`: the pools of this process that others made and that can be named. `initialised`: raises MempoolError
    unless CUDA is initialised, where that is for others to do; None: it is done here.
    """

    def __init__(
        self,
        source: DriverSource,
        where: Callable[[], Where],
        *,
        named: Callable[[], Mapping[str, pools.NamedPool]] = dict,
        initialised: Callable[[Driver], None] | None = None,
    ) -> None:
        self._source = source
        self._where = where
        self._initialised = initialised
        self._pools = pools.Pools(named)
        self._driver: Driver | None = None
        self._info: DriverInfo | None = None

    def run(self, request: AnyRequest, on_event: OnEvent, *, trace: bool = False) -> Answer:
        """Runs one request; every failure that a user can act on is in the answer."""
        result: AnyResult | None = None
        failure: Problem | None = None
        try:
            driver = self._open(on_event if trace else None)
            context = Context(driver, self._pools, list_devices(driver))
            result = OPERATIONS[type(request)](context, request)
        except MempoolError as error:
            result, failure = cast("AnyResult | None", error.result), error.problem
        except DriverError as error:
            failure = msgspec.structs.replace(error.problem, hint=_LOOK)
        return Answer(driver=self._info, where=self._where(), result=result, failure=failure)

    @property
    def opened(self) -> bool:
        """Whether the driver was opened, and CUDA is initialised."""
        return self._driver is not None

    def pool_names(self) -> tuple[str, ...]:
        """The created pools that are alive."""
        return self._pools.names

    def close(self) -> tuple[Problem, ...]:
        """Destroys the created pools with their cleanup. Returns what would not clear or be destroyed."""
        if self._driver is None or not self._pools.names:
            return ()
        problems: list[Problem] = []
        for name in self._pools.names:
            answer = self.run(Destroy(pools=(name,)), lambda event: None)
            if answer.problem:
                problems.append(answer.problem)
        self._pools.give_up(self._driver)
        return tuple(problems)

    def _open(self, on_event: OnEvent | None) -> Driver:
        def traced(driver: Driver) -> Driver:
            if on_event is None:
                return driver
            return cast(Driver, TracedDriver(driver, lambda text: on_event(Event("trace", text))))

        if self._driver is None:
            plain = self._source.open()
            driver = traced(plain)
            if self._initialised:
                self._initialised(driver)
            self._info = describe(driver, self._source.sim)
            if not self._initialised:
                initialize(driver, simulated=self._source.sim is not None)
            if self._where().kind != "local":
                driver.thread_exchange_stream_capture_mode(CaptureMode.RELAXED)
            self._driver = plain
        return traced(self._driver)
