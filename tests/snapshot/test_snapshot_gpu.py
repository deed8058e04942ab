"""`mempool snapshot` and `diff` on hardware."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import MempoolProcess

from hardware import device_count, missing

needs_one = pytest.mark.skipif(device_count() < 1, reason=missing(1))


@pytest.mark.gpu
@needs_one
def test_the_same_machine(mempool_process: MempoolProcess, tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    assert mempool_process("snapshot", "-o", str(file)) == (0, "", "")
    found = json.loads(file.read_text())
    assert found["failure"] is None
    assert found["driver"]["libcuda"]["path"]
    assert len(found["devices"]) == device_count()
    assert {cell["access"] for cell in found["access"] if cell["owner"] == cell["accessor"]} == {"rw"}
    assert mempool_process("diff", str(file)) == (0, f"nothing changed since {file}\n", "")
