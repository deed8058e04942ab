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

_POOL_RESULTS = frozenset({"device_get_default_mem_pool", "device_get_mem_pool", "mem_pool_create"})


class TracedDriver:
    """A driver that hands one line a call to `report`: `cuMemPoolGetAccess(0x5500, device 1) = READWRITE <2 us>`."""

    def __init__(self, driver: Driver, report: Callable[[str], None]) -> None:
        self._driver = driver
        self._report = report

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._driver, name)
        if not callable(method):
            return method

        def traced(*arguments: Any) -> Any:
            spelled = f"{driver_call(name)}({_arguments(name, arguments)})"
            begin = time.perf_counter()
            try:
                result = method(*arguments)
            except DriverError as error:
                self._report(f"{spelled} = {error.words.name} ({error.words.code}) {_since(begin)}")
                raise
            self._report(f"{spelled} = {_result(name, result)} {_since(begin)}")
            return result

        return traced


def _since(begin: float) -> str:
    return f"<{(time.perf_counter() - begin) * 1e6:.0f} us>"


def _arguments(name: str, arguments: tuple[Any, ...]) -> str:
    spelled = [_value(argument) for argument in arguments]
    pool_at = {"mem_pool_create": None, "device_set_mem_pool": 1}.get(name, 0 if name.startswith("mem_pool") else None)
    if pool_at is not None:
        spelled[pool_at] = hex(arguments[pool_at])
    return ", ".join(spelled)


def _result(name: str, result: Any) -> str:
    if result is None:
        return "CUDA_SUCCESS"
    if name in _POOL_RESULTS:
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
        return value.hex()
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
