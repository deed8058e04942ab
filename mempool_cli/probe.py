"""Actual permissions: what cuMemPoolGetAccess answers, beside what the machine could do.

For your own program, in its process: `matrix()` returns the access of its default and current pools,
`print_matrix()` prints it. Neither creates a context, and a stream capture of the program survives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, NamedTuple

import msgspec

from mempool_cli.devices import list_devices, supports
from mempool_cli.driver.port import (
    HOST_LOCATION,
    AccessFlags,
    CaptureMode,
    DeviceAttribute,
    Driver,
    Location,
    LocationType,
    device_location,
)
from mempool_cli.errors import DriverError, MempoolError, Problem
from mempool_cli.model import Access, AccessMatrix, Answer, Cell, Device, Pool, Role, Row

_ACCESS: dict[int, Access] = {AccessFlags.NONE: "none", AccessFlags.READ: "r", AccessFlags.READWRITE: "rw"}
_HOST_POOL_ATTRIBUTE: dict[int, DeviceAttribute] = {
    LocationType.HOST: DeviceAttribute.HOST_MEMORY_POOLS_SUPPORTED,
    LocationType.HOST_NUMA: DeviceAttribute.HOST_NUMA_MEMORY_POOLS_SUPPORTED,
}


class Target(NamedTuple):
    """A pool as both sides know it: the user's name, and the driver's handle in this process.

    `handle` is 0 for the default pool of a device without pool support, and, with `error`, where the driver did
    not give one.
    """

    pool: Pool
    handle: int
    location: Location
    error: Problem | None = None


def read_matrix(driver: Driver, targets: Iterable[Target], devices: Sequence[Device]) -> AccessMatrix:
    """The access of these pools. Driver calls: at most 2 a cell, and 1 a row for the host."""
    return AccessMatrix(devices=tuple(devices), rows=tuple(read_row(driver, target, devices) for target in targets))


def read_row(driver: Driver, target: Target, devices: Sequence[Device]) -> Row:
    """The access of one pool. A cell that the driver refuses to answer holds the error; nothing is raised."""
    if not target.handle:
        cells = tuple(
            Cell(
                device=device.ordinal,
                owner=device.ordinal == target.pool.owner,
                error=target.error if device.pools_supported else None,
            )
            for device in devices
        )
        return Row(pool=target.pool, cells=cells, host=Cell(device=None, error=target.error))
    return Row(
        pool=target.pool,
        cells=tuple(_device_cell(driver, target, device) for device in devices),
        host=_cell(driver, target, HOST_LOCATION, device=None, owner=False, capable=None),
    )


def _device_cell(driver: Driver, target: Target, device: Device) -> Cell:
    ordinal = device.ordinal
    owner = ordinal == target.pool.owner
    if not device.pools_supported:
        return Cell(device=ordinal, owner=owner)
    refused: Problem | None = None
    capable: bool | None = None
    try:
        if not owner:
            capable = is_capable(driver, target.location, ordinal)
    except DriverError as error:
        refused = error.problem
    cell = _cell(driver, target, device_location(ordinal), device=ordinal, owner=owner, capable=capable)
    return msgspec.structs.replace(cell, error=refused) if refused else cell


def _cell(
    driver: Driver, target: Target, location: Location, *, device: int | None, owner: bool, capable: bool | None
) -> Cell:
    try:
        flags = driver.mem_pool_get_access(target.handle, location)
    except DriverError as error:
        return Cell(device=device, owner=owner, capable=capable, error=error.problem)
    access = _ACCESS.get(flags, "unknown")
    return Cell(device=device, access=access, flags=int(flags), owner=owner, capable=capable)


def is_capable(driver: Driver, location: Location, accessor: int) -> bool:
    """Whether the accessor could reach memory there. One driver call.

    For a device: cuDeviceCanAccessPeer(accessor, owner), in this direction (CUDA Programming Guide). For
    the host there is no peer question: the accessor's own attribute tells.
    """
    attribute = _HOST_POOL_ATTRIBUTE.get(location.type)
    if attribute is None:
        return driver.device_can_access_peer(accessor, location.id)
    return supports(driver, attribute, accessor)


def capability_cells(
    driver: Driver, location: Location, owner: int | None, devices: Sequence[Device]
) -> tuple[Cell, ...]:
    """Who could use a pool there, before there is one. One driver call a device that has pools."""
    return tuple(
        Cell(
            device=device.ordinal,
            owner=device.ordinal == owner,
            capable=is_capable(driver, location, device.ordinal)
            if device.pools_supported and device.ordinal != owner
            else None,
        )
        for device in devices
    )


def device_target(device: Device, handle: int, *roles: Role) -> Target:
    """A pool of a device that is known by its role, the first of `roles`. No driver call."""
    ordinal = device.ordinal
    pool = Pool(name=f"{roles[0]}:{ordinal}", roles=roles, location=str(ordinal), owner=ordinal)
    return Target(pool, handle, device_location(ordinal))


def default_target(driver: Driver, device: Device) -> Target:
    """The default pool of a device. Driver calls: 1, and 1 to learn whether it is also the current one."""
    if not device.pools_supported:
        return device_target(device, 0, "default")
    try:
        handle = driver.device_get_default_mem_pool(device.ordinal)
        current = driver.device_get_mem_pool(device.ordinal) == handle
    except DriverError as error:
        return device_target(device, 0, "default")._replace(error=error.problem)
    return device_target(device, handle, "default", "current") if current else device_target(device, handle, "default")


def current_target(driver: Driver, device: Device) -> Target | None:
    """The current pool of a device where it is not the default one, else None. Driver calls: 2.

    None also where the driver does not tell: `default_target` says so then.
    """
    if not device.pools_supported:
        return None
    try:
        handle = driver.device_get_mem_pool(device.ordinal)
        if handle == driver.device_get_default_mem_pool(device.ordinal):
            return None
    except DriverError:
        return None
    return device_target(device, handle, "current")


# --- for a user's own program ---


@contextmanager
def process_driver() -> Iterator[Driver]:
    """The CUDA driver of this process, initialised, the calling thread's capture mode RELAXED inside.

    Without that mode a question about a pool invalidates a stream capture of any thread in global mode. MempoolError
    says what is missing, or `driver-refused`, which call was refused. Driver calls: 4.
    """
    from mempool_cli.driver import driver_source
    from mempool_cli.driver.identity import describe
    from mempool_cli.driver.start import initialize

    driver = driver_source(None).open()
    try:
        describe(driver, sim=None)
        initialize(driver)
        previous = driver.thread_exchange_stream_capture_mode(CaptureMode.RELAXED)
        try:
            yield driver
        finally:
            driver.thread_exchange_stream_capture_mode(previous)
    except DriverError as error:
        raise MempoolError(error.problem.code, error.problem.message, driver=error.words) from error


def matrix() -> AccessMatrix:
    """The access of this process's default and current pools, as the driver reports it now.

    A pool or cell for which the driver does not answer holds the error. MempoolError as `process_driver`.
    """
    with process_driver() as driver:
        devices = list_devices(driver)
        targets = [default_target(driver, device) for device in devices]
        targets += [target for device in devices if (target := current_target(driver, device))]
        return read_matrix(driver, targets, devices)


def print_matrix(file: IO[str] | None = None) -> None:
    """Prints `matrix()` as text to `file`, standard output when None."""
    import sys

    from mempool_cli.render import plain_text

    stream = sys.stdout if file is None else file
    stream.write(plain_text(Answer(result=matrix()), matrix=True))
