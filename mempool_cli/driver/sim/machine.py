"""A simulated machine, and one process on it: the driver port, call by call."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from mempool_cli.driver.codes import Code, code_name
from mempool_cli.driver.port import (
    AccessEntry,
    AllocationType,
    DeviceAttribute,
    HandleType,
    Location,
    LocationType,
    P2PAttribute,
    PoolAttribute,
    PoolProperties,
    device_location,
    driver_call,
)
from mempool_cli.driver.sim.capture import CaptureState
from mempool_cli.driver.sim.pool import SimPool
from mempool_cli.driver.sim.profile import GIB, Failure, Profile, SimDevice
from mempool_cli.driver.sim.recycling import HandleCycle
from mempool_cli.driver.sim.visible import visible_devices
from mempool_cli.errors import DriverError

# Live pools before OUT_OF_MEMORY fit one address space in which each pool of a device takes twice its size:
# 468 of 139.8 GiB, 654 of 100 GiB.
_ADDRESS_SPACE = (128 * 1024 - 150) * GIB
_HANDLE_STEP = 0x200
_SUPPORTED_HANDLE_TYPES = HandleType.POSIX_FILE_DESCRIPTOR | HandleType.FABRIC
_HIGH_WATER = (PoolAttribute.RESERVED_MEM_HIGH, PoolAttribute.USED_MEM_HIGH)


Named = tuple[int | Location | None, ...]
"""The devices that a call names, by their ordinals or as places."""


class SimulatedCrash(BaseException):
    """The real driver would kill the process with SIGSEGV here: a handle that never was one."""


class Machine:
    """The cards and what is wrong with them, shared by all processes on the machine."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._calls = [0] * len(profile.failures)

    def process(self, visible: str | None = None) -> Process:
        """A new process; `visible` is its CUDA_VISIBLE_DEVICES."""
        return Process(self, visible)

    def scripted_failure(self, call: str, named: Named) -> int:
        """The code that the first due `[[failure]]` of the profile gives this call, or SUCCESS. All count the call."""
        codes: list[int] = []
        for index, failure in enumerate(self.profile.failures):
            if failure.call == call and _concerns(failure, named):
                self._calls[index] += 1
                if _due(failure, self._calls[index]):
                    codes.append(failure.code)
        return codes[0] if codes else Code.CUDA_SUCCESS


def _concerns(failure: Failure, named: Named) -> bool:
    return failure.device is None or failure.device in named or device_location(failure.device) in named


def _due(failure: Failure, count: int) -> bool:
    return count > failure.after and (not failure.times or count <= failure.after + failure.times)


class Process:
    """One process that uses the driver: implements the driver port, and what programs add to pools."""

    kind = "sim"

    def __init__(self, machine: Machine, visible: str | None) -> None:
        self.machine = machine
        self.capture = CaptureState()
        self._visible = visible
        self._pid = os.getpid()
        self._devices: list[SimDevice] = []
        self._physical: list[int] = []
        self._initialized = False
        self._address_space_taken = 0
        self._pools: dict[int, SimPool] = {}
        self._dead: dict[int, SimPool] = {}
        self._default: dict[int, int] = {}
        self._current: dict[int, int] = {}
        self._cycles: dict[tuple[Location, int, int], HandleCycle] = {}
        self._residue: dict[int, dict[int, int]] = {}
        self._handles = itertools.count(0x5500_0000_0000, _HANDLE_STEP)
        self._pointers = itertools.count(0x7F00_0000_0000, 2 << 20)

    # --- what every call does first ---

    def _enter(self, method: str, *named: int | Location | None) -> None:
        if os.getpid() != self._pid:
            self._fail(method, Code.CUDA_ERROR_NOT_INITIALIZED)
        if not self._initialized and method not in ("init", "driver_get_version"):
            self._fail(method, Code.CUDA_ERROR_NOT_INITIALIZED)
        if self.machine.profile.failures:
            self._check(method, self.machine.scripted_failure(driver_call(method), named))

    def _enter_pool_call(self, method: str, pool: int, *named: Location) -> SimPool:
        """As _enter, for a call on a pool; the pool may be a destroyed one, whose memory the driver still reads."""
        found = self._pools.get(pool) or self._dead.get(pool)
        self._enter(method, found.properties.location if found else None, *named)
        if self.capture.forbids():
            self._fail(method, Code.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        if pool == 0:
            self._fail(method, Code.CUDA_ERROR_INVALID_VALUE)
        if found is None:
            raise SimulatedCrash(f"{driver_call(method)} on {pool:#x}, which never was a pool")
        return found

    def _enter_live_call(self, method: str, pool: int) -> SimPool:
        """As _enter_pool_call, for the calls that notice a destroyed pool."""
        found = self._enter_pool_call(method, pool)
        if pool in self._dead:
            self._fail(method, Code.CUDA_ERROR_INVALID_VALUE)
        return found

    def _fail(self, method: str, code: int) -> None:
        raise DriverError(driver_call(method), code_name(code), code)

    def _check(self, method: str, code: int) -> None:
        if code != Code.CUDA_SUCCESS:
            self._fail(method, code)

    def _device(self, method: str, device: int, *others: int) -> SimDevice:
        self._enter(method, device, *others)
        if not 0 <= device < len(self._devices):
            self._fail(method, Code.CUDA_ERROR_INVALID_DEVICE)
        return self._devices[device]

    def _reaches(self, accessor: int, owner: int) -> bool:
        return (self._physical[accessor], self._physical[owner]) in self.machine.profile.reach

    # --- process and devices ---

    def init(self) -> None:
        self._enter("init")
        code, self._physical = visible_devices(self.machine.profile.devices, self._visible)
        self._check("init", code)
        self._devices = [self.machine.profile.devices[index] for index in self._physical]
        self._initialized = True

    def driver_get_version(self) -> int:
        self._enter("driver_get_version")
        return self.machine.profile.driver_version

    def device_get_count(self) -> int:
        self._enter("device_get_count")
        return len(self._devices)

    def device_get(self, ordinal: int) -> int:
        self._device("device_get", ordinal)
        return ordinal

    def device_get_name(self, device: int) -> str:
        return self._device("device_get_name", device).name

    def device_get_uuid(self, device: int) -> bytes:
        return bytes.fromhex(self._device("device_get_uuid", device).uuid)

    def device_get_pci_bus_id(self, device: int) -> str:
        return self._device("device_get_pci_bus_id", device).pci_bus_id

    def device_get_attribute(self, attribute: int, device: int) -> int:
        card = self._device("device_get_attribute", device)
        values = {
            DeviceAttribute.COMPUTE_MODE: 0,
            DeviceAttribute.COMPUTE_CAPABILITY_MAJOR: card.compute_capability[0],
            DeviceAttribute.COMPUTE_CAPABILITY_MINOR: card.compute_capability[1],
            DeviceAttribute.PAGEABLE_MEMORY_ACCESS: 0,
            DeviceAttribute.MEMORY_POOLS_SUPPORTED: int(card.pools),
            DeviceAttribute.MEMPOOL_SUPPORTED_HANDLE_TYPES: _SUPPORTED_HANDLE_TYPES if card.pools else 0,
            DeviceAttribute.HOST_NUMA_ID: card.host_numa_id,
            DeviceAttribute.HOST_NUMA_MEMORY_POOLS_SUPPORTED: int(card.host_numa_pools),
            DeviceAttribute.HOST_MEMORY_POOLS_SUPPORTED: int(card.host_pools),
        }
        if attribute not in values:
            self._fail("device_get_attribute", Code.CUDA_ERROR_INVALID_VALUE)
        return values[DeviceAttribute(attribute)]

    def device_can_access_peer(self, device: int, peer: int) -> bool:
        self._device("device_can_access_peer", device, peer)
        if not 0 <= peer < len(self._devices):
            self._fail("device_can_access_peer", Code.CUDA_ERROR_INVALID_DEVICE)
        return self._reaches(device, peer)

    def device_get_p2p_attribute(self, attribute: int, source: int, destination: int) -> int:
        self._device("device_get_p2p_attribute", source, destination)
        if not 0 <= destination < len(self._devices) or source == destination:
            self._fail("device_get_p2p_attribute", Code.CUDA_ERROR_INVALID_DEVICE)
        if attribute not in set(P2PAttribute):
            self._fail("device_get_p2p_attribute", Code.CUDA_ERROR_INVALID_VALUE)
        reached = self._reaches(source, destination)
        return 0 if attribute == P2PAttribute.PERFORMANCE_RANK else int(reached)

    def thread_exchange_stream_capture_mode(self, mode: int) -> int:
        self._enter("thread_exchange_stream_capture_mode")
        return self.capture.exchange_mode(mode)

    # --- default and current pools ---

    def device_get_default_mem_pool(self, device: int) -> int:
        return self._default_pool("device_get_default_mem_pool", device)

    def device_get_mem_pool(self, device: int) -> int:
        self._check_current("device_get_mem_pool", device)
        default = self._default_pool("device_get_mem_pool", device)
        return self._current.get(device, default)

    def device_set_mem_pool(self, device: int, pool: int) -> None:
        self._check_current("device_set_mem_pool", device)
        place = device_location(device)
        target = self._enter_pool_call("device_set_mem_pool", pool, place)
        if target.properties.location != place:
            self._fail("device_set_mem_pool", Code.CUDA_ERROR_INVALID_VALUE)
        self._current[device] = pool

    def _check_current(self, method: str, device: int) -> None:
        """About current pools a device out of range is an invalid value, about default pools an invalid device."""
        if self._initialized and not 0 <= device < len(self._devices):
            self._fail(method, Code.CUDA_ERROR_INVALID_VALUE)

    def _default_pool(self, method: str, device: int) -> int:
        card = self._device(method, device)
        if not card.pools:
            self._fail(method, Code.CUDA_ERROR_NOT_SUPPORTED)
        if device not in self._default:
            handle = next(self._handles)
            properties = PoolProperties(Location(LocationType.DEVICE, device))
            self._pools[handle] = SimPool(handle, properties, is_default=True)
            self._default[device] = handle
        return self._default[device]

    # --- pools ---

    def mem_pool_create(self, properties: PoolProperties) -> int:
        device = properties.location.id if properties.location.type == LocationType.DEVICE else None
        self._enter("mem_pool_create", device)
        if self.capture.forbids():
            self._fail("mem_pool_create", Code.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        self._check("mem_pool_create", self._creatable(properties))
        cycle_key = (properties.location, properties.handle_types, properties.allocation_type)
        cycle = self._cycles.setdefault(cycle_key, HandleCycle(device=device is not None))
        handle, recycled = cycle.take(next(self._handles))
        pool = SimPool(handle, properties)
        self._dead.pop(handle, None)
        if recycled and pool.owner is not None and "recycled-handle" in self.machine.profile.faults:
            pool.access = self._residue.get(handle, {})
        self._pools[handle] = pool
        self._address_space_taken += self._address_space(properties)
        return handle

    def _creatable(self, properties: PoolProperties) -> Code:
        location = properties.location
        profile = self.machine.profile
        managed = properties.allocation_type == AllocationType.MANAGED
        if not managed and properties.allocation_type != AllocationType.PINNED:
            return Code.CUDA_ERROR_INVALID_VALUE
        if properties.handle_types & ~_SUPPORTED_HANDLE_TYPES or (managed and properties.max_size):
            return Code.CUDA_ERROR_INVALID_VALUE
        if location.type == LocationType.DEVICE:
            if not 0 <= location.id < len(self._devices):
                return Code.CUDA_ERROR_INVALID_VALUE
            supported = self._devices[location.id].pools
        elif location.type == LocationType.HOST:
            supported = any(card.host_pools for card in self._devices)
        elif location.type == LocationType.HOST_NUMA and 0 <= location.id < profile.numa_nodes:
            supported = any(card.host_numa_pools for card in self._devices)
        else:
            return Code.CUDA_ERROR_INVALID_VALUE
        if not supported:
            return Code.CUDA_ERROR_NOT_SUPPORTED
        fits = self._address_space_taken + self._address_space(properties) <= _ADDRESS_SPACE
        return Code.CUDA_SUCCESS if fits else Code.CUDA_ERROR_OUT_OF_MEMORY

    def _address_space(self, properties: PoolProperties) -> int:
        if properties.location.type != LocationType.DEVICE:
            return 0
        return 2 * (properties.max_size or self._devices[properties.location.id].memory)

    def mem_pool_destroy(self, pool: int) -> None:
        found = self._enter_live_call("mem_pool_destroy", pool)
        if found.is_default:
            self._fail("mem_pool_destroy", Code.CUDA_ERROR_INVALID_VALUE)
        del self._pools[pool]
        self._address_space_taken -= self._address_space(found.properties)
        self._dead[pool] = found
        self._residue[pool] = dict(found.access)
        for device, current in list(self._current.items()):
            if current == pool:
                del self._current[device]
        if not found.allocations:
            self._cycle_of(found).give(pool)

    def _cycle_of(self, pool: SimPool) -> HandleCycle:
        properties = pool.properties
        return self._cycles[(properties.location, properties.handle_types, properties.allocation_type)]

    def mem_pool_get_attribute(self, pool: int, attribute: int) -> int:
        found = self._enter_live_call("mem_pool_get_attribute", pool)
        if attribute not in found.attributes:
            self._fail("mem_pool_get_attribute", Code.CUDA_ERROR_INVALID_VALUE)
        return found.attributes[attribute]

    def mem_pool_set_attribute(self, pool: int, attribute: int, value: int) -> None:
        found = self._enter_live_call("mem_pool_set_attribute", pool)
        settable = attribute <= PoolAttribute.RELEASE_THRESHOLD or (attribute in _HIGH_WATER and value == 0)
        if attribute not in found.attributes or not settable:
            self._fail("mem_pool_set_attribute", Code.CUDA_ERROR_INVALID_VALUE)
        policy = attribute < PoolAttribute.RELEASE_THRESHOLD
        found.attributes[attribute] = int(bool(value)) if policy else value

    def mem_pool_trim_to(self, pool: int, min_bytes_to_keep: int) -> None:
        self._enter_live_call("mem_pool_trim_to", pool)

    def mem_pool_set_access(self, pool: int, entries: Sequence[AccessEntry]) -> None:
        found = self._enter_pool_call("mem_pool_set_access", pool, *(entry.location for entry in entries))
        self._check("mem_pool_set_access", found.set_access(entries, len(self._devices), self._reaches))

    def mem_pool_get_access(self, pool: int, location: Location) -> int:
        found = self._enter_pool_call("mem_pool_get_access", pool, location)
        code, flags = found.get_access(location, len(self._devices))
        self._check("mem_pool_get_access", code)
        return flags

    # --- what programs do with pools; not part of the port ---

    def mem_alloc_from_pool_async(self, pool: int, size: int) -> int:
        """A pointer to `size` bytes of the pool; 0 for 0 bytes."""
        found = self._enter_pool_call("mem_alloc_from_pool_async", pool)
        pointer = next(self._pointers)
        location = found.properties.location
        on_device = location.type == LocationType.DEVICE
        capacity = self._devices[location.id].memory if on_device else 16 * 1024 * GIB
        self._check("mem_alloc_from_pool_async", found.allocate(pointer, size, capacity, self._reaches))
        return pointer if size else 0

    def mem_free_async(self, pointer: int) -> None:
        """Gives an allocation back; the last one of a destroyed pool sets its handle free."""
        self._enter("mem_free_async")
        for pool in (*self._pools.values(), *self._dead.values()):
            if pointer in pool.allocations:
                pool.free(pointer)
                if pool.handle in self._dead and not pool.allocations:
                    self._cycle_of(pool).give(pool.handle)
                return
        self._fail("mem_free_async", Code.CUDA_ERROR_INVALID_VALUE)
