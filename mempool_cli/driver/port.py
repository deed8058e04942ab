"""The driver port: one method a driver call, one vocabulary for every driver."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol


class LocationType(IntEnum):
    """CUmemLocationType."""

    INVALID = 0
    DEVICE = 1
    HOST = 2
    HOST_NUMA = 3
    HOST_NUMA_CURRENT = 4


class Location(NamedTuple):
    """CUmemLocation: where memory lives, or who accesses it. Unknown types keep their number."""

    type: int
    id: int


def device_location(ordinal: int) -> Location:
    """The location of a device."""
    return Location(LocationType.DEVICE, ordinal)


HOST_LOCATION = Location(LocationType.HOST, 0)


class AccessFlags(IntEnum):
    """CUmemAccess_flags. There is no 2: write without read does not exist."""

    NONE = 0
    READ = 1
    READWRITE = 3


class AccessEntry(NamedTuple):
    """CUmemAccessDesc: one entry of a cuMemPoolSetAccess. Unknown flags keep their number."""

    location: Location
    flags: int


class AllocationType(IntEnum):
    """CUmemAllocationType."""

    INVALID = 0
    PINNED = 1
    MANAGED = 2


class HandleType(IntEnum):
    """CUmemAllocationHandleType."""

    NONE = 0
    POSIX_FILE_DESCRIPTOR = 1
    WIN32 = 2
    WIN32_KMT = 4
    FABRIC = 8


class PoolProperties(NamedTuple):
    """CUmemPoolProps; `max_size` in bytes, 0 for the driver's default."""

    location: Location
    max_size: int = 0
    allocation_type: int = AllocationType.PINNED
    handle_types: int = HandleType.NONE


class PoolAttribute(IntEnum):
    """CUmemPool_attribute: the eight that every supported driver answers."""

    REUSE_FOLLOW_EVENT_DEPENDENCIES = 1
    REUSE_ALLOW_OPPORTUNISTIC = 2
    REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3
    RELEASE_THRESHOLD = 4
    RESERVED_MEM_CURRENT = 5
    RESERVED_MEM_HIGH = 6
    USED_MEM_CURRENT = 7
    USED_MEM_HIGH = 8


class DeviceAttribute(IntEnum):
    """CUdevice_attribute: those that say what a device can do with pools."""

    INTEGRATED = 18
    COMPUTE_MODE = 20
    COMPUTE_CAPABILITY_MAJOR = 75
    COMPUTE_CAPABILITY_MINOR = 76
    HOST_NATIVE_ATOMIC_SUPPORTED = 86
    PAGEABLE_MEMORY_ACCESS = 88
    MEMORY_POOLS_SUPPORTED = 115
    MEMPOOL_SUPPORTED_HANDLE_TYPES = 119
    HOST_NUMA_ID = 134
    HOST_NUMA_MEMORY_POOLS_SUPPORTED = 142
    HOST_MEMORY_POOLS_SUPPORTED = 144


class P2PAttribute(IntEnum):
    """CUdevice_P2PAttribute."""

    PERFORMANCE_RANK = 1
    ACCESS_SUPPORTED = 2
    NATIVE_ATOMIC_SUPPORTED = 3
    CUDA_ARRAY_ACCESS_SUPPORTED = 4


class CaptureMode(IntEnum):
    """CUstreamCaptureMode."""

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


class StreamFlags(IntEnum):
    """CUstream_flags."""

    DEFAULT = 0
    NON_BLOCKING = 1


class EventFlags(IntEnum):
    """CUevent_flags."""

    DEFAULT = 0


class HostAllocFlags(IntEnum):
    """What cuMemHostAlloc takes."""

    PORTABLE = 1


class ComputeMode(IntEnum):
    """CUcomputemode."""

    DEFAULT = 0
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3


class CaptureStatus(IntEnum):
    """CUstreamCaptureStatus."""

    NONE = 0
    ACTIVE = 1
    INVALIDATED = 2


class PointerAttribute(IntEnum):
    """CUpointer_attribute: the one about access."""

    ACCESS_FLAGS = 16


Dimensions = tuple[int, int, int]


class Driver(Protocol):
    """A CUDA driver. Each method but `load` and `store` is exactly one driver call, named by `driver_call(name)`.

    Every method raises DriverError when the call answers anything but SUCCESS. Nothing here decides,
    retries, defaults or caches. `device` arguments are CUdevice values, which CUDA keeps equal to
    ordinals; `pool` values are CUmemoryPool handles, `pointer` values CUdeviceptr. These, and handles of contexts,
    streams, events, graphs, modules and functions, mean nothing in another process; 0 is NULL.
    """

    def init(self) -> None: ...

    def driver_get_version(self) -> int:
        """1000 * major + 10 * minor, 13000 for CUDA 13.0."""

    def device_get_count(self) -> int: ...

    def device_get(self, ordinal: int) -> int: ...

    def device_get_name(self, device: int) -> str:
        """The card's name; bytes that are no UTF-8 arrive as surrogate escapes."""

    def device_get_uuid(self, device: int) -> bytes:
        """16 bytes."""

    def device_get_pci_bus_id(self, device: int) -> str:
        """`0000:19:00.0`, as the driver spells it."""

    def device_get_attribute(self, attribute: int, device: int) -> int: ...

    def device_can_access_peer(self, device: int, peer: int) -> bool:
        """Whether `device` can reach memory on `peer`."""

    def device_get_p2p_attribute(self, attribute: int, source: int, destination: int) -> int: ...

    def device_get_default_mem_pool(self, device: int) -> int: ...

    def device_get_mem_pool(self, device: int) -> int: ...

    def device_set_mem_pool(self, device: int, pool: int) -> None: ...

    def mem_pool_create(self, properties: PoolProperties) -> int: ...

    def mem_pool_destroy(self, pool: int) -> None: ...

    def mem_pool_get_attribute(self, pool: int, attribute: int) -> int: ...

    def mem_pool_set_attribute(self, pool: int, attribute: int, value: int) -> None: ...

    def mem_pool_trim_to(self, pool: int, min_bytes_to_keep: int) -> None: ...

    def mem_pool_set_access(self, pool: int, entries: Sequence[AccessEntry]) -> None: ...

    def mem_pool_get_access(self, pool: int, location: Location) -> int:
        """The flags as the driver gives them, also those that no enumeration knows."""

    def thread_exchange_stream_capture_mode(self, mode: int) -> int:
        """Sets the calling thread's mode and returns the one it had."""

    # --- contexts and streams ---

    def device_primary_ctx_retain(self, device: int) -> int: ...

    def device_primary_ctx_release(self, device: int) -> None: ...

    def ctx_set_current(self, context: int) -> None:
        """Makes it the calling thread's."""

    def ctx_synchronize(self) -> None: ...

    def stream_create(self, flags: int) -> int: ...

    def stream_destroy(self, stream: int) -> None: ...

    def stream_synchronize(self, stream: int) -> None: ...

    def stream_begin_capture(self, stream: int, mode: int) -> None: ...

    def stream_end_capture(self, stream: int) -> int:
        """The captured graph."""

    def stream_is_capturing(self, stream: int) -> int:
        """A CaptureStatus."""

    def graph_destroy(self, graph: int) -> None: ...

    def event_create(self, flags: int) -> int: ...

    def event_destroy(self, event: int) -> None: ...

    def event_record(self, event: int, stream: int) -> None: ...

    def event_elapsed_time(self, start: int, end: int) -> float:
        """Milliseconds between two events that were recorded and have come to pass."""

    # --- memory ---

    def mem_alloc_from_pool_async(self, size: int, pool: int, stream: int) -> int: ...

    def mem_free_async(self, pointer: int, stream: int) -> None: ...

    def memcpy_async(self, destination: int, source: int, size: int, stream: int) -> None: ...

    def memcpy_peer_async(
        self, destination: int, destination_context: int, source: int, source_context: int, size: int, stream: int
    ) -> None: ...

    def memcpy_htod(self, pointer: int, data: bytes) -> None: ...

    def memcpy_dtoh(self, pointer: int, size: int) -> bytes: ...

    def memset_d8_async(self, pointer: int, value: int, size: int, stream: int) -> None: ...

    def mem_host_alloc(self, size: int, flags: int) -> int:
        """Pinned memory of the host, which the processor and every device may touch; `pointer` is good for both."""

    def mem_free_host(self, pointer: int) -> None: ...

    def load(self, pointer: int, size: int) -> bytes:
        """No driver call: the processor reads memory of the host, pinned or of a host pool."""

    def store(self, pointer: int, data: bytes) -> None:
        """No driver call: the processor writes it."""

    def pointer_get_attribute(self, attribute: int, pointer: int) -> int: ...

    # --- kernels ---

    def module_load_data(self, image: bytes) -> int:
        """`image` is PTX text that ends with NUL, or a cubin."""

    def module_get_function(self, module: int, name: str) -> int: ...

    def launch_kernel(self, function: int, grid: Dimensions, block: Dimensions, stream: int, parameters: bytes) -> None:
        """`parameters` as they lie in the kernel's parameter space; no dynamic shared memory."""


NO_CALLS = ("load", "store")
"""What the processor does without the driver."""

_SPELLED = {"pci": "PCI", "p2p": "P2P", "htod": "HtoD", "dtoh": "DtoH"}


def driver_call(method: str) -> str:
    """The driver's name of a port method: `mem_pool_set_access` -> `cuMemPoolSetAccess`."""
    return "cu" + "".join(_SPELLED.get(word, word.capitalize()) for word in method.split("_"))
