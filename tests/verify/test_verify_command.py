"""`mempool verify` on simulated machines: what a user sees, exit statuses, and what is written."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import termios
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.conftest import Done, Mempool
from cli.machines import failure, label, machine
from cli.processes import COMMAND, read_terminal

from mempool_cli.child import Child

HEAD = "memory of a pool on the owner (row), used by the accessor (column): 8 B, 1 MiB, 16 MiB, 2 times each\n"
CARDS = """\

device  name         bus id        uuid
0       NVIDIA H200  0000:01:00.0  GPU-6090f7d1-e4dd-57e6-9768-669dad3214b8
1       NVIDIA H200  0000:03:00.0  GPU-e60664c9-5fa7-55d3-b3e9-2383ca5faf7d

"""
UNTESTED = "is access enforced: not tested; --allow-faults tries it\n"
SELF = "self  the device's own memory, tried only when it is named on both sides\n"
TWO = "[[device]]\ncount = 2\n[p2p]\nall = true\n"


def of(mempool: Mempool, spec: str, *arguments: str) -> tuple[Done, dict[str, Any]]:
    """What came of it, and the JSON document."""
    done = mempool("--sim", spec, "--format", "json", "verify", *arguments)
    found: dict[str, Any] = json.loads(done.out)
    assert found["exit"] == done.status
    return done, found


def cells(found: dict[str, Any]) -> dict[tuple[str, int], str]:
    return {(pair["location"], pair["accessor"]): pair["verdict"] for pair in found["data"]["pairs"]}


# --- all is well ---


def test_two_devices(mempool: Mempool) -> None:
    done = mempool("--sim", "2", "verify")
    table = "owner  0     1\n0      self  ok\n1      ok    self\n\nok    every path that was tried carries its data\n"
    assert (done.status, done.out) == (0, label("2") + HEAD + table + SELF + CARDS + UNTESTED)
    assert sorted(done.err.splitlines()) == [
        "1 of 2: device 1 with memory of device 0: ok",
        "2 of 2: device 0 with memory of device 1: ok",
    ]


def test_memory_of_the_host(mempool: Mempool) -> None:
    done = mempool("--sim", "2", "verify", "--owner", "host", "--accessor", "1")
    assert done.status == 0
    assert done.out.startswith(f"{label('2')}{HEAD}owner  1\nhost   ok\n")
    _, found = of(mempool, "2", "--host", "--size", "8")
    assert list(cells(found)) == [("0", 1), ("1", 0), ("host", 0), ("host", 1)]


def test_a_device_with_itself(mempool: Mempool) -> None:
    """Only where it is named on both sides."""
    _, found = of(mempool, "3", "--owner", "0", "2", "--accessor", "0-1", "--size", "8")
    assert cells(found) == {("0", 0): "ok", ("0", 1): "ok", ("2", 0): "ok", ("2", 1): "ok"}


def test_which_pairs(mempool: Mempool) -> None:
    _, found = of(mempool, "3", "--accessor", "GPU-e606", "--size", "8")
    assert list(cells(found)) == [("0", 1), ("2", 1)]
    _, found = of(mempool, "3", "--owner", "all", "--accessor", "2", "--size", "8")
    assert list(cells(found)) == [("0", 2), ("1", 2)]


VERBOSE = """\
owner  accessor  order           path             verdict  size  bandwidth  why
0      1         grant-first     kernel-write     ok       8 B   -          -
0      1         grant-first     kernel-read      ok       8 B   -          -
0      1         grant-first     atomic-add       ok       8 B   -          -
0      1         grant-first     peer-copy-write  ok       8 B   -          -
0      1         grant-first     peer-copy-read   ok       8 B   -          -
0      1         grant-first     copy-write       ok       8 B   -          -
0      1         grant-first     copy-read        ok       8 B   -          -
0      1         allocate-first  kernel-write     ok       8 B   -          -
0      1         allocate-first  kernel-read      ok       8 B   -          -
0      1         allocate-first  atomic-add       ok       8 B   -          -
0      1         allocate-first  peer-copy-write  ok       8 B   -          -
0      1         allocate-first  peer-copy-read   ok       8 B   -          -
0      1         allocate-first  copy-write       ok       8 B   -          -
0      1         allocate-first  copy-read        ok       8 B   -          -
"""


def test_every_path(mempool: Mempool) -> None:
    done = mempool("--sim", "2", "verify", "-v", "--owner", "0", "--size", "8", "--repeat", "1")
    assert done.status == 0
    assert ": 8 B, once each\n" in done.out
    assert [line.rstrip() for line in VERBOSE.splitlines()] == [
        line for line in done.out.splitlines() if line.startswith(("owner  accessor", "0      1         "))
    ]


# --- what is wrong ---


def test_a_mirror(mempool: Mempool) -> None:
    done, found = of(mempool, "dgx-h200,fault=mirror:2-5", "--owner", "2", "--accessor", "4-6")
    assert done.status == 1
    assert cells(found) == {("2", 4): "ok", ("2", 5): "mirror", ("2", 6): "ok"}
    assert (found["error"]["code"], found["error"]["message"]) == (
        "data-path",
        "1 of 3 pairs do not work: device 5 with memory of device 2: mirror",
    )


MIRROR = """\
device 0 with memory of device 1: mirror
  the driver says: capable yes, access RW; the data says otherwise:
  kernel-write, peer-copy-write, copy-write: mirror: the writer sees its own data, the owner does not; \
at 8 B 1 long wrong, the first at offset 0: what was there before
  kernel-read, peer-copy-read, copy-read: mirror: the accessor sees what it wrote itself, not what the owner wrote \
after it; at 8 B 1 long wrong, the first at offset 0: something else
  atomic-add: dropped: what the accessor added is not in the sum; at 8 B 1 long wrong, \
the first at offset 0: something else
  possible: a virtual machine, in which each card may see a private window of the other; the IOMMU and PCIe ACS

"""


def test_a_mirror_in_words(mempool: Mempool) -> None:
    spec = "2,fault=mirror:1-0"
    done = mempool("--sim", spec, "verify")
    table = (
        "owner  0       1\n0      self    ok\n1      mirror  self\n\n"
        "ok      every path that was tried carries its data\n"
        "mirror  the writer sees its own data, the other side does not\n"
        "self    the device's own memory, tried only when it is named on both sides\n"
    )
    assert (done.status, done.out) == (1, label(spec) + HEAD + table + CARDS + MIRROR + UNTESTED)
    assert done.err.endswith("error: 1 of 2 pairs do not work: device 0 with memory of device 1: mirror [data-path]\n")


@pytest.mark.parametrize("fault", ["drop-writes", "corrupt", "lost-after-setaccess", "refuse"])
def test_other_faults(mempool: Mempool, fault: str) -> None:
    verdict = {"drop-writes": "dropped", "refuse": "refused"}.get(fault, "corrupt")
    done, found = of(mempool, f"2,fault={fault}:0-1")
    assert (done.status, cells(found)) == (1, {("0", 1): verdict, ("1", 0): "ok"})


def test_a_hang(mempool: Mempool) -> None:
    done = mempool("--sim", "2,fault=hang:1-0", "verify", "--limit", "1", "--size", "8")
    assert done.status == 1
    assert "\n1      hang  self\n" in done.out
    killed = "kernel-write (grant-first): hang: the process did not end in time and was killed in cuStreamSynchronize("
    assert killed in done.out


def let_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no process ended, which returns and is stuck in the driver after that."""
    end = Child.end
    monkeypatch.setattr(Child, "end", lambda self: msgspec.structs.replace(end(self), remains=4711))


def test_a_process_that_does_not_end(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is tried of the first pair arrives. The others share a device with it: untried, which is no pass."""
    let_remain(monkeypatch)
    done, found = of(mempool, "3", "--size", "8", "--repeat", "1", "--jobs", "1", "--allow-faults")
    left_out = [("0", 2), ("1", 0), ("1", 2), ("2", 0), ("2", 1)]
    assert done.status == 6
    assert cells(found) == {("0", 1): "error"} | dict.fromkeys(left_out, "inconclusive")
    assert [pair["remains"] for pair in found["data"]["pairs"]] == [4711, None, None, None, None, None]
    assert found["error"]["message"] == "6 of 6 pairs could not be judged: device 1 with memory of device 0: error"


HELD = """\
device 1 with memory of device 0: error
  paths with access: the process has returned; SIGKILL does not end it: pid PID remains
  process 4711 remains: SIGKILL does not end it, and its devices were left out

device 0 with memory of device 1: inconclusive
  left out: process 4711, which SIGKILL does not end, holds a device of it

is access enforced: kernels without it were kept out on 0 of 1 pairs
  not tested: device 1 with memory of device 0: error
"""


def test_a_process_that_does_not_end_in_words(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    let_remain(monkeypatch)
    done = mempool("--sim", "2", "verify", "--size", "8", "--repeat", "1", "--allow-faults")
    assert done.status == 6
    assert done.out.endswith(HELD)


def test_a_fault(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, TWO, failure("cuStreamSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", device=1, after=14))
    done, found = of(mempool, spec, "--owner", "0")
    (pair,) = found["data"]["pairs"]
    assert (done.status, pair["verdict"], pair["paths"][0]["verdict"]) == (1, "faulted", "faulted")
    assert pair["paths"][0]["driver"] == {
        "call": "cuStreamSynchronize",
        "code": 700,
        "name": "CUDA_ERROR_ILLEGAL_ADDRESS",
    }


def test_not_known(mempool: Mempool, tmp_path: Path) -> None:
    cards = '[[device]]\n[[device]]\ncompute_mode = "prohibited"\n[p2p]\nall = true\n'
    done = mempool("--sim", machine(tmp_path, cards), "verify")
    assert done.status == 6
    assert "inconclusive: a device is in exclusive-process mode and taken, or in prohibited mode" in done.out
    assert done.err.endswith(
        "error: 2 of 2 pairs could not be judged: device 1 with memory of device 0: inconclusive [inconclusive]\n"
    )


# --- what cannot be tried ---


def test_no_device_reaches_another(mempool: Mempool) -> None:
    done = mempool("--sim", "no-p2p-2", "verify")
    skipped = (
        "skipped: the accessor cannot reach the owner (cuDeviceCanAccessPeer)\n"
        "  owner 0, accessor 1\n"
        "  owner 1, accessor 0\n"
    )
    assert done.status == 6
    assert f"\n{skipped}\n{UNTESTED}" in done.out
    assert done.err.endswith(
        "error: nothing was tested: the accessor cannot reach the owner (cuDeviceCanAccessPeer) [inconclusive]\n"
    )


def test_one_device(mempool: Mempool) -> None:
    assert mempool("--sim", "1", "verify") == (
        6,
        f"{label('1')}no pair was tried\n\n{UNTESTED}",
        "error: nothing was tested: there is no pair of devices [inconclusive]\n"
        "  try: `mempool --sim 1 verify --host` tries pools in host memory\n",
    )


def test_some_can_and_some_cannot(mempool: Mempool) -> None:
    done, found = of(mempool, "mixed-4", "--size", "8", "--repeat", "1")
    assert done.status == 0
    assert {pair for pair, verdict in cells(found).items() if verdict == "ok"} == {
        (str(owner), accessor) for owner in (0, 1, 3) for accessor in (0, 1, 3) if owner != accessor
    }
    assert {pair["why"] for pair in found["data"]["pairs"] if pair["verdict"] == "skipped"} == {
        "device 2 has no memory pools"
    }


def test_capability_has_a_direction(mempool: Mempool) -> None:
    _, found = of(mempool, "asym-3", "--size", "8", "--repeat", "1")
    assert {pair for pair, verdict in cells(found).items() if verdict == "ok"} == {("0", 1), ("2", 0), ("0", 2)}


# --- without access ---


def test_access_is_enforced(mempool: Mempool) -> None:
    done, found = of(mempool, "2", "--owner", "0", "--allow-faults", "--size", "8")
    (pair,) = found["data"]["pairs"]
    assert done.status == 0
    assert [(each["variant"], each["access"], each["verdict"]) for each in pair["negatives"]] == [
        (variant, access, "blocked") for variant in ("never-granted", "revoked") for access in ("write", "read")
    ]
    assert [(copy["path"], copy["arrived"]) for copy in pair["ungranted_copies"]] == [
        ("copy-write", False),
        ("copy-read", False),
        ("peer-copy-write", True),
        ("peer-copy-read", True),
    ]


LEAK = """\
device 0 with memory of the host: leaked
  without access a kernel has to fault, and:
  kernel write, kernel read: leaked: it got through, while access reads NONE
  possible: a driver bug (`mempool repro host-pool-revoke`)

is access enforced: kernels without it were kept out on 0 of 1 pairs
"""


def test_a_leak(mempool: Mempool) -> None:
    done = mempool("--sim", "1,fault=leak", "verify", "--owner", "host", "--allow-faults", "--size", "8")
    assert done.status == 1
    assert done.out.endswith(LEAK)


def test_data_and_enforcement_are_two_findings(mempool: Mempool) -> None:
    spec = "2,fault=leak:0-1,fault=drop-writes:0-1"
    done = mempool("--sim", spec, "verify", "--owner", "0", "--accessor", "1", "--allow-faults", "--size", "8")
    assert done.status == 1
    assert "access RW; the data says otherwise:\n  kernel-write, peer-copy-write, copy-write: dropped: " in done.out
    assert "  without access a kernel has to fault, and:\n" in done.out
    assert (
        "\n  kernel write: inconclusive: its twin, which differs only in the grant, did not get through: " in done.out
    )
    assert "\n  kernel read: leaked: it got through, while access reads NONE\n" in done.out


def test_a_pair_on_which_enforcement_was_not_tested(mempool: Mempool) -> None:
    done = mempool("--sim", "2,fault=hang:0-1", "verify", "--limit", "1", "--allow-faults", "--size", "8")
    assert done.out.endswith(
        "is access enforced: kernels without it were kept out on 1 of 2 pairs\n"
        "  not tested: device 1 with memory of device 0: hang\n"
    )
    assert "  the driver says: capable yes, access RW; and yet:\n  kernel-write (grant-first): hang: " in done.out


def test_pairs_with_the_same_finding_are_told_once(mempool: Mempool) -> None:
    done = mempool("--sim", "3,fault=drop-writes", "verify", "--size", "8", "--repeat", "1")
    assert done.status == 1
    assert done.out.count("the data says otherwise") == 1
    places = "  owner 0, accessor 1-2\n  owner 1, accessor 0, 2\n  owner 2, accessor 0-1\n"
    assert f"\n6 pairs: dropped\n{places}  the driver says: " in done.out


# --- the command line ---


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--owner", "9"), "unknown-device", "there is no device 9: devices 0 to 1 are visible"),
        (("--accessor", "host"), "unknown-device", "'host' names no device"),
        (("--redact",), "usage", "--redact is about --report"),
        (("--size", "12"), "usage", "12 bytes: a size is a multiple of 8"),
        (("--size", "0"), "usage", "0 bytes: a size is a multiple of 8"),
    ],
)
def test_wrong_words(mempool: Mempool, arguments: tuple[str, ...], code: str, words: str) -> None:
    done = mempool("--sim", "2", "--format", "json", "verify", *arguments)
    found = json.loads(done.out)
    assert found["error"]["code"] == code
    assert words in found["error"]["message"]


def test_a_report_that_cannot_be_put_there(mempool: Mempool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for file, why in (
        ("/no/such/directory/r.json", "there is no directory /no/such/directory"),
        (str(tmp_path / "pipe"), "it is a pipe"),
        (str(tmp_path / "loop"), ""),
    ):
        done = mempool("--sim", "2", "verify", "--report", file)
        assert (done.status, done.out) == (74, "")
        assert done.err.startswith(f"error: {file} cannot be written: {why}")


def test_a_report_of_a_machine_that_cannot(mempool: Mempool, tmp_path: Path) -> None:
    """Not yesterday's, which was good."""
    file = tmp_path / "report.json"
    file.write_text("{}")
    assert mempool("--sim", "0", "verify", "--report", str(file)).status == 3
    assert json.loads(file.read_text())["result"]["error"]["code"] == "no-device"


def test_a_report_that_cannot_be_written_beside_a_finding(mempool: Mempool) -> None:
    done, found = of(mempool, "2,fault=mirror:0-1", "--size", "8", "--report", "/dev/full")
    assert done.status == 1
    assert [(each["code"], each["message"]) for each in found["warnings"]] == [
        ("output", "/dev/full cannot be written: No space left on device")
    ]


def test_nothing_is_traced(mempool: Mempool) -> None:
    done = mempool("--sim", "2", "--trace", "verify", "--owner", "0", "--size", "8")
    assert done.err.startswith("--trace: the calls of trials, in processes of their own, are not shown\n")


def test_a_node_of_the_host(mempool: Mempool) -> None:
    _, found = of(mempool, "dgx-h200", "--owner", "numa:1", "--accessor", "0", "4", "--size", "8", "--repeat", "1")
    assert cells(found) == {("numa:1", 0): "ok", ("numa:1", 4): "ok"}


def test_atomics_of_which_the_driver_does_not_tell(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, TWO, failure("cuDeviceGetP2PAttribute"))
    done, found = of(mempool, spec, "--owner", "0", "--size", "8", "--repeat", "1")
    (pair,) = found["data"]["pairs"]
    assert (done.status, pair["verdict"], pair["native_atomics"]) == (0, "ok", None)
    assert {path["why"] for path in pair["paths"] if path["path"] == "atomic-add"} == {
        "the driver does not say whether it promises native atomics here"
    }


def test_a_report_that_cannot_be_written_to_its_end(mempool: Mempool) -> None:
    """What was found is shown all the same."""
    done = mempool("--sim", "2", "verify", "--size", "8", "--report", "/dev/full")
    assert done.status == 74
    assert "\n0      self  ok\n" in done.out
    assert done.err.endswith("error: /dev/full cannot be written: No space left on device [output]\n")


def test_a_bar_on_a_terminal(runtime: Path) -> None:
    """It counts, and goes; the result is not on that stream."""
    ours, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    command = [*COMMAND, "--sim", "2", "verify", "--size", "8", "--repeat", "1"]
    with subprocess.Popen(
        command, env={**os.environ, "TERM": "xterm"}, stdout=subprocess.PIPE, stderr=terminal, text=True
    ) as process:
        os.close(terminal)
        shown = read_terminal(ours)
        out, _ = process.communicate(timeout=20)
    os.close(ours)
    assert process.returncode == 0
    assert "2/2" in shown
    assert "device 1 with memory of device 0: ok" in shown
    assert shown.endswith("\x1b[2K"), "the bar is gone"
    assert out.endswith(UNTESTED)


def test_a_report_grows_pair_by_pair(mempool: Mempool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []
    file = tmp_path / "report.json"
    from mempool_cli.report_file import ReportFile

    write = ReportFile.write

    def watched(self: ReportFile, *arguments: Any, **more: Any) -> None:
        write(self, *arguments, **more)
        result = json.loads(file.read_text())["result"]
        seen.append((len(result["data"]["pairs"]), result["ok"]))

    monkeypatch.setattr(ReportFile, "write", watched)
    assert mempool("--sim", "2", "verify", "--size", "8", "--report", str(file), "--redact").status == 0
    assert seen == [(1, False), (2, True), (2, True)], "a part of it is never a pass"
    document = json.loads(file.read_text())
    assert (document["schema"], document["result"]["command"]) == ("mempool-report/1", "verify")
    assert document["result"]["data"]["planned"] == 2
    assert "GPU-" not in file.read_text()
