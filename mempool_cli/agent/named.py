"""The pools of its own that a program lets clients name."""

from __future__ import annotations

import _weakref

# Not typing's, which takes longer to import than the rest of an agent's start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PLACES = "on=0, on='host' or on='numa:0'"

_pools: dict[str, tuple[Callable[[], Any], str]] = {}


class HeldPool:
    """A pool of the program's, whose object is not collected meanwhile. `place`: as `mempool create` spells it."""

    def __init__(self, pool: Any, place: str) -> None:
        self._pool = pool
        self.place = place

    def handle(self) -> int:
        """The handle at this moment; 0 when the pool is closed. No driver call."""
        try:
            handle = int(getattr(self._pool, "handle", self._pool))
            return handle if 0 < handle < 1 << 64 else 0
        except Exception:  # a closed object of any library may say so in any way
            return 0


def add(name: str, pool: Any, on: str | int | None) -> None:
    """As `agent.name_pool`."""
    from mempool_cli.pools import check_name

    check_name(name)
    device = getattr(pool, "device_id", None)
    if on is None and (not isinstance(device, int) or device < 0):
        raise TypeError(f"where is pool {name}? {_PLACES}")
    place = str(device if on is None else on)
    if place != "host" and not place.removeprefix("numa:").isdecimal():
        raise ValueError(f"{place!r} is no place for a pool: {_PLACES}")
    if isinstance(device, int) and device >= 0 and place != str(device):
        raise ValueError(f"pool {name} is on device {device}, not on {place}")
    if not HeldPool(pool, place).handle():
        raise TypeError(f"pool {name}: {pool!r} has no handle and is none")
    _pools[name] = (_reference(pool), place)


def remove(name: str) -> None:
    """As `agent.forget_pool`."""
    _pools.pop(name, None)


def living() -> dict[str, HeldPool]:
    """Those whose pool is there, by name; the others are forgotten."""
    held = {name: HeldPool(reference(), place) for name, (reference, place) in list(_pools.items())}
    for name in [name for name, pool in held.items() if not pool.handle()]:
        del held[name]
        _pools.pop(name, None)
    return held


def _reference(pool: Any) -> Callable[[], Any]:
    # The object of a bare handle may go while the pool lives on.
    if hasattr(pool, "handle"):
        try:
            return _weakref.ref(pool)
        except TypeError:
            pass
    return lambda: pool
