"""Which cards a process sees: CUDA_VISIBLE_DEVICES, read as the driver was measured to read it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mempool_cli.driver.codes import Code
from mempool_cli.driver.sim.profile import SimDevice

_LEADING_INT = re.compile(r"\s*([+-]?[0-9]+)")


def visible_devices(devices: Sequence[SimDevice], value: str | None) -> tuple[Code, list[int]]:
    """The code that cuInit answers, and the physical indices that become ordinals 0, 1, ...

    The list ends at the first entry that names no card; a list that names none is NO_DEVICE; one that
    names a card twice is INVALID_DEVICE. UUIDs may be shortened and are read without regard to case.
    """
    indices = list(range(len(devices))) if value is None else _named(devices, value)
    if not indices:
        return Code.CUDA_ERROR_NO_DEVICE, []
    if len(set(indices)) < len(indices):
        return Code.CUDA_ERROR_INVALID_DEVICE, []
    return Code.CUDA_SUCCESS, indices


def _named(devices: Sequence[SimDevice], value: str) -> list[int]:
    indices: list[int] = []
    for entry in value.split(","):
        index = _index(devices, entry)
        if index is None:
            break
        indices.append(index)
    return indices


def _index(devices: Sequence[SimDevice], entry: str) -> int | None:
    if entry.strip().upper().startswith("GPU-"):
        digits = entry.strip()[4:].replace("-", "").lower()
        hits = [i for i, device in enumerate(devices) if digits and device.uuid.startswith(digits)]
        return hits[0] if len(hits) == 1 else None
    number = _LEADING_INT.match(entry)
    return int(number[1]) if number and 0 <= int(number[1]) < len(devices) else None
