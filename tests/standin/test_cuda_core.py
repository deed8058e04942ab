"""NVIDIA's cuda-core runs unchanged on the stand-in library, and the driver's state is what it asked for."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

import pytest

from .stand_in import StandIn

pytestmark = [
    pytest.mark.standin,
    pytest.mark.skipif(importlib.util.find_spec("cuda.core") is None, reason="cuda-core is not installed"),
]

ALL = range(4)


def run(standin: StandIn, spec: str) -> Any:
    with standin.machine(spec) as machine:
        done = standin.run([sys.executable, "-P", "-m", f"{__package__}.cuda_core_program"], machine)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def only(*readwrite: int) -> list[int]:
    return [3 if device in readwrite else 0 for device in ALL]


def seen(owner: int, *peers: int) -> dict[str, list[int]]:
    """What the driver, cuda-core and a probe say of a pool: the same."""
    return {"driver": only(owner, *peers), "cuda-core": list(peers), "probe": list(peers)}


def test_cuda_core_sets_replaces_and_clears_peers_and_a_probe_agrees(standin: StandIn) -> None:
    report = run(standin, "4")
    for owner in ALL:
        assert report["steps"][f"{owner} created"] == seen(owner)
        assert report["steps"][f"{owner} set"] == seen(owner, *(peer for peer in ALL if peer != owner))
        assert report["steps"][f"{owner} replaced"] == seen(owner, (owner + 1) % 4)
        assert report["steps"][f"{owner} cleared"] == seen(owner)
    assert report["inherited"] == 0


def test_cuda_core_does_not_clear_peers_on_close_so_recycled_pools_inherit_them(standin: StandIn) -> None:
    # Its clearing call lists the owner, and is refused whole.
    assert run(standin, "4,fault=recycled-handle")["inherited"] > 10
