"""The simulator's memory, contexts and kernels beyond what the driver contract says of them."""

from __future__ import annotations

import threading

import pytest

from mempool_cli.driver import kernels
from mempool_cli.driver.port import (
    HOST_LOCATION,
    AccessFlags,
    CaptureMode,
    Driver,
    Location,
    PointerAttribute,
    PoolProperties,
    device_location,
)
from mempool_cli.driver.sim.machine import Machine
from mempool_cli.driver.sim.profile import parse_spec

import data_path
from data_path import ONE, own_stream, refusal, set_flags

DEVICE_0 = device_location(0)
GIB = 1 << 30
NONE, READ, READWRITE = AccessFlags


def process(spec: str = "2") -> Driver:
    started = Machine(parse_spec(spec)).process()
    started.init()
    return started


def write(driver: Driver, stream: int, pointer: int) -> str:
    """What a kernel that writes to `pointer` leads to."""
    function = data_path.kernel(driver, kernels.WRITE)
    driver.launch_kernel(function, ONE, ONE, stream, kernels.write_parameters(pointer, 7))
    return refusal(lambda: driver.stream_synchronize(stream))


# --- memory ---


def test_memory_keeps_what_is_written_across_pages() -> None:
    driver = process()
    own_stream(driver)
    pool = driver.device_get_default_mem_pool(0)
    data = bytes(range(251)) * 1000
    pointer = driver.mem_alloc_from_pool_async(1 << 20, pool, 0)
    driver.memcpy_htod(pointer + 65_000, data)
    driver.memset_d8_async(pointer + 131_000, 0xAA, 100, 0)
    expected = bytearray(1 << 20)
    expected[65_000 : 65_000 + len(data)] = data
    expected[131_000:131_100] = b"\xaa" * 100
    assert driver.memcpy_dtoh(pointer, 1 << 20) == expected


def test_allocations_as_large_as_a_card_do_not_overlap() -> None:
    driver = process()
    stream = own_stream(driver)
    pool = driver.device_get_default_mem_pool(0)
    first, second = (driver.mem_alloc_from_pool_async(60 * GIB, pool, stream) for _ in range(2))
    driver.memcpy_htod(first + 60 * GIB - 4, b"last")
    driver.memcpy_htod(second, b"next")
    assert driver.memcpy_dtoh(first + 60 * GIB - 4, 4) == b"last"
    assert refusal(lambda: driver.memcpy_dtoh(first + 60 * GIB - 4, 8)) == "INVALID_VALUE"


def test_freed_memory_is_no_memory() -> None:
    driver = process()
    stream = own_stream(driver)
    pointer = driver.mem_alloc_from_pool_async(4096, driver.device_get_default_mem_pool(0), stream)
    driver.mem_free_async(pointer, stream)
    assert refusal(lambda: driver.memcpy_dtoh(pointer, 4)) == "INVALID_VALUE"
    assert refusal(lambda: driver.mem_free_async(pointer, stream)) == "INVALID_VALUE"
    assert write(driver, stream, pointer) == "ILLEGAL_ADDRESS"


def test_memory_of_a_destroyed_pool_stays_until_it_is_freed() -> None:
    driver = process()
    stream = own_stream(driver)
    pool = driver.mem_pool_create(PoolProperties(DEVICE_0))
    pointer = driver.mem_alloc_from_pool_async(4096, pool, stream)
    driver.mem_pool_destroy(pool)
    assert write(driver, stream, pointer) == "SUCCESS"


def test_nothing_of_zero_bytes_keeps_a_handle() -> None:
    driver = process()
    stream = own_stream(driver)
    handles = []
    for _ in range(8):
        handles.append(driver.mem_pool_create(PoolProperties(DEVICE_0)))
        assert driver.mem_alloc_from_pool_async(0, handles[-1], stream) == 0
        driver.mem_pool_destroy(handles[-1])
    assert len(set(handles)) < 8


# --- contexts, streams and capture ---


def test_a_lost_context_is_lost_for_its_device_only() -> None:
    driver = process()
    pool = driver.mem_pool_create(PoolProperties(HOST_LOCATION))
    set_flags(driver, pool, 1, READWRITE)
    first, second = own_stream(driver, 0), own_stream(driver, 1)
    pointer = driver.mem_alloc_from_pool_async(4096, pool, second)
    assert write(driver, second, pointer) == "SUCCESS"
    driver.ctx_set_current(driver.device_primary_ctx_retain(0))
    assert write(driver, first, pointer) == "ILLEGAL_ADDRESS"
    assert refusal(lambda: driver.mem_alloc_from_pool_async(4096, pool, first)) == "ILLEGAL_ADDRESS"
    assert refusal(lambda: driver.mem_alloc_from_pool_async(4096, pool, 0)) == "ILLEGAL_ADDRESS"
    assert refusal(lambda: driver.mem_alloc_from_pool_async(4096, pool, second)) == "SUCCESS"
    assert refusal(lambda: driver.mem_pool_destroy(pool)) == "SUCCESS"


def test_a_context_that_is_none_cannot_be_current() -> None:
    """Never retained, or released for good. The current one stays. On hardware an invented handle may crash."""
    driver = process()
    own_stream(driver)
    gone = driver.device_primary_ctx_retain(1)
    driver.device_primary_ctx_release(1)
    assert [refusal(lambda each=each: driver.ctx_set_current(each)) for each in (0x1234, gone)] == [  # type: ignore[misc]
        "INVALID_CONTEXT",
        "INVALID_CONTEXT",
    ]
    assert refusal(driver.ctx_synchronize) == "SUCCESS"


def test_a_peer_copy_names_the_contexts_of_its_memory() -> None:
    """What the driver does with others is not published: here it is refused, since only a fault of ours names them."""
    driver = process("3")
    contexts = [driver.device_primary_ctx_retain(device) for device in range(3)]
    memory = []
    for device in (0, 1):
        stream = own_stream(driver, device)
        memory.append(driver.mem_alloc_from_pool_async(4096, driver.device_get_default_mem_pool(device), stream))
    pool = driver.mem_pool_create(PoolProperties(HOST_LOCATION))
    shared = driver.mem_alloc_from_pool_async(4096, pool, stream)

    def copy(to: int, to_context: int, source: int, source_context: int) -> str:
        return refusal(lambda: driver.memcpy_peer_async(to, to_context, source, source_context, 4096, stream))

    first, second, third = contexts
    assert copy(memory[0], first, memory[1], second) == "SUCCESS"
    assert copy(memory[0], 0, memory[1], 0) == "SUCCESS"
    assert copy(memory[0], second, memory[1], first) == "INVALID_VALUE"
    assert copy(memory[0], third, memory[1], second) == "INVALID_VALUE"
    assert copy(memory[0], first, memory[1], third) == "INVALID_VALUE"
    assert copy(memory[0], 0x1234, memory[1], second) == "INVALID_CONTEXT"
    assert copy(memory[0], first, shared, third) == "SUCCESS"


def test_a_context_is_current_to_one_thread() -> None:
    driver = process()
    own_stream(driver)
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(refusal(driver.ctx_synchronize)))
    thread.start()
    thread.join()
    assert (seen, refusal(driver.ctx_synchronize)) == (["INVALID_CONTEXT"], "SUCCESS")


def test_streams_that_are_none() -> None:
    driver = process()
    stream = own_stream(driver)
    driver.stream_destroy(stream)
    assert refusal(lambda: driver.stream_synchronize(stream)) == "INVALID_HANDLE"
    assert refusal(lambda: driver.stream_end_capture(0)) == "ILLEGAL_STATE"
    assert refusal(lambda: driver.stream_begin_capture(0, CaptureMode.GLOBAL)) == "STREAM_CAPTURE_UNSUPPORTED"


def test_work_that_is_captured_does_not_run() -> None:
    driver = process()
    stream = own_stream(driver)
    pointer = driver.mem_alloc_from_pool_async(4096, driver.device_get_default_mem_pool(0), stream)
    function = data_path.kernel(driver, kernels.WRITE)
    driver.stream_begin_capture(stream, CaptureMode.RELAXED)
    driver.launch_kernel(function, ONE, ONE, stream, kernels.write_parameters(pointer, 7))
    driver.memset_d8_async(pointer, 7, 16, stream)
    driver.graph_destroy(driver.stream_end_capture(stream))
    assert driver.memcpy_dtoh(pointer, 16) == bytes(16)


# --- kernels ---


def test_kernels_belong_to_a_context_and_take_their_own_parameters() -> None:
    driver = process()
    first, second = own_stream(driver, 0), own_stream(driver, 1)
    function = data_path.kernel(driver, kernels.READ)

    def launch(stream: int, parameters: bytes, block: tuple[int, int, int] = ONE) -> str:
        return refusal(lambda: driver.launch_kernel(function, ONE, block, stream, parameters))

    assert launch(first, bytes(16)) == "INVALID_HANDLE"
    own_stream(driver, 0)
    assert launch(second, bytes(16)) == "INVALID_HANDLE"
    driver.ctx_set_current(0)
    assert launch(second, bytes(16)) == "INVALID_CONTEXT"
    own_stream(driver, 1)
    assert launch(second, bytes(15)) == "INVALID_VALUE"
    assert launch(second, bytes(16), (0, 1, 1)) == "INVALID_VALUE"
    assert refusal(lambda: driver.launch_kernel(1, ONE, ONE, second, b"")) == "INVALID_HANDLE"
    assert refusal(lambda: driver.module_get_function(1, kernels.READ)) == "INVALID_HANDLE"


def test_only_the_kernels_of_the_image_are_found() -> None:
    driver = process()
    assert refusal(lambda: driver.module_load_data(kernels.IMAGE)) == "INVALID_CONTEXT"
    own_stream(driver)
    other = driver.module_load_data(b".version 6.4\n.target sm_50\n.visible .entry other() { ret; }\0")
    assert refusal(lambda: driver.module_get_function(other, kernels.WRITE)) == "NOT_FOUND"
    assert refusal(lambda: driver.module_get_function(other, "other")) == "NOT_FOUND"


# --- named faults ---


def test_a_copy_after_a_grant_leaves_zeros_with_that_fault() -> None:
    """CUDA.jl #3112: all codes SUCCESS, and zeros in the pool. A kernel's write arrives."""
    driver = process("2,fault=lost-after-setaccess")
    pool = driver.mem_pool_create(PoolProperties(DEVICE_0))
    memory = driver.mem_alloc_from_pool_async(4096, pool, own_stream(driver))
    stream = own_stream(driver, 1)
    payload = driver.mem_alloc_from_pool_async(4096, driver.device_get_default_mem_pool(1), stream)
    driver.memcpy_htod(payload, b"data" * 1024)
    found = []
    for flags in (NONE, READWRITE):
        driver.memcpy_htod(memory, b"old!" * 1024)
        if flags:
            set_flags(driver, pool, 1, flags)
        driver.memcpy_peer_async(memory, 0, payload, 0, 2048, stream)
        found.append(driver.memcpy_dtoh(memory, 4096))
    assert found == [b"data" * 512 + b"old!" * 512, bytes(2048) + b"old!" * 512]
    assert write(driver, stream, memory) == "SUCCESS"
    assert driver.memcpy_dtoh(memory, 4) == bytes([7, 0, 0, 0])


@pytest.mark.parametrize("location", [HOST_LOCATION, Location(2, 0), Location(3, 0)])
def test_with_the_fault_a_host_pool_keeps_what_is_revoked(location: Location) -> None:
    driver = process("2,fault=host-pool-revoke")
    stream = own_stream(driver)
    pool = driver.mem_pool_create(PoolProperties(location))
    pointer = driver.mem_alloc_from_pool_async(4096, pool, stream)
    assert driver.mem_pool_get_access(pool, DEVICE_0) == NONE
    set_flags(driver, pool, 0, READWRITE)
    set_flags(driver, pool, 0, NONE)
    assert driver.mem_pool_get_access(pool, DEVICE_0) == READWRITE
    assert write(driver, stream, pointer) == "SUCCESS"


def test_the_fault_of_host_pools_spares_device_pools() -> None:
    driver = process("2,fault=host-pool-revoke")
    pool = driver.mem_pool_create(PoolProperties(DEVICE_0))
    set_flags(driver, pool, 1, READWRITE)
    set_flags(driver, pool, 1, NONE)
    assert driver.mem_pool_get_access(pool, device_location(1)) == NONE


@pytest.mark.parametrize(("spec", "ungranted"), [("2", READWRITE), ("2,fault=honest-pointer-flags", NONE)])
def test_pointer_flags_tell_the_access_of_the_current_device_only_with_the_fault(spec: str, ungranted: int) -> None:
    driver = process(spec)
    own_stream(driver)
    pool = driver.mem_pool_create(PoolProperties(HOST_LOCATION))
    pointer = driver.mem_alloc_from_pool_async(4096, pool, 0)

    def flags() -> int:
        return driver.pointer_get_attribute(PointerAttribute.ACCESS_FLAGS, pointer)

    assert flags() == ungranted
    set_flags(driver, pool, 0, READWRITE)
    assert flags() == READWRITE
    own_stream(driver, 1)
    assert flags() == ungranted
    assert refusal(lambda: driver.pointer_get_attribute(99, pointer)) == "INVALID_VALUE"
