"""The two sides of an access: a device with its own kernels, and the processor, who owns memory of the host.

A side touches its memory itself, never through the other: only so does what it reads prove anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from mempool_cli.driver import kernels
from mempool_cli.driver.longs import LONG_BYTES, TALLY_BYTES, Tally, compare, tally
from mempool_cli.driver.port import Driver, HostAllocFlags, PoolProperties, StreamFlags, device_location
from mempool_cli.verify.payload import POISON, Pattern

_THREADS = 256
_BLOCKS = 256
_PIECE = 1 << 20
_ALIVE = 64 << 20


class Owner(Protocol):
    """Who owns the memory that is tested. `stream` orders its allocations."""

    stream: int

    def fill(self, pointer: int, size: int, pattern: Pattern) -> None:
        """Writes `size` bytes, and waits."""

    def tally(self, pointer: int, size: int, pattern: Pattern) -> Tally:
        """What of `size` bytes is not as `fill` leaves it."""

    def take(self, pointer: int, pinned: int, size: int) -> None:
        """Copies `size` bytes of pinned memory of the host into its own, and waits."""

    def wait(self) -> None:
        """Until all that it was given to do is done."""


class Device:
    """A device: its primary context, one stream, its kernels, and a pool that nobody else has access to.

    Any call raises DriverError.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.ordinal = ordinal
        self._driver = driver
        self.context = driver.device_primary_ctx_retain(ordinal)
        self._enter()
        self.stream = driver.stream_create(StreamFlags.NON_BLOCKING)
        module = driver.module_load_data(kernels.LONGS_IMAGE)
        self._fill, self._copy, self._check = (
            driver.module_get_function(module, name) for name in (kernels.FILL, kernels.COPY, kernels.CHECK)
        )
        self._add: int | None = None
        self._here = 0
        self._pool = driver.mem_pool_create(PoolProperties(device_location(ordinal)))
        self._found = self.allocate(TALLY_BYTES)
        self._seen = driver.mem_host_alloc(TALLY_BYTES, HostAllocFlags.PORTABLE)

    def _enter(self) -> None:
        self._driver.ctx_set_current(self.context)

    def allocate(self, size: int, pool: int | None = None) -> int:
        """Memory of a pool, its own unless told otherwise, ready for any stream."""
        self._enter()
        pointer = self._driver.mem_alloc_from_pool_async(size, self._pool if pool is None else pool, self.stream)
        self.wait()
        return pointer

    def wait(self) -> None:
        """Until its stream is empty: raises what a kernel or a copy met."""
        self._enter()
        self._driver.stream_synchronize(self.stream)

    def fill(self, pointer: int, size: int, pattern: Pattern) -> None:
        """Its kernel writes the pattern."""
        self.launch(self._fill, size, kernels.fill_parameters(pointer, size // LONG_BYTES, *pattern))
        self.wait()

    def carry(self, destination: int, source: int, size: int) -> None:
        """Its kernel reads and writes. Does not wait."""
        self.launch(self._copy, size, kernels.copy_parameters(source, destination, size // LONG_BYTES))

    def load_add(self, start: int) -> None:
        """Its kernel that adds, which not every card has: before anything is measured by it. `start` is given.

        A driver may load it with its first launch only, and wait for all kernels then: so it has run once.
        """
        if self._add is None:
            self._enter()
            module = self._driver.module_load_data(kernels.ADD_IMAGE)
            self._add = self._driver.module_get_function(module, kernels.ADD)
            self._here = self._driver.mem_host_alloc(2 * LONG_BYTES, HostAllocFlags.PORTABLE)
            self.add(self._found, 0, 0, 1, start)
            self.wait()

    def add(self, pointer: int, value: int, times: int, threads: int, start: int) -> None:
        """So many threads of its kernel add the value so often, atomically for the system, as soon as `start` is given.

        Does not wait.
        """
        assert self._add is not None, "load_add comes first"
        self._driver.store(self._here, bytes(2 * LONG_BYTES))
        parameters = kernels.add_parameters(pointer, value, times, start, self._here)
        self.launch(self._add, threads * LONG_BYTES, parameters)

    @property
    def in_time(self) -> bool:
        """Whether that kernel has begun, and has not given up to wait for its start."""
        here, gave_up = (any(self._driver.load(self._here + at, LONG_BYTES)) for at in (0, LONG_BYTES))
        return here and not gave_up

    def tally(self, pointer: int, size: int, pattern: Pattern) -> Tally:
        """Its kernel looks, counts in memory of its own, and writes the counts into pinned memory."""
        self._driver.store(self._seen, Tally().bytes())
        self.carry(self._found, self._seen, TALLY_BYTES)
        other = POISON.base
        parameters = kernels.check_parameters(pointer, size // LONG_BYTES, *pattern, other, self._found)
        self.launch(self._check, size, parameters)
        self.carry(self._seen, self._found, TALLY_BYTES)
        self.wait()
        return tally(self._driver.load(self._seen, TALLY_BYTES))

    def take(self, pointer: int, pinned: int, size: int) -> None:
        """A copy of pinned memory, in its own context."""
        self._enter()
        self._driver.memcpy_async(pointer, pinned, size, self.stream)
        self.wait()

    def launch(self, function: int, size: int, parameters: bytes) -> None:
        """Enough threads for `size` bytes of longs. Does not wait."""
        self._enter()
        count = size // LONG_BYTES
        threads = min(count, _THREADS)
        blocks = min(-(-count // threads), _BLOCKS)
        self._driver.launch_kernel(function, (blocks, 1, 1), (threads, 1, 1), self.stream, parameters)

    def canary(self, pointer: int, size: int, first: Pattern, second: Pattern) -> str | None:
        """Whether its kernels are right about memory of its own: None, or what is wrong.

        The check has to see the pattern where it is, and its absence where it is not.
        """
        self.fill(pointer, size, first)
        right, wrong = self.tally(pointer, size, first), self.tally(pointer, size, second)
        if right.wrong:
            return f"device {self.ordinal} does not read what its own kernel wrote to memory of its own"
        if wrong.wrong != size // LONG_BYTES:
            return f"device {self.ordinal} does not tell wrong bytes from right ones in memory of its own"
        return None


class Processor:
    """The host, as the owner of a pool; `device` lends the stream on which memory is allocated.

    `alive` says that work goes on, of which a processor has more than a device.
    """

    def __init__(self, driver: Driver, device: Device, alive: Callable[[], None]) -> None:
        self._driver = driver
        self.stream = device.stream
        self._alive = alive

    def _pieces(self, size: int) -> Iterator[tuple[int, int]]:
        """Offset and length of pieces of which the processor can hold a few."""
        for at in range(0, size, _PIECE):
            if at % _ALIVE == 0:
                self._alive()
            yield at, min(_PIECE, size - at)

    def fill(self, pointer: int, size: int, pattern: Pattern) -> None:
        """The processor writes."""
        for at, length in self._pieces(size):
            self._driver.store(pointer + at, pattern.after(at).bytes(length))

    def tally(self, pointer: int, size: int, pattern: Pattern) -> Tally:
        """The processor reads."""
        found = Tally()
        for at, length in self._pieces(size):
            piece = compare(self._driver.load(pointer + at, length), pattern.after(at).bytes(length), POISON.base)
            found = found.and_after(at // LONG_BYTES, piece)
        return found

    def take(self, pointer: int, pinned: int, size: int) -> None:
        """From one memory of the host to another."""
        for at, length in self._pieces(size):
            self._driver.store(pointer + at, self._driver.load(pinned + at, length))

    def wait(self) -> None:
        """It does one thing after the other."""
