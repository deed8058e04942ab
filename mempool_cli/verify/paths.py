"""The ways in which an accessor gets at memory of an owner, and what each of them comes to.

A payload goes one way by one mover, and the other side looks. The accessor's own view of the memory is taken by the
same mover: it tells memory that nobody wrote to from a copy that only the accessor sees.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from mempool_cli.driver.port import EventFlags
from mempool_cli.errors import DriverError
from mempool_cli.model import Damage, Order, Path, PathResult, PathVerdict
from mempool_cli.verify.bench import Bench
from mempool_cli.verify.failures import FAULTS, wanting
from mempool_cli.verify.payload import POISON, Pattern, damage
from mempool_cli.verify.sides import Device

_COPIES = 8
_ADDERS, _TIMES = 4096, 500
_TIMED_BYTES = 1 << 16
_LONG = 8
_START = (1).to_bytes(_LONG, "little")
_START_SECONDS = 1.0


class Mover(NamedTuple):
    """How bytes go: to the first pointer from the second, so many. Does not wait."""

    write: Callable[[int, int, int], None]
    read: Callable[[int, int, int], None]


class Attempt(NamedTuple):
    """What one attempt came to; `lost` when the process can do no more."""

    verdict: PathVerdict
    why: str
    damage: Damage | None = None
    error: DriverError | None = None
    lost: bool = False


ARRIVED = Attempt("ok", "arrived")


def movers(bench: Bench) -> dict[Path, Mover]:
    """The mover of each path but the atomics; peer copies only between devices, since they name both contexts."""
    driver, accessor = bench.driver, bench.accessor

    def copy(destination: int, source: int, size: int) -> None:
        driver.ctx_set_current(accessor.context)
        driver.memcpy_async(destination, source, size, accessor.stream)

    kernel, plain = Mover(accessor.carry, accessor.carry), Mover(copy, copy)
    found: dict[Path, Mover] = {"kernel-write": kernel, "kernel-read": kernel, "copy-write": plain, "copy-read": plain}
    if isinstance(bench.owner, Device):
        there, here = bench.owner.context, accessor.context

        def peer_write(destination: int, source: int, size: int) -> None:
            driver.ctx_set_current(here)
            driver.memcpy_peer_async(destination, there, source, here, size, accessor.stream)

        def peer_read(destination: int, source: int, size: int) -> None:
            driver.ctx_set_current(here)
            driver.memcpy_peer_async(destination, here, source, there, size, accessor.stream)

        found["peer-copy-write"] = found["peer-copy-read"] = Mover(peer_write, peer_read)
    return found


def try_path(
    bench: Bench, order: Order, path: Path, sizes: tuple[int, ...], repeat: int, payloads: Iterator[Pattern]
) -> tuple[PathResult, bool]:
    """The path, over all sizes and repeats up to the first that is not right; and whether the process is lost."""
    attempt, size, run = ARRIVED, sizes[0], 1
    bandwidth: float | None = None
    for size, run in product((_LONG,) if path == "atomic-add" else sizes, range(1, repeat + 1)):  # noqa: B007
        bench.alive()
        attempt = _attempted(bench, path, size, payloads)
        if attempt.verdict != "ok":
            break
    if attempt.verdict == "ok" and "copy" in path and bench.timed and size >= _TIMED_BYTES:
        bench.alive()
        attempt, bandwidth = _timed(bench, path, size)
    result = PathResult(
        order=order,
        path=path,
        verdict=attempt.verdict,
        why=attempt.why,
        size=size,
        repeat=run,
        damage=attempt.damage,
        driver=attempt.error.words if attempt.error else None,
        bandwidth=bandwidth,
    )
    return result, attempt.lost


def _attempted(bench: Bench, path: Path, size: int, payloads: Iterator[Pattern]) -> Attempt:
    """One attempt. What fails besides the access itself is an error, after which the process is not trusted."""
    try:
        if path == "atomic-add":
            return _add(bench, next(payloads))
        mover = movers(bench)[path]
        attempt = _write if path.endswith("write") else _read
        return attempt(bench, mover, size, next(payloads), next(payloads))
    except DriverError as error:
        return Attempt("error", f"{error.words.call} beside the access itself failed", error=error, lost=True)


def _write(bench: Bench, mover: Mover, size: int, payload: Pattern, mark: Pattern) -> Attempt:
    """The accessor writes, the owner looks."""
    owner, accessor = bench.owner, bench.accessor
    owner.fill(bench.memory, size, POISON)
    accessor.fill(bench.payload, size, payload)
    failed = _moved(bench, lambda: mover.write(bench.memory, bench.payload, size))
    if failed:
        return failed
    wrong = damage(owner.tally(bench.memory, size, payload))
    if wrong is None:
        return ARRIVED
    if owner.tally(bench.memory, size, POISON).wrong:
        return Attempt("corrupt", "other bytes arrived, and the driver said SUCCESS", wrong)
    dropped = Attempt("dropped", "nothing arrived, and the driver said SUCCESS", wrong)
    accessor.fill(bench.view, size, mark)
    unseen = _moved(bench, lambda: mover.read(bench.view, bench.memory, size))
    if unseen:
        return dropped._replace(lost=unseen.lost)
    if accessor.tally(bench.view, size, payload).wrong:
        return dropped
    return Attempt("mirror", "the writer sees its own data, the owner does not", wrong)


def _read(bench: Bench, mover: Mover, size: int, payload: Pattern, mark: Pattern) -> Attempt:
    """The owner writes, the accessor looks; what it wrote there itself before must be gone."""
    owner, accessor = bench.owner, bench.accessor
    owner.fill(bench.memory, size, POISON)
    accessor.fill(bench.payload, size, mark)
    unmarked = _moved(bench, lambda: mover.write(bench.memory, bench.payload, size))
    if unmarked and unmarked.lost:
        return unmarked._replace(verdict="inconclusive", why="the write that comes before the read failed")
    owner.fill(bench.memory, size, payload)
    accessor.fill(bench.view, size, POISON)
    failed = _moved(bench, lambda: mover.read(bench.view, bench.memory, size))
    if failed:
        return failed
    wrong = damage(accessor.tally(bench.view, size, payload))
    if wrong is None:
        return ARRIVED
    if accessor.tally(bench.view, size, mark).wrong == 0:
        return Attempt("mirror", "the accessor sees what it wrote itself, not what the owner wrote after it", wrong)
    if accessor.tally(bench.view, size, POISON).wrong == 0:
        return Attempt("dropped", "nothing was read, and the driver said SUCCESS", wrong)
    return Attempt("corrupt", "other bytes were read, and the driver said SUCCESS", wrong)


def _add(bench: Bench, start: Pattern) -> Attempt:
    """Both add to one number from one start on, given while both wait for it; the owner looks at the sum.

    The processor does not add, and a device does not wait for itself.
    """
    owner, accessor, driver = bench.owner, bench.accessor, bench.driver
    added = _ADDERS * _TIMES
    devices = [device for device in dict.fromkeys((owner, accessor)) if isinstance(device, Device)]
    driver.store(bench.start, _START)
    for device in devices:
        device.load_add(bench.start)
    if len(devices) > 1:
        driver.store(bench.start, bytes(_LONG))
    owner.fill(bench.memory, _LONG, start)
    if isinstance(owner, Device):
        owner.add(bench.memory, 1, _TIMES, _ADDERS, bench.start)
    met = False

    def add() -> None:
        nonlocal met
        try:
            accessor.add(bench.memory, 1, _TIMES, _ADDERS, bench.start)
            met = _wait_for(devices)
        finally:
            driver.store(bench.start, _START)

    failed = _moved(bench, add)
    if failed and failed.lost:
        return failed
    owner.wait()
    if failed:
        return failed
    by_owner = added if isinstance(owner, Device) else 0
    wrong = damage(owner.tally(bench.memory, _LONG, Pattern(start.base + by_owner + added, 0)))
    if wrong is None:
        met = met and all(device.in_time for device in devices)
        return ARRIVED if met else Attempt("inconclusive", "the sum is right, but the two did not add at the same time")
    if owner.tally(bench.memory, _LONG, Pattern(start.base + by_owner, 0)).wrong == 0:
        return Attempt("dropped", "what the accessor added is not in the sum", wrong)
    return Attempt("corrupt", "the sum is wrong: additions were lost", wrong)


def _wait_for(devices: Sequence[Device]) -> bool:
    """Until the kernels of all of them run, for a while; whether they do."""
    until = time.monotonic() + _START_SECONDS
    while not all(device.in_time for device in devices):
        if time.monotonic() > until:
            return False
    return True


def _moved(bench: Bench, move: Callable[[], None]) -> Attempt | None:
    """Does it and waits for it; what it came to when it was refused or faulted, else None."""
    try:
        move()
        bench.accessor.wait()
    except DriverError as error:
        return _failed(error)
    return None


def _failed(error: DriverError) -> Attempt:
    """What a failure of the access itself is: for want of memory it says nothing about the access."""
    if error.words.code in FAULTS or error.words.call == "cuStreamSynchronize":
        return Attempt("faulted", "it failed while it ran, although access is granted", error=error, lost=True)
    want = wanting(error)
    if want:
        return Attempt("inconclusive", want, error=error)
    return Attempt("refused", "it was refused, although access is granted", error=error)


def _timed(bench: Bench, path: Path, size: int) -> tuple[Attempt, float | None]:
    """Bytes a second of copies one after the other, by the accessor's own clock. They can still fault."""
    driver, accessor, mover = bench.driver, bench.accessor, movers(bench)[path]
    try:
        driver.ctx_set_current(accessor.context)
        begin, end = (driver.event_create(EventFlags.DEFAULT) for _ in range(2))
        driver.event_record(begin, accessor.stream)
        for _ in range(_COPIES):
            if path.endswith("write"):
                mover.write(bench.memory, bench.payload, size)
            else:
                mover.read(bench.view, bench.memory, size)
        driver.event_record(end, accessor.stream)
        accessor.wait()
        milliseconds = driver.event_elapsed_time(begin, end)
        for event in (begin, end):
            driver.event_destroy(event)
    except DriverError as error:
        return (ARRIVED, None) if error.words.call.startswith("cuEvent") else (_failed(error), None)
    return ARRIVED, _COPIES * size / (milliseconds / 1e3) if milliseconds else None
