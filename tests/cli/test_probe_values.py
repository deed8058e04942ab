"""`mempool probe`: what the driver says, beside what the machine could do, and neither taken for the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mempool_cli.driver.port import AccessEntry, AccessFlags, Location, LocationType, device_location
from mempool_cli.driver.sim.machine import Process
from mempool_cli.model import PoolDetail
from mempool_cli.operations import LocalRunner
from mempool_cli.requests import Grant, Probe, Show

from .conftest import Mempool
from .machines import FOUR, FRESH, SEEN, ask, calls, failure, label, machine, process, runner, show


def cells(mempool: Mempool, spec: str, *pools: str) -> dict[str, list[tuple[Any, ...]]]:
    """Access and capability of every device, by pool."""
    document = json.loads(mempool("--sim", spec, "--format", "json", "probe", *pools).out)
    return {
        row["pool"]["name"]: [(cell["access"], cell["capable"]) for cell in row["cells"]]
        for row in document["data"]["rows"]
    }


def test_capability_is_not_permission(mempool: Mempool) -> None:
    owner, able, unable = ("rw", None), ("none", True), ("none", False)
    assert cells(mempool, "pcie-4") == {
        "default:0": [owner, able, unable, unable],
        "default:1": [able, owner, unable, unable],
        "default:2": [unable, unable, owner, able],
        "default:3": [unable, unable, able, owner],
    }
    mempool("--sim", "pcie-4", "grant", "0", "--to", "1", "2", "--force")
    assert cells(mempool, "pcie-4", "0") == {"default:0": [owner, ("rw", True), ("rw", False), unable]}


def test_an_asymmetric_machine_has_an_asymmetric_matrix(mempool: Mempool) -> None:
    """1 reaches 0, but 0 does not reach 1; 0 and 2 reach each other."""
    done = mempool("--sim", "asym-3", "probe", "--matrix", "--trace")
    assert done.out.startswith(
        label("asym-3") + "pool       kind             on  host  0    1    2\n"
        "default:0  default,current  0   -     own  -    -\n"
        "default:1  default,current  1   -     np   own  np\n"
        "default:2  default,current  2   -     -    np   own\n"
    )
    assert sorted(calls(done.err, "cuDeviceCanAccessPeer")) == [
        "cuDeviceCanAccessPeer(0, 1) = 0",
        "cuDeviceCanAccessPeer(0, 2) = 1",
        "cuDeviceCanAccessPeer(1, 0) = 1",
        "cuDeviceCanAccessPeer(1, 2) = 0",
        "cuDeviceCanAccessPeer(2, 0) = 1",
        "cuDeviceCanAccessPeer(2, 1) = 0",
    ]


class Odd(Process):
    """A process in which some answers of cuMemPoolGetAccess are others."""

    answers: dict[Location, int]

    def mem_pool_get_access(self, pool: int, location: Location) -> int:
        flags = super().mem_pool_get_access(pool, location)
        return self.answers.get(location, flags)


@pytest.fixture
def odd() -> Odd:
    machine = Odd(process().machine, None)
    machine.answers = {
        device_location(1): AccessFlags.READ,
        device_location(2): 7,
        Location(LocationType.HOST, 0): AccessFlags.READ,
    }
    return machine


def test_read_only_and_unknown_flags_are_shown_as_they_are(odd: Odd, capsys: pytest.CaptureFixture[str]) -> None:
    asked = runner(odd)
    assert show(ask(asked, Probe(pools=("0",)))) == 0
    assert capsys.readouterr().out == (
        label("4") + "pool       kind             on  access\n"
        "default:0  default,current  0   owner 0; R 1; none 3; unknown (0x7) 2; host R\n"
        "\n" + FRESH
    )
    assert show(ask(asked, Probe(pools=("0",))), matrix=True) == 0
    assert capsys.readouterr().out.startswith(
        label("4") + "pool       kind             on  host  0    1  2     3\n"
        "default:0  default,current  0   R     own  R  0x7?  -\n"
        "\n"
        "own   the pool is on this device\n"
        "R     may only read\n"
        "-     no access; a device could be granted it\n"
        "0xN?  access flags that are not known here\n"
    )


def test_an_owner_with_less_is_a_contradiction_that_shows(odd: Odd, capsys: pytest.CaptureFixture[str]) -> None:
    odd.answers = {device_location(0): AccessFlags.NONE}
    show(ask(runner(odd), Probe(pools=("0",))), matrix=True)
    assert capsys.readouterr().out.splitlines()[2] == "default:0  default,current  0   -     own:-  -  -  -"


def test_whatever_is_not_read_write_is_granted_again(odd: Odd) -> None:
    lines: list[str] = []
    answer = ask(runner(odd), Grant(pool="0", to=("1", "2")), trace=lines)
    assert "[device 1 READWRITE, device 2 READWRITE]" in calls("\n".join(lines), "cuMemPoolSetAccess")[0]
    # The driver goes on to say R and 0x7: success that reads back otherwise is an error.
    assert answer.problem is not None
    assert (answer.exit, answer.problem.code, answer.problem.message) == (
        4,
        "not-applied",
        "pool default:0: the driver accepted the change, but not all reads back as asked: devices 1-2",
    )


def test_the_driver_is_asked_each_time() -> None:
    """Default pools belong to the whole process: others in it change them too."""
    program = process()
    asked = runner(program)
    assert _peers(asked) == []
    handle = program.device_get_default_mem_pool(0)
    program.mem_pool_set_access(handle, [AccessEntry(device_location(2), AccessFlags.READWRITE)])
    assert _peers(asked) == [2]
    program.mem_pool_set_access(handle, [AccessEntry(device_location(2), AccessFlags.NONE)])
    assert _peers(asked) == []


def _peers(asked: LocalRunner) -> list[int | None]:
    detail = ask(asked, Show(pool="0")).result
    assert isinstance(detail, PoolDetail)
    return [cell.device for cell in detail.row.cells if cell.access == "rw" and not cell.owner]


def test_an_old_card_is_not_asked_and_the_rest_works(mempool: Mempool) -> None:
    done = mempool("--sim", "mixed-4", "probe", "--matrix", "--trace")
    assert (done.status, done.out.partition("\n\n")[0]) == (
        0,
        label("mixed-4") + "pool       kind             on  host  0    1    2    3\n"
        "default:0  default,current  0   -     own  -    n/s  -\n"
        "default:1  default,current  1   -     -    own  n/s  -\n"
        "default:2  default          2   n/s   n/s  n/s  n/s  n/s\n"
        "default:3  default,current  3   -     -    -    n/s  own",
    )
    assert "device 2" not in "\n".join(calls(done.err, "cuMemPoolGetAccess"))
    assert calls(done.err, "cuDeviceGetDefaultMemPool")[-1].startswith("cuDeviceGetDefaultMemPool(3)")
    assert cells(mempool, "mixed-4", "1") == {"default:1": [("none", True), ("rw", None), (None, None), ("none", True)]}


@pytest.mark.parametrize("command", ["probe", "show"])
def test_a_named_pool_of_an_old_card_is_no_pool(mempool: Mempool, command: str) -> None:
    assert mempool("--sim", "mixed-4", command, "2") == (
        3,
        "",
        label("mixed-4") + "error: device 2 (Tesla K40c) has no memory pool support [no-pool-support]\n"
        "  try: old cards have none, and vGPU profiles that are a slice of a card often have none\n",
    )


def test_a_vgpu_slice_without_pools(mempool: Mempool, tmp_path: Path) -> None:
    slice_of_a_card = machine(
        tmp_path, '[[device]]\nname = "GRID A100-4C"', "pools = false\nhost_pools = false\nhost_numa_pools = false"
    )
    hint = "  try: old cards have none, and vGPU profiles that are a slice of a card often have none\n"
    assert mempool("--sim", slice_of_a_card, "devices").out.splitlines()[2].split()[-3:] == ["no", "no", "-"]
    assert mempool("--sim", slice_of_a_card, "probe") == (
        0,
        label(slice_of_a_card) + "pool       kind     on  access\ndefault:0  default  0   no pool support\n\n" + FRESH,
        "",
    )
    for arguments in (["create", "0"], ["grant", "0", "--to", "0"], ["create", "0", "--to", "all"]):
        assert mempool("--sim", slice_of_a_card, *arguments) == (
            3,
            "",
            label(slice_of_a_card)
            + "error: device 0 (GRID A100-4C) has no memory pool support [no-pool-support]\n"
            + hint,
        )
    assert mempool("--sim", slice_of_a_card, "create", "host") == (
        3,
        "",
        label(slice_of_a_card) + "error: there is no support for memory pools on host [no-pool-support]\n"
        "  driver: cuMemPoolCreate = CUDA_ERROR_NOT_SUPPORTED (801)\n" + hint,
    )


def test_a_mig_instance_sees_itself_alone(mempool: Mempool, tmp_path: Path) -> None:
    mig = machine(tmp_path, '[[device]]\nname = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"')
    assert mempool("--sim", mig, "devices").out.splitlines()[1:] == [
        "device  name                               bus id        uuid                                      pools"
        "  host pools  peers",
        "0       NVIDIA H100 80GB HBM3 MIG 1g.10gb  0000:01:00.0  MIG-6090f7d1-e4dd-57e6-9768-669dad3214b8  yes  "
        "  yes         -",
    ]
    assert "default:0  default,current  0   owner 0\n" in mempool("--sim", mig, "probe", "MIG-6090").out
    done = mempool("--sim", mig, "--no-session", "grant", "0", "--to", "1")
    assert (done.status, done.err.splitlines()[1]) == (
        2,
        "error: there is no device 1: only device 0 is visible [unknown-device]",
    )
    assert mempool("--sim", mig, "--no-session", "grant", "0", "--to", "GPU-6090").status == 2


def test_confidential_computing_has_no_peers_anywhere(mempool: Mempool) -> None:
    done = mempool("--sim", "h100-cc", "probe", "--matrix")
    rows = [line.split()[3:] for line in done.out.splitlines()[2:10]]
    assert (done.status, done.err) == (0, "")
    assert rows == [["-", *("own" if column == row else "np" for column in range(8))] for row in range(8)]
    assert all(words == ["yes", "yes", "-"] for words in _last_three(mempool("--sim", "h100-cc", "devices").out))


def _last_three(out: str) -> list[list[str]]:
    return [line.split()[-3:] for line in out.splitlines()[2:]]


def test_a_cell_that_is_not_answered(mempool: Mempool, tmp_path: Path) -> None:
    """The second cell of the first row; the driver may answer for all others."""
    spec = machine(tmp_path, FOUR, failure("cuMemPoolGetAccess", after=1, times=1))
    done = mempool("--sim", spec, "probe", "--matrix")
    assert done.out.startswith(
        label(spec) + "pool       kind             on  host  0    1    2    3\n"
        "default:0  default,current  0   -     own  err  -    -\n"
        "default:1  default,current  1   -     -    own  -    -\n"
    )
    assert (done.status, done.err) == (
        4,
        "error: 1 of 20 cells could not be read [unreadable-cells]\n"
        "  driver: cuMemPoolGetAccess = CUDA_ERROR_UNKNOWN (999)\n",
    )
    assert "default:0  default,current  0   owner 0; none 2-3; unreadable 1\n" in mempool("--sim", spec, "probe").out
    detail = mempool("--sim", spec, "show", "0")
    assert "1       cuMemPoolGetAccess = CUDA_ERROR_UNKNOWN (999)  NVIDIA H200" in detail.out
    assert (detail.status, detail.err.splitlines()[0]) == (
        4,
        "error: 1 of 5 cells could not be read [unreadable-cells]",
    )
    document = json.loads(mempool("--sim", spec, "--format", "json", "probe", "0").out)
    assert document["data"]["rows"][0]["cells"][1] == {
        "device": 1,
        "access": None,
        "flags": None,
        "owner": False,
        "capable": True,
        "error": {
            "code": "driver-refused",
            "message": "the driver refused cuMemPoolGetAccess",
            "hint": None,
            "driver": {"call": "cuMemPoolGetAccess", "code": 999, "name": "CUDA_ERROR_UNKNOWN"},
        },
    }


def test_a_capability_that_is_not_answered(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuDeviceCanAccessPeer", device=3))
    done = mempool("--sim", spec, "probe", "--matrix")
    assert [line.split()[4:] for line in done.out.splitlines()[2:6]] == [
        ["own", "-", "-", "-~"],
        ["-", "own", "-", "-~"],
        ["-", "-", "own", "-~"],
        ["-~", "-~", "-~", "own"],
    ]
    assert (done.status, done.err.splitlines()[0]) == (4, "error: 6 of 20 cells could not be read [unreadable-cells]")


def test_a_pool_is_shown_once_however_often_it_is_named(mempool: Mempool) -> None:
    mempool("--sim", "2", "create", "0", "--name", "a")
    assert mempool("--sim", "2", "probe", "a", "0", "current:0", "a").out == (
        label("2") + "pool       kind             on  access\n"
        "a          created          0   owner 0; none 1\n"
        "default:0  default,current  0   owner 0; none 1\n"
        "\n" + SEEN
    )
