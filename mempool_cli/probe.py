"""Actual permissions: what cuMemPoolGetAccess answers, beside what the machine could do.

For your own program, in its process: `matrix()` returns the access of its default and current pools,
`print_matrix()` prints it. Neither creates a context, and a stream capture of the program survives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, NamedTuple

from mempool_cli.devices import list_devices
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
from mempool_cli.errors import DriverError, Problem
from mempool_cli.model import Access, AccessMatrix, Answer, Cell, Device, Pool, Row

_ACCESS: dict[int, Access] = {AccessFlags.NONE: "none", AccessFlags.READ: "r", AccessFlags.READWRITE: "rw"}
_HOST_POOL_ATTRIBUTE: dict[int, DeviceAttribute] = {
    LocationType.HOST: DeviceAttribute.HOST_MEMORY_POOLS_SUPPORTED,
    LocationType.HOST_NUMA: DeviceAttribute.HOST_NUMA_MEMORY_POOLS_SUPPORTED,
}


class Target(NamedTuple):
    """A pool as both sides know it: the user's name, and the driver's handle in this process.

    `handle` is 0 for the default pool of a device without pool support.
    """

    pool: Pool
    handle: int
    location: Location


def read_matrix(driver: Driver, targets: Iterable[Target], devices: Sequence[Device]) -> AccessMatrix:
    """The access of these pools. Driver calls: at most 2 a cell, and 1 a row for the host."""
    return AccessMatrix(devices=tuple(devices), rows=tuple(read_row(driver, target, devices) for target in targets))


def read_row(driver: Driver, target: Target, devices: Sequence[Device]) -> Row:
    """The access of one pool. A cell that the driver refuses to answer holds the error; nothing is raised."""
    if not target.handle:
        cells = tuple(Cell(device=device.ordinal, owner=device.ordinal == target.pool.owner) for device in devices)
        return Row(pool=target.pool, cells=cells, host=Cell(device=None))
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
    try:
        capable = None if owner else is_capable(driver, target.location, ordinal)
    except DriverError as error:
        return Cell(device=ordinal, owner=owner, error=_refused(error))
    return _cell(driver, target, device_location(ordinal), device=ordinal, owner=owner, capable=capable)


def _cell(
    driver: Driver, target: Target, location: Location, *, device: int | None, owner: bool, capable: bool | None
) -> Cell:
    try:
        flags = driver.mem_pool_get_access(target.handle, location)
    except DriverError as error:
        return Cell(device=device, owner=owner, capable=capable, error=_refused(error))
    access = _ACCESS.get(flags, "unknown")
    return Cell(device=device, access=access, flags=int(flags), owner=owner, capable=capable)


def _refused(error: DriverError) -> Problem:
    return Problem(code="driver-refused", message="the driver did not answer", driver=error.words)


def is_capable(driver: Driver, location: Location, accessor: int) -> bool:
    """Whether the accessor could reach memory there. One driver call.

    For a device: cuDeviceCanAccessPeer(accessor, owner), in this direction (CUDA Programming Guide). For
    the host there is no peer question: the accessor's own attribute tells.
    """
    attribute = _HOST_POOL_ATTRIBUTE.get(location.type)
    if attribute is None:
        return driver.device_can_access_peer(accessor, location.id)
    return bool(driver.device_get_attribute(attribute, accessor))


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


def default_target(driver: Driver, device: Device) -> Target:
    """The default pool of a device. Driver calls: 1, and 1 to learn whether it is also the current one."""
    location = device_location(device.ordinal)
    handle = driver.device_get_default_mem_pool(device.ordinal) if device.pools_supported else 0
    current = bool(handle) and driver.device_get_mem_pool(device.ordinal) == handle
    pool = Pool(
        name=f"default:{device.ordinal}",
        roles=("default", "current") if current else ("default",),
        location=str(device.ordinal),
        owner=device.ordinal,
    )
    return Target(pool, handle, location)


def current_target(driver: Driver, device: Device) -> Target | None:
    """The current pool of a device where it is not the default one, else None. Driver calls: 2."""
    if not device.pools_supported:
        return None
    handle = driver.device_get_mem_pool(device.ordinal)
    if handle == driver.device_get_default_mem_pool(device.ordinal):
        return None
    pool = Pool(
        name=f"current:{device.ordinal}", roles=("current",), location=str(device.ordinal), owner=device.ordinal
    )
    return Target(pool, handle, device_location(device.ordinal))


# --- for a user's own program ---


@contextmanager
def relaxed_capture(driver: Driver) -> Iterator[None]:
    """The calling thread's capture mode is RELAXED inside, and restored after. Driver calls: 2.

    Without it a question about a pool invalidates a stream capture of any thread in global mode.
    """
    previous = driver.thread_exchange_stream_capture_mode(CaptureMode.RELAXED)
    try:
        yield
    finally:
        driver.thread_exchange_stream_capture_mode(previous)


def process_driver() -> Driver:
    """The CUDA driver of this process, initialised. MempoolError says what is missing."""
    from mempool_cli.driver import driver_source, initialize

    driver = driver_source(None).open()
    initialize(driver)
    return driver


def matrix() -> AccessMatrix:
    """The access of this process's default and current pools, as the driver reports it now.

    Raises MempoolError when there is no driver or device, DriverError when a pool cannot be asked for.
    """
    driver = process_driver()
    with relaxed_capture(driver):
        devices = list_devices(driver)
        targets = [default_target(driver, device) for device in devices]
        targets += [target for device in devices if (target := current_target(driver, device))]
        return read_matrix(driver, targets, devices)


def print_matrix(file: IO[str] | None = None) -> None:
    """Prints `matrix()` as text to `file`, standard output when None."""
    import sys

    from mempool_cli.render import plain_text

    (file or sys.stdout).write(plain_text(Answer(result=matrix()), matrix=True))
