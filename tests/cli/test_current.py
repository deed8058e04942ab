"""`mempool set-current`: which pool a device allocates from."""

from __future__ import annotations

import pytest

from .conftest import Mempool
from .machines import FRESH, HELD, SEEN, calls, label

NOBODY = "error: no simulated session 'default' runs [no-session]\n"


def test_another_current_pool(mempool: Mempool) -> None:
    mempool("--sim", "4", "create", "1", "--name", "a", "--to", "0")
    done = mempool("--sim", "4", "set-current", "a", "--trace")
    assert [call.partition("(")[2].partition(",")[0] for call in calls(done.err, "cuDeviceSetMemPool")] == ["1"]
    assert (done.status, done.out) == (
        0,
        label("4") + "device 1 now allocates from pool a, before from default:1\n" + HELD,
    )


def test_the_default_and_the_current_pool_are_both_shown_each_once(mempool: Mempool) -> None:
    mempool("--sim", "2", "create", "1", "--name", "a", "--to", "0")
    mempool("--sim", "2", "set-current", "a")
    assert mempool("--sim", "2", "probe").out == (
        label("2") + "pool       kind             on  access\n"
        "default:0  default,current  0   owner 0; none 1\n"
        "default:1  default          1   owner 1; none 0\n"
        "a          current,created  1   owner 1; RW 0\n"
        "\n" + SEEN
    )
    for word in ("a", "current:1", "current:GPU-e606"):
        assert mempool("--sim", "2", "probe", word).out.splitlines()[2] == "a     current,created  1   owner 1; RW 0"
    assert mempool("--sim", "2", "probe", "a", "current:1", "1", "default:1").out.splitlines()[2:5] == [
        "a          current,created  1   owner 1; RW 0",
        "default:1  default          1   owner 1; none 0",
        "",
    ]


def test_back_to_the_default_pool_and_once_more(mempool: Mempool) -> None:
    mempool("--sim", "2", "create", "0")
    mempool("--sim", "2", "set-current", "pool-1")
    assert mempool("--sim", "2", "set-current", "0").out == (
        label("2") + "device 0 now allocates from pool default:0, before from pool-1\n" + HELD
    )
    assert mempool("--sim", "2", "set-current", "default:0").out == (
        label("2") + "device 0 allocates from pool default:0, as before\n" + SEEN
    )


def test_a_host_pool_is_no_devices_current_pool(mempool: Mempool) -> None:
    mempool("--sim", "2", "create", "host", "--name", "h")
    done = mempool("--sim", "2", "set-current", "h", "--trace")
    assert (done.status, calls(done.err, "cuDeviceSetMemPool")) == (2, [])
    assert done.err.splitlines()[-1] == (
        "error: pool h is on host: a device's current pool is one on that device [host-pool]"
    )


@pytest.mark.parametrize(
    ("word", "status", "message"),
    [
        ("nope", 2, "there is no pool 'nope'; created here: none [unknown-pool]"),
        ("9", 2, "there is no device 9: devices 0 to 3 are visible [unknown-device]"),
        ("2", 3, "device 2 (Tesla K40c) has no memory pool support [no-pool-support]"),
    ],
)
def test_pools_that_are_none(mempool: Mempool, word: str, status: int, message: str) -> None:
    done = mempool("--sim", "mixed-4", "--no-session", "set-current", word)
    assert (done.status, done.err.splitlines()[1]) == (status, f"error: {message}")


def test_alone_it_is_gone_with_the_command(mempool: Mempool) -> None:
    done = mempool("--sim", "2", "set-current", "0")
    assert (done.status, done.err.splitlines(keepends=True)[0]) == (5, NOBODY)
    assert mempool("--sim", "2", "--no-session", "set-current", "0") == (
        0,
        label("2") + "device 0 allocates from pool default:0, as before\n" + FRESH,
        "",
    )
