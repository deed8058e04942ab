"""An owner of memory and a device that accesses it, in a process that is thrown away: nothing here is cleaned up."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

from mempool_cli.driver import kernels
from mempool_cli.driver.port import AccessEntry, Driver, Location, LocationType, PoolProperties, device_location

import data_path
from data_path import refusal

SIZE = 4096
_GIB = 1 << 30

Answer = dict[str, Any]


class Side(NamedTuple):
    """A device's context, and a stream in it."""

    context: int
    stream: int


class Memory(NamedTuple):
    """`SIZE` bytes, and the side in whose context they are read and written."""

    pointer: int
    side: Side
    on_host: bool


class TwoSides:
    """The port, the place of the pools, and the device that accesses them. A context exists once it is needed."""

    def __init__(self, driver: Driver, owner: Location, accessor: int) -> None:
        self.driver = driver
        self.owner = owner
        self.accessor = accessor
        self.on_host = owner.type != LocationType.DEVICE

    @cached_property
    def home(self) -> Side:
        """Where the owner's memory is allocated; that of the host, by the accessor."""
        return self.away if self.on_host else self._side(self.owner.id)

    @cached_property
    def away(self) -> Side:
        """The accessor's."""
        return self._side(self.accessor)

    def _side(self, device: int) -> Side:
        context = self.driver.device_primary_ctx_retain(device)
        return Side(context, data_path.own_stream(self.driver, device))

    def create(self, max_size: int = _GIB) -> int:
        return self.driver.mem_pool_create(PoolProperties(self.owner, max_size))

    def set(self, pool: int, *flags: int) -> str:
        """What one call answers that has these flags for the accessor, an entry each."""
        entries = [AccessEntry(device_location(self.accessor), each) for each in flags]
        return refusal(lambda: self.driver.mem_pool_set_access(pool, entries))

    def get(self, pool: int) -> int:
        """The accessor's flags."""
        return self.driver.mem_pool_get_access(pool, device_location(self.accessor))

    def allocate(self, pool: int, size: int = SIZE) -> int:
        """Memory of a pool, on the owner's stream."""
        pointer = self.driver.mem_alloc_from_pool_async(size, pool, self.home.stream)
        self.driver.stream_synchronize(self.home.stream)
        return pointer

    def free(self, pointer: int) -> None:
        self.driver.mem_free_async(pointer, self.home.stream)
        self.driver.stream_synchronize(self.home.stream)

    def memory(self) -> tuple[int, Memory]:
        """A pool of the owner's, and memory of it."""
        pool = self.create()
        return pool, Memory(self.allocate(pool), self.home, self.on_host)

    def own_memory(self) -> Memory:
        """Memory of the accessor, which nobody else may access."""
        pool = self.driver.mem_pool_create(PoolProperties(device_location(self.accessor), _GIB))
        pointer = self.driver.mem_alloc_from_pool_async(SIZE, pool, self.away.stream)
        self.driver.stream_synchronize(self.away.stream)
        return Memory(pointer, self.away, on_host=False)

    def put(self, memory: Memory, data: bytes) -> None:
        """Writes as its owner does."""
        if memory.on_host:
            self.driver.store(memory.pointer, data)
            return
        self.driver.ctx_set_current(memory.side.context)
        data_path.put(self.driver, memory.pointer, data)

    def look(self, memory: Memory, size: int = SIZE) -> bytes:
        """Reads as its owner does."""
        if memory.on_host:
            return self.driver.load(memory.pointer, size)
        self.driver.ctx_set_current(memory.side.context)
        return self.driver.memcpy_dtoh(memory.pointer, size)

    def kernel_writes(self, pointer: int) -> str:
        """What comes of a kernel of the accessor that writes there."""
        self.driver.ctx_set_current(self.away.context)
        write = data_path.kernel(self.driver, kernels.WRITE)

        def run() -> None:
            self.launch(write, kernels.write_parameters(pointer, 7))
            self.driver.stream_synchronize(self.away.stream)

        return refusal(run)

    def launch(self, function: int, parameters: bytes) -> None:
        """A kernel of the accessor, one thread, begins."""
        self.driver.launch_kernel(function, data_path.ONE, data_path.ONE, self.away.stream, parameters)
