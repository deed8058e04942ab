"""What lies between a device and memory that is not its own: nothing, or one of the named faults of a platform."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from mempool_cli.driver.longs import LONG_BYTES
from mempool_cli.driver.port import LocationType
from mempool_cli.driver.sim.allocation import Allocation
from mempool_cli.driver.sim.contexts import Contexts

if TYPE_CHECKING:
    from mempool_cli.driver.sim.machine import Machine

_DAMAGED = 1 << 12
_DAMAGED_EVERY = 1 << 16
_BITS = 0x00FF_0000_0000_0000


class Links(Contexts):
    """Who gets at which bytes, across the links of the machine."""

    def __init__(self, machine: Machine, visible: str | None) -> None:
        super().__init__(machine, visible)
        self._mirrors: dict[tuple[int, int], Allocation] = {}
        self._stuck: set[int] = set()

    def _faulty(self, fault: str, device: int, allocation: Allocation) -> bool:
        """Whether the link from a device to this memory has the fault; there is none to its own."""
        pool = allocation.pool
        faults = self.machine.profile.faults
        if not faults or pool is None or pool.owner == device:
            return False
        location = pool.properties.location
        owner = str(self._physical[location.id]) if location.type == LocationType.DEVICE else "host"
        return fault in faults or f"{fault}:{owner}-{self._physical[device]}" in faults

    def _lets(self, device: int, allocation: Allocation) -> bool:
        """Whether a kernel on the device gets through to it."""
        return allocation.lets(device) or self._faulty("leak", device, allocation)

    def _read_by(self, device: int, allocation: Allocation) -> Allocation:
        """The bytes that the device sees there."""
        if not self._faulty("mirror", device, allocation):
            return allocation
        key = device, allocation.start
        if key not in self._mirrors:
            self._mirrors[key] = Allocation(allocation.start, allocation.size, allocation.pool)
        return self._mirrors[key]

    def _written_by(self, device: int, allocation: Allocation) -> Allocation:
        """The bytes that it changes when it writes there."""
        if self._faulty("drop-writes", device, allocation):
            return Allocation(allocation.start, allocation.size, allocation.pool)
        return self._read_by(device, allocation)

    def _write(
        self,
        device: int,
        allocation: Allocation,
        piece: tuple[int, int],
        action: Callable[[Allocation], None],
        *,
        source: Allocation | None = None,
        copy: bool = False,
    ) -> None:
        """Does what changes this piece, pointer and size, of the memory; `source` is other memory that it reads."""
        pool = allocation.pool
        if copy and pool and pool.ever_set and self._faulty("lost-after-setaccess", device, allocation):
            pointer, size = piece
            allocation.fill(pointer, 0, size)  # zeros are what CUDA.jl #3112 found
            return
        action(self._written_by(device, allocation))
        if any(each and self._faulty("corrupt", device, each) for each in (allocation, source)):
            _damage(allocation, *piece)

    def _occupy(self, device: int, stream: int, *touched: Allocation) -> bool:
        """Whether the work on this memory never ends; whoever waits for the stream waits for ever."""
        if any(self._faulty("hang", device, each) for each in touched):
            self._stuck.add(stream)
        return stream in self._stuck

    def stream_synchronize(self, stream: int) -> None:
        super().stream_synchronize(stream)
        if stream in self._stuck:
            _sleep()


def _sleep() -> NoReturn:
    while True:
        time.sleep(3600)


def _damage(allocation: Allocation, pointer: int, size: int) -> None:
    """Flips bits of one long in 64 KiB, not in the first ones."""
    for at in range(pointer + _DAMAGED, pointer + size - LONG_BYTES + 1, _DAMAGED_EVERY):
        long = int.from_bytes(allocation.read(at, LONG_BYTES), "little") ^ _BITS
        allocation.write(at, long.to_bytes(LONG_BYTES, "little"))
