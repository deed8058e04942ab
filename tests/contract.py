"""The driver contract: every measured row of docs/driver-notes.md that the port can say, as a test.

It runs on the simulator, on the real bindings over the stand-in library, and on hardware. A class that runs
it has a fixture `world`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from mempool_cli.driver import kernels, longs
from mempool_cli.driver.port import (
    HOST_LOCATION,
    AccessEntry,
    AccessFlags,
    AllocationType,
    CaptureMode,
    CaptureStatus,
    DeviceAttribute,
    Driver,
    EventFlags,
    HandleType,
    HostAllocFlags,
    Location,
    LocationType,
    P2PAttribute,
    PointerAttribute,
    PoolAttribute,
    PoolProperties,
    StreamFlags,
    device_location,
)
from mempool_cli.errors import DriverError

import data_path
from data_path import refusal

NONE, READ, READWRITE = AccessFlags
DEVICE_0 = device_location(0)
NODE_0 = Location(LocationType.HOST_NUMA, 0)
UNKNOWN_TYPE = 99
POOL_CALLS = ["set", "get", "create", "destroy", "attribute", "trim", "current"]
ODD_FLAGS = (2, 4, 7, 0xFFFF, -1)
HOST_PLACES = (HOST_LOCATION, NODE_0)
GIB = 1 << 30
BASE = 0x8123_4567_0000_0000
POISON = 0x5E47_1E5A_5E47_1E5A
ADDRESS_SPACE = 128 << 40


class Capture:
    """A stream capture that a test has begun."""

    def __init__(self, driver: Driver, stream: int, mode: CaptureMode) -> None:
        self._driver = driver
        self._stream = stream
        driver.stream_begin_capture(stream, mode)

    def end(self) -> bool:
        """Ends it; whether it survived."""
        try:
            graph = self._driver.stream_end_capture(self._stream)
        except DriverError:
            return False
        self._driver.graph_destroy(graph)
        return True


class World:
    """A driver after init, and the `memory` of device 0 in bytes.

    A context and a stream exist only once a test needs them: pool calls must work without.
    """

    def __init__(self, driver: Driver, memory: int) -> None:
        self.driver = driver
        self.devices = driver.device_get_count()
        self.memory = memory
        self._stream: int | None = None

    def stream(self) -> int:
        """A stream of device 0, whose context becomes the calling thread's."""
        if self._stream is None:
            self._stream = data_path.own_stream(self.driver)
        return self._stream

    def allocate(self, pool: int, size: int) -> int:
        pointer = self.driver.mem_alloc_from_pool_async(size, pool, self.stream())
        self.driver.stream_synchronize(self.stream())
        return pointer

    @contextmanager
    def memory_of(self, pool: int, size: int = 4096) -> Iterator[int]:
        """Memory of the pool for a while."""
        pointer = self.allocate(pool, size)
        try:
            yield pointer
        finally:
            self.free(pointer)

    def launch(self, name: str, parameters: bytes, blocks: int = 1, threads: int = 1) -> None:
        """A kernel of the package, to its end."""
        stream = self.stream()
        function = data_path.kernel(self.driver, name)
        self.driver.launch_kernel(function, (blocks, 1, 1), (threads, 1, 1), stream, parameters)
        self.driver.stream_synchronize(stream)

    @contextmanager
    def pinned(self, size: int = 4096) -> Iterator[int]:
        """Pinned memory of the host for a while."""
        self.stream()
        pointer = self.driver.mem_host_alloc(size, HostAllocFlags.PORTABLE)
        try:
            yield pointer
        finally:
            self.driver.mem_free_host(pointer)

    def tally(self, pointer: int, count: int, base: int, step: int, other: int = 0) -> longs.Tally:
        """What CHECK finds there."""
        with self.pinned() as at:
            self.driver.store(at, longs.Tally().bytes())
            self.launch(kernels.CHECK, kernels.check_parameters(pointer, count, base, step, other, at), 4, 64)
            return longs.tally(self.driver.load(at, longs.TALLY_BYTES))

    def free(self, pointer: int) -> None:
        self.driver.mem_free_async(pointer, self.stream())
        self.driver.stream_synchronize(self.stream())

    def begin_capture(self, mode: CaptureMode) -> Capture:
        return Capture(self.driver, self.stream(), mode)

    def close(self) -> None:
        if self._stream is not None:
            self.driver.stream_destroy(self._stream)
            self.driver.ctx_set_current(0)
            self.driver.device_primary_ctx_release(0)


def set_access(world: World, pool: int, *entries: tuple[Location, int]) -> str:
    return refusal(lambda: world.driver.mem_pool_set_access(pool, [AccessEntry(*entry) for entry in entries]))


def get_access(world: World, pool: int, location: Location) -> int | str:
    try:
        return world.driver.mem_pool_get_access(pool, location)
    except DriverError as error:
        return error.words.name.removeprefix("CUDA_ERROR_")


@contextmanager
def pool_on(
    world: World, location: Location, max_size: int = GIB, allocation_type: int = AllocationType.PINNED
) -> Iterator[int]:
    pool = world.driver.mem_pool_create(PoolProperties(location, max_size, allocation_type))
    try:
        yield pool
    finally:
        world.driver.mem_pool_destroy(pool)


def in_thread(work: Callable[[], None]) -> None:
    """Runs it in another thread and raises here what it raised there."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


Trial = Callable[[str], data_path.Seen]


class Contract:
    """Where it runs."""

    @pytest.fixture
    def world(self) -> Iterator[World] | World:
        raise NotImplementedError

    @pytest.fixture
    def trial(self, world: World) -> Trial:
        """Runs one of data_path's trials in a process that nobody needs afterwards: here the world of this test."""
        return lambda name: data_path.TRIALS[name](world.driver)


class DriverContract(Contract):
    """Rows that one device can show."""

    @pytest.fixture
    def pool(self, world: World) -> Iterator[int]:
        with pool_on(world, DEVICE_0) as pool:
            yield pool

    @pytest.fixture(params=HOST_PLACES, ids=["host", "numa"])
    def host_pool(self, world: World, request: pytest.FixtureRequest) -> Iterator[int]:
        with pool_on(world, request.param) as pool:
            yield pool

    # --- devices ---

    def test_a_device_has_its_identity(self, world: World) -> None:
        driver = world.driver
        device = driver.device_get(0)
        assert device == 0
        assert driver.device_get_name(device)
        assert len(driver.device_get_uuid(device)) == 16
        assert driver.device_get_pci_bus_id(device).count(":") == 2
        assert driver.driver_get_version() >= 12000

    def test_an_ordinal_out_of_range_is_an_invalid_device(self, world: World) -> None:
        for ordinal in (world.devices, -1):
            assert refusal(lambda ordinal=ordinal: world.driver.device_get(ordinal)) == "INVALID_DEVICE"  # type: ignore[misc]

    def test_a_device_is_no_peer_of_itself(self, world: World) -> None:
        assert world.driver.device_can_access_peer(0, 0) is False
        attribute = P2PAttribute.ACCESS_SUPPORTED
        assert refusal(lambda: world.driver.device_get_p2p_attribute(attribute, 0, 0)) == "INVALID_DEVICE"

    def test_a_peer_out_of_range_is_an_invalid_device(self, world: World) -> None:
        driver, none = world.driver, world.devices
        assert refusal(lambda: driver.device_can_access_peer(0, none)) == "INVALID_DEVICE"
        attribute = P2PAttribute.ACCESS_SUPPORTED
        assert refusal(lambda: driver.device_get_p2p_attribute(attribute, 0, none)) == "INVALID_DEVICE"

    # --- set access: device pools ---

    def test_the_owner_may_be_granted_again(self, world: World, pool: int) -> None:
        assert set_access(world, pool, (DEVICE_0, READWRITE)) == "SUCCESS"
        assert get_access(world, pool, DEVICE_0) == READWRITE

    def test_the_owner_cannot_lose_access(self, world: World, pool: int) -> None:
        assert set_access(world, pool, (DEVICE_0, NONE)) == "INVALID_DEVICE"
        assert set_access(world, world.driver.device_get_default_mem_pool(0), (DEVICE_0, NONE)) == "INVALID_DEVICE"
        assert get_access(world, pool, DEVICE_0) == READWRITE

    def test_the_owner_cannot_be_read_only(self, world: World, pool: int) -> None:
        assert set_access(world, pool, (DEVICE_0, READ)) == "NOT_SUPPORTED"

    @pytest.mark.parametrize("flags", [NONE, READWRITE, 7])
    def test_set_access_calls_an_ordinal_out_of_range_an_invalid_device(
        self, world: World, pool: int, flags: int
    ) -> None:
        for ordinal in (world.devices, -1):
            assert set_access(world, pool, (device_location(ordinal), flags)) == "INVALID_DEVICE"

    def test_read_is_refused_before_the_place_is_looked_at(self, world: World, pool: int, host_pool: int) -> None:
        for place in (device_location(world.devices), HOST_LOCATION, Location(UNKNOWN_TYPE, 0)):
            assert set_access(world, pool, (place, READ)) == "NOT_SUPPORTED"
            assert set_access(world, host_pool, (place, READ)) == "NOT_SUPPORTED"

    def test_all_places_are_checked_before_any_flags(self, world: World, pool: int, host_pool: int) -> None:
        beyond = device_location(world.devices)
        for each in (pool, host_pool):
            assert set_access(world, each, (DEVICE_0, 7), (beyond, READWRITE)) == "INVALID_DEVICE"

    @pytest.mark.parametrize("flags", [NONE, READ, READWRITE, 7])
    @pytest.mark.parametrize(
        "location",
        [HOST_LOCATION, NODE_0, Location(4, 0), Location(0, 0), Location(UNKNOWN_TYPE, 0)],
        ids=["host", "numa", "numa-current", "invalid", "unknown"],
    )
    def test_a_device_pool_takes_devices_only(self, world: World, pool: int, location: Location, flags: int) -> None:
        assert set_access(world, pool, (location, flags)) == "NOT_SUPPORTED"

    def test_one_bad_entry_spoils_the_whole_call(self, world: World, pool: int) -> None:
        assert set_access(world, pool, (DEVICE_0, READWRITE), (DEVICE_0, NONE)) == "INVALID_DEVICE"

    @pytest.mark.parametrize("flags", ODD_FLAGS)
    def test_flags_outside_the_enumeration_are_an_invalid_value(self, world: World, pool: int, flags: int) -> None:
        assert set_access(world, pool, (DEVICE_0, flags)) == "INVALID_VALUE"

    @pytest.mark.parametrize("flags", ODD_FLAGS)
    def test_flags_outside_the_enumeration_on_host_pools(self, world: World, host_pool: int, flags: int) -> None:
        assert set_access(world, host_pool, (DEVICE_0, flags)) == "INVALID_VALUE"

    def test_no_entry_or_no_pool_is_an_invalid_value(self, world: World, pool: int) -> None:
        assert set_access(world, pool) == "INVALID_VALUE"
        assert set_access(world, 0, (DEVICE_0, READWRITE)) == "INVALID_VALUE"

    @pytest.mark.parametrize("count", [3, 40])
    def test_the_same_entry_may_be_repeated(self, world: World, pool: int, count: int) -> None:
        assert set_access(world, pool, *[(DEVICE_0, READWRITE)] * count) == "SUCCESS"

    # --- set access: host pools ---

    def test_a_fresh_host_pool_is_ungranted(self, world: World, host_pool: int) -> None:
        assert get_access(world, host_pool, DEVICE_0) == NONE

    def test_a_grant_on_a_host_pool_takes_effect_at_once(self, world: World, host_pool: int) -> None:
        assert set_access(world, host_pool, (DEVICE_0, READWRITE)) == "SUCCESS"
        assert get_access(world, host_pool, DEVICE_0) == READWRITE
        assert set_access(world, host_pool, (DEVICE_0, NONE)) == "SUCCESS"
        assert get_access(world, host_pool, DEVICE_0) == NONE

    def test_read_only_is_not_supported_on_host_pools(self, world: World, host_pool: int) -> None:
        assert set_access(world, host_pool, (DEVICE_0, READ)) == "NOT_SUPPORTED"

    @pytest.mark.parametrize("place", HOST_PLACES, ids=["host", "numa"])
    def test_the_host_itself_has_read_write_and_keeps_it(self, world: World, host_pool: int, place: Location) -> None:
        assert set_access(world, host_pool, (place, READWRITE)) == "SUCCESS"
        assert set_access(world, host_pool, (place, NONE)) == "NOT_SUPPORTED"
        assert set_access(world, host_pool, (place, READ)) == "NOT_SUPPORTED"
        assert get_access(world, host_pool, place) == READWRITE

    @pytest.mark.parametrize("kind", [LocationType.INVALID, LocationType.HOST_NUMA_CURRENT, UNKNOWN_TYPE])
    def test_a_host_pool_takes_devices_and_the_host(self, world: World, host_pool: int, kind: int) -> None:
        for flags in (NONE, READWRITE):
            assert set_access(world, host_pool, (Location(kind, 0), flags)) == "INVALID_VALUE"

    @pytest.mark.parametrize("node", [5, -1])
    def test_any_node_may_be_granted_on_a_host_pool(self, world: World, host_pool: int, node: int) -> None:
        assert set_access(world, host_pool, (Location(LocationType.HOST_NUMA, node), READWRITE)) == "SUCCESS"

    def test_a_refused_batch_changes_nothing(self, world: World, host_pool: int) -> None:
        beyond = device_location(world.devices)
        assert set_access(world, host_pool, (DEVICE_0, READWRITE), (beyond, READWRITE)) == "INVALID_DEVICE"
        assert get_access(world, host_pool, DEVICE_0) == NONE

    def test_the_last_entry_of_a_device_wins(self, world: World, host_pool: int) -> None:
        assert set_access(world, host_pool, (DEVICE_0, NONE), (DEVICE_0, READWRITE)) == "SUCCESS"
        assert get_access(world, host_pool, DEVICE_0) == READWRITE
        assert set_access(world, host_pool, (DEVICE_0, READWRITE), (DEVICE_0, NONE)) == "SUCCESS"
        assert get_access(world, host_pool, DEVICE_0) == NONE

    def test_a_managed_pool_starts_ungranted_even_for_its_device(self, world: World) -> None:
        with pool_on(world, DEVICE_0, max_size=0, allocation_type=AllocationType.MANAGED) as pool:
            assert get_access(world, pool, DEVICE_0) == NONE
            assert set_access(world, pool, (DEVICE_0, READWRITE)) == "SUCCESS"
            assert get_access(world, pool, DEVICE_0) == READWRITE
            assert set_access(world, pool, (DEVICE_0, NONE)) == "SUCCESS"
            assert get_access(world, pool, DEVICE_0) == NONE

    def test_a_managed_pool_starts_ungranted_for_the_host_too(self, world: World) -> None:
        with pool_on(world, DEVICE_0, max_size=0, allocation_type=AllocationType.MANAGED) as pool:
            assert get_access(world, pool, HOST_LOCATION) == NONE
            assert set_access(world, pool, (HOST_LOCATION, READWRITE)) == "SUCCESS"
            assert set_access(world, pool, (HOST_LOCATION, NONE)) == "SUCCESS"

    # --- get access ---

    def test_the_owner_reads_read_write(self, world: World, pool: int) -> None:
        assert get_access(world, pool, DEVICE_0) == READWRITE
        assert get_access(world, world.driver.device_get_default_mem_pool(0), DEVICE_0) == READWRITE

    def test_get_access_calls_an_ordinal_out_of_range_an_invalid_value(self, world: World, pool: int) -> None:
        for ordinal in (world.devices, -1):
            assert get_access(world, pool, device_location(ordinal)) == "INVALID_VALUE"

    @pytest.mark.parametrize("node", [0, 5])
    def test_the_host_reads_none_on_device_pools_whatever_the_node(self, world: World, pool: int, node: int) -> None:
        assert get_access(world, pool, HOST_LOCATION) == NONE
        assert get_access(world, pool, Location(LocationType.HOST_NUMA, node)) == NONE

    @pytest.mark.parametrize("node", [0, 5])
    def test_the_host_reads_read_write_on_host_pools_whatever_the_node(
        self, world: World, host_pool: int, node: int
    ) -> None:
        assert get_access(world, host_pool, HOST_LOCATION) == READWRITE
        assert get_access(world, host_pool, Location(LocationType.HOST_NUMA, node)) == READWRITE

    @pytest.mark.parametrize("kind", [LocationType.INVALID, LocationType.HOST_NUMA_CURRENT, UNKNOWN_TYPE])
    def test_other_locations_are_an_invalid_value(self, world: World, pool: int, kind: int) -> None:
        assert get_access(world, pool, Location(kind, 0)) == "INVALID_VALUE"

    def test_no_pool_is_an_invalid_value(self, world: World) -> None:
        assert get_access(world, 0, DEVICE_0) == "INVALID_VALUE"

    # --- default and current pools ---

    def test_the_default_pool_is_current_at_first(self, world: World) -> None:
        assert world.driver.device_get_mem_pool(0) == world.driver.device_get_default_mem_pool(0)

    def test_the_default_pool_cannot_be_destroyed(self, world: World) -> None:
        default = world.driver.device_get_default_mem_pool(0)
        assert refusal(lambda: world.driver.mem_pool_destroy(default)) == "INVALID_VALUE"

    def test_destroying_the_current_pool_brings_the_default_pool_back(self, world: World) -> None:
        driver = world.driver
        with pool_on(world, DEVICE_0) as pool:
            driver.device_set_mem_pool(0, pool)
            assert driver.device_get_mem_pool(0) == pool
        assert driver.device_get_mem_pool(0) == driver.device_get_default_mem_pool(0)

    def test_a_host_pool_cannot_be_current(self, world: World, host_pool: int) -> None:
        assert refusal(lambda: world.driver.device_set_mem_pool(0, host_pool)) == "INVALID_VALUE"

    def test_a_device_out_of_range_has_no_current_and_no_default_pool(self, world: World, pool: int) -> None:
        driver, none = world.driver, world.devices
        assert refusal(lambda: driver.device_get_mem_pool(none)) == "INVALID_VALUE"
        assert refusal(lambda: driver.device_set_mem_pool(none, pool)) == "INVALID_VALUE"
        assert refusal(lambda: driver.device_get_default_mem_pool(none)) == "INVALID_DEVICE"

    # --- attributes ---

    def test_no_pool_has_no_attributes(self, world: World) -> None:
        driver = world.driver
        assert refusal(lambda: driver.mem_pool_get_attribute(0, PoolAttribute.RELEASE_THRESHOLD)) == "INVALID_VALUE"
        assert refusal(lambda: driver.mem_pool_trim_to(0, 0)) == "INVALID_VALUE"
        assert refusal(lambda: driver.mem_pool_destroy(0)) == "INVALID_VALUE"

    def test_a_reuse_policy_is_on_or_off(self, world: World, pool: int) -> None:
        policy = PoolAttribute.REUSE_ALLOW_OPPORTUNISTIC
        for value, read in ((5, 1), (0, 0)):
            world.driver.mem_pool_set_attribute(pool, policy, value)
            assert world.driver.mem_pool_get_attribute(pool, policy) == read

    def test_current_figures_cannot_be_set_and_high_ones_only_reset(self, world: World, pool: int) -> None:
        def setting(attribute: int, value: int) -> str:
            return refusal(lambda: world.driver.mem_pool_set_attribute(pool, attribute, value))

        for current in (PoolAttribute.USED_MEM_CURRENT, PoolAttribute.RESERVED_MEM_CURRENT):
            assert setting(current, 0) == "INVALID_VALUE"
        for high in (PoolAttribute.USED_MEM_HIGH, PoolAttribute.RESERVED_MEM_HIGH):
            assert (setting(high, 0), setting(high, 1)) == ("SUCCESS", "INVALID_VALUE")

    def test_the_eight_attributes_and_their_first_values(self, world: World, pool: int) -> None:
        values = [world.driver.mem_pool_get_attribute(pool, attribute) for attribute in PoolAttribute]
        assert values == [1, 1, 1, 0, 0, 0, 0, 0]

    def test_the_release_threshold_takes_any_value(self, world: World, pool: int) -> None:
        for value in (1 << 20, 2**64 - 1):
            world.driver.mem_pool_set_attribute(pool, PoolAttribute.RELEASE_THRESHOLD, value)
            assert world.driver.mem_pool_get_attribute(pool, PoolAttribute.RELEASE_THRESHOLD) == value

    def test_trimming_an_empty_pool_works(self, world: World, pool: int) -> None:
        world.driver.mem_pool_trim_to(pool, 0)

    @pytest.mark.parametrize("attribute", range(9, 15))
    def test_later_attributes_are_an_invalid_value(self, world: World, pool: int, attribute: int) -> None:
        assert refusal(lambda: world.driver.mem_pool_get_attribute(pool, attribute)) == "INVALID_VALUE"

    # --- creation ---

    def test_a_pool_of_one_byte_at_most_can_be_created(self, world: World) -> None:
        with pool_on(world, DEVICE_0, max_size=1) as pool:
            assert pool

    @pytest.mark.parametrize("place", ["unknown node", "beyond", "negative", "invalid", "current node"])
    def test_a_pool_needs_a_place_that_exists(self, world: World, place: str) -> None:
        location = {
            "unknown node": Location(LocationType.HOST_NUMA, 4000),
            "beyond": device_location(world.devices),
            "negative": device_location(-1),
            "invalid": Location(LocationType.INVALID, 0),
            "current node": Location(LocationType.HOST_NUMA_CURRENT, 0),
        }[place]
        assert refusal(lambda: world.driver.mem_pool_create(PoolProperties(location))) == "INVALID_VALUE"

    @pytest.mark.parametrize("handle_type", [HandleType.WIN32, HandleType.WIN32_KMT])
    def test_windows_handle_types_are_an_invalid_value(self, world: World, handle_type: int) -> None:
        properties = PoolProperties(DEVICE_0, GIB, handle_types=handle_type)
        assert refusal(lambda: world.driver.mem_pool_create(properties)) == "INVALID_VALUE"

    def test_posix_handles_can_be_asked_for(self, world: World) -> None:
        properties = PoolProperties(DEVICE_0, GIB, handle_types=HandleType.POSIX_FILE_DESCRIPTOR)
        world.driver.mem_pool_destroy(world.driver.mem_pool_create(properties))

    def test_managed_pools_take_no_size(self, world: World) -> None:
        properties = PoolProperties(DEVICE_0, GIB, AllocationType.MANAGED)
        assert refusal(lambda: world.driver.mem_pool_create(properties)) == "INVALID_VALUE"

    @pytest.mark.parametrize("max_size", [1 << 47, 1 << 62], ids=["128TiB", "4EiB"])
    def test_a_pool_larger_than_the_address_space_is_out_of_memory(self, world: World, max_size: int) -> None:
        assert refusal(lambda: world.driver.mem_pool_create(PoolProperties(DEVICE_0, max_size))) == "OUT_OF_MEMORY"

    @pytest.mark.parametrize("max_size", [0, 100 * GIB], ids=["default", "100GiB"])
    def test_live_pools_fill_an_address_space_of_128_tib(self, world: World, max_size: int) -> None:
        expected = ADDRESS_SPACE / (2 * (max_size or world.memory))
        assert count_live_pools(world, PoolProperties(DEVICE_0, max_size)) == pytest.approx(expected, rel=0.01)

    @pytest.mark.parametrize(
        ("location", "max_size"),
        [(DEVICE_0, GIB), (DEVICE_0, 2 << 20), (HOST_LOCATION, 0)],
        ids=["1GiB", "2MiB", "host"],
    )
    def test_small_and_host_pools_do_not_fill_it(self, world: World, location: Location, max_size: int) -> None:
        assert count_live_pools(world, PoolProperties(location, max_size), at_most=1000) == 1000

    # --- handles ---

    def test_a_handle_with_a_live_allocation_is_not_reused(self, world: World) -> None:
        properties = PoolProperties(DEVICE_0, GIB)
        loop(world, properties, 10)
        pool = world.driver.mem_pool_create(properties)
        pointer = world.allocate(pool, 1 << 20)
        world.driver.mem_pool_destroy(pool)
        try:
            assert pool not in loop(world, properties, 20)
        finally:
            world.free(pointer)

    # --- allocations ---

    def test_allocations_count_as_used(self, world: World, pool: int) -> None:
        pointer = world.allocate(pool, 1 << 20)
        assert world.driver.mem_pool_get_attribute(pool, PoolAttribute.USED_MEM_CURRENT) == 1 << 20
        assert world.driver.mem_pool_get_attribute(pool, PoolAttribute.RESERVED_MEM_CURRENT) == 32 << 20
        world.free(pointer)
        assert world.driver.mem_pool_get_attribute(pool, PoolAttribute.USED_MEM_CURRENT) == 0
        assert world.driver.mem_pool_get_attribute(pool, PoolAttribute.USED_MEM_HIGH) == 1 << 20

    def test_sizes_that_fit_nowhere_are_out_of_memory(self, world: World) -> None:
        with pool_on(world, DEVICE_0, max_size=4 << 20) as small:
            assert refusal(lambda: world.allocate(small, 64 << 20)) == "OUT_OF_MEMORY"
        default = world.driver.device_get_default_mem_pool(0)
        assert refusal(lambda: world.allocate(default, 32 << 40)) == "OUT_OF_MEMORY"

    def test_zero_bytes_can_be_allocated(self, world: World, pool: int) -> None:
        assert refusal(lambda: world.allocate(pool, 0)) == "SUCCESS"

    # --- contexts and streams ---

    def test_without_a_context_nothing_can_be_allocated_on_the_null_stream(self, world: World, pool: int) -> None:
        """Another thread has no current context."""
        driver = world.driver
        seen: list[str] = []

        def work() -> None:
            seen.append(refusal(lambda: driver.mem_alloc_from_pool_async(4096, pool, 0)))
            seen.append(refusal(lambda: driver.stream_create(StreamFlags.NON_BLOCKING)))

        in_thread(work)
        assert seen == ["INVALID_CONTEXT", "INVALID_CONTEXT"]

    def test_a_stream_brings_its_context(self, world: World, pool: int) -> None:
        world.stream()
        in_thread(lambda: world.free(world.allocate(pool, 4096)))

    # --- what kernels, copies and memset may do ---

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_kernel_with_access_writes_and_reads(self, world: World, pool: int, host_pool: int, when: str) -> None:
        """Whether the grant came before the allocation or after it."""
        driver = world.driver
        if when == "before":
            data_path.set_flags(driver, host_pool, 0, READWRITE)
        with world.memory_of(host_pool) as shared, world.memory_of(pool) as own:
            data_path.set_flags(driver, host_pool, 0, READWRITE)
            world.launch(kernels.WRITE, kernels.write_parameters(shared + 8, 0xFEED_F00D))
            world.launch(kernels.READ, kernels.read_parameters(shared + 8, own + 4))
            assert driver.memcpy_dtoh(own + 4, 4) == bytes.fromhex("0df0edfe")

    @pytest.mark.parametrize("name", ["ungranted", "revoked"])
    def test_a_kernel_without_access_loses_its_context(self, trial: Trial, name: str) -> None:
        assert trial(name) == data_path.LOST

    def test_a_copy_needs_no_access(self, world: World, pool: int, host_pool: int) -> None:
        driver, stream, data = world.driver, world.stream(), bytes(range(256)) * 16
        with world.memory_of(host_pool) as shared, world.memory_of(pool) as first, world.memory_of(pool) as second:
            data_path.put(driver, first, data)
            driver.memcpy_async(shared, first, len(data), stream)
            driver.memcpy_async(second, shared, len(data), stream)
            driver.stream_synchronize(stream)
            assert driver.memcpy_dtoh(second, len(data)) == data
        assert get_access(world, host_pool, DEVICE_0) == NONE

    def test_memset_needs_access(self, world: World, pool: int, host_pool: int) -> None:
        driver, stream = world.driver, world.stream()
        with world.memory_of(host_pool) as shared, world.memory_of(pool) as own:
            assert refusal(lambda: driver.memset_d8_async(shared, 0xA5, 16, stream)) == "INVALID_VALUE"
            data_path.set_flags(driver, host_pool, 0, READWRITE)
            driver.memset_d8_async(shared, 0xA5, 16, stream)
            driver.memcpy_async(own, shared, 16, stream)
            driver.stream_synchronize(stream)
            assert driver.memcpy_dtoh(own, 16) == b"\xa5" * 16

    def test_memory_of_a_host_pool_is_no_device_memory_to_a_copy_by_kind(self, world: World, host_pool: int) -> None:
        """cuMemcpyDtoH and HtoD take no such pointer, whatever the access, but pinned memory; a plain copy does."""
        driver = world.driver
        world.stream()
        with world.memory_of(host_pool) as shared, world.pinned() as pinned:
            for flags in (NONE, READWRITE):
                data_path.set_flags(driver, host_pool, 0, flags)
                assert refusal(lambda: driver.memcpy_dtoh(shared, 16)) == "INVALID_VALUE"
                assert refusal(lambda: driver.memcpy_htod(shared, bytes(16))) == "INVALID_VALUE"
            driver.memcpy_htod(pinned, b"as it is")
            assert driver.memcpy_dtoh(pinned, 8) == b"as it is"

    def test_the_pointer_attribute_says_read_write_whatever_the_access(self, world: World, host_pool: int) -> None:
        with world.memory_of(host_pool) as shared:
            for flags in (NONE, READWRITE, NONE):
                data_path.set_flags(world.driver, host_pool, 0, flags)
                assert world.driver.pointer_get_attribute(PointerAttribute.ACCESS_FLAGS, shared) == READWRITE

    def test_a_module_is_ptx_and_has_its_kernels(self, world: World) -> None:
        driver = world.driver
        world.stream()
        assert refusal(lambda: driver.module_load_data(b"no PTX\0")) == "INVALID_IMAGE"
        module = driver.module_load_data(kernels.IMAGE)
        assert refusal(lambda: driver.module_get_function(module, "no_such_kernel")) == "NOT_FOUND"

    # --- longs, and memory of the host ---

    @pytest.mark.parametrize("count", [1, 255, 300_000])
    def test_longs_are_filled_copied_and_checked(self, world: World, pool: int, count: int) -> None:
        size = count * longs.LONG_BYTES
        with world.memory_of(pool, size + 64) as first, world.memory_of(pool, size + 64) as second:
            world.launch(kernels.FILL, kernels.fill_parameters(first, count, BASE, 1), 8, 128)
            world.launch(kernels.COPY, kernels.copy_parameters(first, second, count), 8, 128)
            assert world.tally(second, count, BASE, 1) == longs.Tally()
            assert world.driver.memcpy_dtoh(second, 8) == BASE.to_bytes(8, "little")
            assert world.driver.memcpy_dtoh(second + size - 8, 8) == (BASE + count - 1).to_bytes(8, "little")
            wrong = world.tally(second, count, BASE + 1, 1)
            assert wrong == (count, 0, 0, 0)

    def test_a_check_counts_what_is_wrong_by_its_kind(self, world: World, pool: int) -> None:
        with world.memory_of(pool, 80_000) as pointer:
            world.launch(kernels.FILL, kernels.fill_parameters(pointer, 10_000, BASE, 1), 4, 64)
            for index, value in ((9_999, 5), (8_192, 0), (17, POISON), (18, 0)):
                world.launch(kernels.FILL, kernels.fill_parameters(pointer + index * 8, 1, value, 0))
            assert world.tally(pointer, 10_000, BASE, 1, POISON) == (4, 2, 1, 17)
            assert world.tally(pointer, 17, BASE, 1, POISON) == longs.Tally()

    def test_a_step_of_zero_repeats(self, world: World, pool: int) -> None:
        with world.memory_of(pool, 80_000) as pointer:
            world.launch(kernels.FILL, kernels.fill_parameters(pointer, 10_000, POISON, 0), 4, 64)
            assert world.tally(pointer, 10_000, POISON, 0) == longs.Tally()
            assert world.tally(pointer, 10_000, BASE, 1, POISON) == (10_000, 0, 10_000, 0)

    def test_every_thread_adds(self, world: World, pool: int, host_pool: int) -> None:
        data_path.set_flags(world.driver, host_pool, 0, READWRITE)
        for each in (pool, host_pool):
            with world.memory_of(each) as pointer, world.pinned(24) as start:
                world.driver.store(start, b"\1" + bytes(23))
                world.launch(kernels.FILL, kernels.fill_parameters(pointer, 1, BASE, 0))
                world.launch(kernels.ADD, kernels.add_parameters(pointer, 3, 5, start, start + 8), 4, 64)
                assert world.tally(pointer, 1, BASE + 3 * 5 * 4 * 64, 0) == longs.Tally()
                assert world.driver.load(start + 8, 16) == b"\1" + bytes(15), "it began, and did not wait in vain"

    def test_the_processor_shares_pinned_memory(self, world: World, pool: int) -> None:
        driver, data = world.driver, bytes(range(256)) * 16
        with world.pinned() as first, world.pinned() as second, world.memory_of(pool) as own:
            driver.store(first, data)
            world.launch(kernels.COPY, kernels.copy_parameters(first, own, 256), 2, 64)
            world.launch(kernels.COPY, kernels.copy_parameters(own, second + 8, 256), 2, 64)
            assert driver.load(second + 8, 2048) == data[:2048]
            driver.memcpy_async(own, first, 4096, world.stream())
            driver.memcpy_async(second, own, 4096, world.stream())
            driver.stream_synchronize(world.stream())
            assert driver.load(second, 4096) == data

    def test_the_processor_shares_a_host_pool_whatever_the_access_of_the_device(
        self, world: World, pool: int, host_pool: int
    ) -> None:
        driver, data = world.driver, bytes(range(256)) * 16
        with world.memory_of(host_pool) as shared, world.memory_of(pool) as own:
            driver.store(shared, data)
            assert driver.load(shared, 4096) == data
            driver.memcpy_async(own, shared, 4096, world.stream())
            driver.stream_synchronize(world.stream())
            assert driver.memcpy_dtoh(own, 4096) == data
            data_path.set_flags(driver, host_pool, 0, READWRITE)
            world.launch(kernels.FILL, kernels.fill_parameters(shared + 16, 1, BASE, 0))
            assert driver.load(shared + 16, 8) == BASE.to_bytes(8, "little")

    def test_pinned_memory_needs_a_context_and_is_freed_once(self, world: World) -> None:
        driver = world.driver
        seen: list[str] = []
        in_thread(lambda: seen.append(refusal(lambda: driver.mem_host_alloc(4096, HostAllocFlags.PORTABLE))))
        world.stream()
        pointer = driver.mem_host_alloc(4096, HostAllocFlags.PORTABLE)
        seen += [refusal(lambda: driver.mem_free_host(pointer)) for _ in range(2)]
        assert seen == ["INVALID_CONTEXT", "SUCCESS", "INVALID_VALUE"]
        assert driver.mem_host_alloc(0, HostAllocFlags.PORTABLE) == 0

    def test_a_peer_copy_names_its_contexts_or_none(self, world: World, pool: int) -> None:
        driver, stream, data = world.driver, world.stream(), bytes(range(256)) * 16
        context = driver.device_primary_ctx_retain(0)
        with world.memory_of(pool) as first, world.memory_of(pool) as second:
            data_path.put(driver, first, data)
            driver.memcpy_peer_async(second, context, first, context, 4096, stream)
            driver.stream_synchronize(stream)
            assert driver.memcpy_dtoh(second, 4096) == data
            data_path.put(driver, first, data[::-1])
            driver.memcpy_peer_async(second, 0, first, 0, 4096, stream)
            driver.stream_synchronize(stream)
            assert driver.memcpy_dtoh(second, 4096) == data[::-1]
        driver.device_primary_ctx_release(0)

    def test_events_tell_how_long_it_took(self, world: World) -> None:
        driver, stream = world.driver, world.stream()
        first, last = driver.event_create(EventFlags.DEFAULT), driver.event_create(EventFlags.DEFAULT)
        assert refusal(lambda: driver.event_elapsed_time(first, last)) == "INVALID_HANDLE"
        for event in (first, last):
            driver.event_record(event, stream)
        driver.stream_synchronize(stream)
        assert 0 <= driver.event_elapsed_time(first, last) < 1000
        for event in (first, last):
            driver.event_destroy(event)

    # --- stream capture ---

    def test_a_stream_says_whether_it_is_captured(self, world: World) -> None:
        stream = world.stream()
        before = world.driver.stream_is_capturing(stream)
        capture = world.begin_capture(CaptureMode.GLOBAL)
        during = world.driver.stream_is_capturing(stream)
        assert capture.end()
        assert (before, during) == (CaptureStatus.NONE, CaptureStatus.ACTIVE)

    @pytest.fixture
    def spare(self, world: World) -> Iterator[int]:
        spare = world.driver.mem_pool_create(PoolProperties(DEVICE_0, GIB))
        yield spare
        with contextlib.suppress(DriverError):  # a test may have destroyed it
            world.driver.mem_pool_destroy(spare)

    @pytest.mark.parametrize("mode", [CaptureMode.GLOBAL, CaptureMode.THREAD_LOCAL])
    @pytest.mark.parametrize("call", POOL_CALLS)
    def test_a_pool_call_breaks_the_callers_own_capture(
        self, world: World, pool: int, spare: int, call: str, mode: CaptureMode
    ) -> None:
        capture = world.begin_capture(mode)
        try:
            outcome = pool_call(world, pool, spare, call)
        finally:
            survived = capture.end()
        assert (outcome, survived) == ("STREAM_CAPTURE_UNSUPPORTED", False)

    def test_questions_about_devices_are_allowed_while_capturing(self, world: World) -> None:
        capture = world.begin_capture(CaptureMode.GLOBAL)
        world.driver.device_get_default_mem_pool(0)
        world.driver.device_get_mem_pool(0)
        world.driver.device_can_access_peer(0, 0)
        world.driver.device_get_attribute(DeviceAttribute.MEMORY_POOLS_SUPPORTED, 0)
        assert capture.end()

    @pytest.mark.parametrize("call", POOL_CALLS)
    def test_a_pool_call_breaks_another_threads_global_capture(
        self, world: World, pool: int, spare: int, call: str
    ) -> None:
        capture = world.begin_capture(CaptureMode.GLOBAL)
        outcome: list[str] = []
        in_thread(lambda: outcome.append(pool_call(world, pool, spare, call)))
        assert (outcome, capture.end()) == (["STREAM_CAPTURE_UNSUPPORTED"], False)

    @pytest.mark.parametrize("call", POOL_CALLS)
    def test_a_relaxed_thread_leaves_another_threads_capture_alone(
        self, world: World, pool: int, spare: int, call: str
    ) -> None:
        capture = world.begin_capture(CaptureMode.GLOBAL)
        outcome: list[str] = []

        def relaxed() -> None:
            assert world.driver.thread_exchange_stream_capture_mode(CaptureMode.RELAXED) == CaptureMode.GLOBAL
            outcome.append(pool_call(world, pool, spare, call))

        in_thread(relaxed)
        assert (outcome, capture.end()) == (["SUCCESS"], True)

    @pytest.mark.parametrize("mode", [CaptureMode.THREAD_LOCAL, CaptureMode.RELAXED])
    def test_captures_of_other_modes_are_safe_from_other_threads(
        self, world: World, pool: int, mode: CaptureMode
    ) -> None:
        capture = world.begin_capture(mode)
        outcome: list[str] = []
        in_thread(lambda: outcome.append(pool_call(world, pool, 0, "get")))
        assert (outcome, capture.end()) == (["SUCCESS"], True)


class PeerContract(Contract):
    """Rows that need two devices which can reach each other. Published; measured where a test says so."""

    @pytest.fixture
    def pool(self, world: World) -> Iterator[int]:
        with pool_on(world, DEVICE_0) as pool:
            yield pool

    def test_a_peer_can_be_granted_and_revoked(self, world: World, pool: int) -> None:
        peer = device_location(1)
        assert world.driver.device_can_access_peer(1, 0)
        assert get_access(world, pool, peer) == NONE
        assert set_access(world, pool, (peer, READWRITE)) == "SUCCESS"
        assert get_access(world, pool, peer) == READWRITE
        assert set_access(world, pool, (peer, NONE)) == "SUCCESS"
        assert get_access(world, pool, peer) == NONE

    def test_the_default_pool_can_be_granted(self, world: World) -> None:
        default, peer = world.driver.device_get_default_mem_pool(0), device_location(1)
        assert set_access(world, default, (peer, READWRITE)) == "SUCCESS"
        assert get_access(world, default, peer) == READWRITE
        assert set_access(world, default, (peer, NONE)) == "SUCCESS"

    def test_a_peer_cannot_be_read_only(self, world: World, pool: int) -> None:
        assert set_access(world, pool, (device_location(1), READ)) == "NOT_SUPPORTED"

    def test_the_owner_in_a_revoke_spoils_it(self, world: World, pool: int) -> None:
        peer = device_location(1)
        set_access(world, pool, (peer, READWRITE))
        assert set_access(world, pool, (peer, NONE), (DEVICE_0, NONE)) == "INVALID_DEVICE"
        assert get_access(world, pool, peer) == READWRITE

    def test_a_kernel_of_a_granted_peer_writes(self, world: World, pool: int) -> None:
        driver = world.driver
        set_access(world, pool, (device_location(1), READWRITE))
        with world.memory_of(pool) as pointer:
            in_thread(lambda: data_path.write_from(driver, 1, pointer, 0x01020304))
            assert driver.memcpy_dtoh(pointer, 4) == bytes([4, 3, 2, 1])

    @pytest.mark.parametrize("name", ["ungranted_peer", "revoked_peer"])
    def test_a_kernel_of_a_peer_without_access_loses_its_context(self, trial: Trial, name: str) -> None:
        assert trial(name) == data_path.LOST

    def test_a_copy_between_devices_needs_access_and_a_peer_copy_does_not(self, world: World, pool: int) -> None:
        """The first: cuda-python's tests; the second: the program in CUDA.jl #3112."""
        driver, stream = world.driver, data_path.own_stream(world.driver, 1)
        contexts = [driver.device_primary_ctx_retain(device) for device in (0, 1)]
        with pool_on(world, device_location(1)) as other, world.memory_of(pool) as to:
            driver.ctx_set_current(contexts[1])
            origin = driver.mem_alloc_from_pool_async(4096, other, stream)
            driver.stream_synchronize(stream)
            data_path.put(driver, origin, b"peer" * 1024)
            assert refusal(lambda: driver.memcpy_async(to, origin, 4096, stream)) == "INVALID_VALUE"
            driver.memcpy_peer_async(to, contexts[0], origin, contexts[1], 4096, stream)
            driver.stream_synchronize(stream)
            driver.ctx_set_current(contexts[0])
            assert driver.memcpy_dtoh(to, 4096) == b"peer" * 1024
            set_access(world, pool, (device_location(1), READWRITE))
            driver.ctx_set_current(contexts[1])
            data_path.put(driver, origin, b"copy" * 1024)
            driver.memcpy_async(to, origin, 4096, stream)
            driver.mem_free_async(origin, stream)
            driver.stream_synchronize(stream)
            driver.ctx_set_current(contexts[0])
            assert driver.memcpy_dtoh(to, 4096) == b"copy" * 1024
            driver.stream_destroy(stream)
        for device in (0, 1, 1):
            driver.device_primary_ctx_release(device)

    def test_a_kernel_goes_to_a_stream_of_its_context(self, world: World, pool: int) -> None:
        """Published: CUDA Programming Guide, stream and event behavior. Copies, and who waits, take any stream."""
        driver, one = world.driver, data_path.ONE
        contexts = [driver.device_primary_ctx_retain(device) for device in (0, 1)]
        with world.memory_of(pool) as first, world.memory_of(pool) as second:
            driver.ctx_set_current(contexts[1])
            function = data_path.kernel(driver, kernels.WRITE)
            parameters = kernels.write_parameters(first, 7)
            stream = world.stream()
            assert refusal(lambda: driver.launch_kernel(function, one, one, stream, parameters)) == "INVALID_HANDLE"
            assert refusal(lambda: driver.memcpy_async(second, first, 4096, stream)) == "SUCCESS"
            assert refusal(lambda: driver.stream_synchronize(stream)) == "SUCCESS"
        driver.ctx_set_current(contexts[0])
        for device in (0, 1):
            driver.device_primary_ctx_release(device)

    def test_an_event_is_recorded_on_a_stream_of_its_context(self, world: World) -> None:
        """Published: cuEventRecord."""
        driver = world.driver
        first, second = data_path.own_stream(driver, 0), data_path.own_stream(driver, 1)
        event = driver.event_create(EventFlags.DEFAULT)
        assert refusal(lambda: driver.event_record(event, first)) == "INVALID_HANDLE"
        assert refusal(lambda: driver.event_record(event, second)) == "SUCCESS"
        driver.stream_synchronize(second)
        for stream, device in ((first, 0), (second, 1)):
            driver.stream_destroy(stream)
            driver.device_primary_ctx_release(device)

    def test_p2p_attributes_answer(self, world: World) -> None:
        assert world.driver.device_get_p2p_attribute(P2PAttribute.ACCESS_SUPPORTED, 0, 1) == 1

    def test_only_a_pool_on_the_device_can_be_current(self, world: World) -> None:
        with pool_on(world, device_location(1)) as other:
            assert refusal(lambda: world.driver.device_set_mem_pool(0, other)) == "INVALID_VALUE"


def pool_call(world: World, pool: int, spare: int, call: str) -> str:
    """One pool call of the kind named; what it was answered. `destroy` destroys `spare`."""
    driver = world.driver
    created: list[int] = []
    calls: dict[str, Callable[[], object]] = {
        "set": lambda: driver.mem_pool_set_access(pool, [AccessEntry(DEVICE_0, READWRITE)]),
        "get": lambda: driver.mem_pool_get_access(pool, DEVICE_0),
        "create": lambda: created.append(driver.mem_pool_create(PoolProperties(DEVICE_0, GIB))),
        "destroy": lambda: driver.mem_pool_destroy(spare),
        "attribute": lambda: driver.mem_pool_get_attribute(pool, PoolAttribute.RELEASE_THRESHOLD),
        "trim": lambda: driver.mem_pool_trim_to(pool, 0),
        "current": lambda: driver.device_set_mem_pool(0, driver.device_get_default_mem_pool(0)),
    }
    outcome = refusal(calls[call])
    for handle in created:
        driver.mem_pool_destroy(handle)
    return outcome


def loop(world: World, properties: PoolProperties, count: int) -> list[int]:
    """The handles of pools that are created and destroyed one after the other."""
    handles = []
    for _ in range(count):
        handles.append(world.driver.mem_pool_create(properties))
        world.driver.mem_pool_destroy(handles[-1])
    return handles


def count_live_pools(world: World, properties: PoolProperties, at_most: int = 2000) -> int:
    """How many can be alive at once before the driver is out of memory."""
    live: list[int] = []

    def create() -> None:
        live.append(world.driver.mem_pool_create(properties))

    try:
        while len(live) < at_most and (answer := refusal(create)) != "OUT_OF_MEMORY":
            assert answer == "SUCCESS"
    finally:
        for pool in live:
            world.driver.mem_pool_destroy(pool)
    return len(live)
