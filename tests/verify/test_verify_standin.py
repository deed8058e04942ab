"""`mempool verify` as on hardware: NVIDIA's bindings, a driver library, and the pool's memory that is the host's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from standin.stand_in import StandIn

pytestmark = pytest.mark.standin


def verify(standin: StandIn, runtime: Path, spec: str, *arguments: str) -> tuple[int, dict[tuple[str, int], Any]]:
    """The exit status, and each pair of the document."""
    command = [sys.executable, "-P", "-m", "mempool_cli", "--format", "json", "verify", "--jobs", "1", *arguments]
    with standin.machine(spec) as socket:
        done = standin.run(command, socket, MEMPOOL_RUNTIME_DIR=str(runtime))
    found = json.loads(done.stdout)
    return done.returncode, {(pair["location"], pair["accessor"]): pair for pair in found["data"]["pairs"]}


def test_all_is_well(standin: StandIn, runtime: Path) -> None:
    arguments = ("--owner", "1", "host", "--accessor", "0", "--size", "128KiB", "--repeat", "1")
    status, pairs = verify(standin, runtime, "2", *arguments)
    assert status == 0
    assert {pair: found["verdict"] for pair, found in pairs.items()} == {("1", 0): "ok", ("host", 0): "ok"}
    tried = {path["path"] for path in pairs["1", 0]["paths"] if path["verdict"] == "ok"}
    assert len(tried) == 7
    assert all(path["bandwidth"] for path in pairs["1", 0]["paths"] if "copy" in path["path"])


def test_a_card_whose_name_is_no_text(standin: StandIn, runtime: Path) -> None:
    command = [sys.executable, "-P", "-m", "mempool_cli", "--format", "json", "verify", "--owner", "0", "--size", "8"]
    with standin.machine("2", answers={"cuDeviceGetName": [0, "f8ff41"]}) as socket:
        done = standin.run(command, socket, MEMPOOL_RUNTIME_DIR=str(runtime))
    names = {device["name"] for device in json.loads(done.stdout)["data"]["devices"]}
    assert (done.returncode, names) == (0, {"\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}A"})


@pytest.mark.parametrize(("fault", "verdict"), [("mirror", "mirror"), ("corrupt", "corrupt"), ("refuse", "refused")])
def test_a_fault(standin: StandIn, runtime: Path, fault: str, verdict: str) -> None:
    arguments = ("--owner", "1", "--accessor", "0", "--size", "64KiB", "--repeat", "1")
    status, pairs = verify(standin, runtime, f"2,fault={fault}:1-0", *arguments)
    assert (status, pairs["1", 0]["verdict"]) == (1, verdict)


def test_access_is_enforced_or_not(standin: StandIn, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi, which has to say that nobody else is there, is one that finds nobody."""
    smi = runtime / "nvidia-smi"
    smi.write_text("#!/bin/sh\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{runtime}:/usr/bin:/bin")
    arguments = ("--owner", "host", "--accessor", "0", "1", "--allow-faults", "--size", "8", "--repeat", "1")
    status, pairs = verify(standin, runtime, "2,fault=leak:host-1", *arguments)
    negatives = {pair: {each["verdict"] for each in found["negatives"]} for pair, found in pairs.items()}
    assert (status, negatives) == (1, {("host", 0): {"blocked"}, ("host", 1): {"leaked"}})


def test_faults_are_refused_where_others_may_be(
    standin: StandIn, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = runtime / "nvidia-smi"
    command = [sys.executable, "-P", "-m", "mempool_cli", "verify", "--owner", "host", "--accessor", "0"]
    monkeypatch.setenv("PATH", f"{runtime}:/usr/bin:/bin")
    with standin.machine("2") as socket:
        devices = standin.run([*command[:4], "--format", "json", "devices"], socket)
        uuids = [device["uuid"] for device in json.loads(devices.stdout)["data"]["devices"]]
        for listed, refused in ((uuids[0], True), (uuids[1], False), ("[N/A]", True)):
            smi.write_text(f"#!/bin/sh\necho '{listed}, 4711, python'\n")
            smi.chmod(0o755)
            done = standin.run([*command, "--allow-faults", "--size", "8"], socket, MEMPOOL_RUNTIME_DIR=str(runtime))
            assert (done.returncode == 2) is refused, done.stderr
            if refused:
                words = f"other processes use the cards: {listed}, 4711, python"
                assert done.stderr.startswith(f"error: --allow-faults is refused: {words} [usage]\n")
