"""An interrupt in the middle of the trials."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.processes import with_mark


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_the_trials_too(number: signal.Signals, status: int) -> None:
    mark = os.urandom(8).hex()
    command = [sys.executable, "-P", "-m", "mempool_cli", "--sim", "4", "repro", "--repeat", "100"]
    package = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": package, "MEMPOOL_TEST_MARK": mark}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "recycled-handle: trials with pools on device 0, accessed by device 1...\n"
        while len(with_mark(mark)) < 2:
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (status, "", "")
    assert with_mark(mark) == []
