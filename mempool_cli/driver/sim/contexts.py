"""The calls about contexts, streams, events and capture."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import CaptureMode, CaptureStatus, ComputeMode, Location
from mempool_cli.driver.sim.pool_calls import Pools

if TYPE_CHECKING:
    from mempool_cli.driver.sim.machine import Machine

_CONTEXTS = 0x6000_0000_0000
_IMPLICIT_STREAMS = (0, 1, 2)  # NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD: of the current context


class Contexts(Pools):
    """The primary contexts of the devices, which threads have them current, and the streams."""

    def __init__(self, machine: Machine, visible: str | None) -> None:
        super().__init__(machine, visible)
        self._retained: dict[int, int] = {}
        self._context_stacks: dict[int, list[int]] = {}
        self._streams: dict[int, int] = {}
        self._lost: dict[int, Code] = {}
        self._stream_handles = itertools.count(0x6100_0000_0000, 0x100)
        self._graphs = itertools.count(0x6200_0000_0000, 0x100)
        self._events: dict[int, float | None] = {}
        self._event_devices: dict[int, int] = {}
        self._event_handles = itertools.count(0x6400_0000_0000, 0x100)

    @property
    def _stack(self) -> list[int]:
        """The calling thread's contexts, the current one last."""
        return self._context_stacks.setdefault(self.capture.thread, [])

    def _current_device(self) -> int | None:
        return self._stack[-1] - _CONTEXTS if self._stack else None

    def _stream_device(self, stream: int) -> int | None:
        return self._current_device() if stream in _IMPLICIT_STREAMS else self._streams.get(stream)

    def _enter_context_call(self, method: str, *named: Location | None) -> int:
        """As _enter, for a call that needs a current context; its device. A lost context answers why it was lost."""
        return self._enter_with(method, self._current_device(), Code.CUDA_ERROR_INVALID_CONTEXT, *named)

    def _enter_stream_call(self, method: str, stream: int, *named: Location | None) -> int:
        """As _enter_context_call, for the context of a stream: only an implicit one needs a current context."""
        implicit = stream in _IMPLICIT_STREAMS
        absent = Code.CUDA_ERROR_INVALID_CONTEXT if implicit else Code.CUDA_ERROR_INVALID_HANDLE
        return self._enter_with(method, self._stream_device(stream), absent, *named)

    def _enter_with(self, method: str, device: int | None, absent: Code, *named: Location | None) -> int:
        self._enter(method, device, *named)
        if device is None:
            self._fail(method, absent)
        self._check(method, self._lost.get(device, Code.CUDA_SUCCESS))
        return device

    # --- contexts ---

    def device_primary_ctx_retain(self, device: int) -> int:
        card = self._device("device_primary_ctx_retain", device)
        if card.compute_mode == ComputeMode.PROHIBITED:
            self._fail("device_primary_ctx_retain", Code.CUDA_ERROR_DEVICE_UNAVAILABLE)
        self._retained[device] = self._retained.get(device, 0) + 1
        return _CONTEXTS + device

    def device_primary_ctx_release(self, device: int) -> None:
        self._device("device_primary_ctx_release", device)
        if not self._retained.get(device):
            self._fail("device_primary_ctx_release", Code.CUDA_ERROR_INVALID_CONTEXT)
        self._retained[device] -= 1

    def ctx_set_current(self, context: int) -> None:
        self._enter("ctx_set_current")
        if context:
            self._check_context("ctx_set_current", context)
        if self._stack:
            self._stack.pop()
        if context:
            self._stack.append(context)

    def _check_context(self, method: str, context: int) -> int:
        """Its device. A handle that is no live context is INVALID_CONTEXT (published: CUresult in cuda.h)."""
        device = context - _CONTEXTS
        if not self._retained.get(device):
            self._fail(method, Code.CUDA_ERROR_INVALID_CONTEXT)
        return device

    def ctx_synchronize(self) -> None:
        self._enter_context_call("ctx_synchronize")

    # --- streams ---

    def stream_create(self, flags: int) -> int:
        return self._new_stream(self._enter_context_call("stream_create"))

    def _new_stream(self, device: int) -> int:
        stream = next(self._stream_handles)
        self._streams[stream] = device
        return stream

    def stream_destroy(self, stream: int) -> None:
        self._enter_stream_call("stream_destroy", stream)
        self._streams.pop(stream, None)

    def stream_synchronize(self, stream: int) -> None:
        self._enter_stream_call("stream_synchronize", stream)

    # --- events; they come to pass when they are recorded, since the work before them is done by then ---

    def event_create(self, flags: int) -> int:
        device = self._enter_context_call("event_create")
        event = next(self._event_handles)
        self._events[event], self._event_devices[event] = None, device
        return event

    def event_destroy(self, event: int) -> None:
        self._known_event("event_destroy", event)
        del self._events[event]

    def event_record(self, event: int, stream: int) -> None:
        device = self._enter_stream_call("event_record", stream)
        self._known_event("event_record", event)
        if self._event_devices[event] != device:
            self._fail("event_record", Code.CUDA_ERROR_INVALID_HANDLE)
        self._events[event] = time.perf_counter()

    def event_elapsed_time(self, start: int, end: int) -> float:
        first, last = (self._known_event("event_elapsed_time", event) for event in (start, end))
        if first is None or last is None:
            self._fail("event_elapsed_time", Code.CUDA_ERROR_INVALID_HANDLE)
        return (last - first) * 1e3

    def _known_event(self, method: str, event: int) -> float | None:
        self._enter(method)
        if event not in self._events:
            self._fail(method, Code.CUDA_ERROR_INVALID_HANDLE)
        return self._events[event]

    # --- capture ---

    def thread_exchange_stream_capture_mode(self, mode: int) -> int:
        self._enter("thread_exchange_stream_capture_mode")
        return self.capture.exchange_mode(mode)

    def stream_begin_capture(self, stream: int, mode: int) -> None:
        self._enter_stream_call("stream_begin_capture", stream)
        if stream in _IMPLICIT_STREAMS:
            self._fail("stream_begin_capture", Code.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        if mode not in set(CaptureMode):
            self._fail("stream_begin_capture", Code.CUDA_ERROR_INVALID_VALUE)
        if self.capture.status(stream):
            self._fail("stream_begin_capture", Code.CUDA_ERROR_ILLEGAL_STATE)
        self.capture.begin(stream, mode)

    def stream_end_capture(self, stream: int) -> int:
        self._enter_stream_call("stream_end_capture", stream)
        if not self.capture.status(stream):
            self._fail("stream_end_capture", Code.CUDA_ERROR_ILLEGAL_STATE)
        if not self.capture.end(stream):
            self._fail("stream_end_capture", Code.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        return next(self._graphs)

    def stream_is_capturing(self, stream: int) -> int:
        self._enter_stream_call("stream_is_capturing", stream)
        capture = self.capture.status(stream)
        if capture is None:
            return CaptureStatus.NONE
        return CaptureStatus.INVALIDATED if capture.invalidated else CaptureStatus.ACTIVE

    def graph_destroy(self, graph: int) -> None:
        self._enter("graph_destroy")
