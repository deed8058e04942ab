"""CudaDriver through NVIDIA's bindings, of whichever generation is installed, on the stand-in library."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from mempool_cli.driver import kernels
from mempool_cli.driver.cuda import CudaDriver
from mempool_cli.driver.identity import describe
from mempool_cli.driver.port import (
    HOST_LOCATION,
    AccessEntry,
    AllocationType,
    CaptureMode,
    DeviceAttribute,
    HandleType,
    HostAllocFlags,
    Location,
    P2PAttribute,
    PointerAttribute,
    PoolAttribute,
    PoolProperties,
    device_location,
)
from mempool_cli.driver.sim.profile import Failure
from mempool_cli.errors import DriverError

from .conftest import OnMachine
from .stand_in import StandIn
from bindings_world import bindings_world
from data_path import own_stream

pytestmark = pytest.mark.standin

MIB = 1 << 20
REPORT = """
import json
from mempool_cli.driver.cuda import CudaDriver
from mempool_cli.driver.identity import describe
from mempool_cli.errors import MempoolError
driver = CudaDriver()
try:
    driver.init()
    describe(driver, None)
    driver.mem_pool_trim_to(driver.device_get_default_mem_pool(0), 0)
except MempoolError as error:
    print(json.dumps([error.problem.code, error.problem.message]))
"""

SHARED_WITH_THE_PROCESSOR = """
from mempool_cli.driver.cuda import CudaDriver
from mempool_cli.driver.port import HOST_LOCATION, HostAllocFlags, PoolProperties
from data_path import own_stream
driver = CudaDriver()
driver.init()
stream = own_stream(driver)
pinned = driver.mem_host_alloc(8192, HostAllocFlags.PORTABLE)
shared = driver.mem_alloc_from_pool_async(8192, driver.mem_pool_create(PoolProperties(HOST_LOCATION)), stream)
driver.store(pinned, b"mine")
driver.store(shared + 8188, b"ours")
print(driver.load(pinned, 4), driver.load(shared + 8188, 4), flush=True)
"""


def access(driver: CudaDriver, pool: int, devices: int) -> list[int]:
    return [driver.mem_pool_get_access(pool, device_location(device)) for device in range(devices)]


def test_the_driver_describes_itself(standin: StandIn, standin_driver: CudaDriver) -> None:
    info = describe(standin_driver, None)
    assert (info.kind, info.cuda_version, info.sim) == ("cuda", "13.0", None)
    assert info.bindings == standin_driver.bindings
    assert info.libcuda is not None
    assert info.libcuda.path == str(standin.library.resolve())


def test_devices(standin_driver: CudaDriver) -> None:
    driver = standin_driver
    assert driver.device_get_count() == 8
    assert driver.device_get(7) == 7
    assert driver.device_get_name(0) == "NVIDIA H200"
    assert driver.device_get_pci_bus_id(1) == "0000:03:00.0"
    assert len({driver.device_get_uuid(device) for device in range(8)}) == 8
    assert all(len(driver.device_get_uuid(device)) == 16 for device in range(8))
    assert driver.device_get_attribute(DeviceAttribute.MEMORY_POOLS_SUPPORTED, 0) == 1
    assert driver.device_can_access_peer(0, 1) is True
    assert driver.device_can_access_peer(0, 0) is False
    assert driver.device_get_p2p_attribute(P2PAttribute.ACCESS_SUPPORTED, 0, 1) == 1


def test_access_is_set_replaced_and_read(standin_driver: CudaDriver) -> None:
    driver = standin_driver
    pool = driver.mem_pool_create(PoolProperties(device_location(0), max_size=64 * MIB))
    driver.mem_pool_set_access(pool, [AccessEntry(device_location(device), 3) for device in (1, 2)])
    driver.mem_pool_set_access(pool, [AccessEntry(device_location(1), 0), AccessEntry(device_location(7), 3)])
    assert access(driver, pool, 8) == [3, 0, 3, 0, 0, 0, 0, 3]
    assert driver.mem_pool_get_access(pool, HOST_LOCATION) == 0
    driver.mem_pool_destroy(pool)


def test_every_property_reaches_the_driver(standin_driver: CudaDriver) -> None:
    driver = standin_driver
    managed = driver.mem_pool_create(PoolProperties(device_location(2), 0, AllocationType.MANAGED))
    assert access(driver, managed, 4) == [0, 0, 0, 0]
    host = driver.mem_pool_create(PoolProperties(HOST_LOCATION, handle_types=HandleType.POSIX_FILE_DESCRIPTOR))
    assert driver.mem_pool_get_access(host, HOST_LOCATION) == 3
    small = driver.mem_pool_create(PoolProperties(device_location(0), max_size=4 * MIB))
    with closing(bindings_world()) as world, pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        world.allocate(small, 64 * MIB)


def test_attributes_of_both_widths(standin_driver: CudaDriver) -> None:
    driver = standin_driver
    pool = driver.device_get_default_mem_pool(0)
    driver.mem_pool_set_attribute(pool, PoolAttribute.RELEASE_THRESHOLD, (1 << 64) - 1)
    driver.mem_pool_set_attribute(pool, PoolAttribute.REUSE_ALLOW_OPPORTUNISTIC, 0)
    assert driver.mem_pool_get_attribute(pool, PoolAttribute.RELEASE_THRESHOLD) == (1 << 64) - 1
    assert driver.mem_pool_get_attribute(pool, PoolAttribute.REUSE_ALLOW_OPPORTUNISTIC) == 0
    assert driver.mem_pool_get_attribute(pool, PoolAttribute.REUSE_FOLLOW_EVENT_DEPENDENCIES) == 1


@pytest.mark.parametrize("attribute", [-1, 0, *range(9, 16), 99])
def test_pool_attributes_of_later_releases_are_invalid_in_all_bindings(
    standin_driver: CudaDriver, attribute: int
) -> None:
    pool = standin_driver.device_get_default_mem_pool(0)
    with pytest.raises(DriverError, match=r"cuMemPoolGetAttribute = CUDA_ERROR_INVALID_VALUE \(1\)"):
        standin_driver.mem_pool_get_attribute(pool, attribute)
    with pytest.raises(DriverError, match=r"cuMemPoolSetAttribute = CUDA_ERROR_INVALID_VALUE \(1\)"):
        standin_driver.mem_pool_set_attribute(pool, attribute, 0)


@pytest.mark.parametrize("number", [2, 4, 7, 0xFFFF, -1])
def test_numbers_of_no_enumeration_reach_the_driver(standin_driver: CudaDriver, number: int) -> None:
    driver = standin_driver
    pool = driver.device_get_default_mem_pool(0)
    invalid = pytest.raises(DriverError, match="INVALID_VALUE")
    with invalid:
        driver.mem_pool_set_access(pool, [AccessEntry(device_location(1), number)])
    strange = Location(number + 100, 0)
    with pytest.raises(DriverError, match="NOT_SUPPORTED"):
        driver.mem_pool_set_access(pool, [AccessEntry(strange, 3)])
    with invalid:
        driver.mem_pool_get_access(pool, strange)
    with invalid:
        driver.mem_pool_create(PoolProperties(strange))
    with invalid:
        driver.mem_pool_create(PoolProperties(device_location(0), allocation_type=number + 100))
    with suppress(DriverError):  # whatever the driver thinks of it
        driver.thread_exchange_stream_capture_mode(number + 100)
    with invalid:
        driver.device_get_attribute(number + 10000, 0)


@pytest.mark.parametrize("flags", [1, 2, 7, 0xFFFF])
def test_flags_keep_their_number(on_machine: OnMachine, flags: int) -> None:
    driver = on_machine("2", answers={"cuMemPoolGetAccess": [0, flags]})
    driver.init()
    assert driver.mem_pool_get_access(driver.device_get_default_mem_pool(0), device_location(1)) == flags


@pytest.mark.parametrize("code", [12345, 77])
def test_result_codes_keep_their_number(on_machine: OnMachine, code: int) -> None:
    calls = ("cuMemPoolGetAccess", "cuMemPoolSetAccess", "cuMemPoolCreate")
    driver = on_machine("2", failures=[Failure(call=call, code=code) for call in calls])
    driver.init()
    pool = driver.device_get_default_mem_pool(0)
    attempts: dict[str, Callable[[], object]] = {
        "cuMemPoolGetAccess": lambda: driver.mem_pool_get_access(pool, device_location(1)),
        "cuMemPoolSetAccess": lambda: driver.mem_pool_set_access(pool, [AccessEntry(device_location(1), 3)]),
        "cuMemPoolCreate": lambda: driver.mem_pool_create(PoolProperties(device_location(0))),
    }
    for call in calls:
        with pytest.raises(DriverError) as caught:
            attempts[call]()
        words = caught.value.words
        assert (words.call, words.code, words.name) == (call, code, f"CUresult {code}")


def test_a_mode_that_the_bindings_do_not_know_is_no_failure(on_machine: OnMachine) -> None:
    driver = on_machine("2", answers={"cuThreadExchangeStreamCaptureMode": [0, 9]})
    driver.init()
    assert driver.thread_exchange_stream_capture_mode(CaptureMode.RELAXED) == 9


def test_names_end_at_nul_and_keep_their_bytes(on_machine: OnMachine) -> None:
    driver = on_machine("1", answers={"cuDeviceGetName": [0, b"\xf8\xff [bold]\xc3\xa9\0rest".hex()]})
    driver.init()
    assert driver.device_get_name(0) == "\udcf8\udcff [bold]é"


def test_cuinit_fails_as_the_driver_says(on_machine: OnMachine) -> None:
    for visible, name in (("none", "NO_DEVICE"), ("0,0", "INVALID_DEVICE")):
        with pytest.raises(DriverError, match=name):
            on_machine("2", visible=visible).init()


def test_nothing_works_before_cuinit_but_the_version(on_machine: OnMachine) -> None:
    driver = on_machine("2")
    assert driver.driver_get_version() == 13000
    with pytest.raises(DriverError, match="NOT_INITIALIZED"):
        driver.device_get_count()


def test_a_missing_function_is_named(standin: StandIn) -> None:
    with standin.machine("1") as machine:
        done = standin.run_python(REPORT, machine, MEMPOOL_STANDIN_HIDDEN="cuMemPoolTrimTo,cuMemPoolDestroy")
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == ["missing-function", "this CUDA driver has no cuMemPoolTrimTo"]


def test_a_driver_before_12_is_too_old(standin: StandIn) -> None:
    with standin.machine("1", driver_version=11080) as machine:
        done = standin.run_python(REPORT, machine, library=standin.library_before_12)
    assert done.stdout, done.stderr
    code, message = json.loads(done.stdout)
    assert code == "driver-too-old"
    assert "needs a CUDA 12.0 driver" in message


def test_unknown_errors_of_the_bindings_are_not_swallowed(standin_driver: CudaDriver) -> None:
    with pytest.raises(TypeError):
        standin_driver.mem_pool_trim_to("no pool", 0)  # type: ignore[arg-type]


def test_bytes_of_any_number_and_value_reach_memory_and_come_back(standin_driver: CudaDriver) -> None:
    driver = standin_driver
    stream = own_stream(driver)
    pointer = driver.mem_alloc_from_pool_async(MIB, driver.device_get_default_mem_pool(0), stream)
    data = bytes(range(256)) * (MIB // 256)
    driver.memcpy_htod(pointer, data)
    assert driver.memcpy_dtoh(pointer, MIB) == data
    driver.memcpy_htod(pointer + 1, b"\0\xff")
    assert driver.memcpy_dtoh(pointer, 4) == b"\0\0\xff\3"
    assert driver.memcpy_dtoh(pointer, 0) == b""


def test_pointer_attributes_that_nobody_knows_are_invalid(standin_driver: CudaDriver) -> None:
    driver = standin_driver
    pointer = driver.mem_alloc_from_pool_async(MIB, driver.device_get_default_mem_pool(0), own_stream(driver))
    for attribute in (-1, 0, 99):
        with pytest.raises(DriverError, match=r"cuPointerGetAttribute = CUDA_ERROR_INVALID_VALUE \(1\)"):
            driver.pointer_get_attribute(attribute, pointer)


def test_modes_and_statuses_that_nobody_knows_keep_their_number(on_machine: OnMachine) -> None:
    driver = on_machine("1", answers={"cuStreamIsCapturing": [0, 9], "cuPointerGetAttribute": [0, 7]})
    driver.init()
    stream = own_stream(driver)
    assert driver.stream_is_capturing(stream) == 9
    assert driver.pointer_get_attribute(PointerAttribute.ACCESS_FLAGS, 1 << 46) == 7
    with pytest.raises(DriverError, match=r"cuStreamBeginCapture = CUDA_ERROR_INVALID_VALUE \(1\)"):
        driver.stream_begin_capture(stream, 9)


@pytest.mark.parametrize(
    "touch",
    [
        "driver.mem_free_host(pinned); driver.load(pinned, 4)",
        "driver.mem_free_async(shared, stream); driver.store(shared + 8188, b'gone')",
        "driver.load(shared + 8192, 1)",
    ],
    ids=["freed", "freed to its pool", "beyond the end"],
)
def test_what_is_no_memory_of_the_host_kills_the_process(standin: StandIn, touch: str) -> None:
    with standin.machine("1") as machine:
        done = standin.run_python(SHARED_WITH_THE_PROCESSOR + touch, machine)
    assert (done.stdout, done.returncode) == ("b'mine' b'ours'\n", -signal.SIGSEGV)


def test_memory_of_the_host_is_that_of_one_machine(on_machine: OnMachine) -> None:
    seen = []
    for _ in range(2):
        driver = on_machine("1")
        driver.init()
        own_stream(driver)
        pinned, freed = (driver.mem_host_alloc(5000, HostAllocFlags.PORTABLE) for _ in range(2))
        seen.append((pinned, driver.load(pinned, 5000)))
        driver.store(pinned, b"x" * 5000)
        driver.mem_free_host(freed)
        with pytest.raises(DriverError, match="cuMemFreeHost = CUDA_ERROR_INVALID_VALUE"):
            driver.mem_free_host(freed)
        with pytest.raises(DriverError, match="cuMemFreeAsync = CUDA_ERROR_INVALID_VALUE"):
            driver.mem_free_async(pinned, 0)
        assert driver.load(pinned, 5000) == b"x" * 5000
        assert Path("/proc/self/maps").read_text().count("/memfd:mempool-standin") == 1
    assert seen == [(pinned, bytes(5000))] * 2


def test_the_processor_and_kernels_share_more_than_a_page(standin_driver: CudaDriver) -> None:
    with closing(bindings_world()) as world, world.pinned(1 << 18) as pinned:
        world.launch(kernels.FILL, kernels.fill_parameters(pinned + 8, 20_000, 1 << 56, 1))
        longs = [(1 << 56) + index for index in range(20_000)]
        assert world.driver.load(pinned, 160_016) == b"".join(long.to_bytes(8, "little") for long in [0, *longs, 0])
        world.driver.store(pinned + 65_530, bytes(14))
        assert world.tally(pinned + 8, 20_000, 1 << 56, 1, other=5) == (2, 1, 0, 8190)
        world.driver.memset_d8_async(pinned + 100_000, 0xA5, 100_000, world.stream())
        assert world.driver.load(pinned + 99_999, 100_002) == b"\1" + b"\xa5" * 100_000 + b"\0"


def test_elapsed_times_have_fractions_and_a_sign(on_machine: OnMachine) -> None:
    for nanoseconds, milliseconds in ((1_500_000, 1.5), (-2_500_000, -2.5), (0, 0.0)):
        driver = on_machine("1", answers={"cuEventElapsedTime": [0, nanoseconds]})
        driver.init()
        assert driver.event_elapsed_time(1, 2) == milliseconds
