"""Ctrl-C in the middle of the checks: those that are done are shown, and no child is left."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from cli.processes import interrupted


@pytest.mark.parametrize(
    ("number", "status", "code"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
@pytest.mark.parametrize("last", ["data", "recycled"])
def test_what_is_done_is_shown(tmp_path: Path, number: signal.Signals, status: int, code: str, last: str) -> None:
    file = tmp_path / "out.xml"
    words = ["--sim", "2,fault=hang", "--format", "json", "check", "--select", "devices", "--select", last]
    done = interrupted(number, *words, "--junit", str(file), first="1 of 2: devices: passed\n")
    found = json.loads(done.out)
    assert (done.status, found["error"]["code"]) == (status, code)
    assert [check["id"] for check in found["data"]["checks"]] == ["devices"]
    assert 'name="mempool.devices"' in file.read_text()
