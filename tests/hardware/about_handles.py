"""Which handles come back, and with what."""

from __future__ import annotations

from mempool_cli.driver.port import AccessFlags

import data_path
from two_sides import Answer, TwoSides

NONE, READWRITE = AccessFlags.NONE, AccessFlags.READWRITE
TRIALS = 128
KEPT = 16


def recycled(sides: TwoSides) -> Answer:
    """Does a pool with a recycled handle inherit access; and does a kernel get through?"""
    return _recycled(sides, allocated=False)


def recycled_allocated(sides: TwoSides) -> Answer:
    """The same where each pool was allocated from."""
    return _recycled(sides, allocated=True)


def _recycled(sides: TwoSides, *, allocated: bool) -> Answer:
    seen: set[int] = set()
    found: Answer = {"created": TRIALS, "recycled": 0, "inherited": 0}
    for _ in range(TRIALS):
        pool = sides.create()
        if pool in seen:
            found["recycled"] += 1
            found["inherited"] += sides.get(pool) != NONE
        seen.add(pool)
        if allocated:
            sides.free(sides.allocate(pool))
        data_path.set_flags(sides.driver, pool, sides.accessor, READWRITE)
        sides.driver.mem_pool_destroy(pool)
    kept = [sides.create() for _ in range(KEPT)]
    # The one that says most: with access that nobody asked for, else recycled, else any.
    subject = max(kept, key=lambda pool: (sides.get(pool) != NONE, pool in seen))
    found |= {"distinct": len(seen), "kernel_on": {"recycled": subject in seen, "access": sides.get(subject)}}
    return found | {"kernel": sides.kernel_writes(sides.allocate(subject))}


def order(sides: TwoSides) -> Answer:
    """In which order do handles come back? The numbers count the handles of a list as they first appear."""
    return _order(sides, granted=False)


def order_granted(sides: TwoSides) -> Answer:
    """The same where each pool was granted to the accessor."""
    return _order(sides, granted=True)


def _order(sides: TwoSides, *, granted: bool) -> Answer:
    one_by_one: list[int] = []
    for _ in range(48):
        one_by_one.append(sides.create())
        _destroy(sides, one_by_one[-1], granted)
    batch = [sides.create() for _ in range(KEPT)]
    for pool in batch:
        _destroy(sides, pool, granted)
    after = [sides.create() for _ in range(2 * KEPT)]
    return {"one by one": _numbered(one_by_one), "16 destroyed in order, then 32 created": _numbered(batch + after)}


def _destroy(sides: TwoSides, pool: int, granted: bool) -> None:
    if granted:
        data_path.set_flags(sides.driver, pool, sides.accessor, READWRITE)
    sides.driver.mem_pool_destroy(pool)


def _numbered(handles: list[int]) -> list[int]:
    numbers: dict[int, int] = {}
    return [numbers.setdefault(handle, len(numbers)) for handle in handles]
