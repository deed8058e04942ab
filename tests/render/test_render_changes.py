from __future__ import annotations

from mempool_cli.errors import DriverWords, Problem
from mempool_cli.model import (
    AccessChange,
    Answer,
    CurrentPool,
    Notice,
    PoolCreated,
    PoolDestroyed,
    PoolsDestroyed,
    Where,
)
from mempool_cli.render import Output

from render_samples import DEFAULT, LOCAL, PROGRAM, SESSION, SIM, answer, cell, emitted, out_of, pool

CELLS = (cell(0, "rw", owner=True), cell(1, "rw"), cell(2, "rw"), cell(3, "none", capable=False))
POOL_1 = pool("pool-1", 1)


def test_grant() -> None:
    shown = AccessChange(pool=DEFAULT, granted=(1, 2), set_access_calls=1, cells=CELLS)
    assert (
        out_of(answer(shown, SESSION))
        == """\
pool default:0: access granted to devices 1-2 (1 cuMemPoolSetAccess call)
access now: owner 0; RW 1-2; not capable 3
affects only session default (pid 4242), held until 2026-12-01 04:20 UTC unless used; no other process
"""
    )


def test_grant_with_only_also_revokes() -> None:
    shown = AccessChange(
        pool=DEFAULT, granted=(1,), revoked=(3, 4), unchanged=(2,), owner_skipped=True, set_access_calls=1, cells=CELLS
    )
    assert (
        out_of(answer(shown, PROGRAM))
        == """\
pool default:0: access granted to device 1, revoked from devices 3-4 (1 cuMemPoolSetAccess call)
already so: device 2
left out: the owner device 0, which always has access
access now: owner 0; RW 1-2; not capable 3
affects only program train (pid 977); no other process
"""
    )


def test_revoke_in_this_process_alone() -> None:
    shown = AccessChange(pool=DEFAULT, revoked=(1,), set_access_calls=1)
    assert (
        out_of(answer(shown, LOCAL))
        == """\
pool default:0: access revoked from device 1 (1 cuMemPoolSetAccess call)
affected only this process (pid 4242), which ends now with all its pools; no other process
"""
    )


def test_dry_run() -> None:
    shown = AccessChange(pool=DEFAULT, granted=(1,), dry_run=True, cells=CELLS)
    assert (
        out_of(answer(shown, LOCAL))
        == """\
pool default:0: access would be granted to device 1 (dry run, no call made)
access now: owner 0; RW 1-2; not capable 3
no session was asked: in a new process pools start ungranted
a program's pools are its own: see `mempool exec`
"""
    )


def test_nothing_to_do() -> None:
    shown = AccessChange(pool=DEFAULT, unchanged=(1, 2), cells=CELLS)
    assert (
        out_of(answer(shown, SESSION, driver=SIM))
        == """\
SIMULATED machine 4: no hardware was asked
pool default:0: nothing to do (no cuMemPoolSetAccess call)
already so: devices 1-2
access now: owner 0; RW 1-2; not capable 3
as session default (pid 4242) sees it; other processes have pools of their own
"""
    )


def test_a_refused_call_shows_the_result_and_the_failure() -> None:
    failure = Problem(
        code="driver-refused",
        message="0 of 2 devices were granted",
        hint="see `mempool devices`",
        driver=DriverWords(call="cuMemPoolSetAccess", code=101, name="CUDA_ERROR_INVALID_DEVICE"),
    )
    shown = AccessChange(pool=DEFAULT, set_access_calls=1, cells=CELLS[:1])
    status, out, err = emitted(answer(shown, SESSION, failure=failure))
    assert status == 4
    assert (
        out
        == """\
pool default:0: nothing changed (1 cuMemPoolSetAccess call)
access now: owner 0
as session default (pid 4242) sees it; other processes have pools of their own
"""
    )
    assert (
        err
        == """\
error: 0 of 2 devices were granted [driver-refused]
  driver: cuMemPoolSetAccess = CUDA_ERROR_INVALID_DEVICE (101)
  try: see `mempool devices`
"""
    )


def test_create() -> None:
    shown = PoolCreated(pool=POOL_1, max_size=0, release_threshold=0)
    assert (
        out_of(answer(shown, Where(kind="session", pid=7, name="ci")))
        == """\
created pool pool-1 on device 1 (max size: driver default, release threshold: 0 B)
affects only session ci (pid 7); no other process
"""
    )


def test_create_with_inherited_access() -> None:
    shown = PoolCreated(
        pool=pool("staging", None, location="numa:0"),
        max_size=1 << 30,
        release_threshold=64 << 20,
        inherited=(0,),
        granted=(2, 3),
        set_access_calls=1,
        cells=(cell(0, "none"), cell(1, "none"), cell(2, "rw"), cell(3, "rw")),
        warnings=(Notice("inherited-access", "pool staging was born with access of device 0; it was cleared"),),
    )
    status, out, err = emitted(answer(shown, SESSION))
    assert status == 0
    assert (
        out
        == """\
created pool staging on numa:0 (max size: 1 GiB, release threshold: 64 MiB)
cleared access that nobody asked for: device 0
granted to devices 2-3 (1 cuMemPoolSetAccess call)
access now: RW 2-3; none 0-1
affects only session default (pid 4242), held until 2026-12-01 04:20 UTC unless used; no other process
"""
    )
    assert err == "warning: pool staging was born with access of device 0; it was cleared [inherited-access]\n"


def test_create_quietly_prints_the_name_alone() -> None:
    shown = PoolCreated(pool=POOL_1, max_size=0, release_threshold=0)
    assert emitted(answer(shown, SESSION), Output(quiet=True)) == (0, "pool-1\n", "")
    assert emitted(answer(shown, SESSION, driver=SIM), Output(quiet=True)) == (
        0,
        "pool-1\n",
        "SIMULATED machine 4: no hardware was asked\n",
    )


def test_set_current() -> None:
    assert (
        out_of(answer(CurrentPool(device=1, pool=POOL_1, previous=pool("default:1", 1)), SESSION))
        == """\
device 1 now allocates from pool pool-1, before from default:1
affects only session default (pid 4242), held until 2026-12-01 04:20 UTC unless used; no other process
"""
    )
    assert (
        out_of(Answer(result=CurrentPool(device=1, pool=POOL_1, previous=POOL_1)))
        == """\
device 1 allocates from pool pool-1, as before
"""
    )


def test_destroy() -> None:
    shown = PoolsDestroyed(
        destroyed=(
            PoolDestroyed(pool=POOL_1, cleared=(2, 3)),
            PoolDestroyed(pool=pool("pool-2"), not_cleared=(3,), used_bytes=64 << 20),
            PoolDestroyed(pool=pool("pool-3"), left_granted=(1, 3)),
        )
    )
    status, out, err = emitted(answer(shown, SESSION))
    assert status == 4
    assert (
        out
        == """\
destroyed pool pool-1 (access of devices 2-3 cleared first)
destroyed pool pool-2
  access would not clear: device 3
destroyed pool pool-3
  access left as it was: devices 1, 3
affects only session default (pid 4242); no other process
"""
    )
    assert (
        err
        == """\
error: destroyed, but access would not clear first: pool-2 (device 3) [not-cleared]
  try: a pool created later may get the same handle and inherit this access; `mempool create` reports it
"""
    )


def test_a_simulated_failure_is_labelled_too() -> None:
    failure = Problem(code="unknown-pool", message="no pool is called pool-9")
    assert emitted(Answer(driver=SIM, failure=failure)) == (
        2,
        "",
        "SIMULATED machine 4: no hardware was asked\nerror: no pool is called pool-9 [unknown-pool]\n",
    )
