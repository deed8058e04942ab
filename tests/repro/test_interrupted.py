"""An interrupt in the middle of the trials."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from cli.conftest import Mempool
from cli.processes import interrupted

from mempool_cli.child import Outcome

from .trials_helper import run_here


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_the_trials_too(number: signal.Signals, status: int) -> None:
    first = "recycled-handle: trials with pools on device 0, accessed by device 1...\n"
    done = interrupted(number, "--sim", "4", "repro", "--repeat", "100", first=first)
    name, code = ("SIGINT", "interrupted") if status == 130 else ("SIGTERM", "terminated")
    assert done.status == status
    assert re.search(rf"^error: ended by {name}: \d+ trials are done \[{code}\]$", done.err, re.MULTILINE)
    assert "pools on device 0, accessed by device 1: inconclusive: " in done.out


def test_what_was_proved_until_then_is_told(mempool: Mempool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug was seen; a pass of the trials that were done is none. The files are written."""
    count = 0

    def run(trial: str, payload: bytes, *, limit: float) -> Outcome:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return run_here(trial, payload, limit=limit)

    monkeypatch.setattr("mempool_cli.repro.run.run_trial", run)
    report, program = tmp_path / "report.json", tmp_path / "bug.c"
    words = ["repro", "host-pool-revoke", "--report", str(report), "--emit-c", str(program)]
    for spec, verdict in (("4", "inconclusive: not all trials were run"), ("4,fault=host-pool-revoke", "affected: ")):
        count = 0
        done = mempool("--sim", spec, *words)
        last = done.err.splitlines()[-1]
        assert (done.status, last) == (130, "error: ended by SIGINT: 2 trials are done [interrupted]")
        assert f"pools on the host, accessed by device 0: {verdict}" in done.out
        (one,) = json.loads(report.read_text())["result"]["data"]["reproductions"]
        assert (len(one["trials"]), one["verdict"]) == (2, verdict.partition(":")[0])
        assert "Seen on" in program.read_text()
