"""A simulated process that is a whole program: contexts and streams, as far as they decide about pools."""

from __future__ import annotations

import itertools

from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import CaptureMode
from mempool_cli.driver.sim.machine import Machine, Process

_ACTIVE = 1
_INVALIDATED = 2
_GREATEST_PRIORITY = -5
_CONTEXTS = 0x6000_0000_0000
_IMPLICIT_STREAMS = (0, 1, 2)  # NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD: of the current context


class Program(Process):
    """Each method is the driver call of that name. Arguments are in the order of the C function, handles are ints."""

    def __init__(self, machine: Machine, visible: str | None) -> None:
        super().__init__(machine, visible)
        self._retained: dict[int, int] = {}
        self._contexts: dict[int | None, list[int]] = {}
        self._streams: dict[int, int] = {}
        self._stream_handles = itertools.count(0x6100_0000_0000, 0x100)
        self._graphs = itertools.count(0x6200_0000_0000, 0x100)

    def device_total_mem(self, device: int) -> int:
        return self._device("device_total_mem", device).memory

    # --- contexts ---

    @property
    def _stack(self) -> list[int]:
        return self._contexts.setdefault(self.capture.calling_thread, [])

    def _need_context(self, method: str) -> int:
        self._enter(method)
        if not self._stack or not self._stack[-1]:
            self._fail(method, Code.CUDA_ERROR_INVALID_CONTEXT)
        return self._stack[-1]

    def device_primary_ctx_retain(self, device: int) -> int:
        self._device("device_primary_ctx_retain", device)
        self._retained[device] = self._retained.get(device, 0) + 1
        return _CONTEXTS + device

    def device_primary_ctx_release(self, device: int) -> None:
        self._device("device_primary_ctx_release", device)
        if not self._retained.get(device):
            self._fail("device_primary_ctx_release", Code.CUDA_ERROR_INVALID_CONTEXT)
        self._retained[device] -= 1

    def device_primary_ctx_reset(self, device: int) -> None:
        self._device("device_primary_ctx_reset", device)

    def device_primary_ctx_get_state(self, device: int) -> bool:
        self._device("device_primary_ctx_get_state", device)
        return self._retained.get(device, 0) > 0

    def ctx_set_current(self, context: int) -> None:
        self._enter("ctx_set_current")
        if self._stack:
            self._stack.pop()
        if context:
            self._stack.append(context)

    def ctx_get_current(self) -> int:
        self._enter("ctx_get_current")
        return self._stack[-1] if self._stack else 0

    def ctx_push_current(self, context: int) -> None:
        self._enter("ctx_push_current")
        self._stack.append(context)

    def ctx_pop_current(self) -> int:
        self._need_context("ctx_pop_current")
        return self._stack.pop()

    def ctx_get_device(self) -> int:
        return self._need_context("ctx_get_device") - _CONTEXTS

    def ctx_synchronize(self) -> None:
        self._need_context("ctx_synchronize")

    def ctx_get_stream_priority_range(self) -> tuple[int, int]:
        self._need_context("ctx_get_stream_priority_range")
        return 0, _GREATEST_PRIORITY

    # --- streams ---

    def _stream(self, method: str, stream: int) -> None:
        self._enter(method)
        if stream in _IMPLICIT_STREAMS:
            self._need_context(method)
        elif stream not in self._streams:
            self._fail(method, Code.CUDA_ERROR_INVALID_HANDLE)

    def stream_create(self, flags: int) -> int:
        return self.stream_create_with_priority(flags, 0)

    def stream_create_with_priority(self, flags: int, priority: int) -> int:
        context = self._need_context("stream_create_with_priority")
        stream = next(self._stream_handles)
        self._streams[stream] = context - _CONTEXTS
        return stream

    def stream_destroy(self, stream: int) -> None:
        self._stream("stream_destroy", stream)
        self._streams.pop(stream, None)

    def stream_synchronize(self, stream: int) -> None:
        self._stream("stream_synchronize", stream)

    def stream_query(self, stream: int) -> None:
        self._stream("stream_query", stream)

    def stream_begin_capture(self, stream: int, mode: int) -> None:
        self._stream("stream_begin_capture", stream)
        if stream in _IMPLICIT_STREAMS:
            self._fail("stream_begin_capture", Code.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        if mode not in set(CaptureMode):
            self._fail("stream_begin_capture", Code.CUDA_ERROR_INVALID_VALUE)
        if self.capture.status(stream):
            self._fail("stream_begin_capture", Code.CUDA_ERROR_ILLEGAL_STATE)
        self.capture.begin(stream, mode)

    def stream_end_capture(self, stream: int) -> int:
        self._stream("stream_end_capture", stream)
        if not self.capture.status(stream):
            self._fail("stream_end_capture", Code.CUDA_ERROR_ILLEGAL_STATE)
        if not self.capture.end(stream):
            self._fail("stream_end_capture", Code.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        return next(self._graphs)

    def stream_is_capturing(self, stream: int) -> int:
        self._stream("stream_is_capturing", stream)
        capture = self.capture.status(stream)
        if capture is None:
            return 0
        return _INVALIDATED if capture.invalidated else _ACTIVE

    def graph_destroy(self, graph: int) -> None:
        self._enter("graph_destroy")

    # --- memory ---

    def alloc_from_pool(self, size: int, pool: int, stream: int) -> int:
        """cuMemAllocFromPoolAsync: unlike cuMemAllocAsync it needs a context only for an implicit stream (measured)."""
        self._stream("mem_alloc_from_pool_async", stream)
        return self.mem_alloc_from_pool_async(pool, size)

    def mem_alloc_async(self, size: int, stream: int) -> int:
        context = self._need_context("mem_alloc_async")
        self._stream("mem_alloc_async", stream)
        device = self._streams.get(stream, context - _CONTEXTS)
        return self.mem_alloc_from_pool_async(self.device_get_mem_pool(device), size)

    def free(self, pointer: int, stream: int) -> None:
        """cuMemFreeAsync."""
        self._stream("mem_free_async", stream)
        self.mem_free_async(pointer)
