"""`mempool check` on hardware."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import MempoolProcess

from hardware import device_count, missing

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(device_count() < 1, reason=missing(1))]


def test_all_checks(mempool_process: MempoolProcess, tmp_path: Path) -> None:
    """With one device pairs are gaps."""
    done = mempool_process("--format", "json", "check", "--data", "--allow-skips", "--junit", str(tmp_path / "out.xml"))
    checks = {check["id"]: check for check in json.loads(done.out)["data"]["checks"]}
    assert done.status == 0
    assert {check["outcome"] for name, check in checks.items() if name != "capability"} == {"passed"}
    assert (tmp_path / "out.xml").read_text().startswith("<testsuites ")


def test_its_own_policy(mempool_process: MempoolProcess, tmp_path: Path) -> None:
    policy = tmp_path / "machine.toml"
    policy.write_text(mempool_process("check", "--init").out)
    assert mempool_process("check", str(policy), "--skip", "recycled").status == 0
