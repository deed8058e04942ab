"""Longs, aligned numbers of 64 bits, as the kernels FILL and CHECK take them: the same, by the processor."""

from __future__ import annotations

import operator
import struct
from array import array
from functools import lru_cache
from typing import NamedTuple

LONG_BYTES = 8

_U32 = (1 << 32) - 1
_U64 = (1 << 64) - 1
_BLOCK = 1 << 17
_TALLY = struct.Struct("<QQQQ")


class Tally(NamedTuple):
    """What CHECK counts: wrong longs, of these zeros, of these `other` ones, and the index of the first wrong one."""

    wrong: int = 0
    zeros: int = 0
    others: int = 0
    first: int = _U64

    def bytes(self) -> bytes:
        """As it lies in memory, in TALLY_BYTES."""
        return _TALLY.pack(*self)

    def and_after(self, count: int, later: Tally) -> Tally:
        """Of two checks as one: `later` is that of what comes after `count` longs."""
        first = later.first + count if later.wrong else later.first
        return Tally(
            self.wrong + later.wrong, self.zeros + later.zeros, self.others + later.others, min(self.first, first)
        )


TALLY_BYTES = _TALLY.size


def tally(data: bytes) -> Tally:
    """What CHECK left in memory."""
    return Tally(*_TALLY.unpack(data))


def series(base: int, step: int, count: int) -> bytes:
    """What FILL writes: long number i is base + i * step."""
    low = base & _U32
    if step == 0:
        return base.to_bytes(LONG_BYTES, "little") * count
    if step == 1 and low % _BLOCK + count <= _BLOCK:
        halves = _block(low // _BLOCK)[2 * (low % _BLOCK) : 2 * (low % _BLOCK + count)]
        halves[1::2] = array("I", [base >> 32]) * count
        return halves.tobytes()
    return array("Q", ((base + i * step) & _U64 for i in range(count))).tobytes()


@lru_cache(maxsize=64)
def _block(number: int) -> array[int]:
    """Longs whose low halves count on: to make each as a number of Python takes five times as long."""
    halves = array("I", bytes(_BLOCK * LONG_BYTES))
    halves[::2] = array("I", range(number * _BLOCK, (number + 1) * _BLOCK))
    return halves


def compare(data: bytes, right: bytes, other: int) -> Tally:
    """What CHECK counts where `data` should be `right`."""
    if data == right:
        return Tally()
    longs, expected = array("Q", data), array("Q", right)
    wrong = [at for at, differs in enumerate(map(operator.ne, longs, expected)) if differs]
    zeros, others = (sum(longs[at] == kind for at in wrong) for kind in (0, other))
    return Tally(len(wrong), zeros, others, wrong[0])
