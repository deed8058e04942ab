"""What SetAccess takes, makes and costs, between an owner and an accessor."""

from __future__ import annotations

import statistics
import subprocess
import time
from functools import partial

from mempool_cli.driver.port import AccessEntry, AccessFlags, DeviceAttribute, Driver, P2PAttribute, device_location

import data_path
from data_path import refusal
from two_sides import Answer, TwoSides

NONE, READ, READWRITE = AccessFlags
MIB = 1 << 20


def context(sides: TwoSides) -> Answer:
    """Does SetAccess need a context, does it make one, and how much memory is in use afterwards?"""
    seen = {"init": _state(sides.driver)}
    pool = sides.create()
    seen["create"] = _state(sides.driver)
    grant, access = sides.set(pool, READWRITE), sides.get(pool)
    seen["grant"] = _state(sides.driver)
    revoke = sides.set(pool, NONE)
    seen["revoke"] = _state(sides.driver)
    sides.allocate(pool, 64 * MIB)
    seen["owner's context and 64 MiB"] = _state(sides.driver)
    granted_again = sides.set(pool, READWRITE)
    seen["grant again"] = _state(sides.driver)
    return {"grant": grant, "access": access, "revoke": revoke, "grant again": granted_again, "after": seen}


def _state(driver: Driver) -> Answer:
    """The devices whose primary context is active, and the MiB in use on each card, as nvidia-smi numbers them."""
    from cuda.bindings import driver as cuda

    states = [cuda.cuDevicePrimaryCtxGetState(device) for device in range(driver.device_get_count())]
    return {"contexts": [device for device, (_, _, active) in enumerate(states) if active], "MiB": _memory_in_use()}


def _memory_in_use() -> list[int] | None:
    ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return [int(line) for line in done.stdout.split()]


def read_only(sides: TwoSides) -> Answer:
    """Can the accessor be given READ?"""
    pool = sides.create()
    found: Answer = {"fresh": sides.set(pool, READ), "access": sides.get(pool)}
    sides.set(pool, READWRITE)
    found |= {"instead of READWRITE": sides.set(pool, READ), "access then": sides.get(pool)}
    sides.allocate(pool)
    return found | {"allocated": sides.set(pool, READ), "access last": sides.get(pool)}


def duplicates(sides: TwoSides) -> Answer:
    """What does a call do that names the accessor more than once, or the owner beside it?"""
    pool = sides.create()
    owner, accessor = sides.owner, device_location(sides.accessor)
    calls = {
        "3 times": [(accessor, READWRITE)] * 3,
        "none, readwrite": [(accessor, NONE), (accessor, READWRITE)],
        "readwrite, none": [(accessor, READWRITE), (accessor, NONE)],
        "40 times": [(accessor, READWRITE)] * 40,
        "owner readwrite, accessor none": [(owner, READWRITE), (accessor, NONE)],
        "accessor readwrite, read": [(accessor, READWRITE), (accessor, READ)],
        "accessor readwrite, owner none": [(accessor, READWRITE), (owner, NONE)],
    }
    found: Answer = {}
    for name, entries in calls.items():
        call = partial(sides.driver.mem_pool_set_access, pool, [AccessEntry(*entry) for entry in entries])
        found[name] = [refusal(call), sides.get(pool)]
    return found


def capability(sides: TwoSides) -> Answer:
    """What do the questions about peers say, in both directions?"""
    driver, devices = sides.driver, range(sides.driver.device_get_count())
    pairs = [
        {
            "accessor": accessor,
            "owner": owner,
            "can_access_peer": driver.device_can_access_peer(accessor, owner),
            **{each.name.lower(): driver.device_get_p2p_attribute(each, accessor, owner) for each in P2PAttribute},
        }
        for accessor in devices
        for owner in devices
        if accessor != owner
    ]
    ask = (DeviceAttribute.HOST_MEMORY_POOLS_SUPPORTED, DeviceAttribute.HOST_NUMA_MEMORY_POOLS_SUPPORTED)
    return {
        "pairs": pairs,
        "host": [{each.name.lower(): driver.device_get_attribute(each, device) for each in ask} for device in devices],
    }


def cost(sides: TwoSides) -> Answer:
    """What does a grant cost, and a revoke, with so much allocated; medians of five in milliseconds?"""
    rows = []
    for accessor_has_context in (False, True):
        if accessor_has_context:
            sides.driver.ctx_set_current(sides.away.context)
        for mib in (0, 1, 64, 1024, 4096):
            pool = sides.create(max_size=8 << 30)
            pointer = sides.allocate(pool, mib * MIB) if mib else 0
            spent = [(_milliseconds(sides, pool, READWRITE), _milliseconds(sides, pool, NONE)) for _ in range(5)]
            grant, revoke = (statistics.median(times) for times in zip(*spent, strict=True))
            rows.append({"MiB": mib, "accessor_context": accessor_has_context, "grant": grant, "revoke": revoke})
            if pointer:
                sides.free(pointer)
            sides.driver.mem_pool_destroy(pool)
    return {"rows": rows}


def _milliseconds(sides: TwoSides, pool: int, flags: int) -> float:
    begin = time.perf_counter()
    data_path.set_flags(sides.driver, pool, sides.accessor, flags)
    return round((time.perf_counter() - begin) * 1e3, 4)
