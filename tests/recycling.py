"""Which pool handles come back, in a process that has done nothing else.

Handles are addresses on the driver's heap, so what comes back depends on all that the process did before: in a
test process that has created thousands of pools, almost anything. As a script it asks the real driver.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from mempool_cli.driver.port import (
    HOST_LOCATION,
    AccessEntry,
    AccessFlags,
    Driver,
    Location,
    PoolProperties,
    device_location,
)

_ROUNDS = 40
_SETTLED_AFTER = 10


class Recycling(NamedTuple):
    """Handles seen while pools are created and destroyed one after the other.

    `distinct`: values once the loop has settled; `recycled`: pools that got a handle seen before; `inherited`:
    those among them that came with access for device 0.
    """

    distinct: int
    recycled: int
    inherited: int


def watch(driver: Driver, location: Location) -> Recycling:
    """Forty rounds of create, look, grant to device 0, destroy."""
    accessor = device_location(0)
    is_owner = location == accessor
    seen: list[int] = []
    recycled = inherited = 0
    for _ in range(_ROUNDS):
        pool = driver.mem_pool_create(PoolProperties(location, 1 << 30))
        if pool in seen:
            recycled += 1
            inherited += not is_owner and driver.mem_pool_get_access(pool, accessor) != AccessFlags.NONE
        seen.append(pool)
        driver.mem_pool_set_access(pool, [AccessEntry(accessor, AccessFlags.READWRITE)])
        driver.mem_pool_destroy(pool)
    return Recycling(len(set(seen[_SETTLED_AFTER:])), recycled, inherited)


def both(driver: Driver) -> dict[str, Recycling]:
    """A device pool's loop, then a host pool's."""
    return {"device": watch(driver, device_location(0)), "host": watch(driver, HOST_LOCATION)}


def check(seen: dict[str, Recycling]) -> None:
    """What every driver was seen to do: a handful of handles comes back, and host pools inherit nothing."""
    for loop in seen.values():
        assert loop.distinct <= 20
        assert loop.recycled >= 20
    assert seen["host"].inherited == 0


def main() -> None:
    from mempool_cli.driver.cuda import CudaDriver

    driver = CudaDriver()
    driver.init()
    print(json.dumps(both(driver)))


if __name__ == "__main__":
    main()
