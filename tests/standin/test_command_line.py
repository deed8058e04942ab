"""The commands as users run them on hardware: NVIDIA's bindings, a driver library, eight devices, real sessions."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Done, settled

from mempool_cli.driver.sim.profile import Failure

from .stand_in import StandIn

pytestmark = pytest.mark.standin


Mempool = Callable[..., Done]


def shell(standin: StandIn, runtime: Path, socket: str, **options: Any) -> Mempool:
    """Runs one command line after the other on the machine at `socket`."""

    def call(*arguments: str) -> Done:
        command = [sys.executable, "-P", "-m", "mempool_cli", *arguments]
        done = standin.run(command, socket, MEMPOOL_RUNTIME_DIR=str(runtime), **options)
        return Done(done.returncode, settled(done.stdout), settled(done.stderr))

    return call


def document(done: Done) -> Any:
    assert done.err == ""
    return json.loads(done.out)


def uuid(matrix: str, device: int) -> str:
    found: list[str] = re.findall(r"GPU-[0-9a-f-]+", matrix)
    return found[device]


HELD = "affects only session default (pid PID), held until TIME unless used; no other process\n"


def test_a_session_on_hardware(standin: StandIn, runtime: Path) -> None:
    with standin.machine("8") as socket:
        mempool = shell(standin, runtime, socket)
        assert mempool("grant", "0", "--to", "1", "2") == (
            0,
            "pool default:0: access granted to devices 1-2 (1 cuMemPoolSetAccess call)\n"
            "access now: owner 0; RW 1-2; none 3-7\n" + HELD,
            "started session default (pid PID)\n",
        )
        matrix = mempool("probe", "--matrix")
        assert (matrix.status, matrix.err) == (0, "")
        assert matrix.out.startswith("""\
pool       kind             on  host  0    1    2    3    4    5    6    7
default:0  default,current  0   -     own  RW   RW   -    -    -    -    -
default:1  default,current  1   -     -    own  -    -    -    -    -    -
""")
        assert matrix.out.endswith("as session default (pid PID) sees it; other processes have pools of their own\n")
        assert "SIMULATED" not in matrix.out
        assert mempool("revoke", "0", "--from", "1") == (
            0,
            "pool default:0: access revoked from device 1 (1 cuMemPoolSetAccess call)\n"
            "access now: owner 0; RW 2; none 1, 3-7\n" + HELD,
            "",
        )
        by_uuid = mempool("--format", "json", "grant", "0", "--to", uuid(matrix.out, 7), "0000:0d:00.0", "--only")
        assert document(by_uuid)["data"]["granted"] == [6, 7]
        assert mempool("probe", "0").out.splitlines()[1] == (
            "default:0  default,current  0   owner 0; RW 6-7; none 1-5"
        )
        # The machine is real for `--sim` too: two name spaces.
        assert mempool("--sim", "8", "session", "list") == (0, "no session runs\n", "")
        assert mempool("session", "stop") == (0, "session default (pid PID) stopped\n", "")
        assert mempool("session", "list") == (0, "no session runs\n", "")


def test_pools_on_devices_and_on_the_host(standin: StandIn, runtime: Path) -> None:
    with standin.machine("8") as socket:
        mempool = shell(standin, runtime, socket)
        assert mempool("create", "1", "--name", "train", "--max-size", "1GiB", "--to", "0", "2-3") == (
            0,
            "created pool train on device 1 (max size: 1 GiB, release threshold: 0 B)\n"
            "granted to devices 0, 2-3 (1 cuMemPoolSetAccess call)\n"
            "access now: owner 1; RW 0, 2-3; none 4-7\n" + HELD,
            "started session default (pid PID)\n",
        )
        assert mempool("create", "host", "-q") == (0, "pool-1\n", "")
        assert mempool("create", "numa:0", "--name", "near", "--to", "all").status == 0
        assert mempool("probe", "train", "pool-1", "near").out.splitlines()[:4] == [
            "pool    kind     on      access",
            "train   created  1       owner 1; RW 0, 2-3; none 4-7",
            "pool-1  created  host    none 0-7; host RW",
            "near    created  numa:0  RW 0-7; host RW",
        ]
        assert mempool("set-current", "train").out.startswith("device 1 now allocates from pool train")
        assert mempool("destroy", "train", "pool-1").out.startswith(
            "destroyed pool train (access of devices 0, 2-3 cleared first)\ndestroyed pool pool-1\n"
        )
        assert mempool("session", "stop").out == "session default (pid PID) stopped; destroyed its pools: near\n"


def test_json_says_which_driver_answered(standin: StandIn, runtime: Path) -> None:
    with standin.machine("2") as socket:
        mempool = shell(standin, runtime, socket)
        alone = document(mempool("--format", "json", "probe"))
        assert alone["where"]["kind"] == "local"
        assert mempool("create", "0", "--format", "json").status == 0
        held = document(mempool("--format", "json", "probe"))
        assert (held["where"]["kind"], held["where"]["name"]) == ("session", "default")
        for found in (alone, held):
            driver = found["driver"]
            assert (driver["kind"], driver["sim"], driver["cuda_version"]) == ("cuda", None, "13.0")
            assert driver["bindings"] == version("cuda-bindings")
            assert driver["libcuda"] == {"path": str(standin.library.resolve()), "version": None}
        assert mempool("session", "stop").status == 0


def test_a_refusal_in_the_driver_s_words(standin: StandIn, runtime: Path) -> None:
    refused = [Failure(call="cuMemPoolSetAccess", code=101, times=1), Failure(call="cuMemPoolSetAccess", code=12345)]
    with standin.machine("3", failures=refused) as socket:
        mempool = shell(standin, runtime, socket)
        assert mempool("session", "start").status == 0
        for code in ("CUDA_ERROR_INVALID_DEVICE (101)", "CUresult 12345 (12345)"):
            status, out, err = mempool("grant", "0", "--to", "1", "2")
            assert (status, out.splitlines()[0]) == (4, "pool default:0: nothing changed (1 cuMemPoolSetAccess call)")
            assert err.splitlines()[:2] == [
                "error: pool default:0: the driver refused the change, 0 of 2 applied [driver-refused]",
                f"  driver: cuMemPoolSetAccess = {code}",
            ]
        assert mempool("session", "stop").status == 0


def test_flags_that_no_one_knows(standin: StandIn, runtime: Path) -> None:
    with standin.machine("2", answers={"cuMemPoolGetAccess": [0, 7]}) as socket:
        mempool = shell(standin, runtime, socket)
        status, out, err = mempool("probe", "--matrix")
        assert (status, err) == (0, "")
        assert out.startswith("""\
pool       kind             on  host  0         1
default:0  default,current  0   0x7?  own:0x7?  0x7?
default:1  default,current  1   0x7?  0x7?      own:0x7?

own:  the pool is on this device, yet the driver reports only the access that follows
0xN?  access flags that are not known here
""")
        assert mempool("probe", "0").out.splitlines()[1].endswith("unknown (0x7) 1; host unknown (0x7)")
        cell = document(mempool("probe", "0", "--format", "json"))["data"]["rows"][0]["cells"][1]
        assert (cell["access"], cell["flags"]) == ("unknown", 7)


def test_cells_that_are_not_answered(standin: StandIn, runtime: Path) -> None:
    with standin.machine("2", failures=[Failure(call="cuMemPoolGetAccess", code=999, times=1)]) as socket:
        status, out, err = shell(standin, runtime, socket)("probe", "--matrix")
    assert status == 4
    assert out.splitlines()[1].split() == ["default:0", "default,current", "0", "-", "err", "-"]
    assert err == (
        "error: 1 of 6 cells could not be read [unreadable-cells]\n"
        "  driver: cuMemPoolGetAccess = CUDA_ERROR_UNKNOWN (999)\n"
    )


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "\\xf8\\xff [bold]é"),
        ({"PYTHONIOENCODING": "ascii"}, "\\xf8\\xff [bold]\\xe9"),
        ({"PYTHONIOENCODING": "cp1252"}, "\\xf8\\xff [bold]é"),
    ],
    ids=["utf-8", "ascii", "cp1252"],
)
def test_a_card_whose_name_is_bytes(standin: StandIn, runtime: Path, environment: dict[str, str], name: str) -> None:
    raw = b"\xf8\xff [bold]\xc3\xa9\0rest".hex()
    with standin.machine("1", answers={"cuDeviceGetName": [0, raw]}) as socket:
        out = runtime.parent / "out"
        command = ["sh", "-c", f"{sys.executable} -P -m mempool_cli devices > {out}"]
        environment = {**environment, "MEMPOOL_RUNTIME_DIR": str(runtime)}
        shown = standin.run(command, socket, library=None, **environment)
        assert (shown.returncode, shown.stderr) == (0, "")
        encoding = environment.get("PYTHONIOENCODING", "utf-8")
        assert out.read_bytes().decode(encoding).splitlines()[1].startswith(f"0       {name}  0000:01:00.0")
        found = document(shell(standin, runtime, socket)("devices", "--format", "json"))
    assert found["data"]["devices"][0]["name"] == "\N{REPLACEMENT CHARACTER}" * 2 + " [bold]é"


def test_a_mig_instance(standin: StandIn, runtime: Path) -> None:
    with standin.machine("1", answers={"cuDeviceGetName": [0, b"NVIDIA H200 MIG 1g.18gb".hex()]}) as socket:
        mempool = shell(standin, runtime, socket)
        assert re.search(r"  (MIG-[0-9a-f-]{36})  ", mempool("devices").out)
        assert mempool("grant", "0", "--to", "GPU-6090", "--dry-run").status == 2
        assert mempool("grant", "0", "--to", "MIG-6090", "--dry-run").out.splitlines()[1] == (
            "left out: the owner device 0, which always has access"
        )


@pytest.mark.parametrize("visible", ["", "0,0", "GPU-ffffffff-0000-0000-0000-000000000000"])
def test_no_visible_device(standin: StandIn, runtime: Path, visible: str) -> None:
    with standin.machine("2") as socket:
        mempool = shell(standin, runtime, socket, CUDA_VISIBLE_DEVICES=visible)
        status, out, err = mempool("probe", "--matrix")
        assert (status, out) == (3, "")
        assert err.startswith(
            f"error: no usable CUDA device; CUDA_VISIBLE_DEVICES={visible!r} [no-device]\n  driver: cuInit"
        )
        failed = mempool("create", "0", "--format", "json")
        assert (failed.status, document(failed)["error"]["code"]) == (3, "no-device")


@pytest.mark.parametrize("arguments", [("devices",), ("grant", "0", "--to", "1")], ids=" ".join)
def test_a_driver_before_cuda_12(standin: StandIn, runtime: Path, arguments: tuple[str, ...]) -> None:
    with standin.machine("2", driver_version=11080) as socket:
        mempool = shell(standin, runtime, socket, library=standin.library_before_12)
        status, out, err = mempool(*arguments)
        assert (status, out) == (3, "")
        assert err.splitlines()[0].endswith("[driver-too-old]")
        assert "needs a CUDA 12.0 driver" in err
        assert "Traceback" not in err
        assert document(mempool(*arguments, "--format", "json"))["error"]["code"] == "driver-too-old"
        assert mempool("--sim", "2", "devices").status == mempool("--help").status == 0


def test_a_driver_that_lacks_a_function(standin: StandIn, runtime: Path) -> None:
    with standin.machine("2") as socket:
        mempool = shell(standin, runtime, socket, MEMPOOL_STANDIN_HIDDEN="cuMemPoolSetAccess")
        assert mempool("probe").status == 0
        assert mempool("grant", "0", "--to", "1") == (
            3,
            "",
            "error: this CUDA driver has no cuMemPoolSetAccess [missing-function]\n  try: update the NVIDIA driver\n",
        )
        # The session that was started for it has ended again.
        assert mempool("session", "list") == (0, "no session runs\n", "")


def test_calls_are_traced(standin: StandIn, runtime: Path) -> None:
    with standin.machine("2") as socket:
        mempool = shell(standin, runtime, socket)
        err = mempool("--trace", "create", "0", "--name", "traced", "--to", "1").err
        calls = [line.partition("(")[0] for line in err.splitlines()]
        assert calls.count("cuMemPoolCreate") == calls.count("cuMemPoolSetAccess") == 1
        assert mempool("session", "stop").status == 0


def test_sessions_need_the_environment_that_they_started_in(standin: StandIn, runtime: Path) -> None:
    with standin.machine("4") as socket:
        mempool = shell(standin, runtime, socket)
        card = uuid(mempool("devices").out, 2)
        assert mempool("create", "0", "--name", "p").status == 0
        elsewhere = shell(standin, runtime, socket, CUDA_VISIBLE_DEVICES="2,0")
        refused = elsewhere("grant", "p", "--to", "1", "--format", "json")
        assert (refused.status, document(refused)["error"]["code"]) == (5, "other-environment")
        assert document(elsewhere("grant", "p", "--to", card, "--format", "json"))["data"]["granted"] == [2]
        assert mempool("session", "stop").status == 0
