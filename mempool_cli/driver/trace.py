"""Reports every driver call with its arguments, result and duration, as strace does for system calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from mempool_cli.driver.port import AccessEntry, AccessFlags, Location, LocationType, PoolProperties, driver_call
from mempool_cli.errors import DriverError

if TYPE_CHECKING:
    from mempool_cli.driver.port import Driver

# Results, and positions of arguments, that are handles or pointers.
_HANDLE_RESULTS = frozenset(
    {
        "device_get_default_mem_pool",
        "device_get_mem_pool",
        "mem_pool_create",
        "device_primary_ctx_retain",
        "stream_create",
        "stream_end_capture",
        "mem_alloc_from_pool_async",
        "mem_host_alloc",
        "event_create",
        "module_load_data",
        "module_get_function",
    }
)
_HANDLES = {
    "device_set_mem_pool": (1,),
    "mem_pool_create": (),
    "ctx_set_current": (0,),
    "graph_destroy": (0,),
    "mem_alloc_from_pool_async": (1, 2),
    "mem_free_async": (0, 1),
    "memcpy_async": (0, 1, 3),
    "memcpy_peer_async": (0, 1, 2, 3, 5),
    "mem_free_host": (0,),
    "event_destroy": (0,),
    "event_record": (0, 1),
    "event_elapsed_time": (0, 1),
    "memcpy_htod": (0,),
    "memcpy_dtoh": (0,),
    "memset_d8_async": (0, 3),
    "pointer_get_attribute": (1,),
    "module_get_function": (0,),
    "launch_kernel": (0, 3),
}
_SPELLED_BYTES = 16

_BY_THE_PROCESSOR = {"load": "a load of {:#x} by the processor", "store": "a store to {:#x} by the processor"}


class TracedDriver:
    """A driver that hands one line a call to `report`: `cuMemPoolGetAccess(0x5500, device 1) = READWRITE <2 us>`.

    `announce` gets the same without the answer before the call is made, from which it may never return.
    """

    def __init__(
        self, driver: Driver, report: Callable[[str], None], announce: Callable[[str], None] | None = None
    ) -> None:
        self._driver = driver
        self._report = report
        self._announce = announce

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._driver, name)
        if not callable(method):
            return method

        if name in _BY_THE_PROCESSOR:
            return self._announced(_BY_THE_PROCESSOR[name], method)

        def traced(*arguments: Any) -> Any:
            spelled = f"{driver_call(name)}({_arguments(name, arguments)})"
            if self._announce:
                self._announce(spelled)
            begin = time.perf_counter()
            try:
                result = method(*arguments)
            except DriverError as error:
                self._report(f"{spelled} = {error.words.name} ({error.words.code}) {_since(begin)}")
                raise
            self._report(f"{spelled} = {_result(name, result)} {_since(begin)}")
            return result

        return traced

    def _announced(self, words: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """What is no driver call and stands in no trace, but may be the last thing that a process does."""

        def announced(pointer: int, rest: Any) -> Any:
            if self._announce:
                self._announce(words.format(pointer))
            return method(pointer, rest)

        return announced


def _since(begin: float) -> str:
    return f"<{(time.perf_counter() - begin) * 1e6:.0f} us>"


def _arguments(name: str, arguments: tuple[Any, ...]) -> str:
    spelled = [_value(argument) for argument in arguments]
    first = (0,) if name.startswith(("mem_pool_", "stream_")) and name != "stream_create" else ()
    for position in _HANDLES.get(name, first):
        spelled[position] = hex(arguments[position])
    return ", ".join(spelled)


def _result(name: str, result: Any) -> str:
    if result is None:
        return "CUDA_SUCCESS"
    if name in _HANDLE_RESULTS:
        return hex(result)
    if name == "mem_pool_get_access":
        return _flags(result)
    return str(int(result)) if isinstance(result, int) else _value(result)


def _value(value: Any) -> str:
    if isinstance(value, Location):
        return _location(value)
    if isinstance(value, AccessEntry):
        return f"{_location(value.location)} {_flags(value.flags)}"
    if isinstance(value, PoolProperties):
        return f"{_location(value.location)}, max_size {value.max_size}"
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, bytes):
        return value.hex() if len(value) <= _SPELLED_BYTES else f"{len(value)} bytes"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    return str(int(value)) if isinstance(value, int) else repr(value)


def _location(location: Location) -> str:
    if location.type not in set(LocationType):
        return f"location type {location.type} id {location.id}"
    name = LocationType(location.type).name.lower()
    return name if location.type == LocationType.HOST else f"{name} {location.id}"


def _flags(flags: int) -> str:
    return AccessFlags(flags).name if flags in set(AccessFlags) else hex(flags)
