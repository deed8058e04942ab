"""Devices, pools, P2P, and NVML, which is an object that a test gives: what a user reads of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from mempool_cli.doctor import nvml
from mempool_cli.doctor.findings import Facts
from mempool_cli.doctor.nvml import Nvml
from mempool_cli.doctor.run import examine
from mempool_cli.model import Device, Finding

from .trees import answered, cards, examined, plant, text


class NVMLError(Exception):
    pass


class FakeNvml:
    """nvidia-ml-py over these cards: (uuid, bus id); `status`: of pairs (READ, WRITE, ATOMICS) by index."""

    NVMLError = NVMLError

    def __init__(self, cards: Sequence[tuple[str, str]], status: dict[tuple[int, int], tuple[int, int, int]]) -> None:
        self._cards = cards
        self._status = status

    def nvmlInit(self) -> None:  # noqa: N802
        return

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self._cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802 - old releases answer bytes
        return b"580.159.04"

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return self._cards[handle][0]

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=self._cards[handle][1].encode())

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:  # noqa: N802
        raise NVMLError("Not Supported")

    def nvmlDeviceGetPersistenceMode(self, handle: int) -> int:  # noqa: N802
        return int(handle == 0)

    def nvmlDeviceGetP2PStatus(self, one: int, other: int, caps: int) -> int:  # noqa: N802
        assert isinstance(caps, int)
        return self._status.get((one, other), (0, 0, 0))[{0: 0, 1: 1, 3: 2}[caps]]


def asked(devices: Sequence[Device], **status: tuple[int, int, int]) -> Nvml:
    """NVML's answers about these devices in this order; `p01=(5, 5, 5)`: the statuses of 0 and 1."""
    pairs = {(int(name[1]), int(name[2])): found for name, found in status.items()}
    return nvml.ask(FakeNvml([(device.uuid, device.pci_bus_id) for device in devices], pairs))


def test_what_nvml_answers() -> None:
    found = asked(answered("2").devices, p01=(1, 0, 9))
    assert found.driver_version == "580.159.04"
    assert found.confidential is None  # this library is older than the question
    assert [(card.index, card.pci_bus_id, card.mig, card.persistence) for card in found.devices] == [
        (0, "0000:01:00.0", None, True),
        (1, "0000:03:00.0", None, False),
    ]
    assert [(link.read, link.write, link.atomics, link.reason) for link in found.links] == [
        ("CHIPSET_NOT_SUPPORTED", "OK", "status 9", "CHIPSET_NOT_SUPPORTED"),
        ("OK", "OK", "OK", "OK"),
    ]


def test_the_reason_of_each_pair(tmp_path: Path) -> None:
    found = answered("pcie-4")
    said = asked(
        found.devices, p02=(3, 3, 3), p03=(3, 3, 3), p12=(3, 3, 3), p13=(4, 4, 4), p20=(1, 1, 1), p21=(2, 2, 2)
    )
    assert (
        text(examined(tmp_path, found, said), "p2p", "nvml", "order")
        == """\
ok    order  CUDA and nvidia-smi number the cards alike
warn  p2p    4 of 12 ordered pairs are capable
             0 cannot reach 2-3: the way between their PCIe root ports does not support it (IOH_TOPOLOGY_NOT_SUPPORTED)
             1 cannot reach 2: the way between their PCIe root ports does not support it (IOH_TOPOLOGY_NOT_SUPPORTED)
             1 cannot reach 3: a setting of the kernel module disables it (DISABLED_BY_REGKEY)
             2 cannot reach 0: the chipset does not support it (CHIPSET_NOT_SUPPORTED)
             2 cannot reach 1: the card does not support it (GPU_NOT_SUPPORTED)
             3 cannot reach 0-1: NVML finds nothing in the way (OK)
             try: `nvidia-smi topo -m` shows the ways between the cards
ok    nvml   driver 580.159.04; persistence mode is off on 1-3
"""
    )


def test_cards_that_are_numbered_differently(tmp_path: Path) -> None:
    found = answered("3")
    said = asked(found.devices[::-1])
    assert (
        text(examined(tmp_path, found, said), "order")
        == """\
warn  order  CUDA and nvidia-smi number the cards differently
             CUDA device 0 is 2 of nvidia-smi
             CUDA device 2 is 0 of nvidia-smi
             try: CUDA_DEVICE_ORDER=PCI_BUS_ID orders CUDA's as nvidia-smi does; or name cards by UUID
"""
    )
    chosen = examined(tmp_path, found, said, {"CUDA_VISIBLE_DEVICES": "2,1,0"})
    assert text(chosen, "order") == "ok    order  CUDA numbers those that CUDA_VISIBLE_DEVICES lists\n"


@pytest.mark.parametrize(
    ("listed", "level"),
    [
        ("2,1,0", "ok"),
        (" 2, 1 ,0", "ok"),
        ("{0},{1},{2}", "ok"),
        ("GPU-6090f7d1,1,{2}", "ok"),
        ("0,1,2", "warn"),  # the list is in order, and the cards still are not
        ("{0},1,2", "warn"),
        ("2,1", "warn"),
        ("", "warn"),
    ],
)
def test_a_list_of_devices_explains_their_order_or_not(tmp_path: Path, listed: str, level: str) -> None:
    found = answered("3")
    value = listed.format(*(device.uuid for device in found.devices))
    shown = text(examined(tmp_path, found, asked(found.devices[::-1]), {"CUDA_VISIBLE_DEVICES": value}), "order")
    words = {
        "ok": "ok    order  CUDA numbers those that CUDA_VISIBLE_DEVICES lists\n",
        "warn": "warn  order  CUDA and nvidia-smi number the cards differently\n",
    }
    assert shown.startswith(words[level])


def test_nvml_that_is_absent_or_does_not_answer(tmp_path: Path) -> None:
    found = answered("1")
    assert (
        text(examined(tmp_path, found, Nvml(absent=True)), "nvml", verbose=True)
        == """\
ok    nvml  not asked: nvidia-ml-py is not installed
            try: pip install 'mempool-cli[nvml]' adds the reasons for P2P, MIG and the order of nvidia-smi
"""
    )

    class Failing(FakeNvml):
        def nvmlInit(self) -> None:  # noqa: N802
            raise NVMLError("NVML Shared Library Not Found")

    said = nvml.ask(Failing([], {}))
    assert (
        text(examined(tmp_path, found, said), "nvml")
        == """\
warn  nvml  does not answer: NVML Shared Library Not Found
            try: in a container NVIDIA_DRIVER_CAPABILITIES needs utility
"""
    )


def test_the_child_that_asks_nvml() -> None:
    """Whatever this machine has: an answer, or the reason why there is none."""
    found = nvml.look()
    assert found.absent or found.failure or found.devices


def simulated(spec: str) -> tuple[Finding, ...]:
    return examine(Facts(answered(spec)))


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("dgx-h200", "ok    p2p  all 56 ordered pairs are capable\n"),
        ("1", "ok    p2p  one device: there is no pair\n"),
        (
            "no-p2p-2",
            "warn  p2p  none of 2 ordered pairs are capable\n"
            "           0 cannot reach 1\n           1 cannot reach 0\n",
        ),
        (
            "asym-3",
            "warn  p2p  3 of 6 ordered pairs are capable\n           0 cannot reach 1\n           1 cannot reach 2\n"
            "           2 cannot reach 1\n",
        ),
        (
            "h100-cc",
            "warn  p2p  none of 56 ordered pairs are capable\n           0 cannot reach 1-7\n"
            "           1 cannot reach 0, 2-7\n           2 cannot reach 0-1, 3-7\n           3 cannot reach 0-2, 4-7\n"
            "           4 cannot reach 0-3, 5-7\n           5 cannot reach 0-4, 6-7\n           6 cannot reach 0-5, 7\n"
            "           7 cannot reach 0-6\n",
        ),
    ],
)
def test_p2p_of_simulated_machines(spec: str, shown: str) -> None:
    hint = "           try: `nvidia-smi topo -m` shows the ways between the cards\n"
    assert text(simulated(spec), "p2p") == shown + (hint if shown.startswith("warn") else "")


def test_pairs_of_which_the_driver_says_nothing(tmp_path: Path) -> None:
    machine = tmp_path / "machine.toml"
    failure = '[[failure]]\ncall = "cuDeviceCanAccessPeer"\ncode = 999\nafter = 0\ntimes = 100\n'
    machine.write_text("[[device]]\ncount = 2\n[p2p]\nall = true\n" + failure)
    shown = text(simulated(str(machine)), "p2p")
    assert shown.startswith("warn  p2p  the driver does not say whether any of 2 ordered pairs is capable\n")


def test_a_pair_of_which_the_driver_does_not_say(tmp_path: Path) -> None:
    machine = tmp_path / "machine.toml"
    machine.write_text(
        "[[device]]\ncount = 2\n[p2p]\nall = true\n"
        '[[failure]]\ncall = "cuDeviceCanAccessPeer"\ncode = 999\ndevice = 0\nafter = 0\ntimes = 1\n'
    )
    assert (
        text(simulated(str(machine)), "p2p")
        == """\
warn  p2p  1 of 2 ordered pairs are capable, 1 not known
           0 to 1: the driver does not say
           try: `nvidia-smi topo -m` shows the ways between the cards
"""
    )


def test_a_card_without_pools() -> None:
    assert (
        text(simulated("mixed-4"), "devices", "pools", "handles")
        == """\
ok    devices  0-1, 3 NVIDIA A100-PCIE-40GB; 2 Tesla K40c
warn  pools    device, host, NUMA on 0-1, 3; none on 2
               try: old cards have none, and vGPU profiles that are a slice of a card often have none
ok    handles  POSIX_FILE_DESCRIPTOR, FABRIC on 0-1, 3; none on 2
"""
    )


def test_no_card_has_pools(tmp_path: Path) -> None:
    machine = tmp_path / "machine.toml"
    machine.write_text('[[device]]\nname = "GRID A100-1-5C"\npools = false\n')
    pools = next(finding for finding in simulated(str(machine)) if finding.topic == "pools")
    assert (pools.level, pools.code, pools.text) == ("fail", "no-pool-support", "no device has memory pools")


def test_compute_modes(tmp_path: Path) -> None:
    machine = tmp_path / "machine.toml"
    modes = ("default", "prohibited", "exclusive-process", "prohibited")
    machine.write_text("\n".join(f'[[device]]\ncompute_mode = "{mode}"' for mode in modes))
    assert (
        text(simulated(str(machine)), "compute mode")
        == """\
warn  compute mode  devices 1, 3: prohibited: no process may use it
                    try: `nvidia-smi -i BUS_ID -c DEFAULT` as root
warn  compute mode  device 2: exclusive: one process at a time
                    try: `nvidia-smi -i BUS_ID -c DEFAULT` as root
"""
    )


def test_a_mig_instance(tmp_path: Path) -> None:
    found = answered("1")
    name = "NVIDIA H200 MIG 1g.18gb"
    instance = structs.replace(found.devices[0], uuid="MIG-6090f7d1", name=name)
    found = structs.replace(found, devices=(instance,))
    shown = examined(tmp_path, found, asked(answered("1").devices), {"CUDA_VISIBLE_DEVICES": "MIG-6090f7d1,MIG-1"})
    assert (
        text(shown, "devices", "mig", "order", "p2p")
        == f"""\
ok    devices  0 {name}
warn  mig      device 0 is a MIG instance: a process sees one, whatever it is given, and instances have no P2P
               {name}
               try: `nvidia-smi -i BUS_ID -mig 0` as root gives the whole card back
ok    p2p      one device: there is no pair
"""
    )


def test_cuda_visible_devices_that_names_more_than_there_are(tmp_path: Path) -> None:
    found = answered("1")
    assert (
        text(examined(tmp_path, found, environment={"CUDA_VISIBLE_DEVICES": "0,7"}), "devices")
        == f"""\
warn  devices  0 NVIDIA H200; CUDA_VISIBLE_DEVICES lists 2
               CUDA_VISIBLE_DEVICES='0,7'
               device 0: 0000:01:00.0 {found.devices[0].uuid}
               try: it takes ordinals and UUIDs of this machine, each once; what follows a wrong one is ignored
"""
    )


def test_cuda_visible_devices_that_hides_some(tmp_path: Path) -> None:
    plant(tmp_path, cards("0000:01:00.0", "0000:03:00.0"))
    shown = examined(tmp_path, answered("1"), environment={"CUDA_VISIBLE_DEVICES": "0"})
    assert text(shown, "devices") == "ok    devices  0 NVIDIA H200; 2 in this machine\n"


def test_mps(tmp_path: Path) -> None:
    shown = examined(plant(tmp_path, {"/proc/77/comm": "nvidia-cuda-mps-control\n"}), answered("1"))
    assert (
        text(shown, "mps")
        == """\
warn  mps  an MPS control daemon runs
           try: `mempool verify --allow-faults` is refused here; a fault of one client ends the others
"""
    )
