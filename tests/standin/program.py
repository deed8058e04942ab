"""A simulated process that is a whole program: what libraries such as cuda-core call besides the driver port."""

from __future__ import annotations

from typing import BinaryIO

from mempool_cli.driver.codes import Code
from mempool_cli.driver.sim.allocation import Allocation
from mempool_cli.driver.sim.machine import Machine, Process
from mempool_cli.driver.sim.pool import SimPool

from .shared import SharedAllocation

_GREATEST_PRIORITY = -5


class Program(Process):
    """Each method is the driver call of that name. Arguments are in the order of the C function, handles are ints."""

    def __init__(self, machine: Machine, visible: str | None) -> None:
        super().__init__(machine, visible)
        self.unsent: BinaryIO | None = None  # of memory that the call in progress has allocated

    def device_total_mem(self, device: int) -> int:
        return self._device("device_total_mem", device).memory

    # --- contexts ---

    def device_primary_ctx_reset(self, device: int) -> None:
        self._device("device_primary_ctx_reset", device)

    def device_primary_ctx_get_state(self, device: int) -> bool:
        self._device("device_primary_ctx_get_state", device)
        return self._retained.get(device, 0) > 0

    def ctx_get_current(self) -> int:
        self._enter("ctx_get_current")
        return self._stack[-1] if self._stack else 0

    def ctx_push_current(self, context: int) -> None:
        self._enter("ctx_push_current")
        self._check_context("ctx_push_current", context)
        self._stack.append(context)

    def ctx_pop_current(self) -> int:
        self._enter("ctx_pop_current")
        if not self._stack:
            self._fail("ctx_pop_current", Code.CUDA_ERROR_INVALID_CONTEXT)
        return self._stack.pop()

    def ctx_get_device(self) -> int:
        return self._enter_context_call("ctx_get_device")

    def ctx_get_stream_priority_range(self) -> tuple[int, int]:
        self._enter_context_call("ctx_get_stream_priority_range")
        return 0, _GREATEST_PRIORITY

    # --- streams ---

    def stream_create_with_priority(self, flags: int, priority: int) -> int:
        return self._new_stream(self._enter_context_call("stream_create_with_priority"))

    def stream_query(self, stream: int) -> None:
        self._enter_stream_call("stream_query", stream)

    # --- memory ---

    def _allocation(self, pointer: int, size: int, pool: SimPool | None) -> Allocation:
        if pool is not None and not pool.on_host:
            return super()._allocation(pointer, size, pool)
        shared = SharedAllocation(pointer, size, pool)
        self.unsent = shared.file
        return shared

    def mem_alloc_async(self, size: int, stream: int) -> int:
        """Unlike cuMemAllocFromPoolAsync it needs a context on any stream (measured)."""
        self._enter_context_call("mem_alloc_async")
        device = self._enter_stream_call("mem_alloc_async", stream)
        return self.mem_alloc_from_pool_async(size, self.device_get_mem_pool(device), stream)
