"""Ctrl-C in the middle of the checks: those that are done are shown, and no child is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.processes import with_mark

COMMAND = [sys.executable, "-P", "-m", "mempool_cli", "--sim", "2,fault=hang", "--format", "json", "check"]


@pytest.mark.parametrize(
    ("number", "status", "code"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
@pytest.mark.parametrize("last", ["data", "recycled"])
def test_what_is_done_is_shown(tmp_path: Path, number: signal.Signals, status: int, code: str, last: str) -> None:
    mark = os.urandom(8).hex()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "MEMPOOL_TEST_MARK": mark}
    file = tmp_path / "out.xml"
    command = [*COMMAND, "--select", "devices", "--select", last, "--junit", str(file)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "1 of 2: devices: passed\n"
        while len(with_mark(mark)) < 2:
            time.sleep(0.005)
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
    found = json.loads(out)
    assert (process.returncode, found["error"]["code"]) == (status, code)
    assert [check["id"] for check in found["data"]["checks"]] == ["devices"]
    assert 'name="mempool.devices"' in file.read_text()
    assert with_mark(mark) == []
