"""Stops our own code when it passes on a pool handle that is dead or made up: the driver would read freed memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mempool_cli.driver.port import AccessEntry, Location, PoolProperties

if TYPE_CHECKING:
    from mempool_cli.driver.port import Driver


class HandleMisuseError(AssertionError):
    """A fault in mempool itself: a handle was used that no live pool has."""


class GuardedDriver:
    """A driver that accepts only handles which it gave out and which are still alive."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._live: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def _alive(self, pool: int) -> int:
        if pool not in self._live:
            raise HandleMisuseError(f"pool handle {pool:#x} is not alive")
        return pool

    def device_get_default_mem_pool(self, device: int) -> int:
        return self._learn(self._driver.device_get_default_mem_pool(device))

    def device_get_mem_pool(self, device: int) -> int:
        return self._learn(self._driver.device_get_mem_pool(device))

    def mem_pool_create(self, properties: PoolProperties) -> int:
        return self._learn(self._driver.mem_pool_create(properties))

    def _learn(self, pool: int) -> int:
        self._live.add(pool)
        return pool

    def mem_pool_destroy(self, pool: int) -> None:
        self._driver.mem_pool_destroy(self._alive(pool))
        self._live.discard(pool)

    def device_set_mem_pool(self, device: int, pool: int) -> None:
        self._driver.device_set_mem_pool(device, self._alive(pool))

    def mem_pool_get_attribute(self, pool: int, attribute: int) -> int:
        return self._driver.mem_pool_get_attribute(self._alive(pool), attribute)

    def mem_pool_set_attribute(self, pool: int, attribute: int, value: int) -> None:
        self._driver.mem_pool_set_attribute(self._alive(pool), attribute, value)

    def mem_pool_trim_to(self, pool: int, min_bytes_to_keep: int) -> None:
        self._driver.mem_pool_trim_to(self._alive(pool), min_bytes_to_keep)

    def mem_pool_set_access(self, pool: int, entries: Sequence[AccessEntry]) -> None:
        self._driver.mem_pool_set_access(self._alive(pool), entries)

    def mem_pool_get_access(self, pool: int, location: Location) -> int:
        return self._driver.mem_pool_get_access(self._alive(pool), location)

    def mem_alloc_from_pool_async(self, size: int, pool: int, stream: int) -> int:
        return self._driver.mem_alloc_from_pool_async(size, self._alive(pool), stream)
