"""Sizes as users write them: a bare number is bytes, MB and MiB differ, and 1G is refused."""

from __future__ import annotations

import re
from decimal import Decimal

import click

_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,6})?)\s*([A-Za-z]*)")
_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}


class Size(click.ParamType[int]):
    """A number of bytes, up to `largest`."""

    name = "size"

    def __init__(self, largest: int = 2**64 - 1) -> None:
        self._largest = largest

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes, from 0 to the largest."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value.strip())
        if not match:
            self.fail(f"{value!r} is no size; write 1048576, 64MiB, 64MB, 1GiB", param, ctx)
        number, unit = Decimal(match[1]), match[2].lower()
        if unit in ("k", "m", "g", "t"):
            letter = unit.upper()
            self.fail(f"{value!r} has two readings; write {match[1]}{letter}iB or {match[1]}{letter}B", param, ctx)
        if unit not in _UNITS:
            self.fail(f"{value!r}: there is no unit {match[2]!r}; use KiB, MiB, GiB, TiB, kB, MB, GB, TB", param, ctx)
        size = number * _UNITS[unit]
        if size != int(size):
            self.fail(f"{value!r} is no whole number of bytes", param, ctx)
        if size > self._largest:
            self.fail(f"{value!r} is more than {self._largest} bytes", param, ctx)
        return int(size)
