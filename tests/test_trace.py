"""A trace is one line a driver call, as strace writes them: its name, arguments, result and duration."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from mempool_cli.driver import kernels
from mempool_cli.driver.guard import GuardedDriver
from mempool_cli.driver.port import (
    HOST_LOCATION,
    NO_CALLS,
    AccessEntry,
    CaptureMode,
    DeviceAttribute,
    Driver,
    Location,
    LocationType,
    PointerAttribute,
    PoolProperties,
    StreamFlags,
    device_location,
    driver_call,
)
from mempool_cli.driver.sim.machine import Machine, Process
from mempool_cli.driver.sim.profile import parse_spec
from mempool_cli.driver.trace import TracedDriver
from mempool_cli.errors import DriverError

NODE = Location(LocationType.HOST_NUMA, 1)


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def driver(lines: list[str]) -> TracedDriver:
    traced = TracedDriver(Machine(parse_spec("dgx-h200")).process(), lines.append)
    traced.init()
    lines.clear()
    return traced


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda d: d.init(), "cuInit() = CUDA_SUCCESS"),
        (lambda d: d.driver_get_version(), "cuDriverGetVersion() = 13000"),
        (lambda d: d.device_get_count(), "cuDeviceGetCount() = 8"),
        (lambda d: d.device_get_name(0), "cuDeviceGetName(0) = 'NVIDIA H200'"),
        (lambda d: d.device_get_uuid(0), "cuDeviceGetUuid(0) = 6090f7d1e4dd57e69768669dad3214b8"),
        (lambda d: d.device_get_pci_bus_id(1), "cuDeviceGetPCIBusId(1) = '0000:03:00.0'"),
        (lambda d: d.device_get_attribute(115, 2), "cuDeviceGetAttribute(115, 2) = 1"),
        (
            lambda d: d.device_get_attribute(DeviceAttribute.MEMORY_POOLS_SUPPORTED, 2),
            "cuDeviceGetAttribute(MEMORY_POOLS_SUPPORTED, 2) = 1",
        ),
        (lambda d: d.device_can_access_peer(1, 0), "cuDeviceCanAccessPeer(1, 0) = 1"),
        (lambda d: d.device_get_p2p_attribute(2, 1, 0), "cuDeviceGetP2PAttribute(2, 1, 0) = 1"),
        (
            lambda d: d.thread_exchange_stream_capture_mode(CaptureMode.RELAXED),
            "cuThreadExchangeStreamCaptureMode(RELAXED) = 0",
        ),
        (lambda d: d.device_get_default_mem_pool(0), "cuDeviceGetDefaultMemPool(0) = 0x550000000000"),
        (lambda d: d.device_get_mem_pool(0), "cuDeviceGetMemPool(0) = 0x550000000000"),
        (
            lambda d: d.mem_pool_create(PoolProperties(device_location(3), 4096)),
            "cuMemPoolCreate(device 3, max_size 4096) = 0x550000000000",
        ),
        (
            lambda d: d.mem_pool_create(PoolProperties(HOST_LOCATION)),
            "cuMemPoolCreate(host, max_size 0) = 0x550000000000",
        ),
        (
            lambda d: d.mem_pool_create(PoolProperties(NODE)),
            "cuMemPoolCreate(host_numa 1, max_size 0) = 0x550000000000",
        ),
    ],
)
def test_a_call_and_its_result(
    driver: TracedDriver, lines: list[str], call: Callable[[TracedDriver], object], line: str
) -> None:
    call(driver)
    assert len(lines) == 1
    assert re.fullmatch(re.escape(line) + r" <\d+ us>", lines[0])


def test_calls_on_a_pool(driver: TracedDriver, lines: list[str]) -> None:
    pool = driver.mem_pool_create(PoolProperties(device_location(0)))
    lines.clear()
    driver.mem_pool_set_access(pool, [AccessEntry(device_location(1), 3), AccessEntry(device_location(2), 0)])
    assert driver.mem_pool_get_access(pool, device_location(1)) == 3
    driver.mem_pool_get_access(pool, HOST_LOCATION)
    driver.mem_pool_get_access(pool, NODE)
    driver.mem_pool_set_attribute(pool, 4, 1 << 64)
    driver.mem_pool_get_attribute(pool, 4)
    driver.device_set_mem_pool(0, pool)
    driver.mem_pool_trim_to(pool, 0)
    driver.mem_pool_destroy(pool)
    assert [re.sub(r" <\d+ us>$", "", line) for line in lines] == [
        "cuMemPoolSetAccess(0x550000000000, [device 1 READWRITE, device 2 NONE]) = CUDA_SUCCESS",
        "cuMemPoolGetAccess(0x550000000000, device 1) = READWRITE",
        "cuMemPoolGetAccess(0x550000000000, host) = NONE",
        "cuMemPoolGetAccess(0x550000000000, host_numa 1) = NONE",
        "cuMemPoolSetAttribute(0x550000000000, 4, 18446744073709551616) = CUDA_SUCCESS",
        "cuMemPoolGetAttribute(0x550000000000, 4) = 18446744073709551616",
        "cuDeviceSetMemPool(0, 0x550000000000) = CUDA_SUCCESS",
        "cuMemPoolTrimTo(0x550000000000, 0) = CUDA_SUCCESS",
        "cuMemPoolDestroy(0x550000000000) = CUDA_SUCCESS",
    ]


def test_calls_of_programs(driver: TracedDriver, lines: list[str]) -> None:
    pool = driver.mem_pool_create(PoolProperties(device_location(0)))
    lines.clear()
    context = driver.device_primary_ctx_retain(0)
    driver.ctx_set_current(context)
    stream = driver.stream_create(StreamFlags.NON_BLOCKING)
    pointer = driver.mem_alloc_from_pool_async(4096, pool, stream)
    driver.memcpy_htod(pointer, bytes(16))
    driver.memcpy_htod(pointer, bytes(17))
    driver.memset_d8_async(pointer, 0xFF, 16, stream)
    driver.memcpy_async(pointer + 16, pointer, 16, stream)
    driver.memcpy_dtoh(pointer, 4)
    driver.pointer_get_attribute(PointerAttribute.ACCESS_FLAGS, pointer)
    module = driver.module_load_data(kernels.IMAGE)
    function = driver.module_get_function(module, kernels.WRITE)
    driver.launch_kernel(function, (1, 1, 1), (1, 1, 1), stream, kernels.write_parameters(pointer, 1))
    driver.stream_synchronize(stream)
    driver.stream_begin_capture(stream, CaptureMode.RELAXED)
    driver.stream_is_capturing(stream)
    driver.graph_destroy(driver.stream_end_capture(stream))
    driver.mem_free_async(pointer, stream)
    driver.ctx_synchronize()
    driver.stream_destroy(stream)
    driver.device_primary_ctx_release(0)
    assert [re.sub(r" <\d+ us>$", "", line) for line in lines] == [
        "cuDevicePrimaryCtxRetain(0) = 0x600000000000",
        "cuCtxSetCurrent(0x600000000000) = CUDA_SUCCESS",
        "cuStreamCreate(NON_BLOCKING) = 0x610000000000",
        "cuMemAllocFromPoolAsync(4096, 0x550000000000, 0x610000000000) = 0x7f0000000000",
        "cuMemcpyHtoD(0x7f0000000000, 00000000000000000000000000000000) = CUDA_SUCCESS",
        "cuMemcpyHtoD(0x7f0000000000, 17 bytes) = CUDA_SUCCESS",
        "cuMemsetD8Async(0x7f0000000000, 255, 16, 0x610000000000) = CUDA_SUCCESS",
        "cuMemcpyAsync(0x7f0000000010, 0x7f0000000000, 16, 0x610000000000) = CUDA_SUCCESS",
        "cuMemcpyDtoH(0x7f0000000000, 4) = ffffffff",
        "cuPointerGetAttribute(ACCESS_FLAGS, 0x7f0000000000) = 3",
        f"cuModuleLoadData({len(kernels.IMAGE)} bytes) = 0x630000000000",
        "cuModuleGetFunction(0x630000000000, 'mempool_write') = 0x630000000100",
        "cuLaunchKernel(0x630000000100, [1, 1, 1], [1, 1, 1], 0x610000000000, 00000000007f000001000000) = CUDA_SUCCESS",
        "cuStreamSynchronize(0x610000000000) = CUDA_SUCCESS",
        "cuStreamBeginCapture(0x610000000000, RELAXED) = CUDA_SUCCESS",
        "cuStreamIsCapturing(0x610000000000) = 1",
        "cuStreamEndCapture(0x610000000000) = 0x620000000000",
        "cuGraphDestroy(0x620000000000) = CUDA_SUCCESS",
        "cuMemFreeAsync(0x7f0000000000, 0x610000000000) = CUDA_SUCCESS",
        "cuCtxSynchronize() = CUDA_SUCCESS",
        "cuStreamDestroy(0x610000000000) = CUDA_SUCCESS",
        "cuDevicePrimaryCtxRelease(0) = CUDA_SUCCESS",
    ]


def test_a_call_that_fails_is_a_line_too_and_fails_as_before(driver: TracedDriver, lines: list[str]) -> None:
    pool = driver.device_get_default_mem_pool(0)
    lines.clear()
    with pytest.raises(DriverError) as caught:
        driver.mem_pool_set_access(pool, [AccessEntry(device_location(0), 0), AccessEntry(Location(77, 5), 0x7F)])
    assert (caught.value.words.code, caught.value.words.name) == (801, "CUDA_ERROR_NOT_SUPPORTED")
    assert re.fullmatch(
        r"cuMemPoolSetAccess\(0x550000000000, \[device 0 NONE, location type 77 id 5 0x7f\]\)"
        r" = CUDA_ERROR_NOT_SUPPORTED \(801\) <\d+ us>",
        lines[0],
    )
    assert len(lines) == 1


class Odd(Process):
    """A process whose cuMemPoolGetAccess answers flags that nobody knows."""

    def mem_pool_get_access(self, pool: int, location: Location) -> int:
        return 7


def test_flags_that_nobody_knows_keep_their_number(lines: list[str]) -> None:
    driver = TracedDriver(Odd(Machine(parse_spec("1")), None), lines.append)
    driver.init()
    driver.mem_pool_get_access(driver.device_get_default_mem_pool(0), device_location(0))
    assert " = 0x7 <" in lines[-1]


def test_every_call_of_the_port_is_traced_under_its_driver_name(lines: list[str]) -> None:
    names = [driver_call(method) for method in vars(Driver) if not method.startswith("_") and method not in NO_CALLS]
    assert len(names) == 49
    assert {"cuInit", "cuDeviceGetUuid", "cuDeviceGetPCIBusId", "cuDeviceGetP2PAttribute"} <= set(names)
    assert {"cuMemPoolSetAccess", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemsetD8Async"} <= set(names)
    assert all(re.fullmatch(r"cu[A-Z]\w+", name) for name in names)


def test_it_can_stand_on_either_side_of_the_guard(lines: list[str]) -> None:
    process = Machine(parse_spec("2")).process()
    for driver in (
        TracedDriver(GuardedDriver(process), lines.append),
        GuardedDriver(TracedDriver(process, lines.append)),
    ):
        lines.clear()
        driver.init()
        pool = driver.mem_pool_create(PoolProperties(device_location(0)))
        driver.mem_pool_destroy(pool)
        assert [line.partition("(")[0] for line in lines] == ["cuInit", "cuMemPoolCreate", "cuMemPoolDestroy"]


def test_what_is_no_call_is_passed_on(driver: TracedDriver, lines: list[str]) -> None:
    assert driver.kind == "sim"
    with pytest.raises(AttributeError):
        _ = driver.no_such_thing
    assert lines == []
