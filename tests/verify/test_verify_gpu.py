"""`mempool verify` on hardware."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli.conftest import MempoolProcess

from hardware import device_count, missing, no_peers

needs_one = pytest.mark.skipif(device_count() < 1, reason=missing(1))
needs_two = pytest.mark.skipif(bool(no_peers()), reason=no_peers())


def verify(mempool_process: MempoolProcess, *arguments: str) -> dict[tuple[str, int], Any]:
    """Each pair of the document of a run in which all works."""
    done = mempool_process("--format", "json", "verify", *arguments)
    assert done.status == 0, done.out
    found = json.loads(done.out)
    return {(pair["location"], pair["accessor"]): pair for pair in found["data"]["pairs"]}


def verdicts(pair: dict[str, Any]) -> set[tuple[str, str]]:
    return {(path["path"], path["verdict"]) for path in pair["paths"]}


@pytest.mark.gpu
@needs_one
def test_memory_of_the_host(mempool_process: MempoolProcess) -> None:
    pair = verify(mempool_process, "--owner", "host", "--accessor", "0")["host", 0]
    assert (pair["capable"], pair["access"], len(pair["paths"])) == (True, "rw", 14)
    good = {(path, "ok") for path in ("kernel-write", "kernel-read", "copy-write", "copy-read")}
    assert good <= verdicts(pair)
    assert all(path["bandwidth"] > 1e8 for path in pair["paths"] if path["path"].startswith("copy-"))


@pytest.mark.gpu
@needs_one
def test_a_device_with_itself(mempool_process: MempoolProcess) -> None:
    pair = verify(mempool_process, "--owner", "0", "--accessor", "0")["0", 0]
    assert {verdict for _, verdict in verdicts(pair)} == {"ok"}


@pytest.mark.gpu
@needs_one
def test_access_is_enforced_and_a_session_unharmed(mempool_process: MempoolProcess) -> None:
    assert mempool_process("create", "host", "--name", "held", "--to", "0").status == 0
    pair = verify(mempool_process, "--owner", "host", "--accessor", "0", "--allow-faults", "--size", "8")["host", 0]
    assert [each["verdict"] for each in pair["negatives"]] == ["blocked"] * 4
    assert [(copy["path"], copy["arrived"]) for copy in pair["ungranted_copies"]] == [
        ("copy-write", True),
        ("copy-read", True),
    ]
    assert "RW 0" in mempool_process("probe", "held").out
    assert mempool_process("session", "stop").status == 0


@pytest.mark.gpu2
@needs_two
def test_between_devices(mempool_process: MempoolProcess) -> None:
    pairs = verify(mempool_process, "--owner", "0", "1", "--accessor", "0", "1", "--allow-faults")
    assert set(pairs) == {("0", 0), ("0", 1), ("1", 0), ("1", 1)}
    for (owner, accessor), pair in pairs.items():
        assert {verdict for _, verdict in verdicts(pair)} <= {"ok", "skipped"}
        if owner != str(accessor):
            assert [each["verdict"] for each in pair["negatives"]] == ["blocked"] * 4
