"""The calls about kernels. Those of mempool_cli.driver.kernels are run by their names, not by their text."""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mempool_cli.driver.codes import Code
from mempool_cli.driver.kernels import ADD, CHECK, COPY, FILL, READ, WORD_BYTES, WRITE
from mempool_cli.driver.longs import LONG_BYTES, TALLY_BYTES, tally
from mempool_cli.driver.port import Dimensions
from mempool_cli.driver.sim.allocation import Allocation
from mempool_cli.driver.sim.memory import Memory

if TYPE_CHECKING:
    from mempool_cli.driver.sim.machine import Machine

_PTX = re.compile(rb"\s*\.version\s+\d+\.\d+\s")
_ENTRY = re.compile(rb"\.entry\s+(\w+)")


class _IllegalAddressError(Exception):
    """A kernel touched what its device may not."""


class _StuckError(Exception):
    """A kernel touched what never answers."""


class Kernels(Memory):
    """The loaded modules, and what their kernels do."""

    def __init__(self, machine: Machine, visible: str | None) -> None:
        super().__init__(machine, visible)
        self._modules: dict[int, tuple[int, frozenset[str]]] = {}
        self._functions: dict[int, tuple[int, str]] = {}
        self._code_handles = itertools.count(0x6300_0000_0000, 0x100)

    def module_load_data(self, image: bytes) -> int:
        device = self._enter_context_call("module_load_data")
        if not _PTX.match(image):
            self._fail("module_load_data", Code.CUDA_ERROR_INVALID_IMAGE)
        module = next(self._code_handles)
        self._modules[module] = device, frozenset(name.decode() for name in _ENTRY.findall(image))
        return module

    def module_get_function(self, module: int, name: str) -> int:
        self._enter_context_call("module_get_function")
        if module not in self._modules:
            self._fail("module_get_function", Code.CUDA_ERROR_INVALID_HANDLE)
        device, names = self._modules[module]
        if name not in names or name not in _KERNELS:
            self._fail("module_get_function", Code.CUDA_ERROR_NOT_FOUND)
        function = next(self._code_handles)
        self._functions[function] = device, name
        return function

    def launch_kernel(self, function: int, grid: Dimensions, block: Dimensions, stream: int, parameters: bytes) -> None:
        """Succeeds also when the kernel faults: the calls after it answer that the context is lost.

        Its module and its stream have to be of the current context, where copies, allocations and waits take any
        stream (published: CUDA Programming Guide, stream and event behavior; cuLaunchKernel).
        """
        device = self._enter_stream_call("launch_kernel", stream)
        owner, name = self._functions.get(function, (None, ""))
        current = self._current_device()
        if current is None:
            self._fail("launch_kernel", Code.CUDA_ERROR_INVALID_CONTEXT)
        if owner != device or current != device:
            self._fail("launch_kernel", Code.CUDA_ERROR_INVALID_HANDLE)
        if min(*grid, *block) < 1:
            self._fail("launch_kernel", Code.CUDA_ERROR_INVALID_VALUE)
        if self.capture.status(stream):
            return
        threads = math.prod((*grid, *block))
        try:
            _KERNELS[name](Launch(self, device, stream, threads), parameters)
        except struct.error:
            self._fail("launch_kernel", Code.CUDA_ERROR_INVALID_VALUE)
        except _IllegalAddressError:
            self._lost[device] = Code.CUDA_ERROR_ILLEGAL_ADDRESS
        except _StuckError:
            return

    def touched(self, device: int, stream: int, pointer: int, size: int) -> Allocation:
        """The allocation that has these bytes, for a kernel of that device."""
        allocation = self._holding(pointer, size)
        if allocation is None or not self._lets(device, allocation):
            raise _IllegalAddressError
        if self._occupy(device, stream, allocation):
            raise _StuckError
        return allocation

    def load_longs(self, device: int, allocation: Allocation) -> Allocation:
        """The bytes that a kernel of the device sees in it."""
        return self._read_by(device, allocation)

    def store_longs(
        self,
        device: int,
        allocation: Allocation,
        piece: tuple[int, int],
        action: Callable[[Allocation], None],
        source: Allocation | None = None,
    ) -> None:
        """What a kernel of the device does to this piece of it."""
        self._write(device, allocation, piece, action, source=source)


class Launch(NamedTuple):
    """A kernel that runs: on which device and stream, with how many threads."""

    process: Kernels
    device: int
    stream: int
    threads: int

    def reads(self, pointer: int, size: int) -> tuple[Allocation, Allocation]:
        """The memory, and the bytes that are seen there."""
        allocation = self.process.touched(self.device, self.stream, pointer, size)
        return allocation, self.process.load_longs(self.device, allocation)

    def writes(
        self, pointer: int, size: int, action: Callable[[Allocation], None], source: Allocation | None = None
    ) -> None:
        """Does this to the bytes at `pointer`; `source` is other memory that the kernel reads."""
        allocation = self.process.touched(self.device, self.stream, pointer, size)
        self.process.store_longs(self.device, allocation, (pointer, size), action, source)


def _write(launch: Launch, parameters: bytes) -> None:
    pointer, value = struct.unpack("<QI", parameters)
    data = value.to_bytes(WORD_BYTES, "little")
    launch.writes(pointer, WORD_BYTES, lambda memory: memory.write(pointer, data))


def _read(launch: Launch, parameters: bytes) -> None:
    source, destination = struct.unpack("<QQ", parameters)
    _carry(launch, source, destination, WORD_BYTES)


def _copy(launch: Launch, parameters: bytes) -> None:
    source, destination, count = struct.unpack("<QQQ", parameters)
    _carry(launch, source, destination, count * LONG_BYTES)


def _carry(launch: Launch, source: int, destination: int, size: int) -> None:
    origin, seen = launch.reads(source, size)
    launch.writes(destination, size, lambda memory: memory.copy(destination, seen, source, size), origin)


def _fill(launch: Launch, parameters: bytes) -> None:
    pointer, count, base, step = struct.unpack("<QQQQ", parameters)
    launch.writes(pointer, count * LONG_BYTES, lambda memory: memory.fill_longs(pointer, count, base, step))


def _check(launch: Launch, parameters: bytes) -> None:
    pointer, count, base, step, other, at = struct.unpack("<QQQQQQ", parameters)
    _, seen = launch.reads(pointer, count * LONG_BYTES)
    found = seen.tally(pointer, count, base, step, other)
    _, before = launch.reads(at, TALLY_BYTES)
    old = tally(before.read(at, TALLY_BYTES))
    total = old.and_after(0, found)
    launch.writes(at, TALLY_BYTES, lambda memory: memory.write(at, total.bytes()))


def _add(launch: Launch, parameters: bytes) -> None:
    """Starts at once: kernels run one after the other here."""
    pointer, value, times, start, here = struct.unpack("<QQQQQ", parameters)
    launch.reads(start, LONG_BYTES)
    launch.writes(here, LONG_BYTES, lambda memory: memory.write(here, (1).to_bytes(LONG_BYTES, "little")))
    _, seen = launch.reads(pointer, LONG_BYTES)
    total = int.from_bytes(seen.read(pointer, LONG_BYTES), "little") + value * times * launch.threads
    data = (total % 2**64).to_bytes(LONG_BYTES, "little")
    launch.writes(pointer, LONG_BYTES, lambda memory: memory.write(pointer, data))


_KERNELS: dict[str, Callable[[Launch, bytes], None]] = {
    WRITE: _write,
    READ: _read,
    FILL: _fill,
    COPY: _copy,
    CHECK: _check,
    ADD: _add,
}
