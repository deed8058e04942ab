"""What happens in the child that tries the paths of one pair, one after the other, and tells of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from mempool_cli.child import Reports
from mempool_cli.driver import DriverSource
from mempool_cli.driver.port import DeviceAttribute, Driver, Location, LocationType, P2PAttribute
from mempool_cli.driver.start import initialize
from mempool_cli.driver.trace import TracedDriver
from mempool_cli.errors import DriverError, MempoolError
from mempool_cli.locations import owner_of
from mempool_cli.model import Order, Path, PathResult
from mempool_cli.verify.bench import Bench, Unready, lay_out, unfit, unready
from mempool_cli.verify.paths import try_path
from mempool_cli.verify.payload import payloads
from mempool_cli.verify.sides import Device, Owner, Processor

_CANARY_BYTES = 4096


class PairPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The paths that are left to try of a pair. `source` is an encoded DriverSource; `owner` location type and id."""

    source: str
    owner: tuple[int, int]
    accessor: int
    sizes: tuple[int, ...]
    repeat: int
    trials: tuple[tuple[Order, Path], ...]


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Both sides are there and are right about memory of their own."""

    native_atomics: bool | None


class Granted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The access that the driver reads after the grant."""

    flags: int


class Sound(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The memory of this order is there, and the control arrived: what hangs from here on is the access."""

    order: Order


class Alive(msgspec.Struct, frozen=True, tag=True):
    """Work goes on, and has its time anew."""


class Tried(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What came of a path."""

    result: PathResult


Part = Ready | Unready | Granted | Sound | Alive | Tried


def pair(payload: bytes, reports: Reports) -> bytes:
    """PairPlan -> parts, a Tried for each path among them. Returns early when a fault has cost it its context."""
    plan = msgspec.json.decode(payload, type=PairPlan)
    place = Location(*plan.owner)

    def tell(part: Part) -> None:
        reports.part(msgspec.json.encode(part))

    try:
        driver = open_quietly(plan.source, reports)
        owner, accessor = sides(driver, place, plan.accessor, lambda: tell(Alive()))
        ready = Ready(native_atomics=_native_atomics(driver, place, plan.accessor))
        wrong = _canaries(owner, accessor)
    except (DriverError, MempoolError) as error:
        tell(unready(error))
        return b""
    tell(Unready(verdict="inconclusive", why=wrong) if wrong else ready)
    if not wrong:
        _Trials(driver, plan, owner, accessor, ready, tell).run()
    return b""


class _Trials:
    """The paths, order by order, on memory of its own each."""

    def __init__(
        self, driver: Driver, plan: PairPlan, owner: Owner, accessor: Device, ready: Ready, tell: Callable[[Part], None]
    ) -> None:
        self._driver = driver
        self._plan = plan
        self._place = Location(*plan.owner)
        self._owner = owner
        self._accessor = accessor
        self._ready = ready
        self._tell = tell
        self._payloads = payloads(owner_of(self._place), plan.accessor)
        self._timed = DriverSource.decode(plan.source.encode()).sim is None

    def run(self) -> None:
        """Tells of each path, up to a fault."""
        for order in dict.fromkeys(order for order, _ in self._plan.trials):
            paths = [path for each, path in self._plan.trials if each == order]
            bench = Bench(self._driver, self._owner, self._accessor, self._timed, lambda: self._tell(Alive()))
            with bench.undo:
                if self._try(bench, order, paths):
                    bench.undo.pop_all()  # a context that is lost gives nothing back, and may not even answer
                    return

    def _try(self, bench: Bench, order: Order, paths: Sequence[Path]) -> bool:
        """Whether the process is lost."""
        spoiled = lay_out(bench, self._place, max(self._plan.sizes), order)
        if bench.flags is not None:
            self._tell(Granted(flags=bench.flags))
        spoiled = spoiled or unfit(bench, self._plan.sizes, self._payloads)
        if spoiled:
            self._spoil(order, paths, spoiled)
            return spoiled.lost
        self._tell(Sound(order=order))
        for path in paths:
            why = self._inapplicable(path)
            if why:
                self._tell(Tried(result=PathResult(order=order, path=path, verdict="skipped", why=why)))
                continue
            result, lost = try_path(bench, order, path, self._plan.sizes, self._plan.repeat, self._payloads)
            self._tell(Tried(result=result))
            if lost:
                return True
        return False

    def _spoil(self, order: Order, paths: Sequence[Path], why: Unready) -> None:
        for path in paths:
            result = PathResult(order=order, path=path, verdict=why.verdict, why=why.why, driver=why.driver)
            self._tell(Tried(result=result))

    def _inapplicable(self, path: Path) -> str | None:
        if path == "atomic-add" and not self._ready.native_atomics:
            silent = self._ready.native_atomics is None
            return f"the driver {'does not say whether it promises' if silent else 'promises no'} native atomics here"
        if path.startswith("peer-copy") and not isinstance(self._owner, Device):
            return "a peer copy names two contexts, and the host has none"
        return None


def open_quietly(source: str, reports: Reports) -> Driver:
    """The driver, after cuInit, that announces each call: what it was in is known when it never returns."""
    place = DriverSource.decode(source.encode())
    driver = cast(Driver, TracedDriver(place.open_unguarded(), lambda answer: None, reports.at))
    initialize(driver, simulated=place.sim is not None)
    return driver


def sides(driver: Driver, owner: Location, accessor: int, alive: Callable[[], None]) -> tuple[Owner, Device]:
    """Who owns the memory, and who accesses it: one and the same for a device with itself."""
    device = Device(driver, accessor)
    if owner.type != LocationType.DEVICE:
        return Processor(driver, device, alive), device
    return (device if owner.id == accessor else Device(driver, owner.id)), device


def _native_atomics(driver: Driver, owner: Location, accessor: int) -> bool | None:
    """Whether the driver promises atomics of the accessor there; None when it does not say. At most one call."""
    try:
        return _promised(driver, owner, accessor)
    except DriverError:
        return None


def _promised(driver: Driver, owner: Location, accessor: int) -> bool:
    if owner.type != LocationType.DEVICE:
        return bool(driver.device_get_attribute(DeviceAttribute.HOST_NATIVE_ATOMIC_SUPPORTED, accessor))
    if owner.id == accessor:
        return True
    return bool(driver.device_get_p2p_attribute(P2PAttribute.NATIVE_ATOMIC_SUPPORTED, accessor, owner.id))


def _canaries(owner: Owner, accessor: Device) -> str | None:
    """What is wrong with the kernels of either device on memory of its own; None when nothing is."""
    runs = payloads(None, accessor.ordinal)
    for device in {id(each): each for each in (owner, accessor) if isinstance(each, Device)}.values():
        wrong = device.canary(device.allocate(_CANARY_BYTES), _CANARY_BYTES, next(runs), next(runs))
        if wrong:
            return wrong
    return None
