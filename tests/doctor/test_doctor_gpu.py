"""`mempool doctor` on hardware."""

from __future__ import annotations

import json

import pytest
from cli.conftest import MempoolProcess

from hardware import device_count, missing

needs_one = pytest.mark.skipif(device_count() < 1, reason=missing(1))


@pytest.mark.gpu
@needs_one
def test_a_machine_that_works(mempool_process: MempoolProcess) -> None:
    done = mempool_process("--format", "json", "doctor")
    assert done.status == 0, done.out
    found = json.loads(done.out)
    levels = {finding["topic"]: finding["level"] for finding in found["data"]["findings"]}
    assert "fail" not in levels.values()
    for topic in ("bindings", "libcuda", "cuInit", "devices", "pools", "handles", "p2p"):
        assert topic in levels
    assert found["driver"]["libcuda"]["path"] in json.dumps(found["data"]["findings"])


@pytest.mark.gpu
@needs_one
def test_devices_that_are_hidden(mempool_process: MempoolProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = mempool_process("doctor")
    assert done.status == 3
    assert "CUDA_VISIBLE_DEVICES=''" in done.out
    assert "[no-device]" in done.err
