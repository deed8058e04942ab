"""One driver call fails, once, at each place where it can: nothing is claimed that is not so, and no pool is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from mempool_cli.driver.sim.machine import Process
from mempool_cli.model import AccessChange, Answer
from mempool_cli.requests import Create, Destroy, Grant, Probe, SetCurrent

from .machines import FOUR, ask, failure, machine, process, runner

CALLS = [
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceCanAccessPeer",
    "cuDeviceGetDefaultMemPool",
    "cuDeviceGetMemPool",
    "cuDeviceSetMemPool",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolGetAttribute",
    "cuMemPoolSetAccess",
    "cuMemPoolGetAccess",
]


def current(program: Process) -> int | None:
    """The handle of the pool that device 0 allocates from, as the machine knows it; None for its default pool."""
    return program._current.get(0)


def created(program: Process) -> list[int]:
    return [handle for handle, pool in program._pools.items() if not pool.is_default]


def access_of(program: Process, handle: int) -> set[int]:
    return {device for device, flags in program._pools[handle].access.items() if flags}


def check_change(answer: Answer, program: Process, handle: int) -> None:
    """What a grant says of itself is what the machine has."""
    if answer.problem is None:
        assert isinstance(answer.result, AccessChange)
        assert answer.result.pool.name == "a"
        assert access_of(program, handle) == {1}


@pytest.mark.parametrize("after", range(0, 24, 2))
@pytest.mark.parametrize("call", CALLS)
def test_what_is_said_is_so(tmp_path: Path, call: str, after: int) -> None:
    program = process(machine(tmp_path, FOUR, failure(call, after=after, times=1)))
    asked = runner(program)
    if ask(asked, Create(location="0", name="a")).problem is None:
        (a,) = created(program)
        if ask(asked, SetCurrent(pool="a")).problem is None:
            assert current(program) == a
            check_change(ask(asked, Grant(pool="current:0", to=("1",))), program, a)
    made = ask(asked, Create(location="1", name="b", to=("2",)))
    assert (made.problem is None) == ("b" in asked.pool_names())
    ask(asked, Destroy(pools=("b",)))
    assert ask(asked, Probe()).result is not None or call in ("cuDeviceGetCount", "cuDeviceGetName")
    asked.close()
    assert len(created(program)) == len(asked.pool_names()) <= (call == "cuMemPoolDestroy")
