"""The library in a user's own program: it changes what it says, and leaves no trace in the program."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

import pytest

from .stand_in import StandIn

pytestmark = pytest.mark.standin

SUCCESS = "CUDA_SUCCESS"


def run(standin: StandIn, what: str, spec: str = "4") -> Any:
    with standin.machine(spec) as machine:
        done = standin.run([sys.executable, "-P", "-m", f"{__package__}.library_program", what], machine)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


def test_it_loads_little_and_creates_no_context(standin: StandIn) -> None:
    report = run(standin, "light", "2")
    assert report["peers"] == {"default:0": [], "default:1": []}
    assert report["granted"] == [1]
    # Whatever the bindings bring was there before.
    assert report["loaded"] == report["before"]
    assert not {"asyncio", "click", "mempool_cli.session"} & set(report["loaded to print"])
    assert report["contexts"] == report["contexts in the end"] == []
    assert report["printed"].startswith("""\
pool       kind             on  host  0    1
default:0  default,current  0   -     own  RW
default:1  default,current  1   -     -    own

own  the pool is on this device
RW   may read and write
-    no access; a device could be granted it

device  name         bus id        uuid
0       NVIDIA H200  0000:01:00.0  GPU-""")


def test_peers_are_exactly_those_named(standin: StandIn) -> None:
    report = run(standin, "changes")
    alone = [3, 0, 0, 0]
    assert report["steps"] == [
        # granted, revoked, calls, pool; then the access of: default pool, the program's own, another of its own
        [[1, 2], [], 1, "default:0", [3, 3, 3, 0], alone, alone],
        [[3], [1], 1, "default:0", [3, 0, 3, 3], alone, alone],
        [[], [], 0, "default:0", [3, 0, 3, 3], alone, alone],
        [[1], [], 1, "unnamed:0", [3, 0, 3, 3], [3, 3, 0, 0], alone],
        [[], [], 0, "unnamed:0", [3, 0, 3, 3], [3, 3, 0, 0], alone],
        [[], [1], 1, "unnamed:0", [3, 0, 3, 3], alone, alone],
    ]
    assert report["matrix"] == {
        "default:0": [2, 3],
        "default:1": [],
        "default:2": [],
        "default:3": [],
        "current:0": [3],
    }


def test_a_refusal_changes_nothing_and_restores_the_thread(standin: StandIn) -> None:
    report = run(standin, "refusals", "no-p2p-2")
    assert [code for code, _ in report["codes"]] == ["unknown-device"] * 3 + ["not-peer-capable"]
    assert report["flags"] == [3, 0]
    assert report["mode"] == 1


def test_captures_survive_and_the_mode_of_the_thread_is_restored(standin: StandIn) -> None:
    report = run(standin, "captures")
    assert report["captures"].pop("a bare call") == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    assert report["captures"] == {
        f"{thread} thread, {mode}": SUCCESS for mode in (0, 1, 2) for thread in ("same", "other")
    }
    assert report["modes"] == [0, 1, 2]


CUDA_CORE = """
import json
from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions
from mempool_cli import access
device = Device(1)
device.set_current()
resource = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=64 << 20))
seen = []
for wanted in ([0, 2], [3], []):
    change = access.set_peers(1, wanted, pool=resource.handle)
    seen.append([change.granted, change.revoked, sorted(peer.device_id for peer in resource.peer_accessible_by)])
print(json.dumps(seen))
"""


@pytest.mark.skipif(importlib.util.find_spec("cuda.core") is None, reason="cuda-core is not installed")
def test_the_pool_of_a_cuda_core_resource(standin: StandIn) -> None:
    with standin.machine("4") as machine:
        done = standin.run_python(CUDA_CORE, machine)
    assert done.stdout, done.stderr
    # granted, revoked, and what cuda-core says then
    assert json.loads(done.stdout) == [[[0, 2], [], [0, 2]], [[3], [0, 2], [3]], [[], [3], []]]
