"""What may be done to the memory of pools, asked through the port alone: of the contract, and of other tests.

A kernel without access takes its context with it, and on hardware whatever else the process does: there each of
the trials at the end has a process of its own, for which this is a script.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from mempool_cli.driver import kernels
from mempool_cli.driver.port import (
    HOST_LOCATION,
    AccessEntry,
    AccessFlags,
    Driver,
    Location,
    LocationType,
    PoolProperties,
    StreamFlags,
    device_location,
)
from mempool_cli.errors import DriverError

ONE = (1, 1, 1)
IMAGES = {kernels.WRITE: kernels.IMAGE, kernels.READ: kernels.IMAGE, kernels.ADD: kernels.ADD_IMAGE}

Seen = dict[str, str | int]


def refusal(call: Callable[[], object]) -> str:
    """The code name that the call is refused with, SUCCESS when it is not."""
    try:
        call()
    except DriverError as error:
        return error.words.name.removeprefix("CUDA_ERROR_")
    return "SUCCESS"


def own_stream(driver: Driver, device: int = 0) -> int:
    """A new stream of a device, whose context becomes the calling thread's."""
    driver.ctx_set_current(driver.device_primary_ctx_retain(device))
    return driver.stream_create(StreamFlags.NON_BLOCKING)


def kernel(driver: Driver, name: str) -> int:
    """A kernel of the package in the current context."""
    return driver.module_get_function(driver.module_load_data(IMAGES.get(name, kernels.LONGS_IMAGE)), name)


def write_from(driver: Driver, device: int, pointer: int, value: int) -> None:
    """A kernel of a device writes. The calling thread has no context afterwards."""
    stream = own_stream(driver, device)
    driver.launch_kernel(kernel(driver, kernels.WRITE), ONE, ONE, stream, kernels.write_parameters(pointer, value))
    driver.stream_synchronize(stream)
    driver.stream_destroy(stream)
    driver.ctx_set_current(0)
    driver.device_primary_ctx_release(device)


def put(driver: Driver, pointer: int, data: bytes) -> None:
    """Copied when it returns: cuMemcpyHtoD waits for pageable memory only until it was staged, in the NULL stream,
    which streams that do not block are not ordered with (published: API synchronization behavior).
    """
    driver.memcpy_htod(pointer, data)
    driver.ctx_synchronize()


def set_flags(driver: Driver, pool: int, device: int, flags: int) -> None:
    driver.mem_pool_set_access(pool, [AccessEntry(device_location(device), flags)])


def _trial(driver: Driver, location: Location, accessor: int, *, revoked: bool = False) -> Seen:
    """A kernel of a device that has no access writes: never granted, or revoked after it could."""
    allocator = location.id if location.type == LocationType.DEVICE else accessor
    pool = driver.mem_pool_create(PoolProperties(location, 1 << 30))
    with_memory = own_stream(driver, allocator)
    pointer = driver.mem_alloc_from_pool_async(4096, pool, with_memory)
    driver.stream_synchronize(with_memory)
    stream = own_stream(driver, accessor)
    write = kernel(driver, kernels.WRITE)

    def launch() -> None:
        driver.launch_kernel(write, ONE, ONE, stream, kernels.write_parameters(pointer, 7))

    if revoked:
        set_flags(driver, pool, accessor, AccessFlags.READWRITE)
        launch()
        driver.stream_synchronize(stream)
        set_flags(driver, pool, accessor, AccessFlags.NONE)
    return {
        "launch": refusal(launch),
        "synchronize": refusal(lambda: driver.stream_synchronize(stream)),
        "synchronize again": refusal(lambda: driver.stream_synchronize(stream)),
        "synchronize the context": refusal(driver.ctx_synchronize),
        "create a stream": refusal(lambda: driver.stream_create(StreamFlags.NON_BLOCKING)),
        "access": driver.mem_pool_get_access(pool, device_location(accessor)),
    }


def ungranted(driver: Driver) -> Seen:
    return _trial(driver, HOST_LOCATION, 0)


def revoked(driver: Driver) -> Seen:
    return _trial(driver, HOST_LOCATION, 0, revoked=True)


def ungranted_peer(driver: Driver) -> Seen:
    return _trial(driver, device_location(0), 1)


def revoked_peer(driver: Driver) -> Seen:
    return _trial(driver, device_location(0), 1, revoked=True)


TRIALS = {trial.__name__: trial for trial in (ungranted, revoked, ungranted_peer, revoked_peer)}
LOST = {
    "launch": "SUCCESS",
    "synchronize": "ILLEGAL_ADDRESS",
    "synchronize again": "ILLEGAL_ADDRESS",
    "synchronize the context": "ILLEGAL_ADDRESS",
    "create a stream": "ILLEGAL_ADDRESS",
    "access": AccessFlags.NONE,
}
"""What all trials see."""


def main(name: str) -> None:
    from mempool_cli.driver.cuda import CudaDriver

    driver = CudaDriver()
    driver.init()
    print(json.dumps(TRIALS[name](driver)))
