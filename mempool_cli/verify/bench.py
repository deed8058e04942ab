"""Memory on both sides of an access: made, granted, shown to be sound by way of the host, and given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from mempool_cli.driver.longs import LONG_BYTES
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
from mempool_cli.verify.failures import FAULTS, wanting
from mempool_cli.verify.payload import POISON, Pattern
from mempool_cli.verify.sides import Device, Owner


class Unready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing can be tried. `flags`: the access that the driver read, if it was asked; `lost`: nor anything else."""

    verdict: Literal["refused", "error", "inconclusive"]
    why: str
    driver: DriverWords | None = None
    flags: int | None = None
    lost: bool = False


@dataclass
class Bench:
    """`memory` is the owner's, `payload` and `view` are the accessor's; `flags`: the access that the driver reads.

    `pinned`: memory of the host, for the control; `start`: a long of it, for who adds. `timed`: whether the driver's
    clock tells anything. `alive` says that work goes on. `undo` gives all of it back.
    """

    driver: Driver
    owner: Owner
    accessor: Device
    timed: bool
    alive: Callable[[], None] = lambda: None
    undo: ExitStack = field(default_factory=ExitStack)
    pool: int = 0
    memory: int = 0
    payload: int = 0
    view: int = 0
    pinned: int = 0
    start: int = 0
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

    def pin(self, size: int) -> None:
        """Memory of the host, for every device."""
        self.pinned = self.driver.mem_host_alloc(size + LONG_BYTES, HostAllocFlags.PORTABLE)
        self.start = self.pinned + size
        self._later(lambda: self.driver.mem_free_host(self.pinned))

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


def lay_out(bench: Bench, location: Location, size: int, order: Order) -> Unready | None:
    """`size` bytes of a new pool, granted before or after they were allocated; or why there is nothing to try."""
    refused: Unready | None = None
    try:
        bench.payload, bench.view = bench.allocate(size), bench.allocate(size)
        bench.pin(size)
        bench.create(location)
        if order == "grant-first":
            refused = _grant(bench, location) or _allocate(bench, size)
        else:
            refused = _allocate(bench, size) or _grant(bench, location)
        if refused is None:
            bench.owner.fill(bench.memory, size, POISON)
    except DriverError as error:
        refused = unready(error)
    return refused


def _grant(bench: Bench, location: Location) -> Unready | None:
    """Grants, unless the accessor is the owner, and reads back; what is wrong with it."""
    try:
        if location != device_location(bench.accessor.ordinal):
            bench.set_access(AccessFlags.READWRITE)
    except DriverError as error:
        return _refused("the grant was refused", error)
    bench.read_access()
    if bench.flags != AccessFlags.READWRITE:
        why = f"the grant answered SUCCESS, and access reads {bench.flags:#x}"
        return Unready(verdict="refused", why=why, flags=bench.flags)
    return None


def _allocate(bench: Bench, size: int) -> Unready | None:
    """Memory of the pool. A grant that cannot be shows with the next allocation (CUDA Programming Guide)."""
    try:
        bench.memory = bench.allocate(size, bench.pool)
    except DriverError as error:
        if bench.flags is None:
            return unready(error)
        return msgspec.structs.replace(_refused("the allocation after the grant failed", error), flags=bench.flags)
    return None


def _refused(why: str, error: DriverError) -> Unready:
    want = wanting(error)
    if want:
        return Unready(verdict="inconclusive", why=want, driver=error.words)
    return Unready(verdict="refused", why=why, driver=error.words)


def unready(error: DriverError | MempoolError) -> Unready:
    """Why nothing can be tried: for want of memory or of the device it is inconclusive, else an error."""
    if isinstance(error, MempoolError):
        return Unready(verdict="error", why=error.problem.message, driver=error.problem.driver)
    want, lost = wanting(error), error.words.code in FAULTS
    if want:
        return Unready(verdict="inconclusive", why=want, driver=error.words)
    why = f"{error.words.call} failed before anything was tried"
    return Unready(verdict="error", why=why, driver=error.words, lost=lost)


def unfit(bench: Bench, sizes: Sequence[int], payloads: Iterator[Pattern]) -> Unready | None:
    """The control: the same bytes by way of the host have to arrive. None when they do."""
    driver, accessor = bench.driver, bench.accessor
    try:
        for size, payload in zip(sizes, payloads, strict=False):
            bench.owner.fill(bench.memory, size, POISON)
            accessor.fill(bench.payload, size, payload)
            driver.memcpy_async(bench.pinned, bench.payload, size, accessor.stream)
            accessor.wait()
            bench.owner.take(bench.memory, bench.pinned, size)
            if bench.owner.tally(bench.memory, size, payload).wrong:
                return Unready(verdict="inconclusive", why="the control failed: by way of the host it is wrong too")
    except DriverError as error:
        why, lost = "the control, by way of the host, failed", error.words.code in FAULTS
        return Unready(verdict="inconclusive", why=why, driver=error.words, lost=lost)
    return None
