"""An interrupt in the middle of the trials."""

from __future__ import annotations

import signal

import pytest
from cli.processes import interrupted


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_the_trials_too(number: signal.Signals, status: int) -> None:
    first = "recycled-handle: trials with pools on device 0, accessed by device 1...\n"
    assert interrupted(number, "--sim", "4", "repro", "--repeat", "100", first=first) == (status, "", "")
