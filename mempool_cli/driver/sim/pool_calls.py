"""The calls about pools."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import (
    AccessEntry,
    AllocationType,
    Location,
    LocationType,
    PoolAttribute,
    PoolProperties,
    device_location,
    driver_call,
)
from mempool_cli.driver.sim.calls import SimulatedCrash
from mempool_cli.driver.sim.devices import SUPPORTED_HANDLE_TYPES, Devices
from mempool_cli.driver.sim.pool import SimPool
from mempool_cli.driver.sim.profile import GIB
from mempool_cli.driver.sim.recycling import HandleCycle

if TYPE_CHECKING:
    from mempool_cli.driver.sim.machine import Machine

# Live pools before OUT_OF_MEMORY fit one address space in which each pool of a device takes twice its size:
# 468 of 139.8 GiB, 654 of 100 GiB.
_ADDRESS_SPACE = (128 * 1024 - 150) * GIB
_HANDLE_STEP = 0x200
# The memory of a destroyed pool is read on from, but a session that creates and destroys for weeks must not grow.
_DEAD_KEPT = 1024
_HIGH_WATER = (PoolAttribute.RESERVED_MEM_HIGH, PoolAttribute.USED_MEM_HIGH)


class Pools(Devices):
    """The pools of the process, the destroyed ones too, since the driver reads on from them."""

    def __init__(self, machine: Machine, visible: str | None) -> None:
        super().__init__(machine, visible)
        self._address_space_taken = 0
        self._pools: dict[int, SimPool] = {}
        self._dead: dict[int, SimPool] = {}
        self._default: dict[int, int] = {}
        self._current: dict[int, int] = {}
        self._cycles: dict[tuple[Location, int, int], HandleCycle] = {}
        self._residue: dict[int, dict[int, int]] = {}
        self._handles = itertools.count(0x5500_0000_0000, _HANDLE_STEP)

    def _enter_pool_call(self, method: str, pool: int, *named: Location) -> SimPool:
        """As _enter, for a call on a pool; the pool may be a destroyed one, whose memory the driver still reads."""
        self._enter(method, self._place(pool), *named)
        if self.capture.forbids():
            self._fail(method, Code.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        return self._pool(method, pool)

    def _place(self, pool: int) -> Location | None:
        found = self._pools.get(pool) or self._dead.get(pool)
        return found.properties.location if found else None

    def _pool(self, method: str, pool: int) -> SimPool:
        if pool == 0:
            self._fail(method, Code.CUDA_ERROR_INVALID_VALUE)
        found = self._pools.get(pool) or self._dead.get(pool)
        if found is None:
            raise SimulatedCrash(f"{driver_call(method)} on {pool:#x}, which never was a pool")
        return found

    def _enter_live_call(self, method: str, pool: int) -> SimPool:
        """As _enter_pool_call, for the calls that notice a destroyed pool."""
        found = self._enter_pool_call(method, pool)
        if pool in self._dead:
            self._fail(method, Code.CUDA_ERROR_INVALID_VALUE)
        return found

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
        faults = self.machine.profile.faults
        new = next(self._handles)
        handle, recycled = (new, False) if "fresh-handles" in faults else cycle.take(new)
        pool = SimPool(handle, properties, faults=faults)
        self._dead.pop(handle, None)
        residue = self._residue.pop(handle, {})
        if recycled and pool.owner is not None and "recycled-handle" in faults:
            pool.access = residue
        self._pools[handle] = pool
        self._address_space_taken += self._address_space(properties)
        return handle

    def _creatable(self, properties: PoolProperties) -> Code:
        location = properties.location
        profile = self.machine.profile
        managed = properties.allocation_type == AllocationType.MANAGED
        if not managed and properties.allocation_type != AllocationType.PINNED:
            return Code.CUDA_ERROR_INVALID_VALUE
        if properties.handle_types & ~SUPPORTED_HANDLE_TYPES or (managed and properties.max_size):
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
        if len(self._dead) > _DEAD_KEPT:
            self._forget(next(iter(self._dead)))

    def _forget(self, pool: int) -> None:
        """A pool that has been dead for long. What is still allocated from it is its own memory's matter."""
        del self._dead[pool]
        self._residue.pop(pool, None)

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
