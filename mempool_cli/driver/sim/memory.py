"""The calls about memory. Who has access decides about memset and kernels, never about a copy (measured)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import AccessFlags, LocationType, PointerAttribute
from mempool_cli.driver.sim.allocation import Allocation
from mempool_cli.driver.sim.calls import SimulatedCrash
from mempool_cli.driver.sim.links import Links
from mempool_cli.driver.sim.pool import SimPool
from mempool_cli.driver.sim.profile import GIB

if TYPE_CHECKING:
    from mempool_cli.driver.sim.machine import Machine

_HOST_BYTES = 16 * 1024 * GIB
_FIRST_POINTER = 0x7F00_0000_0000
_FIRST_HOST_POINTER = 0x2000_0000_0000
_GRANULE = 2 << 20


class Memory(Links):
    """The allocations of the process."""

    def __init__(self, machine: Machine, visible: str | None) -> None:
        super().__init__(machine, visible)
        self._allocations: dict[int, Allocation] = {}
        self._next_pointer = _FIRST_POINTER
        self._next_host_pointer = _FIRST_HOST_POINTER

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
        pointer = self._next_host_pointer if found.on_host else self._next_pointer
        self._check(method, found.allocate(pointer, size, self._capacity(found), self._reaches))
        return self._allocated(pointer, size, found) if size else 0

    def _allocated(self, pointer: int, size: int, pool: SimPool | None) -> int:
        room = -(-size // _GRANULE) * _GRANULE
        allocation = self._allocation(pointer, size, pool)
        if allocation.on_host:
            self._next_host_pointer += room
        else:
            self._next_pointer += room
        self._allocations[pointer] = allocation
        return pointer

    def _allocation(self, pointer: int, size: int, pool: SimPool | None) -> Allocation:
        return Allocation(pointer, size, pool)

    def _capacity(self, pool: SimPool) -> int:
        location = pool.properties.location
        return self._devices[location.id].memory if location.type == LocationType.DEVICE else _HOST_BYTES

    def mem_free_async(self, pointer: int, stream: int) -> None:
        """Gives an allocation back; the last one of a destroyed pool sets its handle free."""
        self._enter_stream_call("mem_free_async", stream)
        allocation = self._allocations.get(pointer)
        if allocation is None or allocation.pool is None:
            self._fail("mem_free_async", Code.CUDA_ERROR_INVALID_VALUE)
        del self._allocations[pointer]
        pool = allocation.pool
        pool.free(pointer)
        if self._dead.get(pool.handle) is pool and not pool.allocations:
            self._cycle_of(pool).give(pool.handle)

    # --- memory of the host ---

    def mem_host_alloc(self, size: int, flags: int) -> int:
        self._enter_context_call("mem_host_alloc")
        return self._allocated(self._next_host_pointer, size, None) if size else 0

    def mem_free_host(self, pointer: int) -> None:
        self._enter("mem_free_host")
        allocation = self._allocations.get(pointer)
        if allocation is None or allocation.pool is not None:
            self._fail("mem_free_host", Code.CUDA_ERROR_INVALID_VALUE)
        del self._allocations[pointer]

    def load(self, pointer: int, size: int) -> bytes:
        return self._of_the_host(pointer, size).read(pointer, size)

    def store(self, pointer: int, data: bytes) -> None:
        self._of_the_host(pointer, len(data)).write(pointer, data)

    def _of_the_host(self, pointer: int, size: int) -> Allocation:
        allocation = self._holding(pointer, size)
        if allocation is None or not allocation.on_host:
            raise SimulatedCrash(f"the processor touches {pointer:#x}")
        return allocation

    # --- copies ---

    def memcpy_async(self, destination: int, source: int, size: int, stream: int) -> None:
        """Between devices it needs access (published: cuda-python's tests), with the host it does not (measured)."""
        device = self._enter_stream_call("memcpy_async", stream)
        to, origin = (self._found("memcpy_async", pointer, size) for pointer in (destination, source))
        if any(not (each.on_host or self._lets(device, each)) for each in (to, origin)):
            self._fail("memcpy_async", Code.CUDA_ERROR_INVALID_VALUE)
        self._copy("memcpy_async", (to, destination), (origin, source), size, stream)

    def memcpy_peer_async(
        self, destination: int, destination_context: int, source: int, source_context: int, size: int, stream: int
    ) -> None:
        """Needs no access to either pool (published: the program in CUDA.jl #3112), and no context by name (measured).

        A context that is not that of the memory is refused here: our choice, since nobody says what the driver does,
        and code that names the wrong one has a fault.
        """
        method = "memcpy_peer_async"
        self._enter_stream_call(method, stream)
        named = [self._check_context(method, each) if each else None for each in (destination_context, source_context)]
        to, origin = (self._found(method, pointer, size) for pointer in (destination, source))
        for device, allocation in zip(named, (to, origin), strict=True):
            if device is not None and allocation.device not in (device, None):
                self._fail(method, Code.CUDA_ERROR_INVALID_VALUE)
        self._copy(method, (to, destination), (origin, source), size, stream)

    def _copy(
        self, method: str, to: tuple[Allocation, int], origin: tuple[Allocation, int], size: int, stream: int
    ) -> None:
        """By the device of the stream: bytes at the second pointer to the first."""
        device = self._stream_device(stream)
        if device is None or any(self._faulty("refuse", device, each) for each, _ in (to, origin)):
            self._fail(method, Code.CUDA_ERROR_INVALID_VALUE)
        if self.capture.status(stream) or self._occupy(device, stream, to[0], origin[0]):
            return
        seen = self._read_by(device, origin[0])
        self._write(
            device,
            to[0],
            (to[1], size),
            lambda target: target.copy(to[1], seen, origin[1], size),
            source=origin[0],
            copy=True,
        )

    def memcpy_htod(self, pointer: int, data: bytes) -> None:
        self._of_a_kind("memcpy_htod", pointer, len(data)).write(pointer, data)

    def memcpy_dtoh(self, pointer: int, size: int) -> bytes:
        return self._of_a_kind("memcpy_dtoh", pointer, size).read(pointer, size)

    def _of_a_kind(self, method: str, pointer: int, size: int) -> Allocation:
        """Memory of a host pool is neither device nor host memory to a copy that names the kind (measured)."""
        self._enter_context_call(method)
        allocation = self._found(method, pointer, size)
        if allocation.pool is not None and allocation.on_host:
            self._fail(method, Code.CUDA_ERROR_INVALID_VALUE)
        return allocation

    def memset_d8_async(self, pointer: int, value: int, size: int, stream: int) -> None:
        device = self._enter_stream_call("memset_d8_async", stream)
        allocation = self._found("memset_d8_async", pointer, size)
        if not allocation.lets(device):
            self._fail("memset_d8_async", Code.CUDA_ERROR_INVALID_VALUE)
        if not self.capture.status(stream) and not self._occupy(device, stream, allocation):
            self._write(device, allocation, (pointer, size), lambda target: target.fill(pointer, value, size))

    def pointer_get_attribute(self, attribute: int, pointer: int) -> int:
        """The access flags are READWRITE whatever the pool says (measured)."""
        device = self._enter_context_call("pointer_get_attribute")
        allocation = self._found("pointer_get_attribute", pointer, 1)
        if attribute != PointerAttribute.ACCESS_FLAGS:
            self._fail("pointer_get_attribute", Code.CUDA_ERROR_INVALID_VALUE)
        honest = "honest-pointer-flags" in self.machine.profile.faults
        return AccessFlags.NONE if honest and not allocation.lets(device) else AccessFlags.READWRITE
