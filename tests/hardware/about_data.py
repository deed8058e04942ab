"""What gets through to an owner's memory: copies, kernels, and allocation from the accessor's side."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from mempool_cli.driver import kernels
from mempool_cli.driver.longs import LONG_BYTES
from mempool_cli.driver.port import AccessFlags, HostAllocFlags
from mempool_cli.errors import DriverError

import data_path
from data_path import refusal
from two_sides import SIZE, Answer, Memory, Side, TwoSides

NONE, READWRITE = AccessFlags.NONE, AccessFlags.READWRITE


def copies(sides: TwoSides) -> Answer:
    """Which copies get through while the accessor has no access?"""
    return _copies(sides, NONE)


def copies_granted(sides: TwoSides) -> Answer:
    """Which copies get through while it has?"""
    return _copies(sides, READWRITE)


def _copies(sides: TwoSides, flags: int) -> Answer:
    driver = sides.driver
    mine = sides.own_memory()
    pool, theirs = sides.memory()
    data_path.set_flags(driver, pool, sides.accessor, flags)
    found: Answer = {}
    for number, copy in enumerate(_each_copy(sides, mine, theirs), start=1):
        data = bytes([number]) * SIZE
        sides.put(copy.source, data)
        sides.put(copy.destination, bytes(SIZE))
        driver.ctx_set_current(copy.within.context)
        outcome: Answer = {"call": refusal(copy.call), "synchronize": refusal(driver.ctx_synchronize)}
        found[copy.name] = outcome
        if outcome["synchronize"] != "SUCCESS":
            break  # the context is lost
        outcome["arrived"] = sides.look(copy.destination) == data
    return found


class Copy(NamedTuple):
    """A call in the context of a side, and what it copies."""

    name: str
    within: Side
    call: Callable[[], object]
    source: Memory
    destination: Memory


def _each_copy(sides: TwoSides, mine: Memory, theirs: Memory) -> Iterator[Copy]:
    driver, home, away = sides.driver, sides.home, sides.away
    for way, source, destination in (("into the pool", mine, theirs), ("out of the pool", theirs, mine)):
        to, at = destination.pointer, source.pointer
        for whose, side in (("accessor", away), ("owner", home)):
            copy = partial(driver.memcpy_async, to, at, SIZE, side.stream)
            yield Copy(f"{way}, on the {whose}'s stream", side, copy, source, destination)
        contexts = destination.side.context, source.side.context
        peer_copy = partial(driver.memcpy_peer_async, to, contexts[0], at, contexts[1], SIZE, away.stream)
        yield Copy(f"{way}, as a peer copy", away, peer_copy, source, destination)

        def by_the_processor(to: int = to, at: int = at) -> None:
            driver.memcpy_htod(to, driver.memcpy_dtoh(at, SIZE))

        yield Copy(f"{way}, by the processor", away, by_the_processor, source, destination)


def memset(sides: TwoSides) -> Answer:
    """Does a memset on the accessor's stream get through without access, and with it?"""
    pool, theirs = sides.memory()
    found: Answer = {}
    stream = sides.away.stream
    for value, flags in ((1, READWRITE), (2, NONE)):
        sides.put(theirs, bytes(SIZE))
        data_path.set_flags(sides.driver, pool, sides.accessor, flags)
        sides.driver.ctx_set_current(sides.away.context)
        call = refusal(partial(sides.driver.memset_d8_async, theirs.pointer, value, SIZE, stream))
        outcome: Answer = {"call": call, "synchronize": refusal(partial(sides.driver.stream_synchronize, stream))}
        found[flags.name.lower()] = outcome
        if outcome["synchronize"] == "SUCCESS":
            outcome["arrived"] = sides.look(theirs) == bytes([value]) * SIZE
    return found


def allocation(sides: TwoSides) -> Answer:
    """Can the owner's pool be allocated from on the accessor's stream; and what of a kernel there?"""
    driver, stream = sides.driver, sides.away.stream
    pool = sides.create()
    found: Answer = {}
    # Without access last, as the kernel may fault.
    for name, flags in (("ungranted", None), ("granted", READWRITE), ("revoked", NONE)):
        if flags is not None:
            data_path.set_flags(driver, pool, sides.accessor, flags)
        driver.ctx_set_current(sides.away.context)
        try:
            pointer = driver.mem_alloc_from_pool_async(SIZE, pool, stream)
        except DriverError as error:
            found[name] = {"allocate": error.words.name}
            continue
        found[name] = {"allocate": "SUCCESS"}
        if flags is not None:
            found[name]["kernel"] = sides.kernel_writes(pointer)
        found[name]["free"] = refusal(partial(driver.mem_free_async, pointer, stream))
        found[name]["synchronize"] = refusal(partial(driver.stream_synchronize, stream))
    return found


def revoke_under_kernel(sides: TwoSides) -> Answer:
    """Does revoking fault a kernel that runs, wait for it, or let it be? Milliseconds."""
    pool, theirs = sides.memory()
    sides.put(theirs, bytes(SIZE))
    data_path.set_flags(sides.driver, pool, sides.accessor, READWRITE)
    sides.driver.ctx_set_current(sides.away.context)
    add = data_path.kernel(sides.driver, kernels.ADD)
    start, here = _started(sides)
    times, alone = _lasting(sides, add, theirs.pointer, start, here)
    sides.put(theirs, bytes(SIZE))
    sides.driver.ctx_set_current(sides.away.context)
    sides.launch(add, kernels.add_parameters(theirs.pointer, 1, times, start, here))
    time.sleep(alone / 4e3)
    begin = time.perf_counter()
    revoke = sides.set(pool, NONE)
    revoked = time.perf_counter()
    synchronize = refusal(partial(sides.driver.stream_synchronize, sides.away.stream))
    ended = time.perf_counter()
    found: Answer = {"additions": times, "kernel alone": round(alone, 1), "access": sides.get(pool)}
    found |= {"revoke": revoke, "revoke took": round((revoked - begin) * 1e3, 1)}
    found |= {"synchronize": synchronize, "synchronize took": round((ended - revoked) * 1e3, 1)}
    try:
        return found | {"added": int.from_bytes(sides.look(theirs, 8), sys.byteorder)}
    except DriverError as error:
        return found | {"added": error.words.name}


def _started(sides: TwoSides) -> tuple[int, int]:
    """Pinned memory: a start that is given, and where the kernel says that it is here."""
    start = sides.driver.mem_host_alloc(3 * LONG_BYTES, HostAllocFlags.PORTABLE)
    sides.driver.store(start, (1).to_bytes(LONG_BYTES, sys.byteorder))
    return start, start + LONG_BYTES


def _lasting(sides: TwoSides, add: int, pointer: int, start: int, here: int) -> tuple[int, float]:
    """How many additions keep a kernel busy for 400 ms, a simulated one excepted; and its milliseconds."""
    times, spent = 1 << 12, 0.0
    while spent < 400 and times < 1 << 32:
        times *= 4
        begin = time.perf_counter()
        sides.launch(add, kernels.add_parameters(pointer, 1, times, start, here))
        sides.driver.stream_synchronize(sides.away.stream)
        spent = (time.perf_counter() - begin) * 1e3
    return times, spent
