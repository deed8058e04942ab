"""What is written, and how it is told from anything else: longs that say whose they are, and never zero."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from mempool_cli.driver.longs import LONG_BYTES, Tally, series
from mempool_cli.model import Damage, DamageKind

_HOST = 1023
_RUNS = 1 << 11


class Pattern(NamedTuple):
    """Long number i is base + i * step."""

    base: int
    step: int

    def bytes(self, size: int) -> bytes:
        """The first `size` bytes, a multiple of 8."""
        return series(self.base, self.step, size // LONG_BYTES)

    def after(self, size: int) -> Pattern:
        """The same from byte `size` on."""
        return Pattern(self.base + size // LONG_BYTES * self.step, self.step)


POISON = Pattern(0x5E47_1E5A_5E47_1E5A, 0)
"""What a destination holds before anything is written: no payload and no zeros."""


def payloads(owner: int | None, accessor: int) -> Iterator[Pattern]:
    """Endless payloads of a pair. From the top: a one, 10 bits of owner, 10 of accessor, 11 of run, 32 of offset."""
    place = _HOST if owner is None else owner % _HOST
    for run in itertools.count(1):
        yield Pattern((1 << 63) | (place << 53) | (accessor % _HOST << 43) | (run % _RUNS << 32), 1)


def damage(tally: Tally) -> Damage | None:
    """What a check found, as a user is told it; None when nothing was wrong."""
    if tally.wrong == 0:
        return None
    kind: DamageKind = "other"
    if tally.zeros == tally.wrong:
        kind = "zeros"
    elif tally.others == tally.wrong:
        kind = "sentinel"
    return Damage(first=tally.first * LONG_BYTES, wrong=tally.wrong, kind=kind)
