"""The contract's world through the real bindings: on hardware, or on the stand-in library."""

from __future__ import annotations

from typing import Any

from mempool_cli.driver.cuda import CudaDriver
from mempool_cli.driver.port import CaptureMode, Driver
from mempool_cli.errors import DriverError

from contract import CaptureHandle


def checked(call: str, answer: tuple[Any, ...]) -> Any:
    """The value that a call of the bindings returned beside its code."""
    code, *values = answer
    if code:
        raise DriverError(call, code.name, int(code))
    return values[0] if values else None


class BindingsCapture:
    def __init__(self, cuda: Any, stream: Any, mode: CaptureMode) -> None:
        self._cuda = cuda
        self._stream = stream
        modes = cuda.CUstreamCaptureMode
        checked("cuStreamBeginCapture", cuda.cuStreamBeginCapture(stream, modes(int(mode))))

    def end(self) -> bool:
        code, graph = self._cuda.cuStreamEndCapture(self._stream)
        if code:
            return False
        checked("cuGraphDestroy", self._cuda.cuGraphDestroy(graph))
        return True


class BindingsWorld:
    """A context and a stream exist only once a test needs them: pool calls must work without."""

    def __init__(self) -> None:
        from cuda.bindings import driver as cuda

        self._cuda: Any = cuda
        self.driver: Driver = CudaDriver()
        self.driver.init()
        self.devices = self.driver.device_get_count()
        self.memory = int(checked("cuDeviceTotalMem", cuda.cuDeviceTotalMem(0)))
        self._context: Any = None
        self._stream: Any = None

    def stream(self) -> Any:
        if self._stream is None:
            cuda = self._cuda
            self._context = checked("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(0))
            checked("cuCtxSetCurrent", cuda.cuCtxSetCurrent(self._context))
            flags = cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
            self._stream = checked("cuStreamCreate", cuda.cuStreamCreate(int(flags)))
        return self._stream

    def allocate(self, pool: int, size: int) -> int:
        stream = self.stream()
        pointer = checked("cuMemAllocFromPoolAsync", self._cuda.cuMemAllocFromPoolAsync(size, pool, stream))
        checked("cuStreamSynchronize", self._cuda.cuStreamSynchronize(stream))
        return int(pointer)

    def free(self, pointer: int) -> None:
        checked("cuMemFreeAsync", self._cuda.cuMemFreeAsync(pointer, self.stream()))
        checked("cuStreamSynchronize", self._cuda.cuStreamSynchronize(self.stream()))

    def begin_capture(self, mode: CaptureMode) -> CaptureHandle:
        return BindingsCapture(self._cuda, self.stream(), mode)

    def close(self) -> None:
        if self._stream is not None:
            checked("cuStreamDestroy", self._cuda.cuStreamDestroy(self._stream))
            checked("cuCtxSetCurrent", self._cuda.cuCtxSetCurrent(self._cuda.CUcontext(0)))
            checked("cuDevicePrimaryCtxRelease", self._cuda.cuDevicePrimaryCtxRelease(0))
