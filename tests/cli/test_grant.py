from __future__ import annotations

from .conftest import Mempool


def test_a_grant_is_seen_by_another_command(mempool: Mempool) -> None:
    assert mempool("--sim", "4", "grant", "0", "--to", "1", "2") == (
        0,
        """\
SIMULATED machine 4: no hardware was asked
pool default:0: access granted to devices 1-2 (1 cuMemPoolSetAccess call)
access now: owner 0; RW 1-2; none 3
affects only session default (pid PID), held until TIME unless used; no other process
""",
        "started session default (pid PID)\n",
    )
    assert mempool("--sim", "4", "probe", "0").out.splitlines()[2] == (
        "default:0  default,current  0   owner 0; RW 1-2; none 3"
    )
