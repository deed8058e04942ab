"""The real driver, through cuda.bindings.driver: build the struct, call, check.

The bindings of 12.9 and 13.x differ in what they accept and in how they fail. Where the driver takes an
enumeration they want a member of theirs, some also an int; but the driver should get any number. Codes and flags
that they do not know become exceptions, raised after the driver has answered.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from mempool_cli.driver.identity import loaded_libcuda, stub, too_old
from mempool_cli.driver.port import AccessEntry, Dimensions, Location, PoolAttribute, PoolProperties
from mempool_cli.errors import DriverError, MempoolError

_NAME_BYTES = 1024
_BUS_ID_BYTES = 64

# The driver's own layouts, the same since CUDA 11.2.
_LOCATION = struct.Struct("=ii")  # CUmemLocation: type, id
_ACCESS = struct.Struct("=iii")  # CUmemAccessDesc: location, flags
_PROPERTIES = struct.Struct("=iiiiQQ")  # CUmemPoolProps: allocType, handleTypes, location, win32 attributes, maxSize

# cuuint64_t, where the others are int; 13 is the maximal pool size, which no release could set so far.
_WIDE_ATTRIBUTES = frozenset({*range(PoolAttribute.RELEASE_THRESHOLD, PoolAttribute.USED_MEM_HIGH + 1), 13})

# What `extra` of cuLaunchKernel lists: CU_LAUNCH_PARAM_END, _BUFFER_POINTER, _BUFFER_SIZE.
_END, _BUFFER, _BUFFER_SIZE = 0, 1, 2

_NOT_A_MEMBER = re.compile(r"(-?\d+) is not a valid (\w+)")
_NOT_FOUND = re.compile(r'[Ff]unction "?(cu\w+)"? (?:is )?not found')
_EVERY_DRIVER = ("cuInit", "cuDriverGetVersion")
_RAISED = (ValueError, KeyError, TypeError, OverflowError, RuntimeError)


class _Number(int):
    """A number that the bindings take for a member of an enumeration, whether or not they know it."""

    @property
    def value(self) -> int:
        return int(self)

    @property
    def name(self) -> str:
        return str(int(self))


class CudaDriver:
    """The CUDA driver of this machine. The library is loaded by the first call, not before.

    Besides DriverError, any call raises MempoolError `no-driver` when there is no library, `driver-too-old` when
    it is older than CUDA 12.0, and `missing-function` when it lacks that call.
    """

    kind = "cuda"

    def __init__(self) -> None:
        try:
            import cuda.bindings
            from cuda.bindings import driver
        except ImportError as error:
            raise MempoolError(
                "no-bindings",
                f"NVIDIA's Python bindings cannot be imported: {error}",
                hint="pip install 'cuda-bindings>=12.9,<14'; `--sim 4` tries the tool without them",
            ) from error
        self.bindings = str(cuda.bindings.__version__)
        self._cuda: Any = driver
        # 12.9 has both versions of this call, 13 only the second, by the first one's name.
        self._get_uuid = getattr(driver, "cuDeviceGetUuid_v2", driver.cuDeviceGetUuid)
        self._get_access = driver.cuMemPoolGetAccess
        self._locations: dict[Location, Any] = {}

    def _call(self, call: str, *arguments: Any) -> Any:
        return _answer(call, getattr(self._cuda, call), *arguments)

    # --- process and devices ---

    def init(self) -> None:
        self._call("cuInit", 0)

    def driver_get_version(self) -> int:
        return int(self._call("cuDriverGetVersion"))

    def device_get_count(self) -> int:
        return int(self._call("cuDeviceGetCount"))

    def device_get(self, ordinal: int) -> int:
        return int(self._call("cuDeviceGet", ordinal))

    def device_get_name(self, device: int) -> str:
        return _text(self._call("cuDeviceGetName", _NAME_BYTES, device))

    def device_get_uuid(self, device: int) -> bytes:
        return bytes(_answer("cuDeviceGetUuid", self._get_uuid, device).bytes)

    def device_get_pci_bus_id(self, device: int) -> str:
        return _text(self._call("cuDeviceGetPCIBusId", _BUS_ID_BYTES, device))

    def device_get_attribute(self, attribute: int, device: int) -> int:
        return int(self._call("cuDeviceGetAttribute", _Number(attribute), device))

    def device_can_access_peer(self, device: int, peer: int) -> bool:
        return bool(self._call("cuDeviceCanAccessPeer", device, peer))

    def device_get_p2p_attribute(self, attribute: int, source: int, destination: int) -> int:
        return int(self._call("cuDeviceGetP2PAttribute", _Number(attribute), source, destination))

    def thread_exchange_stream_capture_mode(self, mode: int) -> int:
        return int(self._call("cuThreadExchangeStreamCaptureMode", _Number(mode)))

    # --- pools ---

    def device_get_default_mem_pool(self, device: int) -> int:
        return int(self._call("cuDeviceGetDefaultMemPool", device))

    def device_get_mem_pool(self, device: int) -> int:
        return int(self._call("cuDeviceGetMemPool", device))

    def device_set_mem_pool(self, device: int, pool: int) -> None:
        self._call("cuDeviceSetMemPool", device, pool)

    def mem_pool_create(self, properties: PoolProperties) -> int:
        location, max_size, allocation_type, handle_types = properties
        packed = _PROPERTIES.pack(allocation_type, handle_types, *location, 0, max_size)
        return int(self._call("cuMemPoolCreate", _filled(self._cuda.CUmemPoolProps(), packed)))

    def mem_pool_destroy(self, pool: int) -> None:
        self._call("cuMemPoolDestroy", pool)

    def mem_pool_get_attribute(self, pool: int, attribute: int) -> int:
        return int(self._call("cuMemPoolGetAttribute", pool, _Number(attribute)))

    def mem_pool_set_attribute(self, pool: int, attribute: int, value: int) -> None:
        typed = self._cuda.cuuint64_t(value) if attribute in _WIDE_ATTRIBUTES else value
        self._call("cuMemPoolSetAttribute", pool, _Number(attribute), typed)

    def mem_pool_trim_to(self, pool: int, min_bytes_to_keep: int) -> None:
        self._call("cuMemPoolTrimTo", pool, min_bytes_to_keep)

    def mem_pool_set_access(self, pool: int, entries: Sequence[AccessEntry]) -> None:
        descriptors = [
            _filled(self._cuda.CUmemAccessDesc(), _ACCESS.pack(*location, flags)) for location, flags in entries
        ]
        self._call("cuMemPoolSetAccess", pool, descriptors, len(descriptors))

    def mem_pool_get_access(self, pool: int, location: Location) -> int:
        # n * n of these make a matrix: as _call, less what costs more than the driver's 0.35 us.
        place = self._locations.get(location)
        if place is None:
            place = self._locations[location] = _filled(self._cuda.CUmemLocation(), _LOCATION.pack(*location))
        try:
            code, flags = self._get_access(pool, place)
        except _RAISED as error:
            return _unknown_number("cuMemPoolGetAccess", error)
        if code:
            raise DriverError("cuMemPoolGetAccess", code.name, int(code))
        return int(flags)

    # --- contexts and streams ---

    def device_primary_ctx_retain(self, device: int) -> int:
        return int(self._call("cuDevicePrimaryCtxRetain", device))

    def device_primary_ctx_release(self, device: int) -> None:
        self._call("cuDevicePrimaryCtxRelease", device)

    def ctx_set_current(self, context: int) -> None:
        self._call("cuCtxSetCurrent", context)

    def ctx_synchronize(self) -> None:
        self._call("cuCtxSynchronize")

    def stream_create(self, flags: int) -> int:
        return int(self._call("cuStreamCreate", flags))

    def stream_destroy(self, stream: int) -> None:
        self._call("cuStreamDestroy", stream)

    def stream_synchronize(self, stream: int) -> None:
        self._call("cuStreamSynchronize", stream)

    def stream_begin_capture(self, stream: int, mode: int) -> None:
        self._call("cuStreamBeginCapture", stream, _Number(mode))

    def stream_end_capture(self, stream: int) -> int:
        return int(self._call("cuStreamEndCapture", stream))

    def stream_is_capturing(self, stream: int) -> int:
        return int(self._call("cuStreamIsCapturing", stream))

    def graph_destroy(self, graph: int) -> None:
        self._call("cuGraphDestroy", graph)

    def event_create(self, flags: int) -> int:
        return int(self._call("cuEventCreate", flags))

    def event_destroy(self, event: int) -> None:
        self._call("cuEventDestroy", event)

    def event_record(self, event: int, stream: int) -> None:
        self._call("cuEventRecord", event, stream)

    def event_elapsed_time(self, start: int, end: int) -> float:
        return float(self._call("cuEventElapsedTime", start, end))

    # --- memory ---

    def mem_alloc_from_pool_async(self, size: int, pool: int, stream: int) -> int:
        return int(self._call("cuMemAllocFromPoolAsync", size, pool, stream))

    def mem_free_async(self, pointer: int, stream: int) -> None:
        self._call("cuMemFreeAsync", pointer, stream)

    def memcpy_async(self, destination: int, source: int, size: int, stream: int) -> None:
        self._call("cuMemcpyAsync", destination, source, size, stream)

    def memcpy_peer_async(
        self, destination: int, destination_context: int, source: int, source_context: int, size: int, stream: int
    ) -> None:
        self._call("cuMemcpyPeerAsync", destination, destination_context, source, source_context, size, stream)

    def memcpy_htod(self, pointer: int, data: bytes) -> None:
        self._call("cuMemcpyHtoD", pointer, data, len(data))

    def memcpy_dtoh(self, pointer: int, size: int) -> bytes:
        data = bytearray(size)
        self._call("cuMemcpyDtoH", data, pointer, size)
        return bytes(data)

    def memset_d8_async(self, pointer: int, value: int, size: int, stream: int) -> None:
        self._call("cuMemsetD8Async", pointer, value, size, stream)

    def mem_host_alloc(self, size: int, flags: int) -> int:
        return int(self._call("cuMemHostAlloc", size, flags))

    def mem_free_host(self, pointer: int) -> None:
        self._call("cuMemFreeHost", pointer)

    def load(self, pointer: int, size: int) -> bytes:
        return ctypes.string_at(pointer, size)

    def store(self, pointer: int, data: bytes) -> None:
        ctypes.memmove(pointer, data, len(data))

    def pointer_get_attribute(self, attribute: int, pointer: int) -> int:
        return int(self._call("cuPointerGetAttribute", _Number(attribute), pointer))

    # --- kernels ---

    def module_load_data(self, image: bytes) -> int:
        return int(self._call("cuModuleLoadData", image))

    def module_get_function(self, module: int, name: str) -> int:
        return int(self._call("cuModuleGetFunction", module, name.encode()))

    def launch_kernel(self, function: int, grid: Dimensions, block: Dimensions, stream: int, parameters: bytes) -> None:
        buffer = ctypes.create_string_buffer(parameters, len(parameters))
        size = ctypes.c_size_t(len(parameters))
        pairs = (_BUFFER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), _END)
        extra = (ctypes.c_void_p * len(pairs))(*pairs)
        self._call("cuLaunchKernel", function, *grid, *block, 0, stream, 0, ctypes.addressof(extra))


def _answer(call: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the call returns besides its code: one value, or None."""
    try:
        code, *values = function(*arguments)
    except _RAISED as error:
        return _unknown_number(call, error)
    if code:
        raise DriverError(call, code.name, int(code))
    return values[0] if values else None


def _unknown_number(call: str, error: Exception) -> int:
    """The number of an enumeration that the driver answered and the bindings do not know; any other error is raised."""
    match = _NOT_A_MEMBER.fullmatch(str(error))
    if match and match[2] != "CUresult":
        return int(match[1])
    if match or (isinstance(error, KeyError) and isinstance(error.args[0], int)):
        code = int(match[1] if match else error.args[0])
        raise DriverError(call, f"CUresult {code}", code) from error
    unsupported = isinstance(error, TypeError) and str(error).startswith("Unsupported attribute")
    if unsupported or (isinstance(error, OverflowError) and call.endswith("Attribute")):
        # Refused before the call; the driver answers INVALID_VALUE for what these bindings do not know (measured).
        # 13.3.1 on Python 3.12: OverflowError for a negative one.
        raise DriverError(call, "CUDA_ERROR_INVALID_VALUE", 1) from error
    if isinstance(error, RuntimeError):
        _raise_unusable(error)
    raise error


def _raise_unusable(error: RuntimeError) -> NoReturn:
    """Tells no library, an old one and a missing function apart: by the words, since the classes are private or new."""
    text = str(error)
    missing = _NOT_FOUND.search(text)
    if missing and missing[1] in _EVERY_DRIVER and loaded_libcuda() is not None:
        raise stub() from error
    if missing and loaded_libcuda() is not None:
        raise MempoolError(
            "missing-function",
            f"this CUDA driver has no {missing[1]}",
            hint="update the NVIDIA driver",
        ) from error
    # Old bindings fail to load only once: from then on they miss every function.
    if missing or "dlopen" in text or type(error).__name__ == "DynamicLibNotFoundError":
        raise MempoolError(
            "no-driver",
            "the CUDA driver library, libcuda.so.1, cannot be loaded",
            hint="install the NVIDIA driver, or give the container its GPUs; `--sim 4` tries the tool without one",
        ) from error
    if "cuGetProcAddress_v2" in text:
        raise too_old() from error
    raise error


def _filled(binding: Any, packed: bytes) -> Any:
    """The binding's struct with these bytes at its start."""
    ctypes.memmove(binding.getPtr(), packed, len(packed))
    return binding


def _text(name: bytes) -> str:
    return name.partition(b"\0")[0].decode("utf-8", "surrogateescape")
