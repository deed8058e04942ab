"""Memory on both sides of an access: made, granted, shown to be sound by way of the host, and given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import (
    AccessEntry,
    AccessFlags,
    Driver,
    HostAllocFlags,
    Location,
    PoolProperties,
    device_location,
)
from mempool_cli.errors import DriverError, DriverWords, MempoolError
from mempool_cli.model import Order
from mempool_cli.verify.payload import POISON, Pattern
from mempool_cli.verify.sides import Device, Owner

_WANTING: dict[int, str] = {
    Code.CUDA_ERROR_OUT_OF_MEMORY: "out of memory",
    Code.CUDA_ERROR_DEVICE_UNAVAILABLE: "a device is in exclusive-process mode and taken, or in prohibited mode",
}


class Unready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing can be tried. `flags`: the access that the driver read, if it was asked."""

    verdict: Literal["refused", "error", "inconclusive"]
    why: str
    driver: DriverWords | None = None
    flags: int | None = None


@dataclass
class Bench:
    """`memory` is the owner's, `payload` and `view` are the accessor's; `flags`: the access that the driver reads.

    `timed`: whether the driver's clock tells anything. `undo` gives all of it back.
    """

    driver: Driver
    owner: Owner
    accessor: Device
    timed: bool
    undo: ExitStack = field(default_factory=ExitStack)
    pool: int = 0
    memory: int = 0
    payload: int = 0
    view: int = 0
    flags: int | None = None

    def allocate(self, size: int, pool: int | None = None) -> int:
        """Memory of the accessor's own, or of a pool on the owner's stream; ready for any stream."""
        if pool is None:
            pointer = self.accessor.allocate(size)
            self._later(lambda: self.driver.mem_free_async(pointer, self.accessor.stream))
            return pointer
        if isinstance(self.owner, Device):
            pointer = self.owner.allocate(size, pool)
        else:
            pointer = self.accessor.allocate(size, pool)
        self._later(lambda: self._free(pointer))
        return pointer

    def _free(self, pointer: int) -> None:
        self.accessor.wait()
        self.owner.wait()
        self.driver.mem_free_async(pointer, self.owner.stream)
        self.driver.stream_synchronize(self.owner.stream)

    def create(self, location: Location) -> None:
        """The pool that is tested."""
        self.pool = self.driver.mem_pool_create(PoolProperties(location))
        self._later(lambda: self.driver.mem_pool_destroy(self.pool))

    def set_access(self, flags: AccessFlags) -> None:
        """For the accessor. A pool that is destroyed with it might leave it to the next one (nvbug 5698116)."""
        entry = AccessEntry(device_location(self.accessor.ordinal), flags)
        self.driver.mem_pool_set_access(self.pool, [entry])
        if flags:
            self._later(lambda: self.set_access(AccessFlags.NONE))

    def read_access(self) -> None:
        """What the driver says now."""
        self.flags = self.driver.mem_pool_get_access(self.pool, device_location(self.accessor.ordinal))

    def _later(self, call: Callable[[], None]) -> None:
        def quietly() -> None:
            with suppress(DriverError):  # a context that is lost gives nothing back; its process ends
                call()

        self.undo.callback(quietly)


def lay_out(
    driver: Driver, owner: Owner, accessor: Device, location: Location, size: int, order: Order, *, timed: bool
) -> Bench | Unready:
    """`size` bytes of a new pool, granted before or after they were allocated; or why there is nothing to try."""
    bench = Bench(driver, owner, accessor, timed)
    try:
        bench.payload, bench.view = bench.allocate(size), bench.allocate(size)
        bench.create(location)
        refused = _grant(bench, location) if order == "grant-first" else None
        if refused is None:
            bench.memory = bench.allocate(size, bench.pool)
            owner.fill(bench.memory, size, POISON)
            refused = _grant(bench, location) if order == "allocate-first" else None
    except DriverError as error:
        refused = unready(error)
    if refused:
        bench.undo.close()
    return refused or bench


def _grant(bench: Bench, location: Location) -> Unready | None:
    """Grants, unless the accessor is the owner, and reads back; what is wrong with it."""
    try:
        if location != device_location(bench.accessor.ordinal):
            bench.set_access(AccessFlags.READWRITE)
    except DriverError as error:
        return Unready(verdict="refused", why="the grant was refused", driver=error.words)
    bench.read_access()
    if bench.flags != AccessFlags.READWRITE:
        why = f"the grant answered SUCCESS, and access reads {bench.flags:#x}"
        return Unready(verdict="refused", why=why, flags=bench.flags)
    return None


def unready(error: DriverError | MempoolError) -> Unready:
    """Why nothing can be tried: for want of memory or of the device it is inconclusive, else an error."""
    if isinstance(error, MempoolError):
        return Unready(verdict="error", why=error.problem.message, driver=error.problem.driver)
    why = _WANTING.get(error.words.code)
    if why:
        return Unready(verdict="inconclusive", why=why, driver=error.words)
    return Unready(verdict="error", why=f"{error.words.call} failed before anything was tried", driver=error.words)


def unfit(bench: Bench, sizes: Sequence[int], payloads: Iterator[Pattern]) -> Unready | None:
    """The control: the same bytes by way of the host have to arrive. None when they do."""
    driver, accessor = bench.driver, bench.accessor
    try:
        pinned = driver.mem_host_alloc(max(sizes), HostAllocFlags.PORTABLE)
    except DriverError as error:
        return unready(error)
    try:
        for size, payload in zip(sizes, payloads, strict=False):
            bench.owner.fill(bench.memory, size, POISON)
            accessor.fill(bench.payload, size, payload)
            driver.memcpy_async(pinned, bench.payload, size, accessor.stream)
            accessor.wait()
            bench.owner.take(bench.memory, pinned, size)
            if bench.owner.tally(bench.memory, size, payload).wrong:
                return Unready(verdict="inconclusive", why="the control failed: by way of the host it is wrong too")
        driver.mem_free_host(pinned)
    except DriverError as error:
        return Unready(verdict="inconclusive", why="the control, by way of the host, failed", driver=error.words)
    return None
