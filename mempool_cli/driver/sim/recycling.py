"""How the simulated driver hands out pool handles again: one of the patterns that were seen (docs/driver-notes.md)."""

from __future__ import annotations

from collections import deque

_FIRST_REUSE_DEVICE = 6
_FIRST_REUSE_HOST = 3
_KEPT = 5


class HandleCycle:
    """The handles of one kind of pool: one location and handle type. Kinds are kept apart here.

    The real handles are heap addresses, so what comes back depends on the whole program; this is what a small
    program saw. Device pools: the first five creations get new handles, the first of which never comes back;
    then the five handles freed last come back, and the one freed last of all waits for one more destroy, so
    that create and destroy in a loop cycle through two handles. Host pools: from the third creation on, the
    handle freed last comes back first.
    """

    def __init__(self, *, device: bool) -> None:
        self._device = device
        self._created = 0
        self._first: int | None = None
        self._free: deque[int] = deque(maxlen=_KEPT)

    def take(self, new: int) -> tuple[int, bool]:
        """A handle for one more pool, and whether it is a recycled one. `new` is used when none comes back."""
        self._created += 1
        if self._first is None:
            self._first = new
        reuse_from = _FIRST_REUSE_DEVICE if self._device else _FIRST_REUSE_HOST
        if not self._free or self._created < reuse_from:
            return new, False
        if self._device and len(self._free) > 1:
            handle = self._free[-2]
            self._free.remove(handle)
            return handle, True
        return self._free.pop(), True

    def give(self, handle: int) -> None:
        """A pool was destroyed and its last allocation is gone: its handle may come back."""
        if handle != self._first:
            self._free.append(handle)
