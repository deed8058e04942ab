"""`mempool destroy`: access is cleared first, and whatever was created is destroyed on every path out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mempool_cli.driver.port import AccessEntry, PoolProperties, device_location
from mempool_cli.driver.sim.machine import Process
from mempool_cli.driver.trace import TracedDriver
from mempool_cli.requests import Create, Destroy, List, SetCurrent

from .conftest import Mempool
from .machines import AFFECTED, ask, calls, failure, label, machine, process, runner, show
from data_path import own_stream


def test_access_is_cleared_first_in_one_call_without_the_owner(mempool: Mempool) -> None:
    mempool("--sim", "4", "create", "0", "--to", "1", "3")
    done = mempool("--sim", "4", "destroy", "pool-1", "--trace")
    changes = [line.partition(", ")[2] for line in calls(done.err, "cuMemPoolSetAccess")]
    assert changes == ["[device 1 NONE, device 3 NONE]) = CUDA_SUCCESS"]
    assert len(calls(done.err, "cuMemPoolDestroy")) == 1
    assert done.out == (label("4") + "destroyed pool pool-1 (access of devices 1, 3 cleared first)\n" + AFFECTED)
    assert "pool-1" not in mempool("--sim", "4", "list").out


def test_a_pool_without_peers_needs_no_clearing(mempool: Mempool) -> None:
    mempool("--sim", "4", "create", "0")
    done = mempool("--sim", "4", "destroy", "pool-1", "--trace")
    assert calls(done.err, "cuMemPoolSetAccess") == []
    assert (done.status, done.out) == (0, label("4") + "destroyed pool pool-1\n" + AFFECTED)


def test_without_cleanup_access_is_left_and_said_to_be(mempool: Mempool) -> None:
    mempool("--sim", "4", "create", "0", "--to", "1")
    done = mempool("--sim", "4", "destroy", "pool-1", "--no-cleanup", "--trace")
    assert calls(done.err, "cuMemPoolSetAccess") == []
    assert (done.status, done.out) == (
        0,
        label("4") + "destroyed pool pool-1\n  access left as it was: device 1\n" + AFFECTED,
    )


def test_several_pools_each_once_in_the_order_named(mempool: Mempool) -> None:
    for name in ("a", "b", "c"):
        mempool("--sim", "4", "create", "0", "--name", name, "--to", "1")
    assert mempool("--sim", "4", "destroy", "c", "a", "c").out == (
        label("4") + "destroyed pool c (access of device 1 cleared first)\n"
        "destroyed pool a (access of device 1 cleared first)\n" + AFFECTED
    )
    assert "b          created" in mempool("--sim", "4", "list").out


def test_none_is_destroyed_when_one_cannot_be(mempool: Mempool) -> None:
    mempool("--sim", "4", "create", "0", "--name", "a", "--to", "1")
    mempool("--sim", "4", "create", "0", "--name", "b")
    for last, message in (
        ("nope", "there is no pool 'nope'; created here: a, b [unknown-pool]"),
        ("9", "there is no device 9: devices 0 to 3 are visible [unknown-device]"),
        ("0", "pool default:0 is a default pool, which cannot be destroyed [default-pool]"),
        ("default:3", "pool default:3 is a default pool, which cannot be destroyed [default-pool]"),
        ("current:1", "pool default:1 is a default pool, which cannot be destroyed [default-pool]"),
    ):
        done = mempool("--sim", "4", "destroy", "a", "b", last)
        assert (done.status, done.out) == (2, "")
        assert done.err.splitlines()[:2] == [label("4").strip(), f"error: {message}"]
    assert mempool("--sim", "4", "probe", "a", "b").out.splitlines()[2:4] == [
        "a     created  0   owner 0; RW 1; none 2-3",
        "b     created  0   owner 0; none 1-3",
    ]


def test_the_current_pool_may_go_and_the_default_one_is_current_again(mempool: Mempool) -> None:
    mempool("--sim", "4", "create", "0", "--name", "a", "--to", "2")
    mempool("--sim", "4", "set-current", "a")
    assert mempool("--sim", "4", "destroy", "current:0") == (
        0,
        label("4") + "destroyed pool a (access of device 2 cleared first)\n" + AFFECTED,
        "warning: pool a was the current pool of device 0; its default pool is again [current-pool-reset]\n",
    )
    assert "default:0  default,current  0 " in mempool("--sim", "4", "list").out


def test_a_pool_of_the_program_stays(capsys: pytest.CaptureFixture[str]) -> None:
    program = process()
    asked = runner(program)
    ask(asked, List())
    own = program.mem_pool_create(PoolProperties(device_location(1)))
    program.device_set_mem_pool(1, own)
    assert show(ask(asked, Destroy(pools=("current:1",)))) == 2
    assert capsys.readouterr().err == (
        label("4") + "error: pool current:1 is the program's own, which only the program may destroy [program-pool]\n"
    )
    assert program.device_get_mem_pool(1) == own


def test_a_pool_with_live_allocations_says_how_many_bytes_stay(capsys: pytest.CaptureFixture[str]) -> None:
    program = process()
    asked = runner(program)
    ask(asked, Create(location="0", name="a", to=("1",)))
    ask(asked, SetCurrent(pool="a"))
    handle = program.device_get_mem_pool(0)
    stream = own_stream(program)
    pointer = program.mem_alloc_from_pool_async(4 << 20, handle, stream)
    assert show(ask(asked, List())) == 0
    assert "a          current,created  0   4 MiB  32 MiB    0 B        driver default\n" in capsys.readouterr().out
    assert show(ask(asked, Destroy(pools=("a",)))) == 0
    out, err = capsys.readouterr()
    assert out.startswith(label("4") + "destroyed pool a (access of device 1 cleared first)\n")
    assert err == (
        "warning: pool a was destroyed with 4194304 bytes allocated; they go when they are freed [memory-outstanding]\n"
        "warning: pool a was the current pool of device 0; its default pool is again [current-pool-reset]\n"
    )
    program.mem_free_async(pointer, stream)


# --- every path out ---


class Interrupted(Process):
    """A process in which the user presses Ctrl-C while access is set."""

    def mem_pool_set_access(self, pool: int, entries: Sequence[AccessEntry]) -> None:
        if entries[0].flags:
            raise KeyboardInterrupt
        super().mem_pool_set_access(pool, entries)


def test_an_interrupted_creation_leaves_no_pool() -> None:
    program = Interrupted(process().machine, None)
    asked = runner(program)
    lines: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        ask(asked, Create(location="0", to=("1",)), trace=lines)
    assert created(lines) == destroyed(lines) != []
    assert asked.pool_names() == ()


@pytest.mark.parametrize(
    "refused",
    [
        failure("cuMemPoolSetAccess"),
        failure("cuMemPoolSetAttribute"),
        failure("cuMemPoolGetAccess", times=1),
        failure("cuMemPoolGetAttribute"),
    ],
    ids=["access", "attribute", "read-back", "used-bytes"],
)
def test_whatever_fails_after_it_no_pool_is_left(tmp_path: Path, refused: str) -> None:
    spec = machine(tmp_path, "[[device]]", "count = 2", "[p2p]", "all = true", refused)
    lines: list[str] = []
    asked = runner(TracedDriver(process(spec), lines.append))
    ask(asked, Create(location="0", release_threshold=1, to=("1",)))
    assert asked.close() == ()
    assert created(lines) == destroyed(lines) != []
    assert asked.pool_names() == ()


def test_the_end_of_a_runner_destroys_what_it_made() -> None:
    lines: list[str] = []
    asked = runner(TracedDriver(process(), lines.append))
    for location in ("0", "1", "host", "numa:0"):
        assert ask(asked, Create(location=location, to=("2",))).exit == 0
    lines.clear()
    assert asked.close() == ()
    assert len(destroyed(lines)) == 4
    assert sum(line.startswith("cuMemPoolSetAccess") and " NONE])" in line for line in lines) == 4
    assert asked.close() == ()


def test_one_command_alone_destroys_what_it_made(mempool: Mempool, tmp_path: Path) -> None:
    """Seen by a driver that refuses: the command says what it could not destroy."""
    stuck = machine(tmp_path, "[[device]]", failure("cuMemPoolDestroy"))
    done = mempool("--sim", stuck, "--no-session", "create", "0")
    assert (done.status, done.err) == (
        4,
        "error: pool pool-1 was not destroyed [driver-refused]\n"
        "  driver: cuMemPoolDestroy = CUDA_ERROR_UNKNOWN (999)\n",
    )
    assert "created pool pool-1 on device 0" in done.out


def created(lines: list[str]) -> list[str]:
    return [line.rpartition(" = ")[2].split()[0] for line in lines if line.startswith("cuMemPoolCreate(")]


def destroyed(lines: list[str]) -> list[str]:
    return [line.partition("(")[2].partition(")")[0] for line in lines if line.startswith("cuMemPoolDestroy(")]
