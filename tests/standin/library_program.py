"""A program with a context, streams and captures of its own that uses the library; prints what it saw as JSON.

Its first argument names what it does.
"""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cuda.bindings import driver as cuda

from mempool_cli import access, probe
from mempool_cli.errors import MempoolError

GLOBAL = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
THREAD_LOCAL = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
RELAXED = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


def call(name: str, *arguments: Any) -> Any:
    """A driver call that has to succeed."""
    code, *values = getattr(cuda, name)(*arguments)
    assert not code, f"{name}: {code}"
    return values[0] if values else None


def loaded() -> list[str]:
    """What of the heavy packages is in this process."""
    return [name for name in ("asyncio", "click", "rich", "socket", "mempool_cli.session") if name in sys.modules]


def contexts() -> list[int]:
    """The devices with an active primary context, and -1 for a context that is current."""
    states = [cuda.cuDevicePrimaryCtxGetState(device) for device in range(call("cuDeviceGetCount"))]
    active = [device for device, (code, *state) in enumerate(states) if not code and state[-1]]
    return active + ([-1] if int(call("cuCtxGetCurrent")) else [])


def peers(matrix: Any) -> dict[str, list[int]]:
    """Pool -> devices with access, the owner left out."""
    return {
        row.pool.name: [cell.device for cell in row.cells if cell.access == "rw" and not cell.owner]
        for row in matrix.rows
    }


def pool_on(device: int) -> Any:
    """A new pool of this program's."""
    properties = cuda.CUmemPoolProps()
    properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device
    return call("cuMemPoolCreate", properties)


def flags(pool: Any) -> list[int]:
    """The driver's own answers."""
    found = []
    for device in range(call("cuDeviceGetCount")):
        location = cuda.CUmemLocation()
        location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = device
        found.append(int(call("cuMemPoolGetAccess", pool, location)))
    return found


def light() -> dict[str, Any]:
    """A first use: what it loads and creates."""
    first = loaded()
    found = peers(probe.matrix())
    change = access.set_peers(0, [1])
    report = {"before": first, "peers": found, "granted": change.granted, "loaded": loaded(), "contexts": contexts()}
    out = io.StringIO()
    probe.print_matrix(out)
    return {**report, "printed": out.getvalue(), "loaded to print": loaded(), "contexts in the end": contexts()}


def changes() -> dict[str, Any]:
    """What set_peers changes, and what it leaves alone."""
    call("cuInit", 0)
    mine, other = pool_on(0), pool_on(0)
    default = call("cuDeviceGetDefaultMemPool", 0)
    steps: list[Any] = []

    def step(owner: int, wanted: list[int], pool: Any = None) -> None:
        change = access.set_peers(owner, wanted, pool=pool)
        seen = [flags(handle) for handle in (default, mine, other)]
        steps.append([change.granted, change.revoked, change.set_access_calls, change.pool.name, *seen])

    step(0, [1, 2])
    step(0, [2, 3])
    step(0, [2, 3])
    step(0, [1], mine)
    step(0, [0, 1, 1], mine)
    step(0, [], mine)
    call("cuDeviceSetMemPool", 0, mine)
    access.set_peers(0, [3], pool=mine)
    return {"steps": steps, "matrix": peers(probe.matrix())}


def refusals() -> dict[str, Any]:
    """What set_peers raises, after which the thread is as it was."""
    call("cuInit", 0)
    call("cuThreadExchangeStreamCaptureMode", THREAD_LOCAL)
    codes = []
    for owner, wanted in ((0, [1, 9]), (9, [0]), (0, [-1]), (0, [1])):
        try:
            access.set_peers(owner, wanted)
        except MempoolError as error:
            codes.append([error.problem.code, error.problem.message])
    default = call("cuDeviceGetDefaultMemPool", 0)
    return {"codes": codes, "flags": flags(default), "mode": int(call("cuThreadExchangeStreamCaptureMode", GLOBAL))}


def use() -> None:
    """Everything that a program can call."""
    probe.matrix()
    probe.print_matrix(io.StringIO())
    access.set_peers(0, [1])
    access.set_peers(0, [])


@contextmanager
def captured(mode: Any, seen: dict[str, str], name: str) -> Iterator[None]:
    """A capture on a stream of the calling thread; how it ended goes to `seen`."""
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", 0))
    stream = call("cuStreamCreate", int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
    call("cuStreamBeginCapture", stream, mode)
    yield
    code, _ = cuda.cuStreamEndCapture(stream)
    seen[name] = code.name


def captures() -> dict[str, Any]:
    """A use while a stream is captured, by this thread or by another."""
    call("cuInit", 0)
    seen: dict[str, str] = {}
    for mode in (GLOBAL, THREAD_LOCAL, RELAXED):
        with captured(mode, seen, f"same thread, {int(mode)}"):
            use()
        _in_another_thread(mode, seen, f"other thread, {int(mode)}", use)
    threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    pool = call("cuDeviceGetDefaultMemPool", 0)
    _in_another_thread(GLOBAL, seen, "a bare call", lambda: cuda.cuMemPoolGetAttribute(pool, threshold))
    modes = []
    for mode in (GLOBAL, THREAD_LOCAL, RELAXED):
        call("cuThreadExchangeStreamCaptureMode", mode)
        use()
        modes.append(int(call("cuThreadExchangeStreamCaptureMode", mode)))
    return {"captures": seen, "modes": modes}


def _in_another_thread(mode: Any, seen: dict[str, str], name: str, work: Callable[[], object]) -> None:
    begun, done = threading.Event(), threading.Event()

    def capture() -> None:
        with captured(mode, seen, name):
            begun.set()
            assert done.wait(20)

    thread = threading.Thread(target=capture)
    thread.start()
    assert begun.wait(20)
    try:
        work()
    finally:
        done.set()
        thread.join()


if __name__ == "__main__":
    work = {function.__name__: function for function in (light, changes, refusals, captures)}[sys.argv[1]]
    print(json.dumps(work()))
