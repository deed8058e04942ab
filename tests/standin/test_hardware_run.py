"""What is run on a machine with two GPUs, on two simulated ones: it works, and the simulator's answers are known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mempool_cli.repro import every_bug

from .stand_in import StandIn

pytestmark = pytest.mark.standin

HARDWARE = Path(__file__).parents[1] / "hardware"
ARRIVED = {"call": "SUCCESS", "synchronize": "SUCCESS", "arrived": True}
REFUSED = {"call": "INVALID_VALUE", "synchronize": "SUCCESS", "arrived": False}
LOST = "ILLEGAL_ADDRESS"


def ask(standin: StandIn, spec: str, *arguments: str) -> dict[str, Any]:
    """The lines about each question, by its name."""
    with standin.machine(spec) as machine:
        done = standin.run([sys.executable, str(HARDWARE / "questions.py"), *arguments], machine)
    assert done.stderr == ""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == any("error" in line for line in lines)
    return {line["question"]: line for line in lines}


def answers(standin: StandIn, spec: str, *arguments: str) -> dict[str, Any]:
    return {name: line["answer"] for name, line in ask(standin, spec, *arguments).items()}


def test_permission(standin: StandIn) -> None:
    found = answers(standin, "2", "context", "capability", "read-only", "duplicates", "cost")
    context = found["context"]
    assert (context["grant"], context["access"], context["revoke"]) == ("SUCCESS", 3, "SUCCESS")
    assert [state["contexts"] for state in context["after"].values()] == [[], [], [], [], [0], [0]]
    assert [pair["can_access_peer"] for pair in found["capability"]["pairs"]] == [True, True]
    refused = found["read-only"]
    assert {refused[name] for name in ("fresh", "instead of READWRITE", "allocated")} == {"NOT_SUPPORTED"}
    assert [refused[name] for name in ("access", "access then", "access last")] == [0, 3, 3]
    assert found["duplicates"] == {
        "3 times": ["SUCCESS", 3],
        "none, readwrite": ["SUCCESS", 3],
        "readwrite, none": ["SUCCESS", 0],
        "40 times": ["SUCCESS", 3],
        "owner readwrite, accessor none": ["SUCCESS", 0],
        "accessor readwrite, read": ["NOT_SUPPORTED", 0],
        "accessor readwrite, owner none": ["INVALID_DEVICE", 0],
    }
    rows = [(row["accessor_context"], row["MiB"]) for row in found["cost"]["rows"]]
    assert rows == [(context, mib) for context in (False, True) for mib in (0, 1, 64, 1024, 4096)]


@pytest.mark.parametrize(
    ("spec", "inherits", "kernel"), [("2", False, LOST), ("2,fault=recycled-handle", True, "SUCCESS")]
)
def test_recycled_handles(standin: StandIn, spec: str, inherits: bool, kernel: str) -> None:
    for found in answers(standin, spec, "recycled", "recycled-allocated").values():
        assert found["recycled"] > 100
        assert found["inherited"] == (found["recycled"] if inherits else 0)
        assert found["kernel_on"] == {"recycled": True, "access": 3 if inherits else 0}
        assert found["kernel"] == kernel


def test_the_order_of_handles(standin: StandIn) -> None:
    found = answers(standin, "2", "order", "order-granted")
    assert found["order"] == found["order-granted"]
    assert found["order"]["one by one"][:9] == [0, 1, 2, 3, 4, 3, 4, 3, 4]


def test_data(standin: StandIn) -> None:
    found = answers(standin, "2", "copies", "copies-granted", "memset", "allocation", "revoke-under-kernel")
    for way in ("into", "out of"):
        for name, wanted, granted in (
            ("on the accessor's stream", REFUSED, ARRIVED),
            ("on the owner's stream", REFUSED, REFUSED),
            ("as a peer copy", ARRIVED, ARRIVED),
            ("by the processor", ARRIVED, ARRIVED),
        ):
            assert found["copies"][f"{way} the pool, {name}"] == wanted
            assert found["copies-granted"][f"{way} the pool, {name}"] == granted
    assert found["memset"] == {"readwrite": ARRIVED, "none": REFUSED}
    assert found["allocation"] == {
        "ungranted": {"allocate": "SUCCESS", "free": "SUCCESS", "synchronize": "SUCCESS"},
        "granted": {"allocate": "SUCCESS", "kernel": "SUCCESS", "free": "SUCCESS", "synchronize": "SUCCESS"},
        "revoked": {"allocate": "SUCCESS", "kernel": LOST, "free": LOST, "synchronize": LOST},
    }
    # A simulated kernel has ended when its launch returns.
    revoked = found["revoke-under-kernel"]
    assert (revoked["revoke"], revoked["synchronize"], revoked["access"]) == ("SUCCESS", "SUCCESS", 0)
    assert revoked["added"] == revoked["additions"]


def test_memory_of_the_host(standin: StandIn) -> None:
    found = answers(standin, "h200", "--owner", "host", "--accessor", "0")
    assert len(found) == 14
    assert set(map(str, found["copies"].values())) == {str(ARRIVED), str(REFUSED)}
    assert found["allocation"]["revoked"]["kernel"] == LOST


def test_a_question_that_ends_badly_does_not_spoil_the_next(standin: StandIn) -> None:
    found = ask(standin, "h200", "read-only", "capability")
    refused = "cuMemPoolGetAccess = CUDA_ERROR_INVALID_VALUE (1)"
    assert found["read-only"]["error"].endswith(refused)
    assert found["capability"]["answer"]["pairs"] == []


# --- run.sh ---


def run(standin: StandIn, tmp_path: Path, spec: str = "2", **environment: str) -> subprocess.CompletedProcess[str]:
    command = [f"PYTHON={sys.executable}", "sh", str(HARDWARE / "run.sh"), str(tmp_path / "out")]
    with standin.machine(spec) as machine:
        return standin.run(["env", *(f"{name}={value}" for name, value in environment.items()), *command], machine)


def test_no_device(standin: StandIn, tmp_path: Path) -> None:
    done = run(standin, tmp_path, CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("run.sh: error: no usable CUDA device; CUDA_VISIBLE_DEVICES='' [no-device]\n")
    assert not (tmp_path / "out").exists()


def test_no_python(standin: StandIn, tmp_path: Path) -> None:
    with standin.machine("2") as machine:
        done = standin.run(["sh", str(HARDWARE / "run.sh")], machine, PYTHON=str(tmp_path / "none"))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (3, f"run.sh: {tmp_path}/none does not run")


def test_an_old_directory_is_left_alone(standin: StandIn, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    done = run(standin, tmp_path)
    assert (done.returncode, done.stderr) == (2, f"run.sh: {tmp_path}/out is not empty\n")


@pytest.mark.parametrize(
    ("spec", "reason"), [("2", "the 0 s are over"), ("h200", "needs 2 devices, this machine has 1")]
)
def test_what_was_not_run_is_said(standin: StandIn, tmp_path: Path, spec: str, reason: str) -> None:
    done = run(standin, tmp_path, spec, SECONDS_IN_ALL="0")
    assert (done.returncode, done.stderr) == (1, "")
    header, *lines = (tmp_path / "out" / "summary.txt").read_text().splitlines()
    assert header.split() == ["step", "exit", "expected", "seconds", "verdict"]
    grant = next(line for line in lines if "-grant " in line)
    assert grant.split()[1:] == ["-", "-", "-", "not", "run:", *reason.split()]
    assert (tmp_path / "out" / "03-grant.txt").read_text() == f"# not run: {reason}\n"
    steps = {line.split()[0].partition("-")[2] for line in lines}
    assert steps >= {"devices", "grant", "probe", "revoke", "contract", "questions", "verify", "check", "doctor"}
    assert steps >= {"snapshot", "exec", "bench", *(f"repro-{name}" for name in every_bug())}
    assert (tmp_path / "out" / "results.tar.gz").exists()
