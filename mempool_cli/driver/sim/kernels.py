"""The calls about kernels. Those of mempool_cli.driver.kernels are run by their names, not by their text."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import Dimensions
from mempool_cli.driver.sim.allocation import Allocation
from mempool_cli.driver.sim.memory import Memory

if TYPE_CHECKING:
    from mempool_cli.driver.sim.machine import Machine

_PTX = re.compile(rb"\s*\.version\s+\d+\.\d+\s")
_ENTRY = re.compile(rb"\.entry\s+(\w+)")
_WORD_BYTES = 4

Touch = Callable[[int], Allocation]
"""The allocation that holds the word at a pointer; _IllegalAddressError when the kernel may not touch it."""


class _IllegalAddressError(Exception):
    """A kernel touched what its device may not."""


def _write(touch: Touch, parameters: bytes) -> None:
    pointer, value = struct.unpack("<QI", parameters)
    touch(pointer).write(pointer, value.to_bytes(_WORD_BYTES, "little"))


def _read(touch: Touch, parameters: bytes) -> None:
    source, destination = struct.unpack("<QQ", parameters)
    word = touch(source).read(source, _WORD_BYTES)
    touch(destination).write(destination, word)


_KERNELS = {"mempool_write": _write, "mempool_read": _read}


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
        """Succeeds also when the kernel faults: the calls after it answer that the context is lost."""
        device = self._enter_stream_call("launch_kernel", stream)
        owner, name = self._functions.get(function, (None, ""))
        if owner != device:
            self._fail("launch_kernel", Code.CUDA_ERROR_INVALID_HANDLE)
        if min(*grid, *block) < 1:
            self._fail("launch_kernel", Code.CUDA_ERROR_INVALID_VALUE)
        if self.capture.status(stream):
            return
        try:
            _KERNELS[name](lambda pointer: self._touched(device, pointer), parameters)
        except struct.error:
            self._fail("launch_kernel", Code.CUDA_ERROR_INVALID_VALUE)
        except _IllegalAddressError:
            self._lost[device] = Code.CUDA_ERROR_ILLEGAL_ADDRESS

    def _touched(self, device: int, pointer: int) -> Allocation:
        allocation = self._holding(pointer, _WORD_BYTES)
        if allocation is None or not allocation.pool.lets(device):
            raise _IllegalAddressError
        return allocation
