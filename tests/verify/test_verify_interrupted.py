"""Ctrl-C and SIGTERM in the middle: what was found so far, and no child left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.processes import with_mark

COMMAND = [sys.executable, "-P", "-m", "mempool_cli", "--sim", "3,fault=hang:2-1"]
VERIFY = ["verify", "--owner", "0", "2", "--accessor", "1", "--jobs", "1", "--size", "8"]
FIRST = "1 of 2: device 1 with memory of device 0: ok\n"


def interrupted(number: signal.Signals, *options: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of a run that is ended in its second pair, which hangs."""
    mark = os.urandom(8).hex()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "MEMPOOL_TEST_MARK": mark}
    command = [*COMMAND, *options, *VERIFY]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == FIRST
        while len(with_mark(mark)) < 2:
            time.sleep(0.01)
        time.sleep(0.4)  # into its work
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert with_mark(mark) == []
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("number", "status", "name", "code"),
    [(signal.SIGINT, 130, "SIGINT", "interrupted"), (signal.SIGTERM, 143, "SIGTERM", "terminated")],
)
def test_what_was_found_so_far(number: signal.Signals, status: int, name: str, code: str) -> None:
    ended, out, err = interrupted(number)
    assert ended == status
    said = f"error: ended by {name}: 1 of 2 pairs are known; device 1 with memory of device 2 was in cu"
    assert re.fullmatch(re.escape(said) + rf"\w+\(.*\) \[{code}\]\n", err)
    assert "\nowner  1\n0      ok\n" in out


def test_as_a_document() -> None:
    ended, out, err = interrupted(signal.SIGINT, "--format", "json")
    found = json.loads(out)
    assert (ended, err, found["exit"], found["error"]["code"]) == (130, "", 130, "interrupted")
    assert (found["data"]["planned"], [pair["verdict"] for pair in found["data"]["pairs"]]) == (2, ["ok"])
