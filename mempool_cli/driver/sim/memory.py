"""The calls about memory. Who has access decides about memset and kernels, never about a copy (measured)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import AccessFlags, LocationType, PointerAttribute
from mempool_cli.driver.sim.allocation import Allocation
from mempool_cli.driver.sim.contexts import Contexts
from mempool_cli.driver.sim.pool import SimPool
from mempool_cli.driver.sim.profile import GIB

if TYPE_CHECKING:
    from mempool_cli.driver.sim.machine import Machine

_HOST_BYTES = 16 * 1024 * GIB
_FIRST_POINTER = 0x7F00_0000_0000
_GRANULE = 2 << 20


class Memory(Contexts):
    """The allocations of the process."""

    def __init__(self, machine: Machine, visible: str | None) -> None:
        super().__init__(machine, visible)
        self._allocations: dict[int, Allocation] = {}
        self._next_pointer = _FIRST_POINTER

    def _holding(self, pointer: int, size: int) -> Allocation | None:
        """The allocation that has all of these bytes."""
        return next((each for each in self._allocations.values() if each.holds(pointer, size)), None)

    def _found(self, method: str, pointer: int, size: int) -> Allocation:
        found = self._holding(pointer, size)
        if found is None:
            self._fail(method, Code.CUDA_ERROR_INVALID_VALUE)
        return found

    def mem_alloc_from_pool_async(self, size: int, pool: int, stream: int) -> int:
        """A pointer to `size` bytes of the pool; 0 for 0 bytes."""
        method = "mem_alloc_from_pool_async"
        self._enter_stream_call(method, stream, self._place(pool))
        found = self._pool(method, pool)
        pointer = self._next_pointer
        self._check(method, found.allocate(pointer, size, self._capacity(found), self._reaches))
        if size == 0:
            return 0
        self._next_pointer += -(-size // _GRANULE) * _GRANULE
        self._allocations[pointer] = Allocation(pointer, size, found)
        return pointer

    def _capacity(self, pool: SimPool) -> int:
        location = pool.properties.location
        return self._devices[location.id].memory if location.type == LocationType.DEVICE else _HOST_BYTES

    def mem_free_async(self, pointer: int, stream: int) -> None:
        """Gives an allocation back; the last one of a destroyed pool sets its handle free."""
        self._enter_stream_call("mem_free_async", stream)
        allocation = self._allocations.pop(pointer, None)
        if allocation is None:
            self._fail("mem_free_async", Code.CUDA_ERROR_INVALID_VALUE)
        pool = allocation.pool
        pool.free(pointer)
        if self._dead.get(pool.handle) is pool and not pool.allocations:
            self._cycle_of(pool).give(pool.handle)

    def memcpy_async(self, destination: int, source: int, size: int, stream: int) -> None:
        self._enter_stream_call("memcpy_async", stream)
        to, origin = (self._found("memcpy_async", pointer, size) for pointer in (destination, source))
        if not self.capture.status(stream):
            to.copy(destination, origin, source, size)

    def memcpy_htod(self, pointer: int, data: bytes) -> None:
        self._enter_context_call("memcpy_htod")
        self._found("memcpy_htod", pointer, len(data)).write(pointer, data)

    def memcpy_dtoh(self, pointer: int, size: int) -> bytes:
        """Memory of a host pool is no device memory to it (measured)."""
        self._enter_context_call("memcpy_dtoh")
        allocation = self._found("memcpy_dtoh", pointer, size)
        if allocation.pool.properties.location.type != LocationType.DEVICE:
            self._fail("memcpy_dtoh", Code.CUDA_ERROR_INVALID_VALUE)
        return allocation.read(pointer, size)

    def memset_d8_async(self, pointer: int, value: int, size: int, stream: int) -> None:
        device = self._enter_stream_call("memset_d8_async", stream)
        allocation = self._found("memset_d8_async", pointer, size)
        if not allocation.pool.lets(device):
            self._fail("memset_d8_async", Code.CUDA_ERROR_INVALID_VALUE)
        if not self.capture.status(stream):
            allocation.fill(pointer, value, size)

    def pointer_get_attribute(self, attribute: int, pointer: int) -> int:
        """The access flags are READWRITE whatever the pool says (measured)."""
        device = self._enter_context_call("pointer_get_attribute")
        allocation = self._found("pointer_get_attribute", pointer, 1)
        if attribute != PointerAttribute.ACCESS_FLAGS:
            self._fail("pointer_get_attribute", Code.CUDA_ERROR_INVALID_VALUE)
        honest = "honest-pointer-flags" in self.machine.profile.faults
        return AccessFlags.NONE if honest and not allocation.pool.lets(device) else AccessFlags.READWRITE
