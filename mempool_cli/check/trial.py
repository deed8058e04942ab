"""What happens in the children that ask the driver about access, one check each. No context is made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import cast

import msgspec

from mempool_cli.child import Reports
from mempool_cli.driver import DriverSource
from mempool_cli.driver.port import (
    HOST_LOCATION,
    AccessEntry,
    AccessFlags,
    Driver,
    Location,
    P2PAttribute,
    PoolProperties,
    device_location,
)
from mempool_cli.driver.start import initialize
from mempool_cli.driver.trace import TracedDriver
from mempool_cli.errors import DriverError
from mempool_cli.locations import owner_of, spell_location
from mempool_cli.model import CheckCase
from mempool_cli.wording import place_name

_MAX_SIZE = 64 << 20
_NONE, _RW = AccessFlags.NONE, AccessFlags.READWRITE


class CheckPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One check. `devices`: those with pools; `host`: those that can use pools in host memory.

    `pairs`: accessor and owner, of those that the check is about. `count`: of all devices.
    """

    source: str
    check: str
    count: int
    devices: tuple[int, ...]
    host: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]


class FailedError(Exception):
    """The driver did not do what it has to."""


class SkippedError(Exception):
    """There is nothing to ask here."""


def examine(payload: bytes, reports: Reports) -> bytes:
    """CheckPlan -> a CheckCase a part, in the order of the plan."""
    plan = msgspec.json.decode(payload, type=CheckPlan)
    place = DriverSource.decode(plan.source.encode())
    driver = cast(Driver, TracedDriver(place.open_unguarded(), lambda answer: None, reports.at))
    initialize(driver, simulated=place.sim is not None)
    for name, ask in _CASES[plan.check](driver, plan):
        reports.part(msgspec.json.encode(_case(name, ask)))
    return b""


Cases = Iterator[tuple[str, Callable[[], str]]]
"""The name of each case, and the question: returns what was seen, or raises one of the errors here or a DriverError."""


def _case(name: str, ask: Callable[[], str]) -> CheckCase:
    begin = time.monotonic()
    words = None
    try:
        outcome, why = "passed", ask()
    except (FailedError, SkippedError, DriverError) as error:
        outcome, told = "failed" if isinstance(error, FailedError) else "skipped", str(error)
        if isinstance(error, DriverError):
            outcome, told, words = "error", f"the driver refused {error.words.call}", error.words
        why = "; ".join([told, *getattr(error, "__notes__", ())])
    seconds = round(time.monotonic() - begin, 6)
    return msgspec.convert(
        {"name": name, "outcome": outcome, "why": why, "seconds": seconds, "driver": msgspec.to_builtins(words)},
        CheckCase,
    )


def pair_name(accessor: int, location: Location) -> str:
    """`device 1 with memory of device 0`."""
    return f"device {accessor} with memory of {place_name(owner_of(location), spell_location(location))}"


# --- capability ---


def _capability(driver: Driver, plan: CheckPlan) -> Cases:
    for accessor, owner in plan.pairs:

        def ask(accessor: int = accessor, owner: int = owner) -> str:
            can = driver.device_can_access_peer(accessor, owner)
            attribute = driver.device_get_p2p_attribute(P2PAttribute.ACCESS_SUPPORTED, accessor, owner)
            if can != bool(attribute):
                raise FailedError(
                    f"cuDeviceCanAccessPeer says {int(can)}, cuDeviceGetP2PAttribute(ACCESS_SUPPORTED) says {attribute}"
                )
            if not can:
                raise SkippedError(NOT_CAPABLE)
            return "capable"

        yield pair_name(accessor, device_location(owner)), ask


NOT_CAPABLE = "the accessor cannot reach the owner (cuDeviceCanAccessPeer)"


# --- access ---


@contextmanager
def _pool(driver: Driver, location: Location) -> Iterator[int]:
    """A pool for a while, which leaves no access behind: its handle may come back."""
    pool = driver.mem_pool_create(PoolProperties(location, _MAX_SIZE))
    try:
        yield pool
    except BaseException as found:
        try:
            _destroy(driver, pool, location)
        except DriverError as error:  # not instead of what was found
            found.add_note(f"then the driver refused {error}")
        raise
    _destroy(driver, pool, location)


def _destroy(driver: Driver, pool: int, location: Location) -> None:
    for device in range(driver.device_get_count()):
        if device != owner_of(location):
            with suppress(DriverError):
                _set(driver, pool, (device, _NONE))
    driver.mem_pool_destroy(pool)


def _set(driver: Driver, pool: int, *entries: tuple[int, AccessFlags]) -> None:
    driver.mem_pool_set_access(pool, [AccessEntry(device_location(device), flags) for device, flags in entries])


def _expect(driver: Driver, pool: int, device: int, wanted: AccessFlags, when: str) -> None:
    flags = driver.mem_pool_get_access(pool, device_location(device))
    if flags != wanted:
        raise FailedError(f"access of device {device} {when} reads {flags:#x}, not {wanted.name}")


def _fresh(driver: Driver, plan: CheckPlan) -> Cases:
    for owner in plan.devices:

        def ask(owner: int = owner) -> str:
            pool = driver.device_get_default_mem_pool(owner)
            for device in plan.devices:
                wanted = _RW if device == owner else _NONE
                _expect(driver, pool, device, wanted, "to the default pool of a new process")
            return "the owner alone has access"

        yield f"device {owner}", ask


def _owner(driver: Driver, plan: CheckPlan) -> Cases:
    for owner in plan.devices:

        def ask(owner: int = owner) -> str:
            with _pool(driver, device_location(owner)) as created:
                for pool in (created, driver.device_get_default_mem_pool(owner)):
                    _set(driver, pool, (owner, _RW))  # else every call on it is refused, and that proves nothing
                    with suppress(DriverError):
                        _set(driver, pool, (owner, _NONE))
                    _expect(driver, pool, owner, _RW, "to its own pool, after it was to be revoked,")
            return "the owner kept access"

        yield f"device {owner}", ask


def _grant(driver: Driver, plan: CheckPlan) -> Cases:
    for accessor, location in _places(plan):

        def ask(accessor: int = accessor, location: Location = location) -> str:
            with _pool(driver, location) as pool:
                _expect(driver, pool, accessor, _NONE, "to a new pool")
                _set(driver, pool, (accessor, _RW))
                _expect(driver, pool, accessor, _RW, "after the grant")
                _set(driver, pool, (accessor, _NONE))
                _expect(driver, pool, accessor, _NONE, "after the revoke")
            return "granted and revoked"

        yield pair_name(accessor, location), ask


def _batch(driver: Driver, plan: CheckPlan) -> Cases:
    """With an entry that every driver refuses: the owner NONE, on a pool of a device; else a device that is none."""
    for accessor, location in _places(plan):

        def ask(accessor: int = accessor, location: Location = location) -> str:
            owner = owner_of(location)
            bad = (plan.count, _RW) if owner is None else (owner, _NONE)
            with _pool(driver, location) as pool:
                try:
                    _set(driver, pool, (accessor, _RW), bad)
                except DriverError as error:
                    _expect(driver, pool, accessor, _NONE, "after a refused call")
                    # Without the bad entry it is taken: the refusal was about that.
                    _set(driver, pool, (accessor, _RW))
                    _expect(driver, pool, accessor, _RW, "after the same call without the bad entry")
                    return f"refused with {error.words.name}, nothing changed"
                raise FailedError("a call with an entry that cannot be was accepted")

        yield pair_name(accessor, location), ask


def _places(plan: CheckPlan) -> Iterator[tuple[int, Location]]:
    for accessor, owner in plan.pairs:
        yield accessor, device_location(owner)
    for accessor in plan.host:
        yield accessor, HOST_LOCATION


_CASES: dict[str, Callable[[Driver, CheckPlan], Cases]] = {
    "capability": _capability,
    "fresh": _fresh,
    "owner": _owner,
    "grant": _grant,
    "batch": _batch,
}


def names(plan: CheckPlan) -> Sequence[str]:
    """Those of its cases, in their order."""
    if plan.check in ("fresh", "owner"):
        return [f"device {owner}" for owner in plan.devices]
    if plan.check == "capability":
        return [pair_name(accessor, device_location(owner)) for accessor, owner in plan.pairs]
    return [pair_name(accessor, location) for accessor, location in _places(plan)]
